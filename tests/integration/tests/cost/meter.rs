//! The requests of a step, by the log of a server, and its round trips, by the clock of a simulation.

use std::time::Duration;

use curator_framework::{CuratorFramework, RetryNTimes};
use curator_integration::env::{answered, connected, eventually};
use curator_integration::in_process::{client, server, simulated};
use curator_test::wire::OpCode;
use curator_test::{FaultProxy, SimulatedEnsemble, TestingServer};

/// The longest time of a message in one direction.
const LONGEST: Duration = Duration::from_secs(1);
/// Timers count whole milliseconds.
const TICKS: Duration = Duration::from_millis(20);
/// The longest of so many runs takes nearly as long as it can.
const SEEDS: u64 = 60;

/// A server with some parents, a client behind a proxy, and another client.
pub(crate) struct Stage {
    pub(crate) server: TestingServer,
    pub(crate) proxy: FaultProxy,
    pub(crate) client: CuratorFramework,
    pub(crate) observer: CuratorFramework,
}

impl Stage {
    /// A task that polls sends a request within this time.
    pub(crate) const QUIET: Duration = Duration::from_millis(500);

    pub(crate) async fn new(parents: &str) -> Self {
        let server = server();
        let proxy = FaultProxy::start(server.address()).unwrap();
        let options = CuratorFramework::builder(proxy.connect_string())
            .session_timeout(Duration::from_secs(60))
            .connection_timeout(Duration::from_secs(10))
            .retry_policy(RetryNTimes::new(10, Duration::from_millis(50)));
        let (client, observer) = (connected(options).await, client(&server).await);
        observer.create().creating_parents_if_needed().for_path(parents).await.unwrap();
        server.clear_requests();
        Self { server, proxy, client, observer }
    }

    /// Returns the requests since the last call, in the server's order, without pings and the reads of the root by
    /// which a test waits.
    pub(crate) async fn requests(&self) -> Vec<OpCode> {
        answered(&[self.client.clone(), self.observer.clone()]).await;
        let all = self.server.requests();
        self.server.clear_requests();
        let counts = |op: OpCode, path: Option<&str>| op != OpCode::Ping && path != Some("/");
        all.iter().filter(|one| counts(one.op, one.path.as_deref())).map(|one| one.op).collect()
    }

    /// Breaks the client's connection, and waits for the next one.
    pub(crate) async fn reconnect(&self) {
        let session = self.client.session().await.unwrap();
        let before = session.epoch();
        self.proxy.reset();
        eventually("the next connection", async || session.epoch() != before).await;
    }
}

/// Returns the round trips of a step, which returns the time that it took.
pub(crate) async fn round_trips(step: impl AsyncFn(&SimulatedEnsemble, &CuratorFramework) -> Duration) -> u32 {
    let mut longest = Duration::ZERO;
    for seed in 0..SEEDS {
        let ensemble = SimulatedEnsemble::new(seed, LONGEST);
        let client = simulated(&ensemble, 1).await;
        longest = longest.max(step(&ensemble, &client).await);
        client.close().await;
    }
    (1..).find(|trips| LONGEST * 2 * *trips + TICKS >= longest).unwrap_or_default()
}
