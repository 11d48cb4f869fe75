//! Curator's `TestInterProcessMultiMutex`: what it adds to the laws of every lock.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use curator_framework::{Error, LossReason, RetryNTimes};
use curator_integration::env::{builder, children, connected, eventually, in_time};
use curator_integration::in_process::{client, server, simulated};
use curator_integration::on_every_server;
use curator_recipes::{
    InterProcessLock, InterProcessMultiLock, InterProcessMutex, InterProcessSemaphoreMutex, LockError, LockGuard,
    Release,
};
use curator_test::SimulatedEnsemble;
use tokio::time::Instant;

/// A lock that cannot be had.
#[derive(Debug, Default)]
struct Failing {
    asked: AtomicUsize,
}

impl Failing {
    fn fail<T>(&self) -> Result<T, LockError> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        Err(LockError::Framework(Error::NotStarted))
    }
}

#[async_trait]
impl InterProcessLock for Failing {
    async fn acquire(&self) -> Result<LockGuard, LockError> {
        self.fail()
    }

    async fn acquire_timeout(&self, _budget: Duration) -> Result<Option<LockGuard>, LockError> {
        self.fail()
    }

    async fn try_acquire(&self) -> Result<Option<LockGuard>, LockError> {
        self.fail()
    }

    fn is_acquired_in_this_process(&self) -> bool {
        false
    }
}

on_every_server! {
    /// Curator's `TestInterProcessMultiMutex.testSomeReleasesFail`.
    async fn a_release_that_fails_in_part_releases_the_rest_and_can_be_repeated(env) {
        let proxy = env.proxy();
        let good_client = env.client().await;
        let options = builder(proxy.address()).session_timeout(Duration::from_secs(30));
        let options = options.connection_timeout(Duration::from_millis(300));
        let bad_client = connected(options.retry_policy(RetryNTimes::new(0, Duration::ZERO))).await;
        let bad_session = in_time(bad_client.session()).await.unwrap();
        let (good_path, bad_path) = (env.path("good"), env.path("bad"));
        let good = Arc::new(InterProcessMutex::new(good_client.clone(), &good_path).unwrap());
        let bad = Arc::new(InterProcessSemaphoreMutex::new(bad_client, &bad_path).unwrap());
        // The good one is the first, so the last to be released.
        let multi = InterProcessMultiLock::from_locks([good as Arc<dyn InterProcessLock>, bad]).unwrap();
        let guard = in_time(multi.acquire()).await.unwrap();
        env.wait_for_children(&good_client, &format!("{bad_path}/locks"), 0).await;
        let epoch = bad_session.epoch();
        proxy.refuse();
        proxy.reset();
        let failed = in_time(guard.release()).await;
        assert!(matches!(failed, Err(LockError::Framework(Error::ConnectionLoss { .. }))), "{failed:?}");
        assert_eq!(children(&good_client, &good_path).await, [""; 0], "the good one is released");
        assert_eq!(children(&good_client, &format!("{bad_path}/leases")).await.len(), 1, "the bad one is not");
        assert!(!guard.is_held() && !multi.is_acquired_in_this_process());
        proxy.accept();
        let has_next = async || bad_session.is_connected() && bad_session.epoch() > epoch;
        curator_integration::env::eventually("it is connected again", has_next).await;
        assert_eq!(in_time(guard.release()).await.unwrap(), Release::Released);
        assert_eq!(children(&good_client, &format!("{bad_path}/leases")).await, [""; 0]);
    }

    /// Curator's `TestInterProcessMultiMutex.testSomeLocksFailToLock`.
    async fn a_lock_that_cannot_be_had_gives_the_others_back(env) {
        let client = env.client().await;
        let path = env.path("good");
        let failing = Arc::new(Failing::default());
        for late in [false, true] {
            let good = Arc::new(InterProcessMutex::new(client.clone(), &path).unwrap());
            let mut locks: Vec<Arc<dyn InterProcessLock>> = vec![good.clone(), failing.clone()];
            if late {
                locks.insert(1, Arc::new(InterProcessMutex::new(client.clone(), env.path("second")).unwrap()));
            }
            let multi = InterProcessMultiLock::from_locks(locks).unwrap();
            for way in 0..3 {
                let outcome = match way {
                    0 => in_time(multi.acquire()).await.map(Some),
                    1 => in_time(multi.try_acquire()).await,
                    _ => in_time(multi.acquire_timeout(Duration::from_secs(20))).await,
                };
                // What is given back goes in the background, and would be in the way of a single try.
                env.wait_for_children(&client, &path, 0).await;
                env.wait_for_children(&client, &env.path("second"), 0).await;
                assert!(matches!(outcome, Err(LockError::Framework(Error::NotStarted))), "{outcome:?}");
                assert!(!good.is_acquired_in_this_process());
            }
        }
        assert_eq!(failing.asked.load(Ordering::SeqCst), 6);
    }

    async fn all_or_none(env) {
        let client = env.client().await;
        let (one, two) = (env.path("one"), env.path("two"));
        let multi = InterProcessMultiLock::new(client.clone(), [&one, &two]).unwrap();
        let second = InterProcessMutex::new(client.clone(), &two).unwrap();
        let held = second.acquire().await.unwrap();
        assert!(multi.try_acquire().await.unwrap().is_none());
        assert_eq!(children(&client, &one).await, [""; 0], "a try that fails is out of the way");
        assert!(multi.acquire_timeout(Duration::from_millis(300)).await.unwrap().is_none());
        env.wait_for_children(&client, &one, 0).await;
        env.wait_for_children(&client, &two, 1).await;
        assert!(held.release().await.unwrap().is_released());

        let guard = in_time(multi.acquire()).await.unwrap();
        let parts: Vec<_> = guard.iter().map(|part| part.node_path().to_owned()).collect();
        assert!(parts[0].starts_with(&one) && parts[1].starts_with(&two) && parts.len() == 2, "{parts:?}");
        assert_eq!((guard.node_path(), guard.token()), (parts[0].as_str(), guard.iter().next().unwrap().token()));
        // Any part that is lost is a loss of the whole.
        client.delete().for_path(&parts[1]).await.unwrap();
        in_time(guard.lost()).await;
        assert!(!guard.is_held() && guard.verify().await.is_err());
        assert!(matches!(guard.release().await.unwrap(), Release::AlreadyLost(_)));
        assert_eq!(children(&client, &one).await, [""; 0]);
    }
}

