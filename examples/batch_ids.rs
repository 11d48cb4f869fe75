//! Ids from several clients, none twice. A cached counter hands out blocks of ids: one write a block, and the rest of a
//! client's last block is never used. Unique ids need no blocks: one write an id, without conflicts.
//!
//! The network of one client loses the reply to a write. The counter counts that block once. The unique id behind the
//! lost reply is never used.

use std::collections::BTreeSet;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use curator_examples::{Outcome, Servers, run, say};
use curator_framework::{CuratorFramework, RetryNTimes};
use curator_recipes::{CachedAtomicLong, DistributedAtomicLong, UniqueIds};
use curator_test::FaultProxy;
use curator_test::wire::OpCode;
use tokio::task::JoinSet;

/// Hands out ids to three clients.
#[derive(Debug, Parser)]
struct Options {
    #[command(flatten)]
    servers: Servers,
    /// The path of the counters
    #[arg(long, default_value = "/examples/batch_ids")]
    path: String,
}

const NAMES: [&str; 3] = ["ann", "ben", "cleo"];
/// The ids that each client takes.
const EACH: usize = 250;
/// The ids of a block.
const BLOCK: i64 = 100;

fn counter(client: &CuratorFramework, path: &str) -> Outcome<DistributedAtomicLong> {
    Ok(DistributedAtomicLong::new(
        client.clone(),
        format!("{path}/counter"),
        RetryNTimes::new(100, Duration::from_millis(10)),
    )?)
}

/// Takes ids of a cached counter.
async fn cached(client: CuratorFramework, path: String) -> Outcome<Vec<i64>> {
    let ids = CachedAtomicLong::new(counter(&client, &path)?, BLOCK)?;
    let mut taken = Vec::new();
    for _ in 0..EACH {
        taken.push(ids.next().await?);
    }
    Ok(taken)
}

/// Takes unique ids.
async fn unique(client: CuratorFramework, path: String) -> Outcome<Vec<i64>> {
    let ids = UniqueIds::new(client, format!("{path}/ids"))?;
    let mut taken = Vec::new();
    for _ in 0..EACH {
        taken.push(i64::try_from(ids.next().await?)?);
    }
    Ok(taken)
}

/// Runs one task for each client, and returns all ids in order. Fails if an id was handed out twice.
async fn all<F>(clients: &[CuratorFramework], task: impl Fn(CuratorFramework) -> F) -> Outcome<BTreeSet<i64>>
where
    F: Future<Output = Outcome<Vec<i64>>> + Send + 'static,
{
    let mut tasks = JoinSet::new();
    for client in clients {
        tasks.spawn(task(client.clone()));
    }
    let mut ids = BTreeSet::new();
    while let Some(taken) = tasks.join_next().await {
        for id in taken?? {
            if !ids.insert(id) {
                return Err(format!("the id {id} was handed out twice").into());
            }
        }
    }
    Ok(ids)
}

#[tokio::main]
async fn main() -> ExitCode {
    let Options { servers, path } = Options::parse();
    run(servers, |ensemble| async move {
        let (mut clients, mut networks) = (Vec::new(), Vec::new());
        for _ in NAMES {
            let (client, network) = ensemble.client_behind_a_proxy().await?;
            clients.push(client);
            networks.push(network);
        }
        let bens: &FaultProxy = &networks[1];

        bens.drop_reply(OpCode::Multi, 1);
        let ids = all(&clients, |client| cached(client, path.clone())).await?;
        let (count, end) = (ids.len(), counter(&clients[0], &path)?.get().await?);
        say(format!(
            "{} take {EACH} ids each from a counter, in blocks of {BLOCK}; ben loses a reply",
            NAMES.join(", ")
        ));
        say(format!("    {count} ids, none twice; the counter is at {end}: each block counts once"));
        say(format!("    {} ids are never used: the rest of each client's last block", end - i64::try_from(count)?));

        bens.drop_reply(OpCode::SetData, 1);
        let ids = all(&clients, |client| unique(client, path.clone())).await?;
        let (count, end) = (ids.len(), ids.last().copied().unwrap_or_default());
        say(format!("{} take {EACH} unique ids each; ben loses a reply", NAMES.join(", ")));
        say(format!("    {count} ids, none twice, the last one is {end}"));
        say(format!("    {} id is never used: that of the lost reply", end - i64::try_from(count)?));
        Ok(clients[0].delete().deleting_children_if_needed().for_path(&path).await?)
    })
    .await
}
