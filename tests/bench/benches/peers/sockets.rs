//! The least that a lock can cost: the plain recipes over bare sockets, with nothing between the recipe and the system. A
//! session blocks a thread, or is a task of the runtime that this project's client uses too.

use std::sync::{Arc, Barrier};
use std::time::Instant;

use async_trait::async_trait;
use curator_bench::process::Result;
use curator_bench::socket::{Socket, names, now};
use curator_test::wire::OpCode;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::peer::{Peer, Run, compete, per_second};
use crate::plain::{Session, cycle, parents};

pub(crate) enum BareSockets {
    Blocking,
    Tokio,
}

/// A session and the names of its nodes.
struct Contender<S> {
    socket: Socket<S>,
    owner: usize,
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Session for Contender<S> {
    const LISTS_AGAIN: bool = false;

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

    async fn changed(&mut self, path: &str) -> Result<()> {
        while !self.socket.notified.iter().any(|of| of == path) {
            self.socket.receive().await?;
        }
        self.socket.notified.clear();
        Ok(())
    }

    async fn gone(&mut self, path: &str) -> Result<()> {
        self.socket.request(OpCode::GetData, |to| _ = to.string(path).bool(true));
        self.socket.flush().await?;
        match self.socket.reply().await?.0 {
            0 => self.changed(path).await,
            _ => Ok(()),
        }
    }

    async fn delete(&mut self, path: &str) -> Result<()> {
        self.socket.delete(path).await
    }
}

fn compete_in_threads(run: &Run) -> Result<f64> {
    let connect = |owner| Ok(Contender { socket: Socket::connect_blocking(run.server)?, owner });
    let mut contenders = (0..run.size).map(connect).collect::<Result<Vec<_>>>()?;
    for parent in parents(run) {
        now(contenders[0].socket.create_parent(&parent))?;
    }
    let begin = Arc::new(Barrier::new(run.size + 1));
    let threads = contenders.into_iter().map(|mut contender| {
        let (begin, run) = (Arc::clone(&begin), run.clone());
        std::thread::spawn(move || {
            begin.wait();
            let began = Instant::now();
            let mut cycles = 0;
            while began.elapsed() < run.time {
                now(cycle(&mut contender, &run))?;
                cycles += 1;
            }
            now(contender.socket.close())?;
            Result::Ok(cycles)
        })
    });
    let threads: Vec<_> = threads.collect();
    let began = Instant::now();
    begin.wait();
    let mut cycles = 0;
    for thread in threads {
        cycles += thread.join().map_err(|_| "a thread panicked")??;
    }
    Ok(per_second(cycles, began.elapsed()))
}

async fn compete_in_tasks(run: &Run) -> Result<f64> {
    let mut contenders = Vec::new();
    for owner in 0..run.size {
        contenders.push(Contender { socket: Socket::connect(run.server).await?, owner });
    }
    for parent in parents(run) {
        contenders[0].socket.create_parent(&parent).await?;
    }
    let (figure, contenders) = compete(run, contenders, |own, run| Box::pin(cycle(own, run))).await?;
    for contender in contenders {
        contender.socket.close().await?;
    }
    Ok(figure)
}

#[async_trait]
impl Peer for BareSockets {
    async fn run(&mut self, run: &Run) -> Result<f64> {
        match self {
            Self::Blocking => {
                let run = run.clone();
                tokio::task::spawn_blocking(move || compete_in_threads(&run)).await?
            }
            Self::Tokio => compete_in_tasks(run).await,
        }
    }
}
