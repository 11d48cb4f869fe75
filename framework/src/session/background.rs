//! The task of a session that deletes nodes and watches owned nodes.
//!
//! A caller starts a job itself: it polls the job once, on its own thread, which writes the first request to the
//! socket. The task does the rest when the reply arrives. A caller never wakes the task, because tokio would keep it for
//! the caller's thread, and there it waits for as long as the caller computes.

use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::stream::{FuturesUnordered, StreamExt};
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::Notify;

use crate::error::{Chain, Error, Result};
use crate::model::namespace::Namespace;
use crate::model::path::make_path;
use crate::model::{EventType, Stat};
use crate::session::container_reaper::{ContainerReaper, IdleParent};
use crate::session::delete_tree::delete_tree;
use crate::session::owned_node::KnownNode;
use crate::session::watches::{WakeReason, Watch};
use crate::session::{Session, WatchedData};
use crate::sync::report::report;
use crate::sync::user_code::catch_panic;
use crate::sync::watch_cell::WatchCell;
use crate::zookeeper::SessionEnd;

/// The number of idle parents that are checked at once. The other jobs are small and urgent: only the session's window of
/// requests limits them.
const REAPS_AT_ONCE: usize = 16;
/// The least growth of the schedule before jobs of released nodes are removed from it.
const LEAST_TO_CLEAR: usize = 32;
/// The part of the session timeout after which the task looks for jobs without being woken.
const LOOKS: u32 = 16;
/// The pause before a job is tried again for the first time. Each further pause is twice as long.
const RETRY_PAUSE: Duration = Duration::from_millis(50);
/// The longest pause is this part of the session timeout.
const LONGEST_PAUSE: u32 = 8;

/// A node that is to be deleted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum PendingDelete {
    /// An owned node that was dropped: its path, or, if that is uncertain, all nodes under the parent with the prefix.
    Claimed { parent: String, prefix: String, path: Option<String>, ephemeral: bool },
    /// The node of a guaranteed delete.
    Guaranteed { path: String, delete: Delete },
    /// The ephemeral node at the path, if it belongs to the session.
    OwnEphemeral { path: String },
    /// The ephemeral node at the path, if it has this data, which no other node has.
    Marked { path: String, data: String },
    /// The node at the path, if this transaction has created it.
    Created { path: String, czxid: i64, ephemeral: bool },
}

/// The options of a delete.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Delete {
    /// The version that the node must have.
    pub(crate) version: Option<i32>,
    /// The nodes below it are deleted too.
    pub(crate) children: bool,
}

impl PendingDelete {
    /// Returns `true` if the server deletes the node at the end of its session.
    fn goes_with_session(&self) -> bool {
        match self {
            Self::Claimed { ephemeral, .. } | Self::Created { ephemeral, .. } => *ephemeral,
            Self::OwnEphemeral { .. } | Self::Marked { .. } => true,
            Self::Guaranteed { .. } => false,
        }
    }

    /// Returns `true` if the error shows that the delete is not asked for any more: its caller would get it too.
    fn is_over(&self, error: &Error) -> bool {
        matches!((self, error), (Self::Guaranteed { .. }, Error::BadVersion { .. } | Error::NotEmpty { .. }))
    }
}

/// The nodes that have outlived their session, for the next session to delete.
#[derive(Debug, Default)]
pub(crate) struct DeleteBacklog {
    queue: Mutex<Vec<PendingDelete>>,
    /// The number of running operations that may leave a node to delete.
    owing: WatchCell<usize>,
}

/// The mark of a running operation that may leave a node to delete, in any session. Drop it after the operation has
/// handed over that node.
#[derive(Debug)]
pub(crate) struct PendingGuard(Arc<DeleteBacklog>);

impl Drop for PendingGuard {
    fn drop(&mut self) {
        self.0.owing.modify(|owing| *owing -= 1);
    }
}

impl DeleteBacklog {
    pub(crate) fn add(&self, remains: PendingDelete) {
        self.queue.lock().push(remains);
    }

