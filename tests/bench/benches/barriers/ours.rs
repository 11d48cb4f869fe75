//! This project's members, in a process of their own. `main.rs` lists the words.

use std::time::{Duration, Instant};

use curator_bench::clients::Clients;
use curator_bench::process::{Commands, Result};
use curator_recipes::{BarrierMember, DistributedDoubleBarrier};
use futures_util::future::try_join_all;
use tokio::time::sleep;

#[derive(Default)]
pub(crate) struct All {
    clients: Clients,
    members: Vec<BarrierMember>,
}

/// Lets all members take a step, each in a task of its own and so long behind the one before. Returns the time until the
/// last has taken it, and what each has got.
async fn steps<F, T>(pause: Duration, steps: Vec<F>) -> Result<(Duration, Vec<T>)>
where
    F: Future<Output = Result<T>> + Send + 'static,
    T: Send + 'static,
{
    let began = Instant::now();
    let tasks = (0..).zip(steps).map(|(number, step)| {
        tokio::spawn(async move {
            if !pause.is_zero() {
                sleep(pause * number).await;
            }
            step.await
        })
    });
    let got = try_join_all(tasks).await?;
    Ok((began.elapsed(), got.into_iter().collect::<Result<_>>()?))
}

impl All {
    async fn enter(&mut self, path: &str, pause: Duration) -> Result<Duration> {
        let quantity = self.clients.0.len();
        let barriers =
            self.clients.0.iter().map(|client| DistributedDoubleBarrier::new(client.clone(), path, quantity));
        let barriers = barriers.collect::<std::result::Result<Vec<_>, _>>()?;
        let enter = barriers.into_iter().map(|barrier| async move { Ok(barrier.enter().await?) });
        let (time, members) = steps(pause, enter.collect()).await?;
        self.members = members;
        Ok(time)
    }

    async fn leave(&mut self, pause: Duration) -> Result<Duration> {
        let leave = self.members.drain(..).map(|member| async move {
            let departure = member.leave().await?;
            if departure.died == 0 { Ok(()) } else { Err(format!("{departure:?}").into()) }
        });
        let (time, _) = steps(pause, leave.collect()).await?;
        Ok(time)
    }
}

impl Commands for All {
    async fn run(&mut self, words: &[&str]) -> Result<String> {
        let pause = |millis: &str| Result::Ok(Duration::from_millis(millis.parse()?));
        Ok(match *words {
            ["connect", count, servers] => self.clients.connect(count, servers).await?,
            ["enter", path, millis] => format!("entered {}", self.enter(path, pause(millis)?).await?.as_nanos()),
            ["leave", millis] => format!("left {}", self.leave(pause(millis)?).await?.as_nanos()),
            ["end"] => self.clients.end().await?,
            _ => return Err(format!("{words:?} is unknown").into()),
        })
    }
}
