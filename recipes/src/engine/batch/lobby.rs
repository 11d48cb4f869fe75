//! The entries of a batch, and the node that they pass on.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use curator_framework::recipe::{LossSignal, RecipeClient as _};
use curator_framework::{CuratorFramework, Error, Session};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;
use tracing::Instrument as _;

use crate::engine::acquire::{Log, no_end, span};
use crate::engine::acquired::Acquired;
use crate::engine::batch::driver;
use crate::engine::batch::key::Key;
use crate::engine::batch::plan::{Jobs, Plan, Taken, Then, Ticket};
use crate::engine::batch::source::{OneNode, Source};
use crate::engine::by_key::ByKey;
use crate::engine::error::LockError;
use crate::engine::internals::{LockInternals, Sharing};
use crate::engine::label::Label;
use crate::engine::metrics;
use crate::engine::wait_mode::{Contended, Contention, WaitMode};

/// The batch of one client at one lock.
pub(crate) struct Lobby {
    /// Without the client: an idle node does not keep it.
    pub(super) source: Box<dyn Source>,
    pub(super) linger: Duration,
    state: Mutex<State>,
    /// Wakes the task when its jobs have changed.
    pub(super) changed: Notify,
    /// The attempt's evidence of other contenders.
    pub(super) contention: Contention,
}

type Node = Box<Acquired>;

struct State {
    plan: Plan<Node, Option<Waker>>,
    is_running: bool,
    /// The task checks from time to time whether an offer was taken.
    is_ticking: bool,
    /// The error of the last attempt that failed.
    failure: Option<LockError>,
    /// The node that was granted last.
    node: Option<GrantedNode>,
    /// The time until which the last check for other contenders counts.
    counts_until: Option<Instant>,
}

/// The facts of the granted node.
#[derive(Clone)]
pub(crate) struct GrantedNode {
    pub(super) turn: u64,
    pub(super) name: Arc<str>,
    pub(super) session: Session,
    pub(super) signal: LossSignal,
}

impl State {
    /// Keeps the facts of the one node for the task, which watches it.
    fn watches(&mut self, turn: u64, acquired: &Acquired) {
        if self.plan.has_one_node() {
            self.node = Some(GrantedNode::of(turn, acquired));
        }
    }
}

impl GrantedNode {
    fn of(turn: u64, acquired: &Acquired) -> Self {
        let (session, signal) = (acquired.owned.session().clone(), acquired.owned.loss_signal());
        Self { turn, name: acquired.name().into(), session, signal }
    }
}

/// The node of a batch, which one entry has.
pub(crate) struct Turn {
    lobby: Arc<Lobby>,
    number: u64,
    /// See [`Acquired::limit`].
    limit: u32,
    /// False once the node was passed on.
    has_node: bool,
}

impl Lobby {
    /// Returns the batch of a lock's client, if its tasks share a node.
    pub(super) fn of(internals: &LockInternals) -> Option<Arc<Self>> {
        Self::of_source(internals, || Box::new(OneNode(internals.without_client())))
    }

    /// Returns the batch of a lock's client, if its tasks share nodes. They come from a source without the client.
    pub(crate) fn of_source(internals: &LockInternals, source: impl FnOnce() -> Box<dyn Source>) -> Option<Arc<Self>> {
        let (spec, options) = (&internals.spec, &internals.options);
        if !options.one_node {
            return None;
        }
        if options.revocation.is_some() || spec.sharing == Sharing::Object {
            return Some(Self::new(source(), options.linger));
        }
        let lobbies = internals.client.extension::<ByKey<Key, Self>>();
        Some(lobbies.get(Key::of(internals), || Self::new(source(), options.linger)))
    }

    fn new(source: Box<dyn Source>, linger: Duration) -> Arc<Self> {
        let plan = Plan::new(source.supply(), !linger.is_zero());
        Arc::new(Self {
            source,
            linger,
            state: Mutex::new(State {
                plan,
                is_running: false,
                is_ticking: false,
                failure: None,
                node: None,
                counts_until: None,
            }),
            changed: Notify::new(),
            contention: Contention::default(),
        })
    }

    pub(super) fn client(&self) -> &CuratorFramework {
        self.source.nodes().client()
    }

    /// Returns the path in spans and errors.
    pub(super) fn path(&self) -> &str {
        self.source.path()
    }

