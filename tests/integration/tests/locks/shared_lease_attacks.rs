//! Shared leases under losses, changes of the limit, cancellation, and other contenders.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

use curator_framework::CuratorFramework;
use curator_framework::recipe::RecipeClient as _;
use curator_integration::env::{eventually, in_time, tasks};
use curator_integration::in_process::{client, server};
use curator_integration::simulated_stage::{self as stage, LATENCY, ONE, TWO, play, soon, until};
use curator_recipes::{InterProcessSemaphoreV2, Lease, LockError, MaxLeases, SemaphoreOptions, SharedCount};
use curator_test::nodes::Change;
use curator_test::wire::{ErrorCode, OpCode};
use curator_test::{SimulatedEnsemble, TestingServer};
use futures_util::poll;
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, sleep, sleep_until};

const PATH: &str = "/parent/semaphore";
const LOCKS: &str = "/parent/semaphore/locks";
const LEASES: &str = "/parent/semaphore/leases";

type Wait = Pin<Box<dyn Future<Output = Result<Lease, LockError>> + Send>>;

fn shared(client: &CuratorFramework, limit: impl Into<MaxLeases>) -> InterProcessSemaphoreV2 {
    let options = SemaphoreOptions::new().one_node_per_client();
    InterProcessSemaphoreV2::with_options(client.clone(), PATH, limit, options).unwrap()
}

fn plain(client: &CuratorFramework, limit: impl Into<MaxLeases>) -> InterProcessSemaphoreV2 {
    InterProcessSemaphoreV2::new(client.clone(), PATH, limit).unwrap()
}

fn wait_for(semaphore: &InterProcessSemaphoreV2) -> Wait {
    let semaphore = semaphore.clone();
    Box::pin(async move { semaphore.acquire().await })
}

/// A wait that has come, and is not polled by itself.
async fn has_come(semaphore: &InterProcessSemaphoreV2) -> Wait {
    let mut wait = wait_for(semaphore);
    assert!(poll!(wait.as_mut()).is_pending());
    wait
}

type Grants = mpsc::UnboundedSender<(usize, Lease)>;

/// Spawns a wait that has come. It reports its number and its lease.
async fn comes(semaphore: &InterProcessSemaphoreV2, number: usize, grants: &Grants) -> JoinHandle<()> {
    let (wait, grants) = (has_come(semaphore).await, grants.clone());
    tokio::spawn(async move {
        let lease = wait.await.unwrap();
        // The test may have ended.
        let _sent = grants.send((number, lease));
    })
}

async fn is_released(lease: Lease) {
    assert!(lease.release().await.unwrap().is_released());
}

fn nodes(server: &TestingServer, folder: &str) -> usize {
    server.children(folder).map_or(0, |nodes| nodes.len())
}

/// Returns the queued nodes and the nodes beside the leases.
fn counts(ensemble: &SimulatedEnsemble) -> (usize, usize) {
    (ensemble.children(LOCKS).len(), ensemble.children(LEASES).len())
}

/// Returns the tasks of this runtime and the watches that the client waits for.
fn footprint(client: &CuratorFramework) -> (usize, usize) {
    (tasks(), client.watchers())
}

async fn nothing_is_left(server: &TestingServer) {
    eventually("no node is left", async || nodes(server, LEASES) + nodes(server, LOCKS) == 0).await;
}

async fn count_of(client: &CuratorFramework, leases: i32) -> SharedCount {
    let count = SharedCount::new(client.clone(), "/count", leases).unwrap();
    count.start().unwrap();
    soon(count.initialized()).await.unwrap();
    soon(count.set_count(leases)).await.unwrap();
    count
}

#[tokio::test]
async fn try_asks_the_server_while_the_guard_of_a_lost_lease_exists() {
    let server = server();
    let (client, other) = (client(&server).await, client(&server).await);
    let semaphore = shared(&client, 1);
    for kill in [false, true] {
        let lost = in_time(semaphore.acquire()).await.unwrap();
        if kill {
            assert!(server.kill_session(client.session().await.unwrap().id().unwrap().get()));
        } else {
            other.delete().for_path(lost.node_path()).await.unwrap();
        }
        in_time(lost.lost()).await;
        eventually("it is connected", async || client.is_connected()).await;
        let tried = in_time(semaphore.try_acquire()).await.unwrap();
        assert!(tried.is_some(), "the lease is free, and it was refused ({kill})");
        is_released(tried.unwrap()).await;
        drop(lost);
        nothing_is_left(&server).await;
    }
}

