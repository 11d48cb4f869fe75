//! The entries of a batch, and the node that they pass on.

use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use curator_framework::recipe::{LossSignal, RecipeClient as _};
use curator_framework::{Acl, Error, Session};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tracing::Instrument as _;

use crate::engine::acquire::{Log, attempts, no_end, span};
use crate::engine::acquired::Acquired;
use crate::engine::batch::driver;
use crate::engine::batch::plan::{Jobs, MOST_PASSES, Plan, Taken, Then, Ticket};
use crate::engine::error::LockError;
use crate::engine::internals::{LockInternals, Sharing};
use crate::engine::label::Label;
use crate::engine::metrics;
use crate::engine::wait_mode::{Contention, WaitMode};

/// The batch of one client at one lock.
pub(crate) struct Lobby {
    /// Without the client: an idle node does not keep it.
    pub(super) internals: LockInternals,
    pub(super) linger: Duration,
    state: Mutex<State>,
    /// Wakes the task when its jobs have changed.
    pub(super) changed: Notify,
    /// The entries' evidence of other contenders.
    pub(super) contention: Contention,
}

/// The batches of a client.
#[derive(Default)]
struct Lobbies(Mutex<HashMap<Key, Weak<Lobby>>>);

/// The options that objects of one batch have in common: the node shows them.
#[derive(PartialEq, Eq, Hash)]
struct Key {
    /// As the server knows it.
    path: Box<str>,
    /// A transaction of a guard has it.
    namespace: Box<str>,
    lock_name: &'static str,
    extra_lock_patterns: Vec<String>,
    linger: Duration,
    data: Option<Vec<u8>>,
    acl: Option<Vec<Acl>>,
}

type Node = Box<Acquired>;

struct State {
    plan: Plan<Node, Option<Waker>>,
    is_running: bool,
    /// The task looks from time to time whether an offer was taken.
    is_ticking: bool,
    /// The error of the last attempt that failed.
    failure: Option<LockError>,
    /// The node that was granted last.
    node: Option<GrantedNode>,
}

/// The facts of the granted node.
#[derive(Clone)]
pub(super) struct GrantedNode {
    pub(super) turn: u64,
    pub(super) name: Arc<str>,
    pub(super) session: Session,
    pub(super) signal: LossSignal,
}

impl GrantedNode {
    fn of(turn: u64, acquired: &Acquired) -> Self {
        let (session, signal) = (acquired.owned.session().clone(), acquired.owned.loss_signal());
        Self { turn, name: acquired.name().into(), session, signal }
    }

    fn is_lost(&self) -> bool {
        self.signal.loss().is_some() || !self.session.is_alive()
    }
}

/// The node of a batch, which one entry has.
pub(crate) struct Turn {
    lobby: Arc<Lobby>,
    number: u64,
    /// False once the node was passed on.
    has_node: bool,
}

impl Lobby {
    /// Returns the batch of a lock's client, if its tasks are to share a node.
    pub(crate) fn of(internals: &Arc<LockInternals>) -> Option<Arc<Self>> {
        let (spec, options) = (&internals.spec, &internals.options);
        if !options.one_node || spec.sharing == Sharing::Nothing {
            return None;
        }
        if options.revocation.is_some() || spec.sharing == Sharing::Object {
            return Some(Self::new(internals));
        }
        let key = Key {
            path: internals.client.path_text(&internals.base_path).full().into(),
            namespace: internals.client.namespace().into(),
            lock_name: spec.lock_name,
            extra_lock_patterns: spec.extra_lock_patterns.clone(),
            linger: options.linger,
            data: options.data.clone(),
            acl: options.acl.clone(),
        };
        let lobbies = internals.client.extension::<Lobbies>();
        let mut lobbies = lobbies.0.lock();
        if let Some(lobby) = lobbies.get(&key).and_then(Weak::upgrade) {
            return Some(lobby);
        }
        // Before each growth, so that the map is at most twice as large as needed.
        if lobbies.len() == lobbies.capacity() {
            lobbies.retain(|_, lobby| lobby.strong_count() > 0);
        }
        let lobby = Self::new(internals);
        lobbies.insert(key, Arc::downgrade(&lobby));
        Some(lobby)
    }

    fn new(internals: &Arc<LockInternals>) -> Arc<Self> {
        let (internals, linger) = (internals.without_client(), internals.options.linger);
        let plan = Plan::new(!linger.is_zero(), MOST_PASSES);
        Arc::new(Self {
            internals,
            linger,
            state: Mutex::new(State { plan, is_running: false, is_ticking: false, failure: None, node: None }),
            changed: Notify::new(),
            contention: Contention::default(),
        })
    }

    /// Acquires the lock, by the node of the batch.
    pub(crate) async fn acquire(
        self: &Arc<Self>,
        label: &Label,
        mode: WaitMode,
    ) -> Result<Option<Acquired>, LockError> {
        let span = span(self.internals.base_path(), label);
        // Boxed: the future of an acquire stays small wherever a caller keeps it.
        Box::pin(self.acquire_in_span(label, mode).instrument(span)).await
    }

