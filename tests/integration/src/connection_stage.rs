//! The common parts of the tests of connections: the states that a listener got, clients of a simulation, and handles that
//! say what a test wants.

use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use async_trait::async_trait;
use curator_framework::spi::{ConnectConfig, Connection, HandleEvent, ZooKeeperFactory};
use curator_framework::{
    ConnectError, ConnectionState, CuratorFramework, CuratorFrameworkBuilder, DefaultZooKeeperFactory, RetryNTimes,
};
use curator_test::{ClientId, SimulatedEnsemble};
use parking_lot::Mutex;

use crate::env::{PATIENCE, in_time};

/// The states that one listener got.
#[derive(Debug)]
pub struct Told(mpsc::Receiver<ConnectionState>);

impl Told {
    /// Listens from now on.
    pub fn by(client: &CuratorFramework) -> Self {
        let (told, states) = mpsc::channel();
        client.connection_state_listenable().add_listener(move |_, state| told.send(state).unwrap());
        Self(states)
    }

    /// Closes the client and returns all states of its life: a listener that was dropped gets
    /// no more states.
    pub async fn all(self, client: CuratorFramework) -> Vec<ConnectionState> {
        in_time(client.close()).await;
        drop(client);
        let mut all = Vec::new();
        loop {
            match self.0.recv_timeout(PATIENCE) {
                Ok(state) => all.push(state),
                Err(mpsc::RecvTimeoutError::Disconnected) => return all,
                Err(mpsc::RecvTimeoutError::Timeout) => panic!("a listener is still there after {all:?}"),
            }
        }
    }
}

/// Waits until the client's state is this one.
pub async fn comes_to(client: &CuratorFramework, wanted: ConnectionState) {
    let mut states = client.watch_connection_state();
    in_time(states.wait_for(|state| *state == Some(wanted))).await.unwrap();
}

/// The session timeout of clients of a simulation. Their heartbeat is due after 4 s, they are suspended after 8 s and
/// lost after 9 s.
pub const TIMEOUT: Duration = Duration::from_secs(12);
/// The client of a simulation.
pub const CLIENT: ClientId = ClientId(1);

/// The options of a client of a simulation.
pub fn simulated(ensemble: &SimulatedEnsemble, client: ClientId) -> CuratorFrameworkBuilder {
    ensemble
        .client(client)
        .session_timeout(TIMEOUT)
        .connection_timeout(TIMEOUT)
        .retry_policy(RetryNTimes::new(10, Duration::from_millis(50)))
}

/// A simulation from a seed. Its messages take at most a millisecond.
pub fn simulation(seed: u64) -> SimulatedEnsemble {
    SimulatedEnsemble::new(seed, Duration::from_millis(1))
}

/// Makes sessions as another factory does, and lets a test speak in the name of each of them.
#[derive(Debug, Clone)]
pub struct Puppets {
    inner: Arc<dyn ZooKeeperFactory>,
    strings: Arc<Mutex<Vec<Puppet>>>,
}

/// What a test can say in the name of a session's handle. Nothing more is heard of it when this is dropped.
pub type Puppet = tokio::sync::mpsc::UnboundedSender<HandleEvent>;

impl Default for Puppets {
    fn default() -> Self {
        Self { inner: Arc::new(DefaultZooKeeperFactory::new()), strings: Arc::default() }
    }
}

impl Puppets {
    /// Returns the handles of the sessions made so far that were not taken yet.
    pub fn take(&self) -> Vec<Puppet> {
        std::mem::take(&mut *self.strings.lock())
    }
}

#[async_trait]
impl ZooKeeperFactory for Puppets {
    async fn connect(&self, config: &ConnectConfig) -> Result<Connection, ConnectError> {
        let Connection { handle, mut events, sent, established, epoch } = self.inner.connect(config).await?;
        let (puppet, passed_on) = tokio::sync::mpsc::unbounded_channel();
        self.strings.lock().push(puppet.clone());
        let pass_on = puppet.downgrade();
        tokio::spawn(async move {
            while let Some(event) = events.recv().await {
                let Some(puppet) = pass_on.upgrade() else { return };
                if puppet.send(event).is_err() {
                    return;
                }
            }
        });
        drop(puppet);
        Ok(Connection { handle, events: passed_on, sent, established, epoch })
    }
}
