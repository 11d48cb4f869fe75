//! Operations in the background: Curator's `TestFrameworkBackground` and `TestMultiClient`. A callback is what the
//! spawned future does with its answer.

use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use curator_framework::{
    Acl, AclProvider, ConnectionState, Error, EventType, RetryAttempt, RetryNTimes, RetryPolicy, SafeNotifyExecutor,
    WakeReason,
};
use curator_integration::connection_stage::{CLIENT, Told, comes_to, simulated, simulation};
use curator_integration::env::{PATIENCE, builder, connected, in_time};
use curator_integration::on_every_server;
use futures_util::future::join_all;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::ground::exists;

/// Has a fault of its own for one path.
#[derive(Debug)]
struct Faulty;

impl AclProvider for Faulty {
    fn default_acl(&self) -> Vec<Acl> {
        Acl::open_unsafe()
    }

    fn acl_for_path(&self, path: &str) -> Option<Vec<Acl>> {
        if path.ends_with("faulty") {
            std::panic::resume_unwind(Box::new("a provider that fails"));
        }
        None
    }
}

/// Says when the thread on which it was made ends.
struct OnThreadEnd(mpsc::Sender<()>);

impl Drop for OnThreadEnd {
    fn drop(&mut self) {
        // The receiver may have been dropped.
        self.0.send(()).ok();
    }
}

thread_local! {
    static ON_END: std::cell::RefCell<Option<OnThreadEnd>> = const { std::cell::RefCell::new(None) };
}

on_every_server! {
    /// Curator's `TestFrameworkBackground.testBasic`.
    async fn every_spawned_operation_has_its_own_answer(env) {
        let client = env.client().await;
        let root = env.path("basic");
        client.create().creating_parents_if_needed().for_path(&root).await.unwrap();
        let created = (0..3).map(|number| {
            let (client, path) = (client.clone(), format!("{root}/{number}"));
            tokio::spawn(async move { (client.create().for_path(&path).await.unwrap(), path) })
        });
        for created in in_time(join_all(created)).await {
            let (returned, path) = created.unwrap();
            assert_eq!(returned, path);
        }
        let mut children = client.get_children().for_path(&root).await.unwrap();
        children.sort_unstable();
        assert_eq!(children, ["0", "1", "2"]);
    }

    /// Curator's `TestFrameworkBackground.testErrorListener`: a fault in what the user supplies reaches the caller of
    /// the operation, and no other listener.
    async fn fault_of_a_user_reaches_the_caller(env) {
        let client = connected(builder(env.address()).acl_provider(Faulty)).await;
        let (asker, path) = (client.clone(), env.path("faulty"));
        let create = async move { asker.create().creating_parents_if_needed().for_path(&path).await };
        let failed = in_time(tokio::spawn(create)).await.unwrap();
        assert!(matches!(failed, Err(Error::InvalidAcl { .. })), "{failed:?}");
        assert!(client.is_connected());
        let other = env.path("other");
        in_time(client.create().creating_parents_if_needed().for_path(&other)).await.unwrap();
        in_time(client.close()).await;
    }

    /// Curator's `TestFrameworkBackground.testListenerConnectedAtStart` (CURATOR-72).
    async fn the_first_state_is_connected_also_if_an_operation_came_first(env) {
        let client = builder(env.address()).build().unwrap();
        let told = Told::by(&client);
        client.start().unwrap();
        let asker = client.clone();
        in_time(tokio::spawn(async move { asker.check_exists().for_path("/").await })).await.unwrap().unwrap();
        assert_eq!(told.all(client).await, [ConnectionState::Connected]);
    }

    /// Curator's `TestFrameworkBackground.testCuratorCallbackOnError`.
    async fn a_spawned_operation_is_told_of_the_lost_connection(env) {
        let proxy = env.proxy();
        let options = builder(proxy.address()).connection_timeout(Duration::from_millis(300));
        let client = connected(options.retry_policy(RetryNTimes::new(1, Duration::from_millis(1)))).await;
        proxy.refuse();
        proxy.reset();
        comes_to(&client, ConnectionState::Suspended).await;
        let outcome = in_time(tokio::spawn(async move { client.get_children().for_path("/").await })).await.unwrap();
        assert!(matches!(outcome, Err(Error::ConnectionLoss { .. })), "{outcome:?}");
    }

    /// Curator's `TestFrameworkBackground.testShutdown` (CURATOR-126).
    async fn a_close_beside_an_operation_that_hangs_is_quiet(env) {
        let env = env.alone();
        let client = connected(builder(env.address()).max_close_wait(Duration::from_millis(100))).await;
        env.freeze();
        let asker = client.clone();
        let hangs = tokio::spawn(async move { asker.get_data().for_path("/").await });
        tokio::task::yield_now().await;
        in_time(client.close()).await;
        env.thaw();
        let outcome = in_time(hangs).await.unwrap();
        assert!(matches!(outcome, Err(Error::Closed)), "{outcome:?}");
        // Once more, now that the server answers.
        in_time(client.close()).await;
    }

    /// Curator's `TestFrameworkBackground.testCloseShutsDownInternalRunSafeService`.
    async fn the_thread_of_a_listener_ends(env) {
        let client = builder(env.address()).build().unwrap();
        let (ended, end) = mpsc::channel();
        client.connection_state_listenable().add_listener(move |_, _| {
            ON_END.set(Some(OnThreadEnd(ended.clone())));
        });
        client.start().unwrap();
        in_time(client.block_until_connected()).await.unwrap();
        in_time(client.close()).await;
        end.recv_timeout(PATIENCE).unwrap();
    }

    /// Curator's `TestFrameworkBackground.testCloseLeavesExternalRunSafeServiceRunning`.
    async fn an_executor_of_the_users_own_goes_on_after_the_client(env) {
        let client = builder(env.address()).build().unwrap();
        let own = SafeNotifyExecutor::new();
        let (told, states) = mpsc::channel();
        let (executor, of_listener) = (own.clone(), told.clone());
        client.connection_state_listenable().add_listener(move |_, state| {
            let told = of_listener.clone();
            executor.submit(move || told.send(Some(state)).unwrap());
        });
        client.start().unwrap();
        in_time(client.block_until_connected()).await.unwrap();
        assert_eq!(states.recv_timeout(PATIENCE).unwrap(), Some(ConnectionState::Connected));
        in_time(client.close()).await;
        own.submit(move || told.send(None).unwrap());
        assert_eq!(states.recv_timeout(PATIENCE).unwrap(), None);
    }

    /// Curator's `TestMultiClient.testNotify`.
    async fn what_one_client_sets_the_other_ones_watch_is_told(env) {
        let (first, second) = (env.client().await, env.client().await);
        let path = env.path("shared");
        first.create().creating_parents_if_needed().with_data("old").for_path(&path).await.unwrap();
        let ((data, _), watch) = second.get_data().watched().for_path(&path).await.unwrap();
        assert_eq!(data, b"old");
        first.set_data().for_path(&path, "new").await.unwrap();
        assert_eq!(in_time(watch).await, WakeReason::Event(EventType::NodeDataChanged));
        assert_eq!(second.get_data().for_path(&path).await.unwrap().0, b"new");
    }

    /// Curator's `TestFrameworkEdges.testNestedCalls`: a listener may wait for an operation.
    async fn a_listener_may_ask_for_something_and_wait_for_it(env) {
        let client = builder(env.address()).build().unwrap();
        let (told, answers) = mpsc::channel();
        let runtime = tokio::runtime::Handle::current();
        let node = env.path("node");
        let path = node.clone();
        client.connection_state_listenable().add_listener(move |client, state| {
            if state == ConnectionState::Connected {
                let create = client.create().creating_parents_if_needed().with_data("nested");
                runtime.block_on(create.for_path(&path)).unwrap();
                told.send(runtime.block_on(client.get_data().for_path(&path)).unwrap().0).unwrap();
            }
        });
        client.start().unwrap();
        let answer = tokio::task::block_in_place(|| answers.recv_timeout(PATIENCE)).unwrap();
        assert_eq!(answer, b"nested");
        assert!(exists(&client, &node).await);
    }
}

