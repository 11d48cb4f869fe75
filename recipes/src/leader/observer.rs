//! The observer of an election.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use curator_framework::recipe::{RecipeClient as _, owning_session};
use curator_framework::{
    Chain, Changes, CuratorFramework, Error, Session, SessionId, Stat, Watch, Zxid, make_path, node_from_path,
};
use tokio::sync::watch;
use tokio::time::timeout;

use crate::engine::candidacy::LATCH_NAME;
use crate::engine::driver::LOCK_NAME;
use crate::engine::driver::standard_sequence;
use crate::engine::options::LockOptions;
use crate::engine::{LockInternals, LockSpec};
use crate::held::FencingToken;
use crate::leader::error::LeaderError;
use crate::leader::record_io::Found;
use crate::standing::changes::{Change, Published};
use crate::standing::in_sessions::{CaughtUp, InSessions, work_in_sessions};
use crate::standing::{Pauses, StandingTask, Stop, first_found, within};

/// A leader as an observer sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Leader {
    /// The id: the data of the leader's node, with U+FFFD in place of bytes that are not UTF-8.
    pub id: String,
    /// The path of the leader's node.
    pub path: String,
    /// The fencing token of the term: see [`Leadership::token`](crate::Leadership::token). If another client has emptied
    /// the data of the election's path in a term after a hand-over, an observer that starts later shows a smaller one.
    pub token: FencingToken,
    /// The session of the leader.
    pub session: SessionId,
    /// The time when the leader's node was created, on the server's clock. The term started later.
    pub created: SystemTime,
    /// The data that this leader has [proclaimed](crate::Leadership::proclaim); `None` after another client has
    /// overwritten it.
    pub data: Option<Vec<u8>>,
}

impl Leader {
    /// Returns the proclaimed data as text, with U+FFFD in place of bytes that are not UTF-8.
    #[must_use]
    pub fn data_text(&self) -> Option<Cow<'_, str>> {
        self.data.as_deref().map(String::from_utf8_lossy)
    }
}

/// The state of an election, as an observer knows it.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum ObserverState {
    /// The observer was not started.
    Latent,
    /// The observer has not read the election yet.
    Loading,
    /// The election has no candidates, or a persistent node with a candidate's name blocks them.
    NoLeader,
    /// The candidate at the head of the queue. With a
    /// [delay](crate::LeaderLatchOptions::delay_after_unclean_loss) it leads when the delay has passed.
    Leader(Leader),
    /// The last known leader, which may have changed since: the server refuses a read. The observer tries again, with
    /// growing pauses of up to 30 s.
    Refused {
        /// The leader; `None` if the last read found [no leader](Self::NoLeader).
        leader: Option<Leader>,
        /// The error of the read.
        cause: LeaderError,
    },
    /// The server refuses a read, for example for a missing permission, and no leader is known: the election was not
    /// read before, or the last known leader's node was deleted. The observer tries again, with growing pauses of up to
    /// 30 s.
    Failed(LeaderError),
    /// The observer or its client was closed, or the runtime of the observer has ended.
    Closed,
}

impl ObserverState {
    /// Returns the last known leader, even if a read is refused now.
    #[must_use]
    pub const fn leader(&self) -> Option<&Leader> {
        match self {
            Self::Leader(leader) | Self::Refused { leader: Some(leader), .. } => Some(leader),
            _ => None,
        }
    }

    /// Returns the state after a refused read, with the last known leader.
    fn refused(self, cause: LeaderError) -> Self {
        match self {
            Self::Leader(leader) => Self::Refused { leader: Some(leader), cause },
            Self::NoLeader => Self::Refused { leader: None, cause },
            Self::Refused { leader, .. } => Self::Refused { leader, cause },
            Self::Latent | Self::Loading | Self::Failed(_) | Self::Closed => Self::Failed(cause),
        }
    }

    fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Leader(one), Self::Leader(other)) => one == other,
            (Self::Refused { leader, cause }, Self::Refused { leader: other, cause: others }) => {
                leader == other && cause.to_string() == others.to_string()
            }
            (Self::Failed(one), Self::Failed(other)) => one.to_string() == other.to_string(),
            _ => std::mem::discriminant(self) == std::mem::discriminant(other),
        }
    }
}

