//! The semaphore.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use curator_framework::{CuratorFramework, Error, LossReason, RetryLoop, Session, make_path, validate_path};

use crate::error::{LockError, Result};
use crate::locks::driver::StandardLockInternalsDriver;
use crate::locks::hold::{Hold, Place, Release};
use crate::locks::lock_internals::{Acquired, Attempt, LockInternals, Patience, acquire, name_of};
use crate::locks::mutex::LOCK_NAME;

/// Curator's name for the nodes of leases.
const LEASE_NAME: &str = "lease-";
const LOCKS: &str = "locks";
const LEASES: &str = "leases";

/// A semaphore across processes: Curator's `InterProcessSemaphoreV2`.
///
/// Where `tokio::sync::Semaphore` counts the permits of one process, this one counts the leases of everybody who uses
/// the same path on the same ensemble, Java's Curator included. All of them must use the same limit: it is not stored
/// in ZooKeeper. Cheap to clone; all clones are one semaphore.
///
/// # Reentrancy
///
/// None: every acquire takes a lease of its own.
///
/// # Losing the lock
///
/// A lease can be lost as a mutex can: see [`InterProcessMutex`](crate::InterProcessMutex#losing-the-lock), and
/// [`Lease::lost`].
///
/// # Fairness
///
/// First come, first served.
///
/// # Examples
///
/// ```no_run
/// # async fn run(client: curator_framework::CuratorFramework) -> Result<(), curator_recipes::LockError> {
/// use curator_recipes::InterProcessSemaphoreV2;
///
/// let licences = InterProcessSemaphoreV2::new(client, "/licences/solver", 3)?;
/// let lease = licences.acquire().await?;
/// // … one of at most three that work with the solver …
/// lease.release().await?;
/// # Ok(())
/// # }
/// ```
///
/// # Differences from Curator
///
/// A lease tells of its loss. The inner mutex is released in the background, so a grant does not wait for it.
///
/// # ZooKeeper layout
///
/// `<path>/locks/_c_<uuid>-lock-<number>`, a mutex that is held while waiting for a lease, and
/// `<path>/leases/_c_<uuid>-lease-<number>`, as Curator's.
///
/// # Cost
///
/// Without contention five requests, four of them before the lease is granted, and one to give it back.
#[derive(Clone)]
pub struct InterProcessSemaphoreV2 {
    inner: Arc<Inner>,
}

struct Inner {
    path: String,
    max_leases: usize,
    lock: LockInternals,
    leases: LockInternals,
}

impl Attempt for Inner {
    async fn attempt(&self, session: &Session, retries: &mut RetryLoop, once: bool) -> Result<Option<Acquired>, Error> {
        // Dropped when the lease is decided, whichever way: its node is deleted in the background.
        let turn = if once {
            self.turn_while_free(session, retries).await?
        } else {
            self.lock.attempt(session, retries, false).await?
        };
        let Some(_turn) = turn else { return Ok(None) };
        self.leases.attempt(session, retries, once).await
    }
}

impl Inner {
    /// Waits for the turn to take a lease as long as there seems to be a free one: who has the turn then is just
    /// taking his.
    async fn turn_while_free(&self, session: &Session, retries: &mut RetryLoop) -> Result<Option<Acquired>, Error> {
        let full = async {
            loop {
                let (taken, changed) = match session.get_children_watched(self.leases.base_path()).await {
                    Ok((children, watch)) => (self.leases.sort(children).len(), watch),
                    // Nobody has ever taken one.
                    Err(Error::NoNode { .. }) => return std::future::pending().await,
                    Err(error) => return Err(error),
                };
                if taken >= self.max_leases {
                    return Ok(None);
                }
                changed.await;
            }
        };
        tokio::select! {
            biased;
            full = full => full,
            turn = self.lock.attempt(session, retries, false) => turn,
        }
    }
}

impl InterProcessSemaphoreV2 {
    /// A semaphore at a path. Nothing is sent.
    ///
    /// # Errors
    ///
    /// `InvalidPath`; `InvalidArgument` for the root, and for a limit of zero.
    pub fn new(client: CuratorFramework, path: impl Into<String>, max_leases: usize) -> Result<Self> {
        Self::build(client, path.into(), max_leases, None)
    }

    /// As [`new`](Self::new), with data for the nodes of the leases, for those who look: Curator's `setNodeData`.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new).
    pub fn with_node_data(
        client: CuratorFramework,
        path: impl Into<String>,
        max_leases: usize,
        node_data: impl Into<Vec<u8>>,
    ) -> Result<Self> {
        Self::build(client, path.into(), max_leases, Some(node_data.into()))
    }

    fn build(client: CuratorFramework, path: String, max_leases: usize, node_data: Option<Vec<u8>>) -> Result<Self> {
        validate_path(&path)?;
        if path == "/" {
            return Err(LockError::invalid("lock path", "the root cannot be a lock"));
        }
        if max_leases == 0 {
            return Err(LockError::invalid("number of leases", "it is zero, so none could ever be granted"));
        }
        let part = |name, lock_name, places, node_data| {
            let driver = Arc::new(StandardLockInternalsDriver);
            LockInternals::new(client.clone(), make_path(&path, name), lock_name, driver, places, node_data)
        };
        let lock = part(LOCKS, LOCK_NAME, 1, None)?;
        let leases = part(LEASES, LEASE_NAME, max_leases, node_data)?;
        Ok(Self { inner: Arc::new(Inner { path, max_leases, lock, leases }) })
    }

