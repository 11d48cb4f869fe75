//! The leader selector.
//!
//! A selector has no standing task. Its work runs in the future of the caller, so it needs neither `Send` nor
//! `'static`. The drop of that future drops the work first, and then has the node deleted.

use std::fmt;
use std::future::Future;
use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

use curator_framework::recipe::RecipeClient as _;
use curator_framework::{Changes, CuratorFramework, Error, LossReason};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::sleep;

use crate::engine::caller::Caller;
use crate::engine::driver::LOCK_NAME;
use crate::engine::hold::HoldShare;
use crate::engine::options::LockOptions;
use crate::engine::participants::Participant;
use crate::engine::while_held::while_held;
use crate::engine::{LockInternals, LockSpec, WaitMode, acquire};
use crate::leader::error::{LeaderError, TermEnd};
use crate::leader::latch::candidates;
use crate::leader::observer::LeaderObserver;
use crate::leader::options::LeaderSelectorOptions;
use crate::leader::state::LeaderState;
use crate::leader::term::{Leadership, Term};
use crate::standing::Pauses;
use crate::standing::changes::{Change, Published};
use crate::standing::runs::{Polls, Run, Runs, until};

/// The end of one term of a [`LeaderSelector`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "it says whether the work was done: a loss of the leadership drops it"]
pub enum TermOutcome<T> {
    /// The work was done, and the leadership held until then.
    Done(T),
    /// The leadership was lost. The unfinished work was dropped, or its last step ended after the loss.
    Lost(LossReason),
    /// [`interrupt_leadership`](LeaderSelector::interrupt_leadership) or [`close`](LeaderSelector::close) has dropped
    /// the unfinished work.
    Interrupted,
}

/// Runs work while it leads: Curator's `LeaderSelector`.
///
/// The work is a future that gets the [`Leadership`]. The selector drops it at the session's deadline, before another
/// candidate can lead, and deletes its node only after that. Work that blocks its thread is dropped when it yields.
/// Work that continues after the drop of its future is listed at [`LockGuard::protect`](crate::LockGuard::protect).
///
/// All clones are one selector, with one run at a time. Dropping the future of a run leaves the
/// queue.
///
/// | Curator | here |
/// | --- | --- |
/// | `autoRequeue()`, `start()` | [`run`](Self::run), in a task of the caller |
/// | `start()` | [`run_once`](Self::run_once) |
/// | `requeue()` | another [`run_once`](Self::run_once) |
/// | `CancelLeadershipException` in a listener | not needed: a loss drops the work |
/// | no state | [`state`](Self::state), [`watch`](Self::watch), [`changes`](Self::changes) |
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
/// use curator_recipes::{LeaderSelector, TermOutcome};
///
/// let selector = LeaderSelector::new(client, "/leaders/indexer")?;
/// let outcome = selector
///     .run_once(async |leadership| {
///         println!("term {}", leadership.token());
///         index().await
///     })
///     .await?;
/// assert_eq!(outcome, TermOutcome::Done(()));
/// # Ok(())
/// # }
/// ```
///
/// # Losing the leadership
///
/// The table at [`LeaderLatch`](crate::LeaderLatch#losing-the-leadership) holds for selectors too. With the policy
/// named there a lost connection drops the work, and the selector joins again at the back.
///
/// # Differences from Curator
///
/// * A lost connection does not end the term; the session's deadline does.
/// * The end of a term drops the work. Curator interrupts its thread, which may continue.
/// * An error that waiting cannot fix is returned. Curator keeps it in a private `Future`, and with `autoRequeue` tries
///   again without a pause.
/// * An `Err` of the work delays the next term.
/// * The caller runs the selector. Curator has an executor.
/// * The [term's number](Leadership::token) and the [node's path](Leadership::node_path) are there for fencing.
/// * [`leader`](Self::leader) returns `None` without candidates. Curator returns a participant without an id.
///
/// # ZooKeeper layout
///
/// `<path>/_c_<uuid>-lock-<number>`, ephemeral and sequential, as in Curator, with the id as data; without an id, the
/// client's default data. Java's `LeaderSelector` and an [`InterProcessMutex`](crate::InterProcessMutex) at the path
/// share the queue. The data of the path itself is empty until a leader [proclaims](Leadership::proclaim).
///
/// # Cost
///
/// The requests of a [mutex](crate::InterProcessMutex#cost): 3 in 2 round trips for a term without other candidates.
#[derive(Clone)]
pub struct LeaderSelector {
    inner: Arc<Inner>,
}

