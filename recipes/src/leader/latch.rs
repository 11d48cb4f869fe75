//! The leader latch.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use curator_framework::recipe::{Budget, Listeners, RecipeClient as _};
use curator_framework::{Changes, CuratorFramework, ListenerId, make_path};
use tokio::sync::watch;

use crate::engine::LockInternals;
use crate::engine::candidacy::{Candidacy, Place};
use crate::engine::hold::Release;
use crate::engine::participants::{Participant, ParticipantKind};
use crate::leader::candidate::{Candidate, latch_internals};
use crate::leader::error::LeaderError;
use crate::leader::observer::LeaderObserver;
use crate::leader::options::{CloseMode, LeaderLatchOptions};
use crate::leader::state::{LeaderState, Orders, Shared};
use crate::leader::term::Leadership;
use crate::standing::changes::{Change, Published};
use crate::standing::{StandingTask, first_found};

/// One candidate of an election: Curator's `LeaderLatch`. It leads once it is first in the queue, until it resigns, is
/// closed, or loses its node.
///
/// Of all started latches on a path at most one leads, but for the [losses](#losing-the-leadership) that a leader
/// notices late. A latch joins in the background, and joins again after each
/// term. It reports the leadership to any number of tasks, while a [`LeaderSelector`](crate::LeaderSelector) runs the
/// work of the leader. [Clones](crate#handles) are cheap, and all clones are one latch. The drop of the last one closes
/// it.
///
/// # Losing the leadership
///
/// | event | leadership |
/// | --- | --- |
/// | the connection is lost, and a server is back before the session's deadline | is kept |
/// | the deadline passes: silent network, frozen server, server cut off from its leader | ends before another candidate can lead |
/// | the node is deleted | ends after one event and at most three requests, or at the reconnect |
/// | one transaction deletes this node and the leader's node ahead of it | may begin, and ends with the next event |
/// | the session is killed on the server | ends with the first event, reconnect or heartbeat |
/// | the machine was asleep | ends when it wakes; another candidate may lead by then |
/// | process paused between a check and its write, server data restored from a backup | ends too late, or never: use the [fencing token](Leadership::token) |
///
/// The deadline is three quarters of the session timeout after the newest proof that the session lives. Curator gives
/// the leadership up with each lost connection. A client with the policy
/// [`StandardConnectionStateErrorPolicy`](curator_framework::StandardConnectionStateErrorPolicy) does so too. Its latch
/// keeps the node, as Curator's does, and leads again once a server confirms it: a term with the same number.
///
/// # The work of a leader that resigns
///
/// [`resign`](Self::resign), [`resign_to_timeout`](Self::resign_to_timeout), [`abstain`](Self::abstain), [`close`](Self::close) and the
/// end of [`eligible`](LeaderLatchOptions::eligible) end the term. They drop the work in [`Leadership::protect`], then
/// delete the node. Work that blocks its thread delays that by up to a tenth of the session timeout. End all other work
/// before, such as the work of listeners.
///
/// # Examples
///
/// ```
/// # async fn index() {}
/// # #[tokio::main]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = curator_test::TestingServer::start()?;
/// # let retry = curator_framework::RetryOneTime::new(std::time::Duration::from_millis(50));
/// # let client = curator_framework::CuratorFramework::new_client(server.connect_string(), retry)?;
/// # client.start()?;
/// use curator_recipes::{LeaderLatch, LeaderLatchOptions};
///
/// let latch = LeaderLatch::with_options(client, "/leaders/indexer", LeaderLatchOptions::new().id("host-7"))?;
/// latch.start()?;
/// loop {
///     let leadership = latch.leading().await?;
///     match leadership.protect(index()).await {
///         Ok(()) => break,
///         Err(lost) => println!("{lost}"), // the latch has joined again
///     }
/// }
/// latch.close().await;
/// # Ok(())
/// # }
/// ```
///
/// # Differences from Curator
///
/// * A lost connection does not end the term; the session's deadline does.
/// * A deleted node ends the term. In Curator both latches lead from then on.
/// * A latch never leads with a node of an earlier session. Curator 5.4 to 5.6 does after an outage, and two latches
///   lead (CURATOR-696).
/// * A latch joins again after its node, or the path, is deleted. Curator's may never lead again (CURATOR-724).
/// * A refused create reaches [`leading`](Self::leading) as an error. Curator logs it, and `await` waits forever.
/// * A budget that ends in an outage is an error. In Curator `await` returns `false` then, and when the latch is
///   closed.
/// * [`close`](Self::close) may be called twice, and a latch may [resign](Self::resign) without it. In Curator a second
///   `close` throws.
/// * [`leader`](Self::leader) returns `None` without candidates. Curator returns a participant without an id.
/// * Listeners are called without a lock of the latch. In Curator they can deadlock with it.
/// * Each term has a [number](Leadership::token). Curator leaves that to the application.
/// * Curator has no [`resign_to_timeout`](Self::resign_to_timeout), [`abstain`](Self::abstain), [`observe`](Self::observe), proclaimed
///   data, eligibility, delay or position.
///
/// # ZooKeeper layout
///
/// `<path>/_c_<uuid>-latch-<number>`, ephemeral and sequential, as in Curator, with the id as data. Java's
/// `LeaderLatch` and this one share one queue. The data of the path itself is empty until a leader
/// [proclaims](Leadership::proclaim), [hands over](Self::resign_to_timeout), or has
/// [a delay](LeaderLatchOptions::delay_after_unclean_loss). Then it is one line of text (`election/1 term=… leader=…`)
/// with the proclaimed data after it. To call the candidate of a hand-over, its leader creates and deletes
/// `<candidate's node>-call` in one transaction, so no listing shows that node.
///
/// # Cost
///
/// | case | requests |
/// | --- | --- |
/// | join an empty queue | 3 in 2 round trips: create and listing, then a read of the path's data |
/// | join behind others | 3 in 2 round trips: create and listing, then a watch on the second candidate ahead |
/// | become the next one behind the leader | 5 in one round trip: watches on the leader's node, the candidate's node, the path's data and for a call, and a listing |
/// | the first other candidate joins, leaves or moves beside a leader without a watch on its own node | 1 more: that watch |
/// | wait for more than a tenth of the session timeout | 2 more, unless they are set: watches on the candidate's node and for a call |
/// | the path's data changes, for the next one behind the leader | 2: a read of the data and a listing |
/// | hand-off | 1: the delete, with no round trip of the next leader; its term's start removes 2 watches (Curator 5.4: 2, later 3) |
/// | hand-off if the leader has [proclaimed](Leadership::proclaim), or with a delay | 3: delete, then a read of the path's data and a listing in one round trip |
/// | [delay](LeaderLatchOptions::delay_after_unclean_loss), or an older node after a [hand-over](Self::resign_to_timeout) | 1 more: a transaction that writes the record |
/// | the delay is waited out | 2 more: a write that changes nothing, and a read of the candidate's node |
/// | [`resign_to_timeout`](Self::resign_to_timeout) | some 7 of the leader, 15 of the candidate, and 8 of the next one, which it overtakes |
/// | wait or lead | the session's heartbeat: a write each eighth of the timeout, one for all locks and elections |
/// | lost connection | none of its own, apart from the watches that the session sets again |
/// | [`leader`](Self::leader), [`participants`](Self::participants) | a listing, and one read for each candidate |
#[derive(Clone)]
pub struct LeaderLatch {
    owner: Arc<Owner>,
}