    /// Acquires the lock, by the node of the batch.
    pub(crate) async fn acquire(
        self: &Arc<Self>,
        label: &Label,
        mode: WaitMode,
    ) -> Result<Option<Acquired>, LockError> {
        let span = span(self.path(), label);
        // Boxed: the future of an acquire stays small wherever a caller keeps it.
        Box::pin(self.acquire_in_span(label, mode).instrument(span)).await
    }

    async fn acquire_in_span(self: &Arc<Self>, label: &Label, mode: WaitMode) -> Result<Option<Acquired>, LockError> {
        let (client, path) = (self.client(), self.path());
        let mut log = Log::new(path, label);
        let outcome = match mode {
            // Boxed: few waiters ask only once.
            WaitMode::Once => Box::pin(self.acquire_once()).await,
            _ if client.runtime().is_none() => Err(Error::NotStarted.into()),
            _ => {
                // Pinned here: the evidence is read before the entry leaves.
                let entry = std::pin::pin!(Entry { lobby: self, label, ticket: None });
                mode.bound(client, path, &**self, entry).await
            }
        };
        log.ends(outcome)
    }

    /// Takes an idle node, or refuses if the process knows that the lock is taken, or else asks with a node of its own.
    async fn acquire_once(self: &Arc<Self>) -> Result<Option<Acquired>, LockError> {
        let (client, path) = (self.client(), self.path());
        // As the primitives of tokio: a loop of calls that need not wait lets other tasks run.
        tokio::task::consume_budget().await;
        self.end_vain_turns();
        let limit = self.limit();
        if self.plan(|plan| plan.is_taken(limit)) && self.is_known(client) {
            return Ok(None);
        }
        if let Some(idle) = self.take_idle() {
            return Ok(Some(idle));
        }
        let contention = Contention::default();
        let attempts = self.source.attempts(None, WaitMode::Once, &contention);
        let acquired = WaitMode::Once.bound(client, path, &contention, attempts).await?;
        Ok(acquired.flatten().and_then(|mut acquired| acquired.pop()).map(|acquired| self.held(acquired)))
    }

