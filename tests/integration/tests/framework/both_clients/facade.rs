//! The framework's own promises.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use curator_framework::{
    Acl, Chain, ConnectionState, CreateMode, Error, MultiReadResult, Permission, RetryAttempt, RetryNTimes,
    RetryPolicy, ZooKeeperAsyncFactory,
};
use curator_integration::clients::is_zookeeper_async;
use curator_integration::env::{Env, Kind, PATIENCE, builder, children, connected, eventually, in_time};
use curator_integration::on_every_server;
use curator_recipes::{InterProcessMutex, LockError};
use curator_test::wire::OpCode;
use curator_test::{FaultProxy, TestingServer};
use futures_util::FutureExt;

on_every_server! {
    async fn nodes_are_created_read_changed_listed_and_deleted(env) {
        let client = env.client().await;
        let parent = env.path("nodes");
        let node = format!("{parent}/a");
        assert!(matches!(client.create().for_path(&node).await, Err(Error::NoNode { path }) if path == node));
        let (path, stat) = client.create().creating_parents_if_needed().with_data("one").for_path_with_stat(&node).await.unwrap();
        assert_eq!((path.as_str(), stat.version, stat.data_length), (node.as_str(), 0, 3));
        assert!(matches!(client.create().for_path(&node).await, Err(Error::NodeExists { .. })));
        assert_eq!(client.get_data().for_path(&node).await.unwrap(), (b"one".to_vec(), stat));
        let changed = client.set_data().with_version(0).for_path(&node, "two").await.unwrap();
        assert_eq!(changed.version, 1);
        assert!(matches!(client.set_data().with_version(0).for_path(&node, "x").await, Err(Error::BadVersion { .. })));
        assert_eq!(client.check_exists().for_path(&node).await.unwrap(), Some(changed));
        for mode in [CreateMode::PersistentSequential, CreateMode::EphemeralSequential] {
            let path = client.create().with_mode(mode).for_path(&format!("{parent}/s-")).await.unwrap();
            assert!(path.strip_prefix(&format!("{parent}/s-")).is_some_and(|number| number.len() == 10), "{path}");
        }
        assert_eq!(children(&client, &parent).await.len(), 3);
        assert!(matches!(client.delete().for_path(&parent).await, Err(Error::NotEmpty { .. })));
        assert!(matches!(client.delete().with_version(0).for_path(&node).await, Err(Error::BadVersion { .. })));
        client.delete().with_version(1).for_path(&node).await.unwrap();
        assert!(matches!(client.delete().for_path(&node).await, Err(Error::NoNode { .. })));
        assert!(client.check_exists().for_path(&node).await.unwrap().is_none());
        let ephemeral = client.create().with_mode(CreateMode::Ephemeral).for_path(&node).await.unwrap();
        let below = client.create().for_path(&format!("{ephemeral}/b")).await;
        assert!(matches!(below, Err(Error::NoChildrenForEphemerals { .. })), "{below:?}");
    }

    async fn several_nodes_are_read_at_once_each_with_its_own_result(env) {
        let (client, node) = (env.client().await, env.path("nodes"));
        let hidden = format!("{node}/hidden");
        let owner = connected(builder(env.address()).authorization("digest", "ann:secret")).await;
        client.create().creating_parents_if_needed().with_data("data").for_path(&node).await.unwrap();
        owner.create().with_acl(Acl::creator_all()).for_path(&hidden).await.unwrap();
        assert!(client.multi_read().send().await.unwrap().is_empty());
        let reads = client.multi_read().get_data(&*node).get_data(format!("{node}/none")).get_children(&*node).get_data(&*hidden);
        let read = reads.send().await;
        if is_zookeeper_async() {
            assert!(matches!(read, Err(Error::Unsupported { .. })), "{read:?}");
            return;
        }
        let [data, missing, children, refused] = &read.unwrap()[..] else { panic!() };
        let stat = client.check_exists().for_path(&node).await.unwrap().unwrap();
        assert_eq!(data.as_ref().unwrap(), &MultiReadResult::Data(b"data".to_vec(), stat));
        assert!(matches!(missing, Err(Error::NoNode { path }) if **path == format!("{node}/none")), "{missing:?}");
        assert_eq!(children.as_ref().unwrap(), &MultiReadResult::Children(vec!["hidden".to_owned()]));
        assert!(matches!(refused, Err(Error::NoAuth { path }) if **path == *hidden), "{refused:?}");
        let invalid = client.multi_read().get_data("no path").send().await;
        assert!(matches!(invalid, Err(Error::InvalidPath { .. })), "{invalid:?}");
    }

    async fn credentials_come_back_with_every_connection_before_anything_else(env) {
        let proxy = env.proxy();
        let node = env.path("secret");
        let client = connected(builder(proxy.address()).authorization("digest", "ann:secret")).await;
        client.create().creating_parents_if_needed().with_acl(Acl::creator_all()).with_data("x").for_path(&node).await.unwrap();
        let stranger = env.client().await;
        assert!(matches!(stranger.get_data().for_path(&node).await, Err(Error::NoAuth { .. })));
        for _ in 0..3 {
            let mut state = client.watch_connection_state();
            state.mark_unchanged();
            proxy.reset();
            assert_eq!(in_time(client.get_data().for_path(&node)).await.unwrap().0, b"x");
        }
        let wrong = Acl::new(Permission::ALL, "nonsense", "id");
        let refused = client.create().with_acl([wrong]).for_path(&env.path("wrong")).await;
        assert!(matches!(refused, Err(Error::InvalidAcl { .. })), "{refused:?}");
    }

    /// Curator's `TestBackgroundStates.testConnectionStateListener`, with listeners that misbehave.
    async fn listeners_see_the_states_in_order_whatever_others_do(env) {
        let env = env.alone();
        let client = builder(env.address()).session_timeout(Duration::from_secs(4)).build().unwrap();
        let (told, states) = mpsc::channel();
        let (added_told, added_states) = mpsc::channel();
        let (release, blocked) = mpsc::channel::<()>();
        let blocked = parking_lot::Mutex::new(blocked);
        let listenable = client.connection_state_listenable();
        listenable.add_listener(move |_, _| {
            // Blocks from the first state on.
            let _until_the_end = blocked.lock().recv();
        });
        listenable.add_listener(|_, _| std::panic::resume_unwind(Box::new("a listener that fails")));
        listenable.add_listener(move |client, state| {
            if state == ConnectionState::Connected {
                let told = added_told.clone();
                let listenable = client.connection_state_listenable();
                listenable.add_listener(move |_, state| told.send(state).unwrap());
                let removed = listenable.add_listener(|_, _| panic!("it was removed"));
                listenable.remove_listener(removed);
            }
            told.send(state).unwrap();
        });
        client.start().unwrap();
        in_time(client.block_until_connected()).await.unwrap();
        let next = |states: &mpsc::Receiver<ConnectionState>| {
            tokio::task::block_in_place(|| states.recv_timeout(PATIENCE).unwrap())
        };
        assert_eq!(next(&states), ConnectionState::Connected);
        env.freeze();
        assert_eq!(next(&states), ConnectionState::Suspended);
        assert_eq!(next(&states), ConnectionState::Lost);
        env.thaw();
        assert_eq!(next(&states), ConnectionState::Reconnected);
        for state in [ConnectionState::Suspended, ConnectionState::Lost, ConnectionState::Reconnected] {
            assert_eq!(next(&added_states), state);
        }
        client.close().await;
        drop(release);
        // A normal close is not reported.
        assert!(states.recv_timeout(Duration::from_millis(1)).is_err());
    }

    /// Curator's `TestFrameworkEdges.testReconnectAfterLoss` and
    /// `TestEnabledSessionExpiredState.testReconnectWithoutExpiration`.
    async fn a_short_outage_suspends_and_reconnects_the_same_session(env) {
        let proxy = env.proxy();
        let client = connected(builder(proxy.address())).await;
        let node = env.path("node");
        client.create().creating_parents_if_needed().with_mode(CreateMode::Ephemeral).for_path(&node).await.unwrap();
        let mut state = client.watch_connection_state();
        proxy.refuse();
        proxy.reset();
        in_time(state.wait_for(|state| *state == Some(ConnectionState::Suspended))).await.unwrap();
        proxy.accept();
        in_time(state.wait_for(|state| *state == Some(ConnectionState::Reconnected))).await.unwrap();
        assert!(client.check_exists().for_path(&node).await.unwrap().is_some());
    }

    /// Curator's `TestFailedDeleteManager.testBasic`.
    async fn a_guaranteed_delete_outlives_an_outage_and_a_plain_one_does_not(env) {
        let proxy = env.proxy();
        let direct = env.client().await;
        let options = builder(proxy.address()).retry_policy(RetryNTimes::new(0, Duration::ZERO));
        let client = connected(options.session_timeout(Duration::from_secs(2)).connection_timeout(Duration::from_secs(2))).await;
        let (plain, guaranteed) = (env.path("plain"), env.path("guaranteed"));
        for node in [&plain, &guaranteed] {
            client.create().creating_parents_if_needed().for_path(node).await.unwrap();
        }
        let mut state = client.watch_connection_state();
        proxy.refuse();
        proxy.reset();
        // A request before that is not known to be unsent.
        in_time(state.wait_for(|state| state.is_some_and(|state| !state.is_connected()))).await.unwrap();
        assert!(in_time(client.delete().for_path(&plain)).await.unwrap_err().is_retryable());
        assert!(in_time(client.delete().guaranteed().for_path(&guaranteed)).await.unwrap_err().is_retryable());
        proxy.accept();
        eventually("the guaranteed delete is done", async || direct.check_exists().for_path(&guaranteed).await.unwrap().is_none()).await;
        assert!(direct.check_exists().for_path(&plain).await.unwrap().is_some());
        // What cannot succeed is not tried again (CURATOR-42).
        assert!(matches!(client.delete().guaranteed().for_path(&guaranteed).await, Err(Error::NoNode { .. })));
    }

    /// Curator's `TestFrameworkEdges.testRetry`: n retries are n + 1 tries and n + 1 questions.
    async fn the_policy_is_asked_after_each_try(env) {
        #[derive(Debug)]
        struct Counting(Arc<AtomicUsize>);
        impl RetryPolicy for Counting {
            fn next_pause(&self, attempt: RetryAttempt) -> Option<Duration> {
                assert_eq!(self.0.fetch_add(1, Ordering::SeqCst), attempt.count as usize);
                (attempt.count < 2).then_some(Duration::from_millis(1))
            }
        }
        let proxy = env.proxy();
        let asked = Arc::new(AtomicUsize::new(0));
        let options = builder(proxy.address()).connection_timeout(Duration::from_secs(1));
        let client = connected(options.retry_policy(Counting(Arc::clone(&asked)))).await;
        proxy.refuse();
        proxy.reset();
        let start = Instant::now();
        assert!(in_time(client.get_data().for_path("/")).await.unwrap_err().is_retryable());
        assert_eq!(asked.load(Ordering::SeqCst), 3);
        // The connection is waited for once, not for each try.
        assert!(start.elapsed() < Duration::from_millis(1900), "{:?}", start.elapsed());
    }

    async fn close_wakes_all_waiters(env) {
        let path = env.path("lock");
        let (client, other) = (env.client().await, env.client().await);
        let guard = InterProcessMutex::new(other.clone(), &path).unwrap().acquire().await.unwrap();
        let mutex = InterProcessMutex::new(client.clone(), &path).unwrap();
        let waiter = tokio::spawn(async move { mutex.acquire().await });
        env.wait_for_children(&other, &path, 2).await;
        in_time(client.close()).await;
        let outcome = in_time(waiter).await.unwrap();
        assert!(matches!(outcome, Err(LockError::Framework(Error::Closed))), "{outcome:?}");
        env.wait_for_children(&other, &path, 1).await;
        assert!(guard.release().await.unwrap().is_released());
    }

    async fn a_closed_client_leaves_no_task(env) {
        let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
        let before = tasks();
        for way in 0..2 {
            let client = env.client().await;
            let mutex = InterProcessMutex::new(client.clone(), env.path("lock")).unwrap();
            let guard = mutex.acquire().await.unwrap();
            assert!(mutex.try_acquire().await.unwrap().is_none());
            if way == 0 {
                client.close().await;
            }
            drop((guard, mutex, client));
            eventually("every task has ended", async || tasks() == before).await;
        }
    }

    /// The place of a request is not its caller's to keep: a future that is not polled holds nothing up.
    async fn abandoned_request_does_not_hold_up_a_reconnect(env) {
        let proxy = env.proxy();
        let client = connected(builder(proxy.address()).session_timeout(Duration::from_secs(20))).await;
        let session = client.session().await.unwrap();
        proxy.latency(Duration::from_millis(50));
        let mut stalled: Vec<_> = (0..60).map(|_| Box::pin(session.exists("/"))).collect();
        for future in &mut stalled {
            assert!(future.as_mut().now_or_never().is_none());
        }
        let connections = proxy.total_connections();
        proxy.reset();
        in_time(proxy.wait_for_connections(connections + 1)).await;
        in_time(client.check_exists().for_path("/")).await.unwrap();
        assert_eq!(client.session().await.unwrap().number(), session.number(), "the same session");
        drop(stalled);
    }

    /// What shows the session's id at a reconnect is gone afterwards, even if the connection breaks over it.
    async fn a_reconnect_leaves_nothing_beside_what_is_held(env) {
        let proxy = env.proxy();
        let direct = env.client().await;
        let options = builder(proxy.address()).zookeeper_factory(ZooKeeperAsyncFactory);
        let client = connected(options.session_timeout(Duration::from_secs(20))).await;
        let parent = env.path("members");
        let ephemeral = client.create().creating_parents_if_needed().with_mode(CreateMode::Ephemeral);
        let member = ephemeral.for_path(&format!("{parent}/me")).await.unwrap();
        let of_sessions = async || {
            let mut below = children(&direct, "/").await;
            below.retain(|name| name.ends_with("-session"));
            below.extend(children(&direct, &parent).await);
            below
        };
        for fault in [FaultProxy::drop_reply, FaultProxy::drop_request] {
            for op in [OpCode::Create2, OpCode::Delete] {
                let faults = proxy.faults_done();
                fault(&proxy, op, 1);
                proxy.reset();
                in_time(proxy.wait_for_faults(faults + 1)).await;
                in_time(client.check_exists().for_path(&member)).await.unwrap().expect("the session lives");
            }
        }
        // Others have sessions of their own at the root, for a moment.
        eventually("only the member is left", async || of_sessions().await == ["me"]).await;
    }

    async fn a_close_waits_no_longer_than_what_is_to_be_deleted_takes(env) {
        let proxy = env.proxy();
        let client = connected(builder(proxy.address()).max_close_wait(Duration::from_secs(20))).await;
        let node = env.path("node");
        client.create().creating_parents_if_needed().for_path(&node).await.unwrap();
        // The reply cannot come within the first poll. The delete that is dropped continues in the background.
        proxy.latency(Duration::from_millis(20));
        assert!(client.delete().guaranteed().for_path(&node).now_or_never().is_none());
        let start = Instant::now();
        in_time(client.close()).await;
        assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
        assert!(env.client().await.check_exists().for_path(&node).await.unwrap().is_none());
    }

    async fn closing_is_bounded_when_no_server_answers(env) {
        let proxy = env.proxy();
        let client = connected(builder(proxy.address()).max_close_wait(Duration::from_millis(300))).await;
        let guard = InterProcessMutex::new(client.clone(), env.path("lock")).unwrap().acquire().await.unwrap();
        proxy.partition();
        drop(guard);
        let start = Instant::now();
        in_time(client.close()).await;
        assert!(start.elapsed() < Duration::from_millis(1500), "{:?}", start.elapsed());
        // The proxy's partition ends with it, and with it the session.
        proxy.repair();
    }

    async fn more_requests_than_a_client_takes_at_once_wait_their_turn(env) {
        let proxy = env.proxy();
        let client = connected(builder(proxy.address())).await;
        let root = env.path("many");
        client.create().creating_parents_if_needed().for_path(&root).await.unwrap();
        proxy.latency(Duration::from_millis(20));
        let mut all = tokio::task::JoinSet::new();
        for number in 0..500 {
            let (client, path) = (client.clone(), format!("{root}/{number}"));
            all.spawn(async move { client.create().for_path(&path).await });
        }
        // Callers that go away do not free their place before the answer comes.
        for number in 0..200 {
            let client = client.clone();
            let path = format!("{root}/dropped-{number}");
            let gone = tokio::time::timeout(Duration::from_millis(1), async move { client.create().for_path(&path).await });
            drop(gone.await);
        }
        while let Some(created) = in_time(all.join_next()).await {
            created.unwrap().unwrap();
        }
        assert!(client.is_connected());
        proxy.latency(Duration::ZERO);
        proxy.drop_reply(OpCode::Delete, 1);
    }
}