struct Inner {
    internals: LockInternals,
    id: String,
    back_off: (Duration, Duration),
    /// The term that this selector leads.
    current: Mutex<Option<Arc<Term>>>,
    state: Published<LeaderState>,
    runs: Runs,
    /// The polls of the work of the present term.
    polls: Polls,
}

/// A run with its states. Its drop publishes the end of the run.
struct Running<'a> {
    inner: &'a Inner,
    _run: Run<'a>,
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        let Inner { state, runs, .. } = self.inner;
        match runs.is_closed() {
            true => drop(state.end(LeaderState::Closed)),
            false => state.publish(LeaderState::Latent),
        }
    }
}

impl Running<'_> {
    /// Publishes an error that the run returns.
    fn failed(&self, error: LeaderError) -> LeaderError {
        if !matches!(error, LeaderError::Closed { .. }) {
            self.inner.state.publish(LeaderState::Failed(error.clone()));
        }
        error
    }
}

/// The selector's hold on a term. Its drop ends the term.
struct Tenure<'a> {
    inner: &'a Inner,
    term: Arc<Term>,
}

impl Drop for Tenure<'_> {
    fn drop(&mut self) {
        self.inner.current.lock().take();
        self.term.abandon();
    }
}

impl LeaderSelector {
    /// Creates a selector at a path, without a request.
    ///
    /// # Errors
    ///
    /// `Error::InvalidPath`; `LeaderError::InvalidArgument` for the root.
    pub fn new(client: CuratorFramework, path: impl Into<String>) -> Result<Self, LeaderError> {
        Self::with_options(client, path, LeaderSelectorOptions::new())
    }

    /// Creates a selector with options.
    ///
    /// # Errors
    ///
    /// * `Error::InvalidPath`: ZooKeeper does not allow this path.
    /// * `LeaderError::InvalidArgument`: the path is the root.
    pub fn with_options(
        client: CuratorFramework,
        path: impl Into<String>,
        options: LeaderSelectorOptions,
    ) -> Result<Self, LeaderError> {
        let LeaderSelectorOptions { id, acl, name, back_off } = options;
        let mut lock = LockOptions { acl, name: name.map(Into::into), ..LockOptions::new() };
        if !id.is_empty() {
            lock = lock.data(id.as_bytes());
        }
        let spec = LockSpec { recipe: "leader_selector", has_places: false, ..LockSpec::queue(LOCK_NAME) };
        let internals = LockInternals::new(client, path.into(), spec, lock).map_err(LeaderError::of_path)?;
        let (current, runs, polls) = (Mutex::new(None), Runs::default(), Polls::default());
        let state = Published::new(LeaderState::Latent);
        Ok(Self { inner: Arc::new(Inner { internals, id, back_off, current, state, runs, polls }) })
    }

    /// Waits for the leadership, runs `work` for one term, and resigns.
    ///
    /// # Errors
    ///
    /// * `LeaderError::AlreadyStarted`: another run of this selector has not ended.
    /// * `LeaderError::Closed`: the selector is closed, perhaps during the call.
    /// * `Error::ConnectionLoss`, `Error::SessionExpired`: the retry policy gave up before the term. Call again.
    /// * `Error::NoAuth` and other errors that waiting cannot fix.
    /// * `Error::NotStarted`, `Error::Closed`: the client does not run.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, the work is dropped, then the session deletes the node in the background.
    #[doc(alias = "requeue")]
    pub async fn run_once<T, F>(&self, work: impl FnOnce(Leadership) -> F) -> Result<TermOutcome<T>, LeaderError>
    where
        F: Future<Output = T>,
    {
        let run = self.begin()?;
        self.one_term(&run, work).await.map_err(|error| run.failed(error))
    }

