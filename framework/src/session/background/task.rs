//! The task that runs the jobs of one session.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::stream::StreamExt as _;

use super::attempt::{RETRY_PAUSE, attempt_once, pause};
use super::due_queue::HeldTask;
use super::jobs::{Attempt, DueJob, Running};
use super::queues::BackgroundTask;
use crate::error::{Chain, Error};
use crate::session::Session;
use crate::session::container_reaper::{ContainerReaper, IdleParent};
use crate::sync::report::report;
use crate::sync::user_code::catch_panic;
use crate::zookeeper::SessionEnd;

/// The number of idle parents that are checked at once. The other jobs are small and urgent: only the session's window of
/// requests limits them.
const REAPS_AT_ONCE: usize = 16;
/// The part of the session timeout after which the task checks for jobs without being woken.
const LOOKS: u32 = 16;

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
                let look = node.upgrade()?.long_hold().lock().look(now);
                match look {
                    Ok(Some(call)) => {
                        // The panic is logged.
                        let _panicked = catch_panic("callback for a long hold", call);
                    }
                    Ok(None) => {}
                    // Another holder has got the node since.
                    Err(due) => self.attending.push(now, due, node, HeldTask::Call),
                }
                None
            }
            DueJob::Held(node, HeldTask::Touch(data)) if node.upgrade()?.is_being_deleted() => {
                if !node.upgrade()?.is_given_up() {
                    // The outcome of the delete is not known yet, so check again later.
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

    /// Ends the jobs of a session that has ended: the server deletes its ephemeral nodes, and the next session deletes
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
