//! A server that continues from a backup.

use std::time::{Duration, Instant};

use curator_framework::{CreateMode, CuratorFramework, FixedEnsembleProvider, LossReason, RetryOneTime, SessionEnd};
use curator_integration::env::{connected, eventually, in_time};
use curator_integration::in_process::{self, options};
use curator_recipes::{
    CuratorCache, CuratorCacheOptions, DistributedAtomicLong, InterProcessMutex, InterProcessSemaphoreV2, LeaderLatch,
    LeaderLatchOptions, NodeState, PersistentNode, SharedCount, SharedValue, UniqueIds,
};
use curator_test::wire::{ErrorCode, OpCode};
use curator_test::{Backup, FaultProxy, TestingServer};

const SECOND_ELECTION: i64 = 2 << 32;

/// Restores the backup on servers that accept all clients.
fn restore(server: &TestingServer, backup: &Backup) {
    tokio::task::block_in_place(|| server.restore(&backup.clone().with_zxid(SECOND_ELECTION))).unwrap();
}

async fn create(client: &CuratorFramework, path: &str, data: &str) {
    client.create().creating_parents_if_needed().with_data(data).for_path(path).await.unwrap();
}

async fn set(client: &CuratorFramework, path: &str, data: &str) {
    client.set_data().for_path(path, data).await.unwrap();
}

fn data_of(cache: &CuratorCache, path: &str) -> Option<Vec<u8>> {
    cache.get(path).present().map(|node| node.data.clone())
}

async fn filled(client: &CuratorFramework, options: CuratorCacheOptions) -> CuratorCache {
    let cache = CuratorCache::with_options(client.clone(), "/tree", options).unwrap();
    cache.start().unwrap();
    in_time(cache.synced()).await.unwrap();
    cache
}

/// Makes `/tree` with two nodes, and returns a backup before three changes.
async fn changed_after_a_backup(server: &TestingServer, client: &CuratorFramework) -> Backup {
    create(client, "/tree/changed", "old").await;
    create(client, "/tree/deleted", "old").await;
    let backup = server.backup();
    set(client, "/tree/changed", "new").await;
    client.delete().for_path("/tree/deleted").await.unwrap();
    create(client, "/tree/created", "new").await;
    backup
}

