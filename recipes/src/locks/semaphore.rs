//! The semaphore.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use curator_framework::mutants::{Mutant, is_broken};
use curator_framework::{
    CuratorFramework, Error, LossReason, NewNode, Permission, RetryLoop, Session, make_path, validate_path,
};
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::error::{LockError, Result};
use crate::locks::engine::driver::{LeaseDriver, Predicate};
use crate::locks::engine::{Acquired, Attempt, Limit, LockInternals, Shape, Signals, WaitMode, acquire, no_end};
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
/// What the first direct client writes into the parent of the leases.
const DIRECT_MARK: &[u8] = b"__DIRECT__";

/// How the clients of a semaphore agree on who is next. All clients of a path must use the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum SemaphoreProtocol {
    /// Curator's: a mutex is held while a lease is taken. For paths that Java processes use too. The default.
    #[default]
    Curator,
    /// Without the mutex: two requests for a lease instead of four. For paths that only this crate uses. The first client
    /// marks the path, and one that uses Curator's protocol there gets [`LockError::ProtocolMismatch`]. Java's does not
    /// know the mark: at a limit of one a waiting Java client and a direct one behind it would block each other for ever.
    Direct,
}

impl fmt::Display for SemaphoreProtocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Curator => "curator",
            Self::Direct => "direct",
        })
    }
}

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
/// [`LockGuard::lost`](crate::LockGuard::lost).
///
/// # Fairness
///
/// First come, first served. No place stays free while somebody waits.
///
/// # Several leases at once
///
/// [`acquire_many`](Self::acquire_many) takes all or none. Whoever takes several holds the mutex while it does, whatever
/// the protocol, so two of them cannot block each other. One of them and Java's `acquire(qty)`, which takes the mutex
/// anew for each lease, can: give them a budget.
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
/// A lease tells of its loss. The inner mutex is released in the background, so a grant does not wait for it. There is a
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
/// Without contention five requests, four of them before the lease is granted, and one to give it back; with the direct
/// protocol two and one. Now and then (after a tenth of the session timeout) an acquire sends one more, to see which
/// protocol is in use.
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
    /// In which session, and when, the protocol was found to be ours.
    agreed: Mutex<Option<(u64, Instant)>>,
}

/// Taking some leases at once.
struct Taking<'a> {
    semaphore: &'a Inner,
    wanted: usize,
}

impl Attempt for Taking<'_> {
    type Granted = Vec<Acquired>;

    async fn attempt(&self, session: &Session, retries: &mut RetryLoop, once: bool) -> Result<Option<Vec<Acquired>>> {
        let Inner { protocol, lock, leases, .. } = self.semaphore;
        self.semaphore.agree(session, retries).await?;
        // Dropped when the leases are decided, whichever way: its node is deleted in the background.
        let turn = match (protocol, self.wanted) {
            (SemaphoreProtocol::Direct, 1) => None,
            _ => {
                let turn = if once {
                    self.semaphore.turn_while_free(session, retries, self.wanted).await?
                } else {
                    self.bounded(Box::pin(lock.attempt(session, retries, false))).await?
                };
                let Some(turn) = turn else { return Ok(None) };
                Some(turn)
            }
        };
        let mut taken = Taken(Vec::new());
        while taken.0.len() < self.wanted {
            let lease = self.bounded(Box::pin(leases.attempt(session, retries, once)));
            // Without its turn it would wait for leases that the next one holds, who waits for its own.
            let lease = match &turn {
                Some(turn) if self.wanted > 1 && !is_broken(Mutant::KeepTheLeasesWithoutTheTurn) => {
                    let lost = turn.claim.loss_signal();
                    tokio::select! {
                        biased;
                        reason = lost.lost() => return Err(match reason {
                            LossReason::Session(_) => session.gone("taking leases"),
                            // Again, at the back.
                            _ => Error::NoNode { path: turn.path().to_owned() },
                        }.into()),
                        lease = lease => lease?,
                    }
                }
                _ => lease.await?,
            };
            match lease {
                Some(lease) => taken.0.push(lease),
                // Those that were taken are given back.
                None => return Ok(None),
            }
        }
        // The next one waits for it.
        if let Some(turn) = turn {
            turn.claim.let_go();
        }
        Ok(Some(std::mem::take(&mut taken.0)))
    }
}

