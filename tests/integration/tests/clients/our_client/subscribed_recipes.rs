//! Recipes beside the persistent watches of the same session, which watch the recipes' paths, paths above them and paths
//! below them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use curator_framework::{AddWatchMode, CuratorFramework, PersistentEvent, PersistentWatcher};
use curator_integration::env::{self, Env, eventually, in_time};
use curator_integration::kinds::Which;
use curator_integration::on_every_server;
use curator_recipes::{InterProcessSemaphoreV2, LeaderLatch, LeaderLatchOptions, ObserverState, SharedValue};

use super::subscriptions::{create, heard};
use super::{connected, second};

on_every_server! {
    async fn recipes_work_below_a_subscription_which_hears_every_change(env) {
        let root = env.path("tree");
        assert_recipes_and_subscriptions_are_apart(&env, vec![root.clone()], &root).await;
    }

    async fn recipes_work_at_subscribed_paths_and_every_change_is_heard(env) {
        let root = env.path("tree");
        assert_recipes_and_subscriptions_are_apart(&env, recipe_paths(&root), &root).await;
    }

    async fn recipes_work_while_subscriptions_at_above_and_below_their_paths_come_and_go(env) {
        let root = env.path("tree");
        let (client, witness, other) =
            (connected(env.address()).await, connected(env.address()).await, env.client().await);
        create(&other, &root).await;
        let mut paths = recipe_paths(&root);
        paths.extend([root.clone(), format!("{root}/Mutex/below"), format!("{root}/value/below/it")]);
        let mut kept = client.add_watch(&root, AddWatchMode::PersistentRecursive).await.unwrap();
        let mut witness_of_it = witness.add_watch(&root, AddWatchMode::PersistentRecursive).await.unwrap();
        let coming_and_going = ComingAndGoing::start(&client, paths);
        run_recipes(&client, &other, &root).await;
        coming_and_going.stop().await;
        create(&other, &format!("{root}/mark")).await;
        for client in [&client, &witness] {
            client.sync("/").await.unwrap();
        }
        let (all, heard) = (heard(&mut witness_of_it).await, heard(&mut kept).await);
        assert!(all.len() > 100, "{}", all.len());
        assert_eq!(heard, all);
    }

    async fn recipes_and_subscriptions_go_on_over_reconnects(env) {
        let proxy = env.proxy();
        let root = env.path("tree");
        let (client, witness, other) =
            (env::connected(second(proxy.address())).await, connected(env.address()).await, env.client().await);
        create(&other, &root).await;
        let mut paths = recipe_paths(&root);
        let mut kept = client.add_watch(&root, AddWatchMode::PersistentRecursive).await.unwrap();
        let mut of_value = client.add_watch(&format!("{root}/value"), AddWatchMode::Persistent).await.unwrap();
        paths.retain(|path| !path.ends_with("value"));
        let coming_and_going = ComingAndGoing::start(&client, paths);
        let recipes = run_recipes(&client, &other, &root);
        let resets = async {
            let session = client.session().await.unwrap();
            for _ in 0..4 {
                let epoch = session.epoch();
                proxy.reset();
                eventually("attached again", async || session.epoch() > epoch && session.is_connected()).await;
                // Time for the recipes to wait on this connection.
                for _ in 0..20 {
                    client.sync("/").await.ok();
                }
            }
        };
        tokio::join!(recipes, resets);
        coming_and_going.stop().await;
        for watcher in [&mut kept, &mut of_value] {
            reset(watcher).await;
        }
        let mut witness_of_it = witness.add_watch(&root, AddWatchMode::PersistentRecursive).await.unwrap();
        client.sync("/").await.unwrap();
        drop(heard(&mut kept).await);
        contend(Which::Mutex, &client, &other, &root).await;
        for client in [&client, &witness] {
            client.sync("/").await.unwrap();
        }
        let all = heard(&mut witness_of_it).await;
        assert!(all.len() > 4, "{all:?}");
        assert_eq!(heard(&mut kept).await, all);
    }
}

/// Takes the events up to the last reset.
async fn reset(watcher: &mut PersistentWatcher) {
    let mut resets = 0;
    while resets < 4 {
        resets += usize::from(in_time(watcher.recv()).await.unwrap().unwrap() == PersistentEvent::Reset);
    }
}

fn recipe_paths(root: &str) -> Vec<String> {
    let mut paths: Vec<_> = Which::ALL.iter().flat_map(|which| which.folders(root)).collect();
    paths.extend([format!("{root}/value"), format!("{root}/leaders"), format!("{root}/semaphore/leases")]);
    paths
}

/// A task that adds and drops persistent watches until it is stopped.
struct ComingAndGoing {
    stopped: Arc<AtomicBool>,
    task: tokio::task::JoinHandle<usize>,
}

impl ComingAndGoing {
    fn start(client: &CuratorFramework, paths: Vec<String>) -> Self {
        let stopped = Arc::new(AtomicBool::new(false));
        let (client, ended) = (client.clone(), Arc::clone(&stopped));
        let task = tokio::spawn(async move {
            let (mut kept, mut added) = (std::collections::VecDeque::new(), 0);
            while !ended.load(Ordering::Relaxed) {
                let mode = [AddWatchMode::Persistent, AddWatchMode::PersistentRecursive][added / 3 % 2];
                let path = &paths[added % paths.len()];
                kept.push_back(client.add_watch(path, mode).await.unwrap());
                added += 1;
                if kept.len() > 7 {
                    kept.pop_front();
                }
            }
            added
        });
        Self { stopped, task }
    }

