//! The semaphore.

mod first_try;
mod lease_set;
mod protocol;
mod take;

use std::fmt;
use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

use curator_framework::{CuratorFramework, Watch, make_path, validate_path};
use parking_lot::Mutex;

use self::first_try::LastLook;
pub use self::lease_set::LeaseSet;
pub use self::protocol::SemaphoreProtocol;
use self::take::LeaseRequest;
use crate::locks::acquire_methods::acquire_methods;
use crate::locks::engine::driver::LeaseDriver;
use crate::locks::engine::{Limit, LockInternals, LockSpec, WaitMode, acquire, no_end};
use crate::locks::error::{LockError, Result};
use crate::locks::guard::hold::HoldShare;
use crate::locks::guard::lock_guard::{LockGuard, define_guard};
use crate::locks::mutex::LOCK_NAME;
use crate::locks::options::LockOptions;
use crate::locks::participants::{Participant, ParticipantKind};
use crate::locks::reentrancy::caller::Caller;
use crate::shared::{CountObserver, SharedCount, SharedError, VersionedValue};

/// Curator's name for the nodes of leases.
const LEASE_NAME: &str = "lease-";
const LOCKS: &str = "locks";
const LEASES: &str = "leases";
/// The data of the nodes `leases` and `locks` on a path of the direct protocol.
const DIRECT_MARK: &[u8] = b"__DIRECT__";

/// A semaphore across processes: Curator's `InterProcessSemaphoreV2`.
///
/// `tokio::sync::Semaphore` counts the permits of one process. This semaphore counts the leases of all clients of the
/// same path on the same ensemble, Java's Curator included. All clients must use the same limit, because ZooKeeper does
/// not store it. Cheap to clone; all clones are one semaphore.
///
/// # Reentrancy
///
/// A semaphore is not reentrant: each acquire takes a lease of its own.
///
/// # Losing the lock
///
/// A lease can be lost as a mutex can: see [`InterProcessMutex`](crate::InterProcessMutex#losing-the-lock) and
/// [`LockGuard::lost`](crate::LockGuard::lost).
///
/// # Fairness
///
/// Waiters are served first come, first served, and no lease stays free while one waits. If no contender is queued, a
/// client takes a free lease at once. If two clients try for the last lease within one round trip, a `try_acquire` may
/// be refused, and so may Java's timed acquire.
///
/// # Several leases at once
///
/// [`acquire_many`](Self::acquire_many) takes all leases or none. With either protocol, a client that waits for several
/// leases holds a [mutex](#zookeeper-layout), so two calls cannot deadlock. Java's `acquire(qty)` releases the mutex
/// between leases, and can deadlock with `acquire_many`. On a path shared with Java, give both a time limit.
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
/// lease.release().await?.held()?;
/// # Ok(())
/// # }
/// ```
///
/// # Differences from Curator
///
/// A lease reports its loss. A free lease is taken without the mutex, unless the limit follows a [`SharedCount`]. A
/// grant never waits for the release of the mutex. The [direct protocol](SemaphoreProtocol::Direct) uses the mutex only
/// for several leases.
///
/// # Beside Java's Curator
///
/// With Curator's protocol, Java's clients and this semaphore share one queue on the same path, also with a limit that
/// follows a [`SharedCount`]. Do not share a path of the direct protocol, or near the end of the
/// [sequence numbers](crate::InterProcessMutex#beside-other-clients). For several leases at once, see above.
///
/// # ZooKeeper layout
///
/// `<path>/locks/_c_<uuid>-lock-<number>` for the mutex, which a client holds while it waits for a lease, and
/// `<path>/leases/_c_<uuid>-lease-<number>` for the leases, as in Curator.
///
/// # Cost
///
/// | acquire and release | requests | round trips before the grant |
/// | --- | --- | --- |
/// | a lease is free | 4 | 1 (a `try_acquire`: 2) |
/// | a lease is free, and the limit follows a count | 6 | 2 |
/// | no lease is free | 8 | 1 after the release of a lease |
/// | a lease is free, direct protocol | 3 | 1 |
/// | a `try_acquire` that is refused | 4 reads | 2 |
///
/// A lease costs 1 more request at the first change of the other leases while it is held: before that, its listing
/// watches it. With the direct protocol each lease costs 1 more, if its access control list lets
/// neither `world` nor `auth` write. This request asks the server whether this client may.
///
/// The first acquire of an object sends three more reads in one more round trip: it checks the protocol and looks for a
/// free lease. The check sets a watch, and is repeated when the watch has fired. A client that found no free lease uses
/// the queue for its next lease, even if that is free: two more requests and one more round trip. On a path that did
/// not exist, the client checks protocol and leases once more after the grant: two reads in one round trip.
#[derive(Clone)]
pub struct InterProcessSemaphoreV2 {
    inner: Arc<Inner>,
}

define_guard! {
    /// The guard of a lease of an [`InterProcessSemaphoreV2`].
    Lease
}
acquire_methods!(InterProcessSemaphoreV2 => Lease);