    /// Adds what the end of its session leaves of a node.
    fn inherit(&self, remains: PendingDelete) {
        if !remains.goes_with_session() {
            self.add(remains);
        }
    }

    pub(crate) fn take(&self) -> Vec<PendingDelete> {
        std::mem::take(&mut self.queue.lock())
    }

    pub(crate) fn track_pending(self: &Arc<Self>) -> PendingGuard {
        self.owing.modify(|owing| *owing += 1);
        PendingGuard(Arc::clone(self))
    }

    /// Resolves when no running operation may leave a node to delete.
    pub(crate) async fn settled(&self) {
        self.owing.wait_for(|&owing| owing == 0).await;
    }
}

/// The job to do for an owned node.
#[derive(Debug)]
enum HeldTask {
    Watch,
    /// Runs the callback that the node keeps.
    Call,
    /// Writes its data once more. A deletion of the node makes that superfluous, because it fires the same watches.
    Touch(Vec<u8>),
}

/// The callers' side of the task.
#[derive(Debug)]
pub(crate) struct Background {
    started: Arc<StartedJobs>,
    /// The runtime of the session's tasks, for the timers of a job.
    runtime: Handle,
    attending: Arc<HeldNodes>,
    cleaning: Arc<OpenDeletes>,
    leftovers: Arc<DeleteBacklog>,
}

/// The jobs that callers have started, for the task to finish.
struct StartedJobs {
    /// `None` when the task has ended.
    jobs: Mutex<Option<Vec<Running>>>,
    /// The number of wake-ups of jobs in this list.
    wakes: AtomicU64,
    woken: Notify,
}

impl Default for StartedJobs {
    fn default() -> Self {
        Self { jobs: Mutex::new(Some(Vec::new())), wakes: AtomicU64::new(0), woken: Notify::new() }
    }
}

impl fmt::Debug for StartedJobs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StartedJobs").field("jobs", &self.jobs.lock().as_ref().map(Vec::len)).finish_non_exhaustive()
    }
}

/// The outcome of the start of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Start {
    /// It is done, or left to the task.
    Kept,
    /// The task has ended.
    Ended,
    /// The job has panicked: a clock of the user, or a timer in a runtime that shuts down.
    Panicked,
}

/// Wakes the task when the reply to a started job arrives, from the task that reads the replies.
impl Wake for StartedJobs {
    fn wake(self: Arc<Self>) {
        self.wakes.fetch_add(1, Ordering::SeqCst);
        self.woken.notify_one();
    }
}

impl StartedJobs {
    /// Polls a job once, and keeps it for the task unless it is done.
    fn start(self: &Arc<Self>, runtime: &Handle, mut job: Running) -> Start {
        if self.jobs.lock().is_none() {
            return Start::Ended;
        }
        let wakes = self.wakes.load(Ordering::SeqCst);
        let waker = Waker::from(Arc::clone(self));
        // It panics in the destructor of a variable of a thread that ends. Then the task polls the job.
        let Ok(entered) = catch_unwind(AssertUnwindSafe(|| runtime.enter())) else {
            return self.keep(job, true);
        };
        let poll = || {
            let unconstrained = std::pin::pin!(tokio::task::coop::unconstrained(&mut job));
            unconstrained.poll(&mut Context::from_waker(&waker))
        };
        let polled = catch_unwind(AssertUnwindSafe(poll));
        drop(entered);
        match polled {
            Ok(Poll::Ready(None)) => Start::Kept,
            // Usually the session is not connected. The task takes the job at the next connection.
            Ok(Poll::Ready(left)) => self.keep(Box::pin(std::future::ready(left)), false),
            // The reply may have come before the task could find the job.
            Ok(Poll::Pending) => self.keep(job, self.wakes.load(Ordering::SeqCst) != wakes),
            // The caller may be a drop, which must not panic.
            Err(_panic) => Start::Panicked,
        }
    }

