//! Transactions that succeed only while a lock is held.

use std::fmt;

use curator_framework::recipe::RecipeClient as _;
use curator_framework::spi::Operation;
use curator_framework::{CuratorOp, CuratorTransaction, CuratorTransactionResult, Error, LossReason, SessionEnd};

use crate::engine::error::LockError;
use crate::engine::hold::{Hold, HoldShare};

/// Changes in ZooKeeper that the server makes together, and only if the lock is held at that moment. The transaction
/// starts with a check of the lock's node, or of the nodes of a multi lock. The counterpart of etcd's `IsOwner`.
///
/// Calling [`LockGuard::verify`](crate::LockGuard::verify) and then writing is not safe: the process can be paused in
/// between. Here the server checks and writes in one step, so a holder that does not know of its loss changes nothing.
/// This needs no fencing token, but protects only what is in ZooKeeper.
///
/// A leader's transaction is one too. Its errors are [`LeaderError`](crate::LeaderError)s.
///
/// Leases and read locks have no transactions, because they have several holders. If a multi lock contains a read lock,
/// the transaction checks that the read lock is held. Other readers may hold it too.
///
/// # Examples
///
/// ```no_run
/// # async fn run(client: curator_framework::CuratorFramework) -> Result<(), Box<dyn std::error::Error>> {
/// use curator_recipes::InterProcessMutex;
///
/// let guard = InterProcessMutex::new(client, "/locks/settings")?.acquire().await?;
/// guard.transaction().set_data("/settings", "new ones").commit().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
#[must_use = "nothing is changed before commit"]
pub struct GuardedTransaction<'a, E = LockError> {
    first: &'a HoldShare,
    /// The other locks of a multi lock, in order.
    others: Vec<&'a HoldShare>,
    /// The time in which the transaction is allowed, if that may end before the locks are released.
    tenure: Option<&'a dyn Tenure<E>>,
    transaction: CuratorTransaction<'a>,
}

/// A time that ends before the release of its lock.
pub(crate) trait Tenure<E>: fmt::Debug + Sync {
    /// Returns an error if it has ended.
    fn check(&self) -> Result<(), E>;
}

impl<'a> GuardedTransaction<'a> {
    pub(crate) fn new(first: &'a HoldShare, others: Vec<&'a HoldShare>) -> Self {
        Self { first, others, tenure: None, transaction: first.hold().client().transaction() }
    }
}

impl<'a, E> GuardedTransaction<'a, E> {
    pub(crate) fn within(tenure: &'a dyn Tenure<E>, share: &'a HoldShare) -> Self {
        let transaction = share.hold().client().transaction();
        Self { first: share, others: Vec::new(), tenure: Some(tenure), transaction }
    }

