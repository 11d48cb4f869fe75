//! The locks of this project.

use std::time::{Duration, Instant};

use async_trait::async_trait;
use curator_bench::clients::{Ours, SESSION};
use curator_bench::figures::median;
use curator_bench::plain::LEASES;
use curator_bench::process::Result;
use curator_framework::CuratorFramework;
use curator_framework::recipe::RecipeClient as _;
use curator_recipes::{
    InterProcessMutex, InterProcessReadWriteLock, InterProcessSemaphoreV2, MutexOptions, SemaphoreOptions,
    SemaphoreProtocol,
};
use tokio::task::JoinSet;

use crate::peer::{Peer, Run, compete, per_second};
use crate::workload::Recipe;

const RESTS: Duration = Duration::from_millis(300);

/// The lock that one session takes again and again.
enum Lock {
    Mutex(InterProcessMutex),
    Semaphore(InterProcessSemaphoreV2),
    ReadWrite(InterProcessReadWriteLock),
}

struct Contender {
    client: CuratorFramework,
    lock: Lock,
    cycle: usize,
}

impl Contender {
    fn new(run: &Run, client: CuratorFramework, cycle: usize) -> Result<Self> {
        let (own, path) = (client.clone(), &run.path);
        let semaphore = |protocol| {
            let options = SemaphoreOptions::new().protocol(protocol);
            InterProcessSemaphoreV2::with_options(own.clone(), path, LEASES, options)
        };
        let lock = match run.recipe {
            Recipe::Semaphore => Lock::Semaphore(semaphore(SemaphoreProtocol::default())?),
            Recipe::DirectSemaphore => Lock::Semaphore(semaphore(SemaphoreProtocol::Direct)?),
            Recipe::ReadWrite => Lock::ReadWrite(InterProcessReadWriteLock::new(own, path)?),
            _ => Lock::Mutex(InterProcessMutex::new(own, path)?),
        };
        Ok(Self { client, lock, cycle })
    }

    async fn cycle(&mut self) -> Result<()> {
        self.cycle += 1;
        let outcome = match &self.lock {
            Lock::Mutex(mutex) => mutex.acquire().await?.release().await?,
            Lock::Semaphore(semaphore) => semaphore.acquire().await?.release().await?,
            Lock::ReadWrite(lock) if self.cycle % 10 == 0 => lock.write_lock().acquire().await?.release().await?,
            Lock::ReadWrite(lock) => lock.read_lock().acquire().await?.release().await?,
        };
        assert!(outcome.is_released());
        Ok(())
    }
}

/// Queues so many waiters behind a lock that this client holds. Each lets go at once.
pub(crate) async fn queue_in(client: CuratorFramework, path: &str, size: usize) -> Result<Queue> {
    let held = InterProcessMutex::new(client.clone(), path)?.acquire().await?;
    let mut waiters = JoinSet::new();
    for _ in 0..size {
        // By default a client waits with 1,000 nodes at a path.
        let options = MutexOptions::new().max_waiting_nodes(size);
        let mutex = InterProcessMutex::with_options(client.clone(), path, options)?;
        waiters.spawn(async move {
            assert!(mutex.acquire().await?.release().await?.is_released());
            Ok(())
        });
    }
    // Each watches the node ahead. Its own it may watch too, which is the one ahead of the next.
    while client.watched_paths().len() < size {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    tokio::time::sleep(RESTS).await;
    // Answers come in order: behind this one there are no more.
    client.check_exists().for_path(path).await?;
    Ok(Queue { client, held, waiters })
}

pub(crate) struct Queue {
    pub(crate) client: CuratorFramework,
    held: curator_recipes::MutexGuard,
    waiters: JoinSet<Result<()>>,
}

impl Queue {
    /// Lets all have their turn.
    pub(crate) async fn drain(mut self) -> Result<Duration> {
        let began = Instant::now();
        assert!(self.held.release().await?.is_released());
        while let Some(done) = self.waiters.join_next().await {
            done??;
        }
        let elapsed = began.elapsed();
        self.client.close().await;
        Ok(elapsed)
    }
}

/// From the release of one session to the grant of the other's.
async fn hand_off(ours: Ours, run: &Run) -> Result<f64> {
    let server = run.server.to_string();
    let clients = [ours.connect(&server, SESSION).await?, ours.connect(&server, SESSION).await?];
    let mut held = InterProcessMutex::new(clients[0].clone(), &run.path)?.acquire().await?;
    let mut times = Vec::new();
    for round in 0..run.size {
        let mutex = InterProcessMutex::new(clients[(round + 1) % 2].clone(), &run.path)?;
        let waiter = tokio::spawn(async move { mutex.acquire().await.map(|guard| (Instant::now(), guard)) });
        while clients[0].get_children().for_path(&run.path).await?.len() < 2 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
        let began = Instant::now();
        assert!(held.release().await?.is_released());
        let (granted, guard) = waiter.await??;
        times.push((granted - began).as_secs_f64() * 1e3);
        held = guard;
    }
    assert!(held.release().await?.is_released());
    for client in clients {
        client.close().await;
    }
    Ok(median(&times).ok_or("no hand-offs")?)
}

#[async_trait]
impl Peer for Ours {
    async fn run(&mut self, run: &Run) -> Result<f64> {
        let server = run.server.to_string();
        match run.recipe {
            Recipe::HandOff => return hand_off(*self, run).await,
            Recipe::Drain => {
                let elapsed =
                    queue_in(self.connect(&server, SESSION).await?, &run.path, run.size).await?.drain().await?;
                return Ok(per_second(run.size, elapsed));
            }
            _ => {}
        }
        // Each contender has a session.
        let mut contenders = Vec::new();
        for first in 0..run.size {
            contenders.push(Contender::new(run, self.connect(&server, SESSION).await?, first)?);
        }
        let (figure, contenders) = compete(run, contenders, |own, _| Box::pin(own.cycle())).await?;
        for contender in contenders {
            contender.client.close().await;
        }
        Ok(figure)
    }
}