    fn keep(&self, job: Running, wakes_the_task: bool) -> Start {
        match &mut *self.jobs.lock() {
            Some(jobs) => jobs.push(job),
            None => return Start::Ended,
        }
        if wakes_the_task {
            self.woken.notify_one();
        }
        Start::Kept
    }
}

/// The owned nodes and the jobs to do for them. Most nodes are released before their job is due. So a new job wakes the
/// task only if it is due before all that the task waits for.
#[derive(Debug, Default)]
struct HeldNodes {
    guarded: Mutex<DueQueue>,
    earlier: Notify,
}

impl HeldNodes {
    fn push(&self, now: Duration, due: Duration, node: Weak<KnownNode>, how: HeldTask) {
        let is_earlier = {
            let mut guarded = self.guarded.lock();
            guarded.push(due, node, how);
            // After a sleep of the machine the task's timer is late, but the clock is not.
            guarded.waits_until.is_none_or(|until| due < until || until <= now)
        };
        if is_earlier {
            self.earlier.notify_one();
        }
    }

    fn pop_due(&self, now: Duration) -> Option<(Weak<KnownNode>, HeldTask)> {
        self.guarded.lock().pop_due(now)
    }

    /// Records and returns the time until which the task waits, at most until `latest`.
    fn wait_until_due(&self, latest: Duration) -> Duration {
        let mut guarded = self.guarded.lock();
        let until = guarded.next_due().map_or(latest, |due| due.min(latest));
        guarded.waits_until = Some(until);
        until
    }
}

/// The number of nodes that are still to be deleted.
#[derive(Debug, Default)]
struct OpenDeletes(WatchCell<usize>);

impl OpenDeletes {
    fn begin(&self) {
        self.0.modify(|open| *open += 1);
    }

    fn done(&self) {
        self.0.modify(|open| *open -= 1);
    }
}

impl Background {
    pub(crate) fn new(leftovers: Arc<DeleteBacklog>, reaper: Arc<ContainerReaper>) -> (Self, BackgroundTask) {
        let started = Arc::new(StartedJobs::default());
        let cleaning = Arc::new(OpenDeletes::default());
        let attending = Arc::new(HeldNodes::default());
        let task = BackgroundTask {
            started: Arc::clone(&started),
            attending: Arc::clone(&attending),
            cleaning: Arc::clone(&cleaning),
            leftovers: Arc::clone(&leftovers),
            reaper,
            running: FuturesUnordered::new(),
            reaping: FuturesUnordered::new(),
            pausing: FuturesUnordered::new(),
        };
        (Self { started, runtime: Handle::current(), attending, cleaning, leftovers }, task)
    }

    /// Sends the delete of a node at once, and leaves its outcome to the task. Never blocks, never fails, and works
    /// outside of a runtime too.
    pub(crate) fn clean(&self, session: &Session, remains: PendingDelete) {
        if session.end_reason().is_some() {
            return self.leftovers.inherit(remains);
        }
        self.cleaning.begin();
        let inherited = (!remains.goes_with_session()).then(|| remains.clone());
        if self.start(session, DueJob::Delete(remains)) != Start::Kept {
            self.cleaning.done();
            if let Some(remains) = inherited {
                self.leftovers.add(remains);
            }
        }
    }

    /// Starts a job that deletes a node, and leaves the rest of it to the task.
    pub(crate) fn spawn_eager(&self, job: impl Future<Output = ()> + Send + 'static) {
        let cleaning = Arc::clone(&self.cleaning);
        cleaning.begin();
        let job = Box::pin(async move {
            job.await;
            cleaning.done();
            None
        });
        if self.started.start(&self.runtime, job) != Start::Kept {
            // The session has ended, and the job is dropped with it. After a panic the drop of the node deletes it.
            self.cleaning.done();
        }
    }

