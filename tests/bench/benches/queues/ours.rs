//! The queues of this project in a process of its own, with the same words as `main`.

use std::pin::pin;
use std::time::{Duration, Instant};

use curator_bench::clients::Clients;
use curator_bench::process::{Commands, Result};
use curator_framework::CuratorFramework;
use curator_recipes::{Delivery, DistributedQueue, QueueOptions, RawCodec};
use futures_util::future::try_join_all;
use tokio::sync::watch;
use tokio::time::sleep;

use crate::ALLOCATOR;

/// The items of a batch, and the work at a time.
const BATCH: u32 = 64;
/// The pause between two checks of the heap.
const LOOK: Duration = Duration::from_millis(2);

#[derive(Default)]
pub(crate) struct All {
    clients: Clients,
}

pub(crate) fn queue(client: &CuratorFramework, mode: &str, path: &str) -> Result<DistributedQueue<String>> {
    let options = match mode {
        "plain" => QueueOptions::new().at_most_once(),
        "locked" => QueueOptions::new().lock_path(format!("{path}-locks")),
        "batches" => QueueOptions::new().lock_path(format!("{path}-locks")).batch(BATCH),
        _ => return Err(format!("no mode {mode}").into()),
    };
    Ok(DistributedQueue::with_options(client.clone(), path, RawCodec, options)?)
}

impl All {
    /// Takes all items with a consumer of each client.
    async fn drain(&self, mode: &str, path: &str, items: usize) -> Result<Duration> {
        let left = watch::Sender::new(items);
        let began = Instant::now();
        let mut runs = Vec::new();
        for client in &self.clients.0 {
            let (queue, left, in_batches) = (queue(client, mode, path)?, left.clone(), mode == "batches");
            runs.push(tokio::spawn(async move {
                let (mut consumer, mut none) = (queue.consumer(), left.subscribe());
                if in_batches {
                    let work = async |delivery: Delivery<String>| match delivery.complete().await {
                        Ok(()) => left.send_modify(|left| *left -= delivery.items().len()),
                        Err(error) => eprintln!("{error}"),
                    };
                    return Ok(consumer.run_until(none.wait_for(|left| *left == 0), BATCH as usize, work).await?);
                }
                loop {
                    let delivery = tokio::select! {
                        biased;
                        end = none.wait_for(|left| *left == 0) => break end.map(drop),
                        delivery = consumer.next() => delivery.ok_or("the client is closed")??,
                    };
                    delivery.complete().await?;
                    left.send_modify(|left| *left -= delivery.items().len());
                }?;
                Result::Ok(())
            }));
        }
        for run in try_join_all(runs).await? {
            run?;
        }
        Ok(began.elapsed())
    }

    /// Drains while it checks the heap.
    async fn memory(&self, path: &str, items: usize) -> Result<String> {
        let before = heap();
        let (mut peak, mut drain) = (before, pin!(self.drain("plain", path, items)));
        loop {
            tokio::select! {
                drained = &mut drain => {
                    drained?;
                    break;
                }
                () = sleep(LOOK) => peak = peak.max(heap()),
            }
        }
        let over = |bytes: usize| bytes.saturating_sub(before);
        Ok(format!("{} {}", over(peak), over(heap())))
    }
}

/// Returns the bytes in use.
fn heap() -> usize {
    let stats = ALLOCATOR.stats();
    stats.bytes_allocated.saturating_sub(stats.bytes_deallocated)
}

impl Commands for All {
    async fn run(&mut self, words: &[&str]) -> Result<String> {
        Ok(match *words {
            ["connect", count, servers] => self.clients.connect(count, servers).await?,
            ["drain", mode, path, items] => self.drain(mode, path, items.parse()?).await?.as_nanos().to_string(),
            ["memory", path, items] => self.memory(path, items.parse()?).await?,
            ["end"] => self.clients.end().await?,
            _ => return Err(format!("{words:?} is unknown").into()),
        })
    }
}