/// The state that all clones share. Its drop ends the task.
struct Owner {
    client: CuratorFramework,
    path: String,
    options: LeaderLatchOptions,
    internals: LockInternals,
    shared: Arc<Shared>,
    task: StandingTask,
}

impl LeaderLatch {
    /// Creates a latch at a path, without a request.
    ///
    /// # Errors
    ///
    /// `Error::InvalidPath`; `LeaderError::InvalidArgument` for the root.
    pub fn new(client: CuratorFramework, path: impl Into<String>) -> Result<Self, LeaderError> {
        Self::with_options(client, path, LeaderLatchOptions::new())
    }

    /// Creates a latch with options.
    ///
    /// # Errors
    ///
    /// * `Error::InvalidPath`: ZooKeeper does not allow this path.
    /// * `LeaderError::InvalidArgument`: the path is the root.
    pub fn with_options(
        client: CuratorFramework,
        path: impl Into<String>,
        options: LeaderLatchOptions,
    ) -> Result<Self, LeaderError> {
        let (path, candidacy) = (path.into(), Arc::new(Candidacy::new(options.delay.is_some())));
        let internals = latch_internals(client.clone(), &path, &options, &candidacy)?;
        let shared = Shared {
            state: Published::new(LeaderState::Latent),
            listeners: Listeners::default(),
            orders: watch::Sender::new(Orders { abstentions: 0, abstains: None, close_mode: options.close_mode }),
            candidacy,
        };
        let (shared, task) = (Arc::new(shared), StandingTask::new());
        Ok(Self { owner: Arc::new(Owner { client, path, options, internals, shared, task }) })
    }

