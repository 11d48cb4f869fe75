//! Many waiters of one client at one mutex: what they ask of the server does not grow with their number.

use std::collections::HashMap;
use std::time::Duration;

use curator_framework::CuratorFramework;
use curator_integration::env::{eventually, in_time};
use curator_integration::in_process::client;
use curator_recipes::{FencingToken, InterProcessMutex, MutexGuard};
use curator_test::TestingServer;
use curator_test::wire::OpCode;
use tokio::task::JoinSet;

use crate::meter::Stage;

const LOCK: &str = "/parent/lock";
const WAITERS: usize = 600;

fn lock(client: &CuratorFramework) -> InterProcessMutex {
    InterProcessMutex::new(client.clone(), LOCK).unwrap()
}

/// Returns the number of the lock's nodes.
fn nodes(server: &TestingServer) -> usize {
    server.children(LOCK).map_or(0, |nodes| nodes.len())
}

/// The requests about the lock since the last call.
fn counted(server: &TestingServer) -> HashMap<OpCode, usize> {
    let mut counts = HashMap::new();
    let all = server.requests();
    server.clear_requests();
    for one in all.iter().filter(|one| one.path.as_deref().is_some_and(|path| path.starts_with(LOCK))) {
        *counts.entry(one.op).or_default() += 1;
    }
    counts
}

fn of(counts: &HashMap<OpCode, usize>, op: OpCode) -> usize {
    counts.get(&op).copied().unwrap_or_default()
}

/// Waits until no request has come for some looks in a row.
async fn quiet(server: &TestingServer) {
    let mut same = (0, 0);
    eventually("no more requests", async || {
        let sent = server.requests().len();
        same = (sent, if sent == same.0 { same.1 + 1 } else { 0 });
        same.1 >= 20
    })
    .await;
}

/// Spawns tasks that wait for the lock.
fn waiters(stage: &Stage, waiters: usize) -> Vec<tokio::task::JoinHandle<MutexGuard>> {
    let mutex = lock(&stage.client);
    let wait = |_| {
        let mutex = mutex.clone();
        tokio::spawn(async move { mutex.acquire().await.unwrap() })
    };
    (0..waiters).map(wait).collect()
}

/// A holder, and waiters behind it.
async fn queue(stage: &Stage, number: usize) -> (MutexGuard, Vec<tokio::task::JoinHandle<MutexGuard>>) {
    let holder = in_time(lock(&stage.client).acquire()).await.unwrap();
    (holder, waiters(stage, number))
}

/// Lets the waiters have the lock in turn.
async fn drain(holder: MutexGuard, waiters: Vec<tokio::task::JoinHandle<MutexGuard>>) {
    let token = holder.token();
    assert!(holder.release().await.unwrap().is_released());
    take_turns(token, waiters).await;
}

