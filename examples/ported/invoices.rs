//! Numbers invoices without a gap, in any number of processes.

use std::time::Duration;

use curator_framework::{CuratorFramework, ExponentialBackoffRetry};
use curator_recipes::InterProcessMutex;
use tokio::task::JoinSet;

type Error = Box<dyn std::error::Error + Send + Sync>;

const LAST: &str = "/invoices/last";
const LOCK: &str = "/invoices/lock";

#[tokio::main]
async fn main() -> Result<(), Error> {
    let servers = std::env::args().nth(1).ok_or("usage: invoices SERVERS")?;
    let client = connect(&servers)?;
    let create = client.create().or_set_data().creating_parents_if_needed();
    create.with_data("0").for_path(LAST).await?;
    let mutex = InterProcessMutex::new(client.clone(), LOCK)?;

    let mut clerks = JoinSet::new();
    for _ in 0..3 {
        clerks.spawn(write_two(client.clone(), mutex.clone()));
    }
    while let Some(done) = clerks.join_next().await {
        done??;
    }

    let other = connect(&servers)?;
    let guard = mutex.acquire().await?;
    let second = InterProcessMutex::new(other.clone(), LOCK)?
        .acquire_timeout(Duration::from_secs(1))
        .await?; // Java's `false` is `None`
    println!("a second holder: {}", second.is_some());
    guard.release().await?.held()?;
    other.close().await;
    client.close().await;
    Ok(())
}

async fn write_two(
    client: CuratorFramework,
    mutex: InterProcessMutex,
) -> Result<(), Error> {
    for _ in 0..2 {
        let granted = mutex.acquire_timeout(Duration::from_secs(10)).await?;
        let guard = granted.ok_or("the lock is busy")?;
        let (data, _) = client.get_data().for_path(LAST).await?;
        let number = String::from_utf8(data)?.parse::<u32>()? + 1;
        let text = number.to_string();
        guard.transaction().set_data(LAST, text).commit().await?;
        println!("invoice {number}");
        guard.release().await?.held()?; // `?` above drops it, which releases too
    }
    Ok(())
}

fn connect(servers: &str) -> Result<CuratorFramework, Error> {
    let retry = ExponentialBackoffRetry::new(Duration::from_secs(1), 3)?;
    let client = CuratorFramework::new_client(servers, retry)?;
    client.start()?;
    Ok(client)
}
