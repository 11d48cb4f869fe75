//! Three servers, three clients, and a proxy between each two of them.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use curator_framework::{CuratorFramework, FixedEnsembleProvider, RetryNTimes};
use curator_integration::env::{connected, in_time};
use curator_test::{ApacheCluster, FaultProxy};
use rand::Rng;
use rand::rngs::StdRng;
use tokio::task::block_in_place;
use tokio::time::{Instant, sleep};

pub(crate) const CLIENTS: usize = 3;
const TICK: Duration = Duration::from_millis(500);
const SESSIONS: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(60));
/// The session timeouts of the clients.
const TIMEOUTS: [Duration; CLIENTS] = [Duration::from_secs(4), Duration::from_secs(6), Duration::from_secs(10)];
/// The time from the death of a leader until another one serves, and the servers know of it.
const ELECTION: Duration = Duration::from_secs(5);

pub(crate) struct Ground {
    cluster: ApacheCluster,
    /// The proxies of each client, one for each server.
    proxies: Vec<Vec<FaultProxy>>,
    clients: Vec<CuratorFramework>,
    /// A client without proxies.
    fresh: CuratorFramework,
    faults: AtomicUsize,
}

impl Ground {
    pub(crate) async fn start() -> Self {
        let cluster =
            block_in_place(|| ApacheCluster::builder().tick(TICK).session_timeouts(SESSIONS.0, SESSIONS.1).start());
        let cluster = cluster.unwrap_or_else(|error| panic!("{error}"));
        let servers: Vec<_> = (0..cluster.servers()).map(|server| cluster.server(server).unwrap()).collect();
        let (mut proxies, mut clients) = (Vec::new(), Vec::new());
        let options = || {
            CuratorFramework::builder(cluster.connect_string())
                .connection_timeout(Duration::from_secs(10))
                .retry_policy(RetryNTimes::new(200, Duration::from_millis(100)))
        };
        for timeout in TIMEOUTS {
            let own: Vec<_> = servers.iter().map(|server| FaultProxy::start(*server).unwrap()).collect();
            let addresses: Vec<_> = own.iter().map(FaultProxy::connect_string).collect();
            let through = FixedEnsembleProvider::new(addresses.join(","));
            clients.push(connected(options().session_timeout(timeout).ensemble_provider(through)).await);
            proxies.push(own);
        }
        let fresh = connected(options().session_timeout(Duration::from_secs(30))).await;
        Self { cluster, proxies, clients, fresh, faults: AtomicUsize::new(0) }
    }

    pub(crate) fn clients(&self) -> &[CuratorFramework] {
        &self.clients
    }

    pub(crate) const fn fresh(&self) -> &CuratorFramework {
        &self.fresh
    }

    pub(crate) fn faults(&self) -> usize {
        self.faults.load(Ordering::Relaxed)
    }

    pub(crate) async fn close(&self) {
        for client in self.clients.iter().chain([&self.fresh]) {
            in_time(client.close()).await;
        }
    }

    /// Does one fault after the other, and notes each with its length.
    pub(crate) async fn rage(&self, random: &mut StdRng, lasting: Duration, note: impl Fn(String, Duration)) {
        let (until, servers) = (Instant::now() + lasting, self.cluster.servers());
        while Instant::now() < until {
            let number = self.faults.fetch_add(1, Ordering::Relaxed);
            let (server, client) = (number / 6 % servers, random.random_range(0..CLIENTS));
            let time = Duration::from_millis(random.random_range(500..6000));
            match number % 6 {
                0 => {
                    let leader = block_in_place(|| self.cluster.wait_until_serving()).unwrap();
                    note(format!("the leader, server {leader}, is killed"), ELECTION);
                    block_in_place(|| self.cluster.kill(leader)).unwrap();
                    sleep(time / 4).await;
                    block_in_place(|| self.cluster.restart(leader)).unwrap();
                }
                1 => {
                    note(format!("client {client} is cut off for {time:?}"), time);
                    self.proxies[client].iter().for_each(FaultProxy::partition);
                    sleep(time).await;
                    self.proxies[client].iter().for_each(FaultProxy::repair);
                }
                2 => {
                    note(format!("server {server} starts again"), ELECTION);
                    block_in_place(|| self.cluster.kill(server).and_then(|()| self.cluster.restart(server))).unwrap();
                }
                3 => {
                    note(format!("server {server} stands still for {time:?}"), time + ELECTION);
                    self.cluster.freeze(server).unwrap();
                    sleep(time).await;
                    self.cluster.thaw(server).unwrap();
                }
                4 => {
                    note(format!("the connections of client {client} break"), Duration::ZERO);
                    self.proxies[client].iter().for_each(FaultProxy::reset);
                }
                _ => {
                    note(format!("server {server} is cut off from the others for {time:?}"), time + ELECTION);
                    self.cluster.isolate(server).unwrap();
                    sleep(time).await;
                    self.cluster.repair(server).unwrap();
                }
            }
            for server in 0..servers {
                block_in_place(|| self.cluster.wait_for_server(server)).unwrap();
            }
            sleep(Duration::from_millis(random.random_range(200..2000))).await;
        }
        note("all faults end".to_owned(), Duration::ZERO);
    }
}
