//! From writing to reading, without another writer in between.

use std::sync::Arc;
use std::time::Duration;

use curator_framework::CuratorFramework;
use curator_framework::recipe::RecipeClient as _;
use curator_integration::env::{builder, children, connected, eventually, in_time};
use curator_integration::in_process::simulated;
use curator_integration::kinds::{Polled, poll_and_drop};
use curator_integration::on_every_server;
use curator_recipes::{
    InterProcessReadWriteLock, LockError, LockOwner, LossReason, ParticipantKind, ReadGuard, Release, WriteGuard,
};
use curator_test::wire::OpCode;
use curator_test::{FaultProxy, SimulatedEnsemble, TestingServer};
use tokio::task::JoinHandle;

/// Long enough for a contender that is wrongly granted to come in.
const A_WHILE: Duration = Duration::from_millis(150);

fn writer(client: &CuratorFramework, path: &str) -> JoinHandle<WriteGuard> {
    let write = InterProcessReadWriteLock::new(client.clone(), path).unwrap().write_lock();
    tokio::spawn(async move { write.acquire().await.unwrap() })
}

fn reader(client: &CuratorFramework, path: &str) -> JoinHandle<ReadGuard> {
    let read = InterProcessReadWriteLock::new(client.clone(), path).unwrap().read_lock();
    tokio::spawn(async move { read.acquire().await.unwrap() })
}

