//! Hand-overs.

use std::time::Duration;

use curator_framework::recipe::RecipeClient as _;
use curator_framework::{AddWatchMode, CreateMode, EventType, WakeReason, make_path};
use curator_integration::env::{connected, eventually, in_time};
use curator_integration::in_process::{client, options, server};
use curator_recipes::{LeaderLatch, Participant};
use curator_test::FaultProxy;
use curator_test::wire::OpCode;

const PATH: &str = "/election";
const BUDGET: Duration = Duration::from_secs(20);

pub(crate) fn started(client: &curator_framework::CuratorFramework) -> LeaderLatch {
    let latch = LeaderLatch::new(client.clone(), PATH).unwrap();
    latch.start().unwrap();
    latch
}

pub(crate) async fn participant(of: &LeaderLatch) -> Participant {
    let mut found = None;
    // Behind a term the latch may still have its earlier path, which the queue lacks.
    eventually("the latch has its node", async || {
        let own = of.our_path();
        let queue = of.participants().await.unwrap();
        found = queue.into_iter().find(|candidate| Some(&candidate.path) == own.as_ref());
        found.is_some()
    })
    .await;
    found.unwrap()
}

/// Java's latch watches the data of the node ahead of its own, once, and acts on a deletion only (Curator 5.4 and
/// later). Another event would leave it without a watch, and it would never lead.
#[tokio::test]
async fn a_hand_over_shows_the_latch_behind_the_candidate_a_deletion_only() {
    let server = server();
    let options = || options(&server).session_timeout(Duration::from_secs(5));
    let (one, two, java) = (connected(options()).await, connected(options()).await, connected(options()).await);
    let leader = started(&one);
    in_time(leader.leading()).await.unwrap();
    let candidate = started(&two);
    let chosen = participant(&candidate).await;
    let behind = "_c_00000000-0000-4000-8000-000000000000-latch-";
    java.create().with_mode(CreateMode::EphemeralSequential).for_path(&make_path(PATH, behind)).await.unwrap();
    let watched = java.session().await.unwrap().get_data_watched(&chosen.path).await.unwrap();

    assert!(in_time(leader.resign_to_timeout(&chosen, BUDGET)).await.unwrap().is_some());
    assert_eq!(in_time(watched.watch).await, WakeReason::Event(EventType::NodeDeleted));
    in_time(candidate.leading()).await.unwrap();
}

/// A request that is lost on its way costs a hand-over a tenth of the session timeout, not its success.
#[tokio::test]
async fn a_candidate_follows_a_wish_in_spite_of_a_lost_request() {
    let server = server();
    let proxy = FaultProxy::start(server.address()).unwrap();
    let through =
        options(&server).ensemble_provider(curator_framework::FixedEnsembleProvider::new(proxy.connect_string()));
    let (one, two) = (client(&server).await, connected(through.session_timeout(Duration::from_secs(5))).await);
    let leader = started(&one);
    in_time(leader.leading()).await.unwrap();
    let candidate = started(&two);
    let chosen = participant(&candidate).await;
    eventually("the candidate watches its own node", async || two.watched_paths().contains(&chosen.path)).await;

    proxy.drop_request(OpCode::Multi, 1);
    assert!(in_time(leader.resign_to_timeout(&chosen, BUDGET)).await.unwrap().is_some());
    in_time(candidate.leading()).await.unwrap();
    assert_eq!(proxy.faults_done(), 1);
}

