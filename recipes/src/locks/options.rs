//! What can be chosen for any lock.

use std::sync::Arc;
use std::time::Duration;

use crate::locks::engine::driver::LockInternalsDriver;
use crate::locks::revoker::{RevocationListener, RevocationSpec};

/// What can be chosen for a lock beyond its path. Each constructor `with_options` takes it.
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
/// use curator_recipes::{InterProcessMutex, LockOptions};
///
/// let options = LockOptions::new().node_data("host-7").warn_after(Duration::from_secs(30));
/// let mutex = InterProcessMutex::with_options(client, "/locks/printer", options)?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Default)]
#[must_use = "options do nothing by themselves"]
pub struct LockOptions {
    pub(crate) driver: Option<Arc<dyn LockInternalsDriver>>,
    pub(crate) node_data: Option<Vec<u8>>,
    pub(crate) extra_lock_patterns: Vec<String>,
    pub(crate) warn_after: Option<Duration>,
    pub(crate) revocation: Option<RevocationSpec>,
}

impl LockOptions {
    /// The defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sorts and chooses the contenders: Curator's `LockInternalsDriver`. All contenders of a lock must agree on it. Not
    /// for read-write locks, which bring their own.
    pub fn driver(mut self, driver: impl LockInternalsDriver) -> Self {
        self.driver = Some(Arc::new(driver));
        self
    }

    /// The data of the lock's nodes, for those who look: Curator's `getLockNodeBytes`, `lockData` and `setNodeData`.
    /// Default: the client's default data. The nodes of a lock that is [revocable](Self::revocable) begin empty, as in
    /// Curator.
    pub fn node_data(mut self, data: impl Into<Vec<u8>>) -> Self {
        self.node_data = Some(data.into());
        self
    }

    /// Names beside the lock's own that make a child with a number at its end a contender, as in kazoo: for paths that
    /// clients with other names use too. An [`InterProcessMutex`](crate::InterProcessMutex) and kazoo's `Lock` exclude
    /// each other if this is given `"__lock__"` and kazoo's `extra_lock_patterns` are given `"lock-"`; without it
    /// neither sees the other. Java's Curator has no such option, and kazoo's read and write locks are not for this.
    pub fn extra_lock_patterns<I>(mut self, patterns: I) -> Self
    where
        I: IntoIterator,
        I::Item: Into<String>,
    {
        self.extra_lock_patterns = patterns.into_iter().map(Into::into).collect();
        self
    }

    /// Logs a warning, once, when the lock is held for longer than this. Default: never.
    pub fn warn_after(mut self, held: Duration) -> Self {
        self.warn_after = Some(held);
        self
    }

    /// Is told when somebody asks for the lock to be given back: Curator's `makeRevocable`. See
    /// [`Revoker`](crate::Revoker).
    pub fn revocable(mut self, listener: impl RevocationListener) -> Self {
        self.revocation = Some(RevocationSpec::new(listener));
        self
    }
}