#[tokio::test]
async fn no_lock_and_the_same_lock_twice_are_named() {
    let client = curator_integration::env::builder(([127, 0, 0, 1], 1).into()).build().unwrap();
    let none = InterProcessMultiLock::new(client.clone(), [""; 0]).unwrap_err().to_string();
    assert_eq!(none, "invalid locks: there is none");
    let twice = InterProcessMultiLock::new(client, ["/a", "/b", "/a"]).unwrap_err().to_string();
    assert_eq!(twice, "invalid lock paths: /a is named twice and would wait for itself");
}

/// A lock that uses up its budget before it is granted.
#[derive(Debug)]
struct Late(InterProcessMutex);

#[async_trait]
impl InterProcessLock for Late {
    async fn acquire(&self) -> Result<LockGuard, LockError> {
        self.0.acquire().await.map(Into::into)
    }

    async fn acquire_timeout(&self, budget: Duration) -> Result<Option<LockGuard>, LockError> {
        let granted = self.acquire().await?;
        tokio::time::sleep(budget).await;
        Ok(Some(granted))
    }

    async fn try_acquire(&self) -> Result<Option<LockGuard>, LockError> {
        self.acquire().await.map(Some)
    }

    fn is_acquired_in_this_process(&self) -> bool {
        self.0.is_acquired_in_this_process()
    }
}

