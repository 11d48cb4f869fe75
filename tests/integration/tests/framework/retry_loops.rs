//! Loops that try again, and sessions that must not change on the way: Curator's `TestRetryLoop`,
//! `TestThreadLocalRetryLoop`, `TestSessionFailRetryLoop` and the `BasicTests` of its client.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::time::Duration;

use curator_framework::{
    ConnectionState, CreateMode, CuratorFramework, Error, RetryAttempt, RetryForever, RetryNTimes, RetryPolicy,
    SessionFailMode, SessionFailedRetryPolicy,
};
use curator_integration::connection_stage::{CLIENT, Puppets, TIMEOUT, comes_to, simulated, simulation};
use curator_integration::env::{builder, connected, in_time};
use curator_integration::on_every_server;
use curator_integration::refusals::RefusingFactory;
use curator_recipes::{InterProcessMutex, LockError};
use curator_test::TestingServer;
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, join_all};
use parking_lot::Mutex;

/// Runs a look in a loop of its own, as a recipe does, and says how often it was tried. Each failure is reported.
async fn looks(client: &CuratorFramework, on_failure: impl Fn()) -> usize {
    let mut retries = client.retry_loop();
    for tries in 1.. {
        let looked = match retries.session().await {
            Ok(session) => session.exists("/").await.map(drop),
            Err(error) => Err(error),
        };
        let Err(error) = looked else { return tries };
        on_failure();
        retries.failed(error).await.unwrap();
    }
    unreachable!("the loop above does not end by itself");
}

on_every_server! {
    /// Curator's `TestRetryLoop.testRetryLoop`.
    async fn a_loop_without_trouble_runs_once(env) {
        let client = env.client().await;
        assert_eq!(in_time(looks(&client, || panic!("nothing is wrong"))).await, 1);
    }

    /// Curator's `TestRetryLoop.testRetryLoopWithFailure`.
    async fn a_loop_goes_on_when_the_server_is_back(env) {
        let proxy = env.proxy();
        let options = builder(proxy.address()).connection_timeout(Duration::from_millis(300));
        let options = options.retry_policy(RetryForever::new(Duration::from_millis(20)).unwrap());
        let client = connected(options.session_timeout(Duration::from_secs(20))).await;
        proxy.refuse();
        proxy.reset();
        comes_to(&client, ConnectionState::Suspended).await;
        assert!(in_time(looks(&client, || proxy.accept())).await >= 2);
    }

    /// Curator's `BasicTests.testSimple`.
    async fn a_create_returns_the_path(env) {
        let path = env.path("simple");
        let client = env.client().await;
        assert_eq!(client.create().creating_parents_if_needed().for_path(&path).await.unwrap(), path);
    }

    /// Curator's `BasicTests.testReconnect`.
    async fn data_is_there_after_a_restart(env) {
        let env = env.alone();
        let client = connected(builder(env.address()).session_timeout(Duration::from_secs(60))).await;
        let path = env.path("kept");
        client.create().creating_parents_if_needed().with_data("data").for_path(&path).await.unwrap();
        env.restart().await;
        assert_eq!(in_time(client.get_data().for_path(&path)).await.unwrap().0, b"data");
    }

    /// Curator's `BasicTests.testExpiredSession`: one operation continues in the next session.
    async fn a_loop_goes_on_in_the_next_session(env) {
        let client = env.client().await;
        let path = env.path("mine");
        let create = client.create().creating_parents_if_needed().with_mode(CreateMode::Ephemeral);
        create.for_path(&path).await.unwrap();
        let mut retries = client.retry_loop();
        let first = retries.session().await.unwrap();
        env.kill_owner_of(&env.client().await, &path).await;
        // The next request reports what is not known yet.
        let error = loop {
            match in_time(first.exists(&path)).await {
                Err(error @ Error::SessionExpired { .. }) => break error,
                Ok(_) | Err(Error::ConnectionLoss { .. }) => tokio::task::yield_now().await,
                Err(other) => panic!("{other}"),
            }
        };
        in_time(retries.failed(error)).await.unwrap();
        let second = in_time(retries.session()).await.unwrap();
        assert_eq!((first.number(), second.number()), (1, 2));
        assert!(second.exists(&path).await.unwrap().is_none());
    }

    /// Curator's `BasicTests.testBackgroundConnect`.
    async fn a_client_connects_without_being_asked_for_anything(env) {
        let client = builder(env.address()).build().unwrap();
        client.start().unwrap();
        comes_to(&client, ConnectionState::Connected).await;
    }

    /// Curator's `BasicTests.testFactory`.
    async fn sessions_come_from_the_factory(env) {
        let puppets = Puppets::default();
        let client = connected(builder(env.address()).zookeeper_factory(puppets.clone())).await;
        assert_eq!(puppets.take().len(), 1);
        assert!(client.check_exists().for_path("/").await.is_ok());
    }

    /// Curator's `TestSessionFailRetryLoop.testRetry` and `testRetryStatic`.
    async fn work_within_one_session_is_begun_again_in_the_next_one(env) {
        let (client, killer) = (env.client().await, env.client().await);
        let (env, killer) = (&env, &killer);
        let began = AtomicU32::new(0);
        let work = client.within_one_session(SessionFailMode::Retry, |session| {
            let turn = began.fetch_add(1, Ordering::SeqCst);
            async move {
                let path = env.path(&format!("turn-{turn}"));
                env.client().await.create().creating_parents_if_needed().for_path(&path).await?;
                let mine = format!("{path}/mine");
                session.create(&mine, Vec::new(), curator_framework::Acl::open_unsafe(), CreateMode::Ephemeral).await?;
                if turn == 0 {
                    env.kill_owner_of(killer, &mine).await;
                    // Nothing that is asked here is answered in another session, and the work is stopped.
                    loop {
                        if let Ok(found) = session.exists(&mine).await {
                            assert!(found.is_some());
                        }
                        tokio::task::yield_now().await;
                    }
                }
                Ok((turn, session.number()))
            }
        });
        assert_eq!(in_time(work).await.unwrap(), (1, 2));
    }

    /// Curator's `TestSessionFailRetryLoop.testBasic` and `testBasicStatic`.
    async fn work_within_one_session_fails_with_it(env) {
        let (client, killer) = (env.client().await, env.client().await);
        let (env, killer) = (&env, &killer);
        let path = env.path("mine");
        let create = client.create().creating_parents_if_needed().with_mode(CreateMode::Ephemeral);
        create.for_path(&path).await.unwrap();
        let began = AtomicU32::new(0);
        let work = client.within_one_session(SessionFailMode::Fail, |_session| {
            began.fetch_add(1, Ordering::SeqCst);
            let path = path.clone();
            async move {
                env.kill_owner_of(killer, &path).await;
                std::future::pending::<Result<(), Error>>().await
            }
        });
        let failed = in_time(work).await;
        assert!(matches!(failed, Err(Error::SessionExpired { .. })), "{failed:?}");
        assert_eq!(began.load(Ordering::SeqCst), 1);
        // The client continues.
        assert!(in_time(client.check_exists().for_path(&path)).await.unwrap().is_none());
    }
}

