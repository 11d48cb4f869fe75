//! Credentials: they are added to every connection before anything else that waits for it.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use curator_framework::spi::{ConnectConfig, Connection, ZooKeeperFactory};
use curator_framework::{
    Acl, Chain, ConnectError, CuratorFramework, CuratorFrameworkBuilder, CuratorOp, Error, Permission, RetryNTimes,
};
use curator_integration::env::{Env, PATIENCE, builder, connected, in_time};
use curator_integration::on_every_server;
use curator_recipes::{InterProcessMutex, LockError};
use curator_test::{ClientId, FaultProxy, SimulatedEnsemble, kill_session};
use parking_lot::Mutex;

use crate::ground::{exists, take_down, world};

const USERS: [&str; 3] = ["ann:one", "bob:two", "cleo:three"];

fn digest(options: CuratorFrameworkBuilder, users: &[&str]) -> CuratorFrameworkBuilder {
    users.iter().fold(options, |options, user| options.authorization("digest", *user))
}

/// One node for each user that no other user may read, and their paths.
async fn secrets(env: &Env) -> Vec<String> {
    let mut nodes = Vec::new();
    for user in USERS {
        let client = connected(digest(builder(env.address()), &[user])).await;
        let node = env.path(&format!("of-{}", &user[..3]));
        let create = client.create().creating_parents_if_needed().with_acl(Acl::creator_all());
        nodes.push(create.with_data("secret").for_path(&node).await.unwrap());
        client.close().await;
    }
    nodes
}

/// A client that never tries again, so that one `NoAuth`, or a request that runs too early, is seen.
async fn client_of_all(proxy: &FaultProxy) -> CuratorFramework {
    let options = builder(proxy.address()).connection_timeout(PATIENCE).session_timeout(Duration::from_secs(6));
    connected(digest(options, &USERS).retry_policy(RetryNTimes::new(0, Duration::ZERO))).await
}

/// Reads of all secrets, waiting.
fn reads(client: &CuratorFramework, nodes: &[String]) -> Vec<tokio::task::JoinHandle<Result<Vec<u8>, Error>>> {
    let read = |path: &String| {
        let (client, path) = (client.clone(), path.clone());
        tokio::spawn(async move { client.get_data().for_path(&path).await.map(|(data, _)| data) })
    };
    (0..5).flat_map(|_| nodes.iter().map(read).collect::<Vec<_>>()).collect()
}

