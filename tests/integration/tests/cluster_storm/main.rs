//! A client under load on a cluster of real servers that are killed, frozen and started again in turn: no call takes
//! longer than its budget, nothing grows, credentials and watches keep working, and the client is back soon after a
//! majority is.
//!
//! `CURATOR_STORM_SECONDS` makes the storm longer.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on fails")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use curator_framework::recipe::RecipeClient as _;
use curator_framework::{Acl, ConnectionState, CreateMode, CuratorFramework, Error, RetryNTimes, WakeReason};
use curator_test::ApacheCluster;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

const SESSION: Duration = Duration::from_secs(6);
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(6);
const RETRIES: u32 = 3;
const PAUSE: Duration = Duration::from_millis(100);
/// A try ends with its answer, or with the session: three quarters of its timeout without one. The wait for the
/// connection counts once. Twice that, because the machine may be busy.
const BUDGET: Duration = Duration::from_secs(2 * (4 * 5 + 6 + 1));
const WORKERS: usize = 16;
const PATIENCE: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread")]
async fn a_client_survives_a_cluster_whose_servers_fail_in_turn() {
    let seconds = std::env::var("CURATOR_STORM_SECONDS").map_or(20, |seconds| seconds.parse().unwrap());
    let cluster =
        ApacheCluster::builder().session_timeouts(Duration::from_secs(2), Duration::from_secs(60)).start().unwrap();
    let client = CuratorFramework::builder(cluster.connect_string())
        .session_timeout(SESSION)
        .connection_timeout(CONNECTION_TIMEOUT)
        .retry_policy(RetryNTimes::new(RETRIES, PAUSE))
        .authorization("digest", "storm:secret")
        .authorization("digest", "other:secret")
        .build()
        .unwrap();
    client.start().unwrap();
    client.block_until_connected().await.unwrap();
    client.create().with_acl(Acl::creator_all()).for_path("/load").await.unwrap();
    client.create().with_acl(Acl::creator_all()).with_data("0").for_path("/watched").await.unwrap();
    let at_rest = Rest::now();

    let load = Arc::new(Load::default());
    let mut workers = JoinSet::new();
    for worker in 0..WORKERS {
        workers.spawn(work(client.clone(), Arc::clone(&load), worker));
    }
    let watcher = tokio::spawn(watch(client.clone(), Arc::clone(&load)));

    let began = Instant::now();
    let mut warm = None;
    let mut server = 0;
    while began.elapsed() < Duration::from_secs(seconds) {
        let at = began.elapsed();
        println!("{at:>8.1?} server {server} is killed");
        cluster.kill(server).unwrap();
        sleep(Duration::from_millis(1500)).await;
        cluster.restart(server).unwrap();
        back(&cluster, &client).await;

        println!("{:>8.1?} server {server} stands still", began.elapsed());
        cluster.freeze(server).unwrap();
        sleep(SESSION).await;
        cluster.thaw(server).unwrap();
        back(&cluster, &client).await;

        server = (server + 1) % cluster.servers();
        if server == 0 {
            println!("{:>8.1?} no majority for a while", began.elapsed());
            cluster.kill(1).unwrap();
            cluster.kill(2).unwrap();
            sleep(Duration::from_secs(2)).await;
            cluster.restart(1).unwrap();
            cluster.restart(2).unwrap();
            back(&cluster, &client).await;
        }
        warm.get_or_insert_with(Rest::now);
    }

    // Everything works in the calm.
    load.stopping.store(true, Ordering::SeqCst);
    while let Some(ended) = timeout(PATIENCE, workers.join_next()).await.expect("a worker does not end") {
        ended.expect("a worker panicked");
    }
    client.set_data().for_path("/watched", "the end").await.unwrap();
    timeout(PATIENCE, watcher).await.expect("the watch does not fire").expect("the watcher panicked");
    let (done, failed) = (load.done.load(Ordering::SeqCst), load.failed.load(Ordering::SeqCst));
    println!("{done} calls done, {failed} failed, {} events", load.events.load(Ordering::SeqCst));
    assert!(done > 20 * WORKERS, "hardly anything was done");
    assert!(load.events.load(Ordering::SeqCst) > 10, "the watch hardly ever fired");
    assert_eq!(client.watchers(), 0);
    let (now, warm) = (Rest::now(), warm.unwrap_or(at_rest));
    println!("at rest {at_rest:?}, warm {warm:?}, now {now:?}");
    // A client has a few of its own for each connection.
    assert!(now.tasks <= at_rest.tasks + 8, "tasks have grown: {} to {}", at_rest.tasks, now.tasks);
    assert!(now.resident < warm.resident + (32 << 20), "memory has grown: {warm:?} to {now:?}");
    let left = client.get_children().for_path("/load").await.unwrap();
    assert!(left.len() <= 2 * WORKERS, "the load is left behind: {left:?}");
    client.close().await;
}

