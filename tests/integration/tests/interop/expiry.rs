//! Sessions that the server ends.

use curator_framework::CuratorFramework;
use curator_integration::env::{Env, Kind, children, eventually};
use curator_test::kill_session;

use crate::peer::Peer;

async fn end_session(env: &Env, peer: &Peer) {
    kill_session(env.address(), peer.session().await).await.unwrap();
}

/// When the session of a process ends, its mutex goes to the other process, which waits for it.
async fn the_holder_loses_it(env: &Env, victim: &Peer, other: &Peer, client: &CuratorFramework, path: &str) -> i64 {
    let before = victim.thread("holder").acquire("mutex", path).await;
    let mut waiter = other.thread("waiter");
    waiter.begin_to_acquire("mutex", path);
    env.wait_for_children(client, path, 2).await;
    end_session(env, victim).await;
    let token = waiter.holds().await;
    assert!(token > before);
    token
}

/// A process that loses its session while it waits is served when its turn comes, with a new node.
async fn the_waiter_joins_again(env: &Env, victim: &Peer, other: &Peer, client: &CuratorFramework, path: &str) {
    let mut waiter = victim.thread("second");
    waiter.begin_to_acquire("mutex", path);
    let mut nodes = env.wait_for_children(client, path, 2).await;
    nodes.sort_by_key(|node| node.rsplit('-').next().map(ToOwned::to_owned));
    end_session(env, victim).await;
    // Java's may notice only when the node ahead goes: if its session ends before it watches that, it watches it in the
    // next one.
    let its_own = &nodes[1];
    eventually("its node is gone", async || !children(client, path).await.contains(its_own)).await;
    assert!(waiter.is_silent());
    other.thread("waiter").release("mutex", path).await;
    waiter.holds().await;
    waiter.release("mutex", path).await;
    env.wait_for_children(client, path, 0).await;
}

/// Java's holder does not notice that it holds nothing any more: `isAcquiredInThisProcess` continues to say so.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mutex_of_javas_ended_session_is_ours() {
    let env = Env::new(Kind::InProcess);
    let (client, path) = (env.client().await, env.path("lock"));
    let (java, rust) = tokio::join!(Peer::java(&env), Peer::rust(&env));
    the_holder_loses_it(&env, &java, &rust, &client, &path).await;
    assert_eq!(java.thread("holder").ask(&format!("holds mutex {path}")).await, "true");
    the_waiter_joins_again(&env, &java, &rust, &client, &path).await;
    java.end().await;
    rust.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mutex_of_our_ended_session_is_javas_and_we_are_told() {
    let env = Env::new(Kind::InProcess);
    let (client, path) = (env.client().await, env.path("lock"));
    let (java, rust) = tokio::join!(Peer::java(&env), Peer::rust(&env));
    the_holder_loses_it(&env, &rust, &java, &client, &path).await;
    let reason = rust.thread("holder").ask(&format!("lost mutex {path}")).await;
    assert!(reason.contains("session"), "{reason}");
    the_waiter_joins_again(&env, &rust, &java, &client, &path).await;
    java.end().await;
    rust.end().await;
}
