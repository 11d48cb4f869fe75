//! Curator's `TestDistributedDoubleBarrier`, on both servers.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use curator_framework::CuratorFramework;
use curator_framework::recipe::RecipeClient as _;
use curator_integration::env::{Env, PATIENCE, builder, children, connected, eventually, in_time};
use curator_integration::on_every_server;
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use crate::double_stage::barrier;

const MEMBERS: usize = 5;

/// Lets as many members as there are clients enter and leave, and checks that none enters or leaves alone.
async fn enter_and_leave(clients: Vec<CuratorFramework>, path: &str) {
    let members = clients.len();
    let (inside, all_inside) = (Arc::new(AtomicUsize::new(0)), Arc::new(Barrier::new(members)));
    let (begun, left) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let mut tasks = JoinSet::new();
    for client in clients {
        let barrier = barrier(&client, path, members);
        let (inside, all_inside, begun, left) = (inside.clone(), all_inside.clone(), begun.clone(), left.clone());
        tasks.spawn(async move {
            begun.fetch_add(1, Ordering::SeqCst);
            let member = barrier.enter_timeout(PATIENCE).await.unwrap().expect("all members enter");
            assert_eq!(begun.load(Ordering::SeqCst), members);
            inside.fetch_add(1, Ordering::SeqCst);
            in_time(all_inside.wait()).await;
            assert_eq!(inside.load(Ordering::SeqCst), members);
            in_time(all_inside.wait()).await;
            inside.fetch_sub(1, Ordering::SeqCst);
            let departure = member.leave_timeout(PATIENCE).await.unwrap().expect("all members leave");
            assert_eq!(inside.load(Ordering::SeqCst), 0);
            assert_eq!(departure.died, 0);
            left.fetch_add(1, Ordering::SeqCst);
        });
    }
    tasks.join_all().await;
    assert_eq!(left.load(Ordering::SeqCst), members);
}

async fn clients(env: &Env, count: usize) -> Vec<CuratorFramework> {
    let mut clients = Vec::new();
    for _ in 0..count {
        clients.push(env.client().await);
    }
    clients
}

on_every_server! {
    /// `TestDistributedDoubleBarrier.testMultiClient`.
    async fn members_of_five_clients_enter_together_and_leave_together(env) {
        let path = env.path("barrier");
        enter_and_leave(clients(&env, MEMBERS).await, &path).await;
        assert_eq!(children(&env.client().await, &path).await, [""; 0]);
    }

    /// `TestDistributedDoubleBarrier.testSpuriousWakeup`. A waiter here is woken by the server alone.
    async fn waiter_that_is_woken_for_nothing_does_not_enter(env) {
        let (path, other) = (env.path("barrier"), env.client().await);
        let proxy = env.proxy();
        let client = connected(builder(proxy.address())).await;
        let waiting = barrier(&client, &path, 2);
        let mut waiter = tokio::spawn(async move { waiting.enter_timeout(PATIENCE).await });
        env.wait_for_children(&other, &path, 1).await;
        for round in 0..3 {
            eventually("the waiter watches", async || client.watchers() > 0).await;
            other.set_data().for_path(&path, "2").await.unwrap();
            let unrelated = format!("{path}/unrelated-{round}");
            other.create().for_path(&unrelated).await.unwrap();
            other.delete().for_path(&unrelated).await.unwrap();
            let connections = proxy.total_connections();
            proxy.reset();
            in_time(proxy.wait_for_connections(connections + 1)).await;
            in_time(client.block_until_connected()).await.unwrap();
            let woken = tokio::time::timeout(Duration::from_millis(20), &mut waiter).await;
            assert!(woken.is_err(), "{woken:?}");
        }
        let second = barrier(&other, &path, 2).enter_timeout(PATIENCE).await.unwrap().expect("it enters");
        let first = in_time(waiter).await.unwrap().unwrap().expect("it enters");
        let (first, second) = in_time(async { tokio::join!(first.leave(), second.leave()) }).await;
        // The other child was deleted without a write, as the node of a member that dies.
        assert_eq!(first.unwrap().died, 3);
        assert_eq!(second.unwrap().died, 0);
    }

    /// `TestDistributedDoubleBarrier.testOverSubscribed`.
    async fn one_member_more_than_wanted_enters_and_leaves_too(env) {
        let (client, path) = (env.client().await, env.path("barrier"));
        let all_inside = Arc::new(Barrier::new(MEMBERS + 1));
        let mut tasks = JoinSet::new();
        for _ in 0..=MEMBERS {
            let (barrier, all_inside) = (barrier(&client, &path, MEMBERS), all_inside.clone());
            tasks.spawn(async move {
                let member = barrier.enter_timeout(PATIENCE).await.unwrap().expect("all members enter");
                in_time(all_inside.wait()).await;
                member.leave_timeout(PATIENCE).await.unwrap().expect("all members leave")
            });
        }
        for departure in tasks.join_all().await {
            assert_eq!(departure.died, 0);
        }
        assert_eq!(children(&client, &path).await, [""; 0]);
    }

    /// `TestDistributedDoubleBarrier.testBasic`.
    async fn members_of_one_client_enter_together_and_leave_together(env) {
        let (client, path) = (env.client().await, env.path("barrier"));
        enter_and_leave(vec![client.clone(); MEMBERS], &path).await;
        assert_eq!(children(&client, &path).await, [""; 0]);
    }
}
