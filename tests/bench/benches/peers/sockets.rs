//! The least that a lock can cost: the requests of this project's locks over bare sockets, with nothing between the recipe
//! and the system. A session blocks a thread, or is a task of the runtime that this project's client uses too. Nothing
//! survives a lost connection.

use std::sync::{Arc, Barrier};
use std::time::Instant;

use async_trait::async_trait;
use curator_test::wire::OpCode;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::others;
use crate::ours::LEASES;
use crate::peer::{Peer, Run, SOCKETS, TOKIO_SOCKETS};
use crate::workload::{Outcome, Workload};
use curator_bench::socket::{Result, Socket, names, now, place_of};

pub(crate) enum BareSockets {
    Blocking,
    Tokio,
}

/// A session and the names of its nodes.
struct Contender<S> {
    socket: Socket<S>,
    owner: usize,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Contender<S> {
    /// Waits for a notification of this path.
    async fn notification(&mut self, path: &str) -> Result<()> {
        while !self.socket.notified.iter().any(|of| of == path) {
            self.socket.receive().await?;
        }
        self.socket.notified.clear();
        Ok(())
    }

    async fn join(&mut self, parent: &str, name: &str) -> Result<(String, Vec<String>)> {
        let prefix = format!("{parent}/_c_{:036}-{name}-", self.owner);
        self.socket.join(parent, &prefix).await
    }

    async fn list(&mut self, parent: &str, watch: bool) -> Result<Vec<String>> {
        self.socket.request_list(parent, watch);
        self.socket.flush().await?;
        let children = names(&self.socket.reply().await?.1);
        // The listing is newer than the notifications before it.
        self.socket.notified.clear();
        children
    }

    /// Waits until a node is gone.
    async fn wait_for(&mut self, path: &str) -> Result<()> {
        self.socket.request(OpCode::GetData, |to| _ = to.string(path).bool(true));
        self.socket.flush().await?;
        match self.socket.reply().await?.0 {
            0 => self.notification(path).await,
            _ => Ok(()),
        }
    }

    /// A mutex: the node that has it.
    async fn lock(&mut self, parent: &str) -> Result<String> {
        let (own, mut children) = self.join(parent, "lock").await?;
        loop {
            let place = place_of(&own, &mut children)?;
            if place == 0 {
                return Ok(own);
            }
            let alone = place == 1;
            self.wait_for(&format!("{parent}/{}", children[place - 1])).await?;
            if alone {
                return Ok(own);
            }
            children = self.list(parent, false).await?;
        }
    }

    /// A lease, under the lock that is given back then.
    async fn lease(&mut self, path: &str) -> Result<String> {
        let turn = self.lock(&format!("{path}/locks")).await?;
        let parent = format!("{path}/leases");
        let (own, mut children) = self.join(&parent, "lease").await?;
        let mut is_watched = false;
        while children.len() > LEASES {
            if is_watched {
                self.notification(&parent).await?;
            }
            children = self.list(&parent, true).await?;
            is_watched = true;
        }
        self.socket.delete(&turn).await?;
        Ok(own)
    }

    /// A lease of the direct protocol, where nobody keeps one.
    async fn direct_lease(&mut self, path: &str) -> Result<String> {
        let parent = format!("{path}/leases");
        let (own, mut children) = self.join(&parent, "lease").await?;
        loop {
            let place = place_of(&own, &mut children)?;
            if place < LEASES {
                return Ok(own);
            }
            if place == LEASES {
                children = self.list(&parent, true).await?;
                if place_of(&own, &mut children)? < LEASES {
                    return Ok(own);
                }
                self.notification(&parent).await?;
            } else {
                self.wait_for(&format!("{parent}/{}", children[place - 1])).await?;
            }
            children = self.list(&parent, false).await?;
        }
    }

    /// Acquires the workload's lock and releases it.
    async fn cycle(&mut self, workload: Workload, path: &str) -> Result<()> {
        let node = match workload {
            Workload::Semaphore => self.lease(path).await?,
            Workload::DirectSemaphore => self.direct_lease(path).await?,
            _ => self.lock(path).await?,
        };
        self.socket.delete(&node).await
    }
}

fn parents(workload: Workload, path: &str) -> Vec<String> {
    let mut parents = vec![path.to_owned()];
    if matches!(workload, Workload::Semaphore | Workload::DirectSemaphore) {
        parents.extend([format!("{path}/locks"), format!("{path}/leases")]);
    }
    parents
}

fn compete_in_threads(workload: Workload, run: &Run) -> Result<Outcome> {
    let connect = |owner| Ok(Contender { socket: Socket::connect_blocking(run.server)?, owner });
    let mut contenders = (0..run.size).map(connect).collect::<Result<Vec<_>>>()?;
    for parent in parents(workload, &run.path) {
        now(contenders[0].socket.create_parent(&parent))?;
    }
    let begin = Arc::new(Barrier::new(run.size + 1));
    let threads: Vec<_> = contenders
        .into_iter()
        .map(|mut contender| {
            let (begin, run) = (Arc::clone(&begin), run.clone());
            std::thread::spawn(move || {
                begin.wait();
                let began = Instant::now();
                let mut cycles = 0;
                while began.elapsed() < run.time {
                    now(contender.cycle(workload, &run.path))?;
                    cycles += 1;
                }
                now(contender.socket.close())?;
                Result::Ok(cycles)
            })
        })
        .collect();
    let began = Instant::now();
    begin.wait();
    let mut cycles = 0;
    for thread in threads {
        cycles += thread.join().map_err(|_| "a thread panicked")??;
    }
    Ok(Outcome::Cycles(cycles, began.elapsed()))
}

async fn compete_in_tasks(workload: Workload, run: &Run) -> Result<Outcome> {
    let mut contenders = Vec::new();
    for owner in 0..run.size {
        contenders.push(Contender { socket: Socket::connect(run.server).await?, owner });
    }
    for parent in parents(workload, &run.path) {
        contenders[0].socket.create_parent(&parent).await?;
    }
    let (outcome, contenders) = others::compete(run, contenders, move |contender, path| {
        Box::pin(async move { contender.cycle(workload, path).await })
    })
    .await?;
    for contender in contenders {
        contender.socket.close().await?;
    }
    Ok(outcome)
}

#[async_trait]
impl Peer for BareSockets {
    fn name(&self) -> &'static str {
        match self {
            Self::Blocking => SOCKETS,
            Self::Tokio => TOKIO_SOCKETS,
        }
    }

    fn does(&self, workload: Workload) -> bool {
        use Workload::{Alone, AloneFar, Contended, ContendedFar, DirectSemaphore, Semaphore};
        matches!(workload, Alone | AloneFar | Contended | ContendedFar | Semaphore | DirectSemaphore)
    }

    async fn run(&mut self, workload: Workload, run: &Run) -> Result<Outcome> {
        match self {
            Self::Blocking => {
                let run = run.clone();
                tokio::task::spawn_blocking(move || compete_in_threads(workload, &run)).await?
            }
            Self::Tokio => compete_in_tasks(workload, run).await,
        }
    }
}