/// Follows the leaders of an election, with id, term and proclaimed data: etcd's `Observe`. The client need not be a
/// candidate. Observes latches and selectors, Java's too.
///
/// The stream has each leader that the observer has seen, in the order of their terms. It may skip a leader that led
/// for less than a round trip. Without a connection the last leader stays: see [`CuratorFramework::is_connected`].
///
/// Java's leaders write no number. After a [hand-over](crate::LeaderLatch::resign_to_timeout) their terms may be
/// smaller, and the observer shows such a leader only after four session timeouts.
///
/// [Clones](crate#handles) are cheap, and all clones are one observer. The drop of the last one closes it. An observer
/// keeps its client open.
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
/// use curator_recipes::{LeaderLatch, LeaderLatchOptions, LeaderObserver, ObserverState};
///
/// let latch = LeaderLatch::with_options(client.clone(), "/leaders/indexer", LeaderLatchOptions::new().id("host-7"))?;
/// latch.start()?;
/// latch.leading().await?.proclaim("http://host-7:8080").await?;
///
/// let observer = LeaderObserver::new(client, "/leaders/indexer")?;
/// observer.start()?;
/// let mut observed = observer.watch();
/// let with_data = |observed: &ObserverState| matches!(observed, ObserverState::Leader(leader) if leader.data.is_some());
/// observed.wait_for(with_data).await?;
/// let leader = observer.leader().ok_or("the leader has gone")?;
/// assert_eq!((leader.id.as_str(), leader.data_text().as_deref()), ("host-7", Some("http://host-7:8080")));
/// # latch.close().await;
/// # Ok(())
/// # }
/// ```
///
/// # Cost
///
/// | case | requests |
/// | --- | --- |
/// | new leader, or new data | 3: a listing, and reads of the leader's node and of the path, with watches |
/// | persistent nodes with a candidate's name, ahead of it | 2 more for each |
/// | no candidates | 2: a listing, and one with a watch, or a watch for the path's creation |
/// | start, new session | 1 more, so that the observer does not return to an earlier leader: `sync`, or a write over `zookeeper-async` |
/// | a candidate joins or leaves behind the leader | 0 |
#[derive(Clone)]
pub struct LeaderObserver {
    owner: Arc<Owner>,
}

struct Owner {
    /// Keeps the client open.
    client: CuratorFramework,
    path: String,
    observed: Arc<Published<ObserverState>>,
    task: StandingTask,
}

impl LeaderObserver {
    /// Creates an observer of the election at a path, without a request.
    ///
    /// # Errors
    ///
    /// `Error::InvalidPath`; `LeaderError::InvalidArgument` for the root.
    pub fn new(client: CuratorFramework, path: impl Into<String>) -> Result<Self, LeaderError> {
        let path = path.into();
        internals(&client, &path)?;
        let observed = Arc::new(Published::new(ObserverState::Latent));
        Ok(Self { owner: Arc::new(Owner { client, path, observed, task: StandingTask::new() }) })
    }

    /// Starts to observe, in the background, now or when the client is connected.
    ///
    /// # Errors
    ///
    /// * `LeaderError::AlreadyStarted`: an earlier call has started the observer.
    /// * `LeaderError::Closed`: create another object.
    /// * `Error::NoRuntime`: call it in a tokio runtime.
    pub fn start(&self) -> Result<(), LeaderError> {
        let Owner { client, path, observed, task } = &*self.owner;
        let (internals, observed) = (internals(client, path)?, Arc::clone(observed));
        let started = task.start(move |stop| {
            observed.publish(ObserverState::Loading);
            run(internals, Ending(observed), stop)
        });
        started.map_err(|error| LeaderError::of_start(error, self.path_text()))
    }