/// Curator's `TestRetryLoop.testRetryForeverWithSessionFailed` (CURATOR-544).
#[tokio::test(start_paused = true)]
async fn the_end_of_the_session_escapes_a_policy_that_leaves_it_to_the_caller() {
    let forever = || RetryForever::new(Duration::from_secs(1)).unwrap();
    for escapes in [true, false] {
        let ensemble = simulation(31);
        let options = simulated(&ensemble, CLIENT).connection_timeout(TIMEOUT * 10);
        let options = match escapes {
            true => options.retry_policy(SessionFailedRetryPolicy::new(forever())),
            false => options.retry_policy(forever()),
        };
        let client = options.build().unwrap();
        client.start().unwrap();
        client.block_until_connected().await.unwrap();
        // While something is held only the leader's replies count: the server's replies to pings keep the connection, and
        // the session ends with the write outstanding.
        let guard = InterProcessMutex::new(client.clone(), "/lock").unwrap().acquire().await.unwrap();
        ensemble.cut_off_server(CLIENT);
        let asker = client.clone();
        let asked = tokio::spawn(async move { asker.set_data().for_path("/lock", "new").await });
        comes_to(&client, ConnectionState::Lost).await;
        ensemble.repair(CLIENT);
        let answer = in_time(asked).await.unwrap();
        match escapes {
            true => assert!(matches!(answer, Err(Error::SessionExpired { .. })), "{answer:?}"),
            false => assert!(answer.is_ok(), "{answer:?}"),
        }
        drop(guard);
        client.close().await;
    }
}

/// Loses the connection over each request but the first of an operation's try, again and again.
#[derive(Debug, Clone, Default)]
struct Losing {
    /// How many requests were submitted since this was set to 0.
    submitted: Arc<AtomicUsize>,
    /// The requests that get through: their number is not a multiple of this; 0 for all.
    every: Arc<AtomicUsize>,
}

impl Losing {
    fn factory(&self) -> RefusingFactory {
        let Self { submitted, every } = self.clone();
        RefusingFactory::new(move |request| {
            let (number, every) = (submitted.fetch_add(1, Ordering::SeqCst) + 1, every.load(Ordering::SeqCst));
            let is_lost = every != 0 && number % every == 0;
            is_lost.then(|| Error::ConnectionLoss { request: request.to_string().into(), sent: true, cause: None })
        })
    }
}

