//! The mutex that is not reentrant.

use std::fmt;

use curator_framework::CuratorFramework;

use crate::error::Result;
use crate::locks::engine::WaitMode;
use crate::locks::guard::{LockGuard, transaction};
use crate::locks::methods::acquire_methods;
use crate::locks::options::LockOptions;
use crate::locks::owner::LockOwner;
use crate::locks::participants::Participant;
use crate::locks::semaphore::InterProcessSemaphoreV2;

/// A mutex that is not reentrant, whoever the owner is: Curator's `InterProcessSemaphoreMutex`. Cheap to clone; all
/// clones are one mutex.
///
/// It is a semaphore with one lease, with the semaphore's layout, so it and an
/// [`InterProcessMutex`](crate::InterProcessMutex) on the same path do not know of each other. It costs more than that;
/// use it where Java processes do.
///
/// # Losing the lock and fairness
///
/// As those of [`InterProcessMutex`](crate::InterProcessMutex#losing-the-lock): loss is told, first come, first served.
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
/// guard.release().await?;
/// # Ok(())
/// # }
/// ```
///
/// # Differences from Curator
///
/// Whoever has the guard releases it, once; in Curator any thread may, with the same object.
///
/// # ZooKeeper layout and cost
///
/// Those of an [`InterProcessSemaphoreV2`] with one lease: five requests where the mutex sends three.
#[derive(Clone)]
pub struct InterProcessSemaphoreMutex {
    semaphore: InterProcessSemaphoreV2,
}

/// A mutex that is held.
///
/// All that guards have in common is in [`LockGuard`], to which it dereferences.
#[must_use = "if unused the lock is released at once"]
#[derive(Debug)]
pub struct SemaphoreMutexGuard {
    guard: LockGuard,
}

impl std::ops::Deref for SemaphoreMutexGuard {
    type Target = LockGuard;

    fn deref(&self) -> &LockGuard {
        &self.guard
    }
}

impl From<SemaphoreMutexGuard> for LockGuard {
    fn from(guard: SemaphoreMutexGuard) -> Self {
        guard.guard
    }
}

transaction!(SemaphoreMutexGuard);
acquire_methods!(InterProcessSemaphoreMutex => SemaphoreMutexGuard);

impl InterProcessSemaphoreMutex {
    /// A mutex at a path. Nothing is sent.
    ///
    /// # Errors
    ///
    /// `InvalidPath`; `InvalidArgument` for the root.
    pub fn new(client: CuratorFramework, path: impl Into<String>) -> Result<Self> {
        Self::with_options(client, path, LockOptions::new())
    }

    /// A mutex with options.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new).
    pub fn with_options(client: CuratorFramework, path: impl Into<String>, options: LockOptions) -> Result<Self> {
        Ok(Self { semaphore: InterProcessSemaphoreV2::with_options(client, path, 1, options)? })
    }

    /// The path of the lock.
    #[must_use]
    pub fn path(&self) -> &str {
        self.semaphore.path()
    }

    /// Whether it is held through this object or a clone of it: Curator's `isAcquiredInThisProcess`.
    #[must_use]
    pub fn is_acquired_in_this_process(&self) -> bool {
        self.semaphore.is_acquired_in_this_process()
    }

    async fn acquire_for(&self, _owner: Option<LockOwner>, mode: WaitMode) -> Result<Option<SemaphoreMutexGuard>> {
        let lease = self.semaphore.acquire_for(None, mode).await?;
        Ok(lease.map(|lease| SemaphoreMutexGuard { guard: lease.into() }))
    }

    /// Who holds the lock and who has the turn to take it, in order.
    ///
    /// # Errors
    ///
    /// `ConnectionLoss`, `SessionExpired`, `NoAuth`, `NotStarted`, `Closed`.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    pub async fn participants(&self) -> Result<Vec<Participant>> {
        self.semaphore.participants().await
    }
}

impl fmt::Debug for InterProcessSemaphoreMutex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InterProcessSemaphoreMutex").field("path", &self.path()).finish_non_exhaustive()
    }
}