#[test]
fn waits_that_are_not_polled_again_do_not_keep_a_lease_from_another_client() {
    for uses_up in [false, true] {
        play(1, async |ensemble| {
            let (busy, other) = (stage::client(&ensemble, ONE).await, stage::client(&ensemble, TWO).await);
            let (semaphore, theirs) = (shared(&busy, 1), plain(&other, 1));
            let held = soon(semaphore.acquire()).await.unwrap();
            // The task of the batch has ended.
            sleep(Duration::from_millis(500)).await;
            let mut wait = wait_for(&semaphore);
            std::future::poll_fn(|cx| {
                // A task that has done much since it was polled.
                while let (true, Poll::Ready(step)) = (uses_up, tokio::task::coop::poll_proceed(cx)) {
                    step.made_progress();
                }
                assert!(wait.as_mut().poll(cx).is_pending());
                Poll::Ready(())
            })
            .await;
            sleep(LATENCY * 20).await;
            is_released(held).await;
            let begun = Instant::now();
            let lease = tokio::time::timeout(Duration::from_secs(30), theirs.acquire()).await;
            let lease = lease.unwrap_or_else(|_| panic!("{uses_up}: kept for a wait that is not polled")).unwrap();
            println!("{uses_up}: {:?}", begun.elapsed());
            drop(wait);
            is_released(lease).await;
        });
    }
}

#[test]
fn lease_passes_a_wait_that_is_not_polled() {
    let mut late = Vec::new();
    for delay in 0..50 {
        play(delay, async |ensemble| {
            let client = stage::client(&ensemble, ONE).await;
            let semaphore = shared(&client, 1);
            let held = soon(semaphore.acquire()).await.unwrap();
            let begun = Instant::now();
            let stuck = has_come(&semaphore).await;
            let (granted, mut grants) = mpsc::unbounded_channel();
            let _waits = comes(&semaphore, 1, &granted).await;
            sleep_until(begun + Duration::from_secs(1) + Duration::from_millis(2 * delay)).await;
            is_released(held).await;
            let released = Instant::now();
            let next = tokio::time::timeout(Duration::from_secs(30), grants.recv()).await;
            if next.is_err() || released.elapsed() > Duration::from_millis(500) {
                late.push((delay, released.elapsed()));
            }
            drop(stuck);
        });
    }
    assert!(late.is_empty(), "{late:?}");
}

#[test]
fn queued_contender_is_served_after_the_queue_node_of_a_batch_is_deleted() {
    for deletes in [false, true] {
        play(1, async |ensemble| {
            let (busy, other) = (stage::client(&ensemble, ONE).await, stage::client(&ensemble, TWO).await);
            let (semaphore, theirs) = (shared(&busy, 1), plain(&other, 1));
            let mut jobs = JoinSet::new();
            for _ in 0..4 {
                jobs.spawn(works(semaphore.clone(), Inside::of(1), 10_000));
            }
            until("the batch has its turn", || counts(&ensemble) == (1, 2)).await;
            sleep(LATENCY * 4).await;
            let turn = ensemble.children(LOCKS).remove(0);
            if deletes {
                ensemble.delete(&format!("{LOCKS}/{turn}"));
            }
            let begun = Instant::now();
            let lease = tokio::time::timeout(Duration::from_secs(30), theirs.acquire()).await;
            let lease = lease.unwrap_or_else(|_| panic!("{deletes}: it waits, {:?}", ensemble.children(LOCKS)));
            assert!(begun.elapsed() < Duration::from_secs(2), "{deletes}: {:?}", begun.elapsed());
            is_released(lease.unwrap()).await;
        });
    }
}

/// Counts the jobs inside. This many are allowed.
#[derive(Clone)]
struct Inside(Arc<AtomicUsize>, usize);

impl Inside {
    fn of(limit: usize) -> Self {
        Self(Arc::default(), limit)
    }

    async fn works(&self, leases: usize) {
        let before = self.0.fetch_add(leases, Ordering::SeqCst);
        assert!(before + leases <= self.1, "{} are inside", before + leases);
        sleep(Duration::from_millis(3)).await;
        self.0.fetch_sub(leases, Ordering::SeqCst);
    }
}