/// Java sends what is above U+FFFF in a form that is not UTF-8, over which the crate `zookeeper-async` panics.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reply_that_cannot_be_decoded_is_an_error_and_the_client_goes_on() {
    let env = Env::new(Kind::Apache);
    let (client, direct) = (env.client().await, env.client().await);
    let (node, strange) = (env.path("ephemeral"), env.path("strange"));
    let ephemeral = client.create().creating_parents_if_needed().with_mode(CreateMode::Ephemeral);
    ephemeral.for_path(&node).await.unwrap();
    let acl = [
        Acl::new(Permission::ALL, "world", "anyone"),
        Acl::digest("\u{1f600}", "abc").with_permissions(Permission::READ),
    ];
    client.create().with_acl(acl).for_path(&strange).await.unwrap();
    let session = client.session().await.unwrap();
    let answer = in_time(session.get_acl(&strange)).await;
    if is_zookeeper_async() {
        assert!(matches!(answer, Err(Error::SessionExpired { .. })), "{answer:?}");
        // Not by its timer: that takes ten seconds and more.
        let start = Instant::now();
        eventually("the session is closed", async || direct.check_exists().for_path(&node).await.unwrap().is_none())
            .await;
        assert!(start.elapsed() < Duration::from_secs(8), "{:?}", start.elapsed());
    } else {
        let error = answer.unwrap_err();
        assert!(error.outcome_unknown() && Chain(&error).to_string().contains("string is not UTF-8"), "{error}");
        in_time(session.connected()).await.unwrap();
        assert!(in_time(client.check_exists().for_path(&node)).await.unwrap().is_some(), "the session goes on");
    }
    assert!(in_time(client.check_exists().for_path(&strange)).await.unwrap().is_some());
}

