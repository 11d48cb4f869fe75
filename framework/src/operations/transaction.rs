//! Transactions: several changes at once.

use crate::core::ClientCore;
use crate::error::{Error, Result};
use crate::model::path::validate_path;
use crate::model::{Acl, CreateMode, Stat};
use crate::session::Session;
use crate::zookeeper::{Done, Operation};

/// The limit of attempts, while other clients create and delete the nodes that a transaction replaces. A failed attempt
/// changes nothing.
const REPLACE_ATTEMPTS: usize = 16;

/// The kind of an operation in a transaction: Curator's `OperationType`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum OperationType {
    /// Creates a node.
    Create,
    /// Deletes a node.
    Delete,
    /// Changes a node's data.
    SetData,
    /// Changes nothing; fails if the node does not exist.
    Check,
}

/// An operation of a transaction: Curator's `CuratorOp`.
#[derive(Debug, Clone)]
#[must_use = "an operation does nothing outside of a transaction"]
#[doc(alias = "TransactionOp")]
pub struct CuratorOp {
    kind: OperationType,
    path: String,
    data: Option<Vec<u8>>,
    acl: Option<Vec<Acl>>,
    mode: CreateMode,
    version: Option<i32>,
    compress: Option<bool>,
    replaces: bool,
}

impl CuratorOp {
    fn new(kind: OperationType, path: impl Into<String>) -> Self {
        Self {
            kind,
            path: path.into(),
            data: None,
            acl: None,
            mode: CreateMode::Persistent,
            version: None,
            compress: None,
            replaces: false,
        }
    }

    /// Creates a node, persistent unless [`with_mode`](Self::with_mode) sets another mode. Its parent must exist.
    pub fn create(path: impl Into<String>) -> Self {
        Self::new(OperationType::Create, path)
    }

    /// Deletes a node.
    pub fn delete(path: impl Into<String>) -> Self {
        Self::new(OperationType::Delete, path)
    }

    /// Changes a node's data.
    pub fn set_data(path: impl Into<String>, data: impl Into<Vec<u8>>) -> Self {
        Self::new(OperationType::SetData, path).with_data(data)
    }

    /// Changes nothing; fails if the node does not exist, or has another version than a given one.
    pub fn check(path: impl Into<String>) -> Self {
        Self::new(OperationType::Check, path)
    }

    /// Sets the data to write. Default for a create: the client's default data.
    pub fn with_data(mut self, data: impl Into<Vec<u8>>) -> Self {
        self.data = Some(data.into());
        self
    }

    /// Sets the mode of a created node.
    pub fn with_mode(mut self, mode: CreateMode) -> Self {
        self.mode = mode;
        self
    }

    /// Sets the access control list of a created node. Default: the list of the client's
    /// [`AclProvider`](crate::AclProvider).
    pub fn with_acl(mut self, acl: impl Into<Vec<Acl>>) -> Self {
        self.acl = Some(acl.into());
        self
    }

    /// Sets the version that the node to delete, change or check must have.
    pub fn with_version(mut self, version: i32) -> Self {
        self.version = Some(version);
        self
    }

    /// Lets a create replace the node that exists at its path, even one of another session: the transaction deletes that
    /// node, then creates the new one. A node with children is not replaced. Costs one more request if the node exists.
    /// Changes nothing in other operations, and in creates with a sequential mode.
    pub fn or_replace(mut self) -> Self {
        self.replaces = true;
        self
    }

    /// Compresses the data, regardless of the client's default.
    pub fn compressed(mut self) -> Self {
        self.compress = Some(true);
        self
    }

    /// Does not compress the data, regardless of the client's default.
    pub fn uncompressed(mut self) -> Self {
        self.compress = Some(false);
        self
    }

    fn replaces(&self) -> bool {
        self.replaces && self.kind == OperationType::Create && !self.mode.is_sequential()
    }