    async fn acquire_in_span(self: &Arc<Self>, label: &Label, mode: WaitMode) -> Result<Option<Acquired>, LockError> {
        let (client, path) = (self.internals.client(), self.internals.base_path());
        let mut log = Log::new(path, label);
        let outcome = match mode {
            // Boxed: few waiters ask only once.
            WaitMode::Once => Box::pin(self.acquire_once()).await,
            _ if client.runtime().is_none() => Err(Error::NotStarted.into()),
            _ => {
                let entry = Entry { lobby: self, label, ticket: None };
                mode.bound(client, path, &self.contention, entry).await
            }
        };
        log.ends(outcome)
    }

    /// Takes an idle node, or refuses if the process knows that the lock is taken, or else asks with a node of its own.
    async fn acquire_once(self: &Arc<Self>) -> Result<Option<Acquired>, LockError> {
        let (client, path) = (self.internals.client(), self.internals.base_path());
        // As the primitives of tokio: a loop of calls that need not wait lets other tasks run.
        tokio::task::consume_budget().await;
        self.end_a_lost_turn();
        if self.plan(Plan::is_taken) && self.contention.is_known(client) {
            return Ok(None);
        }
        if let Some(idle) = self.take_idle() {
            return Ok(Some(idle));
        }
        let contention = Contention::default();
        let attempts = std::pin::pin!(attempts(client, WaitMode::Once, &contention, &self.internals));
        let acquired = WaitMode::Once.bound(client, path, &contention, attempts).await?.flatten();
        Ok(acquired.map(|acquired| self.held(acquired)))
    }

    fn take_idle(self: &Arc<Self>) -> Option<Acquired> {
        let taken = self.step(|plan| {
            if plan.jobs().idle.is_none() {
                return (None, Then::default());
            }
            // The caller takes it, so it need not be woken.
            let (ticket, _offered) = plan.enter(None);
            let taken = plan.take(ticket);
            let then = if taken.is_none() { plan.leave(ticket) } else { Then::default() };
            (taken, then)
        });
        Some(self.granted(taken?))
    }

    /// Begins a turn with a node that was granted to one entry alone, unless there is a turn.
    fn held(self: &Arc<Self>, acquired: Acquired) -> Acquired {
        let mut state = self.state.lock();
        let Some(number) = state.plan.is_held() else { return acquired };
        state.node = Some(GrantedNode::of(number, &acquired));
        drop(state);
        self.contention.is_shown();
        self.ensure_running();
        self.changed.notify_one();
        Acquired { turn: Some(Turn { lobby: Arc::clone(self), number, has_node: true }), ..acquired }
    }

    /// Begins a turn with a node that was granted.
    pub(super) fn begin(&self, acquired: Acquired) {
        let mut state = self.state.lock();
        let node = GrantedNode::of(state.plan.next_turn(), &acquired);
        state.node = Some(node);
        let then = state.plan.granted(Box::new(acquired));
        self.contention.is_shown();
        drop(state);
        self.carry_out(then);
    }

    /// Returns the node that was granted last.
    pub(super) fn node(&self) -> Option<GrantedNode> {
        self.state.lock().node.clone()
    }

    /// Returns the node that an entry has taken.
    fn granted(self: &Arc<Self>, taken: Taken<Node, Option<Waker>>) -> Acquired {
        let Taken { node, turn: number, pass, gone: _waker } = taken;
        self.contention.is_shown();
        let turn = Some(Turn { lobby: Arc::clone(self), number, has_node: true });
        Acquired { turn, fencing_token: node.fencing_token.at_pass(pass), ..*node }
    }

    /// Ends the turn if its node is lost while no entry has it.
    fn end_a_lost_turn(&self) {
        let state = self.state.lock();
        let free = if state.plan.is_free() { state.node.clone() } else { None };
        drop(state);
        if let Some(node) = free.filter(GrantedNode::is_lost) {
            self.over(node.turn);
        }
    }

    /// Ends a turn: its node is lost, or its entry deletes it.
    pub(super) fn over(&self, number: u64) {
        self.step(|plan| ((), Then { deletes: plan.over(number), ..Then::default() }));
    }

    /// Takes a step of the plan, and carries out what follows from it.
    pub(super) fn step<T>(
        &self,
        step: impl FnOnce(&mut Plan<Node, Option<Waker>>) -> (T, Then<Node, Option<Waker>>),
    ) -> T {
        let mut state = self.state.lock();
        let before = state.plan.jobs();
        let (output, then) = step(&mut state.plan);
        let after = state.plan.jobs();
        if before.turn.is_some() && after.turn.is_none() && !before.acquires {
            // No attempt knows of another contender.
            self.contention.is_unknown();
        }
        drop(state);
        self.carry_out(then);
        if after != before {
            self.changed.notify_one();
        }
        output
    }

    /// Not under the lock of the state: a waker may poll, and the drop of a node sends its delete.
    fn carry_out(&self, then: Then<Node, Option<Waker>>) {
        drop(then.gone);
        if let Some(waker) = then.wakes.flatten() {
            waker.wake();
        }
        drop(then.deletes);
    }