struct Inner {
    path: String,
    protocol: SemaphoreProtocol,
    lock: LockInternals,
    leases: LockInternals,
    /// The watch on the node with the mark, set when the mark was as expected. It fires when the path is deleted.
    protocol_watch: Mutex<Option<Watch>>,
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
    /// Creates a semaphore at a path, with Curator's protocol, without a request.
    ///
    /// # Errors
    ///
    /// `Error::InvalidPath`; `LockError::InvalidArgument` for the root, and for a limit of zero.
    pub fn new(client: CuratorFramework, path: impl Into<String>, max_leases: usize) -> Result<Self> {
        Self::with_options(client, path, max_leases, LockOptions::new())
    }

    /// Creates a semaphore with data for the nodes of its leases: Curator's `setNodeData`.
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

    /// Creates a semaphore with options for its leases.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new); `LockError::InvalidArgument` also for a driver, because leases have their own.
    pub fn with_options(
        client: CuratorFramework,
        path: impl Into<String>,
        max_leases: usize,
        options: LockOptions,
    ) -> Result<Self> {
        Self::with_protocol(client, path, max_leases, SemaphoreProtocol::Curator, options)
    }

    /// Creates a semaphore with a protocol and options.
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
        Self::build("semaphore", client, path.into(), Arc::new(Limit::Fixed(max_leases)), protocol, options)
    }

    /// Creates the semaphore of a semaphore mutex.
    pub(crate) fn with_one_lease(client: CuratorFramework, path: String, options: LockOptions) -> Result<Self> {
        let limit = Arc::new(Limit::Fixed(1));
        Self::build("semaphore_mutex", client, path, limit, SemaphoreProtocol::Curator, options)
    }

    /// Creates a semaphore with a limit that follows a shared count: Curator's `SharedCountReader` constructor. Raising
    /// the limit wakes waiters. Lowering it does not revoke leases already granted. While the limit is zero or
    /// negative, no lease is granted. Start the count and keep it: the semaphore follows it only while it runs. All
    /// clients of the semaphore must follow the same count. A limit that is set through this count, or a clone of it,
    /// counts before the call that sets it returns. Other clients follow by their notifications.
    ///
    /// # Errors
    ///
    /// As [`with_options`](Self::with_options); `LockError::InvalidArgument` also if the count's node holds another
    /// kind of data, and for [`SemaphoreProtocol::Direct`], which cannot follow a limit that changes.
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
        let invalid = |error: SharedError| LockError::invalid("number of leases", error.to_string());
        let now = max_leases.versioned_value().map_err(invalid)?;
        let limit = Arc::new(Limit::changing(leases_of(*now.value()), now.zxid()));
        let semaphore = Self::build("semaphore", client, path.into(), Arc::clone(&limit), protocol, options)?;
        let follower: Arc<dyn CountObserver> = limit;
        max_leases.follow(Arc::downgrade(&follower));
        Ok(semaphore)
    }

    fn build(
        recipe: &'static str,
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
        let lock = LockSpec { parent_data, ..LockSpec::queue(LOCK_NAME) };
        let leases = LockSpec {
            recipe,
            lock_name: LEASE_NAME,
            driver: Arc::new(LeaseDriver { has_one_waiter: !is_direct }),
            limit,
            signals_successor: is_direct,
            is_queue: false,
            parent_data,
            acl: None,
            candidacy: None,
        };
        let part = |name, spec, options| LockInternals::new(client.clone(), make_path(&path, name), spec, options);
        let lock = part(LOCKS, lock, LockOptions::new())?;
        let leases = part(LEASES, leases, options)?;
        let (protocol_watch, last_look) = (Mutex::default(), Mutex::default());
        Ok(Self { inner: Arc::new(Inner { path, protocol, lock, leases, protocol_watch, last_look }) })
    }

    /// Returns the path of the semaphore.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.inner.path
    }

    /// Returns the present limit of leases.
    #[must_use]
    pub fn max_leases(&self) -> usize {
        self.inner.leases.limit().get()
    }

    /// Returns the protocol.
    #[must_use]
    pub fn protocol(&self) -> SemaphoreProtocol {
        self.inner.protocol
    }

    /// Returns whether this object or a clone of it holds a lease.
    #[must_use]
    pub fn is_acquired_in_this_process(&self) -> bool {
        self.inner.leases.is_held()
    }

    pub(crate) async fn acquire_for(&self, caller: Caller, mode: WaitMode) -> Result<Option<Lease>> {
        Ok(self.take(1, caller, mode).await?.and_then(|mut leases| leases.pop()))
    }

    /// Waits for several leases without a limit of time, and takes all or none: Curator's `acquire(qty)`. The
    /// [`LeaseSet`] is one guard for all of them.
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire); `LockError::InvalidArgument` for zero leases, and for more than the limit, also
    /// when it is lowered meanwhile.
    ///
    /// # Cancel safety
    ///
    /// As [`acquire`](Self::acquire); leases that were taken already are released.
    #[track_caller]
    pub fn acquire_many(&self, leases: usize) -> impl Future<Output = Result<LeaseSet>> + Send {
        let at = Location::caller();
        async move {
            let leases = self.take(leases, Caller::in_scope(at), WaitMode::Forever).await?;
            leases.map(LeaseSet::of).ok_or_else(no_end)
        }
    }

    /// Waits for several leases for at most `budget`. [Bind the set](crate#bind-the-guard): `if ….is_some()` releases
    /// the leases before its block begins.
    ///
    /// The budget covers the connection, missing parents and the queue. Returns `Ok(None)` if another contender is
    /// ahead when the budget ends.
    ///
    /// # Errors
    ///
    /// * Those of [`acquire_many`](Self::acquire_many).
    /// * `Error::ConnectionLoss`: the budget ended without a connection, or before a reply showed another contender
    ///   ahead.
    ///
    /// # Cancel safety
    ///
    /// As [`acquire_many`](Self::acquire_many).
    #[track_caller]
    pub fn acquire_many_timeout(
        &self,
        leases: usize,
        budget: Duration,
    ) -> impl Future<Output = Result<Option<LeaseSet>>> + Send {
        let at = Location::caller();
        async move {
            let leases = self.take(leases, Caller::in_scope(at), WaitMode::within(budget)).await?;
            Ok(leases.map(LeaseSet::of))
        }
    }

    /// Tries once to take several leases. [Bind the set](crate#bind-the-guard): `if ….is_some()` releases the leases
    /// before its block begins. Returns `Ok(None)` if too few are free.
    ///
    /// # Errors
    ///
    /// As [`acquire_many`](Self::acquire_many); `Error::ConnectionLoss` also without a reply in the connection timeout.
    ///
    /// # Cancel safety
    ///
    /// As [`acquire_many`](Self::acquire_many).
    #[track_caller]
    pub fn try_acquire_many(&self, leases: usize) -> impl Future<Output = Result<Option<LeaseSet>>> + Send {
        let at = Location::caller();
        async move { Ok(self.take(leases, Caller::in_scope(at), WaitMode::Once).await?.map(LeaseSet::of)) }
    }

    async fn take(&self, wanted: usize, caller: Caller, mode: WaitMode) -> Result<Option<Vec<Lease>>> {
        let Inner { leases, path, .. } = &*self.inner;
        if wanted == 0 {
            return Err(LockError::invalid("number of leases", "it is zero"));
        }
        if wanted > 1 && wanted > leases.limit().get() {
            return Err(self.inner.too_many(wanted));
        }
        let origin = caller.origin();
        leases.warn_of_self_deadlock(path, mode, &origin);
        let request = LeaseRequest { semaphore: &self.inner, wanted };
        let Some(taken) = acquire(leases.client(), path, mode, &request).await? else { return Ok(None) };
        let lease = |acquired| Lease::new(HoldShare::first(leases.hold(path, acquired, origin)));
        Ok(Some(taken.into_iter().map(lease).collect()))
    }

    /// Returns the names of the nodes that hold a lease or wait for one, in order: Curator's `getParticipantNodes`.
    /// Goes by the names: persistent nodes with the name of a lease are among them.
    ///
    /// # Errors
    ///
    /// `Error::NotStarted`, `Error::Closed`; `Error::NoAuth` if the ACL forbids reading; `Error::ConnectionLoss`,
    /// `Error::SessionExpired`: call again.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    pub async fn participant_nodes(&self) -> Result<Vec<String>> {
        let nodes = self.inner.leases.participant_nodes().await?;
        Ok(nodes.iter().map(|node| curator_framework::node_from_path(node).to_owned()).collect())
    }

    /// Returns the contenders for leases, in order, and behind them the contenders for the mutex. Costs one listing for
    /// the leases, one for the mutex, and one read for each contender.
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
        let holds = |sorted: &_, name: &str| leases.is_granted(sorted, name);
        let mut participants = leases.participants(|_| Some(ParticipantKind::Lease), holds).await?;
        // The holder of the mutex waits for a lease.
        let turns =
            lock.participants(|_| Some(ParticipantKind::Lock), |sorted, name| lock.is_granted(sorted, name)).await?;
        participants.extend(turns.into_iter().map(|turn| Participant { holds: false, ..turn }));
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

/// Returns the limit for a count.
fn leases_of(count: i32) -> usize {
    usize::try_from(count).unwrap_or_default()
}

impl CountObserver for Limit {
    fn changed(&self, count: &VersionedValue<i32>) {
        self.set(leases_of(*count.value()), count.zxid());
    }
}

impl Lease {
    /// Returns the guard of one lease, which a set has had.
    fn of(guard: LockGuard) -> Self {
        Self { guard }
    }

    /// Reads the data of the lease's node: Curator's `getData`.
    ///
    /// # Errors
    ///
    /// `Error::NoNode` or `Error::SessionExpired` if the lease is lost; `Error::ConnectionLoss`; `Error::Compression`.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    pub async fn data(&self) -> Result<Vec<u8>> {
        let share = self.guard.first_share();
        let (data, _) = share.hold().session().get_data(share.path()).await?;
        Ok(share.hold().client().from_stored(share.path(), data, None)?)
    }
}
