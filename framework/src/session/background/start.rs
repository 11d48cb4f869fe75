//! Starts of jobs by callers.

use std::sync::{Arc, Weak};
use std::time::Duration;

use super::attempt::attempt_once;
use super::due_queue::HeldTask;
use super::jobs::{Attempt, DueJob, Start};
use super::pending::PendingDelete;
use super::queues::Background;
use crate::model::namespace::Namespace;
use crate::session::Session;
use crate::session::known_node::KnownNode;
use crate::zookeeper::SessionEnd;

impl Background {
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

    /// Starts a job on the thread of the caller. A panic ends the session, because a node with a
    /// lost delete would stay.
    fn start(&self, session: &Session, job: DueJob) -> Start {
        // The jobs have the server's paths, and an owned node outlives the connection.
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

    /// Writes a node's data, or schedules that if its delete has an unknown outcome.
    pub(crate) fn touch(&self, session: &Session, now: Duration, node: Weak<KnownNode>, data: Vec<u8>) {
        if node.upgrade().is_some_and(|node| node.is_being_deleted()) {
            return self.attending.push(now, now, node, HeldTask::Touch(data));
        }
        // The end of a session wakes the waiters behind it too.
        let _started = self.start(session, DueJob::Held(node, HeldTask::Touch(data)));
    }
}