/// A leader may proclaim at any time, also between the move of the candidate and the leader's notice of it.
#[tokio::test]
async fn a_hand_over_succeeds_while_the_leader_proclaims() {
    let server = server();
    let options = || options(&server).session_timeout(Duration::from_secs(5));
    let (one, two) = (connected(options()).await, connected(options()).await);
    let first = started(&one);
    in_time(first.leading()).await.unwrap();
    let mut latches = [first, started(&two)];
    for round in 0..4 {
        let [leader, candidate] = &latches;
        let leadership = in_time(leader.leading()).await.unwrap();
        let chosen = participant(candidate).await;
        let proclaiming = async {
            while leadership.proclaim(format!("{round}")).await.is_ok() {}
            std::future::pending().await
        };
        let handed_over = tokio::select! {
            handed_over = in_time(leader.resign_to_timeout(&chosen, BUDGET)) => handed_over,
            never = proclaiming => never,
        };
        assert!(handed_over.unwrap().is_some(), "round {round}");
        in_time(candidate.leading()).await.unwrap();
        latches.reverse();
    }
}

/// Another client that empties the path's data removes the highest term, but not its transaction.
#[tokio::test]
async fn terms_rise_although_the_record_of_a_hand_over_is_emptied() {
    let server = server();
    let options = || options(&server).session_timeout(Duration::from_secs(5));
    let clients = [connected(options()).await, connected(options()).await, connected(options()).await];
    let first = started(&clients[0]);
    in_time(first.leading()).await.unwrap();
    let older = started(&clients[1]);
    participant(&older).await;
    let chosen = started(&clients[2]);
    let named = participant(&chosen).await;
    assert!(in_time(first.resign_to_timeout(&named, BUDGET)).await.unwrap().is_some());
    let moved = in_time(chosen.leading()).await.unwrap().token();
    clients[0].set_data().for_path(PATH, "").await.unwrap();
    in_time(chosen.close()).await;
    let term = in_time(older.leading()).await.unwrap().token();
    assert!(term > moved, "{term} behind {moved}");
}

/// With the last subscriber of a path the server removes the one-shot watches of that path too. Here the candidate
/// directly behind the leader hears nothing of another candidate's move, only of the leader's end. Returns `true` if it
/// leads too.
async fn candidate_with_a_dropped_subscription_of_the_path_leads_beside_one_that_moved() -> bool {
    let server = server();
    let proxy = FaultProxy::start(server.address()).unwrap();
    let through =
        options(&server).ensemble_provider(curator_framework::FixedEnsembleProvider::new(proxy.connect_string()));
    let behind = connected(through.session_timeout(Duration::from_secs(40))).await;
    let (one, two) = (client(&server).await, connected(options(&server).session_timeout(Duration::from_secs(5))).await);
    let leader = started(&one);
    in_time(leader.leading()).await.unwrap();
    let subscription = behind.add_watch(PATH, AddWatchMode::Persistent).await.unwrap();
    let second = started(&behind);
    participant(&second).await;
    eventually("it watches the path's data", async || behind.watched_paths().iter().any(|path| path == PATH)).await;
    let third = started(&two);
    let chosen = participant(&third).await;
    eventually("the other one can be called", async || two.watched_paths().contains(&chosen.path)).await;
    server.clear_requests();
    proxy.latency(Duration::from_secs(1));
    drop(subscription);
    let is_removed = async || server.requests().iter().any(|request| request.op == OpCode::RemoveWatches);
    eventually("the server has removed the watches", is_removed).await;
    assert!(in_time(leader.resign_to_timeout(&chosen, BUDGET)).await.unwrap().is_some());
    in_time(third.leading()).await.unwrap();
    let end = || behind.watched_paths().iter().any(|path| *path == third.our_path().unwrap());
    eventually("the other one waits for the new leader", async || end() || second.has_leadership()).await;
    second.has_leadership()
}

#[tokio::test]
async fn candidate_with_a_dropped_subscription_of_the_path_does_not_lead_beside_one_that_moved() {
    assert!(!candidate_with_a_dropped_subscription_of_the_path_leads_beside_one_that_moved().await);
}

#[cfg(curator_mutants)]
#[test]
fn removed_watch_that_is_not_reported_is_found() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let both_lead = curator_framework::mutants::with("hide-the-removed-watch", || {
        runtime.block_on(candidate_with_a_dropped_subscription_of_the_path_leads_beside_one_that_moved())
    });
    assert!(both_lead);
}