    /// Starts a job on the thread of the caller. A panic ends the session, because a node with a
    /// lost delete would stay.
    fn start(&self, session: &Session, job: DueJob) -> Start {
        // The paths are those of the server, and an owned node outlives the connection.
        let session = session.in_namespace(Namespace::default()).unpinned();
        let attempt = attempt_once(session.clone(), Attempt::first(job), Arc::clone(&self.cleaning));
        let start = self.started.start(&self.runtime, Box::pin(attempt));
        if start == Start::Panicked {
            session.finish(SessionEnd::ClientFailed);
        }
        start
    }

    /// Sets a watch on a node now, or schedules it for `due`.
    pub(crate) fn watch_from(&self, session: &Session, now: Duration, due: Duration, node: Weak<KnownNode>) {
        if due > now {
            return self.attending.push(now, due, node, HeldTask::Watch);
        }
        // Nothing is left to watch in a session that has ended.
        let _started = self.start(session, DueJob::Held(node, HeldTask::Watch));
    }

    /// Schedules the callback of a node for `due`, if the node is still held then.
    pub(crate) fn call(&self, now: Duration, due: Duration, node: Weak<KnownNode>) {
        self.attending.push(now, due, node, HeldTask::Call);
    }

    /// Writes a node's data, or schedules that if its delete has an unknown outcome.
    pub(crate) fn touch(&self, session: &Session, now: Duration, node: Weak<KnownNode>, data: Vec<u8>) {
        if node.upgrade().is_some_and(|node| node.is_being_deleted()) {
            return self.attending.push(now, now, node, HeldTask::Touch(data));
        }
        // The end of a session wakes the successors too.
        let _started = self.start(session, DueJob::Held(node, HeldTask::Touch(data)));
    }

    /// Has the task take the jobs that failed at once, for want of a connection.
    pub(crate) fn reconnected(&self) {
        self.started.woken.notify_one();
    }

    /// Resolves when no node is left to delete.
    pub(crate) async fn deletes_done(&self) {
        self.cleaning.0.wait_for(|&open| open == 0).await;
    }
}

/// The task that runs the jobs of one session and ends with it.
#[derive(Debug)]
pub(crate) struct BackgroundTask {
    started: Arc<StartedJobs>,
    attending: Arc<HeldNodes>,
    cleaning: Arc<OpenDeletes>,
    leftovers: Arc<DeleteBacklog>,
    reaper: Arc<ContainerReaper>,
    running: FuturesUnordered<Running>,
    reaping: FuturesUnordered<Pin<Box<dyn Future<Output = ()> + Send>>>,
    pausing: FuturesUnordered<Pin<Box<dyn Future<Output = Attempt> + Send>>>,
}

impl Drop for BackgroundTask {
    fn drop(&mut self) {
        // The jobs own the session, which owns their list. Their drop starts further jobs, so it needs the lock.
        let jobs = self.started.jobs.lock().take();
        drop(jobs);
    }
}

/// A job that is due.
#[derive(Debug)]
enum DueJob {
    Delete(PendingDelete),
    Held(Weak<KnownNode>, HeldTask),
}

/// The next attempt at a job.
#[derive(Debug)]
struct Attempt {
    job: DueJob,
    /// The number of attempts that failed.
    failures: u32,
    /// The epoch of the attempt that failed last.
    epoch: u64,
}

/// A running job. It resolves with an attempt that has failed.
type Running = Pin<Box<dyn Future<Output = Option<Attempt>> + Send>>;

/// Returns the pause behind this number of failed attempts.
fn pause_behind(failures: u32, session_timeout: Duration) -> Duration {
    let doubled = RETRY_PAUSE.saturating_mul(1 << failures.saturating_sub(1).min(20));
    doubled.min(session_timeout / LONGEST_PAUSE)
}

/// Waits before the next attempt at a job, no longer than until the next connection or the end of the session.
async fn pause(session: Session, attempt: Attempt) -> Attempt {
    tokio::select! {
        _ = session.ended() => {}
        () = session.epoch_above(attempt.epoch) => {}
        () = tokio::time::sleep(pause_behind(attempt.failures, session.timeout())) => {
            // The end of the session ends the wait too, and then the attempt fails.
            let _connected = session.connected().await;
        }
    }
    attempt
}

