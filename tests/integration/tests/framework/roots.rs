//! Locks, and everything else, below a chroot and in a namespace.

use std::time::Duration;

use curator_framework::recipe::RecipeClient as _;
use curator_framework::{CreateMode, CuratorFramework, Error, LossReason};
use curator_integration::env::{Env, builder, children, connected, eventually, in_time};
use curator_integration::on_every_server;
use curator_recipes::{InterProcessMutex, InterProcessSemaphoreV2, Release};
use curator_test::FaultProxy;
use curator_test::wire::OpCode;

use crate::ground::exists;

/// A client with paths below `path`: by its connect string, by its options, later on, or by two of these.
async fn below(env: &Env, way: usize, above: &str, name: &str) -> CuratorFramework {
    let chroot = |chroot: &str| {
        CuratorFramework::builder(format!("{}{chroot}", env.address()))
            .session_timeout(Duration::from_secs(10))
            .retry_policy(curator_framework::RetryNTimes::new(10, Duration::from_millis(50)))
    };
    let whole = format!("{above}/{name}");
    match way {
        0 => connected(chroot(&whole)).await,
        1 => connected(builder(env.address()).namespace(&whole[1..])).await,
        2 => env.client().await.using_namespace(&whole[1..]).unwrap(),
        3 => connected(chroot(above).namespace(name)).await,
        _ => connected(chroot(above)).await.using_namespace(name).unwrap(),
    }
}

const WAYS: usize = 5;