    /// Leads again and again: Curator's `autoRequeue`. Waits for the leadership, runs `work` for one term, resigns, and
    /// joins again at the back of the queue.
    ///
    /// An `Err` of `work` is logged. The selector then joins again after a [pause](LeaderSelectorOptions::back_off),
    /// which grows until a term succeeds. Returns `Ok` after [`close`](Self::close). A program that ends by a signal or
    /// another event uses [`run_until`](Self::run_until). A `select!` of this future and that event drops the run, and
    /// nothing waits for the deletion of the node.
    ///
    /// The run calls `work` for each term, so an async closure borrows its state: an `async move` closure with state does
    /// not compile here. State that changes needs a lock, an atomic or a channel.
    ///
    /// # Examples
    ///
    /// A task that owns the state. The end of the block names the type of the error, for `?`:
    ///
    /// ```
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = curator_test::TestingServer::start()?;
    /// # let retry = curator_framework::RetryOneTime::new(std::time::Duration::from_millis(50));
    /// # let client = curator_framework::CuratorFramework::new_client(server.connect_string(), retry)?;
    /// # client.start()?;
    /// use curator_recipes::{LeaderError, LeaderSelector};
    ///
    /// let selector = LeaderSelector::new(client, "/leaders/report")?;
    /// let (running, (begun, mut terms)) = (selector.clone(), tokio::sync::mpsc::unbounded_channel());
    /// let run = tokio::spawn(async move {
    ///     let work = running.run(async |leadership| {
    ///         leadership.verify().await?;
    ///         begun.send(leadership.token()).ok();
    ///         Ok::<(), LeaderError>(())
    ///     });
    ///     work.await
    /// });
    /// println!("term {:?}", terms.recv().await);
    /// selector.close().await;
    /// run.await??;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// * `LeaderError::AlreadyStarted`: another run of this selector has not ended.
    /// * `LeaderError::Closed`: the selector was closed before the call.
    /// * `Error::NoAuth` and other errors that waiting cannot fix.
    /// * `Error::NotStarted`, `Error::Closed`: the client does not run.
    ///
    /// An outage is not an error: the selector waits for its end. It also waits while the session cannot have another
    /// node (`Error::TooManyEphemeralNodes`).
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, the work is dropped, then the session deletes the node in the background.
    #[doc(alias = "autoRequeue")]
    #[doc(alias = "LeaderSelectorListener")]
    #[doc(alias = "takeLeadership")]
    pub async fn run<E, F>(&self, mut work: impl FnMut(Leadership) -> F) -> Result<(), LeaderError>
    where
        E: fmt::Display,
        F: Future<Output = Result<(), E>>,
    {
        let run = self.begin()?;
        let (first, longest) = self.inner.back_off;
        let (mut pauses, mut back_off) = (Pauses::default(), first);
        loop {
            let pause = match self.one_term(&run, &mut work).await {
                Ok(TermOutcome::Done(Err(error))) => {
                    let pause = back_off;
                    back_off = back_off.saturating_mul(2).min(longest);
                    tracing::warn!(%error, path = self.path(), pause_s = pause.as_secs_f64(), "a term has failed");
                    pause
                }
                Ok(TermOutcome::Done(Ok(()))) => {
                    (pauses, back_off) = (Pauses::default(), first);
                    Duration::ZERO
                }
                Ok(TermOutcome::Lost(_) | TermOutcome::Interrupted) => Duration::ZERO,
                Err(LeaderError::Closed { .. }) => return Ok(()),
                // Without its node a candidate joins again, though the policy has given up on that attempt. Or when nodes
                // of the session have gone.
                Err(LeaderError::Framework(error))
                    if error.is_retryable()
                        || matches!(error, Error::NoNode { .. } | Error::TooManyEphemeralNodes { .. }) =>
                {
                    pauses.after(true)
                }
                Err(error) => return Err(run.failed(error)),
            };
            if !pause.is_zero() {
                self.inner.state.publish(LeaderState::Abstaining);
            }
            tokio::select! {
                biased;
                () = self.inner.runs.closed() => return Ok(()),
                () = sleep(pause) => {}
            }
        }
    }

