//! The locks of this project.

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use curator_framework::CuratorFramework;
use curator_framework::recipe::RecipeClient as _;
use curator_recipes::{
    InterProcessMutex, InterProcessReadWriteLock, InterProcessSemaphoreV2, SemaphoreOptions, SemaphoreProtocol,
};
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use crate::peer::{OURS, OURS_SECOND, Peer, Result, Run};
use crate::workload::{Outcome, Workload};
use curator_bench::cycles::Ours;

pub(crate) const LEASES: usize = 4;
const RESTS: Duration = Duration::from_millis(300);

/// A client with Curator's defaults.
pub(crate) async fn connect(server: &str) -> Result<CuratorFramework> {
    Ours::Own.connect(server).await
}

/// The lock that one session takes again and again.
enum Contender {
    Mutex(InterProcessMutex),
    Semaphore(InterProcessSemaphoreV2),
    ReadWrite(InterProcessReadWriteLock),
}

impl Contender {
    fn new(workload: Workload, client: CuratorFramework, path: &str) -> Result<Self> {
        Ok(match workload.recipe() {
            Workload::Semaphore => Self::Semaphore(InterProcessSemaphoreV2::new(client, path, LEASES)?),
            Workload::DirectSemaphore => {
                let semaphore = InterProcessSemaphoreV2::with_options(
                    client,
                    path,
                    LEASES,
                    SemaphoreOptions::new().protocol(SemaphoreProtocol::Direct),
                )?;
                Self::Semaphore(semaphore)
            }
            Workload::ReadWrite => Self::ReadWrite(InterProcessReadWriteLock::new(client, path)?),
            _ => Self::Mutex(InterProcessMutex::new(client, path)?),
        })
    }

    async fn cycle(&self, round: usize) -> Result<()> {
        assert!(
            match self {
                Self::Mutex(mutex) => mutex.acquire().await?.release().await?,
                Self::Semaphore(semaphore) => semaphore.acquire().await?.release().await?,
                Self::ReadWrite(lock) if round % 10 == 0 => lock.write_lock().acquire().await?.release().await?,
                Self::ReadWrite(lock) => lock.read_lock().acquire().await?.release().await?,
            }
            .is_released()
        );
        Ok(())
    }
}

/// Every contender has a session.
async fn compete(ours: Ours, workload: Workload, run: &Run) -> Result<Outcome> {
    let begin = Arc::new(Barrier::new(run.size + 1));
    let mut contenders = JoinSet::new();
    for first in 0..run.size {
        let client = ours.connect(&run.server.to_string()).await?;
        let contender = Contender::new(workload, client.clone(), &run.path)?;
        let (begin, time) = (Arc::clone(&begin), run.time);
        contenders.spawn(async move {
            begin.wait().await;
            let began = Instant::now();
            let mut cycles = 0;
            while began.elapsed() < time {
                contender.cycle(first + cycles).await?;
                cycles += 1;
            }
            Result::Ok((cycles as u64, client))
        });
    }
    // Before: whoever begins may keep this task from its thread.
    let began = Instant::now();
    begin.wait().await;
    let mut cycles = 0;
    let mut clients = Vec::new();
    while let Some(done) = contenders.join_next().await {
        let (own, client) = done??;
        cycles += own;
        clients.push(client);
    }
    let outcome = Outcome::Cycles(cycles, began.elapsed());
    for client in clients {
        client.close().await;
    }
    Ok(outcome)
}

/// A client with a lock that is held, and as many who wait for it as there are to be. They let go at once.
pub(crate) async fn queue(server: &str, path: &str, size: usize) -> Result<Queue> {
    queue_in(connect(server).await?, path, size).await
}

pub(crate) async fn queue_in(client: CuratorFramework, path: &str, size: usize) -> Result<Queue> {
    let held = InterProcessMutex::new(client.clone(), path)?.acquire().await?;
    let mut waiters = JoinSet::new();
    for _ in 0..size {
        let mutex = InterProcessMutex::new(client.clone(), path)?;
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
async fn hand_off(ours: Ours, run: &Run) -> Result<Outcome> {
    let server = run.server.to_string();
    let clients = [ours.connect(&server).await?, ours.connect(&server).await?];
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
        times.push(granted - began);
        held = guard;
    }
    assert!(held.release().await?.is_released());
    for client in clients {
        client.close().await;
    }
    Ok(Outcome::Times(times))
}

#[async_trait]
impl Peer for Ours {
    fn name(&self) -> &'static str {
        match self {
            Self::Own => OURS,
            Self::ZookeeperAsync => OURS_SECOND,
        }
    }

    fn does(&self, _: Workload) -> bool {
        true
    }

    async fn run(&mut self, workload: Workload, run: &Run) -> Result<Outcome> {
        match workload {
            Workload::HandOff => hand_off(*self, run).await,
            Workload::Drain => {
                let client = self.connect(&run.server.to_string()).await?;
                let elapsed = queue_in(client, &run.path, run.size).await?.drain().await?;
                Ok(Outcome::Cycles(run.size as u64, elapsed))
            }
            _ => compete(*self, workload, run).await,
        }
    }
}