#[test]
fn closing_after_the_runtime_is_gone_returns() {
    let server = curator_test::TestingServer::start().unwrap();
    let first = tokio::runtime::Runtime::new().unwrap();
    let client = first.block_on(connected(builder(server.address())));
    drop(first);
    tokio::runtime::Runtime::new().unwrap().block_on(in_time(client.close()));
}

/// `close` comes at any moment: at the first connect, at the second one of `zookeeper-async`, or before the first reply.
#[tokio::test]
async fn a_client_that_is_closed_while_it_connects_leaves_no_session() {
    let server = TestingServer::start().unwrap();
    let proxy = FaultProxy::start(server.address()).unwrap();
    proxy.latency(Duration::from_millis(20));
    let (mut had_a_session, mut was_connected) = (0, 0);
    for moment in 0..30 {
        // Of itself it would last longer than is waited below.
        let client = builder(proxy.address()).session_timeout(PATIENCE * 2).build().unwrap();
        client.start().unwrap();
        // At any moment of it.
        tokio::time::sleep(Duration::from_millis(if is_zookeeper_async() { moment * 10 } else { moment * 3 })).await;
        was_connected += usize::from(client.is_connected());
        had_a_session += usize::from(!client.is_connected() && !server.sessions().is_empty());
        client.close().await;
        // All is sent; the proxy takes its time.
        eventually("the session ends", async || server.sessions().is_empty()).await;
    }
    assert!(had_a_session > 3 && was_connected < 27, "{had_a_session} while connecting, {was_connected} connected");
}