on_every_server! {
    async fn credentials_of_a_running_client_count_at_once_and_on_each_later_connection(env) {
        let [node] = &secrets(&env).await[..1] else { unreachable!() };
        let proxy = env.proxy();
        let client = connected(builder(proxy.address()).retry_policy(RetryNTimes::new(20, Duration::from_millis(50)))).await;
        let users = async || {
            let all = in_time(client.who_am_i()).await.unwrap();
            all.into_iter().map(|who| format!("{}:{}", who.scheme, who.user)).collect::<Vec<_>>()
        };
        assert_eq!(users().await, ["ip:127.0.0.1"]);
        let session = in_time(client.session()).await.unwrap();
        assert!(matches!(session.get_data(node).await, Err(Error::NoAuth { .. })));
        client.add_authorization("digest", USERS[0]);
        // Not repeated: this session never tries again.
        assert_eq!(in_time(session.get_data(node)).await.unwrap().0, b"secret");
        let known = users().await;
        assert!(known.len() == 2 && known.contains(&"digest:ann".to_owned()), "{known:?}");
        proxy.reset();
        assert_eq!(in_time(client.get_data().for_path(node).into_future()).await.unwrap().0, b"secret");
        assert_eq!(session.epoch(), 2);
        in_time(env.kill_session(&session)).await;
        in_time(session.ended()).await;
        assert_eq!(in_time(client.get_data().for_path(node).into_future()).await.unwrap().0, b"secret");
        assert_eq!(users().await.len(), 2);
        client.add_authorization("nothing", "x");
        let refused = in_time(client.check_exists().for_path("/").into_future()).await;
        assert!(matches!(refused, Err(Error::AuthFailed { .. })), "{refused:?}");
    }

    /// Curator's `TestFramework.testCreateACLSingleAuth` and `testACLDeprecatedApis`.
    async fn a_user_keeps_others_out(env) {
        let client = connected(digest(builder(env.address()), &["me1:pass1"])).await;
        let node = env.path("node");
        let create = client.create().creating_parents_if_needed().with_acl(Acl::creator_all());
        create.with_data("hey").for_path(&node).await.unwrap();
        assert_eq!(client.get_data().for_path(&node).await.unwrap().0, b"hey");
        client.set_data().for_path(&node, "you").await.unwrap();
        for users in [&[][..], &["someone.else:pass"], &["me1:wrong"]] {
            let other = connected(digest(builder(env.address()), users)).await;
            let read = other.get_data().for_path(&node).await;
            assert!(matches!(&read, Err(Error::NoAuth { path }) if *path == node), "{read:?}");
            let set = other.set_data().for_path(&node, "mine").await;
            assert!(matches!(set, Err(Error::NoAuth { .. })), "{set:?}");
            // Before ZOOKEEPER-2590 each client may learn that it exists.
            match other.check_exists().for_path(&node).await {
                Err(Error::NoAuth { .. }) => assert!(env.exists_needs_read()),
                found => assert!(found.unwrap().is_some() && !env.exists_needs_read()),
            }
        }
        let again = connected(digest(builder(env.address()), &["me1:pass1"])).await;
        assert_eq!(again.get_data().for_path(&node).await.unwrap().0, b"you");
    }

    /// CURATOR-715.
    async fn a_parent_that_may_not_be_read_is_a_parent(env) {
        let owner = connected(digest(builder(env.address()), &["me1:pass1"])).await;
        let (other, node) = (env.client().await, env.path("node"));
        let create = owner.create().creating_parents_if_needed().with_acl(world(Permission::CREATE | Permission::ADMIN));
        create.for_path(&node).await.unwrap();
        other.create_containers(&node).await.unwrap();
        let below = format!("{node}/a/b");
        for _ in 0..2 {
            let check = other.check_exists().creating_parents_if_needed();
            assert!(check.for_path(&format!("{below}/c")).await.unwrap().is_none());
            let check = other.check_exists().creating_parents_if_needed().watched();
            assert!(check.for_path(&format!("{below}/c")).await.unwrap().0.is_none());
            owner.set_acl().with_acl(Acl::creator_all()).for_path(&below).await.unwrap();
        }
    }

    async fn a_digest_lets_its_user_in_and_no_other(env) {
        let ops = connected(digest(builder(env.address()), &["ops:pw"])).await;
        let ann = connected(digest(builder(env.address()), &["ann:secret"])).await;
        let node = env.path("node");
        let list = [Acl::digest("ops", "pw"), Acl::digest("ann", "secret").with_permissions(Permission::READ)];
        ops.create().creating_parents_if_needed().with_acl(list).with_data("hey").for_path(&node).await.unwrap();
        ops.set_data().for_path(&node, "you").await.unwrap();
        assert_eq!(ops.get_acl().for_path(&node).await.unwrap().0.len(), 2);
        assert_eq!(ann.get_data().for_path(&node).await.unwrap().0, b"you");
        let set = ann.set_data().for_path(&node, "mine").await;
        assert!(matches!(set, Err(Error::NoAuth { .. })), "{set:?}");
        for users in [&[][..], &["ops:wrong"], &["other:pw"]] {
            let other = connected(digest(builder(env.address()), users)).await;
            let read = other.get_data().for_path(&node).await;
            assert!(matches!(read, Err(Error::NoAuth { .. })), "{users:?}: {read:?}");
        }
    }

    /// The server accepts such an entry, which fits no password.
    async fn a_digest_without_a_hash_is_refused(env) {
        let (client, node) = (env.client().await, env.path("node"));
        client.create().creating_parents_if_needed().for_path(&node).await.unwrap();
        let plain = || [Acl::new(Permission::ALL, "digest", "ops:pw")];
        let below = format!("{node}/below");
        for refused in [
            client.create().with_acl(plain()).for_path(&below).await.map(drop),
            client.create().with_protection().with_acl(plain()).for_path(&below).await.map(drop),
            client.set_acl().with_acl(plain()).for_path(&node).await.map(drop),
            client.transaction().operation(CuratorOp::create(&below).with_acl(plain())).commit().await.map(drop),
        ] {
            let error = refused.unwrap_err();
            assert!(matches!(error, Error::InvalidAcl { .. }), "{error:?}");
            assert!(error.to_string().contains("make it with `Acl::digest(user, password)`"), "{error}");
        }
        assert!(client.get_children().for_path(&node).await.unwrap().is_empty());
    }

    /// Curator's `TestFramework.testCreateACLMultipleAuths`.
    async fn each_of_several_users_counts(env) {
        let both = connected(digest(builder(env.address()), &["me1:pass1", "me2:pass2"])).await;
        let node = env.path("node");
        both.create().creating_parents_if_needed().with_acl(Acl::creator_all()).for_path(&node).await.unwrap();
        let (acl, _) = both.get_acl().for_path(&node).await.unwrap();
        let mut users: Vec<_> = acl.iter().filter_map(|entry| entry.id.split(':').next()).collect();
        users.sort_unstable();
        assert_eq!(users, ["me1", "me2"]);
        assert!(acl.iter().all(|entry| entry.permissions == Permission::ALL && entry.scheme == "digest"), "{acl:?}");
        for user in ["me1:pass1", "me2:pass2"] {
            let one = connected(digest(builder(env.address()), &[user])).await;
            one.set_data().for_path(&node, user).await.unwrap();
        }
        let neither = connected(digest(builder(env.address()), &["me1:pass2"])).await;
        let set = neither.set_data().for_path(&node, "x").await;
        assert!(matches!(set, Err(Error::NoAuth { .. })), "{set:?}");
    }

    /// Curator's `TestFramework.testCreateACLWithReset`: in every connection of a session, and in the next session.
    async fn what_waits_for_a_connection_runs_behind_the_credentials(env) {
        let nodes = secrets(&env).await;
        let proxy = env.proxy();
        let client = client_of_all(&proxy).await;
        let session = client.session().await.unwrap().number();
        for _ in 0..4 {
            let mut state = client.watch_connection_state();
            state.mark_unchanged();
            take_down(&proxy);
            in_time(state.changed()).await.unwrap();
            let waiting = reads(&client, &nodes);
            proxy.accept();
            for read in waiting {
                assert_eq!(in_time(read).await.unwrap().unwrap(), b"secret");
            }
        }
        // One at a time, from the first moment on.
        for _ in 0..4 {
            let connections = proxy.total_connections();
            proxy.reset();
            while proxy.total_connections() == connections {
                match in_time(client.get_data().for_path(&nodes[0])).await {
                    Ok((data, _)) => assert_eq!(data, b"secret"),
                    Err(error) => assert!(matches!(error, Error::ConnectionLoss { .. }), "{error}"),
                }
            }
        }
        in_time(client.session()).await.unwrap();
        assert_eq!(client.session().await.unwrap().number(), session, "still the same session");
    }

    /// Nothing waits for the connection timeout, which is long here.
    async fn operations_that_wait_fail_at_once_when_the_credentials_are_refused(env) {
        let options = builder(env.address()).connection_timeout(PATIENCE).session_timeout(PATIENCE);
        let client = options.authorization("nonsense", "my-secret").build().unwrap();
        client.start().unwrap();
        let begun = std::time::Instant::now();
        let mutex = InterProcessMutex::new(client.clone(), env.path("lock")).unwrap();
        let (read, acquired, connected) = in_time(async {
            let read = client.get_data();
            tokio::join!(read.for_path("/"), mutex.acquire(), client.block_until_connected())
        })
        .await;
        let refusals = [read.unwrap_err(), connected.unwrap_err(), match acquired {
            Err(LockError::Framework(error)) => error,
            other => panic!("{other:?}"),
        }];
        for error in refusals {
            assert!(matches!(&error, Error::AuthFailed { .. }), "{error:?}");
            assert!(!error.is_retryable() && !error.outcome_unknown());
            let text = Chain(&error).to_string();
            let reason = format!("{}: the server did not accept the credentials of the scheme nonsense", env.address());
            assert!(text.contains(&reason) && !format!("{text}{error:?}").contains("my-secret"), "{error:?}");
        }
        assert!(begun.elapsed() < PATIENCE / 3, "{:?}", begun.elapsed());
        in_time(client.close()).await;
    }

    /// As above with a session that is killed while no client can connect.
    async fn the_next_session_has_the_credentials_too(env) {
        let nodes = secrets(&env).await;
        let (proxy, direct) = (env.proxy(), env.client().await);
        let client = client_of_all(&proxy).await;
        for round in 0..2 {
            let session = client.session().await.unwrap().number();
            let member = env.path(&format!("member-{round}"));
            let ephemeral = client.create().with_mode(curator_framework::CreateMode::Ephemeral);
            let (_, stat) = ephemeral.for_path_with_stat(&member).await.unwrap();
            let mut state = client.watch_connection_state();
            state.mark_unchanged();
            take_down(&proxy);
            in_time(state.changed()).await.unwrap();
            kill_session(env.address(), stat.ephemeral_owner).await.unwrap();
            assert!(!exists(&direct, &member).await);
            let waiting = reads(&client, &nodes);
            proxy.accept();
            for read in waiting {
                assert_eq!(in_time(read).await.unwrap().unwrap(), b"secret");
            }
            assert!(client.session().await.unwrap().number() > session);
        }
    }
}

