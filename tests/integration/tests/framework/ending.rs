//! How a client ends: at once where it can, after a bounded time where it cannot, and with nothing left.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use curator_framework::{CuratorFramework, Error};
use curator_integration::connection_stage::{CLIENT, TIMEOUT, simulated, simulation};
use curator_integration::env::{builder, eventually, in_time, tasks};
use curator_integration::in_process::{client, server};
use curator_integration::on_every_server;
use curator_recipes::InterProcessMutex;
use curator_test::{ClientId, FaultProxy, TestingServer};
use futures_util::FutureExt;
use futures_util::future::join_all;
use tokio::time::{Instant, sleep};

on_every_server! {
    async fn a_client_may_be_closed_twice_and_by_several_at_once(env) {
        let client = env.client().await;
        in_time(async { futures_util::join!(client.close(), client.close(), client.close()) }).await;
        assert!(matches!(client.close().now_or_never(), Some(())), "there is nothing left to wait for");
        assert!(matches!(client.start(), Err(Error::Closed)));
        assert!(matches!(client.check_exists().for_path("/").await, Err(Error::Closed)));
    }

    async fn a_client_that_never_started_is_closed_at_once(env) {
        let client = builder(env.address()).build().unwrap();
        assert!(matches!(client.close().now_or_never(), Some(())));
        assert!(matches!(client.start(), Err(Error::Closed)));
        assert!(matches!(client.session().await, Err(Error::Closed)));
    }

    /// As many as a busy client has, most of them not even sent.
    async fn every_pending_request_is_told_that_the_client_is_closed(env) {
        let env = env.alone();
        let client = env.client().await;
        let answered = Arc::new(AtomicUsize::new(0));
        env.freeze();
        let pending: Vec<_> = (0..1000)
            .map(|number| {
                let (client, answered) = (client.clone(), Arc::clone(&answered));
                tokio::spawn(async move {
                    let outcome = match number % 3 {
                        0 => client.get_data().for_path("/").await.map(drop),
                        1 => client.set_data().for_path("/", "x").await.map(drop),
                        _ => client.get_children().watched().for_path("/").await.map(drop),
                    };
                    answered.fetch_add(1, Ordering::SeqCst);
                    outcome
                })
            })
            .collect();
        // Some have asked by now, some have not.
        let closing = tokio::spawn(async move { client.close().await });
        for outcome in in_time(join_all(pending)).await {
            let outcome = outcome.unwrap();
            assert!(matches!(outcome, Err(Error::Closed)), "{outcome:?}");
        }
        assert_eq!(answered.load(Ordering::SeqCst), 1000);
        env.thaw();
        in_time(closing).await.unwrap();
    }

    /// Curator's `TestFrameworkEdges.testQuickClose`.
    async fn a_client_may_be_closed_as_soon_as_it_is_started(env) {
        for _ in 0..5 {
            let client = builder(env.address()).build().unwrap();
            client.start().unwrap();
            in_time(client.close()).await;
            let client = builder(env.address()).build().unwrap();
            in_time(client.close()).await;
            assert!(matches!(client.start(), Err(Error::Closed)));
        }
    }

    /// Curator's `TestFrameworkEdges.testNotStarted` and `testStopped`.
    async fn a_client_that_does_not_run_says_so(env) {
        let client = builder(env.address()).build().unwrap();
        assert!(matches!(in_time(client.get_data().for_path("/")).await, Err(Error::NotStarted)));
        client.start().unwrap();
        assert!(matches!(client.start(), Err(Error::AlreadyStarted)));
        in_time(client.get_data().for_path("/")).await.unwrap();
        client.close().await;
        assert!(matches!(in_time(client.get_data().for_path("/")).await, Err(Error::Closed)));
        assert!(matches!(in_time(client.using_namespace("ns").unwrap().get_data().for_path("/")).await, Err(Error::Closed)));
    }
}

/// What is sent to a server that is not there: refused, silent, or gone since.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_close_without_a_server_does_not_hang_and_leaves_nothing() {
    let before = tasks();
    let server = TestingServer::start().unwrap();
    let refused = FaultProxy::start(server.address()).unwrap();
    refused.refuse();
    let silent = FaultProxy::start(server.address()).unwrap();
    silent.partition();
    for proxy in [&refused, &silent] {
        let client = builder(proxy.address()).max_close_wait(Duration::from_millis(100)).build().unwrap();
        client.start().unwrap();
        let asker = client.clone();
        let pending = tokio::spawn(async move { asker.create().for_path("/node").await });
        let deleter = client.clone();
        let delete = tokio::spawn(async move { deleter.delete().guaranteed().for_path("/node").await.map(drop) });
        in_time(proxy.wait_for_connections(1)).await;
        in_time(client.close()).await;
        assert!(matches!(in_time(pending).await.unwrap(), Err(Error::Closed)));
        assert!(matches!(in_time(delete).await.unwrap(), Err(Error::Closed)));
        drop(client);
        eventually("every task has ended", async || tasks() == before).await;
    }
    assert!(server.sessions().is_empty());
}

