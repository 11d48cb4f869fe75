//! The limit on a session's ephemeral nodes, which protects the ensemble.

use std::future::ready;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use curator_framework::spi::Request;
use curator_framework::{Chain, CreateMode, CuratorFramework, CuratorOp, Error};
use curator_integration::clients::is_zookeeper_async;
use curator_integration::env::{Env, Kind, builder, connected, eventually, in_time};
use curator_integration::on_every_server;
use curator_integration::refusals::RefusingFactory;
use curator_recipes::{
    InterProcessMutex, LeaderLatch, LeaderSelector, LeaderState, Leadership, LockError, NodeState, Partition,
    PartitionOptions, PersistentNode,
};
use futures_util::future::{join, join_all};
use parking_lot::Mutex;

/// The bytes that the paths of a session's first nodes may take: three of ten characters, with four bytes each.
const THREE: usize = 3 * 14;
const PATHS: [&str; 3] = ["/limit---1", "/limit---2", "/limit---3"];
const NEXT: &str = "/limit---4";

/// A client of one server. Its session may have as many bytes of ephemeral nodes.
async fn limited(env: &Env, bytes: usize) -> CuratorFramework {
    connected(builder(env.address()).max_ephemeral_bytes(bytes)).await
}

/// Such a client. Its session has all the nodes that it may have.
async fn full(env: &Env) -> CuratorFramework {
    let client = limited(env, THREE).await;
    for path in PATHS {
        create(&client, path).await.unwrap();
    }
    client
}

async fn create(client: &CuratorFramework, path: &str) -> Result<String, Error> {
    in_time(client.create().with_mode(CreateMode::Ephemeral).for_path(path)).await
}

async fn delete(client: &CuratorFramework, path: &str) {
    in_time(client.delete().for_path(path)).await.unwrap();
}

#[track_caller]
fn is_too_many<T: std::fmt::Debug>(refused: Result<T, Error>, bytes: usize, limit: usize) {
    match refused {
        Err(Error::TooManyEphemeralNodes { bytes: needed, limit: allowed }) => {
            assert_eq!((needed, allowed), (bytes, limit));
        }
        other => panic!("{other:?}"),
    }
}

/// Fills a session up to this number of bytes, with the node `/filler---…`.
async fn fill(client: &CuratorFramework, limit: usize, left: usize) -> String {
    let path = format!("/filler{}", "-".repeat(limit - left - "/filler".len() - 4));
    create(client, &path).await.unwrap()
}

