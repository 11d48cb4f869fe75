//! The proxy's commands and counters.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::watch;

use crate::server::Traffic;
use crate::wire::OpCode;

/// The state, and a signal for tasks that wait for its change.
#[derive(Debug)]
pub(super) struct Shared {
    state: Mutex<State>,
    changed: watch::Sender<()>,
}

impl Default for Shared {
    fn default() -> Self {
        Self { state: Mutex::default(), changed: watch::Sender::new(()) }
    }
}

impl Shared {
    /// Locks the state. Bytes are passed on only under this lock: that is why a call such as `partition` holds from the
    /// moment it returns.
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Changes the state and wakes all waiting tasks.
    pub(super) fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let result = change(&mut self.state.lock());
        self.changed.send_replace(());
        result
    }

    /// Returns a receiver of every change from now on.
    pub(super) fn subscribe(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    pub(super) async fn wait_until(&self, done: impl Fn(&State) -> bool) {
        let mut changed = self.subscribe();
        loop {
            if done(&self.lock()) {
                return;
            }
            // An error would mean that this value was dropped.
            drop(changed.changed().await);
        }
    }

    #[track_caller]
    pub(super) fn plan(&self, fault: Fault, op: OpCode, nth: usize) {
        assert_ne!(nth, 0, "the first one is number 1");
        self.change(|state| state.planned.push(Planned { fault, op, left: nth }));
    }
}

#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) partitioned: bool,
    pub(super) refusing: bool,
    pub(super) latency: Duration,
    pub(super) late_answer: Duration,
    /// The number of re-attaches that are still to be swapped.
    pub(super) swaps: usize,
    planned: Vec<Planned>,
    /// Grows with every reset; connections of an earlier epoch have ended.
    pub(super) epoch: u64,
    pub(super) open: usize,
    pub(super) total: usize,
    pub(super) faults: usize,
    pub(super) replies: HashMap<OpCode, usize>,
    pub(super) reads: HashMap<OpCode, usize>,
    pub(super) traffic: Traffic,
}

impl State {
    /// Counts a request of kind `op`. Returns whether it must not reach the server.
    pub(super) fn strikes_request(&mut self, op: OpCode) -> bool {
        self.strike(op, |fault| fault == Fault::DropRequest).is_some()
    }

    /// Counts a reply to a request of kind `op`. Returns the fault that hits it.
    pub(super) fn strikes_reply(&mut self, op: OpCode) -> Option<Fault> {
        let struck = self.strike(op, |fault| fault != Fault::DropRequest);
        if struck.is_none() {
            *self.replies.entry(op).or_default() += 1;
        }
        struck
    }

    fn strike(&mut self, op: OpCode, concerns: impl Fn(Fault) -> bool) -> Option<Fault> {
        let mut struck = None;
        self.planned.retain_mut(|planned| {
            if planned.op != op || !concerns(planned.fault) {
                return true;
            }
            if planned.left > 1 {
                planned.left -= 1;
                return true;
            }
            if struck.is_some() {
                // One fault at a time: this one strikes next time.
                return true;
            }
            struck = Some(planned.fault);
            false
        });
        struck
    }
}

#[derive(Debug)]
struct Planned {
    fault: Fault,
    op: OpCode,
    /// The number of messages still to count, including the struck one.
    left: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    DropRequest,
    DropReply,
    CutReply,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fault_strikes_the_nth_of_its_kind_once() {
        let shared = Shared::default();
        shared.plan(Fault::DropReply, OpCode::Create, 2);
        let mut state = shared.lock();
        assert_eq!(state.strikes_reply(OpCode::Create), None);
        assert_eq!(state.strikes_reply(OpCode::Delete), None);
        assert!(!state.strikes_request(OpCode::Create));
        assert_eq!(state.strikes_reply(OpCode::Create), Some(Fault::DropReply));
        assert_eq!(state.strikes_reply(OpCode::Create), None);
    }

    #[test]
    fn fault_that_meets_an_earlier_one_strikes_the_next() {
        let shared = Shared::default();
        shared.plan(Fault::DropReply, OpCode::Create, 2);
        shared.plan(Fault::CutReply, OpCode::Create, 2);
        let mut state = shared.lock();
        assert_eq!(state.strikes_reply(OpCode::Create), None);
        assert_eq!(state.strikes_reply(OpCode::Create), Some(Fault::DropReply));
        assert_eq!(state.strikes_reply(OpCode::Create), Some(Fault::CutReply));
        assert_eq!(state.strikes_reply(OpCode::Create), None);
    }

    #[test]
    #[should_panic(expected = "number 1")]
    fn there_is_no_zeroth_reply() {
        Shared::default().plan(Fault::DropReply, OpCode::Create, 0);
    }
}
