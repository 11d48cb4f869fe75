//! The filter that spares listeners the changes of a flapping connection: pure functions, without timers.
//!
//! Curator's circuit breaking (CURATOR-505), with one breaker for all listeners of a client (CURATOR-533).

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::retry::{RetryAttempt, RetryPolicy};
use crate::state::connection_state::ConnectionState;

/// A circuit that a retry policy holds open: Curator's `CircuitBreaker`.
#[derive(Debug)]
pub(crate) struct CircuitBreaker {
    policy: Arc<dyn RetryPolicy>,
    opened: Option<Opened>,
}

#[derive(Debug)]
struct Opened {
    since: Instant,
    retries: u32,
}

impl CircuitBreaker {
    pub(crate) fn new(policy: Arc<dyn RetryPolicy>) -> Self {
        Self { policy, opened: None }
    }

    /// Opens the circuit and returns the pause before the next look. Returns `None` if the circuit is open already, or
    /// if the policy gives up at once, so that it stays closed.
    pub(crate) fn try_to_open(&mut self, now: Instant, random: f64) -> Option<Duration> {
        if self.opened.is_some() {
            return None;
        }
        self.opened = Some(Opened { since: now, retries: 0 });
        let pause = self.try_to_retry(now, random);
        if pause.is_none() {
            self.close();
        }
        pause
    }

    /// Returns how much longer the circuit stays open. Returns `None` if it is closed, or if the policy gives up, which
    /// does not close it.
    pub(crate) fn try_to_retry(&mut self, now: Instant, random: f64) -> Option<Duration> {
        let opened = self.opened.as_mut()?;
        let elapsed = now.saturating_duration_since(opened.since);
        let pause = self.policy.next_pause(RetryAttempt { count: opened.retries, elapsed, random })?;
        opened.retries = opened.retries.saturating_add(1);
        Some(pause)
    }

    /// Closes the circuit and forgets its retries. Returns `true` if it was open.
    pub(crate) fn close(&mut self) -> bool {
        self.opened.take().is_some()
    }

    #[cfg(test)]
    fn retries(&self) -> u32 {
        self.opened.as_ref().map_or(0, |opened| opened.retries)
    }
}

/// The filter of connection states behind a breaker: Curator's `CircuitBreakingConnectionStateListener`.
///
/// A closed circuit passes every state. The first state without a connection passes and opens it. An open circuit
/// passes only the first `Lost` after `Suspended`, and keeps the newest state. It checks that after each pause of the
/// policy. If that state is connected, or the policy gives up, the circuit closes. Then it passes the newest state,
/// unless it has passed that one last.
#[derive(Debug)]
pub(crate) struct CircuitBreakingConnectionStateListener {
    breaker: CircuitBreaker,
    open: Option<OpenCircuit>,
}

#[derive(Debug)]
struct OpenCircuit {
    /// The state that was passed last.
    told: ConnectionState,
    newest: ConnectionState,
}

/// The result of a change or of a look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Step {
    /// The state to pass to the listeners.
    pub(crate) forward: Option<ConnectionState>,
    /// The time after which to check again.
    pub(crate) look_after: Option<Duration>,
}

impl CircuitBreakingConnectionStateListener {
    pub(crate) fn new(policy: Arc<dyn RetryPolicy>) -> Self {
        Self { breaker: CircuitBreaker::new(policy), open: None }
    }

    pub(crate) fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// Handles a change of the connection state.
    pub(crate) fn state_changed(&mut self, state: ConnectionState, now: Instant, random: f64) -> Step {
        let Some(open) = &mut self.open else {
            let look_after = if state.is_connected() { None } else { self.breaker.try_to_open(now, random) };
            self.open = look_after.map(|_| OpenCircuit { told: state, newest: state });
            return Step { forward: Some(state), look_after };
        };
        open.newest = state;
        // Only the opening state and `Lost` have passed since the circuit opened.
        let first_loss = state == ConnectionState::Lost && open.told != ConnectionState::Lost;
        if first_loss {
            open.told = state;
        }
        Step { forward: first_loss.then_some(state), look_after: None }
    }

    /// Handles the end of a pause: checks the newest state.
    pub(crate) fn look(&mut self, now: Instant, random: f64) -> Step {
        let Some(open) = &self.open else { return Step::default() };
        let look_after = if open.newest.is_connected() { None } else { self.breaker.try_to_retry(now, random) };
        if look_after.is_some() {
            return Step { forward: None, look_after };
        }
        let forward = (open.newest != open.told).then_some(open.newest);
        self.close();
        Step { forward, look_after: None }
    }

