//! Persistent nodes with a contender's name: they block, and no view takes them for contenders.

use curator_framework::{CreateMode, CuratorFramework};
use curator_integration::env::{eventually, in_time};
use curator_integration::on_every_server;
use curator_recipes::{
    InterProcessMutex, InterProcessReadWriteLock, InterProcessSemaphoreV2, LockError, LockInternalsDriver,
    MutexOptions, Participant, Predicate, Revoker, SortedChildren, StandardLockInternalsDriver,
};

async fn create(client: &CuratorFramework, path: &str, mode: CreateMode) {
    client.create().creating_parents_if_needed().with_mode(mode).for_path(path).await.unwrap();
}

/// Waits for this many contenders, and returns them.
async fn listed(count: usize, list: impl AsyncFn() -> Vec<Participant>) -> Vec<Participant> {
    eventually("the contenders", async || list().await.len() == count).await;
    list().await
}

/// Orders the contenders of a mutex with persistent nodes.
#[derive(Debug)]
struct Persistent;

impl LockInternalsDriver for Persistent {
    fn create_mode(&self) -> CreateMode {
        CreateMode::PersistentSequential
    }

    fn gets_the_lock(&self, children: &SortedChildren, ours: &str, max_leases: usize) -> Predicate {
        StandardLockInternalsDriver.gets_the_lock(children, ours, max_leases)
    }
}

on_every_server! {
    async fn participants_leave_out_nodes_that_are_not_ephemeral(env) {
        let (client, path) = (env.client().await, env.path("lock"));
        create(&client, &format!("{path}/report-lock-2024"), CreateMode::Persistent).await;
        create(&client, &format!("{path}/lock-0000000099"), CreateMode::Container).await;
        let mutex = InterProcessMutex::new(client.clone(), &path).unwrap();
        let guard = in_time(mutex.acquire()).await.unwrap();
        let all = mutex.participants().await.unwrap();
        assert_eq!(all.iter().map(|one| (one.path.as_str(), one.holds)).collect::<Vec<_>>(), [(guard.node_path(), true)]);
        assert_eq!((all[0].position, all[0].blocked_by.as_deref()), (0, None));
        assert!(guard.release().await.unwrap().is_released());
        assert_eq!(mutex.participants().await.unwrap(), []);
    }

    async fn waiter_is_shown_with_the_persistent_node_that_blocks_it(env) {
        let (client, path) = (env.client().await, env.path("lock"));
        let blocker = format!("{path}/lock-0");
        create(&client, &blocker, CreateMode::Persistent).await;
        let mutex = InterProcessMutex::new(client.clone(), &path).unwrap();
        let waiting = { let mutex = mutex.clone(); tokio::spawn(async move { mutex.acquire().await }) };
        let all = listed(1, async || mutex.participants().await.unwrap()).await;
        assert_eq!((all[0].holds, all[0].position), (false, 1));
        assert_eq!(all[0].blocked_by.as_deref(), Some(blocker.as_str()));
        client.delete().for_path(&blocker).await.unwrap();
        let guard = in_time(waiting).await.unwrap().unwrap();
        let all = mutex.participants().await.unwrap();
        assert_eq!((all[0].holds, all[0].position, all[0].blocked_by.as_deref()), (true, 0, None));
        assert!(guard.release().await.unwrap().is_released());
    }

    async fn persistent_nodes_of_a_driver_that_creates_them_are_contenders(env) {
        let (client, path) = (env.client().await, env.path("lock"));
        let mutex = InterProcessMutex::with_options(client, &path, MutexOptions::new().driver(Persistent)).unwrap();
        let guard = in_time(mutex.acquire()).await.unwrap();
        let all = mutex.participants().await.unwrap();
        assert_eq!((all.len(), all[0].path.as_str(), all[0].holds, all[0].session), (1, guard.node_path(), true, None));
        assert!(guard.release().await.unwrap().is_released());
    }

    async fn persistent_reader_blocks_writers_alone(env) {
        let (client, path) = (env.client().await, env.path("lock"));
        let blocker = format!("{path}/__READ__0000000000");
        create(&client, &blocker, CreateMode::Persistent).await;
        let lock = InterProcessReadWriteLock::new(client.clone(), &path).unwrap();
        let reading = in_time(lock.read_lock().acquire()).await.unwrap();
        let writing = { let write = lock.write_lock(); tokio::spawn(async move { write.acquire().await }) };
        listed(2, async || lock.participants().await.unwrap()).await;
        let late = { let read = lock.read_lock(); tokio::spawn(async move { read.acquire().await }) };
        let all = listed(3, async || lock.participants().await.unwrap()).await;
        let seen: Vec<_> = all.iter().map(|one| (one.holds, one.blocked_by.as_deref())).collect();
        assert_eq!(seen, [(true, None), (false, Some(blocker.as_str())), (false, None)]);
        client.delete().for_path(&blocker).await.unwrap();
        assert!(reading.release().await.unwrap().is_released());
        assert!(in_time(writing).await.unwrap().unwrap().release().await.unwrap().is_released());
        assert!(in_time(late).await.unwrap().unwrap().release().await.unwrap().is_released());
    }

    async fn persistent_lease_is_not_listed_and_takes_the_place_of_one(env) {
        let (client, path) = (env.client().await, env.path("pool"));
        let semaphore = InterProcessSemaphoreV2::new(client.clone(), &path, 2).unwrap();
        assert!(in_time(semaphore.acquire()).await.unwrap().release().await.unwrap().is_released());
        let blocker = format!("{path}/leases/lease-0");
        create(&client, &blocker, CreateMode::Persistent).await;
        let held = in_time(semaphore.acquire()).await.unwrap();
        let waiting = { let semaphore = semaphore.clone(); tokio::spawn(async move { semaphore.acquire().await }) };
        // The waiter has a lease's node, and one in the queue for the turn.
        let all = listed(3, async || semaphore.participants().await.unwrap()).await;
        let seen: Vec<_> = all.iter().map(|one| (one.holds, one.blocked_by.as_deref())).collect();
        assert_eq!(seen, [(true, None), (false, Some(blocker.as_str())), (false, None)]);
        assert_eq!(all[0].path, held.node_path());
        client.delete().for_path(&blocker).await.unwrap();
        assert!(in_time(waiting).await.unwrap().unwrap().release().await.unwrap().is_released());
        assert!(held.release().await.unwrap().is_released());
    }

    async fn container_with_the_name_of_a_contender_is_not_revoked(env) {
        let (client, path) = (env.client().await, env.path("lock"));
        let node = format!("{path}/lock-0000000000");
        create(&client, &node, CreateMode::Container).await;
        let refused = Revoker::attempt_revoke(&client, &node).await;
        assert!(matches!(refused, Err(LockError::InvalidArgument { .. })), "{refused:?}");
    }
}
