//! The holders and the waiters of a lock.

use std::time::Duration;

use curator_integration::env::{builder, children, connected, in_time};
use curator_integration::on_every_server;
use curator_recipes::{
    InterProcessMutex, InterProcessReadWriteLock, InterProcessSemaphoreMutex, InterProcessSemaphoreV2, LockOptions,
    ParticipantKind, SemaphoreOptions,
};
use curator_test::TestingServer;

on_every_server! {
    async fn the_holder_is_the_first_and_each_node_tells_its_own(env) {
        let path = env.path("lock");
        let (first, second) = (env.client().await, env.client().await);
        let mutex = |client: &curator_framework::CuratorFramework, data: &str| {
            let options = LockOptions::new().data(data);
            InterProcessMutex::with_options(client.clone(), &path, options).unwrap()
        };
        let lock = mutex(&first, "ann");
        assert_eq!(lock.participants().await.unwrap(), []);
        let guard = lock.acquire().await.unwrap();
        let mut waiters = tokio::task::JoinSet::new();
        for (count, (client, data)) in [(&second, "bob"), (&first, "cat")].into_iter().enumerate() {
            let waiting = mutex(client, data);
            waiters.spawn(async move { waiting.acquire().await });
            env.wait_for_children(&first, &path, count + 2).await;
        }
        let all = lock.participants().await.unwrap();
        assert_eq!(all.iter().map(|one| one.path.clone()).collect::<Vec<_>>(), lock.participant_nodes().await.unwrap());
        assert_eq!(all.iter().map(|one| one.position).collect::<Vec<_>>(), [0, 1, 2]);
        assert_eq!(all.iter().map(|one| one.holds).collect::<Vec<_>>(), [true, false, false]);
        assert_eq!(all.iter().map(|one| one.sequence).collect::<Vec<_>>(), [0, 1, 2]);
        assert_eq!(all.iter().map(|one| one.data.clone()).collect::<Vec<_>>(), [b"ann", b"bob", b"cat"]);
        assert!(all.iter().all(|one| one.kind == ParticipantKind::Lock && one.age() < Duration::from_secs(3600)));
        assert_eq!((all[0].path.as_str(), all[0].czxid), (guard.node_path(), guard.token().czxid()));
        assert!(all[0].session.is_some() && all[0].session == all[2].session && all[0].session != all[1].session);
        for one in &all {
            let stat = first.check_exists().for_path(&one.path).await.unwrap().unwrap();
            assert_eq!((stat.ephemeral_owner, stat.czxid), (one.session.unwrap().get(), one.czxid.get()));
        }
        waiters.shutdown().await;
        assert!(guard.release().await.unwrap().is_released());
    }

    async fn both_halves_of_a_read_write_lock_in_one_order(env) {
        let client = env.client().await;
        let lock = InterProcessReadWriteLock::new(client.clone(), env.path("lock")).unwrap();
        let reading = [lock.read_lock().acquire().await.unwrap(), lock.read_lock().acquire().await.unwrap()];
        let writer = { let write = lock.write_lock(); tokio::spawn(async move { write.acquire().await }) };
        env.wait_for_children(&client, lock.path(), 3).await;
        let late = { let read = lock.read_lock(); tokio::spawn(async move { read.acquire().await }) };
        env.wait_for_children(&client, lock.path(), 4).await;
        let (read, write) = (ParticipantKind::Read, ParticipantKind::Write);
        let seen: Vec<_> = lock.participants().await.unwrap().iter().map(|one| (one.kind, one.holds)).collect();
        assert_eq!(seen, [(read, true), (read, true), (write, false), (read, false)]);
        let writers = lock.write_lock().participants().await.unwrap();
        assert_eq!(writers.iter().map(|one| (one.kind, one.position)).collect::<Vec<_>>(), [(write, 2)]);
        let readers = lock.read_lock().participants().await.unwrap();
        assert_eq!(readers.iter().map(|one| one.position).collect::<Vec<_>>(), [0, 1, 3]);
        for guard in reading {
            assert!(guard.release().await.unwrap().is_released());
        }
        assert!(in_time(writer).await.unwrap().unwrap().release().await.unwrap().is_released());
        assert!(in_time(late).await.unwrap().unwrap().release().await.unwrap().is_released());
    }

    async fn semaphore_shows_leases_and_contenders_for_the_mutex(env) {
        let client = env.client().await;
        let semaphore = InterProcessSemaphoreV2::with_options(client.clone(), env.path("semaphore"), 2, SemaphoreOptions::new().data("x")).unwrap();
        let (leases, locks) = (format!("{}/leases", semaphore.path()), format!("{}/locks", semaphore.path()));
        let held = [semaphore.acquire().await.unwrap(), semaphore.acquire().await.unwrap()];
        env.wait_for_children(&client, &locks, 0).await;
        let mut waiters = tokio::task::JoinSet::new();
        for count in 0..2 {
            let semaphore = semaphore.clone();
            waiters.spawn(async move { semaphore.acquire().await });
            env.wait_for_children(&client, &leases, 3).await;
            env.wait_for_children(&client, &locks, count + 1).await;
        }
        let (lease, lock) = (ParticipantKind::Lease, ParticipantKind::Lock);
        let all = semaphore.participants().await.unwrap();
        let seen: Vec<_> = all.iter().map(|one| (one.kind, one.holds)).collect();
        assert_eq!(seen, [(lease, true), (lease, true), (lease, false), (lock, false), (lock, false)]);
        assert_eq!(all[..3].iter().map(|one| one.data.clone()).collect::<Vec<_>>(), [b"x"; 3]);
        waiters.shutdown().await;
        for lease in held {
            assert!(lease.release().await.unwrap().is_released());
        }

        let mutex = InterProcessSemaphoreMutex::new(client.clone(), env.path("mutex")).unwrap();
        let guard = mutex.acquire().await.unwrap();
        env.wait_for_children(&client, &format!("{}/locks", mutex.path()), 0).await;
        let all = mutex.participants().await.unwrap();
        assert_eq!(all.iter().map(|one| (one.path.as_str(), one.holds)).collect::<Vec<_>>(), [(guard.node_path(), true)]);
        assert_eq!(children(&client, &format!("{}/leases", mutex.path())).await.len(), 1);
        assert!(guard.release().await.unwrap().is_released());
    }
}

