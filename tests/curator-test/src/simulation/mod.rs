//! A ZooKeeper ensemble and its network in one thread, under tokio's paused time and one seed.

mod follower;
mod stream;
mod world;

use std::sync::Arc;
use std::time::Duration;

use curator_framework::{Clock, CuratorFramework, CuratorFrameworkBuilder, DefaultZooKeeperFactory, SeededRandomness};
use parking_lot::Mutex;
use tokio::time::Instant;

use self::stream::SimulatedNetwork;
use self::world::World;

/// A simulated ensemble: the in-process server's core behind the framework's own client, with a network that a seed
/// determines.
///
/// It needs a current-thread runtime whose time is paused. Messages take a random time each, in order on each
/// connection; faults are called by name, for all that a client sends and receives. The same seed and the same calls
/// give the same run.
///
/// Each client talks to a server of its own, a follower. As with Apache, writes go on to the leader at once, but that
/// the client lives the leader is told every half tick only, for everything that the follower has heard since; on that
/// the leader decides when a session ends, not a moment later than it may.
///
/// Clients come from [`client`](Self::client), with the clock and the randomness of the simulation.
#[derive(Debug, Clone)]
pub struct SimulatedEnsemble {
    world: Arc<World>,
    seed: u64,
}

/// The name of a client in a simulation: faults are done to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientId(pub u32);

impl SimulatedEnsemble {
    /// An ensemble with a tick of one second whose messages take up to `latency` each way. Must be called in the runtime
    /// of the simulation.
    #[must_use]
    pub fn new(seed: u64, latency: Duration) -> Self {
        Self::with_tick(seed, latency, Duration::from_secs(1))
    }

    /// As [`new`](Self::new) with another tick: the smallest session timeout is two of them, and a follower reports to
    /// the leader every half of one.
    #[must_use]
    pub fn with_tick(seed: u64, latency: Duration, tick: Duration) -> Self {
        let world = World::new(seed, latency, tick);
        tokio::spawn(world::run(Arc::downgrade(&world)));
        Self { world, seed }
    }

    /// A client's options: servers, factory, clock and randomness are the simulation's. One name for each client.
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

    /// What [`client`](Self::client) makes its sessions with: the framework's own client over the simulation's network.
    #[must_use]
    pub fn factory(&self, client: ClientId) -> DefaultZooKeeperFactory {
        DefaultZooKeeperFactory::with_connector(SimulatedNetwork::new(Arc::clone(&self.world), client))
    }

    /// The time since the simulation began.
    #[must_use]
    pub fn now(&self) -> Duration {
        self.world.now()
    }

    /// Breaks the client's connections: what is on its way is lost, each way, and both ends learn of it.
    pub fn reset(&self, client: ClientId) {
        self.world.reset(client);
    }

    /// Nothing passes between the client and the servers, and nobody learns of it. What is sent is held.
    pub fn partition(&self, client: ClientId) {
        self.world.partition(client);
    }

    /// Ends a partition: what was held arrives. The client's server follows the leader again.
    pub fn repair(&self, client: ClientId) {
        self.world.repair(client);
    }

    /// The client's server stops to follow the leader: it answers reads from what it knows, passes no write on, hears of
    /// no event, and the leader hears nothing of the client's session. What it had not reported yet is lost too.
    pub fn cut_off_server(&self, client: ClientId) {
        self.world.lag(client, true);
    }

    /// The client's server is behind: it answers reads from what it knows now, until a write of the client is answered.
    pub fn stale_reads(&self, client: ClientId) {
        self.world.lag(client, false);
    }

    /// The answer to the client's next write, if it comes before a [`repair`](Self::repair), is lost: the write is
    /// applied, the connection breaks, and both ends learn of that.
    pub fn drop_reply(&self, client: ClientId) {
        self.world.drop_reply(client);
    }

    /// The servers end a session at once.
    pub fn kill_session(&self, session: i64) {
        self.world.kill_session(session);
    }

    /// Somebody deletes a node.
    pub fn delete(&self, path: &str) {
        self.world.delete(path);
    }

    /// All servers start again: connections and watches are gone, sessions and data are kept.
    pub fn restart(&self) {
        self.world.restart(false);
    }

    /// All servers start again without their data: nodes, sessions and transactions begin anew.
    pub fn restart_empty(&self) {
        self.world.restart(true);
    }

    /// The client's machine sleeps: its clock, but no timer, goes on by this much at once.
    pub fn skip_clock(&self, client: ClientId, by: Duration) {
        *self.world.skipped(client).lock() += by;
    }

    /// Sets the number that the next sequential child of a node gets. `false` if there is no such node.
    #[must_use]
    pub fn set_next_sequence(&self, parent: &str, next: i32) -> bool {
        self.world.with_server(|server| server.set_next_sequence(parent, next))
    }

    /// The names of a node's children, as the leader has them.
    #[must_use]
    pub fn children(&self, path: &str) -> Vec<String> {
        self.world.with_server(|server| server.children(path))
    }

    /// The session that owns a node, as the leader has it.
    #[must_use]
    pub fn owner(&self, path: &str) -> Option<i64> {
        self.world.with_server(|server| server.owner(path))
    }

    /// The sessions that the leader has.
    #[must_use]
    pub fn sessions(&self) -> Vec<i64> {
        self.world.with_server(|server| server.sessions())
    }

    /// How many watches the servers have.
    #[must_use]
    pub fn watch_count(&self) -> usize {
        self.world.with_server(|server| server.watch_count())
    }
}

/// The simulation's time, and what a client slept of it.
#[derive(Debug)]
struct SimulatedClock {
    origin: Instant,
    skipped: Arc<Mutex<Duration>>,
}

impl Clock for SimulatedClock {
    fn now(&self) -> Duration {
        self.origin.elapsed() + *self.skipped.lock()
    }
}
