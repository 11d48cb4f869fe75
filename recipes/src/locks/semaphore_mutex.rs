//! The mutex that is not reentrant.

use std::fmt;

use curator_framework::CuratorFramework;

use crate::engine::WaitMode;
use crate::engine::caller::Caller;
use crate::engine::error::LockError;
use crate::engine::options::LockOptions;
use crate::engine::participants::Participant;
use crate::locks::acquire_methods::acquire_methods;
use crate::locks::guard::kinds;
use crate::locks::guard::lock_guard::LockGuard;
use crate::locks::semaphore::InterProcessSemaphoreV2;

/// A mutex that is not reentrant for any owner: Curator's `InterProcessSemaphoreMutex`. Cheap to clone; all clones are
/// one mutex.
///
/// It is a semaphore with one lease, so an [`InterProcessMutex`](crate::InterProcessMutex) on the same path is another
/// lock. It costs more than that mutex: use it where Java processes use it.
///
/// A task that acquires twice waits for itself. A [warning](crate#tracing) names the file and line of both acquires.
///
/// # Losing the lock and fairness
///
/// As with [`InterProcessMutex`](crate::InterProcessMutex#losing-the-lock): the guard reports a loss, and waiters are
/// served first come, first served.
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
/// use curator_recipes::InterProcessSemaphoreMutex;
///
/// let mutex = InterProcessSemaphoreMutex::new(client, "/locks/printer")?;
/// let guard = mutex.acquire().await?;
/// assert!(mutex.try_acquire().await?.is_none());
/// guard.release().await?.held()?;
/// # Ok(())
/// # }
/// ```
///
/// # Differences from Curator
///
/// Only the guard releases the lock; in Curator any thread can, with the same object.
///
/// # ZooKeeper layout and cost
///
/// As for an [`InterProcessSemaphoreV2`] with one lease: five requests where the mutex sends three.
#[derive(Clone)]
pub struct InterProcessSemaphoreMutex {
    semaphore: InterProcessSemaphoreV2,
}

/// The guard of an [`InterProcessSemaphoreMutex`].
pub type SemaphoreMutexGuard = LockGuard<kinds::SemaphoreMutex>;

acquire_methods!(InterProcessSemaphoreMutex => SemaphoreMutexGuard);

impl InterProcessSemaphoreMutex {
    /// Creates a mutex at a path, without a request.
    ///
    /// # Errors
    ///
    /// `Error::InvalidPath`; `LockError::InvalidArgument` for the root.
    pub fn new(client: CuratorFramework, path: impl Into<String>) -> Result<Self, LockError> {
        Self::with_options(client, path, LockOptions::new())
    }

    /// Creates a mutex with options.
    ///
    /// # Errors
    ///
    /// * `Error::InvalidPath`: ZooKeeper does not allow this path.
    /// * `LockError::InvalidArgument`: the path is the root, [`linger`](LockOptions::linger) is set, or
    ///   `max_waiting_nodes` is 0.
    pub fn with_options(
        client: CuratorFramework,
        path: impl Into<String>,
        options: LockOptions,
    ) -> Result<Self, LockError> {
        Ok(Self { semaphore: InterProcessSemaphoreV2::with_one_lease(client, path.into(), options)? })
    }

    /// Returns the path of the lock.
    #[must_use]
    pub fn path(&self) -> &str {
        self.semaphore.path()
    }

    /// Returns whether this object or a clone of it holds the lock: Curator's `isAcquiredInThisProcess`.
    #[must_use]
    pub fn is_acquired_in_this_process(&self) -> bool {
        self.semaphore.is_acquired_in_this_process()
    }

    async fn acquire_for(&self, caller: Caller, mode: WaitMode) -> Result<Option<SemaphoreMutexGuard>, LockError> {
        let lease = self.semaphore.acquire_for(caller, mode).await?;
        Ok(lease.map(LockGuard::into_kind))
    }

    /// Returns the holder and the waiters, in order.
    ///
    /// # Errors
    ///
    /// `Error::NotStarted`, `Error::Closed`; `Error::NoAuth` if the ACL forbids reading; `Error::ConnectionLoss`,
    /// `Error::SessionExpired`: call again. `Error::ReplyTooLarge`:
    /// the listing is above the client's limit.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    pub async fn participants(&self) -> Result<Vec<Participant>, LockError> {
        self.semaphore.participants().await
    }
}

impl fmt::Debug for InterProcessSemaphoreMutex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InterProcessSemaphoreMutex").field("path", &self.path()).finish_non_exhaustive()
    }
}