/// When a majority is back the client is, within its connection timeout.
async fn back(cluster: &ApacheCluster, client: &CuratorFramework) {
    let began = Instant::now();
    while cluster.leader().is_none() {
        assert!(began.elapsed() < PATIENCE, "no majority comes back");
        sleep(Duration::from_millis(20)).await;
    }
    let mut state = client.watch_connection_state();
    let is_back = |state: &Option<ConnectionState>| state.is_some_and(ConnectionState::is_connected);
    let in_time = timeout(CONNECTION_TIMEOUT, state.wait_for(is_back)).await;
    assert!(in_time.is_ok_and(|state| state.is_ok()), "not connected within {CONNECTION_TIMEOUT:?} of a majority");
}

/// What must not grow.
#[derive(Debug, Clone, Copy)]
struct Rest {
    tasks: usize,
    /// In bytes.
    resident: usize,
}

impl Rest {
    fn now() -> Self {
        let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
        let resident: usize = pages.split(' ').nth(1).unwrap().parse().unwrap();
        Self { tasks: tokio::runtime::Handle::current().metrics().num_alive_tasks(), resident: resident * 4096 }
    }
}

#[derive(Debug, Default)]
struct Load {
    stopping: AtomicBool,
    done: AtomicUsize,
    failed: AtomicUsize,
    events: AtomicUsize,
}

impl Load {
    /// Runs one call within its budget. It may fail for want of a connection or a session, not otherwise.
    async fn call<T>(&self, what: &str, call: impl Future<Output = Result<T, Error>>) -> Option<T> {
        let result = timeout(BUDGET, call).await.unwrap_or_else(|_| panic!("{what} takes longer than {BUDGET:?}"));
        match result {
            Ok(value) => {
                self.done.fetch_add(1, Ordering::SeqCst);
                Some(value)
            }
            // The reply of an earlier try was lost.
            Err(Error::NodeExists { .. } | Error::NoNode { .. }) => None,
            Err(error) if error.is_retryable() => {
                self.failed.fetch_add(1, Ordering::SeqCst);
                None
            }
            Err(error) => panic!("{what}: {error}"),
        }
    }
}

/// Creates, changes, reads and deletes under credentials.
async fn work(client: CuratorFramework, load: Arc<Load>, worker: usize) {
    let path = format!("/load/worker-{worker}");
    while !load.stopping.load(Ordering::SeqCst) {
        let acl = Acl::creator_all();
        load.call("create", client.create().idempotent().with_acl(acl.clone()).with_data("x").for_path(&path)).await;
        load.call("set", client.set_data().for_path(&path, "y")).await;
        load.call("get", client.get_data().for_path(&path)).await;
        load.call("list", client.get_children().for_path("/load")).await;
        let protected = client.create().with_protection().with_mode(CreateMode::EphemeralSequential).with_acl(acl);
        let created = load.call("protected create", protected.for_path("/load/short-")).await;
        if let Some(created) = created {
            load.call("delete", client.delete().guaranteed().quietly().for_path(&created)).await;
        }
        load.call("change", client.set_data().for_path("/watched", "z")).await;
        load.call("delete", client.delete().quietly().for_path(&path)).await;
        sleep(Duration::from_millis(10)).await;
    }
}

/// Waits for one change after the other.
async fn watch(client: CuratorFramework, load: Arc<Load>) {
    loop {
        let read = load.call("watched read", client.get_data().watched().for_path("/watched")).await;
        let Some(((data, _), changed)) = read else { continue };
        if data == b"the end" {
            return;
        }
        // Else it has to be set again.
        if let WakeReason::Event(_) = changed.await {
            load.events.fetch_add(1, Ordering::SeqCst);
        }
    }
}
