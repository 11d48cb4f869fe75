//! The semaphore.

use std::fmt;
use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

use curator_framework::recipe::RecipeClient as _;
use curator_framework::{CuratorFramework, make_path, validate_path};
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::engine::batch::Lobby;
use crate::engine::caller::Caller;
use crate::engine::driver::LOCK_NAME;
use crate::engine::error::LockError;
use crate::engine::hold::HoldShare;
use crate::engine::lease_driver::{LEASE_NAME, LeaseDriver};
use crate::engine::options::LockOptions;
use crate::engine::participants::{Participant, ParticipantKind};
use crate::engine::semaphore_protocol::SemaphoreProtocol;
use crate::engine::slot::Slots;
use crate::engine::{Limit, LockInternals, LockSpec, Sharing, WaitMode, acquire, no_end};
use crate::locks::acquire_methods::acquire_methods;
use crate::locks::guard::lock_guard::LockGuard;
use crate::locks::options::SemaphoreOptions;
use crate::locks::semaphore::lease_set::{Lease, LeaseSet};
use crate::locks::semaphore::pool::Pool;
use crate::locks::semaphore::state::{DIRECT_MARK, Inner, LEASES, LOCKS, SLOTS};
use crate::locks::semaphore::take::LeaseRequest;
use crate::shared::{SharedCount, SharedError};

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
/// be refused, and so may Java's timed acquire. With
/// [`one_node_per_client`](crate::LockOptions::one_node_per_client) the clients have this order: see
/// [batches](crate::batches#leases-of-a-semaphore).
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
/// With Curator's protocol, Java's clients and this semaphore share one queue on the same path, even with a limit that
/// follows a [`SharedCount`]. Do not share a path of the direct protocol, or near the end of the
/// [sequence numbers](crate::InterProcessMutex#beside-other-clients). For several leases at once, see above.
///
/// # ZooKeeper layout
///
/// `<path>/locks/_c_<uuid>-lock-<number>` for the mutex, which a client holds while it waits for a lease, and
/// `<path>/leases/_c_<uuid>-lease-<number>` for the leases, as in Curator. `<path>/slots/<number>`, ephemeral, with ten
/// digits, for the [slots](Lease::slot) of leases; Curator has none.
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
/// | wait or hold | the session's heartbeat: a write each eighth of the timeout, one for all locks and elections | |
/// | a [slot](Lease::slot) | 5 more | 2 for its call, and 2 before the release of the lease |
///
/// A lease costs 1 more request at the first change of the other leases while it is held: before that, its listing
/// watches it. With the direct protocol each lease costs 1 more, if its access control list lets
/// neither `world` nor `auth` write. This request asks the server whether this client may.
///
/// The first acquire of an object sends three more reads in one more round trip: it reads the protocol, and whether a
/// lease is free. The check sets a watch, and is repeated when the watch has fired. A client that found no free lease
/// uses the queue for its next lease, even if that is free: two more requests and one more round trip. On a path that
/// did not exist, the client checks protocol and leases once more after the grant: two reads in one round trip.
#[derive(Clone)]
pub struct InterProcessSemaphoreV2 {
    inner: Arc<Inner>,
    /// The batch of the client, if its tasks share leases.
    batch: Option<Arc<Lobby>>,
}

/// The limit of leases: a number, or a count that the limit follows. Both convert into it.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum MaxLeases {
    /// This number.
    Fixed(usize),
    /// The value of a count: Curator's `SharedCountReader` constructor. Raising the limit wakes waiters. Lowering it does
    /// not revoke leases already granted. While the limit is zero or negative, no lease is granted. Start the
    /// count. The semaphore keeps it, and follows it until it is closed, so a listener of the count must not keep
    /// the semaphore. All clients of the semaphore must follow the same
    /// count. A limit that is set through this count, or a clone of it, counts before the call that sets it returns. Other
    /// clients follow by their notifications.
    Count(SharedCount),
}

impl From<usize> for MaxLeases {
    fn from(leases: usize) -> Self {
        Self::Fixed(leases)
    }
}

impl From<&SharedCount> for MaxLeases {
    fn from(count: &SharedCount) -> Self {
        Self::Count(count.clone())
    }
}

acquire_methods!(InterProcessSemaphoreV2 => Lease);

impl InterProcessSemaphoreV2 {
    /// The name of the node below the path that has the leases.
    pub const LEASES: &str = LEASES;
    /// The name of the node below the path that has the queue of clients that wait for a lease.
    pub const LOCKS: &str = LOCKS;

