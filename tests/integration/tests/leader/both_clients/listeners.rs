//! Listeners of latches: Curator's tests of callbacks, and what a listener may do.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use curator_integration::env::{children, eventually, in_time};
use curator_integration::kinds::poll_and_drop;
use curator_integration::on_every_server;
use curator_recipes::{CloseMode, LeaderLatch, LeaderLatchOptions, LeaderState};
use parking_lot::Mutex;
use tokio::runtime::Handle;

use crate::stage::{Call, Calls, leads, started};

const LATCHES: usize = 10;

/// Leaves the queue at its first term, and closes its latch at the second.
struct LeaveThenClose {
    latch: LeaderLatch,
    runtime: Handle,
    terms: AtomicUsize,
    counts: Arc<Counts>,
}

#[derive(Default)]
struct Counts {
    is_leader: AtomicUsize,
    not_leader: AtomicUsize,
    closed: AtomicUsize,
}

impl LeaveThenClose {
    fn call(&self, state: &LeaderState) {
        match Call::with(state) {
            Call::IsLeader => self.is_leader(),
            _ => _ = self.counts.not_leader.fetch_add(1, Ordering::SeqCst),
        }
    }

    fn is_leader(&self) {
        self.counts.is_leader.fetch_add(1, Ordering::SeqCst);
        if self.terms.fetch_add(1, Ordering::SeqCst) == 0 {
            assert!(self.runtime.block_on(self.latch.resign()).unwrap().is_some());
        } else {
            self.runtime.block_on(self.latch.close());
            self.counts.closed.fetch_add(1, Ordering::SeqCst);
        }
    }
}

/// Lets the listeners of ten latches call them, and returns the calls. The first `silent` latches close in silence.
async fn callbacks(client: &curator_framework::CuratorFramework, path: &str, silent: usize) -> (usize, usize) {
    let counts = Arc::new(Counts::default());
    let mut latches = Vec::new();
    for number in 0..LATCHES {
        let mode = if number < silent { CloseMode::Silent } else { CloseMode::NotifyLeader };
        let options = LeaderLatchOptions::new().close_mode(mode);
        let latch = LeaderLatch::with_options(client.clone(), path, options).unwrap();
        let listener = LeaveThenClose {
            latch: latch.clone(),
            runtime: Handle::current(),
            terms: AtomicUsize::new(0),
            counts: Arc::clone(&counts),
        };
        latch.add_listener(move |state| listener.call(state));
        latch.start().unwrap();
        latches.push(latch);
    }
    eventually("all listeners have closed their latches", async || counts.closed.load(Ordering::SeqCst) == LATCHES)
        .await;
    for latch in &latches {
        assert!(matches!(latch.state(), LeaderState::Closed), "{:?}", latch.state());
    }
    let count = || (counts.is_leader.load(Ordering::SeqCst), counts.not_leader.load(Ordering::SeqCst));
    eventually("all calls are made", async || count().0 + count().1 >= 4 * LATCHES - silent).await;
    count()
}

/// Returns a listener that reports its calls, and does something else with each of them.
fn doing(
    calls: mpsc::Sender<Call>,
    what: impl Fn(Call) + Send + Sync + 'static,
) -> impl Fn(&LeaderState) + Send + Sync + 'static {
    move |state| {
        let call = Call::with(state);
        calls.send(call).ok();
        what(call);
    }
}

