//! Listeners to the connection state.
//!
//! The listeners are in this folder, and the states that they receive are in `state/`. The trait
//! `ConnectionStateListener` hands user code a `CuratorFramework`. Below the client it would close a circle of imports.

use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

use super::framework::{Circuit, ListenersState};
use crate::client::{ConnectionStateListenable, ConnectionStateListener, CuratorFramework, WeakClient};
use crate::environment::randomness::{Randomness, unit_interval};
use crate::error::Error;
use crate::retry::RetryPolicy;
use crate::state::circuit_breaker::{CircuitBreakingConnectionStateListener, Step};
use crate::state::connection_state::ConnectionState;
use crate::sync::listeners::{ListenerId, Listeners};
use crate::sync::report::report;

/// The shortest time between two checks of an open circuit: a policy without pauses must not keep a processor busy.
const SHORTEST_LOOK: Duration = Duration::from_millis(1);

impl CuratorFramework {
    /// Returns the listeners to the connection's state.
    #[must_use]
    pub fn connection_state_listenable(&self) -> &ConnectionStateListenable {
        &self.listeners
    }

    /// Calls a closure with errors that no caller gets, and with what failed: Curator's `UnhandledErrorListener`. These are
    /// refusals by a server, of the tasks that delete nodes in the background and that watch the nodes of guards. A lost
    /// connection is not such an error. The crate `tracing` gets a warning of each as well.
    ///
    /// A task that tries again does not report each try. The closure has a thread of its own, and may block. It must
    /// not own a clone of the client, which it would keep open. [`close`](Self::close) drops it.
    #[doc(alias = "UnhandledErrorListener")]
    #[doc(alias = "getUnhandledErrorListenable")]
    pub fn add_error_listener(&self, listener: impl Fn(&str, &Error) + Send + Sync + 'static) -> ListenerId {
        let root = self.core.root().clone();
        let listener = move |what: &str, error: &Error| {
            let mut error = error.clone();
            error.shorten(&|path| root.to_client_path(path));
            listener(what, &error);
        };
        self.core.shared().config.session.unhandled_errors.add(Arc::new(listener))
    }

    /// Removes a listener to errors. Errors before the call may still reach it.
    pub fn remove_error_listener(&self, id: ListenerId) {
        self.core.shared().config.session.unhandled_errors.remove(id);
    }
}

impl ConnectionStateListenable {
    pub(crate) fn new() -> Self {
        Self::with_circuit(None)
    }

    /// Creates listeners behind one circuit breaker, which this policy holds open.
    pub(crate) fn circuit_breaking(policy: impl RetryPolicy, randomness: Arc<dyn Randomness>) -> Self {
        let listener = CircuitBreakingConnectionStateListener::new(Arc::new(policy));
        Self::with_circuit(Some(Mutex::new(Circuit { listener, randomness, timer: None })))
    }

    fn with_circuit(circuit: Option<Mutex<Circuit>>) -> Self {
        let (through_breaker, direct) = (Listeners::default(), Listeners::default());
        Self { inner: Arc::new(ListenersState { through_breaker, direct, circuit }) }
    }

    /// Adds a listener, which gets the changes from now on, not the present state.
    ///
    /// ```
    /// # fn run(client: curator_framework::CuratorFramework) {
    /// client.connection_state_listenable().add_listener(|_, state| println!("the connection is {state}"));
    /// # }
    /// ```
    ///
    /// Each call passes the client. A listener that keeps a clone of its own keeps the client, and the session then
    /// ends only with [`CuratorFramework::close`].
    pub fn add_listener(&self, listener: impl ConnectionStateListener) -> ListenerId {
        self.inner.through_breaker.add(Arc::new(listener))
    }

    /// Adds a listener that gets every change, even if the client has a circuit breaker: Curator's
    /// `ConnectionStateListener.doNotProxy`.
    #[doc(alias = "doNotProxy")]
    pub fn add_listener_directly(&self, listener: impl ConnectionStateListener) -> ListenerId {
        self.inner.direct.add(Arc::new(listener))
    }

    /// Removes a listener. Changes that happened before may still reach it.
    pub fn remove_listener(&self, id: ListenerId) {
        self.inner.through_breaker.remove(id);
        self.inner.direct.remove(id);
    }

    pub(crate) fn clear(&self) {
        if let Some(circuit) = &self.inner.circuit {
            let mut circuit = circuit.lock();
            circuit.listener.close();
            circuit.timer = None;
        }
        self.inner.through_breaker.clear();
        self.inner.direct.clear();
    }

