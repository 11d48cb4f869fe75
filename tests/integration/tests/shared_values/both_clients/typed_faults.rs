//! Typed nodes with lost replies and lost requests.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use curator_framework::CreateMode;
use curator_integration::clients::is_zookeeper_async;
use curator_integration::env::{Env, connected, eventually, in_time};
use curator_integration::on_every_server;
use curator_recipes::{ModelError, ModelSpecOptions, ModeledNode};
use curator_test::FaultProxy;
use curator_test::wire::OpCode;

use crate::typed_stage::{User, through, told, user, users, users_with};

/// A node through a proxy, and the same one past it.
async fn node_and_other(env: &Env, options: ModelSpecOptions) -> (FaultProxy, ModeledNode<User>, ModeledNode<User>) {
    let (proxy, path) = (env.proxy(), env.path("users"));
    let other = env.client().await;
    other.create().creating_parents_if_needed().for_path(&path).await.unwrap();
    let node = users_with(&connected(through(&proxy)).await, &path, options).at("ada").unwrap();
    (proxy, node, users(&other, &path).at("ada").unwrap())
}

/// Loses the next reply, or the next request.
fn lose(proxy: &FaultProxy, op: OpCode, is_reply: bool) {
    match is_reply {
        true => proxy.drop_reply(op, 1),
        false => proxy.drop_request(op, 1),
    }
}

/// Loses the reply to a call, and lets another client do something before the client is connected again.
async fn overtaken<T: Send + 'static>(
    proxy: &FaultProxy,
    op: OpCode,
    call: impl Future<Output = T> + Send + 'static,
    does: impl Future<Output = ()>,
) -> T {
    let faults = proxy.faults_done();
    proxy.refuse();
    proxy.drop_reply(op, 1);
    let call = tokio::spawn(call);
    eventually("the reply is lost", async || proxy.faults_done() > faults).await;
    does.await;
    proxy.accept();
    in_time(call).await.unwrap()
}

fn is_unknown<T: std::fmt::Debug>(outcome: Result<T, ModelError>) {
    assert!(matches!(&outcome, Err(error) if error.outcome_unknown() && error.is_retryable()), "{outcome:?}");
}