    /// Joins the election in the background, now or when the client is connected.
    ///
    /// # Errors
    ///
    /// * `LeaderError::AlreadyStarted`: the latch runs.
    /// * `LeaderError::Closed`: create another latch.
    /// * `Error::NoRuntime`: call it in a tokio runtime.
    pub fn start(&self) -> Result<(), LeaderError> {
        let Owner { client, path, options, shared, task, .. } = &*self.owner;
        // Does not keep the client: its last clone ends the task.
        let client = client.weak_clone();
        let internals = latch_internals(client, path.as_str(), options, &shared.candidacy)?;
        let (shared, options) = (Arc::clone(shared), options.clone());
        let started = task.start(move |stop| {
            shared.state.publish(LeaderState::Waiting { position: None });
            Candidate::new(internals, shared, options, stop).run()
        });
        started.map_err(|error| LeaderError::of_start(error, self.path_text()))
    }

    /// Waits until this latch leads: Curator's `await`. Returns the leadership at once if it leads.
    ///
    /// # Errors
    ///
    /// * `LeaderError::NotStarted`: call [`start`](Self::start) first.
    /// * `LeaderError::Closed`: the latch or the client is closed, perhaps during the call.
    /// * The error of [`LeaderState::Failed`], such as `Error::NoAuth`, at once. The latch tries again with pauses, so
    ///   a later call may succeed.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped. The latch stays in the queue.
    #[doc(alias = "await")]
    pub async fn leading(&self) -> Result<Leadership, LeaderError> {
        let look = |state| match state {
            LeaderState::Leading(leadership) if leadership.is_held() => Some(Ok(leadership)),
            LeaderState::Leading(_) | LeaderState::Waiting { .. } | LeaderState::Abstaining => None,
            LeaderState::Latent => Some(Err(LeaderError::NotStarted { path: self.path_text() })),
            LeaderState::Failed(error) => Some(Err(error)),
            LeaderState::Closed => Some(Err(self.closed())),
        };
        first_found(self.watch(), look).await.unwrap_or_else(|| Err(self.closed()))
    }

    /// Waits like [`leading`](Self::leading) for at most `budget`: Curator's `await(timeout)`. Returns `Ok(None)` if
    /// the budget ends while the client is connected, and the latch is in the queue or abstains.
    ///
    /// # Errors
    ///
    /// * `LeaderError::NotStarted`: call [`start`](Self::start) first.
    /// * `LeaderError::Closed`: the latch or the client is closed, perhaps during the call.
    /// * `Error::ConnectionLoss`: the budget ended without a connection, or before the latch was in the queue.
    /// * The error of [`LeaderState::Failed`], such as `Error::NoAuth`, at once. The latch tries again with pauses, so
    ///   a later call may succeed.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped. The latch stays in the queue.
    #[doc(alias = "await")]
    #[doc(alias = "awaitLeadership")]
    pub async fn leading_timeout(&self, budget: Duration) -> Result<Option<Leadership>, LeaderError> {
        match Budget::of(budget).limit(self.leading()).await {
            Some(led) => led.map(Some),
            None => match self.state() {
                LeaderState::Waiting { position: Some(_) } | LeaderState::Abstaining
                    if self.owner.client.is_connected() =>
                {
                    Ok(None)
                }
                LeaderState::Leading(leadership) => Ok(Some(leadership)),
                LeaderState::Failed(error) => Err(error),
                LeaderState::Closed => Err(self.closed()),
                _ => Err(self.owner.client.no_answer(&format!("joining the election {}", self.path())).into()),
            },
        }
    }

    /// Returns the present term, if this latch leads.
    #[must_use]
    pub fn leadership(&self) -> Option<Leadership> {
        self.owner.shared.state.newest().leadership().cloned()
    }

    /// Returns whether this latch certainly leads now, without a request: Curator's `hasLeadership`.
    #[must_use]
    pub fn has_leadership(&self) -> bool {
        self.leadership().is_some()
    }

    /// Returns the state: Curator's `getState`, with more states.
    #[must_use]
    pub fn state(&self) -> LeaderState {
        self.owner.shared.state.newest().now()
    }

    /// Returns the state as a channel. It may skip states; [`changes`](Self::changes) does not.
    #[must_use]
    pub fn watch(&self) -> watch::Receiver<LeaderState> {
        self.owner.shared.state.watch()
    }

    /// Returns the changes of the state from now on, as a bounded stream. Read the present [`state`](Self::state) after
    /// this call, so that no change is missed; the stream may repeat it.
    pub fn changes(&self) -> Changes<Change<LeaderState>> {
        self.owner.shared.state.changes()
    }

