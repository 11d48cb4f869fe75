//! The options of counters.

use std::sync::Arc;
use std::time::Duration;

use curator_framework::{RetryNTimes, RetryPolicy};

/// The options of a counter or an atomic value, for the constructors `with_options`.
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
/// use std::time::Duration;
/// use curator_framework::RetryNTimes;
/// use curator_recipes::{CounterOptions, DistributedAtomicLong, PromotedToLock};
///
/// let lock = PromotedToLock::new("/orders/lock").timeout(Duration::from_secs(10));
/// let options = CounterOptions::new().promoted_to_lock(lock);
/// let retry = RetryNTimes::new(3, Duration::from_millis(10));
/// let orders = DistributedAtomicLong::with_options(client, "/orders/count", retry, options)?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Default)]
#[must_use = "options do nothing by themselves"]
pub struct CounterOptions {
    pub(super) promoted: Option<PromotedToLock>,
}

impl CounterOptions {
    /// Returns the defaults: the counter has no lock.
    pub fn new() -> Self {
        Self::default()
    }

    /// Continues under a lock when the retry policy gives up.
    pub fn promoted_to_lock(mut self, lock: PromotedToLock) -> Self {
        self.promoted = Some(lock);
        self
    }
}

/// The lock under which a change continues when the retry policy gives up: Curator's `PromotedToLock`.
///
/// The lock is an [`InterProcessMutex`](crate::InterProcessMutex), so Java's counters take turns at it too. Clients
/// that do not use the lock can still change the value in the meantime.
#[derive(Debug, Clone)]
#[must_use = "options do nothing by themselves"]
pub struct PromotedToLock {
    pub(super) lock_path: String,
    pub(super) timeout: Option<Duration>,
    pub(super) retry_policy: Arc<dyn RetryPolicy>,
}

impl PromotedToLock {
    /// Describes a lock at this path: one try under the lock, and no limit for the wait.
    #[doc(alias = "lockPath")]
    pub fn new(lock_path: impl Into<String>) -> Self {
        let retry_policy = Arc::new(RetryNTimes::new(0, Duration::ZERO));
        Self { lock_path: lock_path.into(), timeout: None, retry_policy }
    }

    /// Limits the wait for the lock. Default: none.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Sets the policy that limits the tries under the lock. Default: one try.
    pub fn retry_policy(mut self, policy: impl RetryPolicy) -> Self {
        self.retry_policy = Arc::new(policy);
        self
    }
}