    /// Checks the operation and fills in the client's defaults.
    fn prepare(&self, client: &ClientCore, session: &Session) -> Result<Operation> {
        let path = self.path.clone();
        if self.kind == OperationType::Create && self.mode.is_sequential() {
            validate_path(&format!("{path}1"))?;
        } else {
            validate_path(&path)?;
        }
        let data = || self.data.clone().unwrap_or_else(|| client.default_data().to_vec());
        let version = self.version;
        Ok(match self.kind {
            OperationType::Create => {
                let acl = self.acl.clone().unwrap_or_else(|| session.acl_for(&path));
                let data = data();
                client.check_schemas(|schemas| schemas.check_create(&path, self.mode, &data, &acl))?;
                let data = client.to_stored(&path, data, self.compress)?;
                Operation::Create { path, data, acl, mode: self.mode }
            }
            OperationType::Delete => {
                client.check_schemas(|schemas| schemas.check_delete(&path))?;
                Operation::Delete { path, version }
            }
            OperationType::SetData => {
                let data = data();
                client.check_schemas(|schemas| schemas.check_change(&path, &data))?;
                Operation::SetData { data: client.to_stored(&path, data, self.compress)?, path, version }
            }
            OperationType::Check => Operation::Check { path, version },
        })
    }
}

/// The result of an operation in a committed transaction: Curator's `CuratorTransactionResult`.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct CuratorTransactionResult {
    /// The kind of the operation.
    pub operation: OperationType,
    /// The path in the request.
    pub for_path: String,
    /// The path of a created node, with the number that the server appended.
    pub result_path: Option<String>,
    /// The new stat of a changed node. Of a created node only if the server sends it, which Apache 3.8 does for
    /// containers and nodes with a time to live only.
    pub result_stat: Option<Stat>,
}

/// The description of changes of which all are made or none: Curator's `CuratorTransaction` and `TransactionOp`.
///
/// # Examples
///
/// ```no_run
/// # async fn run(client: curator_framework::CuratorFramework) -> Result<(), curator_framework::Error> {
/// use curator_framework::CuratorOp;
///
/// client
///     .transaction()
///     .create("/orders/17", "two of them")
///     .operation(CuratorOp::set_data("/stock", "40").with_version(3))
///     .commit()
///     .await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
#[must_use = "nothing is changed before commit"]
#[doc(alias = "CuratorMultiTransaction")]
pub struct CuratorTransaction<'a> {
    client: &'a ClientCore,
    operations: Vec<CuratorOp>,
}

impl<'a> CuratorTransaction<'a> {
    pub(crate) fn new(client: &'a ClientCore) -> Self {
        Self { client, operations: Vec::new() }
    }

    /// Creates a persistent node with this data.
    pub fn create(self, path: impl Into<String>, data: impl Into<Vec<u8>>) -> Self {
        self.operation(CuratorOp::create(path).with_data(data))
    }

    /// Deletes a node.
    pub fn delete(self, path: impl Into<String>) -> Self {
        self.operation(CuratorOp::delete(path))
    }

    /// Changes a node's data.
    pub fn set_data(self, path: impl Into<String>, data: impl Into<Vec<u8>>) -> Self {
        self.operation(CuratorOp::set_data(path, data))
    }

    /// Changes nothing; fails if the node does not exist.
    pub fn check(self, path: impl Into<String>) -> Self {
        self.operation(CuratorOp::check(path))
    }

    /// Adds any operation, with a version, a mode and the like.
    pub fn operation(mut self, operation: CuratorOp) -> Self {
        self.operations.push(operation);
        self
    }

    /// Adds several operations: Curator's `forOperations`.
    #[doc(alias = "forOperations")]
    pub fn operations(mut self, operations: impl IntoIterator<Item = CuratorOp>) -> Self {
        self.operations.extend(operations);
        self
    }