/// Ends the session if its background task panics: otherwise its nodes would stay.
struct EndOfTask<'a>(&'a Session);

impl Drop for EndOfTask<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.finish(SessionEnd::ClientFailed);
        }
    }
}

impl BackgroundTask {
    pub(crate) async fn run(mut self, session: Session) {
        let _ends = EndOfTask(&session);
        loop {
            self.running.extend(self.started.jobs.lock().iter_mut().flat_map(std::mem::take));
            let now = session.clock().now();
            self.start_due(&session, now);
            let latest = now.saturating_add(session.timeout() / LOOKS);
            let has_slot = self.reaping.len() < REAPS_AT_ONCE;
            let latest = self.reaper.next_due().filter(|_| has_slot).map_or(latest, |due| due.min(latest));
            let until = self.attending.wait_until_due(latest);
            tokio::select! {
                biased;
                _ = session.ended() => break,
                Some(failed) = self.running.next() => self.pause(&session, failed),
                Some(attempt) = self.pausing.next() => self.start_again(&session, now, attempt),
                Some(()) = self.reaping.next() => {}
                () = self.started.woken.notified() => {}
                () = self.attending.earlier.notified() => {}
                () = tokio::time::sleep(until.saturating_sub(now)) => {}
            }
        }
        self.drain().await;
    }

    /// Starts the jobs that are due.
    fn start_due(&mut self, session: &Session, now: Duration) {
        while let Some((node, how)) = self.attending.pop_due(now) {
            self.running.extend(self.start(session, now, Attempt::first(DueJob::Held(node, how))));
        }
        while self.reaping.len() < REAPS_AT_ONCE {
            let Some(idle) = self.reaper.take_due(now) else { return };
            self.reaping.push(reap(session.clone(), idle, Arc::clone(&self.reaper)).boxed());
        }
    }

    /// Starts the attempts with pauses that have ended. Watches and signals come first: other contenders wait for them.
    fn start_again(&mut self, session: &Session, now: Duration, first: Attempt) {
        let others = std::iter::from_fn(|| self.pausing.next().now_or_never().flatten());
        let mut attempts: Vec<_> = std::iter::once(first).chain(others).collect();
        attempts.sort_by_key(|attempt| matches!(attempt.job, DueJob::Delete(_)));
        for attempt in attempts {
            self.running.extend(self.start(session, now, attempt));
        }
    }

    /// Starts an attempt. Returns `None` if nothing of it is left to run.
    fn start(&self, session: &Session, now: Duration, attempt: Attempt) -> Option<Running> {
        let session = session.clone();
        let Attempt { job, failures, epoch } = attempt;
        match job {
            DueJob::Held(node, HeldTask::Call) => {
                if let Some(call) = node.upgrade().and_then(|node| node.take_call()) {
                    // The panic is logged.
                    let _panicked = catch_panic("callback for a long hold", call);
                }
                None
            }
            DueJob::Held(node, HeldTask::Touch(data)) if node.upgrade()?.is_being_deleted() => {
                if !node.upgrade()?.is_given_up() {
                    // The outcome of the delete is not known yet, so look again later.
                    self.attending.push(now, now.saturating_add(RETRY_PAUSE), node, HeldTask::Touch(data));
                }
                None
            }
            job => Some(attempt_once(session, Attempt { job, failures, epoch }, Arc::clone(&self.cleaning)).boxed()),
        }
    }

    /// Has a failed attempt repeated after a pause.
    fn pause(&mut self, session: &Session, failed: Option<Attempt>) {
        self.pausing.extend(failed.map(|failed| pause(session.clone(), failed).boxed()));
    }

    /// Ends the jobs of a session that is over: the server deletes its ephemeral nodes, and the next session deletes
    /// the rest.
    async fn drain(mut self) {
        let started = self.started.jobs.lock().take();
        self.running.extend(started.into_iter().flatten());
        let mut left = Vec::new();
        while let Some(failed) = self.running.next().await {
            left.extend(failed);
        }
        while let Some(attempt) = self.pausing.next().await {
            left.push(attempt);
        }
        while let Some(()) = self.reaping.next().await {}
        for attempt in left {
            if let DueJob::Delete(remains) = attempt.job {
                self.cleaning.done();
                self.leftovers.inherit(remains);
            }
        }
    }
}

