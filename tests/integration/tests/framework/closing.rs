//! A client is closed while operations wait, try again or pause: the fifteen `testBackground…WithConcurrentClose` of
//! Curator's `TestFramework` (CURATOR-673, CURATOR-677). Each is answered, once, and says that the client is closed.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use curator_framework::{Acl, CuratorFramework, Error, Permission, RetryAttempt, RetryPolicy};
use curator_integration::env::{Env, builder, connected, eventually, in_time};
use curator_integration::on_every_server;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use crate::ground::world;

/// Tries again regardless of the error, forever.
#[derive(Debug, Clone)]
struct Always {
    pause: Duration,
    asked: Arc<AtomicUsize>,
}

impl Always {
    fn new(pause: Duration) -> Self {
        Self { pause, asked: Arc::default() }
    }
}

impl RetryPolicy for Always {
    fn next_pause(&self, _: RetryAttempt) -> Option<Duration> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        Some(self.pause)
    }

    fn allow_retry(&self, _: &Error) -> bool {
        true
    }
}

type Operation = fn(CuratorFramework, String) -> BoxFuture<'static, Result<(), Error>>;

/// Operations that fail at a path with foreign data and a child that may not be deleted.
const OPERATIONS: [(&str, Operation); 11] = [
    // `testBackgroundCreateWithConcurrentClose`
    ("create", |client, path| async move { client.create().for_path(&path).await.map(drop) }.boxed()),
    // `testBackgroundCreateSetDataIfExistsWithConcurrentClose`
    ("create or set data", |client, path| {
        async move { client.create().or_set_data_with_version(7).for_path(&path).await.map(drop) }.boxed()
    }),
    // `testBackgroundCreateIdempotentWithConcurrentClose`
    ("idempotent create", |client, path| {
        async move { client.create().idempotent().with_data("other").for_path(&path).await.map(drop) }.boxed()
    }),
    // `testBackgroundCreateParentsIfNeedWithConcurrentClose`
    ("create with parents", |client, path| {
        let below = format!("{path}/locked/parent/node");
        async move { client.create().creating_parents_if_needed().for_path(&below).await.map(drop) }.boxed()
    }),
    // `testBackgroundDeleteWithConcurrentClose`
    ("delete", |client, path| async move { client.delete().for_path(&format!("{path}/none")).await }.boxed()),
    // `testBackgroundDeleteNotEmptyAndACLWithConcurrentClose`
    ("delete with children", |client, path| {
        async move { client.delete().deleting_children_if_needed().for_path(&path).await }.boxed()
    }),
    // `testBackgroundGetDataWithConcurrentClose`
    ("get data", |client, path| {
        async move { client.get_data().for_path(&format!("{path}/none")).await.map(drop) }.boxed()
    }),
    // `testBackgroundSetDataWithConcurrentClose`
    ("set data", |client, path| {
        async move { client.set_data().for_path(&format!("{path}/none"), "x").await.map(drop) }.boxed()
    }),
    // `testBackgroundSetDataIdempotentWithConcurrentClose`
    ("idempotent set data", |client, path| {
        async move { client.set_data().idempotent().with_version(7).for_path(&path, "x").await.map(drop) }.boxed()
    }),
    // `testBackgroundChildrenWithConcurrentClose`
    ("children", |client, path| {
        async move { client.get_children().for_path(&format!("{path}/none")).await.map(drop) }.boxed()
    }),
    // `testBackgroundGetACLWithConcurrentClose` and `testBackgroundSetACLWithConcurrentClose`
    ("access control lists", |client, path| {
        async move {
            let missing = format!("{path}/none");
            let (read, set) = (client.get_acl().for_path(&missing), client.set_acl().for_path(&missing));
            match futures_util::join!(read, set) {
                (Err(Error::Closed), Err(Error::Closed)) => Err(Error::Closed),
                other => panic!("{other:?}"),
            }
        }
        .boxed()
    }),
];