on_every_server! {
    /// Curator's `TestInterProcessReadWriteLock.testDowngrading`.
    async fn a_writer_becomes_a_reader(env) {
        let client = env.client().await;
        let lock = InterProcessReadWriteLock::new(client.clone(), env.path("lock")).unwrap();
        let writing = lock.write_lock().acquire().await.unwrap();
        let reading = in_time(writing.downgrade()).await.unwrap();
        assert!(reading.is_held() && !writing.is_held() && !lock.write_lock().is_acquired_in_this_process());
        assert_eq!(reading.token(), writing.token(), "the token is the write lock's");
        let number = |path: &str| path.rsplit_once("__").unwrap().1.to_owned();
        assert_eq!(number(reading.node_path()), number(writing.node_path()));
        eventually("the write node is gone", async || children(&client, lock.path()).await == [reading.node_name()]).await;
        assert_eq!(writing.release().await.unwrap(), Release::Released);
        reading.verify().await.unwrap();
        assert_eq!(reading.release().await.unwrap(), Release::Released);
        assert_eq!(children(&client, lock.path()).await, [""; 0]);
        let again = writing.downgrade().await;
        assert!(matches!(again, Err(LockError::InvalidArgument { argument: "guard", .. })), "{again:?}");
    }

    /// Curator's `TestInterProcessReadWriteLock.testContendingDowngrading` (CURATOR-621), which waits for 20 ms only.
    async fn a_queued_writer_does_not_get_in_but_readers_do(env) {
        let path = env.path("lock");
        let (ours, theirs) = (env.client().await, env.client().await);
        let lock = InterProcessReadWriteLock::new(ours.clone(), &path).unwrap();
        let writing = lock.write_lock().acquire().await.unwrap();
        let early = reader(&theirs, &path);
        env.wait_for_children(&ours, &path, 2).await;
        let queued = writer(&theirs, &path);
        env.wait_for_children(&ours, &path, 3).await;
        let reading = in_time(writing.downgrade()).await.unwrap();
        // A reader queued before the writer is granted, and the writer is not.
        let early = in_time(early).await.unwrap();
        eventually("the write node is gone", async || children(&ours, &path).await.len() == 3).await;
        tokio::time::sleep(A_WHILE).await;
        assert!(!queued.is_finished() && reading.is_held());
        assert!(early.release().await.unwrap().is_released());
        tokio::time::sleep(A_WHILE).await;
        assert!(!queued.is_finished() && reading.is_held());
        assert!(reading.release().await.unwrap().is_released());
        assert!(in_time(queued).await.unwrap().release().await.unwrap().is_released());
    }

    /// Both orders in which the server may list the read and the write node, which have one number.
    async fn the_order_of_the_two_nodes_does_not_matter(env) {
        let client = env.client().await;
        let mut seen = [false; 2];
        for round in 0.. {
            let path = env.path(&format!("lock-{round}"));
            let lock = InterProcessReadWriteLock::new(client.clone(), &path).unwrap();
            LockOwner::scope(async {
                let writing = lock.write_lock().acquire().await.unwrap();
                let reading = in_time(lock.read_lock().acquire()).await.unwrap();
                // Their names start with random ids, by which equal numbers are sorted.
                seen[usize::from(reading.node_name() < writing.node_name())] = true;
                let queued = writer(&client, &path);
                env.wait_for_children(&client, &path, 3).await;
                let nodes = lock.participants().await.unwrap();
                assert!(nodes[..2].iter().all(|node| node.holds) && !nodes[2].holds, "{nodes:?}");
                assert_eq!(nodes[2].kind, ParticipantKind::Write);
                assert!(writing.release().await.unwrap().is_released());
                assert!(lock.write_lock().participants().await.unwrap().iter().all(|node| !node.holds));
                assert!(!queued.is_finished() && reading.is_held());
                assert!(reading.release().await.unwrap().is_released());
                assert!(in_time(queued).await.unwrap().release().await.unwrap().is_released());
            })
            .await;
            if seen == [true; 2] && round >= 3 {
                break;
            }
        }
    }

    /// Curator's way, within an owner.
    async fn an_owner_downgrades_by_reading_before_it_stops_writing(env) {
        let path = env.path("lock");
        let (ours, theirs) = (env.client().await, env.client().await);
        let lock = InterProcessReadWriteLock::new(ours.clone(), &path).unwrap();
        LockOwner::scope(Box::pin(async {
            let writing = lock.write_lock().acquire().await.unwrap();
            let queued = writer(&theirs, &path);
            env.wait_for_children(&ours, &path, 2).await;
            let reading = in_time(lock.read_lock().acquire_timeout(Duration::from_secs(20))).await.unwrap().unwrap();
            let again = lock.read_lock().acquire().await.unwrap();
            assert_eq!(again.node_path(), reading.node_path());
            // It may write still, since it does.
            let inner = in_time(lock.write_lock().acquire()).await.unwrap();
            assert!(inner.release().await.unwrap().is_released());
            assert_eq!(writing.release().await.unwrap(), Release::Released);
            assert!(matches!(lock.write_lock().try_acquire().await, Err(LockError::Upgrade { .. })));
            let beside = lock.read_lock().acquire().await.unwrap();
            tokio::time::sleep(A_WHILE).await;
            assert!(!queued.is_finished());
            for guard in [reading, again, beside] {
                assert_eq!(guard.release().await.unwrap(), Release::Released);
            }
            assert!(in_time(queued).await.unwrap().release().await.unwrap().is_released());
        }))
        .await;
    }

    async fn an_owners_guard_downgrades_and_the_owner_reads_on(env) {
        let client = env.client().await;
        let lock = InterProcessReadWriteLock::new(client.clone(), env.path("lock")).unwrap();
        let owner = LockOwner::new();
        let writing = lock.write_lock().acquire_as(&owner).await.unwrap();
        let reading = in_time(writing.downgrade()).await.unwrap();
        let inner = in_time(lock.read_lock().acquire_as(&owner)).await.unwrap();
        assert_eq!(inner.node_path(), reading.node_path());
        let upgrade = lock.write_lock().acquire_as(&owner).await;
        assert!(matches!(upgrade, Err(LockError::Upgrade { .. })), "{upgrade:?}");
        assert!(reading.release().await.unwrap().is_released());
        assert!(inner.release().await.unwrap().is_released());
        assert!(in_time(lock.write_lock().acquire_as(&owner)).await.unwrap().release().await.unwrap().is_released());
    }

    async fn other_write_guards_keep_the_write_lock(env) {
        let path = env.path("lock");
        let (ours, theirs) = (env.client().await, env.client().await);
        let lock = InterProcessReadWriteLock::new(ours.clone(), &path).unwrap();
        let writing = lock.write_lock().acquire().await.unwrap();
        let inner = writing.reenter().unwrap();
        let reading = in_time(inner.downgrade()).await.unwrap();
        assert!(writing.is_held() && !inner.is_held() && reading.is_held());
        let other = InterProcessReadWriteLock::new(theirs, &path).unwrap().read_lock();
        assert!(other.try_acquire().await.unwrap().is_none(), "somebody writes still");
        let second = in_time(writing.downgrade()).await.unwrap();
        drop(in_time(other.acquire()).await.unwrap());
        assert!(reading.release().await.unwrap().is_released());
        assert!(second.is_held());
        assert!(second.release().await.unwrap().is_released());
        env.wait_for_children(&ours, &path, 0).await;
    }

    async fn a_lost_write_lock_cannot_be_downgraded(env) {
        let path = env.path("lock");
        let client = env.client().await;
        let lock = InterProcessReadWriteLock::new(client.clone(), &path).unwrap();
        let owner = LockOwner::new();
        for named in [false, true] {
            let write = lock.write_lock();
            let writing = if named { in_time(write.acquire_as(&owner)).await } else { in_time(write.acquire()).await };
            let writing = writing.unwrap();
            client.delete().for_path(writing.node_path()).await.unwrap();
            assert_eq!(in_time(writing.lost()).await, LossReason::NodeDeleted);
            let lost = in_time(writing.downgrade()).await;
            let is_told = matches!(lost, Err(LockError::LockLost { reason: LossReason::NodeDeleted, .. }));
            assert!(is_told, "{lost:?}");
            if named {
                let read = in_time(lock.read_lock().acquire_as(&owner)).await;
                assert!(matches!(read, Err(LockError::LockLost { .. })), "{read:?}");
            }
            drop(writing);
            env.wait_for_children(&client, &path, 0).await;
        }
    }

    /// The write lock stays held by the guard, and no read node is left, wherever the future was dropped.
    async fn a_dropped_downgrade_changes_nothing(env) {
        let path = env.path("lock");
        let (ours, theirs) = (env.client().await, env.client().await);
        let lock = InterProcessReadWriteLock::new(ours.clone(), &path).unwrap();
        let writing = lock.write_lock().acquire().await.unwrap();
        let queued = writer(&theirs, &path);
        let nodes = env.wait_for_children(&ours, &path, 2).await;
        let mut polls = 0;
        let reading = loop {
            polls += 1;
            match in_time(poll_and_drop(writing.downgrade(), polls)).await {
                Polled::Ready(reading) => break reading.unwrap(),
                Polled::Dropped => {
                    assert!(writing.is_held());
                    eventually("no read node is left", async || {
                        let mut now = children(&ours, &path).await;
                        now.sort();
                        let mut before = nodes.clone();
                        before.sort();
                        now == before
                    })
                    .await;
                    writing.verify().await.unwrap();
                }
            }
        };
        assert!(polls > 1, "it was dropped at least once");
        assert!(!queued.is_finished() && reading.is_held() && !writing.is_held());
        assert!(reading.release().await.unwrap().is_released());
        assert!(in_time(queued).await.unwrap().release().await.unwrap().is_released());
        env.wait_for_children(&ours, &path, 0).await;
    }

    /// The reply to the create of the read node is lost.
    async fn a_lost_reply_leaves_one_read_node(env) {
        let path = env.path("lock");
        let proxy = env.proxy();
        let direct = env.client().await;
        let client = connected(builder(proxy.address())).await;
        let lock = InterProcessReadWriteLock::new(client, &path).unwrap();
        for (round, lose) in [FaultProxy::drop_reply, FaultProxy::drop_request].into_iter().enumerate() {
            let writing = lock.write_lock().acquire().await.unwrap();
            let queued = writer(&direct, &path);
            env.wait_for_children(&direct, &path, 2).await;
            lose(&proxy, OpCode::Create2, 1);
            let reading = in_time(writing.downgrade()).await.unwrap();
            assert_eq!(proxy.faults_done(), round + 1);
            eventually("one read node and the writer", async || children(&direct, &path).await.len() == 2).await;
            assert!(children(&direct, &path).await.iter().any(|node| node == reading.node_name()));
            assert!(!queued.is_finished() && reading.is_held());
            reading.verify().await.unwrap();
            assert_eq!(in_time(reading.release()).await.unwrap(), Release::Released);
            assert!(in_time(queued).await.unwrap().release().await.unwrap().is_released());
            env.wait_for_children(&direct, &path, 0).await;
        }
    }

    /// No fast hand-over from a writer that downgrades to a writer that waits, over and over.
    async fn a_waiting_writer_never_comes_in_over_a_downgrade(env) {
        let path = env.path("lock");
        let (ours, theirs) = (env.client().await, env.client().await);
        let lock = InterProcessReadWriteLock::new(ours.clone(), &path).unwrap();
        for _ in 0..10 {
            let writing = in_time(lock.write_lock().acquire()).await.unwrap();
            let queued = writer(&theirs, &path);
            // It watches the node ahead and its own.
            eventually("it waits", async || theirs.watchers() == 2).await;
            let reading = in_time(writing.downgrade()).await.unwrap();
            eventually("the write node is gone", async || children(&ours, &path).await.len() == 2).await;
            // It has heard of that, and watches the reader's node.
            eventually("it waits again", async || {
                theirs.watched_paths().iter().any(|watched| watched == reading.node_path())
            })
            .await;
            assert!(!queued.is_finished() && reading.is_held());
            assert!(reading.release().await.unwrap().is_released());
            assert!(in_time(queued).await.unwrap().release().await.unwrap().is_released());
            env.wait_for_children(&ours, &path, 0).await;
        }
    }
}