    fn with(self, change: impl FnOnce(CuratorTransaction<'a>) -> CuratorTransaction<'a>) -> Self {
        Self { transaction: change(self.transaction), ..self }
    }

    /// Creates a persistent node with this data.
    pub fn create(self, path: impl Into<String>, data: impl Into<Vec<u8>>) -> Self {
        self.with(|transaction| transaction.create(path, data))
    }

    /// Deletes a node.
    pub fn delete(self, path: impl Into<String>) -> Self {
        self.with(|transaction| transaction.delete(path))
    }

    /// Changes a node's data.
    pub fn set_data(self, path: impl Into<String>, data: impl Into<Vec<u8>>) -> Self {
        self.with(|transaction| transaction.set_data(path, data))
    }

    /// Requires that a node exists, and changes nothing.
    pub fn check(self, path: impl Into<String>) -> Self {
        self.with(|transaction| transaction.check(path))
    }

    /// Adds any operation, with a version, a mode and the like. [`CuratorOp::or_replace`] lets a create replace a node.
    pub fn operation(self, operation: CuratorOp) -> Self {
        self.with(|transaction| transaction.operation(operation))
    }

    /// Adds several operations.
    pub fn operations(self, operations: impl IntoIterator<Item = CuratorOp>) -> Self {
        self.with(|transaction| transaction.operations(operations))
    }
}

impl<E: From<LockError> + From<Error>> GuardedTransaction<'_, E> {
    /// Sends the changes, in the session that holds the lock.
    ///
    /// # Errors
    ///
    /// * `LockError::LockLost`: the lock is lost, and nothing was changed. But if the session ended before the reply
    ///   (the reason is [`Session`](LossReason::Session)), the changes may have been made: read the nodes.
    /// * `LeaderError::LeadershipLost`, of a leader's transaction: the term has ended, by a loss or a resignation.
    /// * `LockError::InvalidArgument`: the guard was released, or a multi lock has several clients or namespaces.
    /// * `Error::Transaction`: the first operation that failed, with the reason (`Error::NoNode`, `Error::NodeExists`,
    ///   `Error::BadVersion` …). Nothing was changed.
    /// * `Error::NoAuth`: the ACL forbids the check of the lock's node.
    /// * `Error::InvalidPath`, `Error::Compression`, `Error::SchemaViolation`: an operation cannot be sent.
    ///   `Error::Unsupported`: `zookeeper-async` has no transactions.
    /// * `Error::TooManyEphemeralNodes`: the session cannot have so many nodes. Nothing was sent. Delete others, or use
    ///   another client.
    /// * `Error::ConnectionLoss`: the retry policy gave up, or the changes may have been made
    ///   ([`outcome_unknown`](Error::outcome_unknown)). Such a transaction is not retried, because the retry would fail
    ///   on its own changes.
    /// * `Error::Closed`: nothing was sent.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, the changes may still be made.
    pub async fn commit(self) -> Result<Vec<CuratorTransactionResult>, E> {
        let shares = || std::iter::once(self.first).chain(self.others.iter().copied());
        let holds: Vec<&Hold> = shares().map(|share| &**share.hold()).collect();
        let (client, session) = (self.first.hold().client(), self.first.hold().session());
        let lost = |hold: &Hold, reason| LockError::LockLost { path: hold.lock_path().clone(), reason };
        let mut retries = client.retry_loop();
        loop {
            if let Some(tenure) = self.tenure {
                tenure.check()?;
            }
            if !holds.iter().all(|hold| hold.session().is_same(session)) {
                return Err(LockError::invalid("guard", "its locks are not all of one client and namespace").into());
            }
            let check = |hold: &&Hold| Operation::Check { path: hold.path().to_owned(), version: None };
            let checks: Vec<_> = holds.iter().map(check).collect();
            // Before the check: a release passes the node on only if it sees no transaction, and the check sees a release.
            holds.iter().for_each(|hold| hold.transaction_begins());
            if let Err(error) = shares().try_for_each(HoldShare::check_held) {
                holds.iter().for_each(|hold| hold.transaction_ends());
                return Err(error.into());
            }
            let outcome = client.commit_in(&self.transaction, session, &checks).await;
            if !outcome.as_ref().is_err_and(Error::outcome_unknown) {
                holds.iter().for_each(|hold| hold.transaction_ends());
            }
            let error = match outcome {
                Ok(results) => return Ok(results),
                Err(error) => error,
            };
            match error {
                // The checks precede the caller's operations.
                Error::Transaction { index, cause, .. } if index < holds.len() => {
                    return Err(match *cause {
                        Error::NoNode { .. } => lost(holds[index], LossReason::NodeDeleted).into(),
                        other => other.into(),
                    });
                }
                Error::Transaction { index, operation, cause } => {
                    let index = index - holds.len();
                    return Err(Error::Transaction { index, operation, cause }.into());
                }
                Error::SessionExpired { .. } => {
                    let reason = LossReason::Session(session.end_reason().unwrap_or(SessionEnd::Expired));
                    return Err(lost(holds[0], reason).into());
                }
                error if error.outcome_unknown() => return Err(error.into()),
                error => retries.failed(error).await?,
            }
            match retries.reconnected(session).await {
                Err(Error::SessionExpired { .. }) => {}
                reconnected => reconnected?,
            }
        }
    }
}
