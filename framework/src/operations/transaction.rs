//! Several changes at once.

use crate::client::CuratorFramework;
use crate::error::Result;
use crate::model::{Acl, CreateMode, Stat};
use crate::path::validate_path;
use crate::session::Session;
use crate::zookeeper::{Done, Operation};

/// What an operation of a transaction does: Curator's `OperationType`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum OperationType {
    /// Creates a node.
    Create,
    /// Deletes a node.
    Delete,
    /// Changes a node's data.
    SetData,
    /// Changes nothing; the node must be there.
    Check,
}

/// An operation of a transaction: Curator's `CuratorOp`.
#[derive(Debug, Clone)]
#[must_use = "an operation does nothing outside of a transaction"]
pub struct CuratorOp {
    kind: OperationType,
    path: String,
    data: Option<Vec<u8>>,
    acl: Option<Vec<Acl>>,
    mode: CreateMode,
    version: Option<i32>,
    compress: Option<bool>,
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
        }
    }

    /// Creates a node, persistent if [`with_mode`](Self::with_mode) does not say otherwise. Its parent must be there.
    pub fn create(path: impl Into<String>) -> Self {
        Self::new(OperationType::Create, path)
    }

    /// Deletes a node.
    pub fn delete(path: impl Into<String>) -> Self {
        Self::new(OperationType::Delete, path)
    }

    /// Changes a node's data.
    pub fn set_data(path: impl Into<String>) -> Self {
        Self::new(OperationType::SetData, path)
    }

    /// Changes nothing; the node must be there, with the version if one is given.
    pub fn check(path: impl Into<String>) -> Self {
        Self::new(OperationType::Check, path)
    }

    /// The data that is written. Default: the client's default data.
    pub fn with_data(mut self, data: impl Into<Vec<u8>>) -> Self {
        self.data = Some(data.into());
        self
    }

    /// The mode of a node that is created.
    pub fn with_mode(mut self, mode: CreateMode) -> Self {
        self.mode = mode;
        self
    }

    /// The access control list of a node that is created. Default: what the client's [`AclProvider`](crate::AclProvider)
    /// says.
    pub fn with_acl(mut self, acl: impl Into<Vec<Acl>>) -> Self {
        self.acl = Some(acl.into());
        self
    }

    /// The version that a node must have which is deleted, changed or checked.
    pub fn with_version(mut self, version: i32) -> Self {
        self.version = Some(version);
        self
    }

    /// Compresses the data, whatever the client's default.
    pub fn compressed(mut self) -> Self {
        self.compress = Some(true);
        self
    }

    /// Does not compress the data, whatever the client's default.
    pub fn uncompressed(mut self) -> Self {
        self.compress = Some(false);
        self
    }

    /// Checks it, and puts in what the client has for what was not given.
    fn prepare(&self, client: &CuratorFramework, session: &Session) -> Result<Operation> {
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
                if let Some(schemas) = client.schemas() {
                    schemas.check_create(&path, self.mode, &data, &acl)?;
                }
                let data = client.to_stored(&path, data, self.compress)?;
                Operation::Create { path, data, acl, mode: self.mode }
            }
            OperationType::Delete => {
                if let Some(schemas) = client.schemas() {
                    schemas.check_delete(&path)?;
                }
                Operation::Delete { path, version }
            }
            OperationType::SetData => {
                let data = data();
                client.check_change(&path, &data)?;
                Operation::SetData { data: client.to_stored(&path, data, self.compress)?, path, version }
            }
            OperationType::Check => Operation::Check { path, version },
        })
    }
}

/// What became of an operation of a transaction that was done: Curator's `CuratorTransactionResult`.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct CuratorTransactionResult {
    /// What it was.
    pub operation: OperationType,
    /// The path as it was asked for.
    pub for_path: String,
    /// The path of a node that was created, with the number that the server appended.
    pub result_path: Option<String>,
    /// The new stat of a node that was changed; also of one that was created where the server tells it, which Apache 3.8
    /// does for containers and nodes with a time to live only.
    pub result_stat: Option<Stat>,
}

/// Changes that are made together or not at all, being described: Curator's `CuratorTransaction` and
/// `TransactionOp`.
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
///     .operation(CuratorOp::set_data("/stock").with_data("40").with_version(3))
///     .commit()
///     .await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
#[must_use = "nothing is changed before commit"]
pub struct CuratorTransaction<'a> {
    client: &'a CuratorFramework,
    operations: Vec<CuratorOp>,
}

impl<'a> CuratorTransaction<'a> {
    pub(crate) fn new(client: &'a CuratorFramework) -> Self {
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
        self.operation(CuratorOp::set_data(path).with_data(data))
    }

    /// Changes nothing; the node must be there.
    pub fn check(self, path: impl Into<String>) -> Self {
        self.operation(CuratorOp::check(path))
    }

    /// Any operation, with a version, a mode and the like.
    pub fn operation(mut self, operation: CuratorOp) -> Self {
        self.operations.push(operation);
        self
    }

    /// Several operations: Curator's `forOperations`.
    pub fn operations(mut self, operations: impl IntoIterator<Item = CuratorOp>) -> Self {
        self.operations.extend(operations);
        self
    }

    /// Makes the changes, in their order, each on what the ones before have left. A transaction without operations is
    /// answered at once.
    ///
    /// # Errors
    ///
    /// `Transaction` for the first operation that cannot be done, with the reason (`NoNode`, `NodeExists`, `BadVersion`
    /// …); `InvalidPath`, `Compression`, `SchemaViolation`; `Unsupported` with `zookeeper-async`;
    /// `ConnectionLoss` and `SessionExpired`: when the policy gives up, or at once if the changes may have been made
    /// ([`outcome_unknown`](crate::Error::outcome_unknown)), since a transaction made twice would tell a failure. (Curator's
    /// makes it twice.) `SessionExpired` also if the client is closed before the answer comes; `Closed` if nothing was sent.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped the changes may be made.
    pub async fn commit(self) -> Result<Vec<CuratorTransactionResult>> {
        let mut retries = self.client.retry_loop();
        loop {
            let result = match retries.session().await {
                Ok(session) => self.commit_in(&session, Vec::new()).await,
                Err(error) => Err(error),
            };
            match result {
                Err(error) if !error.outcome_unknown() => retries.failed(error).await?,
                result => return result,
            }
        }
    }

    /// Makes the changes in this session, behind some operations of the caller's, which the result does not have, but an
    /// error counts. No retry. For recipes.
    ///
    /// # Errors
    ///
    /// As [`commit`](Self::commit).
    pub async fn commit_in(&self, session: &Session, before: Vec<Operation>) -> Result<Vec<CuratorTransactionResult>> {
        let skip = before.len();
        let mut operations = before;
        for operation in &self.operations {
            operations.push(operation.prepare(self.client, session)?);
        }
        let done = session.transaction(operations).await?;
        Ok(self.operations.iter().zip(done.into_iter().skip(skip)).map(|(asked, done)| told(asked, done)).collect())
    }
}

fn told(asked: &CuratorOp, done: Done) -> CuratorTransactionResult {
    let (result_path, result_stat) = match done {
        // Not told: no node was ever created by transaction 0.
        Done::Created { path, stat } => (Some(path), (stat.czxid > 0).then_some(stat)),
        Done::Set(stat) => (None, Some(stat)),
        Done::Deleted | Done::Checked => (None, None),
    };
    CuratorTransactionResult { operation: asked.kind, for_path: asked.path.clone(), result_path, result_stat }
}
