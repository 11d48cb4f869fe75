//! The jobs that callers start and the task finishes.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Wake, Waker};

use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::Notify;

use super::due_queue::HeldTask;
use super::pending::PendingDelete;
use crate::session::known_node::KnownNode;
use crate::sync::panics::caught;
use crate::sync::watch_cell::WatchCell;

/// A job that is due.
#[derive(Debug)]
pub(super) enum DueJob {
    Delete(PendingDelete),
    Held(Weak<KnownNode>, HeldTask),
}

/// The next attempt at a job.
#[derive(Debug)]
pub(super) struct Attempt {
    pub(super) job: DueJob,
    /// The number of attempts that failed.
    pub(super) failures: u32,
    /// The epoch of the attempt that failed last.
    pub(super) epoch: u64,
}

impl Attempt {
    pub(super) fn first(job: DueJob) -> Self {
        Self { job, failures: 0, epoch: 0 }
    }
}

/// A running job. It resolves with an attempt that has failed.
pub(super) type Running = Pin<Box<dyn Future<Output = Option<Attempt>> + Send>>;

/// The jobs that callers have started, for the task to finish.
pub(super) struct StartedJobs {
    /// `None` when the task has ended.
    pub(super) jobs: Mutex<Option<Vec<Running>>>,
    /// The number of wake-ups of jobs in this list.
    wakes: AtomicU64,
    pub(super) woken: Notify,
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
pub(super) enum Start {
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
    pub(super) fn start(self: &Arc<Self>, runtime: &Handle, mut job: Running) -> Start {
        if self.jobs.lock().is_none() {
            return Start::Ended;
        }
        let wakes = self.wakes.load(Ordering::SeqCst);
        let waker = Waker::from(Arc::clone(self));
        // It panics in the destructor of a variable of a thread that ends. Then the task polls the job.
        let Ok(entered) = caught(|| runtime.enter()) else {
            return self.keep(job, true);
        };
        let poll = || {
            let unconstrained = std::pin::pin!(tokio::task::coop::unconstrained(&mut job));
            unconstrained.poll(&mut Context::from_waker(&waker))
        };
        let polled = caught(poll);
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

/// The number of nodes that are still to be deleted.
#[derive(Debug, Default)]
pub(super) struct OpenDeletes(pub(super) WatchCell<usize>);

impl OpenDeletes {
    pub(super) fn begin(&self) {
        self.0.modify(|open| *open += 1);
    }

    pub(super) fn done(&self) {
        self.0.modify(|open| *open -= 1);
    }
}
