//! Curator's `TestInterProcessSemaphore`: what the other tests of semaphores do not show.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use curator_framework::{CreateMode, CuratorFramework, RetryNTimes};
use curator_integration::env::{builder, children, connected, eventually, in_time};
use curator_integration::kinds::{Polled, poll_and_drop};
use curator_integration::on_every_server;
use curator_recipes::{InterProcessSemaphoreV2, LockError, Release, SemaphoreOptions, SemaphoreProtocol, SharedCount};
use curator_test::TestingServer;
use curator_test::wire::OpCode;

/// How many are inside, and how many there ever were at once.
#[derive(Debug, Default)]
struct Counter {
    now: AtomicUsize,
    most: AtomicUsize,
}

impl Counter {
    fn enter(&self, leases: usize, limit: usize) {
        let now = self.now.fetch_add(leases, Ordering::SeqCst) + leases;
        self.most.fetch_max(now, Ordering::SeqCst);
        assert!(now <= limit, "{now} leases at once");
    }

    fn leave(&self, leases: usize) {
        self.now.fetch_sub(leases, Ordering::SeqCst);
    }
}

/// What a try asks the server for.
const TRY_ASKS: [OpCode; 4] = [OpCode::GetData, OpCode::Create2, OpCode::GetChildren, OpCode::Exists];

/// The semaphores that try in different ways.
#[derive(Debug, Clone, Copy)]
enum Kind {
    Curator,
    Direct,
    /// Its limit follows a shared count.
    Changing,
}

impl Kind {
    fn semaphore(self, client: &CuratorFramework, path: &str, count: &SharedCount) -> InterProcessSemaphoreV2 {
        let client = client.clone();
        let direct = SemaphoreOptions::new().protocol(SemaphoreProtocol::Direct);
        match self {
            Self::Curator => InterProcessSemaphoreV2::new(client, path, 2),
            Self::Direct => InterProcessSemaphoreV2::with_options(client, path, 2, direct),
            Self::Changing => InterProcessSemaphoreV2::new(client, path, count),
        }
        .unwrap()
    }
}