    fn take_idle(self: &Arc<Self>) -> Option<Acquired> {
        let taken = self.step(|plan| {
            if plan.idle().is_none() {
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

    /// Starts a turn with a node that was granted to one entry alone, unless there is a turn.
    fn held(self: &Arc<Self>, acquired: Acquired) -> Acquired {
        let mut state = self.state.lock();
        let Some(number) = state.plan.is_held() else { return acquired };
        state.watches(number, &acquired);
        drop(state);
        self.ensure_running();
        self.changed.notify_one();
        Acquired { turn: Some(self.turn(number, acquired.limit)), ..acquired }
    }

    /// Starts a turn with a node that was granted.
    pub(super) fn begin(&self, acquired: Acquired) {
        let mut state = self.state.lock();
        let number = state.plan.next_turn();
        state.watches(number, &acquired);
        let then = state.plan.granted(Box::new(acquired));
        drop(state);
        self.carry_out(then);
    }

    /// Returns the node that was granted last.
    pub(super) fn node(&self) -> Option<GrantedNode> {
        self.state.lock().node.clone()
    }

    /// Returns the node that an entry has taken.
    fn granted(self: &Arc<Self>, taken: Taken<Node, Option<Waker>>) -> Acquired {
        let Taken { node, turn: number, pass, gone: _waker, wakes } = taken;
        wakes.flatten().into_iter().for_each(Waker::wake);
        let fencing_token = node.fencing_token.at_pass(pass);
        Acquired { turn: Some(self.turn(number, node.limit)), fencing_token, ..*node }
    }

    fn turn(self: &Arc<Self>, number: u64, limit: u32) -> Turn {
        Turn { lobby: Arc::clone(self), number, limit, has_node: true }
    }

    /// Returns the present limit of nodes.
    fn limit(&self) -> usize {
        self.source.nodes().limit().get()
    }

    /// Ends the turns of the free nodes that may no longer serve an entry.
    fn end_vain_turns(&self) {
        // The task that checks again may be late.
        let is_over = |until: &mut Instant| *until <= Instant::now();
        if self.state.lock().counts_until.take_if(is_over).is_some() {
            self.may_have_changed(None);
        }
        let limit = self.limit();
        let is_over = |plan: &Plan<Node, _>| plan.free().find(|(_, node)| node.is_over(limit)).map(|(turn, _)| turn);
        while let Some(turn) = self.plan(is_over) {
            self.over(turn);
        }
    }

    /// Ends a turn: its node is lost, or its entry deletes it.
    pub(super) fn over(&self, number: u64) {
        self.step(|plan| {
            let deletes = plan.over(number).map(|node| (number, node)).into_iter().collect();
            ((), Then { deletes, ..Then::default() })
        });
    }

    /// Takes a step of the plan, and carries out what follows from it.
    pub(super) fn step<T>(
        &self,
        step: impl FnOnce(&mut Plan<Node, Option<Waker>>) -> (T, Then<Node, Option<Waker>>),
    ) -> T {
        let limit = self.limit();
        let mut state = self.state.lock();
        let before = state.plan.jobs(limit);
        let (output, then) = step(&mut state.plan);
        let after = state.plan.jobs(limit);
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

    /// Records the result of a check for other contenders, in this turn of the one node. It counts until a time, or
    /// until a change.
    pub(crate) fn looked(&self, turn: Option<u64>, others: bool, until: Option<Instant>) {
        self.state.lock().counts_until = until;
        self.step(|plan| ((), plan.looked(turn, others)));
    }

    /// Records that the last check no longer counts.
    pub(crate) fn may_have_changed(&self, turn: Option<u64>) {
        self.step(|plan| ((), plan.changed(turn)));
    }

    /// Returns the jobs of the task, or `None` at the end of the task.
    pub(super) fn jobs(&self, limit: usize) -> Option<Jobs> {
        let mut state = self.state.lock();
        if state.plan.is_at_rest() {
            state.is_running = false;
            state.plan.rest();
            self.contention.is_unknown();
            return None;
        }
        Some(state.plan.jobs(limit))
    }

    /// Returns the number of entries that wait and are not offered a node.
    pub(crate) fn unserved(&self) -> usize {
        self.plan(Plan::unserved)
    }

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

    /// Returns whether entries wait, so that the task checks from time to time whether one has taken its offer.
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
        let (nodes, stopped) = state.plan.stop();
        state.failure = Some(Error::Closed.into());
        drop(state);
        drop(nodes);
        stopped.into_iter().flatten().for_each(Waker::wake);
    }

    /// Starts the task, unless it runs.
    fn ensure_running(self: &Arc<Self>) {
        let mut state = self.state.lock();
        if state.is_running || state.plan.is_at_rest() {
            return;
        }
        let Some(runtime) = self.client().runtime() else { return };
        state.is_running = true;
        drop(state);
        // A runtime that has ended drops the task at once.
        runtime.spawn(Box::pin(driver::run(driver::Running::new(Arc::clone(self)))));
    }
}

impl Contended for Lobby {
    fn is_known(&self, client: &CuratorFramework) -> bool {
        let limit = self.limit();
        self.plan(|plan| plan.is_granted(limit)) && client.is_connected() || self.contention.is_known(client)
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
                // Before the budget of the caller's task can end this poll: it may be the last one for long.
                lobby.ensure_running();
                ticket
            }
        };
        // As the primitives of tokio: a loop of calls that need not wait lets other tasks run.
        let progress = std::task::ready!(tokio::task::coop::poll_proceed(cx));
        // A node that was lost while it was offered: the entry is the first that the next one serves.
        lobby.end_vain_turns();
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
    pub(crate) fn limit(&self) -> usize {
        self.limit as usize
    }

    /// Passes the node to the next entry. At the end of the turn it returns the node, and the caller deletes it.
    pub(crate) fn pass(mut self, acquired: Acquired) -> Option<Acquired> {
        self.has_node = false;
        let mut node = Some(Box::new(acquired));
        self.lobby.step(|plan| {
            let mut then = match node.take() {
                Some(node) => plan.put_back(self.number, node),
                None => Then::default(),
            };
            let own = then.deletes.iter().position(|(turn, _)| *turn == self.number);
            node = own.map(|at| then.deletes.swap_remove(at).1);
            ((), then)
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
        f.debug_struct("Lobby").field("path", &self.path()).finish_non_exhaustive()
    }
}