/// Where numbers do not tell the order the write node stays, and holds for the reader.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn near_the_end_of_the_sequence_numbers_a_downgrade_keeps_the_writers_node() {
    let server = TestingServer::start().unwrap();
    let client = connected(builder(server.address())).await;
    let lock = InterProcessReadWriteLock::new(client.clone(), "/lock").unwrap();
    assert!(lock.write_lock().acquire().await.unwrap().release().await.unwrap().is_released());
    for (round, next) in [i32::MAX - 5, i32::MAX - 1, i32::MAX - 1].into_iter().enumerate() {
        assert!(server.set_next_sequence("/lock", next));
        let owner = (round == 2).then(LockOwner::new);
        let writing = match &owner {
            Some(owner) => lock.write_lock().acquire_as(owner).await.unwrap(),
            None => lock.write_lock().acquire().await.unwrap(),
        };
        let queued = writer(&client, "/lock");
        eventually("it is queued", async || server.children("/lock").unwrap().len() == 2).await;
        let reading = Arc::new(in_time(writing.downgrade()).await.unwrap());
        assert_eq!((reading.node_path(), reading.token()), (writing.node_path(), writing.token()));
        assert!(reading.is_held() && !writing.is_held());
        tokio::time::sleep(A_WHILE).await;
        assert!(!queued.is_finished());
        if let Some(owner) = &owner {
            let inner = in_time(lock.read_lock().acquire_as(owner)).await.unwrap();
            assert_eq!(inner.node_path(), reading.node_path());
            let upgrade = lock.write_lock().acquire_as(owner).await;
            assert!(matches!(upgrade, Err(LockError::Upgrade { .. })), "{upgrade:?}");
            assert!(inner.release().await.unwrap().is_released());
        }
        assert_eq!(reading.release().await.unwrap(), Release::Released);
        assert!(in_time(queued).await.unwrap().release().await.unwrap().is_released());
        assert_eq!(server.children("/lock").unwrap(), [""; 0]);
    }
}

