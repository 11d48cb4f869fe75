//! Tasks of one client that share the leases of a semaphore.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use curator_framework::CuratorFramework;
use curator_integration::env::{children, eventually, in_time};
use curator_integration::in_process::{client, server};
use curator_integration::on_every_server;
use curator_recipes::{
    InterProcessSemaphoreMutex, InterProcessSemaphoreV2, Lease, LockOptions, LossReason, MaxLeases, SemaphoreOptions,
    SemaphoreProtocol, SharedCount,
};
use curator_test::TestingServer;
use curator_test::wire::OpCode;
use tokio::task::{JoinHandle, JoinSet};

const PATH: &str = "/parent/semaphore";

fn semaphore_at(client: &CuratorFramework, path: &str, limit: impl Into<MaxLeases>) -> InterProcessSemaphoreV2 {
    let options = SemaphoreOptions::new().one_node_per_client();
    InterProcessSemaphoreV2::with_options(client.clone(), path, limit, options).unwrap()
}

fn acquiring(semaphore: &InterProcessSemaphoreV2) -> JoinHandle<Lease> {
    let semaphore = semaphore.clone();
    tokio::spawn(async move { in_time(semaphore.acquire()).await.unwrap() })
}

/// Starts tasks that wait for a lease, in any order.
fn waiting(semaphore: &InterProcessSemaphoreV2, tasks: usize) -> JoinSet<Lease> {
    let acquire = |semaphore: InterProcessSemaphoreV2| async move { semaphore.acquire().await.unwrap() };
    (0..tasks).map(|_| acquire(semaphore.clone())).collect()
}

/// Counts the jobs inside. This many are allowed.
#[derive(Clone)]
struct Inside(Arc<AtomicUsize>, usize);

impl Inside {
    fn of(limit: usize) -> Self {
        Self(Arc::default(), limit)
    }