on_every_server! {
    async fn nodes_above_the_limit_are_refused_until_one_is_deleted(env) {
        let env = env.alone();
        let client = full(&env).await;
        is_too_many(create(&client, NEXT).await, THREE + 14, THREE);
        assert!(client.check_exists().for_path(NEXT).await.unwrap().is_none());
        // Other nodes are not counted.
        client.create().for_path("/limit---5").await.unwrap();
        delete(&client, PATHS[0]).await;
        // One byte more than the deleted node.
        is_too_many(create(&client, "/limit---10").await, THREE + 1, THREE);
        create(&client, NEXT).await.unwrap();
        is_too_many(create(&client, "/a").await, THREE + 6, THREE);
    }

    async fn next_session_starts_with_no_nodes(env) {
        let env = env.alone();
        let client = full(&env).await;
        let session = client.session().await.unwrap();
        env.kill_session(&session).await;
        in_time(session.ended()).await;
        for path in PATHS {
            eventually("the node is created", async || create(&client, path).await.is_ok()).await;
        }
        is_too_many(create(&client, NEXT).await, THREE + 14, THREE);
    }

    async fn number_of_a_sequential_node_is_counted(env) {
        let env = env.alone();
        let limit = "/limit-".len() + 10 + 4;
        let client = limited(&env, limit).await;
        let ask = async || {
            let builder = client.create().with_mode(CreateMode::EphemeralSequential);
            in_time(builder.for_path("/limit-")).await
        };
        let created = ask().await.unwrap();
        is_too_many(ask().await, 2 * limit, limit);
        delete(&client, &created).await;
        ask().await.unwrap();
        let smaller = limited(&env, limit - 1).await;
        let refused = smaller.create().with_mode(CreateMode::EphemeralSequential).for_path("/limit-").await;
        is_too_many(refused, limit, limit - 1);
    }

    async fn transactions_count(env) {
        if is_zookeeper_async() {
            return;
        }
        let env = env.alone();
        let client = limited(&env, THREE).await;
        let node = |path: &str| CuratorOp::create(path).with_mode(CreateMode::Ephemeral);
        let commit = async |operations: Vec<CuratorOp>| client.transaction().operations(operations).commit().await;
        is_too_many(commit(vec![node(PATHS[0]), node(PATHS[1]), node(PATHS[2]), node(NEXT)]).await, THREE + 14, THREE);
        commit(vec![node(PATHS[0]), node(PATHS[1])]).await.unwrap();
        commit(vec![node(NEXT), node(PATHS[1])]).await.unwrap_err();
        commit(vec![CuratorOp::create("/persistent"), node(PATHS[2])]).await.unwrap();
        is_too_many(commit(vec![node(NEXT)]).await, THREE + 14, THREE);
        // It replaces a node.
        commit(vec![node(NEXT), CuratorOp::delete(PATHS[0])]).await.unwrap();
        is_too_many(create(&client, PATHS[0]).await, THREE + 14, THREE);
        commit(vec![CuratorOp::delete(PATHS[1]), CuratorOp::delete("/persistent")]).await.unwrap();
        create(&client, PATHS[0]).await.unwrap();
    }

    async fn concurrent_creates_do_not_exceed_the_limit(env) {
        let env = env.alone();
        let client = limited(&env, THREE).await;
        let paths: Vec<_> = (10..30).map(|number| format!("/limit--{number}")).collect();
        let created = join_all(paths.iter().map(|path| create(&client, path))).await;
        assert_eq!(created.iter().filter(|created| created.is_ok()).count(), 3, "{created:?}");
    }

    async fn node_that_another_client_has_deleted_is_not_counted(env) {
        let env = env.alone();
        let (client, other) = (full(&env).await, env.client().await);
        delete(&other, PATHS[0]).await;
        if is_zookeeper_async() {
            // It cannot ask for the list.
            return is_too_many(create(&client, NEXT).await, THREE + 14, THREE);
        }
        create(&client, NEXT).await.unwrap();
        // The next list comes after a pause.
        is_too_many(create(&client, PATHS[0]).await, THREE + 14, THREE);
        delete(&other, PATHS[1]).await;
        eventually("the node is created", async || create(&client, PATHS[0]).await.is_ok()).await;
        is_too_many(create(&client, PATHS[1]).await, THREE + 14, THREE);
    }

    /// Reads that are sent after a create must show it, so a pinned session does not send the create later.
    async fn pinned_session_keeps_its_order_beside_a_new_count(env) {
        if is_zookeeper_async() {
            return;
        }
        let env = env.alone();
        let (client, other) = (full(&env).await, env.client().await);
        delete(&other, PATHS[0]).await;
        let at = client.session().await.unwrap().pinned();
        let both = || join(at.create(NEXT, Vec::new(), at.acl_for(NEXT), CreateMode::Ephemeral), at.exists(NEXT));
        let (created, found) = in_time(at.in_one_write(both())).await;
        assert!(matches!(created, Err(Error::ConnectionLoss { sent: false, .. })), "{created:?}");
        assert!(found.unwrap().is_none());
        let (created, found) = in_time(at.in_one_write(both())).await;
        assert_eq!(found.unwrap(), Some(created.unwrap().1));
        let (refused, _) = in_time(at.in_one_write(both())).await;
        is_too_many(refused, THREE + 14, THREE);
    }

    async fn lock_is_acquired_when_another_client_has_deleted_a_node_of_the_session(env) {
        if is_zookeeper_async() {
            return;
        }
        let env = env.alone();
        let (client, other) = (limited(&env, 120).await, env.client().await);
        let filler = fill(&client, 120, 20).await;
        delete(&other, &filler).await;
        let lock = InterProcessMutex::new(client, "/limit-a").unwrap();
        assert!(in_time(lock.acquire()).await.unwrap().release().await.unwrap().is_released());
    }

    async fn create_that_was_not_awaited_is_not_counted_when_its_node_has_gone(env) {
        if is_zookeeper_async() {
            return;
        }
        let env = env.alone();
        let (client, other) = (limited(&env, THREE).await, env.client().await);
        for path in PATHS {
            let mut dropped = pin!(client.create().with_mode(CreateMode::Ephemeral).for_path(path));
            tokio::select! {
                biased;
                _ = &mut dropped => {}
                () = ready(()) => {}
            }
        }
        // Its answer comes after the answers to the creates.
        client.check_exists().for_path("/").await.unwrap();
        is_too_many(create(&client, NEXT).await, THREE + 14, THREE);
        for path in PATHS {
            delete(&other, path).await;
        }
        for path in PATHS {
            eventually("the node is created", async || create(&client, path).await.is_ok()).await;
        }
    }

    async fn node_that_is_now_of_another_session_is_not_counted(env) {
        let env = env.alone();
        let (client, other) = (full(&env).await, env.client().await);
        // The list of the server is used up for a while.
        is_too_many(create(&client, NEXT).await, THREE + 14, THREE);
        delete(&other, PATHS[0]).await;
        create(&other, PATHS[0]).await.unwrap();
        eventually("the read shows the other node", async || {
            let stat = client.check_exists().for_path(PATHS[0]).await.unwrap().unwrap();
            Some(stat.ephemeral_owner) != client.session().await.unwrap().id().map(|id| id.get())
        })
        .await;
        create(&client, NEXT).await.unwrap();
    }

    async fn acquire_above_the_limit_fails_at_once_and_a_kept_node_waits_for_room(env) {
        let env = env.alone();
        let client = limited(&env, 120).await;
        let [one, two] = ["/limit-a", "/limit-b"].map(|path| InterProcessMutex::new(client.clone(), path).unwrap());
        let held = one.acquire().await.unwrap();
        let refused = in_time(two.acquire()).await.unwrap_err();
        assert!(matches!(refused, LockError::Framework(Error::TooManyEphemeralNodes { .. })), "{refused:?}");
        assert!(!refused.is_retryable() && !refused.outcome_unknown());
        let text = Chain(&refused).to_string();
        assert!(text.contains("the ephemeral nodes of the session would take"), "{text}");
        let path = "/limit-of-a-node-that-has-a-very-long-name-and-does-not-fit";
        let node = PersistentNode::new(client.clone(), path, "").unwrap();
        node.start().unwrap();
        in_time(node.watch().wait_for(|state| matches!(state, NodeState::Failed(_)))).await.unwrap();
        assert!(held.release().await.unwrap().is_released());
        in_time(node.watch().wait_for(|state| matches!(state, NodeState::Standing(_)))).await.unwrap();
        in_time(node.close()).await;
        assert!(in_time(two.acquire()).await.unwrap().is_held());
    }

    /// The member's node takes some 25 bytes, and each lock node 75.
    async fn partition_keeps_its_items_while_another_one_does_not_fit(env) {
        let env = env.alone();
        let limit = 1000;
        let client = limited(&env, limit).await;
        let all = fill(&client, limit, 5).await;
        let items = ["a", "b", "c"].map(str::to_owned);
        let options = PartitionOptions::new().settle(Duration::from_millis(100));
        let partition = Partition::with_options(client.clone(), "/limit", "ann", items, options).unwrap();
        let begun = Arc::new(Mutex::new(Vec::new()));
        let of_run = Arc::clone(&begun);
        let run = tokio::spawn(async move {
            partition
                .run(async |item| {
                    of_run.lock().push(item.name().to_owned());
                    item.revoked().await;
                })
                .await
        });
        // Not even the member's node fits, and the run continues.
        tokio::time::sleep(Duration::from_millis(500)).await;
        assert!(!run.is_finished() && begun.lock().is_empty());
        delete(&client, &all).await;
        let some = fill(&client, limit, 200).await;
        eventually("two items are owned", async || begun.lock().len() == 2).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(!run.is_finished() && begun.lock().len() == 2, "{begun:?}");
        delete(&client, &some).await;
        eventually("all items are owned", async || begun.lock().len() == 3).await;
        begun.lock().sort();
        assert_eq!(*begun.lock(), ["a", "b", "c"]);
        run.abort();
    }

    async fn candidates_join_when_their_nodes_fit(env) {
        let env = env.alone();
        let limit = 1000;
        let client = limited(&env, limit).await;
        let filler = fill(&client, limit, 20).await;
        let latch = LeaderLatch::new(client.clone(), "/limit-latch").unwrap();
        let selector = LeaderSelector::new(client.clone(), "/limit-selector").unwrap();
        latch.start().unwrap();
        let running = selector.clone();
        let run = tokio::spawn(async move {
            running.run(async |_: Leadership| { std::future::pending::<()>().await; Ok::<_, Error>(()) }).await
        });
        in_time(latch.watch().wait_for(|state| matches!(state, LeaderState::Failed(_)))).await.unwrap();
        in_time(selector.watch().wait_for(|state| matches!(state, LeaderState::Abstaining))).await.unwrap();
        assert!(!run.is_finished());
        delete(&client, &filler).await;
        in_time(latch.watch().wait_for(|state| matches!(state, LeaderState::Leading(_)))).await.unwrap();
        in_time(selector.watch().wait_for(|state| matches!(state, LeaderState::Leading(_)))).await.unwrap();
        in_time(latch.close()).await;
        run.abort();
    }
}