on_every_server! {
    async fn lost_reply_does_not_change_the_outcome(env) {
        let (proxy, node, other) = node_and_other(&env, ModelSpecOptions::new()).await;
        for is_reply in [true, false] {
            let faults = proxy.faults_done();
            lose(&proxy, OpCode::Create2, is_reply);
            let stat = in_time(node.create(&user(1))).await.unwrap();
            assert_eq!(in_time(other.exists()).await.unwrap(), Some(stat));
            lose(&proxy, OpCode::SetData, is_reply);
            let stat = in_time(node.update(0, &user(2))).await.unwrap();
            assert_eq!((stat.version, in_time(other.exists()).await.unwrap()), (1, Some(stat)));
            lose(&proxy, OpCode::SetData, is_reply);
            let mut calls = 0;
            let changed = in_time(node.modify(|user| { calls += 1; user.logins += 1; Ok(()) })).await.unwrap();
            assert_eq!((&changed.value, changed.version), (&user(3), 2));
            assert_eq!((in_time(other.read()).await.unwrap(), calls), (changed, 1));
            lose(&proxy, OpCode::SetData, is_reply);
            // It may be written twice.
            in_time(node.set(&user(4))).await.unwrap();
            assert_eq!(in_time(other.read()).await.unwrap().value, user(4));
            lose(&proxy, OpCode::Delete, is_reply);
            in_time(node.delete()).await.unwrap();
            assert_eq!(in_time(other.exists()).await.unwrap(), None);
            lose(&proxy, OpCode::Create2, is_reply);
            in_time(node.set(&user(5))).await.unwrap();
            let read = in_time(other.read()).await.unwrap();
            assert_eq!(read.value, user(5));
            lose(&proxy, OpCode::Delete, is_reply);
            in_time(node.delete_version(read.version)).await.unwrap();
            assert_eq!(in_time(other.exists()).await.unwrap(), None);
            assert_eq!(proxy.faults_done() - faults, 7);
        }
    }

    async fn lost_reply_to_the_create_of_an_ephemeral_node_is_settled(env) {
        let (proxy, node, other) = node_and_other(&env, ModelSpecOptions::new().mode(CreateMode::Ephemeral)).await;
        lose(&proxy, OpCode::Create2, true);
        let stat = in_time(node.create(&user(1))).await.unwrap();
        assert_eq!((proxy.faults_done(), in_time(other.exists()).await.unwrap()), (1, Some(stat)));
    }

    async fn outcome_is_unknown_if_another_client_overtakes_a_lost_reply(env) {
        let (proxy, node, other) = node_and_other(&env, ModelSpecOptions::new()).await;
        let ours = || node.clone();
        // Written in between.
        let call = { let node = ours(); async move { node.create(&user(1)).await } };
        is_unknown(overtaken(&proxy, OpCode::Create2, call, async { other.set(&user(9)).await.map(drop).unwrap() }).await);
        let call = { let node = ours(); async move { node.update(1, &user(2)).await } };
        is_unknown(overtaken(&proxy, OpCode::SetData, call, async { other.set(&user(9)).await.map(drop).unwrap() }).await);
        // The closure is not called again.
        let calls = Arc::new(AtomicU32::new(0));
        let (node, counted) = (ours(), Arc::clone(&calls));
        let call = async move {
            node.modify(|user| { counted.fetch_add(1, Ordering::SeqCst); user.logins += 1; Ok(()) }).await
        };
        is_unknown(overtaken(&proxy, OpCode::SetData, call, async { other.set(&user(20)).await.map(drop).unwrap() }).await);
        assert_eq!((calls.load(Ordering::SeqCst), in_time(other.read()).await.unwrap().value), (1, user(20)));
    }

    async fn outcome_is_unknown_if_the_node_is_gone_behind_a_lost_reply(env) {
        let (proxy, node, other) = node_and_other(&env, ModelSpecOptions::new()).await;
        in_time(other.create(&user(1))).await.unwrap();
        let call = { let node = node.clone(); async move { node.update(0, &user(2)).await } };
        is_unknown(overtaken(&proxy, OpCode::SetData, call, async { other.delete().await.unwrap() }).await);
        // Created again by another one, with other data.
        let call = { let node = node.clone(); async move { node.create(&user(1)).await } };
        let again = async {
            other.delete().await.unwrap();
            other.create(&user(2)).await.map(drop).unwrap();
        };
        is_unknown(overtaken(&proxy, OpCode::Create2, call, again).await);
        // The delete is repeated on the new node, which has another version.
        in_time(other.set(&user(3))).await.unwrap();
        let call = { let node = node.clone(); async move { node.delete_version(1).await } };
        is_unknown(overtaken(&proxy, OpCode::Delete, call, async { other.create(&user(2)).await.map(drop).unwrap() }).await);
        assert_eq!(in_time(other.read()).await.unwrap().value, user(2));
    }

    async fn read_of_a_modification_is_repeated(env) {
        let (proxy, node, other) = node_and_other(&env, ModelSpecOptions::new()).await;
        in_time(other.create(&user(5))).await.unwrap();
        lose(&proxy, OpCode::GetData, true);
        let changed = in_time(node.modify(|user| { user.logins += 1; Ok(()) })).await.unwrap();
        assert_eq!((proxy.faults_done(), &changed.value, changed.version), (1, &user(6), 1));
        assert_eq!(in_time(other.read()).await.unwrap(), changed);
    }

    async fn node_that_vanishes_behind_the_listing_is_left_out(env) {
        let (proxy, path) = (env.proxy(), env.path("users"));
        let (others, ours) = (users(&env.client().await, &path), users(&connected(through(&proxy)).await, &path));
        for (key, logins) in [("a", 1), ("b", 2), ("c", 3)] {
            in_time(others.at(key).unwrap().create(&user(logins))).await.unwrap();
        }
        proxy.refuse();
        proxy.drop_request(if is_zookeeper_async() { OpCode::GetData } else { OpCode::MultiRead }, 1);
        let call = { let ours = ours.clone(); tokio::spawn(async move { ours.read_all().await }) };
        eventually("the request is lost", async || proxy.faults_done() == 1).await;
        in_time(others.at("b").unwrap().delete()).await.unwrap();
        proxy.accept();
        let read = in_time(call).await.unwrap().unwrap();
        assert_eq!(told(read), [("a".to_owned(), Ok(1)), ("c".to_owned(), Ok(3))]);
    }
}