impl Attempt {
    fn first(job: DueJob) -> Self {
        Self { job, failures: 0, epoch: 0 }
    }
}

/// The jobs for owned nodes, in the order in which they are due. Almost all are added in that order.
#[derive(Default)]
struct DueQueue {
    nodes: VecDeque<(Duration, Weak<KnownNode>, HeldTask)>,
    /// The number of jobs after those of released nodes were last removed.
    kept: usize,
    /// The time until which the task waits: the first due time at its last look.
    waits_until: Option<Duration>,
}

impl fmt::Debug for DueQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DueQueue").field("nodes", &self.nodes.len()).finish_non_exhaustive()
    }
}

impl DueQueue {
    fn push(&mut self, due: Duration, node: Weak<KnownNode>, how: HeldTask) {
        if self.nodes.len() >= 2 * self.kept + LEAST_TO_CLEAR {
            self.nodes.retain(|(_, node, _)| node.strong_count() > 0);
            self.kept = self.nodes.len();
        }
        let index = self.nodes.iter().rposition(|(earlier, ..)| *earlier <= due).map_or(0, |index| index + 1);
        self.nodes.insert(index, (due, node, how));
    }

    fn next_due(&mut self) -> Option<Duration> {
        while self.nodes.front().is_some_and(|(_, node, _)| node.strong_count() == 0) {
            self.nodes.pop_front();
        }
        self.nodes.front().map(|(due, ..)| *due)
    }

    fn pop_due(&mut self, now: Duration) -> Option<(Weak<KnownNode>, HeldTask)> {
        (self.next_due()? <= now).then(|| self.nodes.pop_front()).flatten().map(|(_, node, how)| (node, how))
    }
}

/// Deletes an idle parent if it is empty. A create below it at the same time is safe: it either comes first, and the
/// parent is not empty, or it finds the parent missing and creates it again.
async fn reap(session: Session, idle: IdleParent, reaper: Arc<ContainerReaper>) {
    let deleted = match session.exists(&idle.path).await {
        // A node with another czxid is not the one that this client created.
        Ok(stat) if stat.is_none_or(|stat| stat.czxid != idle.czxid) => {
            Err(Error::NoNode { path: (&*idle.path).into() })
        }
        // Like a container of ZooKeeper, a parent is deleted after its last child, not before its first.
        Ok(Some(stat)) if stat.cversion == 0 => return,
        Ok(stat) => session.delete(&idle.path, stat.map(|stat| stat.version)).await,
        Err(error) => Err(error),
    };
    match deleted {
        Ok(()) => {
            reaper.forget(&idle);
            report(move || tracing::debug!(path = idle.path, "deleted a parent that nobody used"));
        }
        Err(Error::NoNode { .. }) => reaper.forget(&idle),
        // It has children again, or the connection is lost: the reaper returns it again an interval later.
        Err(error) => report(move || tracing::debug!(path = idle.path, error = %Chain(&error), "a parent stays")),
    }
}

