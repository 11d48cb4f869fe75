//! A queue of 200 jobs for four workers. The network of two workers falls silent in the middle of a job, as if their
//! machines had died: their sessions end, and other workers get these jobs. One job is poison, and ends as a dead
//! letter.
//!
//! The effect of a job is an entry in a ledger in ZooKeeper. Its create is one transaction with the end of the
//! delivery, so each entry is written exactly once, however often a job is delivered.

use std::collections::BTreeSet;
use std::future::pending;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use clap::Parser;
use curator_examples::{Outcome, Servers, run, say, until};
use curator_framework::{CreateMode, CuratorFramework, CuratorOp, make_path};
use curator_recipes::{Delivery, DistributedQueue, QueueError, QueueOptions, RawCodec};
use curator_test::FaultProxy;
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;

/// Works off a queue with four workers, of which two die.
#[derive(Debug, Parser)]
struct Options {
    #[command(flatten)]
    servers: Servers,
    /// The path of the queue and of the ledger
    #[arg(long, default_value = "/examples/queue")]
    path: String,
}

const JOBS: usize = 200;
const POISON: &str = "13";
const MAX_ATTEMPTS: u32 = 3;
/// The job in which a worker dies.
const LAST: u32 = 10;

fn queue(client: &CuratorFramework, path: &str) -> Outcome<DistributedQueue<String>> {
    let options = QueueOptions::new().lock_path(format!("{path}/jobs-locks")).max_attempts(MAX_ATTEMPTS);
    Ok(DistributedQueue::with_options(client.clone(), format!("{path}/jobs"), RawCodec, options)?)
}

/// Does one job, and writes its effect in the transaction that ends the delivery.
async fn job(delivery: &Delivery<String>, client: &CuratorFramework, path: &str) -> Result<(), QueueError> {
    tokio::time::sleep(Duration::from_millis(2)).await; // the work
    let Some(number) = delivery.items().first().filter(|number| *number != POISON) else {
        return delivery.retry().await;
    };
    let entry = CuratorOp::create(format!("{path}/ledger/entry-")).with_mode(CreateMode::PersistentSequential);
    delivery.complete_with(&client.transaction().operation(entry.with_data(number.as_str()))).await
}

/// Works until all is done, or until its own network falls silent. Returns the number of deliveries.
async fn worker(
    client: CuratorFramework,
    network: Option<Arc<FaultProxy>>,
    path: String,
    mut is_over: watch::Receiver<bool>,
) -> Outcome<u32> {
    let (deliveries, good, died) = (AtomicU32::new(0), AtomicU32::new(0), Notify::new());
    let work = async |delivery: Delivery<String>| {
        deliveries.fetch_add(1, Ordering::Relaxed);
        let is_good = delivery.items().first().is_none_or(|number| number != POISON);
        if let (true, Some(network)) = (is_good, &network) {
            if good.fetch_add(1, Ordering::Relaxed) + 1 == LAST {
                network.partition();
                died.notify_one();
                pending::<()>().await; // nothing of a dead worker goes on
            }
        }
        // After an error, the drop of the delivery gives the item back.
        drop(job(&delivery, &client, &path).await);
    };
    let mut consumer = queue(&client, &path)?.consumer();
    tokio::select! {
        ended = consumer.run_until(async { drop(is_over.wait_for(|is_over| *is_over).await) }, 1, work) => ended?,
        () = died.notified() => {}
    }
    Ok(deliveries.into_inner())
}

#[tokio::main]
async fn main() -> ExitCode {
    let Options { servers, path } = Options::parse();
    run(servers, |ensemble| async move {
        let office = ensemble.client().await?;
        let (jobs, ledger, dead) = (queue(&office, &path)?, format!("{path}/ledger"), format!("{path}/jobs-dead"));
        office.create().creating_parents_if_needed().for_path(&ledger).await?;
        jobs.put_all(&(1..=JOBS).map(|number| number.to_string()).collect::<Vec<_>>()).await?;
        say(format!("{} jobs are in the queue, put in one transaction; job {POISON} is poison", jobs.len().await?));

        let (over, is_over) = watch::channel(false);
        let mut workers = JoinSet::new();
        for _ in ["ann", "ben"] {
            let (client, network) = ensemble.client_behind_a_proxy().await?;
            workers.spawn(worker(client, Some(network), path.clone(), is_over.clone()));
        }
        for _ in ["cleo", "dora"] {
            workers.spawn(worker(ensemble.client().await?, None, path.clone(), is_over.clone()));
        }
        until(|| async { Ok(jobs.is_empty().await?) }).await?;
        over.send_replace(true);
        let deliveries: u32 = workers.join_all().await.into_iter().sum::<Outcome<u32>>()?;
        say(format!("ann and ben die, each in the middle of its job number {LAST}; cleo and dora work on"));
        say(format!("{deliveries} deliveries: 2 were lost, and job {POISON} failed {MAX_ATTEMPTS} times"));

        let (mut numbers, entries) = (BTreeSet::new(), office.get_children().for_path(&ledger).await?);
        for entry in &entries {
            numbers.insert(office.get_data().for_path(&make_path(&ledger, entry)).await?.0);
        }
        say(format!("the ledger has {} entries of {} jobs: each effect exactly once", entries.len(), numbers.len()));
        say(format!("{} dead letter: job {POISON}", office.get_children().for_path(&dead).await?.len()));
        Ok(office.delete().deleting_children_if_needed().for_path(&path).await?)
    })
    .await
}
