//! Processes that are killed.

use std::time::Duration;

use curator_integration::env::{Env, Kind, in_time};

use crate::peer::{Language, Peer};
use crate::record::{Report, check, rules};

/// Of those that are killed. It must not end by itself on a busy machine.
const SHORT: Duration = Duration::from_secs(4);
const LONG: Duration = Duration::from_secs(60);

/// A kind, the folder of its queue, and the number of nodes that a holder has there.
const KINDS: [(&str, &str, usize); 5] = [
    ("mutex", "", 1),
    ("write", "", 1),
    ("semaphore:1", "/locks", 0),
    ("semaphore-mutex", "/locks", 0),
    ("multi", "", 1),
];

async fn what_a_killed_process_had_goes_to_the_other(victim: Language, survivor: Language) {
    let env = Env::new(Kind::InProcess);
    let client = env.client().await;
    let (dying, living) =
        tokio::join!(Peer::start(victim, env.address(), SHORT), Peer::start(survivor, env.address(), LONG));
    let mut waiting = Vec::new();
    for (kind, queue, held) in KINDS {
        let path = env.path(&kind.replace(':', "-"));
        let folder = format!("{path}{queue}");
        let token = dying.thread(kind).acquire(kind, &path).await;
        env.wait_for_children(&client, &folder, held).await;
        // Another thread of it waits, too.
        dying.thread(&format!("{kind}-waiter")).begin_to_acquire(kind, &path);
        env.wait_for_children(&client, &folder, held + 1).await;
        let thread = living.thread(kind);
        thread.begin_to_acquire(kind, &path);
        env.wait_for_children(&client, &folder, held + 2).await;
        waiting.push((kind, path, token, thread));
    }
    assert!(waiting.iter().all(|(.., thread)| thread.is_silent()));
    dying.kill().await;
    for (kind, path, before, thread) in &mut waiting {
        let token = thread.holds().await;
        // Java does not tell all of them.
        assert!(token > *before || token == 0 || *before == 0, "{kind}: {token} after {before}");
        thread.release(kind, path).await;
    }
    living.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_killed_java_process_had_is_ours() {
    what_a_killed_process_had_goes_to_the_other(Language::Java, Language::Rust).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_our_killed_process_had_is_javas() {
    what_a_killed_process_had_goes_to_the_other(Language::Rust, Language::Java).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_others_go_on_when_some_are_killed() {
    const ROUNDS: usize = 60;
    let env = Env::new(Kind::InProcess);
    let path = env.path("lock");
    let start = |language, session| Peer::start(language, env.address(), session);
    let dying = [start(Language::Java, SHORT).await, start(Language::Rust, SHORT).await];
    let living = [start(Language::Java, LONG).await, start(Language::Rust, LONG).await];
    let mut threads: Vec<_> = dying.iter().chain(&living).map(|peer| peer.thread("contender")).collect();
    for (number, thread) in threads.iter().enumerate() {
        let rounds = if number < dying.len() { 1_000_000 } else { ROUNDS };
        thread.begin(&format!("compete mutex {path} {rounds} 0"));
    }
    // One is killed in the middle of its turn or soon after; while its node is there the other one still waits, or has
    // said what it did.
    let mut reports = vec![Report::until(&mut threads[0], 7).await, Report::until(&mut threads[1], 5).await];
    let [java, rust] = dying;
    in_time(async { tokio::join!(java.kill(), rust.kill()) }).await;
    for (report, thread) in reports.iter_mut().zip(&mut threads) {
        report.hear(thread, usize::MAX).await;
    }
    for thread in &mut threads[2..] {
        reports.push(Report::of(thread).await);
        assert_eq!(reports.last().unwrap().grants().count(), ROUNDS);
    }
    check("a mutex with killed contenders", &reports, &rules("mutex"));
    env.wait_for_children(&env.client().await, &path, 0).await;
    for peer in living {
        peer.end().await;
    }
}