/// A client behind the seam may keep tasks of its own until a server is back; here they are the simulation's.
#[tokio::test(start_paused = true)]
async fn a_close_in_a_partition_leaves_no_task_of_ours() {
    let ensemble = simulation(51);
    let before = tasks();
    let client = simulated(&ensemble, CLIENT).build().unwrap();
    client.start().unwrap();
    client.block_until_connected().await.unwrap();
    let other = simulated(&ensemble, ClientId(2)).build().unwrap();
    other.start().unwrap();
    other.block_until_connected().await.unwrap();
    let both = tasks();
    other.close().await;
    drop(other);
    eventually("the other one's tasks have ended", async || (both + before) / 2 == tasks()).await;
    ensemble.partition(CLIENT);
    let running: Vec<_> = (0..100)
        .map(|_| {
            let client = client.clone();
            tokio::spawn(async move { client.get_data().for_path("/").await })
        })
        .collect();
    tokio::task::yield_now().await;
    client.close().await;
    for outcome in join_all(running).await {
        assert!(matches!(outcome.unwrap(), Err(Error::Closed)));
    }
    drop(client);
    ensemble.repair(CLIENT);
    eventually("every task has ended", async || tasks() == before).await;
}

/// A client with a guaranteed delete under way without a waiter, cut off from its servers.
async fn with_a_delete_under_way(ensemble: &curator_test::SimulatedEnsemble, wait: Duration) -> CuratorFramework {
    let client = simulated(ensemble, CLIENT).max_close_wait(wait).build().unwrap();
    client.start().unwrap();
    client.create().for_path("/node").await.unwrap();
    ensemble.partition(CLIENT);
    assert!(client.delete().guaranteed().for_path("/node").now_or_never().is_none());
    client
}

#[tokio::test(start_paused = true)]
async fn a_close_waits_for_a_guaranteed_delete_until_it_is_done() {
    let ensemble = simulation(52);
    let client = with_a_delete_under_way(&ensemble, Duration::from_secs(8)).await;
    let start = Instant::now();
    let closing = tokio::spawn(async move { client.close().await });
    sleep(Duration::from_secs(3)).await;
    assert!(!closing.is_finished());
    ensemble.repair(CLIENT);
    closing.await.unwrap();
    assert_eq!(start.elapsed().as_secs(), 3);
    assert_eq!(ensemble.children("/"), ["zookeeper"]);
    assert_eq!(ensemble.sessions(), [0_i64; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_close_waits_for_a_guaranteed_delete_no_longer_than_it_may() {
    let ensemble = simulation(53);
    let wait = Duration::from_secs(2);
    let client = with_a_delete_under_way(&ensemble, wait).await;
    let start = Instant::now();
    client.close().await;
    // Half of it for the delete, nine tenths of the rest for the session; timers are late by a millisecond at most.
    let slack = Duration::from_millis(5);
    let both = wait / 2 + wait / 2 * 9 / 10;
    assert!((both..both + slack).contains(&start.elapsed()), "{:?}", start.elapsed());
    drop(client);
    ensemble.repair(CLIENT);
    sleep(TIMEOUT).await;
    assert_eq!(ensemble.sessions(), [0_i64; 0], "the session is closed as soon as that can be done");
}

/// A runtime that is dropped beneath a long line of requests ends them all, one after the other.
#[test]
fn a_runtime_may_end_beneath_a_long_line() {
    const WAITERS: usize = 10_000;
    let server = server();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let asked = Arc::new(AtomicUsize::new(0));
    runtime.block_on(async {
        let client = client(&server).await;
        server.freeze();
        for number in 0..WAITERS {
            let (client, asked) = (client.clone(), Arc::clone(&asked));
            tokio::spawn(async move {
                let mutex = InterProcessMutex::new(client, format!("/locks/{number}")).unwrap();
                let mut acquiring = std::pin::pin!(mutex.acquire());
                // After its first poll it is in the queue.
                let first = futures_util::poll!(&mut acquiring);
                assert!(first.is_pending());
                asked.fetch_add(1, Ordering::SeqCst);
                drop(acquiring.await);
            });
        }
        eventually("all stand in line", async || asked.load(Ordering::SeqCst) == WAITERS).await;
    });
    drop(runtime);
    assert_eq!(Arc::strong_count(&asked), 1);
    server.thaw();
}