/// No reply has shown another contender of either lock.
#[tokio::test]
async fn a_budget_that_ends_between_two_free_locks_shows_no_contention() {
    let server = server();
    let client = client(&server).await;
    let late = Late(InterProcessMutex::new(client.clone(), "/a").unwrap());
    let second = InterProcessMutex::new(client.clone(), "/b").unwrap();
    let both =
        InterProcessMultiLock::from_locks([Arc::new(late) as Arc<dyn InterProcessLock>, Arc::new(second)]).unwrap();
    let late = in_time(both.acquire_timeout(Duration::from_millis(20))).await;
    assert!(matches!(late, Err(LockError::Framework(Error::ConnectionLoss { .. }))), "{late:?}");
    assert_eq!(server.children("/b"), None, "no time was left to ask for the second");

    // The budget ends before the first lock is asked for.
    let free = InterProcessMultiLock::new(client, ["/c", "/d"]).unwrap();
    let hasty = in_time(free.acquire_timeout(Duration::from_nanos(1))).await;
    assert!(matches!(hasty, Err(LockError::Framework(Error::ConnectionLoss { .. }))), "{hasty:?}");
}

/// A session ends between the first lock and the second: the whole is not granted on a part that is lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_multi_lock_is_not_granted_when_a_part_of_it_is_lost() {
    let server = server();
    let (one, other) = (client(&server).await, client(&server).await);
    let session = one.session().await.unwrap();
    let blocker = in_time(InterProcessMutex::new(other.clone(), "/b").unwrap().acquire()).await.unwrap();
    let both = InterProcessMultiLock::new(one.clone(), ["/a", "/b"]).unwrap();
    let waiter = tokio::spawn(async move { both.acquire().await });
    eventually("it waits for the second", async || server.children("/b").is_some_and(|nodes| nodes.len() == 2)).await;
    let name = server.children("/a").unwrap().pop().unwrap();
    let owner = one.check_exists().for_path(&format!("/a/{name}")).await.unwrap().unwrap().ephemeral_owner;
    // Queued before the session ends: it is granted the first lock then, and the whole waits for that, although the second one
    // is free.
    let thief = tokio::spawn(async move { InterProcessMutex::new(other, "/a").unwrap().acquire().await.unwrap() });
    eventually("the thief is queued", async || server.children("/a").is_some_and(|nodes| nodes.len() == 2)).await;
    assert!(server.kill_session(owner));
    in_time(session.ended()).await;
    let thief = in_time(thief).await.unwrap();
    assert!(blocker.release().await.unwrap().is_released());
    let mut waiter = waiter;
    let early = tokio::time::timeout(Duration::from_millis(300), &mut waiter).await;
    assert!(early.is_err(), "granted while another client has a part of it: {early:?}");
    assert!(thief.is_held());
    assert!(thief.release().await.unwrap().is_released());
    assert!(in_time(waiter).await.unwrap().unwrap().is_held());
}

/// One that was lost does not hide the outcome of the others.
#[tokio::test(start_paused = true)]
async fn many_guards_are_released_in_the_time_of_one() {
    let ensemble = SimulatedEnsemble::new(1, Duration::from_millis(5));
    let client = simulated(&ensemble, 1).await;
    let mut guards = Vec::new();
    for number in 0..100 {
        let mutex = InterProcessMutex::new(client.clone(), format!("/locks/{number}")).unwrap();
        guards.push(mutex.acquire().await.unwrap());
    }
    ensemble.delete(guards[7].node_path());
    guards[7].lost().await;
    let began = Instant::now();
    let released = LockGuard::release_all(&guards).await;
    assert!(began.elapsed() < Duration::from_millis(50), "{:?}", began.elapsed());
    for (number, released) in released.into_iter().enumerate() {
        let expected = if number == 7 { Release::AlreadyLost(LossReason::NodeDeleted) } else { Release::Released };
        assert_eq!(released.unwrap(), expected, "{number}");
    }
}
