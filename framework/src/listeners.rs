//! Listeners to the connection state.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use crate::circuit_breaker::{CircuitBreakingConnectionStateListener, Step};
use crate::client::{CuratorFramework, WeakClient};
use crate::connection_state::ConnectionState;
use crate::randomness::{Randomness, unit};
use crate::retry::RetryPolicy;
use crate::safe_notify::SafeNotifyExecutor;

/// The shortest time between two looks at an open circuit, so that a policy without pauses keeps no processor busy.
const SHORTEST_LOOK: Duration = Duration::from_millis(1);

/// Is told of every change of the connection state: Curator's `ConnectionStateListener`.
///
/// Implemented for closures `Fn(&CuratorFramework, ConnectionState)`.
pub trait ConnectionStateListener: Send + Sync + 'static {
    /// Called once for each change, in order, on a thread that is no runtime's worker. It may block, panic, call back
    /// into the client and add or remove listeners, without harm to the session or to another listener.
    fn state_changed(&self, client: &CuratorFramework, state: ConnectionState);
}

impl<F> ConnectionStateListener for F
where
    F: Fn(&CuratorFramework, ConnectionState) + Send + Sync + 'static,
{
    fn state_changed(&self, client: &CuratorFramework, state: ConnectionState) {
        self(client, state);
    }
}

/// Names a listener, to remove it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ListenerId(u64);

struct Entry {
    id: ListenerId,
    listener: Arc<dyn ConnectionStateListener>,
    executor: SafeNotifyExecutor,
    /// Told past the circuit breaker.
    directly: bool,
}

/// The listeners of one client: Curator's `getConnectionStateListenable()`.
///
/// Each listener is told of the changes in their order, so of one session's changes before those of the next. Listeners
/// do not wait for each other.
///
/// # Circuit breaking
///
/// A client can be built with a circuit breaker, which keeps a connection that comes and goes from shaking its
/// listeners: Curator's `ConnectionStateListenerManagerFactory.circuitBreaking`. The first state without a connection is
/// told and opens the circuit. While it is open only the first `Lost` after `Suspended` is told. After each pause of the
/// breaker's retry policy the newest state is looked at: if it is a connection, or the policy gives up, the circuit
/// closes and the newest state is told, unless it was already. A policy without retries never opens the circuit.
///
/// Locks and [`CuratorFramework::watch_connection_state`] are not behind the breaker.
pub struct ConnectionStateListenable {
    inner: Arc<Inner>,
}

/// What a timer of the circuit shares with the client, without keeping it.
struct Inner {
    entries: Mutex<Vec<Entry>>,
    next: AtomicU64,
    circuit: Option<Mutex<Circuit>>,
}

struct Circuit {
    listener: CircuitBreakingConnectionStateListener,
    randomness: Arc<dyn Randomness>,
    timer: Option<Timer>,
}

/// A task that ends when this is dropped.
struct Timer(AbortHandle);

impl Drop for Timer {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl ConnectionStateListenable {
    pub(crate) fn new() -> Self {
        Self::with_circuit(None)
    }

    /// Listeners that are told through one circuit breaker, which this policy holds open.
    #[allow(dead_code, reason = "for the builder's option")]
    pub(crate) fn circuit_breaking(policy: impl RetryPolicy, randomness: Arc<dyn Randomness>) -> Self {
        let listener = CircuitBreakingConnectionStateListener::new(Arc::new(policy));
        Self::with_circuit(Some(Mutex::new(Circuit { listener, randomness, timer: None })))
    }

    fn with_circuit(circuit: Option<Mutex<Circuit>>) -> Self {
        Self { inner: Arc::new(Inner { entries: Mutex::new(Vec::new()), next: AtomicU64::new(0), circuit }) }
    }

    /// Adds a listener. It is told of the changes from now on, not of the state there is.
    ///
    /// It is given the client with each call: a listener that keeps a clone of its own keeps the client, whose
    /// session then ends only with [`CuratorFramework::close`].
    pub fn add_listener(&self, listener: impl ConnectionStateListener) -> ListenerId {
        self.inner.add(listener, false)
    }

