//! The two ends of a session's background task: the callers' and its own.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::stream::FuturesUnordered;
use tokio::runtime::Handle;

use super::due_queue::{HeldNodes, HeldTask};
use super::jobs::{Attempt, OpenDeletes, Running, Start, StartedJobs};
use super::pending::DeleteBacklog;
use crate::session::container_reaper::ContainerReaper;
use crate::session::known_node::KnownNode;

/// The callers' side of the task.
#[derive(Debug)]
pub(crate) struct Background {
    pub(super) started: Arc<StartedJobs>,
    /// The runtime of the session's tasks, for the timers of a job.
    pub(super) runtime: Handle,
    pub(super) attending: Arc<HeldNodes>,
    pub(super) cleaning: Arc<OpenDeletes>,
    pub(super) leftovers: Arc<DeleteBacklog>,
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

    /// Schedules the callback of a node for `due`, if the node is still held then.
    pub(crate) fn call(&self, now: Duration, due: Duration, node: Weak<KnownNode>) {
        self.attending.push(now, due, node, HeldTask::Call);
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
    pub(super) started: Arc<StartedJobs>,
    pub(super) attending: Arc<HeldNodes>,
    pub(super) cleaning: Arc<OpenDeletes>,
    pub(super) leftovers: Arc<DeleteBacklog>,
    pub(super) reaper: Arc<ContainerReaper>,
    pub(super) running: FuturesUnordered<Running>,
    pub(super) reaping: FuturesUnordered<Pin<Box<dyn Future<Output = ()> + Send>>>,
    pub(super) pausing: FuturesUnordered<Pin<Box<dyn Future<Output = Attempt> + Send>>>,
}

impl Drop for BackgroundTask {
    fn drop(&mut self) {
        // The jobs own the session, which owns their list. Their drop starts further jobs, so it needs the lock.
        let jobs = self.started.jobs.lock().take();
        drop(jobs);
    }
}
