//! Barriers that one process sets and others wait at.

use curator_framework::recipe::RecipeClient as _;
use std::time::Duration;

use curator_integration::env::{Env, eventually, in_time};
use curator_integration::on_every_server;
use curator_recipes::DistributedBarrier;

use crate::peer::{Language, Peer, Thread};

const SESSION: Duration = Duration::from_secs(30);
const MILLIS: u32 = 30_000;

/// A barrier of a process.
struct Remote<'a> {
    path: &'a str,
    thread: Thread,
}

impl Remote<'_> {
    async fn ask(&mut self, what: &str) -> String {
        self.thread.ask(&format!("barrier {} {what}", self.path)).await
    }
}

/// Each of both sets and removes a barrier at which both wait.
async fn both_set_and_wait(env: &Env, language: Language) {
    let peer = Peer::start(language, env.address(), SESSION).await;
    let (client, path) = (env.client().await, env.path("barrier"));
    let barrier = DistributedBarrier::new(client.clone(), &path).unwrap();
    let mut theirs = Remote { path: &path, thread: peer.thread("theirs") };
    let mut waiter = peer.thread("waiter");
    // A barrier without a node is open.
    assert_eq!(theirs.ask("wait 1000").await, "true");
    assert!(in_time(barrier.wait_on_barrier_timeout(Duration::ZERO)).await.unwrap().is_some());
    for (is_set_by_us, is_removed_by_us) in [(true, true), (true, false), (false, true), (false, false)] {
        match is_set_by_us {
            true => in_time(barrier.set_barrier()).await.unwrap(),
            false => assert_eq!(theirs.ask("set").await, "set"),
        }
        assert!(in_time(barrier.is_set()).await.unwrap());
        // To set it once more changes nothing.
        in_time(barrier.set_barrier()).await.unwrap();
        assert_eq!(theirs.ask("set").await, "set");
        assert!(in_time(barrier.wait_on_barrier_timeout(Duration::from_millis(50))).await.unwrap().is_none());
        assert_eq!(theirs.ask("wait 50").await, "false");
        waiter.begin(&format!("barrier {path} wait {MILLIS}"));
        let waiting = tokio::spawn({
            let barrier = barrier.clone();
            async move { barrier.wait_on_barrier().await }
        });
        eventually("our waiter watches", async || client.watchers() == 1).await;
        assert!(waiter.is_silent() && !waiting.is_finished());
        match is_removed_by_us {
            true => in_time(barrier.remove_barrier()).await.unwrap(),
            false => assert_eq!(theirs.ask("remove").await, "removed"),
        }
        in_time(waiting).await.unwrap().unwrap();
        waiter.says("true").await;
        // To remove it once more changes nothing.
        in_time(barrier.remove_barrier()).await.unwrap();
        assert_eq!(theirs.ask("remove").await, "removed");
    }
    peer.end().await;
}

on_every_server! {
    async fn java_and_rust_set_and_wait_at_one_barrier(env) {
        both_set_and_wait(&env, Language::Java).await;
    }

    async fn kazoo_and_rust_set_and_wait_at_one_barrier(env) {
        both_set_and_wait(&env, Language::Python).await;
    }

    async fn java_and_kazoo_wait_until_our_owned_barrier_is_removed(env) {
        let (java, kazoo) = tokio::join!(Peer::java(&env), Peer::start(Language::Python, env.address(), SESSION));
        let (client, path) = (env.client().await, env.path("barrier"));
        let owned = in_time(DistributedBarrier::new(client, &path).unwrap().set_owned()).await.unwrap();
        let mut waiters = [java.thread("waiter"), kazoo.thread("waiter")];
        for waiter in &mut waiters {
            assert_eq!(waiter.ask(&format!("barrier {path} wait 50")).await, "false");
            waiter.begin(&format!("barrier {path} wait {MILLIS}"));
        }
        drop(owned);
        for waiter in &mut waiters {
            waiter.says("true").await;
        }
        java.end().await;
        kazoo.end().await;
    }
}
