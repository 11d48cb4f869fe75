//! Writes that are made only while a lock is held.

use curator_framework::{
    CuratorOp, CuratorTransaction, CuratorTransactionResult, Error, LossReason, Operation, SessionEnd,
};

use crate::error::{LockError, Result};
use crate::locks::hold::{Hold, Place};

/// Changes in ZooKeeper that are made together, and only if the lock is held when the server makes them: each such
/// transaction carries a check of the lock's node. The counterpart of etcd's `IsOwner`.
///
/// What [`LockGuard::verify`](crate::LockGuard::verify) and a write after it cannot give, since a process may be stopped in
/// between, this does: a holder that does not know of its loss changes nothing. It needs no fencing token, and protects
/// what is in ZooKeeper only.
///
/// Guards of exclusive locks have it; leases and read locks have not, since there are others beside them.
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
pub struct GuardedTransaction<'a> {
    place: &'a Place,
    transaction: CuratorTransaction<'a>,
}

impl<'a> GuardedTransaction<'a> {
    pub(crate) fn new(place: &'a Place) -> Self {
        Self { place, transaction: place.hold().client().transaction() }
    }

    fn with(self, change: impl FnOnce(CuratorTransaction<'a>) -> CuratorTransaction<'a>) -> Self {
        Self { place: self.place, transaction: change(self.transaction) }
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

    /// Changes nothing; the node must be there.
    pub fn check(self, path: impl Into<String>) -> Self {
        self.with(|transaction| transaction.check(path))
    }

    /// Any operation, with a version, a mode and the like.
    pub fn operation(self, operation: CuratorOp) -> Self {
        self.with(|transaction| transaction.operation(operation))
    }

    /// Several operations.
    pub fn operations(self, operations: impl IntoIterator<Item = CuratorOp>) -> Self {
        self.with(|transaction| transaction.operations(operations))
    }
}

impl GuardedTransaction<'_> {
    /// Makes the changes, in the session that holds the lock.
    ///
    /// # Errors
    ///
    /// `LockLost` if the lock is not held: nothing was changed, unless [the session ended](LossReason::Session) while this
    /// waited for the answer; read then. `InvalidArgument` if the guard was released. Of the framework: `Transaction` for the first of the
    /// operations that cannot be done, `NoAuth` where the lock's own node may not be read, and `ConnectionLoss` when the retry policy gives up, or at once if the changes
    /// may have been made; else as [`CuratorTransaction::commit`].
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped the changes may be made.
    pub async fn commit(self) -> Result<Vec<CuratorTransactionResult>> {
        let hold: &Hold = self.place.hold();
        let session = hold.session();
        let lost = |reason| LockError::LockLost { path: hold.lock_path().to_owned(), reason };
        let mut retries = hold.client().retry_loop();
        loop {
            self.place.check_held()?;
            let check = Operation::Check { path: hold.path().to_owned(), version: None };
            let error = match self.transaction.commit_in(session, vec![check]).await {
                Ok(results) => return Ok(results),
                Err(error) => error,
            };
            match error {
                Error::Transaction { index: 0, source, .. } if matches!(*source, Error::NoNode { .. }) => {
                    return Err(lost(LossReason::NodeDeleted));
                }
                // Of the check itself, which is none of the caller's operations.
                Error::Transaction { index: 0, source, .. } => return Err((*source).into()),
                Error::Transaction { index, operation, source } => {
                    let index = index - 1;
                    return Err(Error::Transaction { index, operation, source }.into());
                }
                Error::SessionExpired { .. } => {
                    return Err(lost(LossReason::Session(session.end_reason().unwrap_or(SessionEnd::Expired))));
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
