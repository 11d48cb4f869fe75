//! The semaphore.

mod first_try;
mod protocol;
mod take;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use curator_framework::{CuratorFramework, Watch, make_path, validate_path};
use parking_lot::Mutex;

use self::first_try::LastLook;
pub use self::protocol::SemaphoreProtocol;
use self::take::Taking;
use crate::error::{LockError, Result};
use crate::locks::engine::driver::{LeaseDriver, Predicate};
use crate::locks::engine::{Limit, LockInternals, Shape, WaitMode, acquire, no_end};
use crate::locks::guard::guard_of_its_own;
use crate::locks::hold::Place;
use crate::locks::methods::acquire_methods;
use crate::locks::mutex::LOCK_NAME;
use crate::locks::options::LockOptions;
use crate::locks::owner::LockOwner;
use crate::locks::participants::{Participant, ParticipantKind, Standing};
use crate::shared::{Follower, SharedCount};

/// Curator's name for the nodes of leases.
const LEASE_NAME: &str = "lease-";
const LOCKS: &str = "locks";
const LEASES: &str = "leases";
/// The data of the leases and of the queue on a path of the direct protocol.
const DIRECT_MARK: &[u8] = b"__DIRECT__";

/// A semaphore across processes: Curator's `InterProcessSemaphoreV2`.
///
/// Where `tokio::sync::Semaphore` counts the permits of one process, this one counts the leases of all clients of the
/// same path on the same ensemble, Java's Curator included. All clients must use the same limit: it is not stored in
/// ZooKeeper. Cheap to clone; all clones are one semaphore.
///
/// # Reentrancy
///
/// None: every acquire takes a lease of its own.
///
/// # Losing the lock
///
/// A lease can be lost as a mutex can: see [`InterProcessMutex`](crate::InterProcessMutex#losing-the-lock), and
/// [`LockGuard::lost`](crate::LockGuard::lost).
///
/// # Fairness
///
/// First come, first served among those that wait. A client that finds a lease free and no contender in the queue takes it at
/// once. No lease stays free while a contender waits. Where two clients try for the last lease within one round trip, a
/// `try_acquire` may be refused, and so may Java's timed acquire.
///
/// # Several leases at once
///
/// [`acquire_many`](Self::acquire_many) takes all or none. It holds the mutex while it takes several leases, whatever the
/// protocol, so two calls cannot block each other. Java's `acquire(qty)` takes the mutex anew for each lease. Such a client
/// and an `acquire_many` can block each other: give both a budget.
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
/// A lease tells of its loss. A free lease is taken without the mutex, unless the limit follows a [`SharedCount`]. Where the
/// mutex is needed it is released in the background, so a grant does not wait for it. There is a
/// [direct protocol](SemaphoreProtocol::Direct) without the mutex.
///
/// # Beside Java's Curator
///
/// With Curator's protocol both take turns on the same path, in one queue, also with a limit that follows a
/// [`SharedCount`]. Not with the direct protocol, and not beyond the end of the
/// [sequence numbers](crate::InterProcessMutex#beside-other-clients); and mind several leases at once.
///
/// # ZooKeeper layout
///
/// `<path>/locks/_c_<uuid>-lock-<number>`, a mutex that is held while waiting for a lease, and
/// `<path>/leases/_c_<uuid>-lease-<number>`, as Curator's.
///
/// # Cost
///
/// | acquire and release | requests | round trips before the grant |
/// | --- | --- | --- |
/// | a lease is free | 4 | 1 (a `try_acquire`: 2) |
/// | none is free, or the limit follows a count | 8 | as long as it takes: 1 behind the end of a lease |
/// | the direct protocol | 3 | 1 |
/// | a `try_acquire` that is refused | 4 reads | 2 |
///
/// The first acquire of an object looks at the path before it creates a node there: three reads more, in the same round trip.
/// One of them shows which protocol is in use and sets a watch; it is repeated when the watch fires. A client
/// that was refused goes through the queue, until it has seen a free lease there: that is two requests more, and one round
/// trip.
#[derive(Clone)]
pub struct InterProcessSemaphoreV2 {
    inner: Arc<Inner>,
}

guard_of_its_own! {
    /// A lease that is held.
    Lease
}
acquire_methods!(InterProcessSemaphoreV2 => Lease);

struct Inner {
    path: String,
    protocol: SemaphoreProtocol,
    lock: LockInternals,
    leases: LockInternals,
    /// A watch on the node that shows the protocol, from when it was found to be ours. It fires when the path is deleted.
    agreed: Mutex<Option<Watch>>,
    last_look: Mutex<LastLook>,
}

impl Inner {
    fn too_many(&self, wanted: usize) -> LockError {
        LockError::invalid(
            "number of leases",
            format!("{wanted} are more than the {} there are", self.leases.limit().get()),
        )
    }
}