/// Notes when it is asked, and retries three times after a second each.
#[derive(Debug, Clone, Default)]
struct Noting(Arc<Mutex<Vec<Instant>>>);

const PAUSE: Duration = Duration::from_secs(1);

impl RetryPolicy for Noting {
    fn next_pause(&self, attempt: RetryAttempt) -> Option<Duration> {
        self.0.lock().push(Instant::now());
        (attempt.count < 3).then_some(PAUSE)
    }
}

/// Curator's `TestFrameworkBackground.testRetries`.
#[tokio::test(start_paused = true)]
async fn between_two_tries_is_the_policys_pause() {
    let ensemble = simulation(41);
    ensemble.partition(CLIENT);
    let policy = Noting::default();
    let wait = Duration::from_millis(100);
    let options = simulated(&ensemble, CLIENT).connection_timeout(wait).retry_policy(policy.clone());
    let client = options.build().unwrap();
    client.start().unwrap();
    let start = Instant::now();
    let outcome = tokio::spawn(async move { client.create().for_path("/node").await }).await.unwrap();
    assert!(matches!(outcome, Err(Error::ConnectionLoss { .. })), "{outcome:?}");
    let asked: Vec<_> = policy.0.lock().iter().map(|asked| asked.duration_since(start).as_millis()).collect();
    assert_eq!(asked.len(), 4);
    for (number, asked) in asked.into_iter().enumerate() {
        // A timer is late by a millisecond at most.
        let expected = (wait + PAUSE * u32::try_from(number).unwrap()).as_millis();
        assert!((expected..=expected + 4).contains(&asked), "try {number} ended at {asked} ms, not {expected}");
    }
}
