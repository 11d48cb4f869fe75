//! Twelve items of work, divided among the three members of a group. The network of one member falls silent. When its
//! session ends, the others get its items. When its network is back, it gets items again.
//!
//! Each piece of work records its start and its end, even when it is dropped. The last step compares these times: at no
//! moment did two members work on one item.

use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use clap::Parser;
use curator_examples::{Outcome, Servers, run, say};
use curator_recipes::{OwnedItem, Partition};
use tokio::task::JoinSet;

/// Divides items of work among the members of a group.
#[derive(Debug, Parser)]
struct Options {
    #[command(flatten)]
    servers: Servers,
    /// The group's path
    #[arg(long, default_value = "/examples/group")]
    path: String,
}

const ITEMS: usize = 12;
const MEMBERS: [&str; 3] = ["ann", "ben", "cleo"];

/// The times in which members worked: item, start and end. All members are in this process, so they have one clock.
static WORKED: Mutex<Vec<(String, Instant, Instant)>> = Mutex::new(Vec::new());

/// Records the work on an item when it is dropped.
struct Record(String, Instant);

impl Drop for Record {
    fn drop(&mut self) {
        let mut worked = WORKED.lock().unwrap_or_else(PoisonError::into_inner);
        worked.push((std::mem::take(&mut self.0), self.1, Instant::now()));
    }
}

/// Works on an item until another member is to have it. The partition drops this future at the session's deadline.
async fn work(item: OwnedItem) {
    let _record = Record(item.name().to_owned(), Instant::now());
    loop {
        tokio::select! {
            biased;
            () = item.revoked() => break,
            () = tokio::time::sleep(Duration::from_millis(10)) => {} // the work
        }
    }
}

/// Waits until the members own these numbers of items, and prints them.
async fn own(members: &[Partition], numbers: [usize; MEMBERS.len()], when: &str) -> Outcome {
    let mut parts = Vec::new();
    for ((member, name), number) in members.iter().zip(MEMBERS).zip(numbers) {
        member.watch().wait_for(|share| share.owned.len() == number).await?;
        parts.push(format!("{name} {number}"));
    }
    say(format!("{when}: {} items", parts.join(", ")));
    Ok(())
}

/// Compares the times of the work, item by item.
fn compare() -> Outcome {
    let mut worked = std::mem::take(&mut *WORKED.lock().unwrap_or_else(PoisonError::into_inner));
    worked.sort();
    for ((item, begin, end), (next, next_begin, _)) in worked.iter().zip(worked.iter().skip(1)) {
        if item == next && next_begin < end {
            return Err(format!("two members worked on {item} at {:?}", next_begin.duration_since(*begin)).into());
        }
    }
    worked.dedup_by(|one, other| one.0 == other.0);
    if worked.len() != ITEMS {
        return Err(format!("{} of {ITEMS} items were worked on", worked.len()).into());
    }
    say(format!("{ITEMS} items, at most one owner at any time, all worked on"));
    Ok(())
}

#[tokio::main]
async fn main() -> ExitCode {
    let Options { servers, path } = Options::parse();
    run(servers, |ensemble| async move {
        let (mut members, mut networks, mut runs) = (Vec::new(), Vec::new(), JoinSet::new());
        for name in MEMBERS {
            let (client, network) = ensemble.client_behind_a_proxy().await?;
            let items = (1..=ITEMS).map(|number| format!("item-{number}"));
            let member = Partition::new(client, &path, name, items)?;
            let running = member.clone();
            runs.spawn(async move { running.run(work).await });
            members.push(member);
            networks.push(network);
        }
        own(&members, [4, 4, 4], "three members").await?;
        networks[1].partition();
        own(&members, [6, 0, 6], "ben's network is silent").await?;
        networks[1].repair();
        own(&members, [4, 4, 4], "ben is back").await?;
        for member in &members {
            member.close().await;
        }
        while let Some(ended) = runs.join_next().await {
            ended??;
        }
        compare()
    })
    .await
}
