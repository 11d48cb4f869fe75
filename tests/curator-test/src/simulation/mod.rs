//! A ZooKeeper ensemble and its network in one thread, under tokio's paused time and one seed.

mod follower;
mod recorder;
mod stream;
mod world;

use std::sync::Arc;
use std::time::Duration;

use curator_framework::{Clock, CuratorFramework, CuratorFrameworkBuilder, DefaultZooKeeperFactory, SeededRandomness};
use parking_lot::Mutex;
use tokio::time::Instant;

use self::stream::SimulatedNetwork;
use self::world::World;
use crate::nodes::Change;
use crate::server::Backup;
use crate::versions;

/// A simulated ensemble: the core of the in-process server behind the framework's own client, on a network that a seed
/// determines.
///
/// It needs a current-thread runtime with paused time. Each message takes a random time, in order on each connection.
/// Faults are methods, and affect all that a client sends and receives. The same seed and the same calls repeat the
/// run.
///
/// Each client has a server of its own, a follower. As with Apache, the follower passes writes on to the leader at
/// once. It reports to the leader only every half tick which sessions have sent it requests. The leader ends a session
/// by these reports, as soon as it may.
///
/// [`client`](Self::client) creates clients with the clock and the randomness of the simulation.
#[derive(Debug, Clone)]
pub struct SimulatedEnsemble {
    world: Arc<World>,
    seed: u64,
}

/// The name of a client in a simulation, for faults that hit it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientId(pub u32);

impl SimulatedEnsemble {
    /// Creates an ensemble with a tick of one second and up to `latency` for a message in each direction. Must be
    /// called in the runtime of the simulation.
    #[must_use]
    pub fn new(seed: u64, latency: Duration) -> Self {
        Self::with_tick(seed, latency, Duration::from_secs(1))
    }

    /// Creates an ensemble like [`new`](Self::new) with another tick: the smallest session timeout is two ticks, and a
    /// follower reports to the leader every half tick.
    #[must_use]
    pub fn with_tick(seed: u64, latency: Duration, tick: Duration) -> Self {
        let world = World::new(seed, latency, tick);
        tokio::spawn(world::run(Arc::downgrade(&world)));
        Self { world, seed }
    }

