//! What real servers tell: killed sessions, deleted nodes, closed clients.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use curator_framework::{CuratorFramework, LossReason, SessionEnd};
use curator_integration::env::{Env, children, eventually, in_time};
use curator_integration::held::Way;
use curator_integration::in_process::{client, server};
use curator_integration::on_every_server;
use curator_recipes::{InterProcessMutex, LockGuard, Release};
use tokio::task::JoinSet;

/// A holder and a waiter of the same lock.
struct Pair {
    way: Way,
    client: CuratorFramework,
    guards: Vec<LockGuard>,
    next: tokio::task::JoinHandle<(Instant, Vec<LockGuard>)>,
}

async fn pair(env: &Env, way: Way) -> Pair {
    let path = env.path(&way.to_string().replace(['(', ')', ' '], "-"));
    let (client, other) = (env.client().await, env.client().await);
    let guards = in_time(way.take(&client, &path, |_| {})).await.unwrap();
    let parents = way.parents(&path);
    let count = async || {
        let mut count = 0;
        for parent in &parents {
            count += children(&client, parent).await.len();
        }
        count
    };
    // Nodes of the holder that are being deleted do not belong to the next one.
    let held: BTreeSet<_> = guards.iter().flat_map(LockGuard::parts).map(|part| part.node_path().to_owned()).collect();
    eventually("only the holder is there", async || count().await == held.len()).await;
    let next = tokio::spawn(async move {
        let guards = way.plain().take(&other, &path, |_| {}).await.unwrap();
        (Instant::now(), guards)
    });
    eventually("the next one waits", async || count().await > held.len()).await;
    Pair { way, client, guards, next }
}

/// Takes the lock away from holders of all kinds; says how long after the next grant the last of them was notified.
async fn overlap<F>(env: &Env, take_away: impl Fn(CuratorFramework, String) -> F, reasons: &[LossReason]) -> Duration
where
    F: Future<Output = ()> + Send + 'static,
{
    let mut pairs = Vec::new();
    for way in Way::ALL {
        pairs.push(pair(env, way).await);
    }
    let reasons: Arc<[LossReason]> = reasons.into();
    let mut ends = JoinSet::new();
    for Pair { way, client, guards, next } in pairs {
        let reasons = Arc::clone(&reasons);
        // Both, of an owner that writes and reads: the next one waits for both. Of a multi lock the first.
        let nodes: BTreeSet<_> = guards.iter().map(|guard| guard.node_path().to_owned()).collect();
        let taking: Vec<_> = nodes.into_iter().map(|node| take_away(client.clone(), node)).collect();
        ends.spawn(async move {
            for taking in taking {
                taking.await;
            }
            let lost = in_time(futures_util::future::join_all(guards.iter().map(LockGuard::lost))).await;
            let told = Instant::now();
            assert!(lost.iter().all(|lost| reasons.contains(lost)), "{way}: {lost:?}");
            for guard in guards.iter().rev() {
                assert!(!guard.is_held() && guard.remaining().is_zero(), "{way}");
                assert!(matches!(guard.release().await, Ok(Release::AlreadyLost(_))), "{way}");
            }
            let token = guards[0].token();
            drop(guards);
            let (granted, new) = in_time(next).await.unwrap();
            assert!(new[0].is_held() && new[0].token() > token, "{way}");
            told.saturating_duration_since(granted)
        });
    }
    let mut longest = Duration::ZERO;
    while let Some(end) = ends.join_next().await {
        longest = longest.max(end.unwrap());
    }
    longest
}

on_every_server! {
    async fn killed_sessions_are_told(env) {
        let observer = env.client().await;
        let address = env.address();
        let kill = |_, node: String| {
            let observer = observer.clone();
            async move {
                // One session, of which this node may have gone with another one.
                if let Some(stat) = observer.check_exists().for_path(&node).await.unwrap() {
                    curator_test::kill_session(address, stat.ephemeral_owner).await.unwrap();
                }
            }
        };
        let reasons = [LossReason::Session(SessionEnd::Expired), LossReason::NodeDeleted];
        let overlap = overlap(&env, kill, &reasons).await;
        println!("killed sessions: at most {overlap:?} after the next grant");
    }

    async fn deleted_nodes_are_told(env) {
        let administrator = env.client().await;
        let delete = |_, node: String| {
            let administrator = administrator.clone();
            async move { administrator.delete().for_path(&node).await.unwrap() }
        };
        let overlap = overlap(&env, delete, &[LossReason::NodeDeleted]).await;
        println!("deleted nodes: at most {overlap:?} after the next grant");
    }

    /// The client reports this before the servers know.
    async fn closed_clients_tell(env) {
        let close = |client: CuratorFramework, _| async move { client.close().await };
        let overlap = overlap(&env, close, &[LossReason::Session(SessionEnd::Closed)]).await;
        println!("closed clients: at most {overlap:?} after the next grant");
    }
}

/// A lock that was lost and is released afterwards was still lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_loss_is_told_also_after_the_release() {
    let server = server();
    let client = client(&server).await;
    let session = client.session().await.unwrap();
    let guard = in_time(InterProcessMutex::new(client.clone(), "/m").unwrap().acquire()).await.unwrap();
    let owner = client.check_exists().for_path(guard.node_path()).await.unwrap().unwrap().ephemeral_owner;
    server.kill_session(owner);
    in_time(session.ended()).await;
    assert!(matches!(guard.release().await, Ok(Release::AlreadyLost(_))));
    let told = tokio::time::timeout(Duration::from_secs(2), guard.lost()).await;
    assert!(told.is_ok(), "nobody is told of the loss");
}
