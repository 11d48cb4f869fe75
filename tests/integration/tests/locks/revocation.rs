//! A holder is asked to give its lock back.

use std::time::Duration;

use curator_framework::recipe::RecipeClient as _;
use curator_framework::{CreateMode, CuratorFramework};
use curator_integration::env::{builder, connected, eventually, in_time};
use curator_integration::on_every_server;
use curator_recipes::{
    InterProcessMultiLock, InterProcessMutex, InterProcessReadWriteLock, InterProcessSemaphoreV2, LockError,
    LockOptions, RevokeOutcome, Revoker,
};
use curator_test::wire::OpCode;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

/// Options of a lock that can be revoked, and the nodes that it is asked for.
fn revocable<K: Default>() -> (LockOptions<K>, UnboundedReceiver<String>) {
    let (asked, nodes) = unbounded_channel();
    let tell = move |node: &str| {
        // The test may have ended.
        drop(asked.send(node.to_owned()));
    };
    (LockOptions::new().revocable(tell), nodes)
}

async fn revoke(client: &CuratorFramework, node: &str) -> RevokeOutcome {
    in_time(Revoker::attempt_revoke(client, node)).await.unwrap()
}

on_every_server! {
    /// Curator's `TestInterProcessMutex.testRevoking`.
    async fn the_listener_is_told_and_the_lock_changes_hands(env) {
        let path = env.path("lock");
        let (first, second) = (env.client().await, env.client().await);
        let (options, mut asked) = revocable();
        // The nodes of a revocable lock start empty, as Curator's.
        let mutex = InterProcessMutex::with_options(first, &path, options.data("not written")).unwrap();
        let guard = mutex.acquire().await.unwrap();
        let nodes = mutex.participant_nodes().await.unwrap();
        assert_eq!(nodes, [guard.node_path()]);
        assert_eq!(second.get_data().for_path(guard.node_path()).await.unwrap().0, b"");
        let other = InterProcessMutex::new(second.clone(), &path).unwrap();
        let waiter = tokio::spawn(async move { other.acquire().await.unwrap() });
        env.wait_for_children(&second, &path, 2).await;
        assert_eq!(revoke(&second, &nodes[0]).await, RevokeOutcome::Requested);
        assert_eq!(in_time(asked.recv()).await.unwrap(), nodes[0]);
        in_time(guard.revocation_requested()).await;
        assert_eq!(second.get_data().for_path(guard.node_path()).await.unwrap().0, b"__REVOKE__");
        assert!(guard.is_held() && !waiter.is_finished(), "nothing is forced");
        assert!(guard.release().await.unwrap().is_released());
        assert!(in_time(waiter).await.unwrap().release().await.unwrap().is_released());
        assert_eq!(revoke(&second, &nodes[0]).await, RevokeOutcome::NodeGone);
    }

    async fn a_guard_tells_without_a_listener(env) {
        let client = env.client().await;
        let mutex = InterProcessMutex::new(client.clone(), env.path("mutex")).unwrap();
        let rw = InterProcessReadWriteLock::new(client.clone(), env.path("rw")).unwrap();
        let semaphore = InterProcessSemaphoreV2::new(client.clone(), env.path("semaphore"), 2).unwrap();
        let multi = InterProcessMultiLock::new(client.clone(), [env.path("one"), env.path("two")]).unwrap();
        let writing = rw.write_lock().acquire().await.unwrap();
        let reading = in_time(writing.downgrade()).await.unwrap();
        let guards: [curator_recipes::LockGuard; 4] = [
            mutex.acquire().await.unwrap().into(),
            reading.into(),
            semaphore.acquire().await.unwrap().into(),
            multi.acquire().await.unwrap().into(),
        ];
        for guard in &guards {
            // Of a multi lock any part.
            let node = guard.parts().last().unwrap().node_path().to_owned();
            let asked = guard.revocation_requested();
            tokio::pin!(asked);
            assert!(futures_util::FutureExt::now_or_never(asked.as_mut()).is_none());
            // Other data is not a request.
            client.set_data().for_path(&node, "something").await.unwrap();
            eventually("it is watched again", async || client.watched_paths().contains(&node)).await;
            assert!(futures_util::FutureExt::now_or_never(asked.as_mut()).is_none());
            assert_eq!(revoke(&client, &node).await, RevokeOutcome::Requested);
            in_time(asked).await;
            // A later call resolves too.
            in_time(guard.revocation_requested()).await;
            assert!(guard.release().await.unwrap().is_released());
        }
    }

    /// The marker is there before the first read.
    async fn a_request_before_the_first_look_is_told(env) {
        let path = env.path("lock");
        let client = env.client().await;
        let guard = InterProcessMutex::new(client.clone(), &path).unwrap().acquire().await.unwrap();
        assert_eq!(revoke(&client, guard.node_path()).await, RevokeOutcome::Requested);
        in_time(guard.revocation_requested()).await;
        assert!(guard.release().await.unwrap().is_released());

        // Between the create of the node and the watch on it.
        let proxy = env.proxy();
        let far = connected(builder(proxy.address()).session_timeout(Duration::from_secs(30))).await;
        let (options, mut asked) = revocable();
        let mutex = InterProcessMutex::with_options(far, &path, options).unwrap();
        proxy.refuse();
        proxy.drop_request(OpCode::GetChildren, 1);
        let acquire = tokio::spawn(async move { mutex.acquire().await.unwrap() });
        in_time(proxy.wait_for_faults(1)).await;
        let node = format!("{path}/{}", env.wait_for_children(&client, &path, 1).await[0]);
        assert_eq!(revoke(&client, &node).await, RevokeOutcome::Requested);
        proxy.accept();
        let guard = in_time(acquire).await.unwrap();
        assert_eq!(in_time(asked.recv()).await.unwrap(), node);
        assert_eq!(guard.node_path(), node);
        in_time(guard.revocation_requested()).await;
        assert!(guard.release().await.unwrap().is_released());
        assert!(asked.try_recv().is_err(), "one request, told once");
    }

    async fn a_waiting_contender_is_told_too(env) {
        let path = env.path("lock");
        let (first, second) = (env.client().await, env.client().await);
        let held = InterProcessMutex::new(first.clone(), &path).unwrap().acquire().await.unwrap();
        let (options, mut asked) = revocable();
        let mutex = InterProcessMutex::with_options(second.clone(), &path, options).unwrap();
        let waiter = { let mutex = mutex.clone(); tokio::spawn(async move { mutex.acquire().await.unwrap() }) };
        env.wait_for_children(&first, &path, 2).await;
        let waiting = mutex.participant_nodes().await.unwrap().pop().unwrap();
        assert_eq!(revoke(&first, &waiting).await, RevokeOutcome::Requested);
        assert_eq!(in_time(asked.recv()).await.unwrap(), waiting);
        assert!(!waiter.is_finished(), "it waits on");
        assert!(held.release().await.unwrap().is_released());
        let guard = in_time(waiter).await.unwrap();
        assert_eq!(guard.node_path(), waiting);
        in_time(guard.revocation_requested()).await;
        // A further request reaches the holder.
        assert_eq!(revoke(&first, &waiting).await, RevokeOutcome::RequestedAgain);
        assert_eq!(in_time(asked.recv()).await.unwrap(), waiting);
        assert!(guard.release().await.unwrap().is_released());
    }

    async fn a_repeated_request_is_told_again_and_a_reconnect_is_none(env) {
        let path = env.path("lock");
        let proxy = env.proxy();
        let direct = env.client().await;
        let client = connected(builder(proxy.address()).session_timeout(Duration::from_secs(30))).await;
        let (options, mut asked) = revocable();
        let mutex = InterProcessMutex::with_options(client.clone(), &path, options).unwrap();
        let guard = mutex.acquire().await.unwrap();
        let is_watched = async || client.is_connected() && client.watchers() == 1;
        for outcome in [RevokeOutcome::Requested, RevokeOutcome::RequestedAgain] {
            eventually("the node is watched", is_watched).await;
            assert_eq!(revoke(&direct, guard.node_path()).await, outcome);
            assert_eq!(in_time(asked.recv()).await.unwrap(), guard.node_path());
        }
        for _ in 0..3 {
            let connections = proxy.total_connections();
            proxy.reset();
            in_time(proxy.wait_for_connections(connections + 1)).await;
            eventually("the node is watched again", is_watched).await;
        }
        // Listeners are called in order: had a reconnect been one, it would come before this.
        assert_eq!(revoke(&direct, guard.node_path()).await, RevokeOutcome::RequestedAgain);
        assert_eq!(in_time(asked.recv()).await.unwrap(), guard.node_path());
        assert_eq!(guard.release().await.unwrap(), curator_recipes::Release::Released);
        // The next hold was asked for nothing, and can be.
        let next = mutex.acquire().await.unwrap();
        assert_eq!(revoke(&direct, next.node_path()).await, RevokeOutcome::Requested);
        assert_eq!(in_time(asked.recv()).await.unwrap(), next.node_path(), "the lock stays revocable");
        assert!(asked.try_recv().is_err());
        assert!(next.release().await.unwrap().is_released());
    }

    async fn a_read_lock_that_was_a_write_lock_is_revocable_too(env) {
        let client = env.client().await;
        let (options, mut asked) = revocable();
        let lock = InterProcessReadWriteLock::with_options(client.clone(), env.path("lock"), options).unwrap();
        let writing = lock.write_lock().acquire().await.unwrap();
        let reading = in_time(writing.downgrade()).await.unwrap();
        assert_eq!(client.get_data().for_path(reading.node_path()).await.unwrap().0, b"");
        assert_eq!(revoke(&client, reading.node_path()).await, RevokeOutcome::Requested);
        assert_eq!(in_time(asked.recv()).await.unwrap(), reading.node_path());
        in_time(reading.revocation_requested()).await;
        assert!(reading.release().await.unwrap().is_released());
    }

    async fn a_node_that_is_not_a_contenders_is_refused_and_unchanged(env) {
        let client = env.client().await;
        let folder = env.path("production");
        let cases = [
            ("database-url", CreateMode::Persistent, "it is not ephemeral"),
            ("order-", CreateMode::PersistentSequential, "it is not ephemeral"),
            ("worker-7", CreateMode::Ephemeral, "its name does not end in a sequence number"),
            // A request would overwrite the latch's id.
            ("latch-", CreateMode::EphemeralSequential, "it belongs to a leader latch"),
        ];
        for (name, mode, reason) in cases {
            let create = client.create().creating_parents_if_needed().with_mode(mode).with_data("secret");
            let node = create.for_path(&format!("{folder}/{name}")).await.unwrap();
            let refused = in_time(Revoker::attempt_revoke(&client, &node)).await;
            let Err(error @ LockError::InvalidArgument { .. }) = &refused else { panic!("{node}: {refused:?}") };
            let wanted = format!("invalid node to revoke: {node} is not the node of a contender: {reason}");
            assert_eq!(error.to_string(), wanted);
            let (data, stat) = client.get_data().for_path(&node).await.unwrap();
            assert_eq!((data.as_slice(), stat.version), (&b"secret"[..], 0), "{node}");
        }
    }

    /// The first write is applied, and its reply lost: the second try must not request the release again.
    async fn a_request_with_a_lost_reply_is_made_once(env) {
        let proxy = env.proxy();
        let (holder, far) = (env.client().await, connected(builder(proxy.address())).await);
        let guard = InterProcessMutex::new(holder.clone(), env.path("lock")).unwrap().acquire().await.unwrap();
        proxy.drop_reply(OpCode::SetData, 1);
        assert_eq!(revoke(&far, guard.node_path()).await, RevokeOutcome::Requested);
        let (data, stat) = holder.get_data().for_path(guard.node_path()).await.unwrap();
        assert_eq!((data.as_slice(), stat.version), (&b"__REVOKE__"[..], 1));
        assert_eq!(revoke(&far, guard.node_path()).await, RevokeOutcome::RequestedAgain);
        assert!(guard.release().await.unwrap().is_released());
    }

    async fn a_node_that_changes_before_the_write_is_read_again(env) {
        let proxy = env.proxy();
        let (holder, far) = (env.client().await, connected(builder(proxy.address())).await);
        let guard = InterProcessMutex::new(holder.clone(), env.path("lock")).unwrap().acquire().await.unwrap();
        proxy.drop_request(OpCode::SetData, 1);
        proxy.refuse();
        let asks = { let node = guard.node_path().to_owned(); tokio::spawn(async move { revoke(&far, &node).await }) };
        in_time(proxy.wait_for_faults(1)).await;
        holder.set_data().for_path(guard.node_path(), "progress: 7 of 9").await.unwrap();
        proxy.accept();
        assert_eq!(in_time(asks).await.unwrap(), RevokeOutcome::Requested);
        let (data, stat) = holder.get_data().for_path(guard.node_path()).await.unwrap();
        assert_eq!((data.as_slice(), stat.version), (&b"__REVOKE__"[..], 2));
        assert!(guard.release().await.unwrap().is_released());
    }

    /// A request without a connection is reported after the reconnect.
    async fn a_request_during_an_outage_is_told_afterwards(env) {
        let proxy = env.proxy();
        let direct = env.client().await;
        let client = connected(builder(proxy.address()).session_timeout(Duration::from_secs(30))).await;
        let (options, mut asked) = revocable();
        let mutex = InterProcessMutex::with_options(client.clone(), env.path("lock"), options).unwrap();
        let guard = mutex.acquire().await.unwrap();
        eventually("the node is watched", async || client.watchers() == 1).await;
        proxy.refuse();
        proxy.reset();
        eventually("the connection is down", async || !client.is_connected()).await;
        assert_eq!(revoke(&direct, guard.node_path()).await, RevokeOutcome::Requested);
        proxy.accept();
        assert_eq!(in_time(asked.recv()).await.unwrap(), guard.node_path());
        in_time(guard.revocation_requested()).await;
        assert!(guard.is_held());
        assert!(guard.release().await.unwrap().is_released());
    }
}
