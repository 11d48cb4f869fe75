//! Curator's `TestInterProcessReadWriteLock`.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use curator_integration::env::{builder, children, connected, eventually, in_time};
use curator_integration::on_every_server;
use curator_recipes::{InterProcessReadWriteLock, LockError, LockOptions, LockOwner, ParticipantKind, Release};

/// The readers and writers that are inside.
#[derive(Debug, Default)]
struct Inside {
    readers: AtomicUsize,
    writers: AtomicUsize,
    most_readers: AtomicUsize,
}

on_every_server! {
    /// Curator's `TestInterProcessReadWriteLock.testGetParticipantNodes`.
    async fn each_half_lists_its_own(env) {
        let client = env.client().await;
        let lock = InterProcessReadWriteLock::new(client.clone(), env.path("lock")).unwrap();
        let mut tasks = tokio::task::JoinSet::new();
        for _ in 0..20 {
            let read = lock.read_lock();
            tasks.spawn(async move { read.acquire().await.map(Into::into) });
        }
        let mut held: Vec<curator_recipes::LockGuard> = Vec::new();
        for _ in 0..20 {
            held.push(in_time(tasks.join_next()).await.unwrap().unwrap().unwrap());
        }
        for _ in 0..8 {
            let write = lock.write_lock();
            tasks.spawn(async move { write.acquire().await.map(Into::into) });
        }
        env.wait_for_children(&client, lock.path(), 28).await;
        let (readers, writers) = (lock.read_lock(), lock.write_lock());
        assert_eq!(readers.participant_nodes().await.unwrap().len(), 20);
        assert_eq!(writers.participant_nodes().await.unwrap().len(), 8);
        assert!(writers.participant_nodes().await.unwrap().iter().all(|node| node.contains("__WRIT__")));
        let all = lock.participants().await.unwrap();
        assert_eq!(all.iter().filter(|one| one.holds && one.kind == ParticipantKind::Read).count(), 20);
        assert_eq!(all.iter().filter(|one| !one.holds && one.kind == ParticipantKind::Write).count(), 8);
        tasks.shutdown().await;
    }

    /// Curator's `TestInterProcessReadWriteLock.testThatUpgradingIsDisallowed`, where it waits forever.
    async fn an_upgrade_is_an_error(env) {
        let client = env.client().await;
        let lock = InterProcessReadWriteLock::new(client.clone(), env.path("lock")).unwrap();
        LockOwner::scope(async {
            let reading = lock.read_lock().acquire().await.unwrap();
            for outcome in [
                in_time(lock.write_lock().acquire()).await.map(Some),
                in_time(lock.write_lock().acquire_timeout(Duration::from_secs(60))).await,
                in_time(lock.write_lock().try_acquire()).await,
            ] {
                let Err(LockError::Upgrade { path }) = outcome else { panic!("{outcome:?}") };
                assert_eq!(path, lock.path());
            }
            assert_eq!(children(&client, lock.path()).await, [reading.node_name()], "nothing was sent");
            assert!(reading.release().await.unwrap().is_released());
            assert!(in_time(lock.write_lock().acquire()).await.unwrap().release().await.unwrap().is_released());
        })
        .await;
        // Without an owner, the write waits for the read.
        let reading = lock.read_lock().acquire().await.unwrap();
        assert!(lock.write_lock().try_acquire().await.unwrap().is_none());
        assert!(reading.release().await.unwrap().is_released());
    }

    /// Curator's `TestInterProcessReadWriteLock.testThatDowngradingRespectsThreads`.
    async fn another_owner_does_not_read_beside_a_writer(env) {
        let lock = InterProcessReadWriteLock::new(env.client().await, env.path("lock")).unwrap();
        let (ann, bob) = (LockOwner::new(), LockOwner::new());
        let writing = lock.write_lock().acquire_as(&ann).await.unwrap();
        assert!(lock.read_lock().acquire_as_timeout(&bob, Duration::from_millis(200)).await.unwrap().is_none());
        assert!(lock.read_lock().try_acquire().await.unwrap().is_none());
        let reading = in_time(lock.read_lock().acquire_as(&ann)).await.unwrap();
        assert!(writing.release().await.unwrap().is_released());
        let beside = in_time(lock.read_lock().acquire_as(&bob)).await.unwrap();
        assert!(reading.release().await.unwrap().is_released());
        assert!(beside.release().await.unwrap().is_released());
    }

    /// Curator's `TestInterProcessReadWriteLock.testBasic`.
    async fn writers_are_alone_and_readers_are_not(env) {
        const CLIENTS: usize = 8;
        let path = env.path("lock");
        let inside = Arc::new(Inside::default());
        let together = Arc::new(tokio::sync::Barrier::new(CLIENTS));
        let mut users = tokio::task::JoinSet::new();
        for number in 0..CLIENTS {
            let lock = InterProcessReadWriteLock::new(env.client().await, &path).unwrap();
            let (inside, together) = (Arc::clone(&inside), Arc::clone(&together));
            users.spawn(async move {
                for round in 0..12 {
                    if (number + round) % 8 == 0 && round > 0 {
                        let guard = lock.write_lock().acquire().await.unwrap();
                        assert_eq!(inside.writers.fetch_add(1, Ordering::SeqCst), 0, "two writers");
                        assert_eq!(inside.readers.load(Ordering::SeqCst), 0, "a reader beside a writer");
                        tokio::task::yield_now().await;
                        inside.writers.fetch_sub(1, Ordering::SeqCst);
                        assert_eq!(guard.release().await.unwrap(), Release::Released);
                    } else {
                        let guard = lock.read_lock().acquire().await.unwrap();
                        let readers = inside.readers.fetch_add(1, Ordering::SeqCst) + 1;
                        inside.most_readers.fetch_max(readers, Ordering::SeqCst);
                        assert_eq!(inside.writers.load(Ordering::SeqCst), 0, "a writer beside a reader");
                        if round == 0 {
                            // All of them read at once.
                            together.wait().await;
                        }
                        tokio::task::yield_now().await;
                        inside.readers.fetch_sub(1, Ordering::SeqCst);
                        assert_eq!(guard.release().await.unwrap(), Release::Released);
                    }
                }
            });
        }
        while let Some(done) = in_time(users.join_next()).await {
            done.unwrap();
        }
        assert_eq!(inside.most_readers.load(Ordering::SeqCst), CLIENTS);
        assert_eq!(children(&env.client().await, &path).await, [""; 0]);
    }

    /// Curator's `TestInterProcessReadWriteLock.testSetNodeData`; that the caller's array may change later needs no
    /// test here.
    async fn the_nodes_of_both_halves_carry_the_data(env) {
        let client = env.client().await;
        let options = LockOptions::new().data("host-7");
        let lock = InterProcessReadWriteLock::with_options(client.clone(), env.path("lock"), options).unwrap();
        let writing = lock.write_lock().acquire().await.unwrap();
        assert_eq!(client.get_data().for_path(writing.node_path()).await.unwrap().0, b"host-7");
        let reading = in_time(writing.downgrade()).await.unwrap();
        assert_eq!(client.get_data().for_path(reading.node_path()).await.unwrap().0, b"host-7");
        assert!(reading.release().await.unwrap().is_released());
        let reading = in_time(lock.read_lock().acquire()).await.unwrap();
        assert_eq!(client.get_data().for_path(reading.node_path()).await.unwrap().0, b"host-7");
        assert!(reading.release().await.unwrap().is_released());
    }

    /// Curator's `TestInterProcessReadWriteLock.testLockPath`.
    async fn the_path_of_a_lock_that_is_lost_stays_its_old_one(env) {
        let path = env.path("lock");
        let (first, second) = (env.client().await, env.client().await);
        let writing = InterProcessReadWriteLock::new(first, &path).unwrap().write_lock().acquire().await.unwrap();
        let read = InterProcessReadWriteLock::new(second.clone(), &path).unwrap().read_lock();
        let waiter = tokio::spawn(async move { read.acquire().await.unwrap() });
        env.wait_for_children(&second, &path, 2).await;
        env.kill_owner_of(&second, writing.node_path()).await;
        let reading = in_time(waiter).await.unwrap();
        in_time(writing.lost()).await;
        assert!(writing.node_path().contains("__WRIT__") && reading.node_path().contains("__READ__"));
        assert!(second.check_exists().for_path(writing.node_path()).await.unwrap().is_none());
        assert!(second.check_exists().for_path(reading.node_path()).await.unwrap().is_some());
        assert!(matches!(writing.release().await.unwrap(), Release::AlreadyLost(_)));
        assert_eq!(reading.release().await.unwrap(), Release::Released);
    }

    /// A reader between two writers waits for the first of them and lets the second one wait.
    async fn a_reader_between_two_writers_has_its_turn(env) {
        let client = env.client().await;
        let lock = InterProcessReadWriteLock::new(client.clone(), env.path("lock")).unwrap();
        let first = lock.write_lock().acquire().await.unwrap();
        let reader = { let read = lock.read_lock(); tokio::spawn(async move { read.acquire().await.unwrap() }) };
        env.wait_for_children(&client, lock.path(), 2).await;
        let second = { let write = lock.write_lock(); tokio::spawn(async move { write.acquire().await.unwrap() }) };
        env.wait_for_children(&client, lock.path(), 3).await;
        let late = { let read = lock.read_lock(); tokio::spawn(async move { read.acquire().await.unwrap() }) };
        env.wait_for_children(&client, lock.path(), 4).await;
        assert!(!reader.is_finished() && !second.is_finished() && !late.is_finished());
        assert!(first.release().await.unwrap().is_released());
        let reading = in_time(reader).await.unwrap();
        // A later look: a contender that was wrongly granted has reported it by then.
        assert_eq!(lock.participants().await.unwrap().iter().filter(|one| one.holds).count(), 1);
        assert!(!second.is_finished() && !late.is_finished());
        assert!(reading.release().await.unwrap().is_released());
        let writing = in_time(second).await.unwrap();
        assert!(!late.is_finished() && writing.is_held());
        assert!(writing.release().await.unwrap().is_released());
        assert!(in_time(late).await.unwrap().release().await.unwrap().is_released());
    }

    /// A base path with the name of a half in it does no harm (it confuses Curator's `getParticipantNodes`).
    async fn the_folders_name_does_not_matter(env) {
        let client = connected(builder(env.address())).await;
        let lock = InterProcessReadWriteLock::new(client.clone(), env.path("__READ__0/__WRIT__1")).unwrap();
        let reading = lock.read_lock().acquire().await.unwrap();
        assert_eq!(lock.read_lock().participant_nodes().await.unwrap(), [reading.node_path()]);
        assert_eq!(lock.write_lock().participant_nodes().await.unwrap(), [""; 0]);
        assert!(reading.release().await.unwrap().is_released());
        eventually("it is free", async || children(&client, lock.path()).await.is_empty()).await;
    }
}