async fn shows_the_backup(cache: &CuratorCache) {
    eventually("the restored nodes", async || {
        cache.synced().await.is_ok()
            && data_of(cache, "/tree/changed").as_deref() == Some(b"old")
            && data_of(cache, "/tree/deleted").as_deref() == Some(b"old")
            && data_of(cache, "/tree/created").is_none()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cache_shows_the_restored_nodes() {
    let server = in_process::server();
    let client = connected(options(&server)).await;
    create(&client, "/other", "").await;
    let cache = filled(&client, CuratorCacheOptions::new()).await;
    let backup = changed_after_a_backup(&server, &client).await;
    eventually("the changes", async || {
        data_of(&cache, "/tree/created").is_some() && data_of(&cache, "/tree/deleted").is_none()
    })
    .await;
    restore(&server, &backup);
    shows_the_backup(&cache).await;
}

/// Another client deletes a node below one that the cache does not read again, so that its stat stays the old one. The
/// comparison ends the session only if it finds the other node, which the client itself has deleted.
async fn cache_shows_a_child_after_its_deletion_is_rolled_back(nodes: usize, deletes_itself: bool) {
    let server = in_process::server();
    let (client, other) = (connected(options(&server)).await, connected(options(&server)).await);
    create(&client, "/tree/parent/child", "old").await;
    for node in 0..nodes {
        create(&client, &format!("/tree/many/{node}"), "").await;
    }
    // Newer than the parent's children, and unchanged: it proves the history up to itself.
    create(&client, "/tree/proof", "").await;
    create(&client, "/mine", "").await;
    let cache = filled(&client, CuratorCacheOptions::new()).await;
    let (backup, session) = (server.backup(), client.session().await.unwrap());
    other.delete().for_path("/tree/parent/child").await.unwrap();
    eventually("the deletion", async || data_of(&cache, "/tree/parent/child").is_none()).await;
    if deletes_itself {
        client.delete().for_path("/mine").await.unwrap();
    }
    restore(&server, &backup);
    eventually("the restored child", async || {
        cache.synced().await.is_ok() && data_of(&cache, "/tree/parent/child").as_deref() == Some(b"old")
    })
    .await;
    assert_eq!(session.end_reason(), deletes_itself.then_some(SessionEnd::RolledBack));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cache_shows_a_child_after_its_deletion_is_rolled_back_in_the_session() {
    cache_shows_a_child_after_its_deletion_is_rolled_back(0, false).await;
}

/// More nodes than a client remembers for a comparison.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cache_of_many_nodes_shows_a_child_after_its_deletion_is_rolled_back() {
    cache_shows_a_child_after_its_deletion_is_rolled_back(200, false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cache_shows_a_child_after_its_deletion_and_the_session_are_rolled_back() {
    cache_shows_a_child_after_its_deletion_is_rolled_back(0, true).await;
}

/// Another client deletes a child, which only an event shows. The next session of the cache has seen nothing.
async fn cache_of_a_new_session_shows_a_child_after_its_deletion_is_rolled_back(resumes: bool) {
    let server = in_process::server();
    let (client, other) = (connected(options(&server)).await, connected(options(&server)).await);
    create(&client, "/tree/parent/child", "old").await;
    // Newer than the parent's children, and unchanged: it proves the history up to itself.
    create(&client, "/tree/proof", "").await;
    let late = connected(options(&server)).await;
    let cache = filled(&late, CuratorCacheOptions::new()).await;
    let backup = server.backup();
    other.delete().for_path("/tree/parent/child").await.unwrap();
    eventually("the deletion", async || data_of(&cache, "/tree/parent/child").is_none()).await;
    in_time(cache.synced()).await.unwrap();
    let cache = if resumes {
        let snapshot = cache.snapshot().unwrap();
        in_time(cache.close()).await;
        restore(&server, &backup);
        filled(&other, CuratorCacheOptions::new().resume(snapshot)).await
    } else {
        let session = late.session().await.unwrap();
        restore(&server, &backup);
        assert!(server.kill_session(session.id().unwrap().get()));
        in_time(session.ended()).await;
        cache
    };
    eventually("the restored child", async || {
        cache.synced().await.is_ok() && data_of(&cache, "/tree/parent/child").as_deref() == Some(b"old")
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cache_of_a_new_session_shows_a_child_that_a_backup_has() {
    cache_of_a_new_session_shows_a_child_after_its_deletion_is_rolled_back(false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cache_that_is_resumed_shows_a_child_that_a_backup_has() {
    cache_of_a_new_session_shows_a_child_after_its_deletion_is_rolled_back(true).await;
}

/// The newest remembered node is missing in the restored data, so an older one has to decide.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cache_shows_a_node_that_was_rolled_back_behind_a_missing_one() {
    let server = in_process::server();
    let client = connected(options(&server)).await;
    create(&client, "/tree/node", "old").await;
    let backup = server.backup();
    let cache = filled(&client, CuratorCacheOptions::new()).await;
    set(&client, "/tree/node", "new").await;
    create(&client, "/missing", "").await;
    eventually("the change", async || data_of(&cache, "/tree/node").as_deref() == Some(b"new")).await;
    restore(&server, &backup);
    eventually("the old data", async || {
        cache.synced().await.is_ok() && data_of(&cache, "/tree/node").as_deref() == Some(b"old")
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cache_shows_the_restored_nodes_in_a_new_session() {
    let server = in_process::server();
    let client = connected(options(&server)).await;
    let other = connected(options(&server)).await;
    let backup_client = connected(options(&server)).await;
    let backup = changed_after_a_backup(&server, &backup_client).await;
    // This session is not in the backup.
    let late = connected(options(&server)).await;
    let cache = filled(&late, CuratorCacheOptions::new()).await;
    let snapshot = cache.snapshot().unwrap();
    restore(&server, &backup);
    shows_the_backup(&cache).await;
    let resumed = filled(&other, CuratorCacheOptions::new().resume(snapshot)).await;
    shows_the_backup(&resumed).await;
    drop(client);
}

/// The usual loop of a compare-and-set ends, and takes few tries.
async fn counts_up(count: &SharedCount) -> i32 {
    for _ in 0..100 {
        let before = count.versioned_value().unwrap();
        if in_time(count.try_set_count(&before, before.value() + 1)).await.unwrap() {
            return before.value() + 1;
        }
    }
    panic!("a compare-and-set loop does not end");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shared_value_takes_the_restored_value() {
    let server = in_process::server();
    let client = connected(options(&server)).await;
    let value = SharedValue::new(client.clone(), "/value", "old").unwrap();
    value.start().unwrap();
    in_time(value.initialized()).await.unwrap();
    let count = SharedCount::new(client.clone(), "/count", 5).unwrap();
    count.start().unwrap();
    in_time(count.initialized()).await.unwrap();
    in_time(count.set_count(6)).await.unwrap();
    let backup = server.backup();
    in_time(value.set_value("new")).await.unwrap();
    in_time(count.set_count(9)).await.unwrap();
    in_time(count.set_count(10)).await.unwrap();
    let mut watched = value.watch();
    restore(&server, &backup);
    in_time(watched.wait_for(|value| value.value() == b"old")).await.unwrap();
    assert_eq!(value.value(), b"old");
    assert_eq!(counts_up(&count).await, 7);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn limit_of_a_semaphore_follows_the_restored_count() {
    let server = in_process::server();
    let client = connected(options(&server)).await;
    let count = SharedCount::new(client.clone(), "/count", 1).unwrap();
    count.start().unwrap();
    in_time(count.initialized()).await.unwrap();
    let semaphore = InterProcessSemaphoreV2::new(client.clone(), "/semaphore", &count).unwrap();
    let backup = server.backup();
    in_time(count.set_count(2)).await.unwrap();
    in_time(count.set_count(3)).await.unwrap();
    assert_eq!(semaphore.max_leases(), 3);
    restore(&server, &backup);
    eventually("the limit of the backup", async || semaphore.max_leases() == 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shared_count_follows_servers_that_have_lost_their_data() {
    let server = in_process::server();
    let client = connected(options(&server).session_timeout(Duration::from_secs(2))).await;
    let count = SharedCount::new(client.clone(), "/count", 5).unwrap();
    count.start().unwrap();
    in_time(count.initialized()).await.unwrap();
    for number in 0..50 {
        in_time(count.set_count(number)).await.unwrap();
    }
    tokio::task::block_in_place(|| server.restart_empty()).unwrap();
    let other = connected(options(&server)).await;
    let made = SharedCount::new(other, "/count", 7).unwrap();
    made.start().unwrap();
    in_time(made.initialized()).await.unwrap();
    eventually("the new value", async || count.count().unwrap() == 7).await;
    assert_eq!(counts_up(&count).await, 8);
    in_time(count.set_count(20)).await.unwrap();
    assert_eq!(count.count().unwrap(), 20);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unique_ids_of_an_object_do_not_repeat() {
    let server = in_process::server();
    let client = connected(options(&server)).await;
    let ids = UniqueIds::new(client, "/ids").unwrap();
    let mut all = in_time(ids.take(3)).await.unwrap();
    let backup = server.backup();
    all.extend(in_time(ids.take(3)).await.unwrap());
    restore(&server, &backup);
    all.extend(in_time(ids.take(3)).await.unwrap());
    all.push(in_time(ids.next()).await.unwrap());
    assert!(all.is_sorted_by(|one, next| one < next), "{all:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn persistent_node_writes_its_data_again() {
    for mode in [CreateMode::Persistent, CreateMode::Ephemeral] {
        let server = in_process::server();
        let client = connected(options(&server)).await;
        let node = PersistentNode::with_options(
            client,
            "/node",
            "old",
            curator_recipes::PersistentNodeOptions::new().mode(mode),
        )
        .unwrap();
        node.start().unwrap();
        eventually("the node", async || matches!(node.state(), NodeState::Standing(_))).await;
        let backup = server.backup();
        in_time(node.set_data("new")).await.unwrap();
        restore(&server, &backup);
        eventually("the old data is found", async || match node.state() {
            NodeState::Standing(standing) => {
                standing.foreign_data.is_some() || server.data("/node").is_some_and(|data| data == b"new")
            }
            _ => false,
        })
        .await;
    }
}

/// The backup has the node of the lock, and its session lives.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lock_that_was_released_is_free_although_its_node_exists_again() {
    let server = in_process::server();
    let client = connected(options(&server)).await;
    let guard = InterProcessMutex::new(client.clone(), "/lock").unwrap().acquire().await.unwrap();
    let backup = server.backup();
    guard.release().await.unwrap().held().unwrap();
    let session = client.session().await.unwrap();
    restore(&server, &backup);
    let next = InterProcessMutex::new(connected(options(&server)).await, "/lock").unwrap();
    let _guard = in_time(next.acquire()).await.unwrap();
    assert_eq!(session.end_reason(), Some(SessionEnd::RolledBack));
}

/// The client knows no write: another client has created the parent, and the lock's node is deleted. Of both released
/// locks only the first one is in the backup.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn released_lock_is_free_although_the_client_knows_no_write_and_has_released_another_lock_since() {
    let server = in_process::server();
    let (client, other) = (connected(options(&server)).await, connected(options(&server)).await);
    create(&other, "/first", "").await;
    create(&other, "/second", "").await;
    let first = InterProcessMutex::new(client.clone(), "/first").unwrap().acquire().await.unwrap();
    let backup = server.backup();
    first.release().await.unwrap().held().unwrap();
    let second = InterProcessMutex::new(client.clone(), "/second").unwrap().acquire().await.unwrap();
    second.release().await.unwrap().held().unwrap();
    let session = client.session().await.unwrap();
    restore(&server, &backup);
    let next = InterProcessMutex::new(other, "/first").unwrap();
    let _guard = in_time(next.acquire()).await.unwrap();
    assert_eq!(session.end_reason(), Some(SessionEnd::RolledBack));
}

/// An older node of the same client proves the history up to itself, so the session continues.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn guard_is_lost_if_the_backup_lacks_its_node() {
    let server = in_process::server();
    let (client, other) = (connected(options(&server)).await, connected(options(&server)).await);
    create(&other, "/lock", "").await;
    create(&client, "/proof", "").await;
    let backup = server.backup();
    let guard = InterProcessMutex::new(client.clone(), "/lock").unwrap().acquire().await.unwrap();
    let session = client.session().await.unwrap();
    restore(&server, &backup);
    assert_eq!(in_time(guard.lost()).await, LossReason::NodeDeleted);
    assert_eq!(session.end_reason(), None);
}

/// After the crash of the only candidate the server would delete the container of the election.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn delay_behind_a_crash_does_not_depend_on_the_container() {
    const DELAY: Duration = Duration::from_secs(2);
    let server = TestingServer::builder()
        .session_timeouts(Duration::from_secs(2), Duration::from_secs(60))
        .container_check_interval(Duration::from_millis(50))
        .start()
        .unwrap();
    let proxy = FaultProxy::start(server.address()).unwrap();
    let through = options(&server).ensemble_provider(FixedEnsembleProvider::new(proxy.connect_string()));
    let started = |client: &CuratorFramework| {
        let delays = LeaderLatchOptions::new().delay_after_unclean_loss(DELAY);
        let latch = LeaderLatch::with_options(client.clone(), "/election", delays).unwrap();
        latch.start().unwrap();
        latch
    };
    let (crashes, next) = (connected(through).await, connected(options(&server)).await);
    let first = started(&crashes);
    in_time(first.leading()).await.unwrap();
    let session = crashes.session().await.unwrap().id().unwrap().get();
    proxy.refuse();
    assert!(server.kill_session(session));
    // A container that was due at the same time is deleted, so the server has checked all containers.
    next.create().with_mode(CreateMode::Container).for_path("/canary").await.unwrap();
    create(&next, "/canary/child", "").await;
    next.delete().for_path("/canary/child").await.unwrap();
    eventually("a check of containers", async || !server.exists("/canary")).await;
    let begun = Instant::now();
    in_time(started(&next).leading()).await.unwrap();
    assert!(begun.elapsed() >= DELAY, "{:?}", begun.elapsed());
}

#[cfg(curator_mutants)]
#[test]
fn history_that_is_not_compared_is_found() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let shown = curator_framework::mutants::with("trust-any-history", || {
        runtime.block_on(async {
            let server = in_process::server();
            let client = connected(options(&server)).await;
            create(&client, "/tree/node", "old").await;
            let cache = filled(&client, CuratorCacheOptions::new()).await;
            let backup = server.backup();
            set(&client, "/tree/node", "new").await;
            eventually("the change", async || data_of(&cache, "/tree/node").as_deref() == Some(b"new")).await;
            let session = client.session().await.unwrap();
            let epoch = session.epoch();
            server.restore(&backup.with_zxid(SECOND_ELECTION)).unwrap();
            eventually("a new connection", async || session.is_connected() && session.epoch() > epoch).await;
            in_time(cache.synced()).await.unwrap();
            data_of(&cache, "/tree/node")
        })
    });
    assert_eq!(shown.as_deref(), Some(&b"new"[..]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn counter_does_not_write_on_a_version_of_another_history() {
    let server = in_process::server();
    let (client, other) = (connected(options(&server)).await, connected(options(&server)).await);
    let counter = |client: &CuratorFramework| {
        let retry = RetryOneTime::new(Duration::from_millis(50));
        DistributedAtomicLong::new(client.clone(), "/long", retry).unwrap()
    };
    let (mine, theirs) = (counter(&client), counter(&other));
    in_time(mine.add(5)).await.unwrap();
    let backup = server.backup();
    in_time(mine.add(3)).await.unwrap();
    let session = client.session().await.unwrap().id();
    restore(&server, &backup);
    eventually("another session", async || client.session().await.is_ok_and(|now| now.id() != session)).await;
    in_time(theirs.add(100)).await.unwrap();
    let change = in_time(mine.increment()).await.unwrap();
    assert_eq!((change.pre_value, change.post_value), (105, 106));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn throttled_question_is_asked_again() {
    let server = in_process::server();
    let client = connected(options(&server)).await;
    create(&client, "/tree/node", "old").await;
    create(&client, "/tree/proof", "").await;
    let backup = server.backup();
    let cache = filled(&client, CuratorCacheOptions::new()).await;
    set(&client, "/tree/node", "new").await;
    eventually("the change", async || data_of(&cache, "/tree/node").as_deref() == Some(b"new")).await;
    server.refuse(OpCode::Exists, 1, ErrorCode::ThrottledOp);
    restore(&server, &backup);
    eventually("the old data", async || {
        cache.synced().await.is_ok() && data_of(&cache, "/tree/node").as_deref() == Some(b"old")
    })
    .await;
    assert_eq!(server.refusals_left(), 0);
}