/// Makes an attempt at a job. Returns it for another attempt after every error that does not show the job to be done. A
/// permission may be given back, and an unknown code may stand for a passing state.
async fn attempt_once(session: Session, attempt: Attempt, cleaning: Arc<OpenDeletes>) -> Option<Attempt> {
    let Attempt { job, failures, .. } = attempt;
    // Before the attempt: one that fails for want of a connection is repeated at once on the next connection.
    let epoch = session.epoch();
    let outcome = match &job {
        DueJob::Delete(remains) => try_clean(&session, remains).await,
        DueJob::Held(node, HeldTask::Touch(data)) => touch(&session, node, data).await,
        DueJob::Held(node, _) => watch_held_node(&session, node).await,
    };
    let is_delete = matches!(job, DueJob::Delete(_));
    let error = match outcome {
        Err(error) if is_delete || session.end_reason().is_none() => error,
        _ => {
            if is_delete {
                cleaning.done();
            }
            return None;
        }
    };
    // The first refusal is reported, and not the repetitions.
    let is_refused = !error.is_retryable() && session.end_reason().is_none();
    match &job {
        DueJob::Delete(remains) if is_refused && remains.is_over(&error) => {
            cleaning.done();
            let remains = remains.clone();
            report(
                move || tracing::warn!(error = %Chain(&error), ?remains, tried_again = false, "a node cannot be deleted"),
            );
            return None;
        }
        _ if !is_refused || failures > 0 => {}
        // The node blocks every contender behind it until it is deleted.
        DueJob::Delete(remains) => {
            let remains = remains.clone();
            report(
                move || tracing::warn!(error = %Chain(&error), ?remains, tried_again = true, "a node cannot be deleted"),
            );
        }
        DueJob::Held(node, how) => {
            let path = node.upgrade()?.path.clone();
            let is_touch = matches!(how, HeldTask::Touch(_));
            report(move || match is_touch {
                true => tracing::warn!(error = %Chain(&error), path = &*path, "a successor cannot be signalled"),
                false => {
                    tracing::warn!(error = %Chain(&error), path = &*path, "the node that is held cannot be watched")
                }
            });
        }
    }
    Some(Attempt { job, failures: failures.saturating_add(1), epoch })
}

async fn try_clean(session: &Session, remains: &PendingDelete) -> Result<()> {
    match remains {
        PendingDelete::Guaranteed { path, delete } => delete_if_there(session, path, *delete).await,
        PendingDelete::Claimed { path: Some(path), .. } => delete_if_there(session, path, Delete::default()).await,
        PendingDelete::OwnEphemeral { path } => {
            // A server that lags could omit the node; after an answered write it does not.
            session.write_barrier().await?;
            let is_own = |stat: &Stat| session.id().is_some_and(|own| own.get() == stat.ephemeral_owner);
            while let Some(stat) = session.exists(path).await?.filter(is_own) {
                match delete_if_there(session, path, Delete { version: Some(stat.version), children: false }).await {
                    // Another session may have replaced the node since.
                    Err(Error::BadVersion { .. }) => {}
                    deleted => return deleted,
                }
            }
            Ok(())
        }
        PendingDelete::Marked { path, data } => {
            // A server that lags could omit the node; after an answered write it does not.
            session.write_barrier().await?;
            match session.get_data(path).await {
                Ok((found, stat)) if found == data.as_bytes() => delete_created(session, path, stat.czxid).await,
                Ok(_) | Err(Error::NoNode { .. }) => Ok(()),
                Err(error) => Err(error),
            }
        }
        PendingDelete::Created { path, czxid, .. } => delete_created(session, path, *czxid).await,
        PendingDelete::Claimed { parent, prefix, path: None, .. } => {
            // A server that lags could omit the node; after an answered write it does not.
            session.write_barrier().await?;
            let children = match session.get_children(parent).await {
                Err(Error::NoNode { .. }) => return Ok(()),
                children => children?,
            };
            for child in children.iter().filter(|child| child.starts_with(prefix)) {
                delete_if_there(session, &make_path(parent, child), Delete::default()).await?;
            }
            Ok(())
        }
    }
}

/// Deletes the node that a transaction has created, and not a later node at its path.
async fn delete_created(session: &Session, path: &str, czxid: i64) -> Result<()> {
    // A server that lags could omit the node; after an answered write it does not.
    session.write_barrier().await?;
    loop {
        let Some(stat) = session.exists(path).await?.filter(|stat| stat.czxid == czxid) else { return Ok(()) };
        match delete_if_there(session, path, Delete { version: Some(stat.version), children: false }).await {
            Err(Error::BadVersion { .. }) => {}
            deleted => return deleted,
        }
    }
}