/// Leases that are given back unless all of them are had.
struct Taken(Vec<Acquired>);

impl Drop for Taken {
    fn drop(&mut self) {
        if is_broken(Mutant::KeepThePartialLeases) {
            Box::leak(Box::new(std::mem::take(&mut self.0)));
        }
    }
}

impl Taking<'_> {
    /// Waits as long as so many leases can be had at all. One lease is waited for also where there is none now.
    ///
    /// What it is given is best on the heap: a future that is handed on takes its room twice.
    async fn bounded<T>(&self, attempt: impl Future<Output = Result<T>>) -> Result<T> {
        let mut limit = self.semaphore.leases.limit().follow();
        let too_few = async {
            if self.wanted == 1 || limit.wait_for(|limit| self.wanted > *limit).await.is_err() {
                std::future::pending().await
            }
        };
        tokio::select! {
            biased;
            () = too_few => Err(self.semaphore.too_many(self.wanted)),
            granted = attempt => granted,
        }
    }
}

impl Inner {
    fn too_many(&self, wanted: usize) -> LockError {
        LockError::invalid(
            "number of leases",
            format!("{wanted} are more than the {} there are", self.leases.limit().get()),
        )
    }

    /// Waits for the turn to take leases as long as there seem to be enough free ones: who has the turn then is just
    /// taking his.
    async fn turn_while_free(
        &self,
        session: &Session,
        retries: &mut RetryLoop,
        wanted: usize,
    ) -> Result<Option<Acquired>> {
        let full = async {
            loop {
                let (taken, changed) = match session.get_children_watched(self.leases.base_path()).await {
                    Ok((children, watch)) => (self.leases.sort(children).len(), watch),
                    // Nobody has ever taken one.
                    Err(Error::NoNode { .. }) => match session.exists_watched(self.leases.base_path()).await? {
                        (None, made) => {
                            made.await;
                            continue;
                        }
                        (Some(_), _) => continue,
                    },
                    Err(error) => return Err(error.into()),
                };
                if wanted > self.leases.limit().get().saturating_sub(taken) {
                    return Ok(None);
                }
                changed.await;
            }
        };
        tokio::select! {
            biased;
            full = full => full,
            turn = Box::pin(self.lock.attempt(session, retries, false)) => turn,
        }
    }

    /// Sees that the path is used with our protocol, from time to time: it changes hands rarely.
    async fn agree(&self, session: &Session, retries: &mut RetryLoop) -> Result<()> {
        let agreed = *self.agreed.lock();
        let fresh = |(number, at): (u64, Instant)| number == session.number() && at.elapsed() < session.timeout() / 10;
        if agreed.is_some_and(fresh) {
            return Ok(());
        }
        if self.protocol == SemaphoreProtocol::Direct {
            let acl = session.acl_for(&make_path(self.leases.base_path(), LEASE_NAME));
            if !acl.iter().any(|entry| entry.permissions.contains(Permission::WRITE)) {
                let reason = "leases of the direct protocol must be writable: whoever gets one tells the next in line";
                return Err(LockError::invalid("access control list", reason));
            }
        }
        match self.protocol {
            SemaphoreProtocol::Direct => self.mark(session, retries).await?,
            SemaphoreProtocol::Curator => match session.get_data(self.leases.base_path()).await {
                Ok((data, _)) if data == DIRECT_MARK => return Err(self.is_used_with(SemaphoreProtocol::Direct)),
                Ok(_) | Err(Error::NoNode { .. }) => {}
                Err(error) => return Err(error.into()),
            },
        }
        *self.agreed.lock() = Some((session.number(), Instant::now()));
        Ok(())
    }