/// A node that has a child which may not be deleted, and below which nothing may be created.
async fn obstacle(env: &Env, path: &str) {
    let client = env.client().await;
    let locked = format!("{path}/locked");
    client.create().creating_parents_if_needed().with_data("x").for_path(&format!("{locked}/child")).await.unwrap();
    client.set_acl().with_acl(world(Permission::READ)).for_path(&locked).await.unwrap();
}

/// Closes a client when its policy was asked `tries` times about each operation.
async fn close_while_trying(env: &Env, pause: Duration, tries: usize) {
    for (name, operation) in OPERATIONS {
        let path = env.path(&name.replace(' ', "-"));
        obstacle(env, &path).await;
        let policy = Always::new(pause);
        let client = connected(builder(env.address()).retry_policy(policy.clone())).await;
        let running = tokio::spawn(operation(client.clone(), path));
        eventually(name, async || policy.asked.load(Ordering::SeqCst) >= tries).await;
        assert!(!running.is_finished(), "{name}");
        in_time(client.close()).await;
        let outcome = in_time(running).await.unwrap();
        assert!(matches!(outcome, Err(Error::Closed)), "{name}: {outcome:?}");
    }
}

on_every_server! {
    async fn an_operation_that_tries_again_and_again_ends_with_the_client(env) {
        close_while_trying(&env, Duration::from_millis(1), 5).await;
    }

    async fn an_operation_that_pauses_ends_with_the_client(env) {
        close_while_trying(&env, Duration::from_secs(100_000), 1).await;
    }

    /// And `testBackgroundExistsWithConcurrentClose`: a check of a missing node is answered.
    async fn an_operation_that_waits_for_a_connection_ends_with_the_client(env) {
        let proxy = env.proxy();
        proxy.refuse();
        let client = builder(proxy.address()).retry_policy(Always::new(Duration::from_millis(1))).build().unwrap();
        client.start().unwrap();
        let mut running: Vec<_> = OPERATIONS
            .into_iter()
            .map(|(name, operation)| (name, tokio::spawn(operation(client.clone(), env.path("waiting")))))
            .collect();
        let looker = client.clone();
        let look = async move { looker.check_exists().for_path("/none").await.map(drop) };
        running.push(("exists", tokio::spawn(look)));
        in_time(proxy.wait_for_connections(1)).await;
        assert!(running.iter().all(|(_, running)| !running.is_finished()));
        in_time(client.close()).await;
        for (name, running) in running {
            let outcome = in_time(running).await.unwrap();
            assert!(matches!(outcome, Err(Error::Closed)), "{name}: {outcome:?}");
        }
    }

    /// Sent, and not answered: the server is silent.
    async fn an_operation_that_was_sent_ends_with_the_client(env) {
        let proxy = env.proxy();
        let client = connected(builder(proxy.address()).max_close_wait(Duration::from_millis(100))).await;
        proxy.partition();
        let running: Vec<_> = OPERATIONS
            .into_iter()
            .map(|(name, operation)| (name, tokio::spawn(operation(client.clone(), env.path("sent")))))
            .collect();
        tokio::task::yield_now().await;
        in_time(client.close()).await;
        proxy.repair();
        for (name, running) in running {
            let outcome = in_time(running).await.unwrap();
            assert!(matches!(outcome, Err(Error::Closed)), "{name}: {outcome:?}");
        }
    }

    /// And each operation after the close.
    async fn an_operation_on_a_closed_client_is_refused_at_once(env) {
        let client = env.client().await;
        in_time(client.close()).await;
        for (name, operation) in OPERATIONS {
            let outcome = operation(client.clone(), env.path("after")).now_or_never();
            assert!(matches!(outcome, Some(Err(Error::Closed))), "{name}: {outcome:?}");
        }
        let acl = client.set_acl().with_acl(Acl::open_unsafe()).for_path("/").now_or_never();
        assert!(matches!(acl, Some(Err(Error::Closed))), "{acl:?}");
    }
}
