//! What a session cleans up and watches for its owners, in one task.

use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Waker};
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt};
use parking_lot::Mutex;
use tokio::sync::{Notify, mpsc};

use crate::claim::ClaimedNode;
use crate::error::{Error, Result};
use crate::model::EventType;
use crate::operations::delete_tree;
use crate::path::make_path;
use crate::reaper::{Idle, Reaper};
use crate::session::Session;
use crate::watch::{WakeReason, Watch};

/// How many jobs run at once.
const AT_ONCE: usize = 16;
/// So many that are gone are not worth the clearing.
const LEAST_TO_CLEAR: usize = 32;
/// The pause before a job is tried again on a connection that is up.
const RETRY_PAUSE: Duration = Duration::from_millis(50);

/// A node that is to be deleted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Remains {
    /// What is left of a claim: its node, or if that is not certain whatever under the parent has the prefix.
    Claimed { parent: String, prefix: String, path: Option<String>, ephemeral: bool },
    /// A node that somebody asked to delete for certain.
    Guaranteed { path: String, delete: Delete },
}

/// How a node is to be deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Delete {
    /// The version that it must have.
    pub(crate) version: Option<i32>,
    /// With all that is below it.
    pub(crate) children: bool,
}

impl Remains {
    /// Whether it goes with its session by itself.
    fn goes_with_session(&self) -> bool {
        matches!(self, Self::Claimed { ephemeral: true, .. })
    }
}

/// What outlived its session and is the next one's to delete.
#[derive(Debug, Default)]
pub(crate) struct Leftovers {
    queue: Mutex<Vec<Remains>>,
    pub(crate) arrived: Notify,
    /// How many operations are under way that may leave something.
    owing: AtomicUsize,
    settled: Notify,
}

/// An operation is under way that may leave something to be deleted, in whichever session. Drop it behind whatever
/// leaves it.
#[derive(Debug)]
pub(crate) struct Owing(Arc<Leftovers>);

impl Drop for Owing {
    fn drop(&mut self) {
        self.0.owing.fetch_sub(1, Ordering::SeqCst);
        self.0.settled.notify_waiters();
    }
}

impl Leftovers {
    pub(crate) fn add(&self, remains: Remains) {
        self.queue.lock().push(remains);
        self.arrived.notify_one();
    }

    pub(crate) fn take(&self) -> Vec<Remains> {
        std::mem::take(&mut self.queue.lock())
    }

    pub(crate) fn owing(self: &Arc<Self>) -> Owing {
        self.owing.fetch_add(1, Ordering::SeqCst);
        Owing(Arc::clone(self))
    }

    /// Resolves when no operation is under way that may leave something.
    pub(crate) async fn settled(&self) {
        loop {
            let settled = self.settled.notified();
            if self.owing.load(Ordering::SeqCst) == 0 {
                return;
            }
            settled.await;
        }
    }
}

/// Calls what is not ours; its panic must not end the housekeeping.
pub(crate) fn contained(call: impl FnOnce()) {
    if catch_unwind(AssertUnwindSafe(call)).is_err() {
        tracing::error!("what looks after a node that is held panicked");
    }
}

/// What is done about a node that is held.
enum Attention {
    Watch,
    /// Make the call that it keeps.
    Call,
    /// Write its data once more. Whoever is to be told of that is told by its deletion as well.
    Touch(Vec<u8>),
}

/// Where a session's jobs are left.
#[derive(Debug)]
pub(crate) struct Housekeeping {
    jobs: mpsc::UnboundedSender<Job>,
    attending: Arc<Attending>,
    cleaning: Arc<Cleaning>,
    leftovers: Arc<Leftovers>,
}

enum Job {
    Clean(Remains),
    /// Was begun by whoever leaves it.
    Finish(Running),
}

/// The nodes that are held and what is to be done about them. Most are given back before that is due: the task is
/// only woken for what is due before anything that it waits for.
#[derive(Debug, Default)]
struct Attending {
    guarded: Mutex<Guarded>,
    earlier: Notify,
}

impl Attending {
    fn push(&self, now: Duration, due: Duration, node: Weak<ClaimedNode>, how: Attention) {
        let is_earlier = {
            let mut guarded = self.guarded.lock();
            guarded.push(due, node, how);
            // Behind a sleep of the machine the task's timer comes late, and the clock does not.
            guarded.waits_until.is_none_or(|until| due < until || until <= now)
        };
        if is_earlier {
            self.earlier.notify_one();
        }
    }

    fn pop_due(&self, now: Duration) -> Option<(Weak<ClaimedNode>, Attention)> {
        self.guarded.lock().pop_due(now)
    }

