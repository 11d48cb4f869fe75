//! A change in the queue, with the tries that its retry policy allows, and its end. Pure: time is an argument.

use std::sync::Arc;
use std::time::Duration;

use curator_framework::{RetryAttempt, RetryPolicy};
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::counters::effect::{Change, Effect};
use crate::counters::error::CounterError;

/// The end of a change without an effect.
#[derive(Debug)]
pub(super) enum Failure {
    /// The retry policy gave up.
    Contended,
    Error(CounterError),
}

/// The end of a change.
#[derive(Debug)]
pub(super) struct Outcome<V> {
    pub(super) result: Result<Effect<V>, Failure>,
    /// The number of writes that carried the change.
    pub(super) tries: u32,
}

/// The tries that a retry policy allows. As in Curator the policy decides on the number of retries and on the pauses
/// between them. Tries within such a pause do not count.
#[derive(Debug)]
pub(super) struct Patience {
    policy: Arc<dyn RetryPolicy>,
    began: Instant,
    retries: u32,
    pause_ends: Instant,
}

impl Patience {
    /// Returns `true` if another try is allowed.
    pub(super) fn allows(&mut self, now: Instant, random: f64) -> bool {
        if now < self.pause_ends {
            return true;
        }
        let attempt = RetryAttempt { count: self.retries, elapsed: now.duration_since(self.began), random };
        let Some(pause) = self.policy.next_pause(attempt) else { return false };
        self.retries = self.retries.saturating_add(1);
        // A pause without an end allows every try.
        self.pause_ends = now.checked_add(pause).unwrap_or_else(|| now + Duration::from_secs(86_400 * 365));
        true
    }
}

/// A change that is not decided yet.
#[derive(Debug)]
pub(super) struct Queued<V> {
    pub(super) id: u64,
    pub(super) change: Change<V>,
    /// `None` once the caller is gone.
    pub(super) caller: Option<oneshot::Sender<Outcome<V>>>,
    pub(super) tries: u32,
    /// The newest write rests on a state that was read after the change was queued. A refusal of an older one is not a
    /// try in Curator's sense, which reads first.
    pub(super) is_fresh: bool,
    /// The change gets a write of its own, because a common one could not be sent.
    pub(super) is_alone: bool,
    pub(super) patience: Patience,
}

impl<V> Queued<V> {
    /// Describes a change that has not been tried. Also returns the channel of its outcome.
    pub(super) fn new(
        id: u64,
        change: Change<V>,
        policy: Arc<dyn RetryPolicy>,
        now: Instant,
    ) -> (Self, oneshot::Receiver<Outcome<V>>) {
        let (caller, outcome) = oneshot::channel();
        let patience = Patience { policy, began: now, retries: 0, pause_ends: now };
        (Self { id, change, caller: Some(caller), tries: 0, is_fresh: false, is_alone: false, patience }, outcome)
    }

    /// Passes the result to the caller, if it still waits.
    pub(super) fn end(mut self, result: Result<Effect<V>, Failure>) {
        if let Some(caller) = self.caller.take() {
            // An error means that the caller is gone.
            drop(caller.send(Outcome { result, tries: self.tries }));
        }
    }
}