    /// Adds a listener: Curator's `addListener`. It is called with [`Leading`](LeaderState::Leading) when a term
    /// starts: Curator's `isLeader`. It is called with the next state when the term has ended, by a loss, by a
    /// resignation, or by a close with [`NotifyLeader`](CloseMode::NotifyLeader): Curator's `notLeader`. The drop of
    /// the latch calls no listener.
    ///
    /// Each listener has a thread apart from the runtime's, with one call at a time, in order. It may block, panic, and
    /// call the latch. A call may come late: to stop work at the end of a term, use [`Leadership::protect`] or
    /// [`Leadership::ended`].
    ///
    /// ```
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = curator_test::TestingServer::start()?;
    /// # let retry = curator_framework::RetryOneTime::new(std::time::Duration::from_millis(50));
    /// # let client = curator_framework::CuratorFramework::new_client(server.connect_string(), retry)?;
    /// # client.start()?;
    /// use curator_recipes::{LeaderLatch, LeaderState};
    ///
    /// let latch = LeaderLatch::new(client, "/leaders/indexer")?;
    /// // Before the start, so that no call is missed.
    /// latch.add_listener(|state| match state {
    ///     LeaderState::Leading(_) => println!("on"),
    ///     _ => println!("off"),
    /// });
    /// latch.start()?;
    /// # latch.leading().await?;
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "LeaderLatchListener")]
    #[doc(alias = "isLeader")]
    #[doc(alias = "notLeader")]
    pub fn add_listener(&self, listener: impl Fn(&LeaderState) + Send + Sync + 'static) -> ListenerId {
        self.owner.shared.listeners.add(Arc::new(listener))
    }

    /// Removes a listener. A call that is already queued may still reach it.
    pub fn remove_listener(&self, id: ListenerId) {
        self.owner.shared.listeners.remove(id);
    }

    /// Returns the id.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.owner.options.id
    }

    /// Returns the election's path.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.owner.path
    }

    /// Returns the path of the latch's node, once a listing has shown it: Curator's `getOurPath`.
    #[must_use]
    pub fn our_path(&self) -> Option<String> {
        let place: Option<Place> = self.owner.shared.candidacy.place().borrow().clone();
        place.map(|place| make_path(&self.owner.path, &place.own))
    }

    /// Returns the leader as the server lists it. Costs a listing and one read for each candidate. An
    /// [observer](Self::observe) costs less.
    ///
    /// `None`, for which Curator returns a participant without an id: the election has no candidates, or a persistent node
    /// with a candidate's name blocks them.
    ///
    /// # Errors
    ///
    /// * `Error::ConnectionLoss`, `Error::SessionExpired`: the retry policy gave up. Call again.
    /// * `Error::NoAuth`: the ACL forbids reading.
    /// * `Error::NotStarted`, `Error::Closed`: the client does not run.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    pub async fn leader(&self) -> Result<Option<Participant>, LeaderError> {
        Ok(self.participants().await?.into_iter().find(|candidate| candidate.holds))
    }

    /// Returns the candidates in order, the leader first: Curator's `getParticipants`. While a persistent node with a
    /// candidate's name is ahead of them, no candidate leads, and the first one has that node in
    /// [`blocked_by`](Participant::blocked_by).
    ///
    /// # Errors
    ///
    /// `Error::NotStarted`, `Error::Closed`: the client does not run. `Error::NoAuth` if the ACL forbids reading;
    /// `Error::ConnectionLoss`, `Error::SessionExpired`: call again. `Error::ReplyTooLarge`:
    /// the listing is above the client's limit.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    pub async fn participants(&self) -> Result<Vec<Participant>, LeaderError> {
        candidates(&self.owner.internals).await
    }

    /// Ends the term of a leading latch and deletes its node. The latch joins again at the back of the queue. Returns
    /// `None` if the latch did not lead, and `AlreadyLost` if the node was deleted before.
    ///
    /// # Errors
    ///
    /// * `Error::ConnectionLoss`: no server has confirmed the deletion of the node within the client's
    ///   [`max_close_wait`](curator_framework::CuratorFrameworkBuilder::max_close_wait), 5 s by default, or before the
    ///   retry policy gave up. The term has ended, and the session deletes the node in the background.
    /// * `LeaderError::Closed`: the latch's runtime has ended.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, the term has ended, and the latch continues to delete the node.
    pub async fn resign(&self) -> Result<Option<Release>, LeaderError> {
        let Some(leadership) = self.leadership() else { return Ok(None) };
        leadership.term_of().resigned().await.map(Some)
    }

    /// Leaves the queue for this time: a leader resigns. Then the latch joins again at the back. So after a term that
    /// has failed, another candidate can try. A later call replaces the end of the time.
    pub fn abstain(&self, time: Duration) {
        self.owner.shared.orders.send_modify(|orders| {
            orders.abstentions += 1;
            orders.abstains = Some(Budget::of(time));
        });
    }

    /// Hands the leadership over to another candidate, ahead of all waiters. Returns `Some` once this latch has
    /// resigned for it, with the outcome of [`resign`](Self::resign). Returns `None` if the latch does not lead, the
    /// candidate has left, or the budget has ended. A leader then keeps leading.
    ///
    /// The budget counts from the call. It covers the wait for an earlier hand-over or proclamation of this latch, and
    /// the wait for the candidate. The leader's own writes are limited only by the retry policy. The candidate must be
    /// a latch of this crate over the default client. Other latches, such as Java's, ignore the wish, so the budget
    /// ends. A candidate notices the wish at once, or within a fifth of the session timeout if it has just joined.
    ///
    /// Each candidate must be able to read the election's path as long as it is in the queue. Servers with the fix of
    /// CVE-2024-23944 send no events of a path that a client may not read. If the next candidate lost that permission while
    /// it waited, it would not hear of the move, and lead beside the chosen one.
    ///
    /// # Errors
    ///
    /// * `LeaderError::LeadershipLost`: the term has ended before the candidate had moved.
    /// * `LeaderError::ForeignData`: another program has written the path's data, so the wish cannot be recorded there.
    /// * `LeaderError::InvalidArgument`: the participant is this latch itself or not a latch of this path; or the
    ///   sequence numbers of the path are near their end.
    /// * `Error::Unsupported`: the client is `zookeeper-async`, which has no transactions.
    /// * `Error::NoAuth`, or `Error::Transaction` with that cause: the ACL forbids reading or writing the path, or
    ///   creating and deleting nodes there.
    /// * `Error::ConnectionLoss`: the latch keeps leading, but the wish may be recorded. Call again.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, the latch keeps leading. The candidate may be the next in the queue.
    pub async fn resign_to_timeout(
        &self,
        candidate: &Participant,
        budget: Duration,
    ) -> Result<Option<Release>, LeaderError> {
        let Some(leadership) = self.leadership() else { return Ok(None) };
        leadership.term_of().hand_over(candidate, budget).await
    }

    /// Returns a started observer of this election, which has its own task. It may outlive the latch, and keeps the client
    /// open.
    ///
    /// # Errors
    ///
    /// `Error::NoRuntime`: call it in a tokio runtime.
    pub fn observe(&self) -> Result<LeaderObserver, LeaderError> {
        let observer = LeaderObserver::new(self.owner.client.clone(), self.path())?;
        observer.start()?;
        Ok(observer)
    }

    /// Closes the latch: a leader's term ends, the node is deleted, the streams of changes end. Resolves when the node is
    /// deleted, or after the client's [`max_close_wait`](curator_framework::CuratorFrameworkBuilder::max_close_wait), 5 s
    /// by default: then the session deletes it in the background. Closing twice is fine.
    ///
    /// # Cancel safety
    ///
    /// The closing continues when the future is dropped.
    pub async fn close(&self) {
        self.close_with(self.owner.options.close_mode).await;
    }

    /// Closes the latch like [`close`](Self::close), with another mode than its options have.
    ///
    /// # Cancel safety
    ///
    /// The closing continues when the future is dropped.
    pub async fn close_with(&self, mode: CloseMode) {
        let Owner { client, shared, task, .. } = &*self.owner;
        shared.orders.send_modify(|orders| orders.close_mode = mode);
        task.close(client).await;
        // A latch that was never started has no task to publish its end.
        shared.state.end(LeaderState::Closed);
        shared.listeners.close();
    }

    fn path_text(&self) -> curator_framework::PathText {
        self.owner.client.path_text(self.path())
    }

    fn closed(&self) -> LeaderError {
        LeaderError::Closed { path: self.path_text() }
    }
}

/// Reads the candidates of a queue, in order.
pub(super) async fn candidates(internals: &LockInternals) -> Result<Vec<Participant>, LeaderError> {
    let holds = |sorted: &_, name: &str| internals.is_granted(sorted, name);
    Ok(internals.participants(|_| Some(ParticipantKind::Candidate), holds).await?)
}

impl fmt::Debug for LeaderLatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeaderLatch")
            .field("path", &self.path())
            .field("id", &self.id())
            .field("state", &self.state())
            .finish_non_exhaustive()
    }
}
