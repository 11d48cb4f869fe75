//! Peers in other languages: a process of their own that reads what to do.

use std::time::Duration;

use async_trait::async_trait;
use curator_bench::figures::median;
use curator_bench::process::{Process, Program, Result};

use crate::peer::{Peer, Run, per_second};
use crate::workload::Recipe;

pub(crate) struct Spawned(Process);

impl Spawned {
    pub(crate) async fn start(program: Program) -> Result<Self> {
        Ok(Self(Process::start(program).await?))
    }

    /// Queues as many waiters in one session as the run says.
    pub(crate) async fn queue(&mut self, run: &Run) -> Result<()> {
        self.0.tell(&line(run), "queued").await
    }

    /// Gives all waiters their turn.
    pub(crate) async fn drain(&mut self) -> Result<f64> {
        figure(Recipe::Drain, &self.0.ask("go").await?)
    }
}

/// Returns the line that asks for a run.
fn line(run: &Run) -> String {
    format!("{} {} {} {} {}", run.recipe.word(), run.server, run.path, run.time.as_millis(), run.size)
}

fn figure(recipe: Recipe, answer: &str) -> Result<f64> {
    let numbers = answer.split(' ').map(str::parse).collect::<std::result::Result<Vec<u64>, _>>();
    match (recipe, numbers.map_err(|error| format!("{answer:?}: {error}"))?.as_slice()) {
        (Recipe::HandOff, times) => {
            let millis = times.iter().map(|nanos| Duration::from_nanos(*nanos).as_secs_f64() * 1e3);
            Ok(median(&millis.collect::<Vec<_>>()).ok_or("no hand-offs")?)
        }
        (_, [cycles, nanos]) => Ok(per_second((*cycles).try_into()?, Duration::from_nanos(*nanos))),
        _ => Err(format!("it says {answer:?}").into()),
    }
}

#[async_trait]
impl Peer for Spawned {
    async fn run(&mut self, run: &Run) -> Result<f64> {
        if run.recipe == Recipe::Drain {
            self.queue(run).await?;
            return self.drain().await;
        }
        figure(run.recipe, &self.0.ask(&line(run)).await?)
    }
}