on_every_server! {
    async fn missing_chroot_is_named(env) {
        let options = CuratorFramework::builder(format!("{}/not/there", env.address()));
        let client = connected(options.retry_policy(curator_framework::RetryNTimes::new(0, Duration::ZERO))).await;
        let plain = client.create().for_path("/x").await;
        let protected = client.create().with_protection().for_path("/x").await;
        let with_parents = client.create().creating_parents_if_needed().for_path("/x/y").await;
        for created in [plain, protected, with_parents] {
            assert!(matches!(&created, Err(Error::NoNode { path }) if path == "/not/there"), "{created:?}");
        }
        let below = client.create().for_path("/x/y").await;
        assert!(matches!(&below, Err(Error::NoNode { path }) if path == "/x/y"), "{below:?}");
    }

    async fn a_lock_is_where_it_should_be_and_its_paths_are_the_users(env) {
        let outside = env.client().await;
        let above = env.path("above");
        for way in 0..WAYS {
            let name = format!("root-{way}");
            outside.create().creating_parents_if_needed().for_path(&format!("{above}/{name}")).await.unwrap();
            let client = below(&env, way, &above, &name).await;
            let mutex = InterProcessMutex::new(client.clone(), "/locks/printer").unwrap();
            let guard = in_time(mutex.acquire()).await.unwrap();
            assert_eq!(guard.node_path(), format!("/locks/printer/{}", guard.node_name()));
            assert_eq!(mutex.participant_nodes().await.unwrap(), [guard.node_path()]);
            assert!(exists(&client, guard.node_path()).await);
            let full = format!("{above}/{name}/locks/printer");
            assert_eq!(children(&outside, &full).await, [guard.node_name()]);

            // The same lock under its whole path.
            let same = InterProcessMutex::new(outside.clone(), &full).unwrap();
            assert!(same.try_acquire().await.unwrap().is_none());
            let waiter = tokio::spawn(async move { same.acquire().await.unwrap() });
            env.wait_for_children(&outside, &full, 2).await;
            assert_eq!(mutex.participant_nodes().await.unwrap()[0], guard.node_path());
            assert_eq!(guard.release().await.unwrap(), Release::Released);
            let other = in_time(waiter).await.unwrap();
            assert!(other.node_path().starts_with(&full) && other.token() > guard.token());
            // And the other way round.
            let waiter = tokio::spawn({ let mutex = mutex.clone(); async move { mutex.acquire().await.unwrap() } });
            env.wait_for_children(&outside, &full, 2).await;
            assert!(other.release().await.unwrap().is_released());
            let back = in_time(waiter).await.unwrap();

            // Another client deletes its node, under its other name.
            outside.delete().for_path(&format!("{above}/{name}{}", back.node_path())).await.unwrap();
            assert_eq!(in_time(back.lost()).await, LossReason::NodeDeleted);
            assert_eq!(back.release().await.unwrap(), Release::AlreadyLost(LossReason::NodeDeleted));
            assert_eq!(children(&outside, &full).await, [""; 0]);
            assert_eq!(client.watchers(), 0, "{:?}", client.watched_paths());
        }
    }

    async fn an_acquire_that_is_dropped_leaves_nothing_below_a_root(env) {
        let outside = env.client().await;
        let above = env.path("above");
        for way in 0..WAYS {
            let name = format!("root-{way}");
            outside.create().creating_parents_if_needed().for_path(&format!("{above}/{name}")).await.unwrap();
            let client = below(&env, way, &above, &name).await;
            let mutex = InterProcessMutex::new(client.clone(), "/locks/printer").unwrap();
            for left in [0, 1] {
                let holder = if left == 1 { Some(mutex.acquire().await.unwrap()) } else { None };
                for step in 0..12 {
                    let patience = Duration::from_micros(step * 300);
                    drop(tokio::time::timeout(patience, mutex.acquire()).await);
                }
                env.wait_for_children(&outside, &format!("{above}/{name}/locks/printer"), left).await;
                drop(holder);
            }
            let semaphore = InterProcessSemaphoreV2::new(client.clone(), "/leases", 2).unwrap();
            let leases = [semaphore.acquire().await.unwrap(), semaphore.acquire().await.unwrap()];
            let leased = format!("{above}/{name}/leases/leases");
            assert_eq!(children(&outside, &leased).await.len(), 2);
            drop(tokio::time::timeout(Duration::from_millis(20), semaphore.acquire()).await);
            drop(leases);
            env.wait_for_children(&outside, &leased, 0).await;
            env.wait_for_children(&outside, &format!("{above}/{name}/leases/locks"), 0).await;
        }
    }

    /// The reply to a create is lost: the node is found by its name, below the root.
    async fn a_lost_reply_is_survived_below_a_root(env) {
        let outside = env.client().await;
        let namespace = env.path("ns");
        for fault in [FaultProxy::drop_reply, FaultProxy::drop_request] {
            for op in [OpCode::Create2, OpCode::GetChildren, OpCode::Delete] {
                let proxy = env.proxy();
                let options = builder(proxy.address()).session_timeout(Duration::from_secs(60));
                let client = connected(options.namespace(&namespace[1..])).await;
                client.create_containers("/lock").await.unwrap();
                let mutex = InterProcessMutex::new(client.clone(), "/lock").unwrap();
                fault(&proxy, op, 1);
                let guard = in_time(mutex.acquire()).await.unwrap();
                assert_eq!(children(&outside, &format!("{namespace}/lock")).await, [guard.node_name()], "{op:?}");
                assert!(guard.is_held());
                assert_eq!(in_time(guard.release()).await.unwrap(), Release::Released, "{op:?}");
                eventually("it is gone", async || children(&outside, &format!("{namespace}/lock")).await.is_empty()).await;
                in_time(client.close()).await;
            }
        }
    }

    async fn a_chroot_has_to_be_there(env) {
        let missing = env.path("chroot");
        let options = CuratorFramework::builder(format!("{}{missing}", env.address()));
        let client = connected(options.retry_policy(curator_framework::RetryNTimes::new(0, Duration::ZERO))).await;
        let created = client.create().creating_parents_if_needed().for_path("/a/b").await;
        assert!(matches!(created, Err(Error::NoNode { .. })), "{created:?}");
        let contained = client.create_containers("/a/b").await;
        assert!(matches!(contained, Err(Error::NoNode { .. })), "{contained:?}");
        let inside = client.using_namespace("ns").unwrap();
        let created = inside.create().creating_parents_if_needed().for_path("/a").await;
        assert!(matches!(created, Err(Error::NoNode { .. })), "{created:?}");
        assert!(!exists(&client, "/").await);
        let mutex = InterProcessMutex::new(client.clone(), "/lock").unwrap();
        let acquired = in_time(mutex.acquire()).await.map(drop);
        assert!(acquired.is_err(), "nobody makes it");
        let outside = env.client().await;
        assert!(!exists(&outside, &missing).await);

        outside.create().creating_parents_if_needed().for_path(&missing).await.unwrap();
        assert_eq!(client.create().creating_parents_if_needed().for_path("/a/b").await.unwrap(), "/a/b");
        assert!(in_time(mutex.acquire()).await.unwrap().release().await.unwrap().is_released());
        assert!(exists(&outside, &format!("{missing}/a/b")).await && !exists(&outside, "/a/b").await);
        assert_eq!(client.using_namespace("").unwrap().get_children().for_path("/a").await.unwrap(), ["b"]);
    }

    /// A chroot and a namespace hide everything that is outside of them.
    async fn the_same_path_below_two_roots_is_two_locks(env) {
        let client = env.client().await;
        let names = ["one", "two"].map(|name| env.path(name));
        let locks = names.each_ref().map(|name| {
            InterProcessMutex::new(client.using_namespace(&name[1..]).unwrap(), "/lock").unwrap()
        });
        let guards = [locks[0].try_acquire().await.unwrap().unwrap(), locks[1].try_acquire().await.unwrap().unwrap()];
        assert!(locks[0].try_acquire().await.unwrap().is_none());
        for (guard, name) in guards.iter().zip(&names) {
            assert_eq!(children(&client, &format!("{name}/lock")).await, [guard.node_name()]);
        }
    }

    /// An ephemeral node at the root itself, and the session's own tricks beside it, stay below a root.
    async fn a_session_that_reconnects_leaves_nothing_below_a_root(env) {
        let (outside, proxy) = (env.client().await, env.proxy());
        let namespace = env.path("ns");
        let options = builder(proxy.address()).session_timeout(Duration::from_secs(60)).namespace(&namespace[1..]);
        let client = connected(options).await;
        client.create().with_mode(CreateMode::Ephemeral).for_path("/member").await.unwrap();
        for _ in 0..3 {
            let connections = proxy.total_connections();
            proxy.reset();
            in_time(proxy.wait_for_connections(connections + 1)).await;
            assert!(exists(&client, "/member").await);
        }
        eventually("only the member is there", async || children(&outside, &namespace).await == ["member"]).await;
    }
}