    /// Notifies the listeners. With a circuit breaker, call it within a runtime.
    pub(crate) fn notify(&self, client: &CuratorFramework, state: ConnectionState) {
        tell(&self.inner.direct, client, state);
        let Some(circuit) = &self.inner.circuit else { return tell(&self.inner.through_breaker, client, state) };
        let mut circuit = circuit.lock();
        let random = unit_interval(&*circuit.randomness);
        let step = circuit.listener.state_changed(state, Instant::now(), random);
        if let Some(pause) = step.look_after {
            report(move || tracing::info!(%state, "the circuit to the listeners opens"));
            let timer = keep_looking(Arc::downgrade(&self.inner), client.downgrade(), pause);
            circuit.timer = Some(AbortOnDropHandle::new(tokio::spawn(timer)));
        }
        // Under the circuit's lock, so that a concurrent check cannot pass an older state afterwards.
        self.inner.tell_through(client, step);
    }
}

/// Checks the open circuit until it is closed, or the client is dropped.
async fn keep_looking(inner: Weak<ListenersState>, client: WeakClient, mut pause: Duration) {
    loop {
        tokio::time::sleep(pause.max(SHORTEST_LOOK)).await;
        let (Some(client), Some(inner)) = (client.upgrade(), inner.upgrade()) else { return };
        let Some(next) = inner.look(&client) else { return };
        pause = next;
    }
}

/// Calls each listener of a list.
fn tell(listeners: &Listeners<dyn ConnectionStateListener>, client: &CuratorFramework, state: ConnectionState) {
    let client = client.clone();
    listeners.notify(move |listener| listener(&client, state));
}

impl ListenersState {
    fn tell_through(&self, client: &CuratorFramework, step: Step) {
        if let Some(state) = step.forward {
            tell(&self.through_breaker, client, state);
        }
    }

    /// Checks the open circuit. Returns the pause before the next check, if it stays open.
    fn look(&self, client: &CuratorFramework) -> Option<Duration> {
        let mut circuit = self.circuit.as_ref()?.lock();
        let random = unit_interval(&*circuit.randomness);
        let step = circuit.listener.look(Instant::now(), random);
        self.tell_through(client, step);
        if step.look_after.is_none() {
            report(|| tracing::info!("the circuit to the listeners is closed"));
        }
        step.look_after
    }
}

