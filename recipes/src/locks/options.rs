//! The options that only mutexes or only semaphores have. The options of all locks are in `engine/options.rs`.

use std::sync::Arc;

use crate::engine::driver::LockInternalsDriver;
use crate::engine::options::LockOptions;
use crate::engine::semaphore_protocol::SemaphoreProtocol;

/// The options of an [`InterProcessMutex`](crate::InterProcessMutex).
pub type MutexOptions = LockOptions<MutexQueue>;

/// The options of an [`InterProcessSemaphoreV2`](crate::InterProcessSemaphoreV2), for its leases.
pub type SemaphoreOptions = LockOptions<SemaphoreProtocol>;

/// The options that only a mutex has: see [`MutexOptions`].
#[derive(Debug, Clone, Default)]
pub struct MutexQueue {
    pub(crate) driver: Option<Arc<dyn LockInternalsDriver>>,
    pub(crate) extra_lock_patterns: Vec<String>,
}

impl MutexOptions {
    /// Sorts and chooses the contenders: Curator's `LockInternalsDriver`. All contenders of a mutex must use the same
    /// driver.
    pub fn driver(mut self, driver: impl LockInternalsDriver) -> Self {
        self.own.driver = Some(Arc::new(driver));
        self
    }

    /// Counts children with these names and a number as contenders too: kazoo's option of that name, for paths shared
    /// with other clients. This mutex and kazoo's `Lock` exclude each other if
    /// this is given `"__lock__"`, and kazoo's option `"lock-"`; otherwise they ignore each other. Java's Curator does
    /// not have this option. Do not use it beside kazoo's read and write locks.
    pub fn extra_lock_patterns<I>(mut self, patterns: I) -> Self
    where
        I: IntoIterator,
        I::Item: Into<String>,
    {
        self.own.extra_lock_patterns = patterns.into_iter().map(Into::into).collect();
        self
    }
}

impl SemaphoreOptions {
    /// Sets the protocol. Default: [`Curator`](SemaphoreProtocol::Curator).
    pub fn protocol(mut self, protocol: SemaphoreProtocol) -> Self {
        self.own = protocol;
        self
    }
}
