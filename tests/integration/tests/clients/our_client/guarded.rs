//! Writes that are made only while the lock is held.

use std::sync::Arc;
use std::time::Duration;

use curator_framework::{Acl, CreateMode, CuratorOp, Error, Permission};
use curator_integration::env::{connected as connect, eventually, in_time};
use curator_integration::on_every_server;
use curator_recipes::{
    InterProcessLock, InterProcessMultiLock, InterProcessMutex, InterProcessReadWriteLock, InterProcessSemaphoreMutex,
    LockError, LossReason, Release,
};

use super::{connected, second};

on_every_server! {
    async fn every_exclusive_guard_can_write(env) {
        let client = connected(env.address()).await;
        let node = env.path("node");
        client.create().creating_parents_if_needed().with_data("0").for_path(&node).await.unwrap();
        let data = async || String::from_utf8(client.get_data().for_path(&node).await.unwrap().0).unwrap();
        let mutex = InterProcessMutex::new(client.clone(), env.path("mutex")).unwrap().acquire().await.unwrap();
        mutex.transaction().set_data(&node, "1").commit().await.unwrap();
        assert_eq!(data().await, "1");
        let inner = mutex.reenter().unwrap();
        inner.transaction().set_data(&node, "2").commit().await.unwrap();
        assert_eq!(data().await, "2");
        let lock = InterProcessReadWriteLock::new(client.clone(), env.path("write")).unwrap();
        let write = lock.write_lock().acquire().await.unwrap();
        write.transaction().operation(CuratorOp::set_data(&node, "3").with_version(2)).commit().await.unwrap();
        assert_eq!(data().await, "3");
        let mutex = InterProcessSemaphoreMutex::new(client.clone(), env.path("semaphore")).unwrap();
        let guard = mutex.acquire().await.unwrap();
        let results = guard.transaction().delete(&node).create(&node, "4").commit().await.unwrap();
        assert_eq!(results.len(), 2, "the check of the lock is not told");
        assert_eq!(data().await, "4");
    }

    /// The node of another session, and a missing one, become ephemeral nodes of this one. Other operations stay in place.
    async fn a_create_replaces_what_exists(env) {
        let (client, other) = (connected(env.address()).await, env.client().await);
        let [old, new, parent] = ["old", "new", "parent"].map(|name| env.path(name));
        other.create().creating_parents_if_needed().with_data("theirs").for_path(&old).await.unwrap();
        other.create().creating_parents_if_needed().for_path(&format!("{parent}/child")).await.unwrap();
        let guard = InterProcessMutex::new(client.clone(), env.path("lock")).unwrap().acquire().await.unwrap();
        let put = |path: &str| CuratorOp::create(path).with_mode(CreateMode::Ephemeral).with_data("ours").or_replace();
        for _ in 0..2 {
            let changes = guard.transaction().check("/").operations([put(&old), put(&new)]).set_data(&old, "twice");
            let results = in_time(changes.commit()).await.unwrap();
            let paths: Vec<_> = results.iter().map(|result| &*result.for_path).collect();
            assert_eq!(paths, ["/", &*old, &*new, &*old]);
            for (path, data) in [(&old, "twice"), (&new, "ours")] {
                let (found, stat) = other.get_data().for_path(path).await.unwrap();
                let owner = client.session().await.unwrap().id().unwrap();
                assert_eq!((&*found, stat.ephemeral_owner), (data.as_bytes(), owner.get()));
            }
        }
        // A node with children is not replaced, and the error has the caller's index.
        let error = guard.transaction().operations([put(&old), put(&parent)]).commit().await.unwrap_err();
        let LockError::Framework(Error::Transaction { index: 1, cause, .. }) = error else { panic!("{error}") };
        assert!(matches!(*cause, Error::NotEmpty { .. }), "{cause}");
        // Nor is one without the word.
        let create = CuratorOp::create(&new).with_mode(CreateMode::Ephemeral);
        let error = guard.transaction().operations([put(&old), create]).commit().await.unwrap_err();
        let LockError::Framework(Error::Transaction { index: 1, cause, .. }) = error else { panic!("{error}") };
        assert!(matches!(*cause, Error::NodeExists { .. }), "{cause}");
    }

    /// Of several locks each is checked.
    async fn a_multi_lock_writes_only_while_all_of_it_is_held(env) {
        let proxy = env.proxy();
        let client = connect(second(proxy.address())).await;
        let direct = env.client().await;
        let node = env.path("node");
        direct.create().creating_parents_if_needed().with_data("old").for_path(&node).await.unwrap();
        let data = async || String::from_utf8(direct.get_data().for_path(&node).await.unwrap().0).unwrap();
        let paths = ["one", "two", "three"].map(|name| env.path(name));
        for lost in 0..3 {
            let lock = InterProcessMultiLock::new(client.clone(), &paths).unwrap();
            let guard = in_time(lock.acquire()).await.unwrap();
            let written = format!("while all are held: {lost}");
            let results = guard.transaction().set_data(&node, written.clone()).commit().await.unwrap();
            assert_eq!((results.len(), data().await), (1, written.clone()));
            let missing = env.path("missing");
            let error = guard.transaction().check("/").delete(&missing).commit().await.unwrap_err();
            let LockError::Framework(Error::Transaction { index: 1, operation, .. }) = error else { panic!("{error}") };
            assert_eq!(operation, format!("delete {missing}"));
            // Each message of the server comes late.
            proxy.latency(Duration::from_millis(500));
            direct.delete().for_path(guard.iter().nth(lost).unwrap().node_path()).await.unwrap();
            assert!(guard.is_held(), "it has not heard of it");
            let error = in_time(guard.transaction().set_data(&node, "new").commit()).await.unwrap_err();
            proxy.latency(Duration::ZERO);
            let LockError::LockLost { path, reason: LossReason::NodeDeleted } = error else { panic!("{error}") };
            assert_eq!((path.to_string(), data().await), (paths[lost].clone(), written));
            assert!(matches!(guard.release().await.unwrap(), Release::AlreadyLost(LossReason::NodeDeleted)));
            let error = guard.transaction().check("/").commit().await.unwrap_err();
            assert!(matches!(error, LockError::InvalidArgument { argument: "guard", .. }), "{error}");
        }
    }

    /// Their checks would ask another session's server, or about other nodes.
    async fn a_multi_lock_of_several_clients_cannot_write(env) {
        let (client, other) = (connected(env.address()).await, connected(env.address()).await);
        let apart = client.using_namespace(&env.path("apart")[1..]).unwrap();
        for second in [other, apart] {
            let locks = [(client.clone(), "one"), (second, "two")].map(|(client, name)| {
                Arc::new(InterProcessMutex::new(client, env.path(name)).unwrap()) as Arc<dyn InterProcessLock>
            });
            let guard = in_time(InterProcessMultiLock::from_locks(locks).unwrap().acquire()).await.unwrap();
            let error = guard.transaction().check("/").commit().await.unwrap_err();
            assert!(matches!(error, LockError::InvalidArgument { argument: "guard", .. }), "{error}");
            assert!(guard.is_held());
            assert!(guard.release().await.unwrap().is_released());
        }
        // Kinds may be mixed, read locks too.
        let lock = InterProcessReadWriteLock::new(client.clone(), env.path("two")).unwrap();
        let one = InterProcessSemaphoreMutex::new(client.clone(), env.path("one")).unwrap();
        let locks: [Arc<dyn InterProcessLock>; 2] = [Arc::new(one), Arc::new(lock.read_lock())];
        let guard = in_time(InterProcessMultiLock::from_locks(locks).unwrap().acquire()).await.unwrap();
        guard.transaction().check("/").commit().await.unwrap();
    }

    async fn what_else_cannot_be_done_is_told_as_such(env) {
        let client = connected(env.address()).await;
        let guard = InterProcessMutex::new(client.clone(), env.path("lock")).unwrap().acquire().await.unwrap();
        let missing = env.path("missing");
        let error = guard.transaction().check("/").set_data(&missing, "").commit().await.unwrap_err();
        let LockError::Framework(Error::Transaction { index: 1, operation, cause }) = error else { panic!("{error}") };
        assert_eq!(operation, format!("setData {missing}"));
        assert!(matches!(*cause, Error::NoNode { .. }), "{cause}");
        assert!(guard.is_held());
        assert!(guard.release().await.unwrap().is_released());
        let error = guard.transaction().create(&missing, "").commit().await.unwrap_err();
        assert!(matches!(error, LockError::InvalidArgument { argument: "guard", .. }), "{error}");
    }

    async fn a_lock_node_that_may_not_be_checked_is_told_as_none_of_the_operations(env) {
        let client = connected(env.address()).await;
        let guard = InterProcessMutex::new(client.clone(), env.path("lock")).unwrap().acquire().await.unwrap();
        let unreadable = vec![Acl::new(Permission::ADMIN, "world", "anyone")];
        client.set_acl().with_acl(unreadable).for_path(guard.node_path()).await.unwrap();
        let error = guard.transaction().create(env.path("new"), "").commit().await.unwrap_err();
        let LockError::Framework(Error::NoAuth { path }) = error else { panic!("{error}") };
        assert_eq!(path, guard.node_path());
        assert!(guard.release().await.unwrap().is_released());
    }

    /// What the holder does not know of yet, the server does.
    async fn a_holder_that_does_not_know_of_its_loss_changes_nothing(env) {
        let proxy = env.proxy();
        let client = connect(second(proxy.address())).await;
        let direct = env.client().await;
        let node = env.path("node");
        direct.create().creating_parents_if_needed().with_data("old").for_path(&node).await.unwrap();
        for deleted in [true, false] {
            let guard = InterProcessMutex::new(client.clone(), env.path("lock")).unwrap().acquire().await.unwrap();
            // Each message of the server comes late.
            proxy.latency(Duration::from_millis(500));
            if deleted {
                direct.delete().for_path(guard.node_path()).await.unwrap();
            } else {
                env.kill_owner_of(&direct, guard.node_path()).await;
            }
            assert!(guard.is_held(), "it has not heard of it");
            let error = in_time(guard.transaction().set_data(&node, "new").commit()).await.unwrap_err();
            match error {
                LockError::LockLost { reason, .. } => assert_eq!(deleted, reason == LossReason::NodeDeleted, "{reason}"),
                // The server has cut the connection of the session that has ended.
                LockError::Framework(error) => assert!(!deleted && error.outcome_unknown(), "{error}"),
                other => panic!("{other}"),
            }
            proxy.latency(Duration::ZERO);
            assert_eq!(direct.get_data().for_path(&node).await.unwrap().0, b"old");
            in_time(client.block_until_connected()).await.unwrap();
        }
    }

    /// The set of which Jepsen's tests lose elements, in ZooKeeper itself. A holder reads it, stops for longer than its
    /// session lives, and writes it back with one element more, after the next one has done the same.
    async fn a_holder_that_was_stopped_overwrites_the_next_ones_element_unless_its_write_is_guarded(env) {
        let direct = env.client().await;
        for guarded in [false, true] {
            let (node, lock) = (env.path(&format!("set-{guarded}")), env.path(&format!("lock-{guarded}")));
            direct.create().creating_parents_if_needed().with_data("first").for_path(&node).await.unwrap();
            let (address, path, set) = (env.address(), lock.clone(), node.clone());
            let stopped = std::thread::spawn(move || {
                // Nothing of this runtime runs while its only thread is blocked.
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                runtime.block_on(async {
                    let client = connect(second(address).session_timeout(Duration::from_secs(2))).await;
                    let guard = InterProcessMutex::new(client.clone(), &path).unwrap().acquire().await.unwrap();
                    let read = String::from_utf8(client.get_data().for_path(&set).await.unwrap().0).unwrap();
                    let mark = format!("{path}-stopped");
                    client.create().for_path(&mark).await.unwrap();
                    let mut wait = Duration::from_secs(4);
                    while !client_sees_end(&set, address, wait) {
                        wait = Duration::from_millis(100);
                    }
                    let data = format!("{read} stopped");
                    let written = if guarded {
                        guard.transaction().set_data(&set, data).commit().await.map(drop)
                    } else {
                        client.set_data().for_path(&set, data).await.map(drop).map_err(LockError::from)
                    };
                    client.close().await;
                    written
                })
            });
            let mark = format!("{lock}-stopped");
            eventually("it stands still", async || direct.check_exists().for_path(&mark).await.unwrap().is_some()).await;
            let guard = in_time(InterProcessMutex::new(direct.clone(), &lock).unwrap().acquire()).await.unwrap();
            let read = String::from_utf8(direct.get_data().for_path(&node).await.unwrap().0).unwrap();
            direct.set_data().for_path(&node, format!("{read} next")).await.unwrap();
            assert!(guard.release().await.unwrap().is_released());
            let written = in_time(async { tokio::task::spawn_blocking(|| stopped.join().unwrap()).await.unwrap() }).await;
            let set = String::from_utf8(direct.get_data().for_path(&node).await.unwrap().0).unwrap();
            if guarded {
                assert!(matches!(written, Err(LockError::LockLost { .. })), "{written:?}");
                assert_eq!(set, "first next");
            } else {
                written.unwrap();
                assert_eq!(set, "first stopped", "the next one's element is lost");
            }
        }
    }
}

/// Blocks its thread for a while, and says whether the next holder has written in the meantime; by a runtime of its
/// own, so that the caller's stays blocked.
fn client_sees_end(set: &str, address: std::net::SocketAddr, wait: Duration) -> bool {
    std::thread::sleep(wait);
    let set = set.to_owned();
    let looking = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let client = connected(address).await;
            let (data, _) = client.get_data().for_path(&set).await.unwrap();
            client.close().await;
            data.ends_with(b"next")
        })
    });
    looking.join().unwrap()
}