/// Near the end of the counter the order is the order of creation; the number is still the server's.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn near_the_end_of_the_sequence_numbers_the_order_is_that_of_creation() {
    let server = TestingServer::start().unwrap();
    let client = connected(builder(server.address())).await;
    let lock = InterProcessReadWriteLock::new(client.clone(), "/lock").unwrap();
    assert!(lock.read_lock().acquire().await.unwrap().release().await.unwrap().is_released());
    assert!(server.set_next_sequence("/lock", i32::MAX - 1));
    let mut held = Vec::new();
    for _ in 0..4 {
        held.push(in_time(lock.read_lock().acquire()).await.unwrap());
    }
    let all = lock.participants().await.unwrap();
    let paths: Vec<_> = all.iter().map(|one| one.path.as_str()).collect();
    assert_eq!(paths, held.iter().map(|guard| guard.node_path()).collect::<Vec<_>>());
    let numbers: Vec<_> = all.iter().map(|one| one.sequence).collect();
    assert_eq!(numbers[..2], [i64::from(i32::MAX) - 1, i64::from(i32::MAX)]);
    assert!(numbers.iter().all(|number| i32::try_from(*number).is_ok()), "{numbers:?}");
    assert!(all.iter().all(|one| one.holds && one.kind == ParticipantKind::Read));
    for guard in held {
        assert!(guard.release().await.unwrap().is_released());
    }
}
