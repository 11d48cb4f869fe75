//! The parts of an election that only the in-process server shows: a loss of all data, and the requests.

use std::time::Duration;

use curator_framework::{Acl, Permission, RetryNTimes};
use curator_integration::env::{connected, eventually, in_time};
use curator_integration::in_process::{client, options, server};
use curator_recipes::{LeaderSelector, TermEnd};
use curator_test::wire::OpCode;

use crate::stage::{SHORT, Terms, end_of, leaders, leads, named, one_leads, started};

const PAUSE: Duration = Duration::from_millis(50);

/// Curator's `TestLeaderLatch.testGetChildrenHitsNoNode` (CURATOR-724): the server starts anew, without any data.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn latches_join_again_on_a_server_without_data() {
    let server = server();
    // The server refuses clients that have seen more of the old data, so their sessions have to end first.
    let options = || options(&server).session_timeout(SHORT).retry_policy(RetryNTimes::new(1000, PAUSE));
    let (one, two) = (connected(options()).await, connected(options()).await);
    let latches = [named(&one, "/latch", "id0"), named(&two, "/latch", "id1")];
    let count = || server.children("/latch").map_or(0, |children| children.len());
    for _ in 0..3 {
        eventually("both are in the queue", async || count() == 2).await;
        let before = leads(&latches[one_leads(&latches).await]).await;
        tokio::task::block_in_place(|| server.restart_empty()).unwrap();
        assert!(matches!(end_of(&before).await, TermEnd::Lost(_)));
        eventually("both are in the queue", async || count() == 2).await;
        let now = one_leads(&latches).await;
        leads(&latches[now]).await.verify().await.unwrap();
        assert_eq!(leaders(&latches), [now]);
    }
}

/// A selector that may not create its node asks once; a latch asks now and then.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refused_candidates_do_not_ask_in_a_loop() {
    let server = server();
    let client = client(&server).await;
    let closed = vec![Acl::new(Permission::READ, "world", "anyone")];
    client.create().with_acl(closed).for_path("/election").await.unwrap();
    let creates = || server.requests().iter().filter(|request| request.op == OpCode::Create2).count();
    server.clear_requests();
    let selector = LeaderSelector::new(client.clone(), "/election").unwrap();
    assert!(in_time(Terms::new().run(&selector, "")).await.unwrap().is_err());
    assert_eq!(creates(), 1);
    server.clear_requests();
    let latch = started(&client, "/election");
    assert!(in_time(latch.leading()).await.is_err());
    // Two seconds of heartbeats and other requests are no reason for more creates.
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!((1..=20).contains(&creates()), "{} creates", creates());
    in_time(latch.close()).await;
    assert_eq!(server.watch_count(), 0);
}

/// A candidate alone leaves no watch but those of its own node and path, and none when it is closed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn closed_election_leaves_no_watch() {
    let server = server();
    let client = client(&server).await;
    for _ in 0..3 {
        let latches = [started(&client, "/latch"), started(&client, "/latch"), started(&client, "/latch")];
        let observer = latches[0].observe().unwrap();
        for _ in 0..3 {
            let leader = one_leads(&latches).await;
            assert!(in_time(latches[leader].resign()).await.unwrap());
        }
        for latch in latches {
            in_time(latch.close()).await;
        }
        in_time(observer.close()).await;
        eventually("no watch is left", async || client.watchers() == 0).await;
        eventually("no node is left", async || server.children("/latch").is_none_or(|nodes| nodes.is_empty())).await;
    }
}