impl InterProcessSemaphoreV2 {
    /// A semaphore at a path, with Curator's protocol. Nothing is sent.
    ///
    /// # Errors
    ///
    /// `InvalidPath`; `InvalidArgument` for the root, and for a limit of zero.
    pub fn new(client: CuratorFramework, path: impl Into<String>, max_leases: usize) -> Result<Self> {
        Self::with_options(client, path, max_leases, LockOptions::new())
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
        Self::with_options(client, path, max_leases, LockOptions::new().node_data(node_data))
    }

    /// As [`new`](Self::new), with options, which are those of the leases.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new); `InvalidArgument` also for a driver, since leases have their own.
    pub fn with_options(
        client: CuratorFramework,
        path: impl Into<String>,
        max_leases: usize,
        options: LockOptions,
    ) -> Result<Self> {
        Self::with_protocol(client, path, max_leases, SemaphoreProtocol::Curator, options)
    }

    /// As [`new`](Self::new), with a protocol and options.
    ///
    /// # Errors
    ///
    /// As [`with_options`](Self::with_options).
    pub fn with_protocol(
        client: CuratorFramework,
        path: impl Into<String>,
        max_leases: usize,
        protocol: SemaphoreProtocol,
        options: LockOptions,
    ) -> Result<Self> {
        if max_leases == 0 {
            return Err(LockError::invalid("number of leases", "it is zero, so none could ever be granted"));
        }
        Self::build(client, path.into(), Arc::new(Limit::Fixed(max_leases)), protocol, options)
    }

    /// As [`with_protocol`](Self::with_protocol), with a limit that follows a shared count: Curator's `SharedCountReader`
    /// constructor. A raised limit wakes the waiters. A lowered limit revokes no lease that is held: it applies to later
    /// grants. A limit below one grants no lease. Start the count and keep it: the semaphore follows it only while it runs.
    /// All clients of the semaphore must follow the same count.
    ///
    /// # Errors
    ///
    /// As [`with_options`](Self::with_options); `InvalidArgument` also if the count's node holds none, and for
    /// [`SemaphoreProtocol::Direct`], which cannot follow a limit that changes.
    pub fn with_shared_count(
        client: CuratorFramework,
        path: impl Into<String>,
        max_leases: &SharedCount,
        protocol: SemaphoreProtocol,
        options: LockOptions,
    ) -> Result<Self> {
        if protocol == SemaphoreProtocol::Direct {
            let reason = "the direct protocol cannot follow a limit that changes: clients learn of a change at \
                          different times, so the leases granted under a higher limit may exceed a lower one";
            return Err(LockError::invalid("semaphore protocol", reason));
        }
        let now = max_leases.count().map_err(|error| LockError::invalid("number of leases", error.to_string()))?;
        let limit = Arc::new(Limit::changing(leases_of(now)));
        let semaphore = Self::build(client, path.into(), Arc::clone(&limit), protocol, options)?;
        let follower: Arc<dyn Follower> = limit;
        max_leases.follow(Arc::downgrade(&follower));
        Ok(semaphore)
    }

    fn build(
        client: CuratorFramework,
        path: String,
        limit: Arc<Limit>,
        protocol: SemaphoreProtocol,
        options: LockOptions,
    ) -> Result<Self> {
        validate_path(&path)?;
        if path == "/" {
            return Err(LockError::invalid("lock path", "the root cannot be a lock"));
        }
        if options.driver.is_some() {
            return Err(LockError::invalid("driver", "leases have their own"));
        }
        let is_direct = protocol == SemaphoreProtocol::Direct;
        let parent_data = if is_direct { DIRECT_MARK } else { &[] };
        let lock = Shape { parent_data, ..Shape::queue(LOCK_NAME) };
        let leases = Shape {
            lock_name: LEASE_NAME,
            driver: Arc::new(LeaseDriver { one_waits: !is_direct }),
            limit,
            signals_successor: is_direct,
            is_queue: false,
            parent_data,
        };
        let part = |name, shape, options| LockInternals::new(client.clone(), make_path(&path, name), shape, options);
        let lock = part(LOCKS, lock, LockOptions::new())?;
        let leases = part(LEASES, leases, options)?;
        let (agreed, last_look) = (Mutex::default(), Mutex::default());
        Ok(Self { inner: Arc::new(Inner { path, protocol, lock, leases, agreed, last_look }) })
    }