/// What an owner holds is known also while the same owner acquires elsewhere.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_owner_that_writes_reads_at_once_however_busy_it_is() {
    let server = TestingServer::start().unwrap();
    let client = connected(builder(server.address())).await;
    let lock = InterProcessReadWriteLock::new(client.clone(), "/lock").unwrap();
    let owner = LockOwner::new();
    let writing = lock.write_lock().acquire_as(&owner).await.unwrap();
    let mut busy = tokio::task::JoinSet::new();
    for _ in 0..4 {
        let (write, owner) = (lock.write_lock(), owner.clone());
        busy.spawn(async move {
            loop {
                drop(write.acquire_as(&owner).await.unwrap());
                tokio::task::yield_now().await;
            }
        });
    }
    for _ in 0..300 {
        let reading = lock.read_lock().acquire_as_timeout(&owner, Duration::from_secs(10)).await.unwrap();
        assert!(reading.expect("it writes, so it may read").release().await.unwrap().is_released());
        let further = writing.reenter().unwrap();
        assert!(in_time(further.downgrade()).await.unwrap().release().await.unwrap().is_released());
    }
    busy.shutdown().await;
    assert!(writing.release().await.unwrap().is_released());
    assert_eq!(server.children("/lock").unwrap(), [""; 0]);
}

/// An administrator deletes the write node, the next writer is granted the lock, and only then the test downgrades.
#[tokio::test(start_paused = true)]
async fn a_downgrade_does_not_read_beside_the_next_writer() {
    let ensemble = SimulatedEnsemble::new(1, Duration::from_millis(1));
    let (one, other) = (simulated(&ensemble, 1).await, simulated(&ensemble, 2).await);
    let first = InterProcessReadWriteLock::new(one, "/rw").unwrap();
    let second = InterProcessReadWriteLock::new(other, "/rw").unwrap();
    let writing = first.write_lock().acquire().await.unwrap();
    let waiter = tokio::spawn(async move { second.write_lock().acquire().await.unwrap() });
    tokio::time::sleep(Duration::from_millis(500)).await;
    ensemble.delete(writing.node_path());
    let next = waiter.await.unwrap();
    let reading = writing.downgrade().await;
    tokio::time::sleep(Duration::from_secs(40)).await;
    match reading {
        Err(LockError::LockLost { .. }) => {}
        Err(other) => panic!("{other}"),
        Ok(reading) => assert!(
            !(reading.is_held() && next.is_held()),
            "a reader and a writer hold the lock at once; verified: {:?}",
            reading.verify().await
        ),
    }
}