impl fmt::Debug for ConnectionStateListenable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let open = self.inner.circuit.as_ref().map(|circuit| circuit.lock().listener.is_open());
        f.debug_struct("ConnectionStateListenable")
            .field("listeners", &(self.inner.through_breaker.count() + self.inner.direct.count()))
            .field("open_circuit", &open)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};

    use super::ConnectionState::{Lost, ReadOnly, Reconnected, Suspended};
    use super::*;
    use crate::environment::randomness::ThreadRandomness;
    use crate::retry::{RetryForever, RetryNTimes, RetryOneTime};

    const PAUSE: Duration = Duration::from_secs(10);

    fn client() -> CuratorFramework {
        CuratorFramework::new_client("localhost", RetryOneTime::new(PAUSE)).unwrap()
    }

    fn breaking(policy: impl RetryPolicy) -> ConnectionStateListenable {
        ConnectionStateListenable::circuit_breaking(policy, Arc::new(ThreadRandomness))
    }

    /// The states that a listener got. Reading blocks the test's runtime, so that its time does not advance.
    struct Told(Receiver<ConnectionState>);

    impl Told {
        fn through(listeners: &ConnectionStateListenable) -> Self {
            let (sender, receiver) = channel();
            listeners.add_listener(move |_, state| sender.send(state).unwrap());
            Self(receiver)
        }

        fn directly(listeners: &ConnectionStateListenable) -> Self {
            let (sender, receiver) = channel();
            listeners.add_listener_directly(move |_, state| sender.send(state).unwrap());
            Self(receiver)
        }

        fn next(&self) -> ConnectionState {
            self.0.recv_timeout(Duration::from_secs(60)).unwrap()
        }

        fn are(&self, states: &[ConnectionState]) {
            let told = states.iter().map(|_| self.next()).collect::<Vec<_>>();
            assert_eq!(told, states);
        }
    }

    fn tasks() -> usize {
        tokio::runtime::Handle::current().metrics().num_alive_tasks()
    }

    /// Runs all tasks that are ready, without advancing the time.
    async fn settle() {
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_listener_behind_the_breaker_is_spared_the_noise() {
        let (client, listeners) = (client(), breaking(RetryForever::new(PAUSE).unwrap()));
        let (through, directly) = (Told::through(&listeners), Told::directly(&listeners));
        let noise = [Reconnected, Suspended, Reconnected, Suspended, Reconnected, Suspended, Lost, Reconnected];
        listeners.notify(&client, Suspended);
        for state in noise {
            listeners.notify(&client, state);
        }
        through.are(&[Suspended, Lost]);
        directly.are(&[Suspended]);
        directly.are(&noise);
        tokio::time::sleep(PAUSE + SHORTEST_LOOK).await;
        through.are(&[Reconnected]);
        // The circuit is closed: both states pass, and the second one opens it again.
        listeners.notify(&client, ReadOnly);
        listeners.notify(&client, Suspended);
        through.are(&[ReadOnly, Suspended]);
        directly.are(&[ReadOnly, Suspended]);
        assert_eq!(tasks(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn the_circuit_stays_open_as_long_as_the_policy_says() {
        let (client, listeners) = (client(), breaking(RetryNTimes::new(3, PAUSE)));
        let through = Told::through(&listeners);
        listeners.notify(&client, Lost);
        listeners.notify(&client, Suspended);
        tokio::time::sleep(3 * PAUSE - SHORTEST_LOOK).await;
        assert_eq!(tasks(), 1);
        assert!(format!("{listeners:?}").contains("open_circuit: Some(true)"));
        tokio::time::sleep(2 * SHORTEST_LOOK).await;
        through.are(&[Lost, Suspended]);
        assert_eq!(tasks(), 0);
        assert!(format!("{listeners:?}").contains("open_circuit: Some(false)"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_policy_without_pauses_does_not_spin() {
        let (client, listeners) = (client(), breaking(RetryNTimes::new(3, Duration::ZERO)));
        let through = Told::through(&listeners);
        let began = Instant::now();
        listeners.notify(&client, Lost);
        listeners.notify(&client, Suspended);
        while tasks() > 0 {
            tokio::time::sleep(SHORTEST_LOOK).await;
        }
        assert!(began.elapsed() >= 3 * SHORTEST_LOOK);
        through.are(&[Lost, Suspended]);
    }

    #[tokio::test(start_paused = true)]
    async fn clearing_ends_the_timer_and_closes_the_circuit() {
        let (client, listeners) = (client(), breaking(RetryForever::new(PAUSE).unwrap()));
        let before = Told::through(&listeners);
        listeners.notify(&client, Suspended);
        before.are(&[Suspended]);
        assert_eq!(tasks(), 1);
        listeners.clear();
        settle().await;
        assert_eq!(tasks(), 0);
        let after = Told::through(&listeners);
        listeners.notify(&client, Reconnected);
        after.are(&[Reconnected]);
        let gone = before.0.recv_timeout(Duration::from_secs(60));
        assert_eq!(gone, Err(RecvTimeoutError::Disconnected), "its listener is gone");
    }

    #[tokio::test(start_paused = true)]
    async fn dropping_the_listeners_ends_the_timer() {
        let (client, listeners) = (client(), breaking(RetryForever::new(PAUSE).unwrap()));
        listeners.notify(&client, Suspended);
        drop(listeners);
        settle().await;
        assert_eq!(tasks(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn an_open_circuit_does_not_keep_the_client() {
        let (client, listeners) = (client(), breaking(RetryForever::new(PAUSE).unwrap()));
        listeners.notify(&client, Suspended);
        let weak = client.downgrade();
        drop(client);
        assert!(weak.upgrade().is_none());
        tokio::time::sleep(PAUSE + SHORTEST_LOOK).await;
        assert_eq!(tasks(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_listener_removes_itself_and_adds_another() {
        for listeners in [ConnectionStateListenable::new(), breaking(RetryNTimes::new(0, PAUSE))] {
            let (client, listeners) = (client(), Arc::new(listeners));
            let (sender, told) = channel();
            let (ids, id) = channel::<ListenerId>();
            let (inner, id) = (Arc::downgrade(&listeners), Mutex::new(id));
            let own = listeners.add_listener(move |_, state| {
                let listeners = inner.upgrade().unwrap();
                listeners.remove_listener(id.lock().recv().unwrap());
                let later = sender.clone();
                listeners.add_listener(move |_, state| later.send(state).unwrap());
                sender.send(state).unwrap();
            });
            ids.send(own).unwrap();
            listeners.notify(&client, Suspended);
            let told = Told(told);
            told.are(&[Suspended]);
            listeners.notify(&client, Lost);
            listeners.notify(&client, Reconnected);
            told.are(&[Lost, Reconnected]);
        }
    }

    /// Sends the changes of many sessions: every listener gets them in order, also beside a slow one.
    #[tokio::test(start_paused = true)]
    async fn every_listener_is_told_in_order() {
        let (client, listeners) = (client(), ConnectionStateListenable::new());
        let (release, blocked) = channel::<()>();
        let (sender, slow) = channel();
        let blocked = Mutex::new(blocked);
        listeners.add_listener(move |_, state| {
            let _released = blocked.lock().recv();
            sender.send(state).unwrap();
        });
        let fast = Told::through(&listeners);
        let changes = [Suspended, Lost, Reconnected].repeat(30);
        for &state in &changes {
            listeners.notify(&client, state);
        }
        fast.are(&changes);
        drop(release);
        Told(slow).are(&changes);
    }
}
