//! Writes that are made only while a lock is held.

use curator_framework::{
    CuratorOp, CuratorTransaction, CuratorTransactionResult, Error, LossReason, Operation, SessionEnd,
};

use crate::error::{LockError, Result};
use crate::locks::hold::{Hold, Place};

/// Changes in ZooKeeper that are made together, and only if the lock is held when the server makes them: each such
/// transaction carries a check of the lock's node, of a multi lock one for each of its locks. The counterpart of etcd's
/// `IsOwner`.
///
/// What [`LockGuard::verify`](crate::LockGuard::verify) and a write after it cannot give, since a process may be stopped in
/// between, this does: a holder that does not know of its loss changes nothing. It needs no fencing token, and protects
/// what is in ZooKeeper only.
///
/// Guards of exclusive locks have it; leases and read locks have not, since there are others beside them. (A multi lock
/// may have read locks among its locks: then it says of those that they are held, and nothing of others beside them.)
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
    first: &'a Place,
    /// Of a multi lock, in the order of its locks.
    others: Vec<&'a Place>,
    transaction: CuratorTransaction<'a>,
}

impl<'a> GuardedTransaction<'a> {
    pub(crate) fn new(first: &'a Place, others: Vec<&'a Place>) -> Self {
        Self { first, others, transaction: first.hold().client().transaction() }
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
    /// waited for the answer; read then. `InvalidArgument` if the guard was released, and for a multi lock whose locks are not
    /// all of one client and namespace. Of the framework: `Transaction` for the first of the
    /// operations that cannot be done, `NoAuth` where the lock's own node may not be read, and `ConnectionLoss` when the retry policy gives up, or at once if the changes
    /// may have been made; else as [`CuratorTransaction::commit`].
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped the changes may be made.
    pub async fn commit(self) -> Result<Vec<CuratorTransactionResult>> {
        let places = || std::iter::once(self.first).chain(self.others.iter().copied());
        let holds: Vec<&Hold> = places().map(|place| &**place.hold()).collect();
        let (client, session) = (self.first.hold().client(), self.first.hold().session());
        let lost = |hold: &Hold, reason| LockError::LockLost { path: hold.lock_path().to_owned(), reason };
        let mut retries = client.retry_loop();
        loop {
            places().try_for_each(Place::check_held)?;
            if !holds.iter().all(|hold| hold.session().is_same(session)) {
                return Err(LockError::invalid("guard", "its locks are not all of one client and namespace"));
            }
            let check = |hold: &&Hold| Operation::Check { path: hold.path().to_owned(), version: None };
            let error = match self.transaction.commit_in(session, holds.iter().map(check).collect()).await {
                Ok(results) => return Ok(results),
                Err(error) => error,
            };
            match error {
                // Of a check itself, which is none of the caller's operations.
                Error::Transaction { index, source, .. } if index < holds.len() => {
                    return Err(match *source {
                        Error::NoNode { .. } => lost(holds[index], LossReason::NodeDeleted),
                        other => other.into(),
                    });
                }
                Error::Transaction { index, operation, source } => {
                    let index = index - holds.len();
                    return Err(Error::Transaction { index, operation, source }.into());
                }
                Error::SessionExpired { .. } => {
                    let reason = LossReason::Session(session.end_reason().unwrap_or(SessionEnd::Expired));
                    return Err(lost(holds[0], reason));
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
