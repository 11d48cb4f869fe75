//! Many waiters of one client at one read-write lock, on both servers: what they ask of the server does not grow with
//! their number.

use curator_framework::CuratorFramework;
use curator_integration::env::{Env, builder, children, connected, eventually, in_time};
use curator_integration::on_every_server;
use curator_recipes::{FencingToken, InterProcessReadWriteLock, LockGuard};
use curator_test::FaultProxy;
use curator_test::wire::OpCode;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinHandle;

use self::Half::{Read, Write};

const WAITERS: usize = 1_000;
/// The bytes from the server for each of them.
const EACH: u64 = 350;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Half {
    Read,
    Write,
}

/// A guard, with its half.
type Granted = (Half, LockGuard);

/// A client behind a proxy, and another client.
struct Ground {
    env: Env,
    proxy: FaultProxy,
    client: CuratorFramework,
    other: CuratorFramework,
    granted: (UnboundedSender<Granted>, UnboundedReceiver<Granted>),
}

async fn acquire(lock: InterProcessReadWriteLock, half: Half) -> LockGuard {
    match half {
        Read => lock.read_lock().acquire().await.unwrap().into(),
        Write => lock.write_lock().acquire().await.unwrap().into(),
    }
}

impl Ground {
    async fn new(env: Env) -> Self {
        let proxy = env.proxy();
        let (client, other) = (connected(builder(proxy.address())).await, env.client().await);
        Self { env, proxy, client, other, granted: unbounded_channel() }
    }

    fn lock(&self, client: &CuratorFramework) -> InterProcessReadWriteLock {
        InterProcessReadWriteLock::new(client.clone(), self.env.path("lock")).unwrap()
    }

    async fn nodes(&self) -> usize {
        children(&self.other, &self.env.path("lock")).await.len()
    }

    /// Lets tasks wait for these halves, and returns when their nodes exist and all is quiet.
    async fn join(&self, halves: impl IntoIterator<Item = Half>) -> Vec<JoinHandle<()>> {
        let (lock, before) = (self.lock(&self.client), self.nodes().await);
        let wait = |half| {
            let (lock, granted) = (lock.clone(), self.granted.0.clone());
            tokio::spawn(async move {
                let guard = acquire(lock, half).await;
                granted.send((half, guard)).unwrap_or_default();
            })
        };
        let tasks: Vec<_> = halves.into_iter().map(wait).collect();
        eventually("all wait", async || self.nodes().await == before + tasks.len()).await;
        self.quiet().await;
        tasks
    }

    /// Lets tasks of the other client wait for these halves, one after the other.
    async fn others(&self, halves: impl IntoIterator<Item = Half>) -> Vec<JoinHandle<LockGuard>> {
        let mut tasks = Vec::new();
        for half in halves {
            let before = self.nodes().await;
            tasks.push(tokio::spawn(acquire(self.lock(&self.other), half)));
            eventually("it waits", async || self.nodes().await == before + 1).await;
        }
        tasks
    }

    /// Lets a waiter of the other client give up.
    async fn gives_up(&self, waiter: Option<JoinHandle<LockGuard>>) {
        let before = self.nodes().await;
        waiter.unwrap().abort();
        eventually("it is gone", async || self.nodes().await == before - 1).await;
        self.quiet().await;
    }

    /// Waits until nothing has come from the server for some looks in a row.
    async fn quiet(&self) {
        let mut same = (0, 0);
        eventually("no more replies", async || {
            let sent = self.proxy.traffic().sent;
            same = (sent, if sent == same.0 { same.1 + 1 } else { 0 });
            same.1 >= 20
        })
        .await;
    }

    /// The listings, and the bytes from the server.
    fn counted(&self) -> (usize, u64) {
        let listings = self.proxy.replies(OpCode::GetChildren) + self.proxy.replies(OpCode::GetChildren2);
        (listings, self.proxy.traffic().sent)
    }

