//! The options of a lock.

use std::sync::Arc;
use std::time::Duration;

use crate::locks::engine::driver::LockInternalsDriver;
use crate::locks::guard::revocation::{RevocationListener, RevocationSpec};

/// The options of a lock, for the constructors `with_options` and `with_protocol`.
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
/// let options = LockOptions::new().named("printers").node_data("host-7").warn_after(Duration::from_secs(30));
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
    pub(crate) name: Option<Arc<str>>,
}

impl LockOptions {
    /// Returns the defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sorts and chooses the contenders: Curator's `LockInternalsDriver`. All contenders of a lock must use the same
    /// driver. Read-write locks and semaphores have their own.
    pub fn driver(mut self, driver: impl LockInternalsDriver) -> Self {
        self.driver = Some(Arc::new(driver));
        self
    }

    /// Sets the data of the lock's nodes, for inspection: Curator's `getLockNodeBytes`, `lockData` and `setNodeData`.
    /// Default: the client's default data. The nodes of a [revocable](Self::revocable) lock are created empty, as in
    /// Curator.
    pub fn node_data(mut self, data: impl Into<Vec<u8>>) -> Self {
        self.node_data = Some(data.into());
        self
    }

    /// Counts children with these names and a number as contenders too: kazoo's option of that name, for paths shared
    /// with other clients. An [`InterProcessMutex`](crate::InterProcessMutex) and kazoo's `Lock` exclude each other if
    /// this is given `"__lock__"`, and kazoo's option `"lock-"`; otherwise they ignore each other. Java's Curator does
    /// not have this option. Do not use it beside kazoo's read and write locks.
    pub fn extra_lock_patterns<I>(mut self, patterns: I) -> Self
    where
        I: IntoIterator,
        I::Item: Into<String>,
    {
        self.extra_lock_patterns = patterns.into_iter().map(Into::into).collect();
        self
    }

    /// Logs a warning when the lock is held for longer than this, once for each grant. Default: never.
    pub fn warn_after(mut self, held: Duration) -> Self {
        self.warn_after = Some(held);
        self
    }

    /// Sets the name of the lock in metrics and in the span `acquire`. Default: the recipe, such as `mutex`. Metrics
    /// keep each name for ever, so take one name for all paths of a kind, such as `tenants`.
    pub fn named(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into().into());
        self
    }

    /// Calls `listener` when a client requests the release of the lock with a [`Revoker`](crate::Revoker): Curator's
    /// `makeRevocable`.
    pub fn revocable(mut self, listener: impl RevocationListener) -> Self {
        self.revocation = Some(RevocationSpec::new(listener));
        self
    }
}
