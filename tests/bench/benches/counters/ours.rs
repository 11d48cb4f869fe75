//! This project's counters, in a process of their own. `main.rs` lists the words.

use std::time::{Duration, Instant};

use curator_bench::clients::Clients;
use curator_bench::process::{Commands, Result};
use curator_framework::{CuratorFramework, RetryNTimes};
use curator_recipes::{DistributedAtomicLong, UniqueIds};
use futures_util::future::try_join_all;

#[derive(Default)]
pub(crate) struct All {
    clients: Clients,
}

fn number(client: &CuratorFramework, path: &str) -> Result<DistributedAtomicLong> {
    Ok(DistributedAtomicLong::new(client.clone(), path, RetryNTimes::new(1_000_000, Duration::ZERO))?)
}

/// Runs these loops, each in a task of its own. Returns their time and the count of each.
async fn run<F>(loops: Vec<F>) -> Result<(Duration, Vec<u64>)>
where
    F: Future<Output = Result<u64>> + Send + 'static,
{
    let began = Instant::now();
    let counts = try_join_all(loops.into_iter().map(tokio::spawn)).await?;
    let time = began.elapsed();
    Ok((time, counts.into_iter().collect::<Result<_>>()?))
}

/// Increments each number in a task of its own for so long, and returns the answer.
async fn increment(numbers: &[DistributedAtomicLong], time: Duration) -> Result<String> {
    let loops = numbers.iter().cloned().map(|number| async move {
        let (began, mut count) = (Instant::now(), 0);
        while began.elapsed() < time {
            number.increment().await?;
            count += 1;
        }
        Ok(count)
    });
    Ok(answer(run(loops.collect()).await?))
}

fn answer((time, counts): (Duration, Vec<u64>)) -> String {
    let counts: Vec<_> = counts.iter().map(ToString::to_string).collect();
    format!("{} {}", time.as_nanos(), counts.join(" "))
}

impl All {
    async fn count(&self, path: &str, time: Duration) -> Result<String> {
        let numbers = self.clients.0.iter().map(|client| number(client, path)).collect::<Result<Vec<_>>>()?;
        let counted = increment(&numbers, time).await?;
        for number in numbers {
            number.release_marker().await;
        }
        Ok(counted)
    }

    async fn share(&self, path: &str, time: Duration, tasks: usize) -> Result<String> {
        let number = number(&self.clients.first()?, path)?;
        let counted = increment(&vec![number.clone(); tasks], time).await?;
        number.release_marker().await;
        Ok(counted)
    }

    /// Takes ids with each client, and checks that no two are equal.
    async fn ids(&self, path: &str, time: Duration) -> Result<String> {
        let (sender, receiver) = std::sync::mpsc::channel();
        let mut loops = Vec::new();
        for client in &self.clients.0 {
            let (ids, sender) = (UniqueIds::new(client.clone(), path)?, sender.clone());
            loops.push(async move {
                let (began, mut taken) = (Instant::now(), Vec::new());
                while began.elapsed() < time {
                    taken.push(ids.next().await?);
                }
                let count = taken.len() as u64;
                sender.send(taken)?;
                Ok(count)
            });
        }
        let counted = run(loops).await?;
        drop(sender);
        let mut taken: Vec<_> = receiver.iter().flatten().collect();
        taken.sort_unstable();
        let all = taken.len();
        taken.dedup();
        if taken.len() < all { Err("an id was taken twice".into()) } else { Ok(answer(counted)) }
    }
}

impl Commands for All {
    async fn run(&mut self, words: &[&str]) -> Result<String> {
        let time = |millis: &str| Result::Ok(Duration::from_millis(millis.parse()?));
        Ok(match *words {
            ["connect", count, servers] => self.clients.connect(count, servers).await?,
            ["count", path, millis] => self.count(path, time(millis)?).await?,
            ["share", path, millis, tasks] => self.share(path, time(millis)?, tasks.parse()?).await?,
            ["ids", path, millis] => self.ids(path, time(millis)?).await?,
            ["end"] => self.clients.end().await?,
            _ => return Err(format!("{words:?} is unknown").into()),
        })
    }
}