    /// Returns a client's builder: servers, factory, clock and randomness are the simulation's. One name for each.
    pub fn client(&self, client: ClientId) -> CuratorFrameworkBuilder {
        let clock = SimulatedClock { origin: self.world.origin(), skipped: self.world.skipped(client) };
        let seed = self.seed ^ (u64::from(client.0) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        CuratorFramework::builder("simulated:1")
            .zookeeper_factory(self.factory(client))
            .clock(clock)
            .randomness(SeededRandomness::new(seed))
            // The default, the host's address, comes from a thread outside of the simulation.
            .default_data("")
    }

    /// Returns the factory of [`client`](Self::client): the framework's own client over the simulation's network.
    #[must_use]
    pub fn factory(&self, client: ClientId) -> DefaultZooKeeperFactory {
        DefaultZooKeeperFactory::with_connector(SimulatedNetwork::new(Arc::clone(&self.world), client))
    }

    /// Returns the time since the simulation started.
    #[must_use]
    pub fn now(&self) -> Duration {
        self.world.now()
    }

    /// Breaks the client's connections: messages in transit are lost in both directions, and both ends notice it.
    pub fn reset(&self, client: ClientId) {
        self.world.reset(client);
    }

    /// Cuts the client off from the servers in silence. Sent messages are held.
    pub fn partition(&self, client: ClientId) {
        self.world.partition(client);
    }

    /// Ends a partition: held messages arrive. The client's server follows the leader again.
    pub fn repair(&self, client: ClientId) {
        self.world.repair(client);
    }

    /// Cuts the client's server off from the leader: it answers reads from its own state, passes no write on and gets
    /// no event. The leader gets no report of the client's session, not even of earlier requests.
    pub fn cut_off_server(&self, client: ClientId) {
        self.world.lag(client, true);
    }

    /// Lets the client's server lag: it answers reads from its present state, until a write of the client is answered.
    pub fn stale_reads(&self, client: ClientId) {
        self.world.lag(client, false);
    }

    /// Loses the reply to the client's next write, if it comes before a [`repair`](Self::repair): the write is applied,
    /// the connection breaks, and both ends notice it.
    pub fn drop_reply(&self, client: ClientId) {
        self.world.drop_reply(client);
    }

    /// Has the client's server refuse one request in four as throttled, without carrying it out, until a
    /// [`repair`](Self::repair).
    pub fn throttle(&self, client: ClientId) {
        self.world.throttle(client);
    }

    /// Has the client's server refuse the client's credentials at each new connection, until a [`repair`](Self::repair).
    pub fn refuse_credentials(&self, client: ClientId) {
        self.world.refuse_credentials(client);
    }

    /// Ends a session at once, by the servers.
    pub fn kill_session(&self, session: i64) {
        self.world.administer(|server, now| server.kill_session(session, now));
    }

    /// Deletes a node in another client's session.
    pub fn delete(&self, path: &str) {
        self.world.administer(|server, now| server.delete(path, now));
    }

    /// Creates an empty node in another client's session.
    pub fn create(&self, path: &str) {
        self.world.administer(|server, now| server.create(path, now));
    }

    /// Sets a node's data in another client's session.
    pub fn set_data(&self, path: &str, data: &[u8]) {
        self.world.administer(|server, now| server.set_data(path, data, now));
    }

    /// Allows clients to read a node, or forbids it. They may do anything else.
    pub fn set_readable(&self, path: &str, is_readable: bool) {
        self.world.administer(|server, now| server.set_readable(path, is_readable, now));
    }

    /// Restarts all servers: connections and watches are lost, sessions and data are kept.
    pub fn restart(&self) {
        self.world.restart(None);
    }

    /// Restarts all servers without their data: nodes, sessions and transactions start again.
    pub fn restart_empty(&self) {
        self.restart_empty_at(0);
    }

    /// Restarts all servers without their data, as [`restart_empty`](Self::restart_empty) does. The first transaction is
    /// the one after `zxid`.
    pub fn restart_empty_at(&self, zxid: i64) {
        self.world.restart(Some(zxid));
    }

    /// Returns a copy of the nodes and the sessions.
    #[must_use]
    pub fn backup(&self) -> Backup {
        self.world.with_server(|server| server.backup())
    }

    /// Restarts all servers with the nodes and sessions of a backup. They continue in an election after all before, so they
    /// accept all clients, and no two transactions have the same number.
    pub fn restore(&self, backup: &Backup) {
        let election = (self.zxid() >> 32) + 1;
        self.world.restore(&backup.clone().with_zxid(election << 32));
    }

    /// Lets the client's machine sleep: its clock, but no timer, advances by this much at once.
    pub fn skip_clock(&self, client: ClientId, by: Duration) {
        *self.world.skipped(client).lock() += by;
    }

    /// Sets the number of a node's next sequential child. Returns `false` if the node does not exist.
    #[must_use]
    pub fn set_next_sequence(&self, parent: &str, next: i32) -> bool {
        self.world.with_server(|server| server.set_next_sequence(parent, next))
    }

    /// Returns the names of a node's children at the leader.
    #[must_use]
    pub fn children(&self, path: &str) -> Vec<String> {
        self.world.with_server(|server| server.children(path))
    }

    /// Returns the session that owns a node at the leader.
    #[must_use]
    pub fn owner(&self, path: &str) -> Option<i64> {
        self.world.with_server(|server| server.owner(path))
    }

    /// Records from now on each change below a node.
    pub fn record_changes(&self, root: &str) {
        self.record_changes_for(root, usize::MAX);
    }

    /// Records from now on each change below a node, as [`record_changes`](Self::record_changes) does. Records the refused
    /// reads too: clients without credentials have no permission, or the reply would be longer than `max_reply`.
    pub fn record_changes_for(&self, root: &str, max_reply: usize) {
        self.world.record_changes(root, max_reply);
    }

    /// Returns the [recorded](Self::record_changes) changes since the last call, each with its [time](Self::now).
    #[must_use]
    pub fn take_changes(&self) -> Vec<(Duration, Change)> {
        self.world.take_changes()
    }

    /// Returns the [recorded](Self::record_changes) changes since the last call of this method, with the versions of
    /// the nodes.
    #[must_use]
    pub fn take_versions(&self) -> Vec<(Duration, versions::Event)> {
        self.world.take_versions()
    }

    /// Returns the newest transaction at the leader.
    #[must_use]
    pub fn zxid(&self) -> i64 {
        self.world.with_server(|server| server.zxid())
    }

    /// Returns the sessions at the leader.
    #[must_use]
    pub fn sessions(&self) -> Vec<i64> {
        self.world.with_server(|server| server.sessions())
    }

    /// Returns the number of watches at the servers.
    #[must_use]
    pub fn watch_count(&self) -> usize {
        self.world.with_server(|server| server.watch_count())
    }
}

/// The simulation's time, and the part of it that a client slept.
#[derive(Debug)]
struct SimulatedClock {
    origin: Instant,
    skipped: Arc<Mutex<Duration>>,
}

impl Clock for SimulatedClock {
    fn now(&self) -> Duration {
        self.origin.elapsed() + *self.skipped.lock()
    }

    fn is_simulated(&self) -> bool {
        true
    }
}
