//! Several servers, silent servers, and servers that move.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use curator_framework::spi::{ByteStream, Connector};
use curator_framework::{
    CuratorFramework, CuratorFrameworkBuilder, DefaultZooKeeperFactory, FixedEnsembleProvider, RetryNTimes,
};
use curator_integration::env::{builder, connected, eventually, in_time};
use curator_recipes::InterProcessMutex;
use curator_test::{FaultProxy, TestingServer};
use futures_util::future::join_all;
use parking_lot::Mutex;

use super::fronts::FullBacklog;

const TIMEOUT: Duration = Duration::from_secs(9);

fn servers(list: &[SocketAddr]) -> CuratorFrameworkBuilder {
    let list: Vec<_> = list.iter().map(ToString::to_string).collect();
    CuratorFramework::builder(list.join(","))
        .session_timeout(TIMEOUT)
        .connection_timeout(TIMEOUT)
        .retry_policy(RetryNTimes::new(10, Duration::from_millis(50)))
}

/// Takes a lock through one of two proxies, silences that one, and returns how long the session was without a server.
async fn held_while_one_falls_silent(server: &TestingServer, path: &str, others: &[SocketAddr]) -> Duration {
    let proxies = [(); 2].map(|()| FaultProxy::start(server.address()).unwrap());
    let mut list = proxies.each_ref().map(FaultProxy::address).to_vec();
    list.extend_from_slice(others);
    let client = connected(servers(&list)).await;
    let guard = in_time(InterProcessMutex::new(client.clone(), path).unwrap().acquire()).await.unwrap();
    let session = client.session().await.unwrap();
    let epoch = session.epoch();
    let silent = proxies.iter().find(|proxy| proxy.connections() == 1).unwrap();
    silent.partition();
    let since = Instant::now();
    eventually("attached again", async || {
        assert!(guard.is_held(), "{:?}", session.end_reason());
        session.epoch() > epoch
    })
    .await;
    let without = since.elapsed();
    // The proof of the leader follows.
    in_time(session.write_barrier()).await.unwrap();
    guard.verify().await.unwrap();
    without
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn holder_leaves_a_silent_server_within_two_thirds_of_its_timeout() {
    let server = TestingServer::start().unwrap();
    let hole = FullBacklog::open();
    // The order is random: each client draws another one.
    let rounds = join_all((0..4).map(|index| {
        let (server, others) = (&server, [hole.address]);
        async move { held_while_one_falls_silent(server, &format!("/lock-{index}"), &others).await }
    }))
    .await;
    assert!(rounds.iter().all(|without| *without < TIMEOUT * 2 / 3), "{rounds:?}");
    // It was the silence that was noticed.
    assert!(rounds.iter().all(|without| *without > TIMEOUT / 6), "{rounds:?}");
}

/// Claims that start and end again and again, as in timed acquires, do not hide the silence.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn claims_that_come_and_go_do_not_hide_a_silent_server() {
    let server = TestingServer::start().unwrap();
    let proxies = [(); 2].map(|()| FaultProxy::start(server.address()).unwrap());
    let client = connected(servers(&proxies.each_ref().map(FaultProxy::address))).await;
    let session = client.session().await.unwrap();
    let (epoch, since) = (session.epoch(), Instant::now());
    proxies.iter().find(|proxy| proxy.connections() == 1).unwrap().partition();
    let claiming = async {
        loop {
            drop(session.owned_node("/", "node-", curator_framework::CreateMode::Ephemeral));
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let attached = eventually("attached again", async || session.epoch() > epoch || session.end_reason().is_some());
    tokio::select! {
        () = claiming => {}
        () = attached => {}
    }
    assert_eq!(session.end_reason(), None);
    assert!(since.elapsed() < TIMEOUT * 3 / 4, "{:?}", since.elapsed());
}

/// Names of servers, and where they are now.
#[derive(Debug, Clone, Default)]
struct Names(Arc<Mutex<HashMap<String, SocketAddr>>>);

impl Names {
    fn set(&self, name: &str, address: SocketAddr) {
        self.0.lock().insert(name.to_owned(), address);
    }
}

#[async_trait]
impl Connector for Names {
    async fn connect(&self, server: &str) -> io::Result<Box<dyn ByteStream>> {
        let address = self.0.lock().get(server).copied();
        let address = address.ok_or_else(|| io::Error::other(format!("no address of {server}")))?;
        Ok(Box::new(tokio::net::TcpStream::connect(address).await?))
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn session_finds_a_server_whose_name_has_moved() {
    let server = TestingServer::start().unwrap();
    let (old, new) = (FaultProxy::start(server.address()).unwrap(), FaultProxy::start(server.address()).unwrap());
    let names = Names::default();
    names.set("zookeeper:2181", old.address());
    let client = CuratorFramework::builder("zookeeper:2181")
        .zookeeper_factory(DefaultZooKeeperFactory::with_connector(names.clone()))
        .session_timeout(TIMEOUT)
        .connection_timeout(TIMEOUT)
        .retry_policy(RetryNTimes::new(10, Duration::from_millis(50)));
    let client = connected(client).await;
    let guard = in_time(InterProcessMutex::new(client.clone(), "/lock").unwrap().acquire()).await.unwrap();
    old.refuse();
    old.reset();
    names.set("zookeeper:2181", new.address());
    let session = client.session().await.unwrap();
    eventually("attached at the new address", async || session.epoch() == 2).await;
    assert!(guard.is_held());
    guard.verify().await.unwrap();
    assert_eq!(server.sessions().len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn session_follows_a_list_of_servers_that_changes() {
    let server = TestingServer::start().unwrap();
    let (old, new) = (FaultProxy::start(server.address()).unwrap(), FaultProxy::start(server.address()).unwrap());
    let ensemble = FixedEnsembleProvider::new(old.connect_string());
    let client = connected(builder(old.address()).ensemble_provider(ensemble.clone())).await;
    let session = client.session().await.unwrap();
    ensemble.set_connect_string(new.connect_string());
    old.refuse();
    old.reset();
    eventually("attached at the new server", async || session.epoch() == 2).await;
    assert_eq!((session.end_reason(), server.sessions().len()), (None, 1));
}

/// 2 s for four servers are 0.5 s each for a connect, but not for a reply.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn share_of_the_connection_timeout_does_not_limit_replies() {
    let server = TestingServer::start().unwrap();
    let proxies = [(); 4].map(|()| FaultProxy::start(server.address()).unwrap());
    let options = servers(&proxies.each_ref().map(FaultProxy::address)).connection_timeout(Duration::from_secs(2));
    let client = connected(options).await;
    let session = client.session().await.unwrap();
    let delay = Duration::from_millis(700);
    proxies.iter().for_each(|proxy| proxy.latency(delay));
    let since = Instant::now();
    for _ in 0..2 {
        assert!(in_time(session.exists("/")).await.unwrap().is_some());
    }
    assert!(since.elapsed() >= 4 * delay);
    assert_eq!((session.epoch(), session.end_reason()), (1, None));
    assert_eq!(proxies.iter().map(FaultProxy::total_connections).sum::<usize>(), 1);
}