    /// Marks the path for the direct protocol, unless it is used with the other one.
    async fn mark(&self, session: &Session, retries: &mut RetryLoop) -> Result<()> {
        let path = self.leases.base_path();
        let mut in_line = None;
        loop {
            let found = match session.get_data(path).await {
                Ok((data, _)) if data == DIRECT_MARK => return Ok(()),
                Ok((_, stat)) => Some(stat),
                Err(Error::NoNode { .. }) => None,
                Err(error) => return Err(error.into()),
            };
            let waiting = match (&found, in_line.take()) {
                (_, Some(waiting)) => waiting,
                (None, None) => 0,
                // The line first, and then the leases again: who has left it has a lease, and where a client of our protocol
                // stands in it, for several leases at once, the mark is there by now.
                (Some(_), None) => {
                    let line = session.exists(self.lock.base_path()).await?;
                    in_line = Some(line.map_or(0, |line| line.num_children));
                    continue;
                }
            };
            if waiting > 0 || found.as_ref().is_some_and(|leases| leases.num_children > 0) {
                return Err(self.is_used_with(SemaphoreProtocol::Curator));
            }
            // Nobody uses it now: it may change hands.
            match found {
                Some(leases) => match session.set_data(path, DIRECT_MARK.to_vec(), Some(leases.version)).await {
                    Ok(_) | Err(Error::BadVersion { .. } | Error::NoNode { .. }) => {}
                    Err(error) => return Err(error.into()),
                },
                None => {
                    let parents = self.leases.client().lock_parents();
                    let lease = NewNode::new(&[]).with_parents(parents).with_parent_data(DIRECT_MARK);
                    match session.create_parents(&make_path(path, LEASE_NAME), &lease).await {
                        Ok(_) => {}
                        // Made and removed at the same time.
                        Err(error @ Error::NoNode { .. }) => retries.pause_after(error).await?,
                        Err(error) => return Err(error.into()),
                    }
                }
            }
        }
    }

    fn is_used_with(&self, found: SemaphoreProtocol) -> LockError {
        LockError::ProtocolMismatch { path: self.path.clone(), found }
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
        Self::build(client, path.into(), Arc::new(Limit::new(max_leases)), false, protocol, options)
    }

    /// As [`with_protocol`](Self::with_protocol), with a limit that follows a shared count while it runs, as Curator's
    /// `SharedCountReader` constructor. A raised limit wakes who waits; a lowered one takes nothing from anybody: it
    /// counts for those who come next. Below one nobody is let in. The count must be started, and kept: it is followed
    /// as long as it runs. All clients of the semaphore must follow the same one.
    ///
    /// # Errors
    ///
    /// As [`with_options`](Self::with_options); `InvalidArgument` also if the count's node holds none.
    pub fn with_shared_count(
        client: CuratorFramework,
        path: impl Into<String>,
        max_leases: &SharedCount,
        protocol: SemaphoreProtocol,
        options: LockOptions,
    ) -> Result<Self> {
        let now = max_leases.count().map_err(|error| LockError::invalid("number of leases", error.to_string()))?;
        let limit = Arc::new(Limit::new(leases_of(now)));
        let semaphore = Self::build(client, path.into(), Arc::clone(&limit), true, protocol, options)?;
        let follower: Arc<dyn Follower> = limit;
        max_leases.follow(Arc::downgrade(&follower));
        Ok(semaphore)
    }

    fn build(
        client: CuratorFramework,
        path: String,
        limit: Arc<Limit>,
        limit_changes: bool,
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
        let lock = Shape::queue(LOCK_NAME);
        let one_waits = protocol == SemaphoreProtocol::Curator;
        let leases = Shape {
            lock_name: LEASE_NAME,
            driver: Arc::new(LeaseDriver { one_waits }),
            limit,
            limit_is_fixed: false,
            signals: match (one_waits, limit_changes) {
                (true, _) => Signals::Never,
                (false, true) => Signals::Always,
                (false, false) => Signals::IfFollowed,
            },
            is_queue: false,
            parent_data: if one_waits { &[] } else { DIRECT_MARK },
        };
        let part = |name, shape, options| LockInternals::new(client.clone(), make_path(&path, name), shape, options);
        let lock = part(LOCKS, lock, LockOptions::new())?;
        let leases = part(LEASES, leases, options)?;
        Ok(Self { inner: Arc::new(Inner { path, protocol, lock, leases, agreed: Mutex::new(None) }) })
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

    /// Who has a lease or waits for one, in order, and under Curator's protocol who waits for the turn to take one. A
    /// listing or two and one read for each contender.
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