    /// Until when the task may wait, and does so from now on.
    fn wait_until_due(&self) -> Option<Duration> {
        let mut guarded = self.guarded.lock();
        guarded.waits_until = guarded.next_due();
        guarded.waits_until
    }
}

/// How many nodes are still to be deleted.
#[derive(Debug, Default)]
struct Cleaning {
    open: AtomicUsize,
    changed: Notify,
}

impl Cleaning {
    fn done(&self) {
        self.open.fetch_sub(1, Ordering::SeqCst);
        self.changed.notify_waiters();
    }
}

impl Housekeeping {
    pub(crate) fn new(leftovers: Arc<Leftovers>, reaper: Arc<Reaper>) -> (Self, HousekeepingTask) {
        let (sender, jobs) = mpsc::unbounded_channel();
        let cleaning = Arc::new(Cleaning::default());
        let attending = Arc::new(Attending::default());
        let task = HousekeepingTask {
            jobs,
            attending: Arc::clone(&attending),
            cleaning: Arc::clone(&cleaning),
            leftovers: Arc::clone(&leftovers),
            reaper,
        };
        (Self { jobs: sender, attending, cleaning, leftovers }, task)
    }

    /// Deletes a node some time, for certain. Never blocks, never fails; works outside of a runtime too.
    pub(crate) fn clean(&self, session: &Session, remains: Remains) {
        if session.end_reason().is_none() {
            self.cleaning.open.fetch_add(1, Ordering::SeqCst);
            match self.jobs.send(Job::Clean(remains)) {
                Ok(()) => return,
                Err(mpsc::error::SendError(job)) => {
                    self.cleaning.done();
                    let Job::Clean(remains) = job else { return };
                    return self.leave(remains);
                }
            }
        }
        self.leave(remains);
    }

    /// Begins at once, and sees to the end of it. Within a runtime only.
    pub(crate) fn begin(&self, job: impl Future<Output = ()> + Send + 'static) {
        let cleaning = Arc::clone(&self.cleaning);
        cleaning.open.fetch_add(1, Ordering::SeqCst);
        let mut job: Running = Box::pin(async move {
            job.await;
            cleaning.done();
            None
        });
        // To be looked at by the task, and not by this one.
        let mut unwatched = Context::from_waker(Waker::noop());
        if pin!(tokio::task::coop::unconstrained(&mut job)).poll(&mut unwatched).is_pending()
            && self.jobs.send(Job::Finish(job)).is_err()
        {
            // The session is over; so is what was begun.
            self.cleaning.done();
        }
    }

    fn leave(&self, remains: Remains) {
        if !remains.goes_with_session() {
            self.leftovers.add(remains);
        }
    }

    /// Watches a node from `due` on.
    pub(crate) fn guard(&self, now: Duration, due: Duration, node: Weak<ClaimedNode>) {
        self.attending.push(now, due, node, Attention::Watch);
    }

    /// Makes a node's call when it is still held at `due`.
    pub(crate) fn call(&self, now: Duration, due: Duration, node: Weak<ClaimedNode>) {
        self.attending.push(now, due, node, Attention::Call);
    }

    /// Writes a node's data once more, if it is held at `due`.
    pub(crate) fn touch(&self, now: Duration, due: Duration, node: Weak<ClaimedNode>, data: Vec<u8>) {
        self.attending.push(now, due, node, Attention::Touch(data));
    }

    /// Resolves when there is nothing left to delete.
    pub(crate) async fn cleaned(&self) {
        loop {
            let changed = self.cleaning.changed.notified();
            if self.cleaning.open.load(Ordering::SeqCst) == 0 {
                return;
            }
            changed.await;
        }
    }
}

/// The task that does the jobs of one session and ends with it.
#[derive(Debug)]
pub(crate) struct HousekeepingTask {
    jobs: mpsc::UnboundedReceiver<Job>,
    attending: Arc<Attending>,
    cleaning: Arc<Cleaning>,
    leftovers: Arc<Leftovers>,
    reaper: Arc<Reaper>,
}

/// A job under way; what could not be deleted comes back.
type Running = Pin<Box<dyn Future<Output = Option<Left>> + Send>>;

/// A node that could not be deleted.
struct Left {
    remains: Remains,
    /// The server refused the delete, which is not tried again at once.
    refused: bool,
}

/// Waits before a refused delete is tried again, no longer than the session lasts.
async fn wait_after_refusal(session: Session, remains: Remains) -> Option<Left> {
    tokio::select! {
        _ = session.ended() => {}
        () = tokio::time::sleep(session.timeout() / 8) => {}
    }
    Some(Left { remains, refused: false })
}

