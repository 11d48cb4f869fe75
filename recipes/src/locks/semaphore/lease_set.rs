//! Several leases as one guard.

use std::slice;

use futures_util::future::join_all;

use crate::locks::error::Result;
use crate::locks::guard::hold::Release;
use crate::locks::guard::lock_guard::{LockGuard, define_guard, total};
use crate::locks::semaphore::Lease;

define_guard! { of several
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
    LeaseSet
}

impl LeaseSet {
    pub(super) fn of(leases: impl IntoIterator<Item = Lease>) -> Self {
        Self { guard: LockGuard::all(leases.into_iter().map(LockGuard::from).collect()) }
    }

    /// Returns the number of leases.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "a set has at least one lease")]
    pub fn len(&self) -> usize {
        self.guard.several().len()
    }

    /// Returns the guards of the leases.
    pub fn iter(&self) -> slice::Iter<'_, LockGuard> {
        self.guard.several().iter()
    }

    /// Releases all leases at once, and returns whether all were held until now: see [`LockGuard::release`].
    ///
    /// # Errors
    ///
    /// `Error::ConnectionLoss`: no server has confirmed the deletion of each node within the client's
    /// [`max_close_wait`](curator_framework::CuratorFrameworkBuilder::max_close_wait), 5 s by default. The session deletes
    /// the nodes in the background. Call `release` again to wait for that.
    ///
    /// # Cancel safety
    ///
    /// As [`LockGuard::release`].
    pub async fn release(&self) -> Result<Release> {
        total(join_all(self.iter().map(LockGuard::release)).await)
    }
}

impl IntoIterator for LeaseSet {
    type Item = Lease;
    type IntoIter = std::vec::IntoIter<Lease>;

    fn into_iter(self) -> Self::IntoIter {
        let leases: Vec<Lease> = self.guard.into_several().into_iter().map(Lease::of).collect();
        leases.into_iter()
    }
}

impl<'a> IntoIterator for &'a LeaseSet {
    type Item = &'a LockGuard;
    type IntoIter = slice::Iter<'a, LockGuard>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}