    /// The path of the semaphore.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.inner.path
    }

    /// How many leases there are now.
    #[must_use]
    pub fn max_leases(&self) -> usize {
        self.inner.leases.limit().get()
    }

    /// How the clients agree.
    #[must_use]
    pub fn protocol(&self) -> SemaphoreProtocol {
        self.inner.protocol
    }

    /// Whether a lease is held through this object or a clone of it.
    #[must_use]
    pub fn is_acquired_in_this_process(&self) -> bool {
        self.inner.leases.is_held()
    }

    pub(crate) async fn acquire_for(&self, _owner: Option<LockOwner>, mode: WaitMode) -> Result<Option<Lease>> {
        Ok(self.take(1, mode).await?.and_then(|mut leases| leases.pop()))
    }

    /// Waits for several leases at once, as long as it takes: all or none. Curator's `acquire(qty)`.
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire); `InvalidArgument` for none at all, and for more than there are, also when their
    /// number is lowered meanwhile.
    ///
    /// # Cancel safety
    ///
    /// As [`acquire`](Self::acquire); leases that were taken already are given back.
    pub async fn acquire_many(&self, leases: usize) -> Result<Vec<Lease>> {
        self.take(leases, WaitMode::Forever).await?.ok_or_else(no_end)
    }

    /// As [`acquire_many`](Self::acquire_many) within a budget, which covers everything. `Ok(None)` if they were not all
    /// granted in that time.
    ///
    /// # Errors
    ///
    /// As [`acquire_many`](Self::acquire_many).
    ///
    /// # Cancel safety
    ///
    /// As [`acquire_many`](Self::acquire_many).
    pub async fn acquire_many_timeout(&self, leases: usize, budget: Duration) -> Result<Option<Vec<Lease>>> {
        self.take(leases, WaitMode::within(budget)).await
    }

    /// Asks once for several leases: `Ok(None)` if there are not enough free ones.
    ///
    /// # Errors
    ///
    /// As [`acquire_many`](Self::acquire_many).
    ///
    /// # Cancel safety
    ///
    /// As [`acquire_many`](Self::acquire_many).
    pub async fn try_acquire_many(&self, leases: usize) -> Result<Option<Vec<Lease>>> {
        self.take(leases, WaitMode::Once).await
    }

    async fn take(&self, wanted: usize, mode: WaitMode) -> Result<Option<Vec<Lease>>> {
        let Inner { leases, path, .. } = &*self.inner;
        if wanted == 0 {
            return Err(LockError::invalid("number of leases", "it is zero"));
        }
        if wanted > 1 && wanted > leases.limit().get() {
            return Err(self.inner.too_many(wanted));
        }
        let taking = Taking { semaphore: &self.inner, wanted };
        let Some(taken) = acquire(leases.client(), path, mode, &taking).await? else { return Ok(None) };
        let lease = |acquired| Lease::new(Place::first(leases.hold(path, acquired)));
        Ok(Some(taken.into_iter().map(lease).collect()))
    }

    /// The names of the nodes that have a lease or wait for one, in order: Curator's `getParticipantNodes`.
    ///
    /// # Errors
    ///
    /// `ConnectionLoss`, `SessionExpired`, `NoAuth`, `NotStarted`, `Closed`.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    pub async fn participant_nodes(&self) -> Result<Vec<String>> {
        let nodes = self.inner.leases.participant_nodes().await?;
        Ok(nodes.iter().map(|node| curator_framework::node_from_path(node).to_owned()).collect())
    }

    /// Returns the holders of leases and the waiters for one, in order, and behind them the contenders for the mutex. Costs
    /// one listing for the leases, one for the mutex, and one read for each contender.
    ///
    /// # Errors
    ///
    /// As [`participant_nodes`](Self::participant_nodes).
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    pub async fn participants(&self) -> Result<Vec<Participant>> {
        let Inner { lock, leases, .. } = &*self.inner;
        let lease = |sorted: &_, name: &str| {
            Some(Standing { kind: ParticipantKind::Lease, holds: leases.decide(sorted, name) == Predicate::Acquired })
        };
        let mut participants = leases.participants(lease).await?;
        // Who has the turn waits in the other list.
        let waits = |_: &_, _: &str| Some(Standing { kind: ParticipantKind::Lock, holds: false });
        participants.extend(lock.participants(waits).await?);
        Ok(participants)
    }
}

impl fmt::Debug for InterProcessSemaphoreV2 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InterProcessSemaphoreV2")
            .field("path", &self.inner.path)
            .field("max_leases", &self.max_leases())
            .field("protocol", &self.inner.protocol)
            .finish_non_exhaustive()
    }
}

/// How many leases a count stands for.
fn leases_of(count: i32) -> usize {
    usize::try_from(count).unwrap_or_default()
}

impl Follower for Limit {
    fn changed(&self, count: i32) {
        self.set(leases_of(count));
    }
}

impl Lease {
    /// Reads the data of the lease's node: Curator's `getData`.
    ///
    /// # Errors
    ///
    /// `NoNode` or `SessionExpired` if the lease is lost; `ConnectionLoss`; `Compression`.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    pub async fn data(&self) -> Result<Vec<u8>> {
        let place = self.guard.place();
        let (data, _) = place.hold().session().get_data(place.path()).await?;
        Ok(place.hold().client().from_stored(place.path(), data, None)?)
    }
}