impl HousekeepingTask {
    pub(crate) async fn run(mut self, session: Session) {
        let mut waiting: VecDeque<Remains> = VecDeque::new();
        let mut running: FuturesUnordered<Running> = FuturesUnordered::new();
        // Beside them: whoever began these is not to keep the others waiting.
        let mut begun: FuturesUnordered<Running> = FuturesUnordered::new();
        loop {
            let now = session.clock().now();
            while running.len() < AT_ONCE {
                if let Some(remains) = waiting.pop_front() {
                    running.push(Box::pin(clean(session.clone(), remains, Arc::clone(&self.cleaning))));
                } else if let Some((node, how)) = self.attending.pop_due(now) {
                    match how {
                        Attention::Watch => running.push(Box::pin(guard(session.clone(), node))),
                        Attention::Call => {
                            if let Some(call) = node.upgrade().and_then(|node| node.take_call()) {
                                contained(call);
                            }
                        }
                        Attention::Touch(data) => match node.upgrade() {
                            // Until it is known what comes of that.
                            Some(held) if held.is_being_deleted() => {
                                self.attending.push(now, now.saturating_add(RETRY_PAUSE), node, Attention::Touch(data));
                            }
                            Some(held) => running.push(Box::pin(touch(session.clone(), Arc::clone(&held.path), data))),
                            None => {}
                        },
                    }
                } else if let Some(idle) = self.reaper.take_due(now) {
                    running.push(Box::pin(reap(session.clone(), idle, Arc::clone(&self.reaper))));
                } else {
                    break;
                }
            }
            let due = [self.attending.wait_until_due(), self.reaper.next_due()].into_iter().flatten().min();
            let next_due = due.filter(|_| running.len() < AT_ONCE);
            tokio::select! {
                biased;
                _ = session.ended() => break,
                Some(left) = running.next() => {
                    match left {
                        // Beside the others, so that refused deletes do not hold them up.
                        Some(Left { remains, refused: true }) => {
                            begun.push(Box::pin(wait_after_refusal(session.clone(), remains)));
                        }
                        left => waiting.extend(left.map(|left| left.remains)),
                    }
                }
                Some(left) = begun.next() => waiting.extend(left.map(|left| left.remains)),
                job = self.jobs.recv() => match job {
                    Some(Job::Clean(remains)) => waiting.push_back(remains),
                    Some(Job::Finish(job)) => begun.push(job),
                    None => break,
                },
                () = self.attending.earlier.notified() => {}
                () = self.reaper.first_made.notified() => {}
                () = sleep_until_due(next_due, now) => {}
            }
        }
        // The session is over: what was ephemeral goes with it, the rest is for the next one.
        self.jobs.close();
        running.extend(begun);
        while let Ok(job) = self.jobs.try_recv() {
            match job {
                Job::Clean(remains) => waiting.push_back(remains),
                Job::Finish(job) => running.push(job),
            }
        }
        while let Some(left) = running.next().await {
            waiting.extend(left.map(|left| left.remains));
        }
        for remains in waiting {
            self.cleaning.done();
            if !remains.goes_with_session() {
                self.leftovers.add(remains);
            }
        }
    }
}

async fn sleep_until_due(due: Option<Duration>, now: Duration) {
    match due {
        Some(due) => tokio::time::sleep(due.saturating_sub(now)).await,
        None => std::future::pending().await,
    }
}

/// Nodes to be watched, in the order in which that is due. They come in that order but for a few.
#[derive(Default)]
struct Guarded {
    nodes: VecDeque<(Duration, Weak<ClaimedNode>, Attention)>,
    /// How many were left when those that are gone were cleared away.
    kept: usize,
    /// When the first of them was due at the last look.
    waits_until: Option<Duration>,
}

impl fmt::Debug for Guarded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guarded").field("nodes", &self.nodes.len()).finish_non_exhaustive()
    }
}

