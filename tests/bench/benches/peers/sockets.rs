//! The least that a lock can cost: the plain recipes over bare sockets, with nothing between the recipe and the system. A
//! session blocks a thread, or is a task of the runtime that this project's client uses too.

use std::sync::{Arc, Barrier};
use std::time::Instant;

use async_trait::async_trait;
use curator_bench::process::Result;
use curator_bench::socket::{Socket, now};

use crate::peer::{Peer, Run, compete, per_second};

pub(crate) enum BareSockets {
    Blocking,
    Tokio,
}

fn compete_in_threads(run: &Run) -> Result<f64> {
    let contenders = (0..run.size).map(|_| Socket::connect_blocking(run.server)).collect::<Result<Vec<_>>>()?;
    let begin = Arc::new(Barrier::new(run.size + 1));
    let threads = contenders.into_iter().map(|mut contender| {
        let (begin, run) = (Arc::clone(&begin), run.clone());
        std::thread::spawn(move || {
            begin.wait();
            let began = Instant::now();
            let mut cycles = 0;
            while began.elapsed() < run.time {
                now(run.cycle(&mut contender))?;
                cycles += 1;
            }
            now(contender.close())?;
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
    for _ in 0..run.size {
        contenders.push(Socket::connect(run.server).await?);
    }
    let (figure, contenders) = compete(run, contenders, |own, run| Box::pin(run.cycle(own))).await?;
    for contender in contenders {
        contender.close().await?;
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