    /// As [`add_listener`](Self::add_listener), for a listener that must hear of every change also where the client has
    /// a circuit breaker: Curator's `ConnectionStateListener.doNotProxy`.
    pub fn add_listener_directly(&self, listener: impl ConnectionStateListener) -> ListenerId {
        self.inner.add(listener, true)
    }

    /// Removes a listener. Changes that it was to be told of already may still reach it.
    pub fn remove_listener(&self, id: ListenerId) {
        // What a listener holds may do anything when it is dropped, so that is done outside of the lock.
        let removed = {
            let mut entries = self.inner.entries.lock();
            let index = entries.iter().position(|entry| entry.id == id);
            index.map(|index| entries.remove(index))
        };
        drop(removed);
    }

    pub(crate) fn clear(&self) {
        if let Some(circuit) = &self.inner.circuit {
            let mut circuit = circuit.lock();
            circuit.listener.close();
            circuit.timer = None;
        }
        let removed = std::mem::take(&mut *self.inner.entries.lock());
        drop(removed);
    }

    /// Tells the listeners. With a circuit breaker this must be called in a runtime.
    pub(crate) fn notify(&self, client: &CuratorFramework, state: ConnectionState) {
        let Some(circuit) = &self.inner.circuit else {
            self.inner.tell(client, state, |_| true);
            return;
        };
        self.inner.tell(client, state, |entry| entry.directly);
        let mut circuit = circuit.lock();
        let random = unit(&*circuit.randomness);
        let step = circuit.listener.state_changed(state, Instant::now(), random);
        if let Some(pause) = step.look_after {
            tracing::info!(%state, "the circuit to the listeners opens");
            let timer = keep_looking(Arc::downgrade(&self.inner), client.downgrade(), pause);
            circuit.timer = Some(Timer(tokio::spawn(timer).abort_handle()));
        }
        // Under the circuit's lock, so that a look that comes at the same time cannot tell what is older afterwards.
        self.inner.tell_through(client, step);
    }
}

/// Looks at the open circuit until it is closed, or the client is gone.
async fn keep_looking(inner: Weak<Inner>, client: WeakClient, mut pause: Duration) {
    loop {
        tokio::time::sleep(pause.max(SHORTEST_LOOK)).await;
        let (Some(client), Some(inner)) = (client.upgrade(), inner.upgrade()) else { return };
        let Some(next) = inner.look(&client) else { return };
        pause = next;
    }
}

impl Inner {
    fn add(&self, listener: impl ConnectionStateListener, directly: bool) -> ListenerId {
        let id = ListenerId(self.next.fetch_add(1, Ordering::Relaxed));
        let (listener, executor) = (Arc::new(listener), SafeNotifyExecutor::new());
        self.entries.lock().push(Entry { id, listener, executor, directly });
        id
    }

    fn tell(&self, client: &CuratorFramework, state: ConnectionState, whom: impl Fn(&Entry) -> bool) {
        for entry in self.entries.lock().iter().filter(|&entry| whom(entry)) {
            let (listener, client) = (Arc::clone(&entry.listener), client.clone());
            entry.executor.submit(move || listener.state_changed(&client, state));
        }
    }

    fn tell_through(&self, client: &CuratorFramework, step: Step) {
        if let Some(state) = step.forward {
            self.tell(client, state, |entry| !entry.directly);
        }
    }

    /// Looks at the open circuit. When to look again, if it stays open.
    fn look(&self, client: &CuratorFramework) -> Option<Duration> {
        let mut circuit = self.circuit.as_ref()?.lock();
        let random = unit(&*circuit.randomness);
        let step = circuit.listener.look(Instant::now(), random);
        self.tell_through(client, step);
        if step.look_after.is_none() {
            tracing::info!("the circuit to the listeners is closed");
        }
        step.look_after
    }
}

impl fmt::Debug for ConnectionStateListenable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let open = self.inner.circuit.as_ref().map(|circuit| circuit.lock().listener.is_open());
        f.debug_struct("ConnectionStateListenable")
            .field("listeners", &self.inner.entries.lock().len())
            .field("open_circuit", &open)
            .finish()
    }
}
