//! Several locks as one.

use std::collections::HashSet;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use curator_framework::recipe::RecipeClient as _;
use curator_framework::{Chain, CuratorFramework};
use tokio::time::Instant;

use crate::engine::WaitMode;
use crate::engine::caller::Caller;
use crate::engine::error::LockError;
use crate::engine::while_held::Losses;
use crate::locks::acquire_methods::acquire_methods;
use crate::locks::guard::kinds;
use crate::locks::guard::lock_guard::LockGuard;
use crate::locks::inter_process_lock::{InterProcessLock, inter_process_lock};
use crate::locks::mutex::InterProcessMutex;

/// Several locks that are acquired together or not at all: Curator's `InterProcessMultiLock`. Cheap to clone.
///
/// The locks are acquired one after the other in their order, and released in the reverse order. If one is not granted,
/// those before it are released.
///
/// # Deadlocks
///
/// Two multi locks with the same locks in different orders can block each other. Sort the paths in the same way
/// everywhere.
///
/// # Reentrancy and losing the lock
///
/// Each lock has its own rules of reentrancy. The guard is held while all of its parts are held, and lost with the
/// first loss of a part. If a part is lost before all are granted, all are released and acquired again. `try_acquire`
/// and a budget that has ended fail with `LockLost` instead. If the budget ends between two locks, `acquire_timeout`
/// fails with `ConnectionLoss`, because no reply has shown another contender ahead.
///
/// # Examples
///
/// ```
/// # #[tokio::main]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = curator_test::TestingServer::start()?;
/// # let retry = curator_framework::RetryOneTime::new(std::time::Duration::from_millis(50));
/// # let client = curator_framework::CuratorFramework::new_client(server.connect_string(), retry)?;
/// # client.start()?;
/// use curator_recipes::InterProcessMultiLock;
///
/// let accounts = InterProcessMultiLock::new(client, ["/accounts/17", "/accounts/42"])?;
/// let guard = accounts.acquire().await?;
/// // … both are ours …
/// guard.release().await?.held()?;
/// # Ok(())
/// # }
/// ```
///
/// # Differences from Curator
///
/// One budget covers all locks; in Curator each lock gets the whole budget. An error ends the attempt at once; Curator
/// continues with the other locks.
///
/// # ZooKeeper layout and cost
///
/// Each lock has its own layout and cost.
#[derive(Debug, Clone)]
pub struct InterProcessMultiLock {
    locks: Arc<[Arc<dyn InterProcessLock>]>,
}

acquire_methods!(InterProcessMultiLock => MultiLockGuard);
inter_process_lock!(InterProcessMultiLock);

/// The guard of an [`InterProcessMultiLock`].
pub type MultiLockGuard = LockGuard<kinds::Multi>;

impl InterProcessMultiLock {
    /// Creates a multi lock with a mutex for each path.
    ///
    /// # Errors
    ///
    /// `Error::InvalidPath`; `LockError::InvalidArgument` for an empty list, for the root, and for a path that is named
    /// twice.
    pub fn new<I>(client: CuratorFramework, paths: I) -> Result<Self, LockError>
    where
        I: IntoIterator,
        I::Item: Into<String>,
    {
        let mut locks: Vec<Arc<dyn InterProcessLock>> = Vec::new();
        let mut seen = HashSet::new();
        for path in paths {
            let path = path.into();
            if !seen.insert(path.clone()) {
                return Err(LockError::invalid(
                    "lock paths",
                    format!("{path} is named twice and would wait for itself"),
                ));
            }
            locks.push(Arc::new(InterProcessMutex::new(client.clone(), path)?));
        }
        Self::from_locks(locks)
    }

    /// Creates a multi lock of these locks, which may be of different kinds. Name each lock once: without a
    /// [`LockOwner`](crate::LockOwner), an acquire of the second would wait for the first.
    ///
    /// # Errors
    ///
    /// `LockError::InvalidArgument` for an empty list.
    pub fn from_locks(locks: impl IntoIterator<Item = Arc<dyn InterProcessLock>>) -> Result<Self, LockError> {
        let locks: Arc<[_]> = locks.into_iter().collect();
        if locks.is_empty() {
            return Err(LockError::invalid("locks", "there is none"));
        }
        Ok(Self { locks })
    }

    /// Returns whether all of the locks are held through this object, its parts or clones of them.
    #[must_use]
    pub fn is_acquired_in_this_process(&self) -> bool {
        self.locks.iter().all(|lock| lock.is_acquired_in_this_process())
    }