    /// Waits until the election is read: then [`leader`](Self::leader) is known, or known to be absent.
    ///
    /// # Errors
    ///
    /// * `LeaderError::NotStarted`: call [`start`](Self::start) first.
    /// * `LeaderError::Closed`: the observer or its client was closed, before or during the call.
    /// * The error of [`ObserverState::Failed`], such as `Error::NoAuth`, at once. The observer tries again with pauses,
    ///   so a later call may succeed.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    pub async fn initialized(&self) -> Result<(), LeaderError> {
        let closed = || Err(LeaderError::Closed { path: self.path_text() });
        let look = |state| match state {
            ObserverState::Leader(_) | ObserverState::NoLeader | ObserverState::Refused { .. } => Some(Ok(())),
            ObserverState::Loading => None,
            ObserverState::Latent => Some(Err(LeaderError::NotStarted { path: self.path_text() })),
            ObserverState::Failed(error) => Some(Err(error)),
            ObserverState::Closed => Some(closed()),
        };
        first_found(self.watch(), look).await.unwrap_or_else(closed)
    }

    /// Waits like [`initialized`](Self::initialized) for at most `budget`. Returns `Ok(None)` if the budget ends while
    /// the client is connected.
    ///
    /// # Errors
    ///
    /// * `LeaderError::NotStarted`: call [`start`](Self::start) first.
    /// * `LeaderError::Closed`: the observer or its client was closed, before or during the call.
    /// * `Error::ConnectionLoss`: the budget ended without a connection.
    /// * The error of [`ObserverState::Failed`], such as `Error::NoAuth`, at once. The observer tries again with
    ///   pauses, so a later call may succeed.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    pub async fn initialized_timeout(&self, budget: Duration) -> Result<Option<()>, LeaderError> {
        let request = || format!("reading the election {}", self.path());
        within(&self.owner.client, budget, request, self.initialized()).await
    }

    fn path_text(&self) -> curator_framework::PathText {
        self.owner.client.path_text(self.path())
    }

    /// Returns the present state.
    #[must_use]
    pub fn state(&self) -> ObserverState {
        self.owner.observed.newest()
    }

    /// Returns the election's path.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.owner.path
    }

    /// Returns the newest leader that the observer knows, even if a read is [refused](ObserverState::Refused) now; `None`
    /// in every other [state](ObserverState).
    #[must_use]
    pub fn leader(&self) -> Option<Leader> {
        self.owner.observed.newest().leader().cloned()
    }

    /// Returns the newest state as a channel. It may skip states; [`changes`](Self::changes) does not.
    #[must_use]
    pub fn watch(&self) -> watch::Receiver<ObserverState> {
        self.owner.observed.watch()
    }

    /// Returns the changes from now on, as a bounded stream. Read the present [`state`](Self::state) after this call,
    /// so that no change is missed; the stream may repeat it.
    pub fn changes(&self) -> Changes<Change<ObserverState>> {
        self.owner.observed.changes()
    }

    /// Ends the observer, its streams of changes and its watches. Resolves within the client's
    /// [`max_close_wait`](curator_framework::CuratorFrameworkBuilder::max_close_wait). Closing twice is fine.
    ///
    /// # Cancel safety
    ///
    /// The closing continues when the future is dropped.
    pub async fn close(&self) {
        self.owner.task.close(&self.owner.client).await;
        // Without a start no task publishes the last state.
        self.owner.observed.end(ObserverState::Closed);
    }
}

/// Returns the queue of an election, without a handle that keeps the client.
fn internals(client: &CuratorFramework, path: &str) -> Result<LockInternals, LeaderError> {
    // Latches and selectors: an election has the nodes of one of them.
    let spec = LockSpec { extra_lock_patterns: vec![LOCK_NAME.into()], ..LockSpec::queue(LATCH_NAME) };
    LockInternals::new(client.weak_clone(), path.to_owned(), spec, LockOptions::new()).map_err(LeaderError::of_path)
}

impl fmt::Debug for LeaderObserver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeaderObserver")
            .field("path", &self.path())
            .field("observed", &self.owner.observed.newest())
            .finish_non_exhaustive()
    }
}

/// The result of one read, and the watches that fire when it changes.
struct Look {
    observed: ObserverState,
    /// The leader is older than the highest term, so it is about to write the number of its own.
    is_early: bool,
    watches: Vec<Watch>,
}

impl Look {
    fn without_leader(watch: Watch) -> Self {
        Self { observed: ObserverState::NoLeader, is_early: false, watches: vec![watch] }
    }
}

/// Publishes the last state, however the task ends.
struct Ending(Arc<Published<ObserverState>>);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.end(ObserverState::Closed);
    }
}

async fn run(internals: LockInternals, ending: Ending, mut stop: Stop) {
    let mut observing = Observing {
        internals: &internals,
        published: &ending.0,
        pauses: Pauses::default(),
        caught_up: CaughtUp::default(),
        shown: Zxid::new(0),
        known: None,
    };
    tokio::select! {
        biased;
        () = stop.requested() => {}
        () = work_in_sessions(internals.client(), &mut observing) => {}
    }
}

/// The work of the observer.
struct Observing<'a> {
    internals: &'a LockInternals,
    published: &'a Published<ObserverState>,
    pauses: Pauses,
    caught_up: CaughtUp,
    /// The highest term that was published.
    shown: Zxid,
    /// The state that a failed read has left.
    known: Option<ObserverState>,
}

impl InSessions for Observing<'_> {
    type Error = Error;

    async fn work_in(&mut self, session: &Session) -> Result<(), Error> {
        let mut known = self.published.newest();
        let looked = self.look_in(session, &mut known).await;
        self.known = looked.is_err().then_some(known);
        let Look { observed, is_early, watches } = looked?;
        self.pauses = Pauses::default();
        let mut changed = futures_util::future::select_all(watches);
        // Java's leaders write no number, so the wait for it has an end. A candidate that cannot write it for so
        // long has lost its session, though a restart of the servers may have kept the node.
        if is_early && timeout(session.timeout() * 4, &mut changed).await.is_ok() {
            return Ok(());
        }
        self.shown = observed.leader().map_or(self.shown, |leader| leader.token.czxid().max(self.shown));
        self.publish(observed);
        changed.await;
        Ok(())
    }

    fn pauses(&mut self) -> &mut Pauses {
        &mut self.pauses
    }

    fn failed(&mut self, error: Error, may_pass: bool, _pause: Duration) {
        let known = self.known.take().unwrap_or_else(|| self.published.newest());
        if !may_pass {
            tracing::warn!(error = %Chain(&error), path = self.internals.base_path(), "an election cannot be observed");
            self.publish(known.refused(error.into()));
        }
    }
}

