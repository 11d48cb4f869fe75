//! A count that both set and follow.

use curator_integration::env::{Env, Kind, in_time};
use curator_recipes::{InterProcessSemaphoreV2, SharedCount};

use crate::peer::Peer;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_sees_what_the_other_sets() {
    const ROUNDS: i32 = 150;
    let env = Env::new(Kind::InProcess);
    let java = Peer::java(&env).await;
    let (client, path) = (env.client().await, env.path("count"));
    let mut thread = java.thread("counts");
    let count = SharedCount::new(client, &path, 7).unwrap();
    count.start().unwrap();
    count.initialized().await.unwrap();
    let mut seen = count.watch();

    assert_eq!(thread.ask(&format!("count get {path}")).await, "7");
    for number in [i32::MIN, -1, 0, 1, i32::MAX] {
        count.set_count(number).await.unwrap();
        assert_eq!(thread.ask(&format!("count await {path} {number}")).await, format!("is {number}"));
        let back = number ^ 0x55;
        assert_eq!(thread.ask(&format!("count set {path} {back}")).await, "set");
        in_time(seen.wait_for(|now| *now.value() == back)).await.unwrap();
    }

    // A client that is not up to date sets nothing, on either side.
    let old = count.versioned_value().unwrap();
    assert_eq!(thread.ask(&format!("count set {path} 1000")).await, "set");
    assert!(!count.try_set_count(&old, 5).await.unwrap());
    in_time(seen.wait_for(|now| *now.value() == 1000)).await.unwrap();

    // None of the counts of both is lost.
    thread.begin(&format!("count increment {path} {ROUNDS}"));
    for _ in 0..ROUNDS {
        loop {
            let now = count.versioned_value().unwrap();
            if count.try_set_count(&now, now.value() + 1).await.unwrap() {
                break;
            }
        }
    }
    thread.says("done").await;
    in_time(seen.wait_for(|now| *now.value() == 1000 + 2 * ROUNDS)).await.unwrap();
    java.end().await;
}

/// Both have a limit that follows the same count.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_limit_that_either_changes_counts_for_both() {
    let env = Env::new(Kind::InProcess);
    let java = Peer::java(&env).await;
    let (client, limit, path) = (env.client().await, env.path("limit"), env.path("semaphore"));
    let count = SharedCount::new(client.clone(), &limit, 1).unwrap();
    count.start().unwrap();
    count.initialized().await.unwrap();
    let semaphore = InterProcessSemaphoreV2::new(client.clone(), &path, &count).unwrap();
    let kind = format!("semaphore:{limit}");
    let (mut sets, mut one, mut two) = (java.thread("sets"), java.thread("one"), java.thread("two"));

    let ours = in_time(semaphore.acquire()).await.unwrap();
    env.wait_for_children(&client, &format!("{path}/locks"), 0).await;
    one.begin_to_acquire(&kind, &path);
    env.wait_for_children(&client, &format!("{path}/leases"), 2).await;
    let waiter = tokio::spawn({
        let semaphore = semaphore.clone();
        async move { semaphore.acquire().await.unwrap() }
    });
    env.wait_for_children(&client, &format!("{path}/locks"), 2).await;
    assert!(one.is_silent());
    // We raise it for Java, Java for us.
    count.set_count(2).await.unwrap();
    one.holds().await;
    assert!(!waiter.is_finished());
    assert_eq!(sets.ask(&format!("count set {limit} 3")).await, "set");
    let further = in_time(waiter).await.unwrap();
    // Java lowers it: the next one waits until two of three are back.
    assert_eq!(sets.ask(&format!("count set {limit} 2")).await, "set");
    in_time(count.watch().wait_for(|now| *now.value() == 2)).await.unwrap();
    assert_eq!(sets.ask(&format!("count limits {limit} 2 {path}")).await, "is 2");
    assert!(further.release().await.unwrap().is_released());
    assert!(in_time(semaphore.try_acquire()).await.unwrap().is_none());
    two.begin_to_acquire(&kind, &path);
    env.wait_for_children(&client, &format!("{path}/leases"), 3).await;
    assert!(two.is_silent());
    assert!(ours.release().await.unwrap().is_released());
    two.holds().await;
    one.release(&kind, &path).await;
    two.release(&kind, &path).await;
    java.end().await;
}