    async fn stop(self) {
        self.stopped.store(true, Ordering::Relaxed);
        assert!(in_time(self.task).await.unwrap() > 20);
    }
}

async fn assert_recipes_and_subscriptions_are_apart(env: &Env, paths: Vec<String>, root: &str) {
    // The witness has no one-shot watches.
    let (client, witness, other) = (connected(env.address()).await, connected(env.address()).await, env.client().await);
    create(&other, root).await;
    let mut watchers = Vec::new();
    for path in &paths {
        let of_client = client.add_watch(path, AddWatchMode::PersistentRecursive).await.unwrap();
        watchers.push((of_client, witness.add_watch(path, AddWatchMode::PersistentRecursive).await.unwrap()));
    }
    run_recipes(&client, &other, root).await;
    for path in &paths {
        create(&other, &format!("{path}/mark")).await;
    }
    // Events of a change precede the reply to a sync behind it.
    for client in [&client, &witness] {
        client.sync("/").await.unwrap();
    }
    let mut deaf = Vec::new();
    for (watcher, witness) in &mut watchers {
        let (all, heard) = (heard(witness).await, heard(watcher).await);
        let mark = format!("{}/mark", watcher.path());
        // The shared leases need no turn if no other client waits.
        let is_used = all.len() > 4 || watcher.path() == Which::SharedLease.folders(root)[0];
        assert!(is_used && all.last().is_some_and(|(_, path)| *path == mark), "{:?}", all.last());
        if heard != all {
            deaf.push(format!("{}: {} of {} events", watcher.path(), heard.len(), all.len()));
        }
    }
    assert!(deaf.is_empty(), "{}", deaf.join("\n"));
}

async fn run_recipes(client: &CuratorFramework, other: &CuratorFramework, root: &str) {
    for which in Which::ALL {
        contend(which, client, other, root).await;
    }
    lease(client, other, &format!("{root}/semaphore")).await;
    share_a_value(client, other, &format!("{root}/value")).await;
    elect(client, other, &format!("{root}/leaders")).await;
}

/// Passes two leases around.
async fn lease(client: &CuratorFramework, other: &CuratorFramework, path: &str) {
    let contenders = [client, client, client, other, other].map(|client| {
        let semaphore = InterProcessSemaphoreV2::new(client.clone(), path, 2).unwrap();
        tokio::spawn(async move {
            for _round in 0..4 {
                assert!(semaphore.acquire().await.unwrap().release().await.unwrap().is_released());
            }
        })
    });
    for contender in contenders {
        in_time(contender).await.unwrap();
    }
}

/// Passes a lock around: two owners of one client and one of another.
async fn contend(which: Which, client: &CuratorFramework, other: &CuratorFramework, root: &str) {
    let contenders = [client, client, other].map(|client| {
        let lock = which.lock(client, root);
        tokio::spawn(async move {
            for _round in 0..4 {
                let guard = lock.acquire().await.unwrap();
                assert!(guard.release().await.unwrap().is_released());
            }
        })
    });
    for contender in contenders {
        in_time(contender).await.unwrap();
    }
    which.wait_until_free(other, root).await;
}

async fn share_a_value(client: &CuratorFramework, other: &CuratorFramework, path: &str) {
    let [ours, theirs] = [client, other].map(|client| SharedValue::new(client.clone(), path, "seed").unwrap());
    for value in [&ours, &theirs] {
        value.start().unwrap();
        in_time(value.initialized()).await.unwrap();
    }
    for round in 0..4 {
        for (from, to) in [(&ours, &theirs), (&theirs, &ours)] {
            let text = format!("{round}");
            in_time(from.set_value(text.clone())).await.unwrap();
            let mut watch = to.watch();
            in_time(watch.wait_for(|value| *value.value() == text.as_bytes())).await.unwrap();
        }
    }
    for value in [ours, theirs] {
        in_time(value.close()).await;
    }
}

async fn elect(client: &CuratorFramework, other: &CuratorFramework, path: &str) {
    let observer = curator_integration::following::observer(client.clone(), path);
    let mut observed = observer.watch();
    let mut last = None;
    for (round, client) in [client, other, client, other].into_iter().enumerate() {
        let id = round.to_string();
        let latch = LeaderLatch::with_options(client.clone(), path, LeaderLatchOptions::new().id(&id)).unwrap();
        latch.start().unwrap();
        if let Some(latch) = last.replace(latch.clone()) {
            eventually("it waits", async || latch.participants().await.unwrap().len() == 2).await;
            in_time(latch.close()).await;
        }
        in_time(latch.leading()).await.unwrap();
        let is_leader = |observed: &ObserverState| matches!(observed, ObserverState::Leader(leader) if leader.id == id);
        drop(in_time(observed.wait_for(is_leader)).await.unwrap());
    }
    if let Some(latch) = last {
        in_time(latch.close()).await;
    }
    drop(in_time(observed.wait_for(|observed| matches!(observed, ObserverState::NoLeader))).await.unwrap());
    in_time(observer.close()).await;
}