on_every_server! {
    /// Curator's `TestLeaderLatch.testCallbackSanity`: each latch reports two terms, and the end of the first.
    async fn listeners_call_their_latches_and_silent_closes_tell_nothing(env) {
        let (client, path) = (env.client().await, env.path("latch"));
        assert_eq!(callbacks(&client, &path, LATCHES).await, (2 * LATCHES, LATCHES));
        env.wait_for_children(&client, &path, 0).await;
    }

    /// Curator's `TestLeaderLatch.testCallbackNotifyLeader`.
    async fn closes_that_notify_tell_the_end_of_the_term(env) {
        let (client, path) = (env.client().await, env.path("latch"));
        assert_eq!(callbacks(&client, &path, 3).await, (2 * LATCHES, 2 * LATCHES - 3));
        env.wait_for_children(&client, &path, 0).await;
    }

    /// Curator's `TestLeaderLatch.testCallbackDontNotify`.
    async fn close_notifies_leaders_only_and_its_mode_can_be_given(env) {
        let (client, path) = (env.client().await, env.path("latch"));
        let leader = LeaderLatch::new(client.clone(), &path).unwrap();
        let options = LeaderLatchOptions::new().close_mode(CloseMode::NotifyLeader);
        let waiter = LeaderLatch::with_options(client.clone(), &path, options.clone()).unwrap();
        let (calls, waiters_calls) = (Calls::of(&leader), Calls::of(&waiter));
        leader.start().unwrap();
        leads(&leader).await;
        waiter.start().unwrap();
        env.wait_for_children(&client, &path, 2).await;
        in_time(waiter.close()).await;
        in_time(leader.close_with(CloseMode::NotifyLeader)).await;
        for latch in [&leader, &waiter] {
            assert!(matches!(latch.state(), LeaderState::Closed), "{:?}", latch.state());
        }
        assert_eq!(calls.all().await, [Call::IsLeader, Call::NotLeader]);
        assert_eq!(waiters_calls.all().await, []);

        // The other way round.
        let silent = LeaderLatch::with_options(client, &path, options).unwrap();
        let calls = Calls::of(&silent);
        silent.start().unwrap();
        leads(&silent).await;
        in_time(silent.close_with(CloseMode::Silent)).await;
        let calls = calls.all().await;
        assert!(!calls.contains(&Call::NotLeader), "{calls:?}");
    }

    async fn listeners_that_block_or_panic_harm_no_other_listener(env) {
        let (client, path) = (env.client().await, env.path("latch"));
        let latch = LeaderLatch::new(client.clone(), &path).unwrap();
        let (release, blocked) = mpsc::channel::<()>();
        let blocked = Mutex::new(blocked);
        let (first, seen_by_first) = mpsc::channel();
        latch.add_listener(doing(first, move |_| {
            let _until_the_end = blocked.lock().recv();
        }));
        let (second, seen_by_second) = mpsc::channel();
        latch.add_listener(doing(second, |_| std::panic::resume_unwind(Box::new("a listener that fails"))));
        let mut calls = Calls::of(&latch);
        latch.start().unwrap();
        for _ in 0..2 {
            let leadership = leads(&latch).await;
            assert_eq!(calls.next().await, Call::IsLeader);
            client.delete().for_path(leadership.node_path()).await.unwrap();
            assert_eq!(calls.next().await, Call::NotLeader);
        }
        leads(&latch).await;
        assert_eq!(calls.next().await, Call::IsLeader);
        // The session and the other latches of the client continue as well.
        let other = started(&client, &env.path("other"));
        leads(&other).await;
        let mut seen = Vec::new();
        eventually("the panicking listener is called each time", async || {
            seen.extend(seen_by_second.try_iter());
            seen.len() == 5
        })
        .await;
        in_time(latch.close()).await;
        assert_eq!(children(&client, &path).await, [""; 0]);
        assert_eq!(seen_by_first.try_iter().count(), 1);
        drop(release);
    }

    /// A listener may own handles of its latch and of its client.
    async fn listeners_are_dropped_with_the_end_of_their_latch(env) {
        let path = env.path("latch");
        for end in ["a dropped close", "the client", "a latch that was not started"] {
            let client = env.client().await;
            let latch = LeaderLatch::new(client.clone(), &path).unwrap();
            let calls = Calls::of(&latch);
            if end != "a latch that was not started" {
                latch.start().unwrap();
                leads(&latch).await;
            }
            match end {
                "a dropped close" => {
                    // The latch's task may end it during the poll.
                    let _ended_or_dropped = poll_and_drop(latch.close(), 1).await;
                }
                "the client" => in_time(client.close()).await,
                _ => in_time(latch.close()).await,
            }
            assert!(calls.all().await.len() <= 2, "{end}");
        }
    }

    async fn removed_listener_is_called_no_more(env) {
        let (client, path) = (env.client().await, env.path("latch"));
        let latch = LeaderLatch::new(client.clone(), &path).unwrap();
        let (sender, seen) = mpsc::channel();
        let id = latch.add_listener(doing(sender, |_| {}));
        let mut calls = Calls::of(&latch);
        latch.start().unwrap();
        assert_eq!(calls.next().await, Call::IsLeader);
        assert_eq!(seen.recv_timeout(Duration::from_secs(30)), Ok(Call::IsLeader));
        latch.remove_listener(id);
        assert!(in_time(latch.resign()).await.unwrap().is_some());
        assert_eq!(calls.next().await, Call::NotLeader);
        assert_eq!(calls.next().await, Call::IsLeader);
        let removed = Err(mpsc::RecvTimeoutError::Disconnected);
        assert_eq!(seen.recv_timeout(Duration::from_secs(30)), removed);
    }
}