async fn works(semaphore: InterProcessSemaphoreV2, inside: Inside, jobs: usize) {
    for _ in 0..jobs {
        let lease = semaphore.acquire().await.unwrap();
        inside.works(1).await;
        is_released(lease).await;
    }
}

async fn works_with_two(semaphore: InterProcessSemaphoreV2, inside: Inside, jobs: usize) {
    for _ in 0..jobs {
        let leases = semaphore.acquire_many(2).await.unwrap();
        inside.works(2).await;
        assert!(leases.release().await.unwrap().is_released());
    }
}

/// A lease, and a wait in a batch that has its turn.
async fn held_and_queued(server: &TestingServer, semaphore: &InterProcessSemaphoreV2) -> (Lease, JoinHandle<Lease>) {
    let held = in_time(semaphore.acquire()).await.unwrap();
    let wait = has_come(semaphore).await;
    let wait = tokio::spawn(async move { in_time(wait).await.unwrap() });
    eventually("the batch has its turn", async || (nodes(server, LOCKS), nodes(server, LEASES)) == (1, 2)).await;
    (held, wait)
}

#[tokio::test]
async fn lease_is_not_passed_on_after_a_look_that_fails() {
    let server = server();
    let semaphore = shared(&client(&server).await, 1);
    let (held, wait) = held_and_queued(&server, &semaphore).await;
    server.refuse(OpCode::Exists, 1, ErrorCode::NoAuth);
    let path = held.node_path().to_owned();
    is_released(held).await;
    let next = in_time(wait).await.unwrap();
    assert_eq!(server.refusals_left(), 0, "no look");
    assert_ne!(next.node_path(), path);
    is_released(next).await;
    nothing_is_left(&server).await;
}

#[test]
fn lease_is_not_passed_on_after_a_look_without_an_answer() {
    play(1, async |ensemble| {
        let client = stage::client(&ensemble, ONE).await;
        let semaphore = shared(&client, 1);
        let held = soon(semaphore.acquire()).await.unwrap();
        let (granted, mut grants) = mpsc::unbounded_channel();
        let _waits = comes(&semaphore, 0, &granted).await;
        until("the batch has its turn", || counts(&ensemble) == (1, 2)).await;
        sleep(LATENCY * 4).await;
        ensemble.partition(ONE);
        let path = held.node_path().to_owned();
        drop(held);
        // Shorter than it takes the client to notice.
        sleep(Duration::from_millis(300)).await;
        assert!(client.is_connected());
        ensemble.repair(ONE);
        let (_, next) = soon(grants.recv()).await.unwrap();
        assert_ne!(next.node_path(), path);
        is_released(next).await;
    });
}

#[test]
fn batch_looks_again_once_its_last_look_is_old() {
    play(1, async |ensemble| {
        let (busy, other) = (stage::client(&ensemble, ONE).await, stage::client(&ensemble, TWO).await);
        let (semaphore, theirs) = (shared(&busy, 1), plain(&other, 1));
        let held = soon(semaphore.acquire()).await.unwrap();
        let (granted, mut grants) = mpsc::unbounded_channel();
        let _waits = comes(&semaphore, 0, &granted).await;
        until("the batch has its turn", || counts(&ensemble) == (1, 2)).await;
        let path = held.node_path().to_owned();
        is_released(held).await;
        let (_, second) = soon(grants.recv()).await.unwrap();
        assert_eq!(second.node_path(), path);
        let begun = Instant::now();
        until("the batch has left the queue", || counts(&ensemble).0 == 0).await;
        let queued = tokio::spawn(async move { theirs.acquire().await.unwrap() });
        until("the other client is queued", || counts(&ensemble).0 == 1).await;
        let _waits = comes(&semaphore, 1, &granted).await;
        // The look before the pass counts for a tenth of a second.
        sleep_until(begun + Duration::from_millis(120)).await;
        drop(second);
        let lease = soon(queued).await.unwrap();
        assert!(grants.try_recv().is_err(), "it was passed on beside a queued contender");
        is_released(lease).await;
        drop(soon(grants.recv()).await.unwrap());
    });
}