    /// Prints the listings and the bytes from the server since a count, and returns them.
    fn since(&self, what: &str, before: (usize, u64)) -> (usize, u64) {
        let now = self.counted();
        let (listings, bytes) = (now.0 - before.0, now.1 - before.1);
        println!("{what}: {listings} listings, {bytes} bytes from the server");
        (listings, bytes)
    }

    /// Returns the next grant.
    async fn next(&mut self) -> Granted {
        in_time(self.granted.1.recv()).await.unwrap()
    }

    /// Returns the next grants of readers, all held at once.
    async fn readers(&mut self, count: usize) -> Vec<LockGuard> {
        let mut guards = Vec::with_capacity(count);
        for _ in 0..count {
            let (half, guard) = self.next().await;
            assert_eq!(half, Read);
            guards.push(guard);
        }
        assert!(guards.iter().all(LockGuard::is_held));
        guards
    }

    /// Releases each grant, and returns the tokens in the order of the grants.
    async fn served(&mut self, count: usize) -> Vec<(Half, FencingToken)> {
        let mut order = Vec::with_capacity(count);
        for _ in 0..count {
            let (half, guard) = self.next().await;
            order.push((half, guard.token()));
            assert!(guard.release().await.unwrap().is_released());
        }
        order
    }

    async fn close(self) {
        self.client.close().await;
        self.other.close().await;
    }
}

/// Checks that each writer was granted after all ahead of it, and before all behind it.
fn are_in_order(order: &[(Half, FencingToken)]) {
    for (position, (_, writer)) in order.iter().enumerate().filter(|(_, (half, _))| *half == Write) {
        let (before, behind) = (&order[..position], &order[position + 1..]);
        assert!(before.iter().all(|(_, token)| token < writer) && behind.iter().all(|(_, token)| token > writer));
    }
}

/// Lets all wait behind a writer of the other client.
async fn joins_and_gets_the_lock(env: Env, half: impl Fn(usize) -> Half) {
    let mut ground = Ground::new(env).await;
    let theirs = in_time(acquire(ground.lock(&ground.other), Write)).await;
    let before = ground.counted();
    let tasks = ground.join((0..WAITERS).map(half)).await;
    let (_, bytes) = ground.since("join", before);
    assert!(bytes <= EACH * WAITERS as u64, "{bytes} bytes");
    let before = ground.counted();
    assert!(theirs.release().await.unwrap().is_released());
    let order = ground.served(tasks.len()).await;
    are_in_order(&order);
    let (listings, _) = ground.since("are served", before);
    // Each writer lists.
    let writers = order.iter().filter(|(half, _)| *half == Write).count();
    assert!(listings <= writers + WAITERS / 20, "{listings} listings");
    ground.close().await;
}