/// A client that asks a closure about each list of its nodes. Its session has all the nodes that it may have.
async fn asking(env: &Env, answer: impl Fn() -> Option<Error> + Send + Sync + 'static) -> CuratorFramework {
    let factory = RefusingFactory::new(move |request| match request {
        Request::GetEphemerals { .. } => answer(),
        _ => None,
    });
    let client = connected(builder(env.address()).zookeeper_factory(factory).max_ephemeral_bytes(THREE)).await;
    for path in PATHS {
        create(&client, path).await.unwrap();
    }
    client
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lists_of_a_session_have_pauses() {
    let env = Env::new(Kind::InProcess);
    let lists = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&lists);
    let client = asking(&env, move || {
        count.fetch_add(1, Ordering::Relaxed);
        None
    })
    .await;
    let begun = Instant::now();
    for _ in 0..10 {
        let refused = join_all((0..20).map(|_| create(&client, NEXT))).await;
        for refused in refused {
            is_too_many(refused, THREE + 14, THREE);
        }
    }
    let (lists, most) = (lists.load(Ordering::Relaxed), 1 + begun.elapsed().as_secs() as usize);
    assert!((1..=most).contains(&lists), "{lists}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn server_before_3_6_is_asked_for_one_list() {
    let env = Env::new(Kind::InProcess);
    let lists = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&lists);
    let client = asking(&env, move || {
        count.fetch_add(1, Ordering::Relaxed);
        let request = "getEphemerals /".into();
        Some(Error::Unsupported { request, client: "the server", needed: "ZooKeeper 3.6 or newer" })
    })
    .await;
    is_too_many(create(&client, NEXT).await, THREE + 14, THREE);
    tokio::time::sleep(Duration::from_millis(1100)).await;
    is_too_many(create(&client, NEXT).await, THREE + 14, THREE);
    assert_eq!(lists.load(Ordering::Relaxed), 1);
    delete(&client, PATHS[0]).await;
    create(&client, NEXT).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn create_is_retried_when_the_connection_of_its_list_is_lost() {
    let env = Env::new(Kind::InProcess);
    let lost = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&lost);
    let client = asking(&env, move || {
        let is_first = count.fetch_add(1, Ordering::Relaxed) == 0;
        is_first.then(|| Error::ConnectionLoss { request: "getEphemerals /".into(), sent: true, cause: None })
    })
    .await;
    let session = client.session().await.unwrap();
    delete(&env.client().await, PATHS[0]).await;
    let refused = session.create(NEXT, Vec::new(), session.acl_for(NEXT), CreateMode::Ephemeral).await.unwrap_err();
    assert!(matches!(refused, Error::ConnectionLoss { sent: false, .. }), "{refused:?}");
    create(&client, NEXT).await.unwrap();
}

#[cfg(curator_mutants)]
#[test]
fn forgotten_node_of_a_transaction_is_found() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let created = curator_framework::mutants::with("forget-the-nodes-of-a-transaction", || {
        runtime.block_on(async {
            let env = Env::new(Kind::InProcess);
            let client = limited(&env, 14).await;
            let operation = CuratorOp::create(PATHS[0]).with_mode(CreateMode::Ephemeral);
            client.transaction().operation(operation).commit().await.unwrap();
            create(&client, PATHS[1]).await
        })
    });
    assert!(created.is_ok(), "{created:?}");
}