#[tokio::test]
async fn hundreds_of_free_leases_are_taken_by_the_tasks_of_a_client() {
    const LIMIT: usize = 150;
    let server = server();
    let semaphore = shared(&client(&server).await, LIMIT);
    let (granted, mut grants) = mpsc::unbounded_channel();
    let mut waits = Vec::new();
    for number in 0..LIMIT + 50 {
        waits.push(comes(&semaphore, number, &granted).await);
    }
    let mut leases = Vec::new();
    for expected in 0..LIMIT {
        let (number, lease) = in_time(grants.recv()).await.unwrap();
        assert_eq!(number, expected);
        leases.push(lease);
    }
    eventually("the others wait", async || (nodes(&server, LOCKS), nodes(&server, LEASES)) == (1, LIMIT + 1)).await;
    assert!(grants.try_recv().is_err());
    drop(leases);
    for expected in LIMIT..LIMIT + 50 {
        let (number, _lease) = in_time(grants.recv()).await.unwrap();
        assert_eq!(number, expected);
    }
    nothing_is_left(&server).await;
}

#[test]
fn limit_that_falls_and_rises_while_leases_are_offered() {
    for falls_to in [0, 1] {
        play(1, async |ensemble| {
            let client = stage::client(&ensemble, ONE).await;
            let count = count_of(&client, 2).await;
            let semaphore = shared(&client, &count);
            let held = [soon(semaphore.acquire()).await.unwrap(), soon(semaphore.acquire()).await.unwrap()];
            let mut waits = [has_come(&semaphore).await, has_come(&semaphore).await];
            sleep(LATENCY * 10).await;
            drop(held);
            // The leases are offered to both.
            sleep(LATENCY * 8).await;
            soon(count.set_count(falls_to)).await.unwrap();
            assert!(poll!(waits[0].as_mut()).is_pending());
            sleep(Duration::from_secs(1)).await;
            let mut leases = Vec::new();
            let [one, two] = &mut waits;
            if let Poll::Ready(lease) = poll!(one.as_mut()) {
                leases.push(lease.unwrap());
            }
            assert_eq!(leases.len(), usize::from(falls_to == 1), "{:?}", counts(&ensemble));
            assert!(poll!(two.as_mut()).is_pending());
            sleep(Duration::from_secs(1)).await;
            assert!(poll!(two.as_mut()).is_pending());
            soon(count.set_count(2)).await.unwrap();
            if leases.is_empty() {
                leases.push(soon(one).await.unwrap());
            }
            leases.push(soon(two).await.unwrap());
            assert!(leases.iter().all(Lease::is_held));
            drop(leases);
            sleep(LATENCY * 20).await;
            assert_eq!(counts(&ensemble), (0, 0));
        });
    }
}

#[test]
fn leases_are_passed_on_again_once_another_contender_has_left() {
    play(1, async |ensemble| {
        let (busy, other) = (stage::client(&ensemble, ONE).await, stage::client(&ensemble, TWO).await);
        let (semaphore, theirs) = (shared(&busy, 1), plain(&other, 1));
        let held = soon(semaphore.acquire()).await.unwrap();
        let (granted, mut grants) = mpsc::unbounded_channel();
        for number in 0..5 {
            let _waits = comes(&semaphore, number, &granted).await;
        }
        until("the batch has its turn", || counts(&ensemble) == (1, 2)).await;
        let queued = tokio::spawn(wait_for(&theirs));
        until("the other client is queued", || counts(&ensemble).0 == 2).await;
        let path = held.node_path().to_owned();
        is_released(held).await;
        // By the turn that the batch had before.
        let (_, mut lease) = soon(grants.recv()).await.unwrap();
        assert_ne!(lease.node_path(), path, "it was passed on beside a queued contender");
        queued.abort();
        // The next look shows that it has left.
        sleep(Duration::from_millis(250)).await;
        for _ in 0..3 {
            let path = lease.node_path().to_owned();
            is_released(lease).await;
            lease = soon(grants.recv()).await.unwrap().1;
            assert_eq!(lease.node_path(), path);
        }
    });
}

