//! The owners of reentrant locks.

use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};

tokio::task_local! {
    static CURRENT: LockOwner;
}

/// An owner of locks: the counterpart of Curator's thread.
///
/// An owner can acquire a lock that it holds again, at once and without a request. In Curator the owner is the thread.
/// A task cannot be the owner: guards move between tasks, and futures that are joined or buffered share a task. So an
/// acquire has an owner only inside of [`scope`](Self::scope), or if the caller passes one to
/// [`InterProcessMutex::acquire_as`](crate::InterProcessMutex::acquire_as).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct LockOwner {
    id: u64,
}

impl LockOwner {
    /// Creates a new owner, distinct from all others.
    #[must_use]
    pub fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self { id: NEXT.fetch_add(1, Ordering::Relaxed) }
    }

    /// Runs a future with one new owner for all its acquires. Tasks that it spawns do not inherit the owner.
    ///
    /// # Joined futures
    ///
    /// Futures that one scope joins, selects or buffers are one owner, so they do not exclude each other:
    ///
    /// * `LockOwner::scope(async { join!(a, b) })`: **one owner**, so both are inside at once.
    /// * `join!(LockOwner::scope(a), LockOwner::scope(b))`: two owners, which take turns.
    /// * `join!(a, b)`: without owners, they take turns. A [warning](crate#tracing) may be logged.
    ///
    /// # Cancel safety
    ///
    /// The scope is as cancel safe as its future.
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
    /// # let mutex = curator_recipes::InterProcessMutex::new(client, "/locks/printer")?;
    /// use curator_recipes::LockOwner;
    ///
    /// LockOwner::scope(async {
    ///     let outer = mutex.acquire().await?;
    ///     let inner = mutex.acquire().await?; // at once, no request
    ///     inner.release().await?.held()?;
    ///     outer.release().await?.held()?; // the last one deletes the node
    ///     Ok::<(), Box<dyn std::error::Error>>(())
    /// })
    /// .await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Two workers in one task, each with an owner of its own:
    ///
    /// ```
    /// # use std::sync::atomic::{AtomicUsize, Ordering};
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = curator_test::TestingServer::start()?;
    /// # let retry = curator_framework::RetryOneTime::new(std::time::Duration::from_millis(50));
    /// # let client = curator_framework::CuratorFramework::new_client(server.connect_string(), retry)?;
    /// # client.start()?;
    /// # let mutex = curator_recipes::InterProcessMutex::new(client, "/locks/printer")?;
    /// use curator_recipes::{LockError, LockOwner};
    ///
    /// let inside = AtomicUsize::new(0);
    /// let work = async || {
    ///     let guard = mutex.acquire().await?;
    ///     assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0); // alone
    ///     tokio::task::yield_now().await;
    ///     inside.fetch_sub(1, Ordering::SeqCst);
    ///     guard.release().await
    /// };
    /// tokio::try_join!(LockOwner::scope(work()), LockOwner::scope(work()))?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }
    /// ```
    pub fn scope<F: Future>(future: F) -> impl Future<Output = F::Output> {
        // Not an `async fn`, which would keep the future twice.
        CURRENT.scope(Self::new(), future)
    }

    /// Returns the owner of the innermost enclosing scope, or `None` outside of a scope.
    #[must_use]
    pub fn current() -> Option<Self> {
        CURRENT.try_with(Clone::clone).ok()
    }
}

impl Default for LockOwner {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_scope_is_one_owner_and_not_inherited() {
        assert_eq!(LockOwner::current(), None);
        LockOwner::scope(async {
            let owner = LockOwner::current();
            assert!(owner.is_some());
            tokio::task::yield_now().await;
            assert_eq!(LockOwner::current(), owner);
            assert_eq!(tokio::spawn(async { LockOwner::current() }).await.unwrap(), None);
            LockOwner::scope(async { assert_ne!(LockOwner::current(), owner) }).await;
        })
        .await;
    }
}