    async fn works(&self, lease: &Lease) {
        assert!(self.0.fetch_add(1, Ordering::SeqCst) < self.1, "more are inside than there are leases");
        tokio::task::yield_now().await;
        assert!(lease.is_held());
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Runs jobs, each in a task and under a lease of its own.
fn jobs(semaphore: &InterProcessSemaphoreV2, inside: &Inside, number: usize) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    for _ in 0..number {
        let (semaphore, inside) = (semaphore.clone(), inside.clone());
        tasks.spawn(async move {
            let lease = semaphore.acquire().await.unwrap();
            inside.works(&lease).await;
            assert!(lease.release().await.unwrap().is_released());
        });
    }
    tasks
}

fn names(server: &TestingServer, folder: &str) -> Vec<String> {
    server.children(&format!("{PATH}/{folder}")).unwrap_or_default()
}

async fn nothing_is_left(server: &TestingServer) {
    eventually("no node is left", async || names(server, "leases").is_empty() && names(server, "locks").is_empty())
        .await;
}

/// The requests of the clients, but for pings.
fn asked(server: &TestingServer) -> usize {
    let is_about = |path: &str| path.starts_with("/parent");
    server.requests().iter().filter(|request| request.path.as_deref().is_some_and(is_about)).count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thousands_of_jobs_of_a_client_share_the_leases_with_few_requests() {
    const JOBS: usize = 10_000;
    const LEASES: usize = 100;
    let server = server();
    let semaphore = semaphore_at(&client(&server).await, PATH, LEASES);
    server.clear_requests();
    in_time(jobs(&semaphore, &Inside::of(LEASES), JOBS).join_all()).await;
    // A lease costs two requests, and the turns some more.
    assert!(asked(&server) <= JOBS / 20, "{}", asked(&server));
    nothing_is_left(&server).await;
}

#[tokio::test]
async fn waiting_tasks_of_a_client_have_one_node_in_the_queue_and_one_beside_the_leases() {
    let server = server();
    let semaphore = semaphore_at(&client(&server).await, PATH, 3);
    let mut leases = Vec::new();
    for _ in 0..3 {
        leases.push(in_time(semaphore.acquire()).await.unwrap());
    }
    let waiters: Vec<_> = (0..50).map(|_| acquiring(&semaphore)).collect();
    eventually("the batch has its turn", async || {
        (names(&server, "locks").len(), names(&server, "leases").len()) == (1, 4)
    })
    .await;
    // In the order in which they came, by the lease of the first one.
    let path = leases[0].node_path().to_owned();
    assert!(leases.remove(0).release().await.unwrap().is_released());
    let (mut waiters, mut token) = (waiters.into_iter(), None);
    for _ in 0..10 {
        let lease = in_time(waiters.next().unwrap()).await.unwrap();
        assert_eq!(lease.node_path(), path);
        assert!(token < Some(lease.token()), "each pass has a token of its own");
        token = Some(lease.token());
        assert!(lease.release().await.unwrap().is_released());
    }
    assert_eq!((names(&server, "locks").len(), names(&server, "leases").len()), (1, 4));
    waiters.for_each(|waiter| waiter.abort());
    drop(leases);
    nothing_is_left(&server).await;
}

#[tokio::test]
async fn a_turn_takes_as_many_free_leases_as_tasks_wait() {
    let server = server();
    let client = client(&server).await;
    let count = SharedCount::new(client.clone(), "/count", 1).unwrap();
    count.start().unwrap();
    in_time(count.initialized()).await.unwrap();
    in_time(count.set_count(1)).await.unwrap();
    let semaphore = semaphore_at(&client, PATH, &count);
    let held = in_time(semaphore.acquire()).await.unwrap();
    let waiters: Vec<_> = (0..3).map(|_| acquiring(&semaphore)).collect();
    eventually("the batch has its turn", async || names(&server, "leases").len() == 2).await;
    server.clear_requests();
    in_time(count.set_count(4)).await.unwrap();
    let mut leases = vec![held];
    for waiter in waiters {
        leases.push(in_time(waiter).await.unwrap());
    }
    let creates = server.requests().iter().filter(|request| request.op == OpCode::Create2).count();
    assert_eq!(creates, 2, "the first of the three has its node already: {:?}", server.requests());
    assert!(leases.iter().all(|lease| lease.is_held()));
    drop(leases);
    nothing_is_left(&server).await;
}

on_every_server! {
    async fn jobs_of_several_clients_never_exceed_the_limit(env) {
        let (inside, mut tasks) = (Inside::of(3), JoinSet::new());
        for _ in 0..3 {
            let semaphore = semaphore_at(&env.client().await, &env.path("semaphore"), 3);
            let inside = inside.clone();
            tasks.spawn(async move { jobs(&semaphore, &inside, 100).join_all().await });
        }
        // A client in Curator's order is served beside them.
        let client = env.client().await;
        let plain = InterProcessSemaphoreV2::new(client.clone(), env.path("semaphore"), 3).unwrap();
        for _ in 0..5 {
            let lease = in_time(plain.acquire()).await.unwrap();
            inside.works(&lease).await;
            assert!(lease.release().await.unwrap().is_released());
        }
        in_time(tasks.join_all()).await;
        for folder in ["locks", "leases"] {
            let path = format!("{}/{folder}", env.path("semaphore"));
            eventually("no node is left", async || children(&client, &path).await.is_empty()).await;
        }
    }

    async fn a_lost_lease_ends_and_the_others_serve_on(env) {
        let client = env.client().await;
        let semaphore = semaphore_at(&client, &env.path("semaphore"), 2);
        let (one, two) = (in_time(semaphore.acquire()).await.unwrap(), in_time(semaphore.acquire()).await.unwrap());
        let mut tasks = waiting(&semaphore, 2);
        // Behind the first try, which has a node beside the leases too.
        env.wait_for_children(&client, &format!("{}/locks", env.path("semaphore")), 1).await;
        env.wait_for_children(&client, &format!("{}/leases", env.path("semaphore")), 3).await;
        client.delete().for_path(one.node_path()).await.unwrap();
        assert_eq!(in_time(one.lost()).await, LossReason::NodeDeleted);
        assert!(!one.release().await.unwrap().is_released());
        // By the turn of the batch, which has taken the place of the lost lease.
        let third = in_time(tasks.join_next()).await.unwrap().unwrap();
        assert!(third.node_path() != one.node_path() && two.is_held());
        assert!(two.release().await.unwrap().is_released());
        assert!(in_time(tasks.join_next()).await.unwrap().unwrap().is_held());
    }

    async fn a_lease_is_not_passed_on_under_a_lower_limit(env) {
        let client = env.client().await;
        let count = SharedCount::new(client.clone(), env.path("count"), 2).unwrap();
        count.start().unwrap();
        in_time(count.initialized()).await.unwrap();
        in_time(count.set_count(2)).await.unwrap();
        let semaphore = semaphore_at(&client, &env.path("semaphore"), &count);
        let (one, two) = (in_time(semaphore.acquire()).await.unwrap(), in_time(semaphore.acquire()).await.unwrap());
        let waiter = acquiring(&semaphore);
        in_time(count.set_count(1)).await.unwrap();
        eventually("the limit is lower", async || semaphore.max_leases() == 1).await;
        assert!(two.release().await.unwrap().is_released());
        let folder = format!("{}/leases", env.path("semaphore"));
        // The node of the lease goes: it may have been the second one.
        let gone = two.node_path().rsplit('/').next().unwrap().to_owned();
        eventually("the lease is deleted", async || !children(&client, &folder).await.contains(&gone)).await;
        assert!(!waiter.is_finished() && one.is_held());
        assert!(one.release().await.unwrap().is_released());
        assert!(in_time(waiter).await.unwrap().is_held());
    }

    async fn a_queued_contender_is_served_before_later_tasks_of_the_batch(env) {
        let (client, path) = (env.client().await, env.path("semaphore"));
        let semaphore = semaphore_at(&client, &path, 1);
        let plain = InterProcessSemaphoreV2::new(env.client().await, path.as_str(), 1).unwrap();
        let held = in_time(semaphore.acquire()).await.unwrap();
        let mut tasks = waiting(&semaphore, 2);
        // Behind the first try, which has a node beside the leases too.
        env.wait_for_children(&client, &format!("{path}/locks"), 1).await;
        env.wait_for_children(&client, &format!("{path}/leases"), 2).await;
        let queued = acquiring(&plain);
        env.wait_for_children(&client, &format!("{path}/locks"), 2).await;
        assert!(held.release().await.unwrap().is_released());
        // By the turn that the batch had before.
        let next = in_time(tasks.join_next()).await.unwrap().unwrap();
        assert_ne!(next.node_path(), held.node_path(), "it was passed on beside a queued contender");
        assert!(!queued.is_finished());
        assert!(next.release().await.unwrap().is_released());
        let queued = in_time(queued).await.unwrap();
        assert!(tasks.try_join_next().is_none());
        assert!(queued.release().await.unwrap().is_released());
        assert!(in_time(tasks.join_next()).await.unwrap().unwrap().is_held());
    }

    async fn numbers_of_leases_are_taken_once_behind_each_pass(env) {
        let semaphore = semaphore_at(&env.client().await, &env.path("semaphore"), 2);
        let mut tasks = JoinSet::new();
        let taken: Arc<[AtomicUsize; 2]> = Arc::default();
        for _ in 0..20 {
            let (semaphore, taken) = (semaphore.clone(), Arc::clone(&taken));
            tasks.spawn(async move {
                let lease = semaphore.acquire().await.unwrap();
                let slot = &taken[usize::try_from(lease.slot().await.unwrap()).unwrap()];
                assert_eq!(slot.fetch_add(1, Ordering::SeqCst), 0, "two leases have a number");
                tokio::task::yield_now().await;
                slot.fetch_sub(1, Ordering::SeqCst);
                assert!(lease.release().await.unwrap().is_released());
            });
        }
        in_time(tasks.join_all()).await;
    }

    async fn several_leases_at_once_are_taken_beside_a_batch(env) {
        let semaphore = semaphore_at(&env.client().await, &env.path("semaphore"), 3);
        let inside = Inside::of(3);
        let tasks = jobs(&semaphore, &inside, 60);
        for _ in 0..3 {
            let leases = in_time(semaphore.acquire_many(2)).await.unwrap();
            assert!(leases.is_held());
            assert!(leases.release().await.unwrap().is_released());
        }
        in_time(tasks.join_all()).await;
    }

    async fn a_try_is_refused_while_tasks_of_the_client_wait(env) {
        let client = env.client().await;
        let semaphore = semaphore_at(&client, &env.path("semaphore"), 1);
        let lease = in_time(semaphore.try_acquire()).await.unwrap().unwrap();
        assert!(in_time(semaphore.try_acquire()).await.unwrap().is_none());
        let waiter = acquiring(&semaphore);
        env.wait_for_children(&client, &format!("{}/leases", env.path("semaphore")), 2).await;
        assert!(in_time(semaphore.try_acquire()).await.unwrap().is_none());
        assert!(in_time(semaphore.acquire_timeout(Duration::from_millis(200))).await.unwrap().is_none());
        drop(lease);
        assert!(in_time(waiter).await.unwrap().is_held());
    }

    async fn a_semaphore_mutex_shares_its_lease(env) {
        let options = LockOptions::new().one_node_per_client();
        let mutex =
            InterProcessSemaphoreMutex::with_options(env.client().await, env.path("mutex"), options).unwrap();
        let (inside, mut tasks) = (Arc::new(AtomicUsize::new(0)), JoinSet::new());
        for _ in 0..50 {
            let (mutex, inside) = (mutex.clone(), Arc::clone(&inside));
            tasks.spawn(async move {
                let guard = mutex.acquire().await.unwrap();
                assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two are inside");
                tokio::task::yield_now().await;
                inside.fetch_sub(1, Ordering::SeqCst);
                assert!(guard.release().await.unwrap().is_released());
            });
        }
        in_time(tasks.join_all()).await;
    }
}

#[tokio::test]
async fn options_that_leases_cannot_share_are_refused() {
    let client = client(&server()).await;
    let one_node = || SemaphoreOptions::new().one_node_per_client();
    for (options, about) in [
        (one_node().protocol(SemaphoreProtocol::Direct), "direct protocol"),
        (one_node().linger(Duration::from_secs(1)), "linger"),
    ] {
        let refused = InterProcessSemaphoreV2::with_options(client.clone(), PATH, 2, options);
        let error = refused.unwrap_err().to_string();
        assert!(error.contains(about), "{error}");
    }
}