    /// Creates a semaphore at a path, with Curator's protocol, without a request.
    ///
    /// # Errors
    ///
    /// `Error::InvalidPath`; `LockError::InvalidArgument` for the root, for a fixed limit of zero, and for a count with
    /// another kind of data in its node.
    pub fn new(
        client: CuratorFramework,
        path: impl Into<String>,
        max_leases: impl Into<MaxLeases>,
    ) -> Result<Self, LockError> {
        Self::with_options(client, path, max_leases, SemaphoreOptions::new())
    }

    /// Creates a semaphore with options for its leases.
    ///
    /// # Errors
    ///
    /// * `Error::InvalidPath`: ZooKeeper does not allow this path.
    /// * `LockError::InvalidArgument`: the path is the root, a fixed limit is zero, or the node of the count has
    ///   another kind of data.
    /// * `LockError::InvalidArgument`: a [count](MaxLeases::Count) with [`SemaphoreProtocol::Direct`], which cannot
    ///   follow a limit that changes; or [`one_node_per_client`](SemaphoreOptions::one_node_per_client) with that
    ///   protocol.
    /// * `LockError::InvalidArgument`: [`linger`](SemaphoreOptions::linger) is set, or `max_waiting_nodes` is 0.
    pub fn with_options(
        client: CuratorFramework,
        path: impl Into<String>,
        max_leases: impl Into<MaxLeases>,
        options: SemaphoreOptions,
    ) -> Result<Self, LockError> {
        let (options, protocol) = options.split();
        let (limit, count) = match max_leases.into() {
            MaxLeases::Fixed(0) => {
                return Err(LockError::invalid("number of leases", "it is zero, so none could ever be granted"));
            }
            MaxLeases::Fixed(leases) => (Limit::Fixed(leases), None),
            MaxLeases::Count(_) if protocol == SemaphoreProtocol::Direct => {
                let reason = "the direct protocol cannot follow a limit that changes: clients learn of a change at \
                              different times, so the leases granted under a higher limit may exceed a lower one";
                return Err(LockError::invalid("semaphore protocol", reason));
            }
            MaxLeases::Count(count) => {
                let invalid = |error: SharedError| LockError::invalid("number of leases", error.to_string());
                count.count().map_err(invalid)?;
                (Limit::Changing(count.watch()), Some(count))
            }
        };
        Self::build("semaphore", client, path.into(), Arc::new(limit), count, protocol, options)
    }

    /// Creates the semaphore of a semaphore mutex.
    pub(crate) fn with_one_lease(
        client: CuratorFramework,
        path: String,
        options: LockOptions,
    ) -> Result<Self, LockError> {
        let limit = Arc::new(Limit::Fixed(1));
        Self::build("semaphore_mutex", client, path, limit, None, SemaphoreProtocol::Curator, options)
    }

