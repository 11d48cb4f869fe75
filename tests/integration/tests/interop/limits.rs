//! What does not go together. The documentation of each says so.

use std::time::Duration;

use curator_integration::env::{Env, Kind, children, eventually, in_time};
use curator_recipes::{InterProcessSemaphoreV2, LockError, SemaphoreOptions, SemaphoreProtocol};

use crate::peer::Peer;

/// Long enough for a contender that is wrongly granted to come in.
const A_WHILE: Duration = Duration::from_millis(200);

/// `SemaphoreProtocol::Direct`: Java's waiter counts all nodes, including the node of a direct waiter behind it, which
/// waits for Java's.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn at_a_limit_of_one_java_and_a_direct_client_block_each_other() {
    let env = Env::new(Kind::InProcess);
    let java = Peer::java(&env).await;
    let (client, path) = (env.client().await, env.path("semaphore"));
    let leases = format!("{path}/leases");
    let options = SemaphoreOptions::new().protocol(SemaphoreProtocol::Direct);
    let direct = InterProcessSemaphoreV2::with_options(client.clone(), &path, 1, options).unwrap();
    let held = in_time(direct.acquire()).await.unwrap();
    let mut thread = java.thread("waits");
    thread.begin_to_acquire("semaphore:1", &path);
    env.wait_for_children(&client, &leases, 2).await;
    let waiter = tokio::spawn(async move { direct.acquire().await.unwrap() });
    env.wait_for_children(&client, &leases, 3).await;
    assert!(held.release().await.unwrap().is_released());
    env.wait_for_children(&client, &leases, 2).await;
    tokio::time::sleep(A_WHILE).await;
    assert!(thread.is_silent() && !waiter.is_finished(), "the lease is free, and both wait");
    waiter.abort();
    thread.holds().await;
    thread.release("semaphore:1", &path).await;
    java.end().await;
}

/// So a direct client does not go where Java is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_direct_client_is_refused_where_java_holds_or_waits() {
    let env = Env::new(Kind::InProcess);
    let java = Peer::java(&env).await;
    let (client, path) = (env.client().await, env.path("semaphore"));
    let [mut holder, mut waiter] = ["holds", "waits"].map(|name| java.thread(name));
    holder.acquire("semaphore:1", &path).await;
    waiter.begin_to_acquire("semaphore:1", &path);
    env.wait_for_children(&client, &format!("{path}/leases"), 2).await;
    let options = SemaphoreOptions::new().protocol(SemaphoreProtocol::Direct);
    let direct = InterProcessSemaphoreV2::with_options(client.clone(), &path, 1, options).unwrap();
    for waits in [true, false] {
        let refused = in_time(direct.acquire()).await;
        let is_told = matches!(refused, Err(LockError::ProtocolMismatch { found: SemaphoreProtocol::Curator, .. }));
        assert!(is_told, "{refused:?}");
        if waits {
            holder.release("semaphore:1", &path).await;
            waiter.holds().await;
        }
    }
    waiter.release("semaphore:1", &path).await;
    java.end().await;
}

/// `Lease::slot`: Java's leases have no numbers, and take none.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn numbers_of_our_leases_do_not_disturb_java() {
    let env = Env::new(Kind::Apache);
    let java = Peer::java(&env).await;
    let (client, path) = (env.client().await, env.path("semaphore"));
    let semaphore = InterProcessSemaphoreV2::new(client.clone(), &path, 2).unwrap();
    let [mut holder, mut waiter] = ["holds", "waits"].map(|name| java.thread(name));
    for _ in 0..3 {
        holder.acquire("semaphore:2", &path).await;
        let ours = in_time(semaphore.acquire()).await.unwrap();
        assert_eq!(in_time(ours.slot()).await.unwrap(), 0);
        waiter.begin_to_acquire("semaphore:2", &path);
        env.wait_for_children(&client, &format!("{path}/leases"), 3).await;
        assert!(waiter.is_silent());
        assert!(ours.release().await.unwrap().is_released());
        waiter.holds().await;
        holder.release("semaphore:2", &path).await;
        let ours = in_time(semaphore.acquire()).await.unwrap();
        assert_eq!(in_time(ours.slot()).await.unwrap(), 0);
        waiter.release("semaphore:2", &path).await;
        assert!(ours.release().await.unwrap().is_released());
    }
    java.end().await;
}

/// `InterProcessSemaphoreV2`, "Several leases at once": Java's `acquire(qty)` takes its turn again for each lease, ours
/// keeps it. Each can have one of two leases then and wait for the other's. When one gives up, the other continues.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn javas_several_leases_and_ours_block_each_other_until_one_gives_up() {
    let env = Env::new(Kind::InProcess);
    let java = Peer::java(&env).await;
    let (client, path) = (env.client().await, env.path("semaphore"));
    let [leases, locks] = ["leases", "locks"].map(|folder| format!("{path}/{folder}"));
    let semaphore = InterProcessSemaphoreV2::new(client.clone(), &path, 2).unwrap();
    let mut both: Vec<_> = in_time(semaphore.acquire_many(2)).await.unwrap().into_iter().collect();
    env.wait_for_children(&client, &locks, 0).await;
    let mut thread = java.thread("two");
    thread.begin_to_acquire("semaphore:2:2", &path);
    env.wait_for_children(&client, &leases, 3).await;
    let waiter = tokio::spawn({
        let semaphore = semaphore.clone();
        async move { semaphore.acquire_many(2).await.unwrap() }
    });
    env.wait_for_children(&client, &locks, 2).await;
    // Java gets one, and waits behind us for the next.
    assert!(both.remove(0).release().await.unwrap().is_released());
    eventually("we have the turn", async || {
        children(&client, &leases).await.len() == 3 && children(&client, &locks).await.len() == 2
    })
    .await;
    // We get one.
    assert!(both.remove(0).release().await.unwrap().is_released());
    eventually("each has one and waits for another", async || {
        let held = semaphore.participants().await.unwrap();
        held.iter().filter(|one| one.path.starts_with(&leases)).map(|one| one.holds).eq([true, true, false])
    })
    .await;
    tokio::time::sleep(A_WHILE).await;
    assert!(thread.is_silent() && !waiter.is_finished());
    waiter.abort();
    thread.holds().await;
    thread.release("semaphore:2:2", &path).await;
    for folder in [&leases, &locks] {
        env.wait_for_children(&client, folder, 0).await;
    }
    java.end().await;
}
