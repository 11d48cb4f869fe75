//! Until when a session is certainly alive, and its end.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::Session;
use super::deadlines::Passed;
use super::state::{Inner, LivenessState};
use super::timers::SessionTimes;
use crate::error::Error;
use crate::sync::user_code::catch_panic;
use crate::zookeeper::{Evidence, Reply, SessionEnd};

impl Session {
    /// Returns the session timeout in effect: the smallest one that a server has granted to this session.
    #[must_use]
    #[doc(alias = "getLastNegotiatedSessionTimeoutMs")]
    pub fn timeout(&self) -> Duration {
        self.inner.liveness_state.lock().liveness.timeout()
    }

    /// Returns the deadline: until when the session is certainly alive, on the client's clock. While an owned node
    /// exists, only what the leader knows counts.
    pub(crate) fn deadline(&self) -> Duration {
        let liveness_state = self.inner.liveness_state.lock();
        liveness_state.liveness.deadline(liveness_state.evidence())
    }

    /// Returns the times of loss, of silence and of the next heartbeat.
    pub(crate) fn times(&self) -> SessionTimes {
        let is_connected = self.is_connected();
        let liveness_state = self.inner.liveness_state.lock();
        let (liveness, evidence) = (&liveness_state.liveness, liveness_state.evidence());
        SessionTimes {
            timeout: liveness.timeout(),
            deadline: liveness.deadline(evidence),
            suspend_at: liveness.suspend_at(evidence),
            heartbeat: liveness.heartbeat(evidence),
            evidence,
            is_connected,
        }
    }

    /// Returns how long the session is certainly alive if no further reply comes. Local, no request.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        if self.end_reason().is_some() {
            return Duration::ZERO;
        }
        self.deadline().saturating_sub(self.inner.clock.now())
    }

    /// Returns `true` while the session is certainly alive. It compares the clock with the deadline and depends on no
    /// timer, so it is right also at the first call after the process or the machine slept.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        !self.remaining().is_zero()
    }

    /// Returns whether a node that the session creates now would be held. After the machine has slept it would not, for up
    /// to a quarter of the session timeout: the server that answers has not reported the session to the leader yet.
    #[must_use]
    pub fn can_hold(&self) -> bool {
        if self.end_reason().is_some() {
            return false;
        }
        let (now, epoch) = (self.inner.clock.now(), self.epoch());
        self.inner.liveness_state.lock().liveness.can_hold(now, epoch)
    }

    /// Returns the reason of the session's end, or `None` while it lasts.
    #[must_use]
    pub fn end_reason(&self) -> Option<SessionEnd> {
        self.inner.end.get().copied()
    }

    /// Resolves with the reason when the session ends, at once if it has ended.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    pub async fn ended(&self) -> SessionEnd {
        *self.inner.end.wait().await
    }

    /// Ends the session, once: resolves [`ended`](Self::ended), wakes all watches, ends the handle and reports the
    /// loss of all owned nodes.
    pub(crate) fn finish(&self, end: SessionEnd) {
        self.inner.finish(end);
    }

    pub(crate) fn set_shortened(&self, sent: Duration, timeout: Duration) {
        self.change_liveness(|state| state.liveness.shortened(sent, timeout));
    }

    /// Records the reply to a heartbeat, which gives this evidence.
    pub(crate) fn on_heartbeat(&self, reply: &Reply, evidence: Evidence) {
        let alive = matches!(reply.result, Ok(_) | Err(Error::NoNode { .. }));
        if let (true, Some(sent)) = (alive, reply.sent) {
            self.answered_at(self.inner.clock.now(), sent, reply.epoch, evidence);
        }
    }

    pub(super) fn answered_at(&self, now: Duration, sent: Duration, epoch: u64, evidence: Evidence) {
        self.change_liveness(|state| state.liveness.answered(sent, now, epoch, evidence));
    }

    /// Changes the inputs of the deadline, and has the thread of the deadlines watch the new one.
    pub(super) fn change_liveness(&self, change: impl FnOnce(&mut LivenessState)) {
        let mut state = self.inner.liveness_state.lock();
        change(&mut state);
        let evidence = state.evidence();
        let deadline = state.liveness.deadline(evidence);
        let warning = match self.inner.silence_is_error {
            true => deadline.saturating_sub(state.liveness.suspend_at(evidence)),
            false => Duration::ZERO,
        };
        self.inner.watched_deadline.set(deadline, warning);
    }

    pub(crate) fn add_owned_node(&self) {
        self.change_liveness(|state| {
            state.owned_nodes += 1;
            if state.owned_nodes == 1 {
                state.liveness.on_first_owned_node();
                if !std::mem::replace(&mut state.reported_owning, true) {
                    self.inner.handle.set_owning(true);
                }
            }
        });
    }

    pub(crate) fn remove_owned_node(&self) {
        self.change_liveness(|state| state.owned_nodes -= 1);
    }

    /// Notifies the handle if the session no longer owns a node.
    pub(crate) fn report_owning(&self) {
        let mut liveness_state = self.inner.liveness_state.lock();
        if liveness_state.owned_nodes == 0 && std::mem::take(&mut liveness_state.reported_owning) {
            self.inner.handle.set_owning(false);
        }
    }
}

impl Inner {
    /// Records that a time has passed, and does what follows.
    pub(super) fn on_passed(&self, passed: Passed) {
        // A waker that panics does not keep the watches from waking.
        let _panicked = catch_panic("waker of a task", || self.record_passed(passed));
        match passed {
            Passed::Deadline => self.complete_end(),
            Passed::Silence => self.watches.all_lost(),
        }
    }

    /// Records that a time has passed, and wakes the tasks that await a loss.
    pub(super) fn record_passed(&self, passed: Passed) {
        match passed {
            Passed::Deadline => {
                // Another end may have come first.
                let _first = self.end.set(SessionEnd::DeadlinePassed);
            }
            Passed::Silence => {
                self.count_error_state();
            }
        }
    }

    pub(super) fn finish(&self, end: SessionEnd) {
        // Another end may have come first.
        let _first = self.end.set(end);
        self.complete_end();
    }

    /// Does what follows the end, once. A panic in one step, such as in a clock of the user, does not keep the others
    /// from running.
    fn complete_end(&self) {
        let Some(&end) = self.end.get() else { return };
        if self.ending.swap(true, Ordering::SeqCst) {
            return;
        }
        self.watched_deadline.end();
        let steps: [&dyn Fn(); 3] =
            [&|| self.watches.session_ended(end), &|| self.handle.end(), &|| self.watches.all_lost()];
        for step in steps {
            // The panic is logged, and the other steps follow.
            let _panicked = catch_panic("code that a session calls at its end", step);
        }
    }
}
