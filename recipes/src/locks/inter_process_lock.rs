//! The trait of all locks.

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;

use crate::engine::error::LockError;
use crate::locks::guard::lock_guard::LockGuard;
use crate::locks::mutex::InterProcessMutex;
use crate::locks::read_write::{ReadLock, WriteLock};
use crate::locks::semaphore_mutex::InterProcessSemaphoreMutex;

/// A lock of any kind, for code that takes all kinds: Curator's `InterProcessLock`.
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
/// use curator_recipes::{InterProcessLock, InterProcessMutex, InterProcessReadWriteLock};
///
/// let locks: Vec<Box<dyn InterProcessLock>> = vec![
///     Box::new(InterProcessMutex::new(client.clone(), "/locks/printer")?),
///     Box::new(InterProcessReadWriteLock::new(client, "/locks/settings")?.read_lock()),
/// ];
/// for lock in &locks {
///     lock.acquire().await?.release().await?.held()?;
/// }
/// # Ok(())
/// # }
/// ```
#[async_trait]
pub trait InterProcessLock: Send + Sync + fmt::Debug {
    /// Waits for the lock without a limit, and for a connection as long as the retry policy allows. The lock's own
    /// method documents the errors and the cancel safety.
    async fn acquire(&self) -> Result<LockGuard, LockError>;

    /// Waits for the lock for at most `budget`, connection included. [Bind the guard](crate#bind-the-guard).
    /// Returns `Ok(None)` if another contender is ahead when the budget ends. The lock's own method documents the
    /// errors and the cancel safety.
    async fn acquire_timeout(&self, budget: Duration) -> Result<Option<LockGuard>, LockError>;

    /// Tries once; `Ok(None)` if the lock is taken. [Bind the guard](crate#bind-the-guard). The lock's own method
    /// documents the errors and the cancel safety.
    async fn try_acquire(&self) -> Result<Option<LockGuard>, LockError>;

    /// Returns whether this object or a clone of it holds the lock.
    fn is_acquired_in_this_process(&self) -> bool;
}

/// Implements the trait by the methods of the lock.
macro_rules! inter_process_lock {
    ($($lock:ident),*) => {$(
        #[async_trait::async_trait]
        impl $crate::locks::inter_process_lock::InterProcessLock for $lock {
            async fn acquire(&self) -> Result<LockGuard, LockError> {
                Self::acquire(self).await.map(Into::into)
            }

            async fn acquire_timeout(&self, budget: std::time::Duration) -> Result<Option<LockGuard>, LockError> {
                Ok(Self::acquire_timeout(self, budget).await?.map(Into::into))
            }

            async fn try_acquire(&self) -> Result<Option<LockGuard>, LockError> {
                Ok(Self::try_acquire(self).await?.map(Into::into))
            }

            fn is_acquired_in_this_process(&self) -> bool {
                Self::is_acquired_in_this_process(self)
            }
        }
    )*};
}

inter_process_lock!(InterProcessMutex, InterProcessSemaphoreMutex, ReadLock, WriteLock);
pub(super) use inter_process_lock;
