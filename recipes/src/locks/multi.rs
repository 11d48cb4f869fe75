//! Several locks as one.

use std::sync::Arc;

use curator_framework::CuratorFramework;
use curator_framework::mutants::{Mutant, is_broken};
use tokio::time::Instant;

use crate::error::{LockError, Result};
use crate::locks::guard::LockGuard;
use crate::locks::inter_process_lock::InterProcessLock;
use crate::locks::lock_internals::Patience;
use crate::locks::methods::acquire_methods;
use crate::locks::mutex::InterProcessMutex;
use crate::locks::owner::LockOwner;
use crate::locks::reentrant::left;

/// Several locks that are acquired together or not at all: Curator's `InterProcessMultiLock`. Cheap to clone.
///
/// The locks are acquired one after the other in their order, and released in the reverse one. If one cannot be had,
/// those that were acquired are released.
///
/// # Deadlocks
///
/// Two multi locks that name the same locks in another order can block each other. Sort the paths the same way
/// everywhere.
///
/// # Reentrancy and losing the lock
///
/// As those of the locks. The guard is held while all of its parts are, and lost with the first of them.
///
/// # Examples
///
/// ```no_run
/// # async fn run(client: curator_framework::CuratorFramework) -> Result<(), curator_recipes::LockError> {
/// use curator_recipes::InterProcessMultiLock;
///
/// let accounts = InterProcessMultiLock::new(client, ["/accounts/17", "/accounts/42"])?;
/// let guard = accounts.acquire().await?;
/// // … both are ours …
/// guard.release().await?;
/// # Ok(())
/// # }
/// ```
///
/// # Differences from Curator
///
/// One budget covers all locks, where Curator gives it to each anew. An error ends the attempt at once, where Curator
/// goes on to the other locks.
///
/// # ZooKeeper layout and cost
///
/// Those of the locks.
#[derive(Debug, Clone)]
pub struct InterProcessMultiLock {
    locks: Arc<[Arc<dyn InterProcessLock>]>,
}

acquire_methods!(InterProcessMultiLock => LockGuard);

impl InterProcessMultiLock {
    /// A mutex for each path.
    ///
    /// # Errors
    ///
    /// `InvalidPath`; `InvalidArgument` for no path at all, for the root, and for a path that is named twice.
    pub fn new<I>(client: CuratorFramework, paths: I) -> Result<Self>
    where
        I: IntoIterator,
        I::Item: Into<String>,
    {
        let mut locks: Vec<Arc<dyn InterProcessLock>> = Vec::new();
        let mut seen = Vec::new();
        for path in paths {
            let path = path.into();
            if seen.contains(&path) {
                return Err(LockError::invalid(
                    "lock paths",
                    format!("{path} is named twice and would wait for itself"),
                ));
            }
            locks.push(Arc::new(InterProcessMutex::new(client.clone(), path.clone())?));
            seen.push(path);
        }
        Self::from_locks(locks)
    }

    /// These locks, which may be of different kinds.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` if there is none.
    pub fn from_locks(locks: impl IntoIterator<Item = Arc<dyn InterProcessLock>>) -> Result<Self> {
        let locks: Arc<[_]> = locks.into_iter().collect();
        if locks.is_empty() {
            return Err(LockError::invalid("locks", "there is none"));
        }
        Ok(Self { locks })
    }

    /// Whether all of the locks are held through this object, its parts or clones of them.
    #[must_use]
    pub fn is_acquired_in_this_process(&self) -> bool {
        self.locks.iter().all(|lock| lock.is_acquired_in_this_process())
    }

    /// The owner is the same for all locks, since they are acquired in one future.
    async fn acquire_for(&self, _owner: Option<LockOwner>, patience: Patience) -> Result<Option<LockGuard>> {
        let began = Instant::now();
        let mut taken = Taken(Vec::with_capacity(self.locks.len()));
        for lock in self.locks.iter() {
            let granted = match patience {
                Patience::Forever => lock.acquire().await.map(Some),
                // A budget that is used up must not become a look.
                Patience::AtMost(budget) if left(budget, began).is_zero() => Ok(None),
                Patience::AtMost(budget) => lock.acquire_timeout(left(budget, began)).await,
                Patience::Once => lock.try_acquire().await,
            };
            match granted {
                Ok(Some(guard)) => taken.0.push(guard),
                Ok(None) if patience == Patience::Once => {
                    // Gone when this is answered, as of a single lock.
                    LockGuard::all(taken.take()).release().await?;
                    return Ok(None);
                }
                Ok(None) => return Ok(None),
                Err(error) => return Err(error),
            }
        }
        Ok(Some(LockGuard::all(taken.take())))
    }
}

/// Locks that are given back in the reverse order if the others cannot be had.
struct Taken(Vec<LockGuard>);

impl Taken {
    fn take(&mut self) -> Vec<LockGuard> {
        std::mem::take(&mut self.0)
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        if is_broken(Mutant::KeepThePartialLocks) {
            Box::leak(Box::new(self.take()));
        }
        while let Some(guard) = self.0.pop() {
            drop(guard);
        }
    }
}
