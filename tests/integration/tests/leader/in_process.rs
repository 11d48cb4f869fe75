//! The parts of an election that only the in-process server shows: a loss of all data, and the requests.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use curator_framework::recipe::RecipeClient as _;
use curator_framework::{Acl, Permission, RetryNTimes};
use curator_integration::env::{answered, connected, eventually, in_time};
use curator_integration::in_process::{client, options, server};
use curator_recipes::{LeaderError, LeaderSelector, TermEnd};
use curator_test::wire::OpCode;

use crate::stage::{SHORT, Terms, end_of, leaders, leads, named, one_leads, started};

const PAUSE: Duration = Duration::from_millis(50);

/// Curator's `TestLeaderLatch.testGetChildrenHitsNoNode` (CURATOR-724): the server starts again, without any data.
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
    // Two seconds of heartbeats and other requests cause few creates.
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!((1..=20).contains(&creates()), "{} creates", creates());
    in_time(latch.close()).await;
    assert_eq!(server.watch_count(), 0);
}

/// The next leader needs nothing but the notification, unless the election's data has changed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn next_leader_neither_lists_nor_reads() {
    const CANDIDATES: usize = 4;
    for proclaims in [false, true] {
        let server = server();
        let mut candidates = Vec::new();
        for _ in 0..CANDIDATES {
            let client = client(&server).await;
            let latch = started(&client, "/latch");
            eventually("it is in the queue", async || latch.our_path().is_some()).await;
            candidates.push((client, latch));
        }
        leads(&candidates[0].1).await;
        for next in 1..CANDIDATES {
            let [(_, leader), (client, latch)] = &candidates[next - 1..=next] else { unreachable!() };
            eventually("it knows that it is next", async || client.watched_paths().contains(&"/latch".into())).await;
            answered(std::slice::from_ref(client)).await;
            if proclaims {
                leads(leader).await.proclaim("here").await.unwrap();
            }
            server.clear_requests();
            in_time(leader.close()).await;
            leads(latch).await;
            let session = client.session().await.unwrap().id().unwrap();
            let looks = server.requests().into_iter().filter(|request| {
                request.session_id == session.get() && matches!(request.op, OpCode::GetChildren | OpCode::GetData)
            });
            assert_eq!(looks.count() == 0, !proclaims, "candidate {next}");
        }
    }
}

/// The protected work of a leader that resigns has ended before another candidate leads.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn protected_work_is_dropped_before_a_resigning_leaders_node_is_deleted() {
    /// Work that takes its time to end.
    struct Work(Arc<AtomicBool>);
    impl Drop for Work {
        fn drop(&mut self) {
            std::thread::sleep(PAUSE * 4);
            self.0.store(true, Ordering::SeqCst);
        }
    }
    let server = server();
    let (one, two) = (client(&server).await, client(&server).await);
    let latch = started(&one, "/latch");
    let leadership = leads(&latch).await;
    let next = started(&two, "/latch");
    let has_ended = Arc::new(AtomicBool::new(false));
    let work = Work(Arc::clone(&has_ended));
    let (begun, begins) = tokio::sync::oneshot::channel();
    let protected = tokio::spawn(async move {
        let work = async {
            let _work = work;
            begun.send(()).unwrap();
            std::future::pending::<()>().await;
        };
        leadership.protect(work).await
    });
    begins.await.unwrap();
    let resigned = tokio::spawn(async move { latch.resign().await });
    leads(&next).await;
    assert!(has_ended.load(Ordering::SeqCst), "the next leader works beside the old one");
    assert!(in_time(resigned).await.unwrap().unwrap().is_some());
    let ended = in_time(protected).await.unwrap();
    assert!(matches!(ended, Err(LeaderError::LeadershipLost { reason: TermEnd::Resigned, .. })), "{ended:?}");
}

/// After the last sequence number the order is the order of creation.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn latches_lead_in_order_at_the_end_of_the_sequence_numbers() {
    let server = server();
    let client = client(&server).await;
    client.create().for_path("/latch").await.unwrap();
    assert!(server.set_next_sequence("/latch", i32::MAX - 2));
    let mut latches = Vec::new();
    for number in 1..=5 {
        latches.push(named(&client, "/latch", &number.to_string()));
        eventually("it is in the queue", async || server.children("/latch").unwrap().len() == number).await;
    }
    let mut term = None;
    let chosen = latches[0].participants().await.unwrap().remove(1);
    leads(&latches[0]).await;
    let refused = in_time(latches[0].resign_to_timeout(&chosen, Duration::from_secs(1))).await;
    assert!(matches!(refused, Err(LeaderError::InvalidArgument { .. })), "{refused:?}");
    for (number, latch) in latches.iter().enumerate() {
        let leadership = leads(latch).await;
        assert_eq!(leaders(&latches), [number]);
        assert!(Some(leadership.token()) > term);
        term = Some(leadership.token());
        in_time(latch.close()).await;
    }
}

/// A candidate alone leaves only the watches of its node and path, and none when it is closed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn closed_election_leaves_no_watch() {
    let server = server();
    let client = client(&server).await;
    for _ in 0..3 {
        let latches = [started(&client, "/latch"), started(&client, "/latch"), started(&client, "/latch")];
        let observer = latches[0].observe().unwrap();
        for _ in 0..3 {
            let leader = one_leads(&latches).await;
            assert!(in_time(latches[leader].resign()).await.unwrap().is_some());
        }
        for latch in latches {
            in_time(latch.close()).await;
        }
        in_time(observer.close()).await;
        eventually("no watch is left", async || client.watchers() == 0).await;
        eventually("no node is left", async || server.children("/latch").is_none_or(|nodes| nodes.is_empty())).await;
    }
}