/// Releases each waiter's lock. The tokens grow from the one of the first holder.
async fn take_turns(mut token: FencingToken, waiters: Vec<tokio::task::JoinHandle<MutexGuard>>) {
    let mut all = JoinSet::new();
    for waiter in waiters {
        all.spawn(async move { waiter.await.unwrap() });
    }
    while let Some(next) = in_time(all.join_next()).await {
        let next = next.unwrap();
        assert!(next.token() > token, "first come, first served");
        token = next.token();
        assert!(next.release().await.unwrap().is_released());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiter_joins_and_gets_the_lock_without_a_listing() {
    let stage = Stage::new(LOCK).await;
    let (holder, waiters) = queue(&stage, WAITERS).await;
    eventually("all wait", async || nodes(&stage.server) == WAITERS + 1).await;
    quiet(&stage.server).await;
    let joined = counted(&stage.server);
    println!("{joined:?}");
    // Two workers may see two numbers in the wrong order, and then a waiter waits for another one than its predecessor.
    assert!(of(&joined, OpCode::GetChildren) + of(&joined, OpCode::GetChildren2) <= 3, "{joined:?}");
    assert!(joined.values().sum::<usize>() <= 2 * WAITERS + 10, "{joined:?}");
    drain(holder, waiters).await;
    let drained = counted(&stage.server);
    println!("{drained:?}");
    assert!(of(&drained, OpCode::GetChildren) + of(&drained, OpCode::GetChildren2) <= WAITERS / 20, "{drained:?}");
    stage.client.close().await;
}

/// The replies are slow, so that all creates that are ever in flight are.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn release_is_behind_at_most_64_of_the_waiters_that_join() {
    const JOINS: usize = 64;
    let stage = Stage::new(LOCK).await;
    let holder = in_time(lock(&stage.client).acquire()).await.unwrap();
    quiet(&stage.server).await;
    stage.server.clear_requests();
    stage.proxy.latency(Stage::QUIET);
    let waiting = waiters(&stage, WAITERS);
    let sent = |op: OpCode| stage.server.requests().iter().filter(|one| one.op == op).count();
    let creates = || sent(OpCode::Create) + sent(OpCode::Create2);
    eventually("they join", async || creates() > 0).await;
    let (node, token) = (holder.node_path().to_owned(), holder.token());
    let releasing = tokio::spawn(async move { holder.release().await.unwrap().is_released() });
    eventually("it is deleted", async || sent(OpCode::Delete) == 1).await;
    let before: Vec<_> = stage.server.requests().into_iter().take_while(|one| one.op != OpCode::Delete).collect();
    println!("{} requests before the delete", before.len());
    assert!(before.len() <= JOINS, "{}", before.len());
    assert!(before.iter().all(|one| one.path.as_deref().is_some_and(|path| path != node)));
    // A contender that knows what it waits for lets the next one join.
    stage.proxy.latency(Duration::from_millis(5));
    eventually("all join", async || {
        let (created, watched) = (creates(), stage.proxy.replies(OpCode::GetData));
        assert!(created <= watched + JOINS + 1, "{created}, {watched}");
        created == WAITERS
    })
    .await;
    stage.proxy.latency(Duration::ZERO);
    assert!(in_time(releasing).await.unwrap());
    take_turns(token, waiting).await;
    stage.client.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters_that_give_up_at_once_cost_few_listings() {
    let stage = Stage::new(LOCK).await;
    let (holder, mut waiters) = queue(&stage, WAITERS).await;
    eventually("all wait", async || nodes(&stage.server) == WAITERS + 1).await;
    quiet(&stage.server).await;
    counted(&stage.server);
    let mut number = 0;
    waiters.retain(|waiter| {
        number += 1;
        if number % 3 == 0 {
            waiter.abort();
        }
        number % 3 != 0
    });
    eventually("they are gone", async || nodes(&stage.server) == waiters.len() + 1).await;
    quiet(&stage.server).await;
    let gone = counted(&stage.server);
    println!("{gone:?}");
    assert!(of(&gone, OpCode::GetChildren) + of(&gone, OpCode::GetChildren2) <= 5, "{gone:?}");
    drain(holder, waiters).await;
    stage.client.close().await;
}

/// A reply takes longer than a hundredth of the session timeout.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters_that_lose_the_node_ahead_share_even_a_slow_listing() {
    let stage = Stage::new(LOCK).await;
    let timeout = stage.client.session().await.unwrap().timeout();
    let (holder, waiters) = queue(&stage, WAITERS).await;
    eventually("all wait", async || nodes(&stage.server) == WAITERS + 1).await;
    quiet(&stage.server).await;
    let (gone, left): (Vec<_>, Vec<_>) = waiters.into_iter().enumerate().partition(|(number, _)| number % 3 == 0);
    let left: Vec<_> = left.into_iter().map(|(_, waiter)| waiter).collect();
    counted(&stage.server);
    stage.proxy.latency(timeout / 80);
    gone.iter().for_each(|(_, waiter)| waiter.abort());
    let mut counts = HashMap::new();
    // Most waiters that have lost the node ahead watch another one.
    eventually("the others wait again", async || {
        counted(&stage.server).into_iter().for_each(|(op, count)| *counts.entry(op).or_default() += count);
        nodes(&stage.server) == left.len() + 1 && of(&counts, OpCode::GetData) >= gone.len() / 2
    })
    .await;
    println!("{counts:?}");
    assert!(of(&counts, OpCode::GetChildren) + of(&counts, OpCode::GetChildren2) <= 2, "{counts:?}");
    stage.proxy.latency(Duration::ZERO);
    drain(holder, left).await;
    stage.client.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reset_while_many_join_costs_few_listings() {
    let stage = Stage::new(LOCK).await;
    let (holder, waiters) = queue(&stage, WAITERS).await;
    eventually("some wait", async || nodes(&stage.server) > WAITERS / 3).await;
    stage.reconnect().await;
    eventually("all wait", async || nodes(&stage.server) == WAITERS + 1).await;
    quiet(&stage.server).await;
    let joined = counted(&stage.server);
    println!("{joined:?}");
    assert!(of(&joined, OpCode::GetChildren) + of(&joined, OpCode::GetChildren2) <= WAITERS / 20, "{joined:?}");
    drain(holder, waiters).await;
    stage.client.close().await;
}

/// The contender ahead is not counted: its number does not order it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn contender_behind_a_number_near_the_end_lists_with_its_create() {
    let stage = Stage::new(LOCK).await;
    assert!(stage.server.set_next_sequence(LOCK, i32::MAX - 6));
    let holder = in_time(lock(&stage.client).acquire()).await.unwrap();
    counted(&stage.server);
    let creates = || [OpCode::Create, OpCode::Create2].map(|op| stage.proxy.replies(op));
    let created = creates();
    stage.proxy.latency(Stage::QUIET);
    let mutex = lock(&stage.client);
    let waiter = tokio::spawn(async move { mutex.acquire().await.unwrap() });
    eventually("it lists", async || stage.server.requests().iter().any(|one| one.op == OpCode::GetChildren)).await;
    assert_eq!(nodes(&stage.server), 2);
    assert_eq!(creates(), created, "the reply to its create is on its way");
    stage.proxy.latency(Duration::ZERO);
    assert!(holder.release().await.unwrap().is_released());
    assert!(in_time(waiter).await.unwrap().release().await.unwrap().is_released());
    stage.client.close().await;
}

/// Clients with some tasks each, which take the lock again and again. Between two turns a task lets others have some: a
/// pause in time would depend on the machine.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cycles_of_several_clients_share_listings() {
    const TASKS: usize = 40;
    const CYCLES: usize = 5;
    let stage = Stage::new(LOCK).await;
    let second = client(&stage.server).await;
    stage.server.clear_requests();
    // The turns so far, and the tasks that want one.
    let turns = tokio::sync::watch::Sender::new((0, 0));
    let mut tasks = JoinSet::new();
    for (number, client) in [stage.client.clone(), second.clone()].iter().cycle().take(2 * TASKS).enumerate() {
        let (mutex, turns) = (lock(client), turns.clone());
        tasks.spawn(async move {
            for cycle in 0..CYCLES {
                turns.send_modify(|(_, wanting)| *wanting += 1);
                let guard = mutex.acquire().await.unwrap();
                assert!(guard.release().await.unwrap().is_released());
                turns.send_modify(|(turns, wanting)| (*turns, *wanting) = (*turns + 1, *wanting - 1));
                let next = turns.borrow().0 + (number * 7 + cycle * 13) % 60;
                turns.subscribe().wait_for(|&(turns, wanting)| turns >= next || wanting == 0).await.unwrap();
            }
        });
    }
    while let Some(done) = in_time(tasks.join_next()).await {
        done.unwrap();
    }
    let counts = counted(&stage.server);
    println!("{counts:?}");
    let cycles = 2 * TASKS * CYCLES;
    assert!(of(&counts, OpCode::GetChildren) + of(&counts, OpCode::GetChildren2) <= cycles / 10, "{counts:?}");
    second.close().await;
    stage.client.close().await;
}