    /// Returns the jobs of the task, or `None` at the end of the task.
    pub(super) fn jobs(&self) -> Option<Jobs> {
        let mut state = self.state.lock();
        if state.plan.is_empty() {
            state.is_running = false;
            return None;
        }
        Some(state.plan.jobs())
    }

    /// Reads the plan.
    pub(super) fn plan<T>(&self, read: impl FnOnce(&Plan<Node, Option<Waker>>) -> T) -> T {
        read(&self.state.lock().plan)
    }

    /// Ends the wait of the entries that came before this ticket with an error.
    pub(super) fn fail(&self, before: Ticket, error: LockError) {
        let mut state = self.state.lock();
        let failed = state.plan.fail(before);
        state.failure = Some(error);
        drop(state);
        failed.into_iter().flatten().for_each(Waker::wake);
    }

    /// Returns whether the task looks again whether an offer was taken.
    pub(super) fn ticks(&self) -> bool {
        let mut state = self.state.lock();
        state.is_ticking = state.plan.waiting() > 0;
        state.is_ticking
    }

    /// Offers the node to one more entry.
    pub(super) fn offer_more(&self) {
        let waker = self.state.lock().plan.offer_more().flatten();
        waker.into_iter().for_each(Waker::wake);
    }

    /// The task was dropped before its end: its runtime has ended.
    pub(super) fn stopped(&self) {
        let mut state = self.state.lock();
        state.is_running = false;
        let next = state.plan.next_ticket();
        let turn = state.plan.jobs().turn;
        let node = turn.and_then(|turn| state.plan.over(turn));
        let failed = state.plan.fail(next);
        state.failure = Some(Error::Closed.into());
        drop(state);
        drop(node);
        failed.into_iter().flatten().for_each(Waker::wake);
    }

    /// Starts the task, unless it runs.
    fn ensure_running(self: &Arc<Self>) {
        let mut state = self.state.lock();
        if state.is_running || state.plan.is_empty() {
            return;
        }
        let Some(runtime) = self.internals.client().runtime() else { return };
        state.is_running = true;
        drop(state);
        // A runtime that has ended drops the task at once.
        runtime.spawn(Box::pin(driver::run(driver::Running::new(Arc::clone(self)))));
    }
}

/// One task's wait for the node of the batch. Its drop leaves the batch.
struct Entry<'a> {
    lobby: &'a Arc<Lobby>,
    label: &'a Label,
    ticket: Option<Ticket>,
}

impl Future for Entry<'_> {
    type Output = Result<Acquired, LockError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let lobby = self.lobby;
        let ticket = match self.ticket {
            Some(ticket) => ticket,
            None => {
                let ticket = lobby.step(|plan| plan.enter(Some(cx.waker().clone())));
                self.ticket = Some(ticket);
                metrics::waits(self.label);
                ticket
            }
        };
        // As the primitives of tokio: a loop of calls that need not wait lets other tasks run.
        let progress = std::task::ready!(tokio::task::coop::poll_proceed(cx));
        // A node that was lost while it was offered: the entry is the first that the next one serves.
        lobby.end_a_lost_turn();
        let mut state = lobby.state.lock();
        if let Some(taken) = state.plan.take(ticket) {
            drop(state);
            progress.made_progress();
            self.is_done();
            return Poll::Ready(Ok(lobby.granted(taken)));
        }
        let Some(waker) = state.plan.polled(ticket) else {
            let failure = state.failure.clone();
            drop(state);
            self.is_done();
            return Poll::Ready(Err(failure.unwrap_or_else(no_end)));
        };
        let earlier = waker.replace(cx.waker().clone());
        let wakes_task = !std::mem::replace(&mut state.is_ticking, true);
        drop(state);
        drop(earlier);
        if wakes_task {
            lobby.changed.notify_one();
        }
        lobby.ensure_running();
        Poll::Pending
    }
}

impl Entry<'_> {
    /// Records the end of the wait. Returns the place, if there was one.
    fn is_done(&mut self) -> Option<Ticket> {
        self.ticket.take().inspect(|_| metrics::waits_no_more(self.label))
    }
}

impl Drop for Entry<'_> {
    fn drop(&mut self) {
        if let Some(ticket) = self.is_done() {
            self.lobby.step(|plan| ((), plan.leave(ticket)));
        }
    }
}

impl Turn {
    /// Passes the node to the next entry. At the end of the turn it returns the node, and the caller deletes it.
    pub(crate) fn pass(mut self, acquired: Acquired) -> Option<Acquired> {
        self.has_node = false;
        let mut node = Some(Box::new(acquired));
        self.lobby.step(|plan| {
            let Then { wakes, deletes, .. } = match node.take() {
                Some(node) => plan.put_back(self.number, node),
                None => Then::default(),
            };
            node = deletes;
            ((), Then { wakes, ..Then::default() })
        });
        node.map(|node| *node)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if std::mem::take(&mut self.has_node) {
            self.lobby.over(self.number);
        }
    }
}

impl fmt::Debug for Turn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Turn").field("number", &self.number).finish_non_exhaustive()
    }
}

impl fmt::Debug for Lobby {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lobby").field("path", &self.internals.base_path()).finish_non_exhaustive()
    }
}