impl Guarded {
    fn push(&mut self, due: Duration, node: Weak<ClaimedNode>, how: Attention) {
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

    fn pop_due(&mut self, now: Duration) -> Option<(Weak<ClaimedNode>, Attention)> {
        (self.next_due()? <= now).then(|| self.nodes.pop_front()).flatten().map(|(_, node, how)| (node, how))
    }
}

/// Deletes a parent that nobody uses, if it is empty. Whatever comes of it is right: who creates in it at the same time
/// is either first, and it is not empty, or finds it missing and makes it again.
async fn reap(session: Session, idle: Idle, reaper: Arc<Reaper>) -> Option<Left> {
    let deleted = match session.exists(&idle.path).await {
        // What somebody else has made in its place is not ours.
        Ok(stat) if stat.is_none_or(|stat| stat.czxid != idle.czxid) => Err(Error::NoNode { path: idle.path.clone() }),
        // As ZooKeeper's containers it goes after its last child, not before its first.
        Ok(Some(stat)) if stat.cversion == 0 => return None,
        Ok(stat) => session.delete(&idle.path, stat.map(|stat| stat.version)).await,
        Err(error) => Err(error),
    };
    match deleted {
        Ok(()) => {
            tracing::debug!(path = idle.path, "deleted a parent that nobody used");
            reaper.gone(&idle);
        }
        Err(Error::NoNode { .. }) => reaper.gone(&idle),
        // It is used by somebody else, or there is no connection: an interval later perhaps.
        Err(error) => tracing::debug!(path = idle.path, %error, "a parent stays"),
    }
    None
}

/// Deletes what is left; what cannot be deleted now is given back.
async fn clean(session: Session, remains: Remains, cleaning: Arc<Cleaning>) -> Option<Left> {
    match try_clean(&session, &remains).await {
        Ok(()) => {}
        Err(error) if error.is_retryable() || session.end_reason().is_some() => {
            if session.connected().await.is_ok() {
                tokio::time::sleep(RETRY_PAUSE).await;
            }
            return Some(Left { remains, refused: false });
        }
        Err(error) if remains.goes_with_session() => {
            // It blocks every contender behind it until the session ends: it is tried until it is gone.
            tracing::warn!(%error, ?remains, tried_again = true, "a node cannot be deleted");
            return Some(Left { remains, refused: true });
        }
        Err(error) => tracing::warn!(%error, ?remains, tried_again = false, "a node cannot be deleted"),
    }
    cleaning.done();
    None
}

async fn try_clean(session: &Session, remains: &Remains) -> Result<()> {
    match remains {
        Remains::Guaranteed { path, delete } => delete_if_there(session, path, *delete).await,
        Remains::Claimed { path: Some(path), .. } => delete_if_there(session, path, Delete::default()).await,
        Remains::Claimed { parent, prefix, path: None, .. } => {
            // The list may come from a server that is behind; an answered write is the proof that it is not.
            session.order().await?;
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

/// Writes a node's data once more, unless that was done.
async fn touch(session: Session, path: Arc<str>, data: Vec<u8>) -> Option<Left> {
    loop {
        match session.set_data(&path, data.clone(), Some(0)).await {
            Err(error) if error.is_retryable() => {
                session.connected().await.ok()?;
                tokio::time::sleep(RETRY_PAUSE).await;
            }
            // Done, or it was changed already, or it is gone: whoever watches it was woken.
            _ => return None,
        }
    }
}

/// Tells the owner of a node that is held what its watch says, and sets the watch anew.
pub(crate) fn attend(session: Session, node: &Weak<ClaimedNode>, watch: Watch) {
    let Some(turn) = node.upgrade().map(|node| node.next_turn()) else { return };
    let node = Weak::clone(node);
    watch.on_fire(move |reason| {
        let Some(held) = node.upgrade() else { return };
        match reason {
            WakeReason::Event(EventType::NodeDeleted) => held.set_deleted(),
            WakeReason::SessionEnded(_) => {}
            // Whoever has watched it since then sees to it.
            _ if !held.is_turn(turn) => {}
            _ => {
                let now = session.clock().now();
                session.housekeeping().guard(now, now, node);
            }
        }
    });
}

/// Sets a watch on a node that is held, and tells its owner if it is gone.
async fn guard(session: Session, node: Weak<ClaimedNode>) -> Option<Left> {
    let path = node.upgrade()?.path.clone();
    let mut certain = false;
    loop {
        match session.get_data_watched(&path).await {
            Ok((data, stat, watch)) => {
                node.upgrade()?.was_read(&data, &stat);
                attend(session, &node, watch);
                return None;
            }
            // A server that is behind does not know the node yet; after an answered write it does.
            Err(Error::NoNode { .. }) if !certain => certain = session.order().await.is_ok(),
            Err(Error::NoNode { .. }) => {
                node.upgrade()?.set_deleted();
                return None;
            }
            Err(error) if error.is_retryable() => {
                certain = false;
                session.connected().await.ok()?;
                tokio::time::sleep(RETRY_PAUSE).await;
            }
            Err(_) if session.end_reason().is_some() => return None,
            Err(error) => {
                tracing::warn!(%error, %path, "the node that is held cannot be watched");
                return None;
            }
        }
        if session.end_reason().is_some() || node.strong_count() == 0 {
            return None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_watched_in_the_order_in_which_it_is_due() {
        let nodes: Vec<_> = (0..4).map(|number| Arc::new(ClaimedNode::new(format!("/{number}").into()))).collect();
        let mut guarded = Guarded::default();
        for (due, node) in [(5, 0), (3, 1), (9, 2), (4, 3)] {
            guarded.push(Duration::from_secs(due), Arc::downgrade(&nodes[node]), Attention::Watch);
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