#[test]
fn lease_whose_node_is_deleted_while_it_is_offered_serves_no_wait() {
    for kill in [false, true] {
        play(1, async |ensemble| {
            let client = stage::client(&ensemble, ONE).await;
            let semaphore = shared(&client, 2);
            let held = [soon(semaphore.acquire()).await.unwrap(), soon(semaphore.acquire()).await.unwrap()];
            let mut waits = [has_come(&semaphore).await, has_come(&semaphore).await];
            until("the batch has its turn", || counts(&ensemble) == (1, 3)).await;
            sleep(LATENCY * 4).await;
            let paths = held.each_ref().map(|lease| lease.node_path().to_owned());
            drop(held);
            sleep(LATENCY * 4).await;
            assert_eq!(counts(&ensemble).1, 2, "the leases are offered, and the attempt has ended");
            if kill {
                ensemble.kill_session(client.session().await.unwrap().id().unwrap().get());
            } else {
                paths.iter().for_each(|path| ensemble.delete(path));
            }
            sleep(LATENCY * 4).await;
            for wait in &mut waits {
                assert!(poll!(wait.as_mut()).is_pending());
            }
            let [one, two] = waits.map(tokio::spawn);
            let leases = [soon(one).await.unwrap().unwrap(), soon(two).await.unwrap().unwrap()];
            assert!(leases.iter().all(|lease| lease.is_held() && !paths.contains(&lease.node_path().to_owned())));
            drop(leases);
            sleep(LATENCY * 20).await;
            assert_eq!(counts(&ensemble), (0, 0));
        });
    }
}

#[test]
fn batches_of_one_client_and_of_others_share_a_path() {
    for seed in 0..3 {
        play(seed, async |ensemble| {
            let (busy, other) = (stage::client(&ensemble, ONE).await, stage::client(&ensemble, TWO).await);
            let named = |data: &str, limit: usize| {
                let options = SemaphoreOptions::new().one_node_per_client().data(data);
                InterProcessSemaphoreV2::with_options(busy.clone(), PATH, limit, options).unwrap()
            };
            let spaced = busy.using_namespace("parent").unwrap();
            let options = SemaphoreOptions::new().one_node_per_client();
            let spaced = InterProcessSemaphoreV2::with_options(spaced, "/semaphore", 3, options).unwrap();
            let objects = [
                shared(&busy, 3),
                named("a", 3),
                named("b", 3),
                spaced,
                shared(&other, 3),
                plain(&busy, 3),
                plain(&other, 3),
            ];
            let (inside, mut tasks) = (Inside::of(3), JoinSet::new());
            for semaphore in objects {
                for _ in 0..4 {
                    tasks.spawn(works(semaphore.clone(), inside.clone(), 5));
                }
                tasks.spawn(works_with_two(semaphore, inside.clone(), 2));
            }
            soon(tasks.join_all()).await;
            sleep(LATENCY * 20).await;
            assert_eq!(counts(&ensemble), (0, 0));
        });
    }
}

/// Jobs of a client beside another client's, with a fault at some time.
fn faulty(seed: u64, fault: impl AsyncFn(&SimulatedEnsemble, &CuratorFramework)) {
    play(seed, async |ensemble| {
        let (busy, other) = (stage::client(&ensemble, ONE).await, stage::client(&ensemble, TWO).await);
        sleep(Duration::from_secs(1)).await;
        let before = footprint(&busy);
        let (inside, mut tasks) = (Inside::of(4), JoinSet::new());
        for _ in 0..12 {
            tasks.spawn(works(shared(&busy, 4), inside.clone(), 6));
        }
        tasks.spawn(works_with_two(shared(&busy, 4), inside.clone(), 2));
        tasks.spawn(works(plain(&other, 4), inside.clone(), 3));
        fault(&ensemble, &busy).await;
        soon(tasks.join_all()).await;
        sleep(Duration::from_secs(1)).await;
        assert_eq!(counts(&ensemble), (0, 0), "{seed}");
        let after = footprint(&busy);
        assert_eq!(after, before, "{seed}");
    });
}