/// Polls a future once in this task.
async fn poll_once<T>(future: std::pin::Pin<&mut impl Future<Output = T>>) -> bool {
    let mut future = future;
    std::future::poll_fn(|context| std::task::Poll::Ready(future.as_mut().poll(context).is_ready())).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiter_that_is_not_polled_holds_up_no_other() {
    let stage = Stage::new(LOCK).await;
    let holder = in_time(lock(&stage.observer).acquire()).await.unwrap();
    let mutex = lock(&stage.client);
    let wait = || {
        let mutex = mutex.clone();
        tokio::spawn(async move { mutex.acquire().await.unwrap() })
    };
    let first = wait();
    eventually("the first waits", async || nodes(&stage.server) == 2).await;
    let between = wait();
    eventually("the second waits", async || nodes(&stage.server) == 3).await;
    let mut last = std::pin::pin!(mutex.acquire());
    eventually("the last waits", async || !poll_once(last.as_mut()).await && nodes(&stage.server) == 4).await;
    quiet(&stage.server).await;
    assert!(!poll_once(last.as_mut()).await);
    quiet(&stage.server).await;
    counted(&stage.server);
    between.abort();
    // It reads the first one's node, and is not polled from then on.
    eventually("the last looks", async || {
        assert!(!poll_once(last.as_mut()).await);
        stage.server.requests().iter().any(|one| one.op == OpCode::GetData)
    })
    .await;
    assert!(holder.release().await.unwrap().is_released());
    let guard = in_time(first).await.unwrap();
    assert!(guard.release().await.unwrap().is_released());
    assert!(in_time(last).await.unwrap().release().await.unwrap().is_released());
    stage.client.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn last_of_many_that_give_up_looks_at_few_of_them() {
    let stage = Stage::new(LOCK).await;
    let (holder, mut waiters) = queue(&stage, 0).await;
    let mutex = lock(&stage.client);
    for number in 1..=100 {
        let mutex = mutex.clone();
        waiters.push(tokio::spawn(async move { mutex.acquire().await.unwrap() }));
        eventually("it waits", async || nodes(&stage.server) == number + 1).await;
    }
    quiet(&stage.server).await;
    let last = waiters.pop().unwrap();
    counted(&stage.server);
    waiters.pop().unwrap().abort();
    eventually("the last looks", async || stage.server.requests().iter().any(|one| one.op == OpCode::GetData)).await;
    quiet(&stage.server).await;
    counted(&stage.server);
    waiters.iter().for_each(tokio::task::JoinHandle::abort);
    assert!(holder.release().await.unwrap().is_released());
    let guard = in_time(last).await.unwrap();
    let counts = counted(&stage.server);
    println!("{counts:?}");
    let reads = of(&counts, OpCode::GetData) + of(&counts, OpCode::Exists) + of(&counts, OpCode::GetChildren);
    assert!(reads <= 20, "{counts:?}");
    assert!(guard.release().await.unwrap().is_released());
    stage.client.close().await;
}