    /// Acquires all locks in one future, so that each lock finds the same current owner.
    async fn acquire_for(&self, _caller: Caller, mode: WaitMode) -> Result<Option<MultiLockGuard>, LockError> {
        let began = Instant::now();
        loop {
            match self.acquire_all(began, mode).await? {
                Outcome::Granted(guard) => return Ok(Some(guard)),
                Outcome::NotGranted => return Ok(None),
                // A caller without time left gets the error; for the others the loop acquires all locks again.
                Outcome::Lost(error) if mode == WaitMode::Once || mode.is_over() => return Err(error),
                Outcome::Lost(error) => {
                    tracing::debug!(error = %Chain(&error), "a part of a multi lock was lost, all are acquired again")
                }
            }
        }
    }

    async fn acquire_all(&self, began: Instant, mode: WaitMode) -> Result<Outcome, LockError> {
        let mut acquired = AcquiredSoFar(Vec::with_capacity(self.locks.len()));
        let mut losses = Losses::default();
        for lock in self.locks.iter() {
            let granted = match losses.keep(acquired.next(&**lock, began, mode)).await {
                Ok(granted) => granted?,
                Err((reason, path)) => return Ok(Outcome::Lost(LockError::LockLost { path, reason })),
            };
            match granted {
                Some(guard) => {
                    guard.losses().for_each(|(signal, path)| losses.add(signal, path));
                    acquired.0.push(guard);
                }
                None if mode == WaitMode::Once => {
                    // The caller gets its refusal after the deletes, as from a single lock.
                    in_time(&acquired, began, Box::pin(acquired.release())).await?;
                    return Ok(Outcome::NotGranted);
                }
                None => return Ok(Outcome::NotGranted),
            }
        }
        // The last check, of the clock too.
        let lost = acquired.0.iter().find_map(|guard| Some((guard.lock_path().clone(), guard.loss()?)));
        match lost {
            Some((path, reason)) => Ok(Outcome::Lost(LockError::LockLost { path, reason })),
            None => Ok(Outcome::Granted(LockGuard::all(std::mem::take(&mut acquired.0)))),
        }
    }
}

/// Bounds a try by the connection timeout, counted once for all locks. The first lock bounds itself.
async fn in_time<T>(
    acquired: &AcquiredSoFar,
    began: Instant,
    answer: impl Future<Output = Result<T, LockError>>,
) -> Result<T, LockError> {
    let Some(client) = acquired.client() else { return answer.await };
    match tokio::time::timeout_at(began + client.connection_timeout(), answer).await {
        Ok(answer) => answer,
        Err(_elapsed) => Err(client.no_answer(&acquired.request()).into()),
    }
}

/// The outcome of one attempt.
enum Outcome {
    Granted(MultiLockGuard),
    NotGranted,
    /// A part was lost before all of them were granted.
    Lost(LockError),
}

/// The locks acquired so far. If dropped, it releases them in the reverse order.
struct AcquiredSoFar(Vec<LockGuard>);

impl AcquiredSoFar {
    /// Acquires the next lock.
    async fn next(
        &self,
        lock: &dyn InterProcessLock,
        began: Instant,
        mode: WaitMode,
    ) -> Result<Option<LockGuard>, LockError> {
        match mode {
            WaitMode::Forever => lock.acquire().await.map(Some),
            WaitMode::Until(end) => match (end.saturating_duration_since(Instant::now()), self.client()) {
                // The locks so far were granted, and the next one was not asked for.
                (Duration::ZERO, Some(client)) => Err(client.no_answer(&self.request()).into()),
                // A used-up budget must not become a budget of zero, which would try once more.
                (left, _) => lock.acquire_timeout(left.max(Duration::from_nanos(1))).await,
            },
            WaitMode::Once => in_time(self, began, lock.try_acquire()).await,
        }
    }

    /// Returns the client of the first lock, if it is acquired.
    fn client(&self) -> Option<&CuratorFramework> {
        self.0.first().map(|guard| guard.first_share().hold().client())
    }

    /// Returns the text of the request for the next lock.
    fn request(&self) -> String {
        let path = self.0.first().map(|guard| guard.lock_path().as_str()).unwrap_or_default();
        format!("acquiring the locks behind {path}")
    }

    async fn release(&self) -> Result<(), LockError> {
        for guard in self.0.iter().rev() {
            // No work has run under it, so a loss does not matter.
            let _released = guard.release().await?;
        }
        Ok(())
    }
}

impl Drop for AcquiredSoFar {
    fn drop(&mut self) {
        while let Some(guard) = self.0.pop() {
            drop(guard);
        }
    }
}