on_every_server! {
    async fn reader_joins_without_a_listing(env) {
        joins_and_gets_the_lock(env, |_| Read).await;
    }

    async fn writer_joins_without_a_listing(env) {
        joins_and_gets_the_lock(env, |_| Write).await;
    }

    async fn readers_and_writers_join_without_a_listing(env) {
        joins_and_gets_the_lock(env, |number| if number % 5 == 2 { Write } else { Read }).await;
    }

    async fn waiters_behind_a_writer_that_downgrades_are_served_in_order(env) {
        const SOME: usize = 50;
        let mut ground = Ground::new(env).await;
        let lock = ground.lock(&ground.client);
        let first = in_time(lock.write_lock().acquire()).await.unwrap();
        ground.join([Read; SOME]).await;
        ground.join([Write]).await;
        ground.join([Read; SOME]).await;
        let (theirs, path) = (ground.lock(&ground.other), ground.env.path("lock"));
        let theirs = tokio::spawn(async move { acquire(theirs, Write).await });
        ground.env.wait_for_children(&ground.other, &path, 2 * SOME + 3).await;
        ground.join([Read]).await;
        // The reader is where the writer was: only the readers behind it are granted.
        let reading = in_time(first.downgrade()).await.unwrap();
        let readers = ground.readers(SOME).await;
        ground.quiet().await;
        assert!(ground.granted.1.try_recv().is_err());
        assert!(reading.release().await.unwrap().is_released());
        drop(readers);
        let (half, writing) = ground.next().await;
        assert_eq!(half, Write);
        let before = ground.counted();
        assert!(writing.release().await.unwrap().is_released());
        let readers = ground.readers(SOME).await;
        ground.quiet().await;
        assert!(ground.granted.1.try_recv().is_err() && !theirs.is_finished());
        ground.since("readers are granted", before);
        drop(readers);
        assert!(in_time(theirs).await.unwrap().release().await.unwrap().is_released());
        ground.readers(1).await;
        ground.close().await;
    }

    async fn reader_finds_a_writer_ahead_of_other_readers_in_an_earlier_listing(env) {
        let mut ground = Ground::new(env).await;
        let theirs = in_time(acquire(ground.lock(&ground.other), Write)).await;
        let mut others = ground.others([Read; 8].into_iter().chain([Write; 2])).await;
        ground.join([Read; 2]).await;
        // They list behind the first one that gives up, and use that listing behind the second one.
        let before = ground.counted();
        ground.gives_up(others.pop()).await;
        ground.gives_up(others.pop()).await;
        let (listings, _) = ground.since("two give up", before);
        assert!(ground.granted.1.try_recv().is_err(), "the first writer holds the lock");
        assert!(listings <= 2, "{listings} listings");
        assert!(theirs.release().await.unwrap().is_released());
        ground.readers(2).await;
        ground.close().await;
    }

    async fn writer_lists_behind_the_last_node_of_an_earlier_listing(env) {
        let mut ground = Ground::new(env).await;
        let theirs = in_time(ground.lock(&ground.other).write_lock().acquire()).await.unwrap();
        let mut others = ground.others([Write]).await;
        ground.join([Write; 2]).await;
        ground.gives_up(others.pop()).await;
        let reading = in_time(theirs.downgrade()).await.unwrap();
        ground.quiet().await;
        assert!(ground.granted.1.try_recv().is_err(), "the writer became a reader");
        assert!(reading.release().await.unwrap().is_released());
        ground.served(2).await;
        ground.close().await;
    }

    async fn waiters_that_give_up_at_once_cost_few_listings(env) {
        let mut ground = Ground::new(env).await;
        let theirs = in_time(acquire(ground.lock(&ground.other), Write)).await;
        let half = |number| if number % 5 == 2 { Write } else { Read };
        let mut tasks = ground.join((0..WAITERS / 2).map(half)).await;
        let before = ground.counted();
        let mut number = 0;
        tasks.retain(|task| {
            number += 1;
            if number % 3 == 0 {
                task.abort();
            }
            number % 3 != 0
        });
        eventually("they are gone", async || ground.nodes().await == tasks.len() + 1).await;
        ground.quiet().await;
        let (listings, _) = ground.since("a third gives up", before);
        assert!(listings <= 5, "{listings} listings");
        assert!(theirs.release().await.unwrap().is_released());
        are_in_order(&ground.served(tasks.len()).await);
        ground.close().await;
    }

    async fn waiters_with_nodes_that_are_deleted_by_hand_are_served_in_order(env) {
        let mut ground = Ground::new(env).await;
        let theirs = in_time(acquire(ground.lock(&ground.other), Write)).await;
        let half = |number| if number % 5 == 2 { Write } else { Read };
        let tasks = ground.join((0..WAITERS / 2).map(half)).await;
        let before = ground.counted();
        let path = ground.env.path("lock");
        let theirs_node = theirs.node_path().to_owned();
        for (number, name) in children(&ground.other, &path).await.into_iter().enumerate() {
            let node = format!("{path}/{name}");
            if number % 3 == 0 && node != theirs_node {
                ground.other.delete().for_path(&node).await.unwrap();
            }
        }
        // Each of them gets another node.
        eventually("all wait again", async || ground.nodes().await == tasks.len() + 1).await;
        ground.quiet().await;
        ground.since("a third is deleted", before);
        assert!(theirs.release().await.unwrap().is_released());
        are_in_order(&ground.served(tasks.len()).await);
        ground.close().await;
    }
}