#[test]
fn lost_replies_and_connections_leave_no_lease_too_many_and_none_behind() {
    for at in 0..30 {
        faulty(at, async |ensemble, _| {
            sleep(Duration::from_millis(at * 6)).await;
            ensemble.drop_reply(ONE);
        });
        faulty(at, async |ensemble, _| {
            sleep(Duration::from_millis(at * 6)).await;
            ensemble.reset(ONE);
        });
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    SessionEnds,
    ReplyIsLost,
    ConnectionIsLost,
}

/// Raises the limit of a batch in its turn, and has a fault some time later.
async fn turn_with_fault(ensemble: &SimulatedEnsemble, fault: Fault, after: Duration) {
    let client = stage::client(ensemble, ONE).await;
    let count = count_of(&client, 1).await;
    let semaphore = shared(&client, &count);
    // The semaphore keeps one watch.
    is_released(soon(semaphore.acquire()).await.unwrap()).await;
    sleep(Duration::from_secs(1)).await;
    let before = footprint(&client);
    let mut leases = vec![soon(semaphore.acquire()).await.unwrap()];
    let (granted, mut grants) = mpsc::unbounded_channel();
    for number in 0..6 {
        let _waits = comes(&semaphore, number, &granted).await;
    }
    until("the batch has its turn", || counts(ensemble) == (1, 2)).await;
    sleep(LATENCY * 4).await;
    soon(count.set_count(4)).await.unwrap();
    sleep(after).await;
    match fault {
        Fault::SessionEnds => {
            ensemble.kill_session(client.session().await.unwrap().id().unwrap().get());
            soon(leases[0].lost()).await;
        }
        Fault::ReplyIsLost => ensemble.drop_reply(ONE),
        Fault::ConnectionIsLost => ensemble.reset(ONE),
    }
    for _ in 0..6 {
        leases.push(soon(grants.recv()).await.unwrap().1);
        leases.retain(Lease::is_held);
        assert!(leases.len() <= 4, "{leases:?}");
        if leases.len() == 4 {
            drop(leases.remove(0));
        }
    }
    drop(leases);
    sleep(Duration::from_secs(1)).await;
    ensemble.repair(ONE);
    assert_eq!(counts(ensemble), (0, 0));
    assert_eq!(footprint(&client), before);
}

#[test]
fn faults_while_a_turn_takes_further_leases_leave_none_behind() {
    for fault in [Fault::SessionEnds, Fault::ReplyIsLost, Fault::ConnectionIsLost] {
        for at in 0..30 {
            println!("{fault:?} {at}");
            play(at, async |ensemble| turn_with_fault(&ensemble, fault, Duration::from_millis(at * 3)).await);
        }
    }
}

#[test]
fn acquires_dropped_at_any_time_leave_nothing_and_pass_their_leases_on() {
    for at in 0..80 {
        play(at, async |ensemble| {
            let (busy, other) = (stage::client(&ensemble, ONE).await, stage::client(&ensemble, TWO).await);
            let (semaphore, theirs) = (shared(&busy, 3), plain(&other, 3));
            // The semaphore keeps one watch.
            is_released(soon(semaphore.acquire()).await.unwrap()).await;
            sleep(Duration::from_secs(1)).await;
            let before = footprint(&busy);
            let first = soon(theirs.acquire()).await.unwrap();
            let (granted, mut grants) = mpsc::unbounded_channel();
            let mut dropped = Vec::new();
            for number in 0..6 {
                dropped.push(comes(&semaphore, number, &granted).await);
            }
            let tried = {
                let semaphore = semaphore.clone();
                tokio::spawn(async move { drop(semaphore.try_acquire().await) })
            };
            sleep(Duration::from_millis(at)).await;
            tried.abort();
            let last = comes(&semaphore, 9, &granted).await;
            dropped.iter().for_each(JoinHandle::abort);
            drop(first);
            loop {
                let (number, lease) = soon(grants.recv()).await.unwrap();
                is_released(lease).await;
                if number == 9 {
                    break;
                }
            }
            soon(last).await.unwrap();
            sleep(Duration::from_secs(1)).await;
            assert_eq!(counts(&ensemble), (0, 0), "{at}");
            let after = footprint(&busy);
            assert_eq!(after, before, "{at}");
        });
    }
}

#[test]
fn close_of_the_client_answers_all_waits() {
    for at in 0..40 {
        play(at, async |ensemble| {
            let client = stage::client(&ensemble, ONE).await;
            let semaphore = shared(&client, 3);
            let mut held = Vec::new();
            for _ in 0..3 {
                held.push(soon(semaphore.acquire()).await.unwrap());
            }
            let mut stuck = has_come(&semaphore).await;
            let mut waits = JoinSet::new();
            for _ in 0..5 {
                let semaphore = semaphore.clone();
                waits.spawn(async move { semaphore.acquire().await.map(drop) });
            }
            sleep(Duration::from_millis(at * 3)).await;
            held.truncate(1);
            sleep(Duration::from_millis(at)).await;
            soon(client.close()).await;
            assert!(soon(stuck.as_mut()).await.is_err());
            soon(waits.join_all()).await;
            assert_eq!(counts(&ensemble), (0, 0), "{at}");
            drop((held, semaphore, client));
            sleep(Duration::from_secs(1)).await;
            assert_eq!(tasks(), 1, "{at}");
        });
    }
}

#[test]
fn lease_granted_under_a_higher_limit_is_not_passed_on() {
    let mut raised = 0;
    for delay in 0..40 {
        play(delay, async |ensemble| {
            let client = stage::client(&ensemble, ONE).await;
            let count = count_of(&client, 1).await;
            let semaphore = shared(&client, &count);
            let held = soon(semaphore.acquire()).await.unwrap();
            let (granted, mut grants) = mpsc::unbounded_channel();
            for number in 0..4 {
                let _waits = comes(&semaphore, number, &granted).await;
            }
            until("the batch has its turn", || counts(&ensemble) == (1, 2)).await;
            sleep(LATENCY * 4).await;
            soon(count.set_count(3)).await.unwrap();
            sleep(Duration::from_millis(2 * delay)).await;
            soon(count.set_count(1)).await.unwrap();
            assert_eq!(semaphore.max_leases(), 1);
            // Longer than a turn takes, and shorter than a look counts.
            sleep(LATENCY * 20).await;
            let mut leases = Vec::new();
            while let Ok((_, lease)) = grants.try_recv() {
                leases.push(lease);
            }
            raised += leases.len();
            for lease in leases {
                is_released(lease).await;
            }
            // The present limit is one, and the first lease is still held.
            sleep(Duration::from_millis(500)).await;
            let one_more = grants.try_recv().ok();
            assert!(held.is_held());
            assert!(one_more.is_none(), "{delay}: {one_more:?} beside {held:?}, {:?}", counts(&ensemble));
        });
    }
    assert!(raised > 10, "the limit was never raised for long enough");
}

#[test]
fn turn_takes_free_leases_for_tasks_that_came_after_it_was_queued() {
    play(1, async |ensemble| {
        let client = stage::client(&ensemble, ONE).await;
        let count = count_of(&client, 1).await;
        let semaphore = shared(&client, &count);
        let held = soon(semaphore.acquire()).await.unwrap();
        let (granted, mut grants) = mpsc::unbounded_channel();
        let _first = comes(&semaphore, 0, &granted).await;
        until("the batch has its turn", || counts(&ensemble) == (1, 2)).await;
        sleep(LATENCY * 4).await;
        for number in 1..10 {
            let _waits = comes(&semaphore, number, &granted).await;
        }
        sleep(LATENCY * 4).await;
        ensemble.record_changes(LOCKS);
        soon(count.set_count(11)).await.unwrap();
        let mut leases = vec![held];
        for _ in 0..10 {
            leases.push(soon(grants.recv()).await.unwrap().1);
        }
        sleep(LATENCY * 10).await;
        let created = |change: &Change| matches!(change, Change::Created { .. });
        let turns = ensemble.take_changes().into_iter().filter(|(_, change)| created(change)).count();
        assert_eq!(turns, 1, "turns for ten free leases and ten tasks");
    });
}

/// Returns the number of writes of workers that take a lease for each of their jobs.
fn writes_of(shares: bool, limit: usize, workers: usize, jobs: usize) -> usize {
    let mut writes = 0;
    play(1, async |ensemble| {
        let client = stage::client(&ensemble, ONE).await;
        let semaphore = if shares { shared(&client, limit) } else { plain(&client, limit) };
        // The nodes of the semaphore exist by then.
        is_released(soon(semaphore.acquire()).await.unwrap()).await;
        ensemble.record_changes("/parent");
        let mut tasks = JoinSet::new();
        for _ in 0..workers {
            let semaphore = semaphore.clone();
            tasks.spawn(async move {
                for _ in 0..jobs {
                    let lease = semaphore.acquire().await.unwrap();
                    sleep(Duration::from_millis(5)).await;
                    is_released(lease).await;
                    sleep(Duration::from_millis(3)).await;
                }
            });
        }
        tasks.join_all().await;
        writes = ensemble.take_changes().len();
    });
    writes
}

#[test]
fn passed_lease_costs_few_writes_even_if_few_tasks_wait() {
    const JOBS: usize = 30;
    for limit in [1, 3] {
        let workers = 2 * limit;
        let (alone, shares) = (writes_of(false, limit, workers, JOBS), writes_of(true, limit, workers, JOBS));
        println!("{limit}: {shares} writes for {} jobs, and {alone} without the option", workers * JOBS);
        assert!(shares * 2 <= workers * JOBS && alone >= 2 * workers * JOBS, "{limit}: {shares}, {alone}");
    }
}