    /// Closes the circuit and forgets the states that it kept.
    pub(crate) fn close(&mut self) {
        self.open = None;
        self.breaker.close();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::ConnectionState::{Connected, Lost, ReadOnly, Reconnected, Suspended};
    use super::*;
    use crate::retry::{RetryForever, RetryNTimes, RetryOneTime, RetryUntilElapsed};

    const PAUSE: Duration = Duration::from_secs(10);

    /// Curator's `TestCircuitBreaker.testBasic`.
    #[test]
    fn a_breaker_opens_once_and_retries_as_often_as_the_policy_says() {
        let mut breaker = CircuitBreaker::new(Arc::new(RetryNTimes::new(1, PAUSE)));
        let now = Instant::now();
        assert_eq!(breaker.try_to_open(now, 0.0), Some(PAUSE));
        assert_eq!((breaker.try_to_open(now, 0.0), breaker.retries()), (None, 1));
        assert_eq!((breaker.try_to_retry(now, 0.0), breaker.retries()), (None, 1));
        assert!(breaker.close());
        assert_eq!(breaker.retries(), 0);
        assert!(!breaker.close());
        assert_eq!(breaker.try_to_open(now, 0.0), Some(PAUSE));
    }

    /// Curator's `TestCircuitBreaker.testVariousOpenRetryFails`.
    #[test]
    fn a_closed_breaker_does_not_retry_and_an_open_one_does_not_open() {
        let mut breaker = CircuitBreaker::new(Arc::new(RetryForever::new(PAUSE).unwrap()));
        let now = Instant::now();
        assert_eq!(breaker.try_to_retry(now, 0.0), None);
        assert_eq!(breaker.try_to_open(now, 0.0), Some(PAUSE));
        assert_eq!(breaker.try_to_open(now, 0.0), None);
        assert!(breaker.close());
        assert!(!breaker.close());
    }

    /// Curator's `TestCircuitBreaker.testWithRetryUntilElapsed`, and the elapsed time.
    #[test]
    fn a_breaker_counts_the_time_since_it_opened() {
        let mut breaker = CircuitBreaker::new(Arc::new(RetryUntilElapsed::new(2 * PAUSE, PAUSE).unwrap()));
        let now = Instant::now() + PAUSE;
        assert_eq!(breaker.try_to_open(now, 0.0), Some(PAUSE));
        assert_eq!(breaker.try_to_retry(now + PAUSE, 0.0), Some(PAUSE));
        assert_eq!(breaker.try_to_retry(now + 2 * PAUSE, 0.0), None);
        // A clock that goes back does not give a negative time.
        assert_eq!(breaker.try_to_retry(now - PAUSE, 0.0), Some(PAUSE));
    }

    /// A policy that retries until it is switched off.
    #[derive(Debug)]
    struct Switch(AtomicBool);

    impl RetryPolicy for Switch {
        fn next_pause(&self, _attempt: RetryAttempt) -> Option<Duration> {
            self.0.load(Ordering::SeqCst).then_some(PAUSE)
        }
    }

    struct Circuit(CircuitBreakingConnectionStateListener);

    impl Circuit {
        fn new(policy: impl RetryPolicy) -> Self {
            Self(CircuitBreakingConnectionStateListener::new(Arc::new(policy)))
        }

        fn change(&mut self, state: ConnectionState) -> Step {
            self.0.state_changed(state, Instant::now(), 0.0)
        }

        fn look(&mut self) -> Step {
            self.0.look(Instant::now(), 0.0)
        }

        fn swallows(&mut self, states: &[ConnectionState]) {
            for &state in states {
                assert_eq!(self.change(state), Step::default(), "{state}");
                assert!(self.0.is_open());
            }
        }
    }

    fn forward(state: ConnectionState) -> Step {
        Step { forward: Some(state), look_after: None }
    }

    fn forward_and_look(state: ConnectionState) -> Step {
        Step { forward: Some(state), look_after: Some(PAUSE) }
    }

    const LOOK_AGAIN: Step = Step { forward: None, look_after: Some(PAUSE) };

    /// Curator's `TestCircuitBreakingConnectionStateListener.testBasic`.
    #[test]
    fn the_newest_state_passes_when_the_policy_gives_up() {
        let switch = Arc::new(Switch(AtomicBool::new(true)));
        let mut circuit = Circuit::new(Arc::clone(&switch));
        assert_eq!(circuit.change(Reconnected), forward(Reconnected));
        assert_eq!(circuit.change(Suspended), forward_and_look(Suspended));
        circuit.swallows(&[Suspended]);
        assert_eq!(circuit.change(Lost), forward(Lost));
        circuit.swallows(&[ReadOnly, Reconnected, Suspended, Lost, Suspended]);
        assert_eq!(circuit.look(), LOOK_AGAIN);
        assert_eq!(circuit.look(), LOOK_AGAIN);
        switch.0.store(false, Ordering::SeqCst);
        assert_eq!(circuit.look(), forward(Suspended));
        assert!(!circuit.0.is_open());
        assert_eq!(circuit.look(), Step::default(), "a timer that comes late");
    }

    /// Curator's `TestCircuitBreakingConnectionStateListener.testResetsAfterReconnect`.
    #[test]
    fn a_connection_closes_the_circuit() {
        let mut circuit = Circuit::new(RetryForever::new(PAUSE).unwrap());
        assert_eq!(circuit.change(Lost), forward_and_look(Lost));
        circuit.swallows(&[Lost, Reconnected]);
        assert_eq!(circuit.look(), forward(Reconnected));
        assert!(!circuit.0.is_open());
        assert_eq!(circuit.change(Suspended), forward_and_look(Suspended), "it opens again");
    }

    /// Curator's `TestCircuitBreakingConnectionStateListener.testRetryNever`.
    #[test]
    fn without_retries_everything_passes() {
        let mut circuit = Circuit::new(RetryNTimes::new(0, PAUSE));
        for state in [Lost, Lost, Suspended, Connected, Lost] {
            assert_eq!(circuit.change(state), forward(state));
            assert!(!circuit.0.is_open());
        }
    }

    #[test]
    fn a_circuit_that_was_not_to_open_may_open_later() {
        let switch = Arc::new(Switch(AtomicBool::new(false)));
        let mut circuit = Circuit::new(Arc::clone(&switch));
        assert_eq!(circuit.change(Suspended), forward(Suspended));
        switch.0.store(true, Ordering::SeqCst);
        assert_eq!(circuit.change(Lost), forward_and_look(Lost));
    }

    /// Curator's `TestCircuitBreakingConnectionStateListener.testRetryOnce`.
    #[test]
    fn one_retry_is_one_pause() {
        let mut circuit = Circuit::new(RetryOneTime::new(PAUSE));
        assert_eq!(circuit.change(Lost), forward_and_look(Lost));
        circuit.swallows(&[Suspended]);
        assert_eq!(circuit.look(), forward(Suspended));
        assert!(!circuit.0.is_open());
    }

    /// Curator's `TestCircuitBreakingConnectionStateListener.testSuspendedToLostRatcheting`.
    #[test]
    fn only_the_first_loss_passes() {
        let noise = [Reconnected, ReadOnly, Suspended, Suspended, Suspended, Reconnected, ReadOnly, Suspended];
        let mut circuit = Circuit::new(RetryForever::new(PAUSE).unwrap());
        assert_eq!(circuit.change(Reconnected), forward(Reconnected));
        assert!(!circuit.0.is_open());
        assert_eq!(circuit.change(Suspended), forward_and_look(Suspended));
        circuit.swallows(&noise);
        assert_eq!(circuit.change(Lost), forward(Lost));
        circuit.swallows(&noise);
        circuit.swallows(&[Reconnected, Suspended, Lost, Lost, Reconnected, ReadOnly, Lost, Suspended, Lost]);
    }

    #[test]
    fn what_the_listeners_know_already_is_not_told_again() {
        let mut circuit = Circuit::new(RetryOneTime::new(PAUSE));
        assert_eq!(circuit.change(Suspended), forward_and_look(Suspended));
        circuit.swallows(&[Reconnected, Suspended]);
        assert_eq!(circuit.look(), Step::default());
        assert!(!circuit.0.is_open());
        assert_eq!(circuit.change(Lost), forward_and_look(Lost));
        circuit.swallows(&[Reconnected, Lost]);
        assert_eq!(circuit.look(), Step::default());
        assert_eq!(circuit.change(Reconnected), forward(Reconnected));
    }
}