impl Observing<'_> {
    fn publish(&self, state: ObserverState) {
        if !state.is_same(&self.published.newest()) {
            self.published.publish(state);
        }
    }

    /// Reads in one session. Its first read follows a `sync`: a new session may be on a server that lags behind.
    async fn look_in(&mut self, session: &Session, known: &mut ObserverState) -> Result<Look, Error> {
        self.caught_up.catch_up(session, self.internals.base_path()).await?;
        loop {
            if let Some(look) = look(self.internals, session, known, self.shown).await? {
                return Ok(look);
            }
        }
    }
}

/// Returns `None` if the election changes in the meantime. A listing without the known leader resets `known`.
async fn look(
    internals: &LockInternals,
    session: &Session,
    known: &mut ObserverState,
    shown: Zxid,
) -> Result<Option<Look>, Error> {
    let path = internals.base_path();
    let children = match session.get_children(path).await {
        Ok(children) => children,
        Err(Error::NoNode { .. }) => {
            *known = ObserverState::Loading;
            let (stat, created) = session.exists_watched(path).await?;
            return Ok(stat.is_none().then(|| Look::without_leader(created)));
        }
        Err(error) => return Err(error),
    };
    let queue = internals.in_order(session, children).await?;
    if known.leader().is_some_and(|leader| queue.position(node_from_path(&leader.path)).is_none()) {
        *known = ObserverState::Loading;
    }
    // The watches on persistent nodes ahead of all candidates.
    let mut persistent = Vec::new();
    for name in queue.names() {
        let node_path = make_path(path, name);
        let both = futures_util::future::join(session.get_data_watched(&node_path), session.get_data_watched(path));
        let (node, record) = match session.in_one_write(both).await {
            (Err(Error::NoNode { .. }), _) | (_, Err(Error::NoNode { .. })) => return Ok(None),
            (node, record) => (node?, record?),
        };
        let Some(owner) = owning_session(node.stat.ephemeral_owner) else {
            persistent.push((lock_name_of(name), node.watch));
            continue;
        };
        // A candidate waits only for the nodes with its own recipe's name.
        persistent.retain(|(lock_name, _)| *lock_name == lock_name_of(name));
        if !persistent.is_empty() {
            let watches = persistent.into_iter().map(|(_, watch)| watch).chain([node.watch]).collect();
            return Ok(Some(Look { observed: ObserverState::NoLeader, is_early: false, watches }));
        }
        let found = Found::new(&record.data, record.stat);
        let leader = leader(internals, node_path, (node.data, node.stat, owner), &found, known);
        // The transaction that emptied the record bounds its term, but does not show that a claim is due.
        let highest = Zxid::new(found.highest_term());
        let bound = if found.record.is_some() { highest } else { highest.min(shown) };
        return Ok(Some(Look {
            is_early: leader.token.czxid() < bound,
            observed: ObserverState::Leader(leader),
            watches: vec![node.watch, record.watch],
        }));
    }
    let (children, watch) = match session.get_children_watched(path).await {
        Err(Error::NoNode { .. }) => return Ok(None),
        read => read?,
    };
    let is_same = internals.in_order(session, children).await? == queue;
    Ok(is_same.then(|| Look::without_leader(watch)))
}

/// Returns the name of the recipe that orders a node.
fn lock_name_of(name: &str) -> &'static str {
    if standard_sequence(name, LATCH_NAME).is_some() { LATCH_NAME } else { LOCK_NAME }
}

/// Returns the leader from its node and the data of the path.
fn leader(
    internals: &LockInternals,
    path: String,
    (data, stat, session): (Vec<u8>, Stat, SessionId),
    found: &Found,
    known: &ObserverState,
) -> Leader {
    let id = internals.client().from_stored(&path, data.clone(), None).unwrap_or(data);
    let created = Duration::from_millis(u64::try_from(stat.ctime).unwrap_or_default());
    let (token, data) = match (found.record_by(node_from_path(&path)), known.leader()) {
        (Some(record), _) => (FencingToken::of_node(record.term(&found.stat)), record.data.clone()),
        // In a hand-over, the candidate writes its record while the leader still leads.
        (None, Some(known)) if known.path == path => {
            (known.token, known.data.clone().filter(|_| found.record.is_some()))
        }
        (None, _) => (FencingToken::of_node(stat.czxid), None),
    };
    Leader {
        id: String::from_utf8_lossy(&id).into_owned(),
        token,
        session,
        created: SystemTime::UNIX_EPOCH + created,
        data,
        path,
    }
}