    fn build(
        recipe: &'static str,
        client: CuratorFramework,
        path: String,
        limit: Arc<Limit>,
        count: Option<SharedCount>,
        protocol: SemaphoreProtocol,
        options: LockOptions,
    ) -> Result<Self, LockError> {
        validate_path(&path)?;
        if path == "/" {
            return Err(LockError::invalid("lock path", "the root cannot be a lock"));
        }
        let is_direct = protocol == SemaphoreProtocol::Direct;
        if options.one_node && is_direct {
            let reason = "with the direct protocol each task that waits for a lease has a node of its own";
            return Err(LockError::invalid("one node per client", reason));
        }
        if !options.linger.is_zero() {
            let reason = "a lease that is not held would not be free for others: nothing notifies of them";
            return Err(LockError::invalid("linger", reason));
        }
        let parent_data = if is_direct { DIRECT_MARK } else { &[] };
        let lock = LockSpec { parent_data, ..LockSpec::queue(LOCK_NAME) };
        let driver = Arc::new(LeaseDriver { has_one_waiter: !is_direct });
        let slots = Slots { path: make_path(&path, SLOTS), limit: Arc::clone(&limit), acl: options.acl.clone() };
        let leases = LockSpec {
            recipe,
            limit: Arc::clone(&limit),
            slots: Some(Arc::new(slots)),
            signals_grant: is_direct,
            parent_data,
            sharing: if limit.is_fixed() { Sharing::Path } else { Sharing::Object },
            ..LockSpec::exclusive(LEASE_NAME, driver)
        };
        let part = |name, spec, options| {
            LockInternals::new(client.clone(), make_path(&path, name), spec, options).map(|part| part.shown_as(&path))
        };
        let (acl, max_waiting_nodes, data) = (options.acl.clone(), options.max_waiting_nodes, options.data.clone());
        let lock = part(LOCKS, lock, LockOptions { acl, max_waiting_nodes, data, ..LockOptions::new() })?;
        let leases = part(LEASES, leases, options)?;
        let (protocol_watch, last_look) = (Mutex::default(), Mutex::default());
        let inner = Inner { path, protocol, lock, leases, protocol_watch, last_look, _count: count };
        let pool = || Box::new(Pool { semaphore: inner.without_client(), turn: watch::Sender::default() });
        let batch = Lobby::of_source(&inner.leases, || pool());
        Ok(Self { inner: Arc::new(inner), batch })
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

    pub(crate) async fn acquire_for(&self, caller: Caller, mode: WaitMode) -> Result<Option<Lease>, LockError> {
        Ok(self.take(1, caller, mode).await?.and_then(|mut leases| leases.pop()))
    }

    /// Waits for several leases without a limit of time, and takes all or none: Curator's `acquire(qty)`. The
    /// [`LeaseSet`] is one guard for all of them.
    ///
    /// # Errors
    ///
    /// * `LockError::InvalidArgument`: zero leases, or more than the limit, even if the limit is lowered during the
    ///   call.
    /// * `LockError::InvalidArgument`: the ACL makes the leases of the direct protocol read-only.
    /// * `LockError::ProtocolMismatch`: other clients use the semaphore's path with the other protocol.
    /// * `Error::ConnectionLoss`: no connection within the connection timeout, and the retry policy gave up.
    /// * `Error::SessionExpired`: the session ended while waiting, and the retry policy allows no further try.
    /// * `Error::NoNode`: other clients delete the contender's node again and again, and the retry policy gave up.
    /// * `Error::TooManyEphemeralNodes`: the session cannot have so many nodes, at once. Release other locks, or
    ///   acquire with another client.
    /// * `Error::NotStarted`, `Error::Closed`: the client does not run. `Error::NoAuth`: the ACL forbids a request.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, the contender leaves the queue, and the leases that were taken already are released.
    #[track_caller]
    pub fn acquire_many(&self, leases: usize) -> impl Future<Output = Result<LeaseSet, LockError>> + Send {
        let at = Location::caller();
        async move {
            let leases = self.take(leases, Caller::in_scope(at), WaitMode::Forever).await?;
            leases.map(set_of).ok_or_else(no_end)
        }
    }

    /// Waits for several leases for at most `budget`. [Bind the set](crate#bind-the-guard): `if ….is_some()` releases
    /// the leases before its block starts.
    ///
    /// The budget covers the connection, missing parents and the queue. Returns `Ok(None)` if another contender is
    /// ahead when the budget ends.
    ///
    /// # Errors
    ///
    /// * `LockError::InvalidArgument`: zero leases, or more than the limit, even if the limit is lowered during the
    ///   call.
    /// * `LockError::InvalidArgument`: the ACL makes the leases of the direct protocol read-only.
    /// * `LockError::ProtocolMismatch`: other clients use the semaphore's path with the other protocol.
    /// * `Error::ConnectionLoss`: the budget ended without a connection, or before a reply showed another contender
    ///   ahead.
    /// * `Error::ConnectionLoss`, `Error::SessionExpired`: the connection or the session was lost, and the retry policy
    ///   gave up.
    /// * `Error::NoNode`: other clients delete the contender's node again and again, and the retry policy gave up.
    /// * `Error::TooManyEphemeralNodes`: the session cannot have so many nodes, at once. Release other locks, or
    ///   acquire with another client.
    /// * `Error::NotStarted`, `Error::Closed`: the client does not run. `Error::NoAuth`: the ACL forbids a request.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, the contender leaves the queue, and the leases that were taken already are released.
    #[track_caller]
    pub fn acquire_many_timeout(
        &self,
        leases: usize,
        budget: Duration,
    ) -> impl Future<Output = Result<Option<LeaseSet>, LockError>> + Send {
        let at = Location::caller();
        async move {
            let leases = self.take(leases, Caller::in_scope(at), WaitMode::within(budget)).await?;
            Ok(leases.map(set_of))
        }
    }

    /// Tries once to take several leases. [Bind the set](crate#bind-the-guard): `if ….is_some()` releases the leases
    /// before its block starts. Returns `Ok(None)` if too few are free.
    ///
    /// # Errors
    ///
    /// * `LockError::InvalidArgument`: zero leases, or more than the limit, even if the limit is lowered during the
    ///   call.
    /// * `LockError::InvalidArgument`: the ACL makes the leases of the direct protocol read-only.
    /// * `LockError::ProtocolMismatch`: other clients use the semaphore's path with the other protocol.
    /// * `Error::ConnectionLoss`: no reply in the connection timeout, or the connection was lost during the call.
    /// * `Error::SessionExpired`: the session ended during the call.
    /// * `Error::NoNode`: other clients delete the contender's node again and again, and the retry policy gave up.
    /// * `Error::TooManyEphemeralNodes`: the session cannot have so many nodes, at once. Release other locks, or
    ///   acquire with another client.
    /// * `Error::NotStarted`, `Error::Closed`: the client does not run. `Error::NoAuth`: the ACL forbids a request.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, the contender leaves the queue, and the leases that were taken already are released.
    #[track_caller]
    pub fn try_acquire_many(&self, leases: usize) -> impl Future<Output = Result<Option<LeaseSet>, LockError>> + Send {
        let at = Location::caller();
        async move { Ok(self.take(leases, Caller::in_scope(at), WaitMode::Once).await?.map(set_of)) }
    }

    async fn take(&self, wanted: usize, caller: Caller, mode: WaitMode) -> Result<Option<Vec<Lease>>, LockError> {
        let Inner { leases, path, .. } = &*self.inner;
        if wanted == 0 {
            return Err(LockError::invalid("number of leases", "it is zero"));
        }
        if wanted > 1 && wanted > leases.limit().get() {
            return Err(self.inner.too_many(wanted));
        }
        let origin = caller.origin();
        leases.warn_of_self_deadlock(path, mode, &origin);
        let taken = match &self.batch {
            Some(batch) if wanted == 1 => batch.acquire(leases.label(), mode).await?.map(|lease| vec![lease]),
            _ => {
                let request = LeaseRequest { semaphore: &self.inner, wanted, batch: None };
                acquire(leases.client(), path, mode, &request).await?
            }
        };
        let Some(taken) = taken else { return Ok(None) };
        let lease = |acquired| Lease::new(HoldShare::first(leases.hold(acquired, origin)));
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
    pub async fn participant_nodes(&self) -> Result<Vec<String>, LockError> {
        let nodes = self.inner.leases.participant_nodes().await?;
        Ok(nodes.iter().map(|node| curator_framework::node_from_path(node).to_owned()).collect())
    }

    /// Returns the contenders for leases, in order, and after them the contenders for the mutex. Costs one listing for
    /// the leases, one for the mutex, and one read for each contender.
    ///
    /// # Errors
    ///
    /// * `Error::ConnectionLoss`, `Error::SessionExpired`: the retry policy gave up. Call again.
    /// * `Error::NoAuth`: the ACL forbids reading. `Error::ReplyTooLarge`: the listing is above the client's limit.
    /// * `Error::NotStarted`, `Error::Closed`: the client does not run.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    pub async fn participants(&self) -> Result<Vec<Participant>, LockError> {
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

fn set_of(leases: Vec<Lease>) -> LeaseSet {
    LeaseSet::all(leases.into_iter().map(LockGuard::from))
}

impl Lease {
    /// Returns the number of this lease, for one of as many things that the semaphore shares out: a licence, a port, a
    /// shard. The first call claims the lowest number from 0 that is free and below the limit. Further calls return the
    /// same number without a request.
    ///
    /// No other living lease of this semaphore has the number. Java's Curator has no numbers, and its leases take none.
    /// The number is free again when the lease is released, dropped or lost. A limit that is lowered leaves larger
    /// numbers in use until then. Each lease of a [`LeaseSet`] has its own: a loop over the set yields them.
    ///
    /// While leases that have just ended still have their nodes, the first call waits for one of them, as long as the
    /// lease is held.
    ///
    /// # Errors
    ///
    /// * `LockError::LockLost`: the lease is lost. Or another client has deleted the node of the number, which may be
    ///   another lease's now: the error names its path. Release the lease then.
    /// * `LockError::InvalidArgument`: the lease was released.
    /// * `Error::ConnectionLoss`: no server replied until the retry policy gave up. `Error::NoAuth`: the ACL forbids a
    ///   request. Call again.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped before the number is known, its node is deleted in the background if it was created.
    pub async fn slot(&self) -> Result<u32, LockError> {
        self.first_share().slot().await
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
    pub async fn data(&self) -> Result<Vec<u8>, LockError> {
        let share = self.first_share();
        let (data, _) = share.hold().session().get_data(share.path()).await?;
        Ok(share.hold().client().from_stored(share.path(), data, None)?)
    }
}