/// Servers that refuse the credentials, and record when.
#[derive(Debug, Clone, Default)]
struct Refusing(Arc<Mutex<Vec<tokio::time::Instant>>>);

#[async_trait]
impl ZooKeeperFactory for Refusing {
    async fn connect(&self, _config: &ConnectConfig) -> Result<Connection, ConnectError> {
        self.0.lock().push(tokio::time::Instant::now());
        Err(ConnectError::new("a:1", "refused").refusing_credentials())
    }

    fn needs_io(&self) -> bool {
        false
    }
}

#[tokio::test(start_paused = true)]
async fn attempts_become_slow_when_the_credentials_are_refused() {
    let (ensemble, refusing) = (SimulatedEnsemble::new(7, Duration::from_millis(4)), Refusing::default());
    let options = ensemble.client(ClientId(1)).zookeeper_factory(refusing.clone());
    let client = options.retry_policy(RetryNTimes::new(3, Duration::from_millis(10))).build().unwrap();
    client.start().unwrap();
    tokio::time::sleep(Duration::from_secs(3600)).await;
    let attempts = refusing.0.lock().clone();
    assert!((120..=260).contains(&attempts.len()), "{} attempts in an hour", attempts.len());
    for pair in attempts.windows(2).skip(8) {
        let pause = pair[1] - pair[0];
        assert!((Duration::from_secs(15)..=Duration::from_secs(30)).contains(&pause), "{pause:?}");
    }
    assert!(matches!(client.get_data().for_path("/").await, Err(Error::AuthFailed { .. })));
    client.close().await;
}

/// Returns how long an operation waits that starts before the server refuses the credentials.
fn time_to_the_refusal() -> Duration {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let ensemble = SimulatedEnsemble::new(7, Duration::from_millis(4));
        let options = ensemble.client(ClientId(1)).zookeeper_factory(Refusing::default());
        let options = options.retry_policy(RetryNTimes::new(3, Duration::from_millis(10)));
        let client = options.connection_timeout(PATIENCE).build().unwrap();
        client.start().unwrap();
        let begun = tokio::time::Instant::now();
        client.get_data().for_path("/").await.unwrap_err();
        begun.elapsed()
    })
}

#[test]
fn waiting_operation_fails_at_the_refusal_of_the_credentials() {
    let time = time_to_the_refusal();
    assert!(time < Duration::from_secs(1), "{time:?}");
}

#[cfg(curator_mutants)]
#[test]
fn refusal_that_does_not_wake_the_waiting_operations_is_found() {
    let time = curator_framework::mutants::with("wake-nothing-at-a-refusal", time_to_the_refusal);
    assert!(time >= Duration::from_secs(1), "{time:?}");
}
