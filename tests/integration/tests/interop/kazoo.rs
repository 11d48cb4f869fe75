//! kazoo's `Lock` and our mutex on one path: each gets the name of the other's nodes.

use std::time::Duration;

use curator_integration::env::{Env, Kind};
use curator_integration::on_every_server;

use crate::peer::{Language, Peer};
use crate::record::{Report, check, history, rules};

const SESSION: Duration = Duration::from_secs(30);
const KAZOO: &str = "kazoo";

async fn pair(env: &Env) -> (Peer, Peer) {
    tokio::join!(Peer::start(Language::Python, env.address(), SESSION), Peer::rust(env))
}

on_every_server! {
    async fn kazoos_lock_and_our_mutex_have_one_queue(env) {
        let (python, rust) = pair(&env).await;
        let (client, path) = (env.client().await, env.path("lock"));
        let mut holder = rust.thread("holder");
        holder.acquire(KAZOO, &path).await;
        let mut threads = Vec::new();
        for (count, peer) in [&python, &rust, &rust, &python, &python, &rust].into_iter().enumerate() {
            let thread = peer.thread(&format!("waiter-{count}"));
            thread.begin(&format!("compete {KAZOO} {path} 1 0"));
            env.wait_for_children(&client, &path, count + 2).await;
            threads.push(thread);
        }
        holder.release(KAZOO, &path).await;
        let mut reports = Vec::new();
        for thread in &mut threads {
            reports.push(Report::of(thread).await);
        }
        assert!(reports.is_sorted_by_key(Report::first_grant), "first come, first served");
        check("queue with kazoo", &reports, &rules(KAZOO));
        python.end().await;
        rust.end().await;
    }

    async fn kazoos_lock_and_our_mutex_exclude_each_other(env) {
        const ROUNDS: usize = 100;
        let (python, rust) = pair(&env).await;
        let (client, path) = (env.client().await, env.path("lock"));
        let peers = [&python, &python, &rust, &rust].into_iter().enumerate();
        let mut threads: Vec<_> = peers.map(|(number, peer)| peer.thread(&format!("contender-{number}"))).collect();
        for thread in &threads {
            thread.begin(&format!("compete {KAZOO} {path} {ROUNDS} 0"));
        }
        let mut reports = Vec::new();
        for thread in &mut threads {
            reports.push(Report::of(thread).await);
        }
        check("storm with kazoo", &reports, &rules(KAZOO));
        assert_eq!(history(&reports).grants(), 4 * ROUNDS);
        env.wait_for_children(&client, &path, 0).await;
        python.end().await;
        rust.end().await;
    }
}

/// `MutexOptions::extra_lock_patterns`: without it we do not see kazoo's nodes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_the_name_of_its_nodes_kazoos_lock_does_not_exclude_ours() {
    let env = Env::new(Kind::InProcess);
    let (python, rust) = pair(&env).await;
    let path = env.path("lock");
    let (mut theirs, mut ours) = (python.thread("theirs"), rust.thread("ours"));
    theirs.acquire(KAZOO, &path).await;
    ours.acquire("mutex", &path).await;
    ours.release("mutex", &path).await;
    theirs.release(KAZOO, &path).await;
    python.end().await;
    rust.end().await;
}