const RETRIES: u32 = 5;

/// Notes what it is asked.
#[derive(Debug, Clone, Default)]
struct Noting(Arc<Mutex<Vec<u32>>>);

impl RetryPolicy for Noting {
    fn next_pause(&self, attempt: RetryAttempt) -> Option<Duration> {
        self.0.lock().push(attempt.count);
        (attempt.count < RETRIES).then_some(Duration::ZERO)
    }
}

/// Operations of several steps, with how many of their requests may get through in a row so that no try can succeed.
type Nested = fn(CuratorFramework, String) -> BoxFuture<'static, Result<(), LockError>>;
const NESTED: [(&str, usize, Nested); 4] = [
    ("create with parents", 2, |client, path| {
        let below = format!("{path}/a/b/c");
        async move { Ok(client.create().creating_parents_if_needed().for_path(&below).await.map(drop)?) }.boxed()
    }),
    ("protected create", 1, |client, path| {
        let node = format!("{path}/node");
        async move { Ok(client.create().with_protection().for_path(&node).await.map(drop)?) }.boxed()
    }),
    ("delete with children", 2, |client, path| {
        async move { Ok(client.delete().deleting_children_if_needed().for_path(&path).await?) }.boxed()
    }),
    ("acquire", 1, |client, path| {
        async move { InterProcessMutex::new(client, &path)?.acquire().await.map(drop) }.boxed()
    }),
];

/// A client that loses its connection again and again over its requests, and a node with a child.
async fn losing(server: &TestingServer) -> (CuratorFramework, Losing, Noting) {
    let losing = Losing::default();
    let policy = Noting::default();
    let options = builder(server.address()).retry_policy(policy.clone()).zookeeper_factory(losing.factory());
    let client = connected(options.session_timeout(Duration::from_secs(60))).await;
    client.create().creating_parents_if_needed().for_path("/nested/child").await.unwrap();
    (client, losing, policy)
}

/// Curator's `TestThreadLocalRetryLoop.testRecursingRetry`: the steps of an operation share its tries.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_steps_of_an_operation_do_not_multiply_its_tries() {
    let server = TestingServer::start().unwrap();
    let (client, losing, policy) = losing(&server).await;
    for (name, every, operation) in NESTED {
        losing.submitted.store(0, Ordering::SeqCst);
        losing.every.store(every, Ordering::SeqCst);
        let outcome = in_time(operation(client.clone(), "/nested".to_owned())).await;
        // Before the look: the requests for an abandoned node ask no policy.
        losing.every.store(0, Ordering::SeqCst);
        assert!(matches!(outcome, Err(LockError::Framework(Error::ConnectionLoss { .. }))), "{name}: {outcome:?}");
        let asked = std::mem::take(&mut *policy.0.lock());
        assert_eq!(asked, (0..=RETRIES).collect::<Vec<_>>(), "{name}");
    }
}

/// Curator's `TestThreadLocalRetryLoop.testThreadedRecursingRetry`: each operation has tries of its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn operations_side_by_side_have_their_own_tries() {
    const TASKS: usize = 20;
    let server = TestingServer::start().unwrap();
    let (client, losing, policy) = losing(&server).await;
    losing.every.store(1, Ordering::SeqCst);
    let running = (0..TASKS).map(|task| {
        let (_, _, operation) = NESTED[task % NESTED.len()];
        tokio::spawn(operation(client.clone(), "/nested".to_owned()))
    });
    for outcome in in_time(join_all(running)).await {
        assert!(matches!(outcome, Ok(Err(LockError::Framework(Error::ConnectionLoss { .. })))), "{outcome:?}");
    }
    let mut asked = std::mem::take(&mut *policy.0.lock());
    asked.sort_unstable();
    let expected: Vec<_> = (0..=RETRIES).flat_map(|count| std::iter::repeat_n(count, TASKS)).collect();
    assert_eq!(asked, expected);
    losing.every.store(0, Ordering::SeqCst);
}

#[tokio::test(start_paused = true)]
async fn an_operation_that_is_begun_in_one_session_ends_in_the_next() {
    let ensemble = simulation(32);
    let options = simulated(&ensemble, CLIENT).retry_policy(RetryNTimes::new(1, Duration::from_millis(1)));
    let client = options.build().unwrap();
    client.start().unwrap();
    client.block_until_connected().await.unwrap();
    ensemble.partition(CLIENT);
    let asker = client.clone();
    let created = tokio::spawn(async move { asker.create().for_path("/node").await });
    comes_to(&client, ConnectionState::Lost).await;
    ensemble.repair(CLIENT);
    assert_eq!(in_time(created).await.unwrap().unwrap(), "/node");
    assert_eq!(client.session().await.unwrap().number(), 2);
}
