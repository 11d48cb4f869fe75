//! Real Apache ZooKeeper clusters: what they promise, and what a client sees when one of their servers is cut off.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on fails")]

use std::time::{Duration, Instant};

use curator_framework::{CuratorFramework, RetryNTimes};
use curator_recipes::InterProcessMutex;
use curator_test::ApacheCluster;
use tokio::time::{sleep, timeout};

const SESSION: Duration = Duration::from_secs(8);
const PATIENCE: Duration = Duration::from_secs(60);

fn cluster() -> ApacheCluster {
    ApacheCluster::builder()
        .tick(Duration::from_secs(1))
        .session_timeouts(Duration::from_secs(2), Duration::from_secs(60))
        .start()
        .unwrap()
}

async fn client(connect_string: String) -> CuratorFramework {
    let client = CuratorFramework::builder(connect_string)
        .session_timeout(SESSION)
        .connection_timeout(Duration::from_secs(10))
        .retry_policy(RetryNTimes::new(100, Duration::from_millis(200)))
        .build()
        .unwrap();
    client.start().unwrap();
    timeout(PATIENCE, client.block_until_connected()).await.unwrap().unwrap();
    client
}

/// Waits for something that a blocking look can see.
async fn until(what: &str, look: impl Fn() -> bool) {
    let began = Instant::now();
    while !look() {
        assert!(began.elapsed() < PATIENCE, "{what} takes too long");
        sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_goes_on_without_its_leader_and_keeps_what_was_written() {
    let cluster = cluster();
    assert_eq!(cluster.len(), 3);
    let leader = cluster.wait_for_leader().unwrap();
    assert_eq!(cluster.followers().len(), 2);
    let client = client(cluster.connect_string()).await;
    client.create().with_data("kept").for_path("/kept").await.unwrap();

    cluster.kill(leader).unwrap();
    let next = cluster.wait_for_leader().unwrap();
    assert_ne!(next, leader);
    assert_eq!(client.get_data().for_path("/kept").await.unwrap().0, b"kept");
    client.create().for_path("/more").await.unwrap();

    cluster.restart(leader).unwrap();
    cluster.wait_until_serving(leader).unwrap();
    let of_old_leader = self::client(cluster.server(leader).connect_string()).await;
    assert_eq!(of_old_leader.get_data().for_path("/kept").await.unwrap().0, b"kept");
    until("what was written meanwhile", || cluster.leader().is_some()).await;
    assert!(of_old_leader.check_exists().for_path("/more").await.unwrap().is_some());

    // A frozen leader is replaced, and follows when it thaws.
    let leader = cluster.wait_for_leader().unwrap();
    cluster.freeze(leader).unwrap();
    until("another leader", || cluster.leader().is_some_and(|next| next != leader)).await;
    cluster.thaw(leader).unwrap();
    until("the old leader's return", || cluster.followers().contains(&leader)).await;

    // Cut off from the others a leader stops leading, and the others go on.
    let leader = cluster.wait_for_leader().unwrap();
    cluster.isolate(leader);
    until("another leader", || cluster.leader().is_some_and(|next| next != leader)).await;
    client.create().for_path("/without-the-isolated").await.unwrap();
    cluster.repair(leader);
    until("the repaired server's return", || cluster.followers().contains(&leader)).await;
    client.close().await;
    of_old_leader.close().await;
}

/// The follower goes on answering its client's reads, and passes writes on to nobody: the holder must learn of its loss
/// before the leader gives the lock to somebody else.
#[tokio::test(flavor = "multi_thread")]
async fn a_holder_behind_a_follower_that_is_cut_off_is_told_before_the_next_one_is_granted() {
    let cluster = cluster();
    let mut shortest = Duration::MAX;
    // At other moments of the heartbeat's schedule each time.
    for round in 0..4_u32 {
        cluster.wait_for_leader().unwrap();
        until("two followers", || cluster.followers().len() == 2).await;
        let leader = cluster.wait_for_leader().unwrap();
        let follower = cluster.followers()[0];
        let holder = client(cluster.server(follower).connect_string()).await;
        let waiter = client(cluster.server(leader).connect_string()).await;
        let path = format!("/cut-off-{round}");
        let guard = InterProcessMutex::new(holder.clone(), &path).unwrap().acquire().await.unwrap();
        let waiting = InterProcessMutex::new(waiter.clone(), &path).unwrap();
        sleep(Duration::from_millis(300 * u64::from(round))).await;

        cluster.isolate(follower);
        assert!(guard.is_held());
        let cut = Instant::now();
        let next = tokio::spawn(async move {
            let guard = waiting.acquire().await.unwrap();
            (Instant::now(), guard.fencing_token())
        });
        // Reads are answered still, and prove nothing.
        let read = timeout(Duration::from_millis(500), holder.check_exists().for_path("/")).await;
        assert!(read.is_ok_and(|read| read.is_ok_and(|root| root.is_some())), "the follower answers reads");
        timeout(PATIENCE, guard.lost()).await.expect("the holder is told");
        let told = Instant::now();
        assert!(!guard.is_held());
        let (granted, token) = timeout(PATIENCE, next).await.unwrap().unwrap();
        assert!(told < granted, "round {round}: told {:?} after the next grant", told - granted);
        assert!(token > guard.fencing_token());
        println!("round {round}: told after {:?}, granted {:?} later", told - cut, granted - told);
        shortest = shortest.min(granted - told);
        cluster.repair(follower);
        drop(guard);
        holder.close().await;
        waiter.close().await;
    }
    println!("the shortest time between the two: {shortest:?}");
}