    /// Makes the changes in their order; each one sees the earlier ones. An empty transaction sends no request.
    ///
    /// # Errors
    ///
    /// * `Error::Transaction`: the first operation that failed, with the reason (`Error::NoNode`, `Error::NodeExists`,
    ///   `Error::BadVersion` …).
    /// * `Error::InvalidPath`, `Error::Compression`, `Error::SchemaViolation`; `Error::Unsupported` with
    ///   `zookeeper-async`.
    /// * `Error::TooManyEphemeralNodes`: the session cannot have so many nodes. Nothing was sent. Delete others, or use
    ///   another client. A transaction that deletes as many bytes of the session's known nodes as it creates always fits.
    /// * `Error::ConnectionLoss`, `Error::SessionExpired`: the policy gave up, or the changes may have been made
    ///   ([`outcome_unknown`](crate::Error::outcome_unknown)), as when the client was closed before the reply. Such a
    ///   transaction is not retried, because the retry would fail on its own changes. (Curator's retries.)
    /// * `Error::Closed`: nothing was sent.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, the changes may be made.
    pub async fn commit(self) -> Result<Vec<CuratorTransactionResult>> {
        let mut retries = self.client.retry_loop();
        loop {
            let result = match retries.session().await {
                Ok(session) => self.commit_in(&session, &[]).await,
                Err(error) => Err(error),
            };
            match result {
                Err(error) if !error.outcome_unknown() => retries.failed(error).await?,
                result => return result,
            }
        }
    }

    /// Returns the operations, checked, with the client's defaults.
    pub(crate) fn operations_in(&self, session: &Session) -> Result<Vec<Operation>> {
        self.operations.iter().map(|operation| operation.prepare(self.client, session)).collect()
    }

    /// See [`RecipeClient::commit_in`](crate::recipe::RecipeClient::commit_in).
    pub(crate) async fn commit_in(
        &self,
        session: &Session,
        before: &[Operation],
    ) -> Result<Vec<CuratorTransactionResult>> {
        // For each create that replaces a node, whether a node is known to exist.
        let mut exists = vec![false; self.operations.len()];
        let mut attempts = 0;
        loop {
            attempts += 1;
            let mut sent = before.to_vec();
            // The operations of the caller, and deletes ahead of them.
            let mut parts = Vec::with_capacity(self.operations.len());
            for (index, operation) in self.operations.iter().enumerate() {
                if exists[index] {
                    sent.push(CuratorOp::delete(&*operation.path).prepare(self.client, session)?);
                    parts.push((index, None));
                }
                sent.push(operation.prepare(self.client, session)?);
                parts.push((index, Some(operation)));
            }
            let error = match session.transaction(sent).await {
                Ok(done) => {
                    let done = parts.into_iter().zip(done.into_iter().skip(before.len()));
                    return Ok(done.filter_map(|((_, asked), done)| Some(told(asked?, done))).collect());
                }
                Err(error) => error,
            };
            let Error::Transaction { index, operation, cause } = error else { return Err(error) };
            let Some((part, _)) = index.checked_sub(before.len()).and_then(|index| parts.get(index)) else {
                return Err(Error::Transaction { index, operation, cause });
            };
            let is_news = match *cause {
                Error::NodeExists { .. } => !exists[*part] && self.operations[*part].replaces(),
                Error::NoNode { .. } => exists[*part],
                _ => false,
            };
            if !is_news || attempts == REPLACE_ATTEMPTS {
                return Err(Error::Transaction { index: before.len() + part, operation, cause });
            }
            exists[*part] = !exists[*part];
        }
    }
}

fn told(asked: &CuratorOp, done: Done) -> CuratorTransactionResult {
    let (result_path, result_stat) = match done {
        // No stat was sent: no node was ever created by transaction 0.
        Done::Created { path, stat } => (Some(path), (stat.czxid > 0).then_some(stat)),
        Done::Set(stat) => (None, Some(stat)),
        Done::Deleted | Done::Checked => (None, None),
    };
    CuratorTransactionResult { operation: asked.kind, for_path: asked.path.clone(), result_path, result_stat }
}