on_every_server! {
    /// Curator's `TestInterProcessSemaphore.testAcquireAfterLostServer` (CURATOR-335): the connection is lost between
    /// the create of the lease and the listing.
    async fn acquire_that_fails_half_way_blocks_no_contender(env) {
        let path = env.path("semaphore");
        let proxy = env.proxy();
        let options = builder(proxy.address()).connection_timeout(Duration::from_millis(300));
        let options = options.session_timeout(Duration::from_secs(30));
        let unlucky = connected(options.retry_policy(RetryNTimes::new(0, Duration::ZERO))).await;
        let semaphore = InterProcessSemaphoreV2::new(unlucky, &path, 1).unwrap();
        assert!(semaphore.acquire().await.unwrap().release().await.unwrap().is_released());
        let direct = env.client().await;
        proxy.refuse();
        proxy.drop_reply(OpCode::GetChildren, 1);
        let failed = in_time(semaphore.acquire()).await;
        let Err(LockError::Framework(error)) = failed else { panic!("{failed:?}") };
        assert!(error.is_retryable(), "{error}");
        assert_eq!(children(&direct, &format!("{path}/leases")).await.len(), 1, "its lease is there");
        proxy.accept();
        // Ten of them again, one after the other.
        let mut users = tokio::task::JoinSet::new();
        for _ in 0..10 {
            let semaphore = InterProcessSemaphoreV2::new(env.client().await, &path, 1).unwrap();
            users.spawn(async move { semaphore.acquire().await.unwrap().release().await.unwrap() });
        }
        while let Some(released) = in_time(users.join_next()).await {
            assert_eq!(released.unwrap(), Release::Released);
        }
        assert!(in_time(semaphore.acquire()).await.unwrap().release().await.unwrap().is_released());
        for part in ["locks", "leases"] {
            env.wait_for_children(&direct, &format!("{path}/{part}"), 0).await;
        }
    }

    /// A Java client that has its turn in the queue and is dead until its session ends.
    async fn a_try_says_no_at_once_while_another_client_has_the_turn(env) {
        let client = env.client().await;
        let count = SharedCount::new(client.clone(), env.path("count"), 2).unwrap();
        count.start().unwrap();
        in_time(count.initialized()).await.unwrap();
        let (fixed, changing) = (env.path("fixed"), env.path("changing"));
        for path in [&fixed, &changing] {
            let turn = format!("{path}/locks/_c_6ba7b810-9dad-11d1-80b4-00c04fd430c8-lock-");
            let create = client.create().creating_parents_if_needed();
            create.with_mode(CreateMode::EphemeralSequential).for_path(&turn).await.unwrap();
        }
        let patient = connected(builder(env.address()).connection_timeout(Duration::from_secs(60))).await;
        let fixed = InterProcessSemaphoreV2::new(patient.clone(), &fixed, 2).unwrap();
        let changing =
            InterProcessSemaphoreV2::new(patient, &changing, &count).unwrap();
        for semaphore in [&fixed, &changing] {
            for _ in 0..2 {
                assert!(in_time(semaphore.try_acquire()).await.unwrap().is_none());
                assert!(in_time(semaphore.try_acquire_many(2)).await.unwrap().is_none());
            }
            env.wait_for_children(&client, &format!("{}/locks", semaphore.path()), 1).await;
        }
    }

    async fn a_try_survives_the_loss_of_any_one_reply(env) {
        let client = env.client().await;
        let count = SharedCount::new(client.clone(), env.path("count"), 2).unwrap();
        count.start().unwrap();
        in_time(count.initialized()).await.unwrap();
        for kind in [Kind::Curator, Kind::Direct, Kind::Changing] {
            let others = kind.semaphore(&client, &env.path(&format!("{kind:?}")), &count);
            let leases = format!("{}/leases", others.path());
            for is_free in [true, false] {
                // The path is there.
                assert!(in_time(others.acquire()).await.unwrap().release().await.unwrap().is_released());
                let held = if is_free { None } else { Some(in_time(others.acquire_many(2)).await.unwrap()) };
                for (wanted, lost) in [1, 2].into_iter().flat_map(|wanted| TRY_ASKS.map(|lost| (wanted, lost))) {
                    for nth in 1.. {
                        let what = format!("{kind:?}, {is_free}, {wanted} leases, reply {nth} of {lost}");
                        let proxy = env.proxy();
                        let unlucky = connected(builder(proxy.address())).await;
                        let semaphore = kind.semaphore(&unlucky, others.path(), &count);
                        proxy.drop_reply(lost, nth);
                        let tried = in_time(semaphore.try_acquire_many(wanted)).await.expect(&what);
                        assert_eq!(tried.is_some(), is_free, "{what}");
                        let was_lost = proxy.faults_done() > 0;
                        assert!(tried.iter().flatten().all(|lease| lease.is_held()), "{what}");
                        in_time(unlucky.close()).await;
                        env.wait_for_children(&client, &leases, if is_free { 0 } else { 2 }).await;
                        if !was_lost {
                            break;
                        }
                    }
                }
                if let Some(held) = held {
                    assert_eq!(held.release().await.unwrap(), Release::Released);
                }
            }
        }
    }

    /// Curator's `TestInterProcessSemaphore.testMaxPerSession`.
    async fn clients_with_changing_quantities_stay_below_the_limit(env) {
        const LIMIT: usize = 5;
        let path = env.path("semaphore");
        let counter = Arc::new(Counter::default());
        let mut users = tokio::task::JoinSet::new();
        for number in 0..10 {
            let semaphore = InterProcessSemaphoreV2::new(env.client().await, &path, LIMIT).unwrap();
            let counter = Arc::clone(&counter);
            users.spawn(async move {
                for round in 0..3 {
                    let wanted = 1 + (number * 7 + round * 3) % LIMIT;
                    let leases = semaphore.acquire_many(wanted).await.unwrap();
                    assert_eq!(leases.len(), wanted);
                    counter.enter(wanted, LIMIT);
                    tokio::task::yield_now().await;
                    counter.leave(wanted);
                    for lease in leases {
                        assert_eq!(lease.release().await.unwrap(), Release::Released);
                    }
                }
            });
        }
        while let Some(done) = in_time(users.join_next()).await {
            done.unwrap();
        }
        assert_eq!(counter.now.load(Ordering::SeqCst), 0);
        let client = env.client().await;
        for part in ["locks", "leases"] {
            env.wait_for_children(&client, &format!("{path}/{part}"), 0).await;
        }
    }

    /// Curator's `TestInterProcessSemaphore.testReleaseInChunks`.
    async fn many_tasks_at_one_object_stay_below_the_limit(env) {
        const LIMIT: usize = 11;
        let path = env.path("semaphore");
        let client = env.client().await;
        let semaphore = InterProcessSemaphoreV2::new(client.clone(), &path, LIMIT).unwrap();
        let (counter, full) = (Arc::new(Counter::default()), Arc::new(tokio::sync::Semaphore::new(0)));
        let mut users = tokio::task::JoinSet::new();
        for _ in 0..100 {
            let (semaphore, counter, full) = (semaphore.clone(), Arc::clone(&counter), Arc::clone(&full));
            users.spawn(async move {
                let lease = semaphore.acquire().await.unwrap();
                counter.enter(1, LIMIT);
                drop(full.acquire().await.unwrap());
                counter.leave(1);
                assert_eq!(lease.release().await.unwrap(), Release::Released);
            });
        }
        // No holder leaves before all leases are taken.
        eventually("all leases are taken", async || counter.now.load(Ordering::SeqCst) == LIMIT).await;
        full.add_permits(100);
        while let Some(done) = in_time(users.join_next()).await {
            done.unwrap();
        }
        assert_eq!((counter.now.load(Ordering::SeqCst), counter.most.load(Ordering::SeqCst)), (0, LIMIT));
        for part in ["locks", "leases"] {
            env.wait_for_children(&client, &format!("{path}/{part}"), 0).await;
        }
    }

    /// Curator's `TestInterProcessSemaphore.testThreads`.
    async fn ten_tasks_at_one_object_all_have_their_turn(env) {
        let semaphore = InterProcessSemaphoreV2::new(env.client().await, env.path("semaphore"), 1).unwrap();
        let counter = Arc::new(Counter::default());
        let mut users = tokio::task::JoinSet::new();
        for _ in 0..10 {
            let (semaphore, counter) = (semaphore.clone(), Arc::clone(&counter));
            users.spawn(async move {
                let lease = semaphore.acquire_timeout(curator_integration::env::PATIENCE).await.unwrap().expect("its turn comes");
                counter.enter(1, 1);
                tokio::task::yield_now().await;
                counter.leave(1);
                assert!(lease.release().await.unwrap().is_released());
            });
        }
        while let Some(done) = in_time(users.join_next()).await {
            done.unwrap();
        }
    }

    /// Curator's `TestInterProcessSemaphore.testSimple`.
    async fn the_second_of_one_lease_is_not_granted(env) {
        let path = env.path("semaphore");
        let semaphore = InterProcessSemaphoreV2::new(env.client().await, &path, 1).unwrap();
        let lease = semaphore.acquire_timeout(Duration::from_secs(10)).await.unwrap().expect("it is free");
        let other = InterProcessSemaphoreV2::new(env.client().await, &path, 1).unwrap();
        for waiting in [&semaphore, &other] {
            assert!(waiting.acquire_timeout(Duration::from_millis(200)).await.unwrap().is_none());
        }
        assert!(lease.release().await.unwrap().is_released());
        assert!(in_time(other.acquire_timeout(Duration::from_secs(10))).await.unwrap().is_some());
    }
}

