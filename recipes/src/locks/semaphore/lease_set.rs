//! The guards of one lease and of several.

use crate::locks::guard::kinds::{OneLease, SeveralLeases};
use crate::locks::guard::lock_guard::LockGuard;

/// The guard of a lease of an [`InterProcessSemaphoreV2`](crate::InterProcessSemaphoreV2).
pub type Lease = LockGuard<OneLease>;

/// The leases of one [`acquire_many`](crate::InterProcessSemaphoreV2::acquire_many): at least one. The set is held
/// while all of its leases are held, and lost with the first of them.
///
/// A loop over the set takes it apart, and yields each [`Lease`]. A loop over a reference yields their guards.
///
/// # Examples
///
/// ```
/// # async fn solve() {}
/// # #[tokio::main]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = curator_test::TestingServer::start()?;
/// # let retry = curator_framework::RetryOneTime::new(std::time::Duration::from_millis(50));
/// # let client = curator_framework::CuratorFramework::new_client(server.connect_string(), retry)?;
/// # client.start()?;
/// use curator_recipes::InterProcessSemaphoreV2;
///
/// let licences = InterProcessSemaphoreV2::new(client, "/licences/solver", 3)?;
/// let leases = licences.acquire_many(2).await?;
/// leases.protect(solve()).await?; // stops when either lease is lost
/// leases.release().await?.held()?;
///
/// for lease in licences.acquire_many(3).await? {
///     lease.release().await?.held()?; // one by one
/// }
/// # Ok(())
/// # }
/// ```
pub type LeaseSet = LockGuard<SeveralLeases>;

impl LeaseSet {
    /// Moves the last `n` leases into a set of their own. Returns `None`, and changes nothing, unless at least one lease
    /// is left in both sets.
    pub fn split(&mut self, n: usize) -> Option<Self> {
        let left = self.len().checked_sub(n).filter(|&left| left > 0 && n > 0)?;
        Some(Self::of_several(self.split_off(left)))
    }
}

impl IntoIterator for LeaseSet {
    type Item = Lease;
    type IntoIter = std::vec::IntoIter<Lease>;

    fn into_iter(self) -> Self::IntoIter {
        let leases: Vec<Lease> = self.into_several().into_iter().map(LockGuard::into_kind).collect();
        leases.into_iter()
    }
}