async fn delete_if_there(session: &Session, path: &str, delete: Delete) -> Result<()> {
    let deleted = match delete.children {
        true => delete_tree(session, path, delete.version).await,
        false => session.delete(path, delete.version).await,
    };
    match deleted {
        Err(Error::NoNode { .. }) => Ok(()),
        deleted => deleted,
    }
}

/// Writes a node's data, unless it was written since the create.
async fn touch(session: &Session, node: &Weak<KnownNode>, data: &[u8]) -> Result<()> {
    let Some(path) = node.upgrade().map(|node| Arc::clone(&node.path)) else { return Ok(()) };
    match session.set_data(&path, data.to_vec(), Some(0)).await {
        // Written now or before, or deleted: each of these fires the watches.
        Ok(_) | Err(Error::BadVersion { .. } | Error::NoNode { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Marks an owned node as deleted when its watch says so, and else sets a watch on it. The watch is on the node, or on
/// the children of its parent, which cannot be deleted before the node.
pub(crate) fn rearm_watch(session: Session, node: &Weak<KnownNode>, watch: Watch) {
    let Some(turn) = node.upgrade().map(|node| node.next_turn()) else { return };
    let node = Weak::clone(node);
    watch.on_fire(move |reason| {
        let Some(held) = node.upgrade() else { return };
        match reason {
            // Another node may have been deleted at an exact path, so that is read again.
            WakeReason::Event(EventType::NodeDeleted) if !held.is_exact => held.set_deleted(),
            WakeReason::SessionEnded(_) => {}
            // A newer watch on the node takes care of it. If the owner's delete fails, the node is watched again.
            _ if !held.is_turn(turn) || held.is_being_deleted() => {}
            _ => {
                let now = session.clock().now();
                session.background().watch_from(&session, now, now, node);
            }
        }
    });
}

/// Sets a watch on an owned node, or marks it as deleted if it does not exist.
async fn watch_held_node(session: &Session, node: &Weak<KnownNode>) -> Result<()> {
    let Some(path) = node.upgrade().map(|node| Arc::clone(&node.path)) else { return Ok(()) };
    // The barrier holds for one connection.
    let at = session.pinned();
    let mut certain = false;
    loop {
        let read = at.get_data_watched(&path).await;
        let Some(held) = node.upgrade() else { return Ok(()) };
        match read {
            Ok(WatchedData { stat, .. }) if held.is_followed_by(&stat) => {
                held.set_deleted();
                return Ok(());
            }
            Ok(WatchedData { data, stat, watch }) => {
                held.was_read(&data, &stat);
                rearm_watch(session.clone(), node, watch);
                return Ok(());
            }
            // The owner has deleted it.
            Err(Error::NoNode { .. }) if held.is_being_deleted() => return Ok(()),
            Err(Error::NoNode { .. }) if certain => {
                held.set_deleted();
                return Ok(());
            }
            // A server that lags may not have the node yet; after an answered write it has.
            Err(Error::NoNode { .. }) => {}
            Err(error) => return Err(error),
        }
        drop(held);
        at.write_barrier().await?;
        certain = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_watched_in_the_order_in_which_it_is_due() {
        let nodes: Vec<_> = (0..4).map(|number| Arc::new(KnownNode::new(format!("/{number}").into(), 1))).collect();
        let mut guarded = DueQueue::default();
        for (due, node) in [(5, 0), (3, 1), (9, 2), (4, 3)] {
            guarded.push(Duration::from_secs(due), Arc::downgrade(&nodes[node]), HeldTask::Watch);
        }
        let mut order = Vec::new();
        while let Some((node, _)) = guarded.pop_due(Duration::from_secs(8)) {
            order.push(node.upgrade().unwrap().path.clone());
        }
        assert_eq!(order, ["/1", "/3", "/0"].map(Arc::from));
        assert_eq!(guarded.next_due(), Some(Duration::from_secs(9)));
        drop(nodes);
        assert_eq!(guarded.next_due(), None);
    }
}