/// With one thread the session starts to delete the node of a dropped guard before the first reply is read.
#[tokio::test]
async fn a_guard_that_was_just_dropped_is_not_in_the_way_of_a_try() {
    let server = TestingServer::start().unwrap();
    let client = connected(builder(server.address())).await;
    let semaphore = InterProcessSemaphoreV2::new(client, "/semaphore", 1).unwrap();
    for _ in 0..20 {
        let held = in_time(semaphore.acquire()).await.unwrap();
        assert!(in_time(semaphore.try_acquire()).await.unwrap().is_none());
        drop(held);
        let lease = in_time(semaphore.try_acquire()).await.unwrap().expect("it is free");
        assert!(lease.release().await.unwrap().is_released());
    }
}

/// A try without the queue that is refused deletes its nodes while it joins the queue.
#[tokio::test]
async fn a_refused_acquire_leaves_nothing_wherever_it_is_dropped() {
    let server = TestingServer::start().unwrap();
    let (client, other) = (connected(builder(server.address())).await, connected(builder(server.address())).await);
    let all = InterProcessSemaphoreV2::new(other, "/semaphore", 2).unwrap();
    for wanted in [1, 2] {
        let semaphore = InterProcessSemaphoreV2::new(client.clone(), "/semaphore", 2).unwrap();
        for polls in 1.. {
            // It has seen a lease free, so it tries first.
            assert!(in_time(semaphore.acquire()).await.unwrap().release().await.unwrap().is_released());
            let held = in_time(all.acquire_many(2)).await.unwrap();
            let waiting = semaphore.acquire_many_timeout(wanted, Duration::from_millis(300));
            let is_over = match in_time(poll_and_drop(waiting, polls)).await {
                Polled::Ready(granted) => granted.unwrap().is_none(),
                Polled::Dropped => false,
            };
            eventually("only the other's are left", async || {
                let count = |part| server.children(&format!("/semaphore/{part}")).map_or(0, |nodes| nodes.len());
                (count("leases"), count("locks")) == (2, 0)
            })
            .await;
            for lease in held {
                assert_eq!(lease.release().await.unwrap(), Release::Released);
            }
            if is_over {
                assert!(polls > 2, "refused after {polls} polls");
                break;
            }
        }
    }
}