    /// The path of the semaphore.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.inner.path
    }

    /// How many leases there are.
    #[must_use]
    pub fn max_leases(&self) -> usize {
        self.inner.max_leases
    }

    /// Waits for a lease as long as it takes.
    ///
    /// # Errors
    ///
    /// * `ConnectionLoss` if there was no connection for the connection timeout and the retry policy gave up.
    /// * `SessionExpired` if the session ended while waiting and the retry policy does not allow another try.
    /// * `NotStarted`, `Closed`, `NoAuth`.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, the place in the queue is given up, and nodes that were created are deleted in the
    /// background.
    pub async fn acquire(&self) -> Result<Lease> {
        match self.acquire_within(Patience::Forever).await? {
            Some(lease) => Ok(lease),
            // Patience without end has no end but a grant or an error.
            None => Err(Error::Closed.into()),
        }
    }

    /// Waits for a lease for at most `budget`, which covers everything: the connection, missing parents, the queue.
    /// `Ok(None)` if none was granted in that time. With a budget of zero it asks once, as
    /// [`try_acquire`](Self::try_acquire).
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire).
    ///
    /// # Cancel safety
    ///
    /// As [`acquire`](Self::acquire).
    pub async fn acquire_timeout(&self, budget: Duration) -> Result<Option<Lease>> {
        self.acquire_within(Patience::at_most(budget)).await
    }

    /// Asks once: `Ok(None)` if there is no free lease. It waits for those who are just taking one. Bounded by the
    /// connection timeout.
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire); `ConnectionLoss` also if there was no answer in the connection timeout.
    ///
    /// # Cancel safety
    ///
    /// As [`acquire`](Self::acquire).
    pub async fn try_acquire(&self) -> Result<Option<Lease>> {
        self.acquire_within(Patience::Once).await
    }

    async fn acquire_within(&self, patience: Patience) -> Result<Option<Lease>> {
        let Inner { leases, path, .. } = &*self.inner;
        let Some(acquired) = acquire(leases.client(), patience, &*self.inner).await? else { return Ok(None) };
        let hold = Hold::new(leases.client().clone(), path, acquired);
        Ok(Some(Lease { place: Place::first(hold) }))
    }

    /// The names of the nodes that have a lease or wait for one, in order: Curator's `getParticipantNodes`.
    ///
    /// # Errors
    ///
    /// `ConnectionLoss`, `SessionExpired`, `NoAuth`, `NotStarted`, `Closed`.
    pub async fn participant_nodes(&self) -> Result<Vec<String>> {
        self.inner.leases.participants().await
    }
}

impl fmt::Debug for InterProcessSemaphoreV2 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InterProcessSemaphoreV2")
            .field("path", &self.inner.path)
            .field("max_leases", &self.inner.max_leases)
            .finish_non_exhaustive()
    }
}

/// One lease, as long as it is kept. Dropping it gives it back in the background; [`release`](Self::release) also
/// tells how that went.
#[must_use = "if unused the lease is given back at once"]
pub struct Lease {
    place: Place,
}

impl Lease {
    /// Gives the lease back and says whether it was held until now. May be called again, after an error or a success;
    /// the answer stays the same.
    ///
    /// # Errors
    ///
    /// `ConnectionLoss` if the node could not be deleted and the retry policy gave up. The lease is still to be given
    /// back: call it again, or drop it.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, the lease is not held any more; the node is deleted when the lease is dropped, or
    /// by the next call.
    pub async fn release(&self) -> Result<Release> {
        self.place.release().await
    }

    /// Resolves when the lease is lost, with the reason. It never resolves for a lease that is given back in time.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when it is dropped.
    pub fn lost(&self) -> impl Future<Output = LossReason> + Send + '_ {
        self.place.lost()
    }

    /// Whether the lease is certainly held now. Local and cheap.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.place.is_held()
    }

    /// How long the lease is certainly held from now on if nothing more is heard from the server; zero if it is not.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.place.remaining()
    }

    /// The node's `czxid`. It identifies the lease and orders its creation among the others; it does not grow with
    /// each grant, since several leases are held at once.
    #[must_use]
    pub fn fencing_token(&self) -> i64 {
        self.place.fencing_token()
    }

    /// The path of the lease's node.
    #[must_use]
    pub fn path(&self) -> &str {
        self.place.path()
    }

    /// The name of the lease's node: Curator's `getNodeName`.
    #[must_use]
    pub fn node_name(&self) -> &str {
        name_of(self.place.path())
    }

    /// Reads the data of the lease's node: Curator's `getData`.
    ///
    /// # Errors
    ///
    /// `NoNode` or `SessionExpired` if the lease is lost; `ConnectionLoss`.
    pub async fn data(&self) -> Result<Vec<u8>> {
        Ok(self.place.session().get_data(self.place.path()).await?.0)
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Lease").field(&self.place).finish()
    }
}
