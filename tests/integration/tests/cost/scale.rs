//! Many waiters and many locks at one client.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use curator_framework::recipe::RecipeClient as _;
use curator_framework::{CuratorFramework, LossReason};
use curator_integration::env::{Env, Kind as ServerKind, builder, children, connected, eventually, in_time};
use curator_integration::held::{Form, Kind, Way};
use curator_recipes::{InterProcessMutex, MutexGuard, Release, SemaphoreProtocol};
use curator_test::TestingServer;
use curator_test::wire::OpCode;
use parking_lot::Mutex;
use tokio::task::JoinSet;

/// How many acquire at the same time.
const AT_ONCE: usize = 1000;

/// Sees that one is inside at a time, with tokens that grow.
#[derive(Default)]
struct Inside {
    now: AtomicUsize,
    tokens: Mutex<Vec<i64>>,
}

impl Inside {
    fn enters(&self, guard: &MutexGuard) {
        assert_eq!(self.now.fetch_add(1, Ordering::SeqCst), 0, "two at once");
        assert!(guard.is_held());
        self.tokens.lock().push(guard.token().czxid().get());
    }

    fn leaves(&self) {
        self.now.fetch_sub(1, Ordering::SeqCst);
    }
}

/// All of them take their lock once, at the same time.
async fn each_takes_it_once(what: &str, env: &Env, client: CuratorFramework, locks: Vec<InterProcessMutex>) {
    let inside = Arc::new(Inside::default());
    let count = locks.len();
    let path = locks[0].path().to_owned();
    let began = Instant::now();
    let mut tasks = JoinSet::new();
    for lock in locks {
        let inside = Arc::clone(&inside);
        tasks.spawn(async move {
            let guard = lock.acquire().await.unwrap();
            inside.enters(&guard);
            // The first ones are inside for so long that another one would come in.
            if inside.tokens.lock().len() < 30 {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            inside.leaves();
            assert_eq!(guard.release().await.unwrap(), Release::Released);
        });
    }
    while let Some(done) = in_time(tasks.join_next()).await {
        done.unwrap();
    }
    let took = began.elapsed();
    let tokens = inside.tokens.lock().clone();
    assert!(tokens.len() == count && tokens.is_sorted_by(|one, next| one < next), "first come, first served");
    env.wait_for_children(&client, &path, 0).await;
    eventually("no watch is left", async || client.watchers() == 0).await;
    println!("{what}: {took:.1?}, {:.0?} each", took / u32::try_from(count).unwrap());
    client.close().await;
}

/// A client with a session and releases that outlive the requests that are sent before theirs.
async fn patient(env: &Env, session: Duration) -> CuratorFramework {
    connected(builder(env.address()).session_timeout(session).max_close_wait(session)).await
}

async fn tasks_on_one_object(env: Env, count: usize) {
    let client = patient(&env, Duration::from_secs(60)).await;
    let lock = InterProcessMutex::new(client.clone(), env.path("one")).unwrap();
    each_takes_it_once(&format!("{count} tasks on one object"), &env, client, vec![lock; count]).await;
}

async fn objects_on_one_path(env: Env, count: usize) {
    let client = patient(&env, Duration::from_secs(60)).await;
    let lock = |_| InterProcessMutex::new(client.clone(), env.path("one")).unwrap();
    let locks = (0..count).map(lock).collect();
    each_takes_it_once(&format!("{count} objects on one path"), &env, client, locks).await;
}

async fn paths_held_at_once(env: Env, count: usize) {
    let (client, observer) = (patient(&env, Duration::from_secs(30)).await, env.client().await);
    let began = Instant::now();
    let mut guards = Vec::with_capacity(count);
    while guards.len() < count {
        let mut tasks = JoinSet::new();
        for number in guards.len()..count.min(guards.len() + AT_ONCE) {
            let lock = InterProcessMutex::new(client.clone(), env.path(&format!("many/{number}"))).unwrap();
            tasks.spawn(async move { lock.acquire().await.unwrap() });
        }
        while let Some(guard) = in_time(tasks.join_next()).await {
            guards.push(guard.unwrap());
        }
    }
    let acquired = began.elapsed();
    assert!(guards.iter().all(|guard| guard.is_held()));
    assert_eq!(children(&observer, &env.path("many")).await.len(), count);
    // Each is locked for all other clients.
    for number in (0..count).step_by(count / 10) {
        let lock = InterProcessMutex::new(observer.clone(), env.path(&format!("many/{number}"))).unwrap();
        assert!(lock.try_acquire().await.unwrap().is_none());
    }
    eventually("all nodes are watched", async || client.watchers() == count).await;
    let watched = began.elapsed();
    // The loss of one guard is not a loss of another.
    let deleted = guards.swap_remove(count / 2);
    observer.delete().for_path(deleted.node_path()).await.unwrap();
    assert_eq!(in_time(deleted.lost()).await, LossReason::NodeDeleted);
    assert!(guards.iter().all(|guard| guard.is_held()));
    let rest = guards.split_off(count / 2);
    let releasing = Instant::now();
    let mut tasks = JoinSet::new();
    for guard in guards {
        tasks.spawn(async move { guard.release().await.unwrap() });
    }
    while let Some(released) = in_time(tasks.join_next()).await {
        assert_eq!(released.unwrap(), Release::Released);
    }
    let released = releasing.elapsed() * 2;
    // The others are lost together.
    env.kill_owner_of(&observer, rest[0].node_path()).await;
    let killed = Instant::now();
    for guard in &rest {
        in_time(guard.lost()).await;
        assert!(!guard.is_held());
    }
    println!(
        "{count} paths: acquired in {acquired:.1?}, watched after {watched:.1?}, released in {released:.1?}, \
         told of a killed session in {:.0?}",
        killed.elapsed()
    );
    drop(rest);
    client.close().await;
}

mod in_process {
    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_thousand_tasks_on_one_object() {
        tasks_on_one_object(Env::new(ServerKind::InProcess), 1000).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_thousand_objects_on_one_path() {
        objects_on_one_path(Env::new(ServerKind::InProcess), 1000).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn ten_thousand_paths_held_at_once() {
        paths_held_at_once(Env::new(ServerKind::InProcess), 10_000).await;
    }
}

mod apache {
    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn many_tasks_on_one_object() {
        tasks_on_one_object(Env::new(ServerKind::Apache), 200).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn many_objects_on_one_path() {
        objects_on_one_path(Env::new(ServerKind::Apache), 200).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn many_paths_held_at_once() {
        paths_held_at_once(Env::new(ServerKind::Apache), 2000).await;
    }
}

/// How many hand-offs are counted.
const HAND_OFFS: usize = 5;

/// The requests of some hand-offs, in a queue of this length.
async fn requests_of_hand_offs(way: Way, queue: usize) -> BTreeMap<String, usize> {
    let sessions = (Duration::from_secs(2), Duration::from_secs(60));
    let server = TestingServer::builder().session_timeouts(sessions.0, sessions.1).start().unwrap();
    // Within a tenth of this session nothing is sent but for the hand-offs.
    let client = connected(builder(server.address()).session_timeout(sessions.1)).await;
    let mut holder = in_time(way.take(&client, "/lock", |_| {})).await.unwrap();
    let mut waiters = JoinSet::new();
    for _ in 0..queue {
        let client = client.clone();
        waiters.spawn(async move { way.take(&client, "/lock", |_| {}).await.unwrap() });
    }
    let parents = way.parents("/lock");
    let nodes = || parents.iter().map(|parent| server.children(parent).map_or(0, |nodes| nodes.len())).sum::<usize>();
    // Nothing has been sent for so many looks in a row; the contender at the head of a semaphore has two nodes.
    let settled = async |waiting: usize, looks: usize| {
        let mut same = (0, 0);
        eventually("all wait", async || {
            let sent = server.requests().len();
            same = (sent, if sent == same.0 { same.1 + 1 } else { 0 });
            nodes() >= waiting && same.1 >= looks
        })
        .await;
    };
    settled(queue + 1, 20).await;
    let mut counts = BTreeMap::new();
    for done in 0..HAND_OFFS {
        server.clear_requests();
        for guard in holder.iter().rev() {
            assert!(guard.release().await.unwrap().is_released());
        }
        holder = in_time(waiters.join_next()).await.unwrap().unwrap();
        settled(queue - done, 3).await;
        for logged in server.requests() {
            let below = logged.path.as_deref().is_some_and(|path| path.starts_with("/lock"));
            if below && logged.op != OpCode::Ping {
                *counts.entry(format!("{:?}", logged.op)).or_default() += 1;
            }
        }
    }
    waiters.shutdown().await;
    drop(holder);
    client.close().await;
    counts
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hand_off_costs_the_same_in_a_queue_of_any_length() {
    for (kind, most) in [
        (Kind::Mutex, 3 * HAND_OFFS),
        // Each writer that has joined ahead of the reply to another one's create waits for an earlier node, and looks
        // again: once more for each hand-off.
        (Kind::Write, 4 * HAND_OFFS),
        (Kind::SemaphoreMutex, 8 * HAND_OFFS),
        (Kind::Lease(SemaphoreProtocol::Curator), 8 * HAND_OFFS),
        (Kind::Lease(SemaphoreProtocol::Direct), 6 * HAND_OFFS),
    ] {
        let way = Way::new(kind, Form::Plain);
        let (short, long) = (requests_of_hand_offs(way, 10).await, requests_of_hand_offs(way, 400).await);
        println!("{way}: {HAND_OFFS} hand-offs: {short:?} in a queue of 10, {long:?} in a queue of 400");
        let sum = |counts: &BTreeMap<String, usize>| counts.values().sum::<usize>();
        assert!(sum(&short) <= most && sum(&long) <= most, "{way}: {short:?}, {long:?}");
        // A few more or less: the first in line needs no listing, and a node is checked once.
        assert!(sum(&long) < sum(&short) + HAND_OFFS, "{way}: {short:?}, {long:?}");
    }
}