    /// Runs like [`run`](Self::run) until `shutdown` resolves, which closes the selector: the work of the present term
    /// is dropped, and its node is deleted. Then returns `Ok`.
    ///
    /// The output of `shutdown` is ignored, so `tokio::signal::ctrl_c()` and the receiver of a channel fit.
    ///
    /// # Errors
    ///
    /// * `LeaderError::AlreadyStarted`: another run of this selector has not ended.
    /// * `LeaderError::Closed`: the selector was closed before the call.
    /// * `Error::NoAuth` and other errors that waiting cannot fix.
    /// * `Error::NotStarted`, `Error::Closed`: the client does not run.
    ///
    /// An outage is not an error: the selector waits for its end. It also waits while the session cannot have another
    /// node (`Error::TooManyEphemeralNodes`).
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, the work is dropped, then the session deletes the node in the background.
    pub async fn run_until<E, F>(
        &self,
        shutdown: impl Future,
        work: impl FnMut(Leadership) -> F,
    ) -> Result<(), LeaderError>
    where
        E: fmt::Display,
        F: Future<Output = Result<(), E>>,
    {
        until(self.run(work), shutdown, || self.stop()).await
    }

    /// Starts a run. Two runs of one selector would be two candidates.
    fn begin(&self) -> Result<Running<'_>, LeaderError> {
        let begun = self.inner.runs.begin().map_err(|error| LeaderError::of_start(error, self.path_text()));
        Ok(Running { inner: &self.inner, _run: begun? })
    }

    async fn one_term<T, F>(
        &self,
        _run: &Running<'_>,
        work: impl FnOnce(Leadership) -> F,
    ) -> Result<TermOutcome<T>, LeaderError>
    where
        F: Future<Output = T>,
    {
        let Inner { internals, state, .. } = &*self.inner;
        state.publish(LeaderState::Waiting { position: None });
        let (client, path) = (internals.client(), internals.base_path());
        let granted = tokio::select! {
            biased;
            () = self.inner.runs.closed() => return Err(LeaderError::Closed { path: self.path_text() }),
            granted = acquire(client, path, WaitMode::Forever, internals) => granted?,
        };
        // Without a budget a grant is the only success.
        let Some(acquired) = granted else { return Err(Error::Closed.into()) };
        let number = acquired.fencing_token.czxid().get();
        let caller = Caller { owner: None, at: Location::caller() };
        let share = HoldShare::first(internals.hold(acquired, caller.origin()));
        let term = Term::new(share, number, path, client.weak_clone(), None);
        let tenure = Tenure { inner: &self.inner, term };
        *self.inner.current.lock() = Some(Arc::clone(&tenure.term));
        if self.inner.runs.is_closed() {
            tenure.term.resign();
        }
        let leadership = tenure.term.view();
        // The work is dropped with this future, before the node is deleted. It is not started after the end of the
        // term.
        let ended = match leadership.is_held() {
            true => {
                state.publish(LeaderState::Leading(leadership.clone()));
                let work = self.inner.polls.of(|| leadership.is_held(), work(leadership.clone()));
                while_held(|| leadership.is_held(), leadership.ended(), work).await
            }
            false => Err(None),
        };
        state.publish(LeaderState::Waiting { position: None });
        let end = match ended {
            Ok(Some(output)) => {
                // The last poll may have lasted longer than the term.
                if let Some(reason) = tenure.term.loss() {
                    return Ok(TermOutcome::Lost(reason));
                }
                // If that fails, the session deletes the node later.
                let _released = tenure.term.release().await;
                return Ok(TermOutcome::Done(output));
            }
            Err(Some(end)) => end,
            Ok(None) | Err(None) => tenure.term.end_or_passed(),
        };
        // After a deadline that has passed and was moved since, the work is dropped too: another candidate leads.
        if end == TermEnd::Resigned || tenure.term.loss().is_none() {
            let _released = tenure.term.release().await;
        }
        Ok(match end {
            TermEnd::Lost(reason) => TermOutcome::Lost(reason),
            TermEnd::Resigned => TermOutcome::Interrupted,
        })
    }

    /// Ends the present term: its work is dropped. [`run`](Self::run) joins again. Returns `false` if the selector does
    /// not lead.
    #[allow(clippy::must_use_candidate, reason = "a selector that does not lead needs no interrupt")]
    pub fn interrupt_leadership(&self) -> bool {
        let current = self.inner.current.lock().clone();
        let leads = current.filter(|term| term.is_held());
        leads.inspect(|term| term.resign()).is_some()
    }

    /// Returns whether this selector certainly leads now, without a request: Curator's `hasLeadership`.
    #[must_use]
    pub fn has_leadership(&self) -> bool {
        // Without the lock: the answer may log a loss, and the program's subscriber may call back.
        let current = self.inner.current.lock().clone();
        current.is_some_and(|term| term.is_held())
    }

    /// Returns the state, without a request. Between two runs it is [`Latent`](LeaderState::Latent).
    #[must_use]
    pub fn state(&self) -> LeaderState {
        self.inner.state.newest().now()
    }

    /// Returns the state as a channel. It may skip states; [`changes`](Self::changes) does not.
    #[must_use]
    pub fn watch(&self) -> watch::Receiver<LeaderState> {
        self.inner.state.watch()
    }

    /// Returns the changes of the state from now on, as a bounded stream. Read the present [`state`](Self::state) after
    /// this call, so that no change is missed; the stream may repeat it.
    pub fn changes(&self) -> Changes<Change<LeaderState>> {
        self.inner.state.changes()
    }

    /// Returns the id.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.inner.id
    }

    /// Returns the election's path.
    #[must_use]
    pub fn path(&self) -> &str {
        self.inner.internals.base_path()
    }

    /// Returns the leader as the server lists it. Costs a listing and one read for each candidate. An
    /// [observer](Self::observe) costs less.
    ///
    /// `None`: the election has no candidates, or a persistent node with a candidate's name blocks them.
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
        candidates(&self.inner.internals).await
    }

    /// Returns a started observer of this election, which has its own task. It may outlive the selector, and keeps the client
    /// open.
    ///
    /// # Errors
    ///
    /// `Error::NoRuntime`: call it in a tokio runtime.
    pub fn observe(&self) -> Result<LeaderObserver, LeaderError> {
        let observer = LeaderObserver::new(self.inner.internals.client().clone(), self.path())?;
        observer.start()?;
        Ok(observer)
    }

    /// Closes the selector: the run drops the work of its term and leaves the queue. Resolves when the run has ended, or
    /// after the client's [`max_close_wait`](curator_framework::CuratorFrameworkBuilder::max_close_wait), 5 s by default:
    /// then the session deletes the node of the term in the background. Closing twice is fine.
    ///
    /// Keep polling the run in the meantime, as [`run_until`](Self::run_until) does. A `select!` with a pinned run and
    /// a signal does not. The close then takes the full time, and a node that waits in the queue stays until the future
    /// of the run is dropped. The same holds for a `close` in the work itself. Work that blocks its thread keeps its
    /// node until it yields.
    ///
    /// # Cancel safety
    ///
    /// The closing continues when the future is dropped.
    pub async fn close(&self) {
        self.stop();
        let Inner { internals, runs, current, polls, state, .. } = &*self.inner;
        let client = internals.client();
        if !runs.ended_within(client, client.close_budget()).await {
            let current = current.lock().clone();
            current.inspect(|term| polls.unless_running(|| term.abandon()));
        }
        state.end(LeaderState::Closed);
    }

    /// Orders the run to end.
    fn stop(&self) {
        self.inner.runs.close();
        self.interrupt_leadership();
    }

    fn path_text(&self) -> curator_framework::PathText {
        self.inner.internals.client().path_text(self.path())
    }
}

impl fmt::Debug for LeaderSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeaderSelector")
            .field("path", &self.path())
            .field("id", &self.id())
            .field("has_leadership", &self.has_leadership())
            .finish_non_exhaustive()
    }
}
