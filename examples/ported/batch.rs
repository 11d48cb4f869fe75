//! Runs a long batch, which makes way for a report that asks.

use std::pin::pin;
use std::time::Duration;

use curator_framework::{CuratorFramework, ExponentialBackoffRetry};
use curator_recipes::{InterProcessMutex, RevokeOutcome, Revoker, SharedCount};
use tokio::sync::Notify;

type Error = Box<dyn std::error::Error + Send + Sync>;

#[tokio::main]
async fn main() -> Result<(), Error> {
    let servers = std::env::args().nth(1).ok_or("usage: batch SERVERS")?;
    let reported = tokio::spawn(report(servers.clone()));
    let client = connect(&servers)?;
    let records = SharedCount::new(client.clone(), "/batch/records", 0)?;
    records.start()?;
    records.initialized().await?;
    let mutex = InterProcessMutex::new(client.clone(), "/batch/lock")?;
    let guard = mutex.acquire().await?;
    let mut asked = pin!(guard.revocation_requested());
    loop {
        records.set_count(records.count()? + 1).await?; // one record
        tokio::select! {
            () = &mut asked => break,
            () = tokio::time::sleep(Duration::from_millis(10)) => {}
        }
    }
    println!("the batch was asked to stop");
    guard.release().await?.held()?;
    reported.await??;
    records.close().await;
    client.close().await;
    Ok(())
}

async fn report(servers: String) -> Result<(), Error> {
    let client = connect(&servers)?;
    let records = SharedCount::new(client.clone(), "/batch/records", 0)?;
    let enough = std::sync::Arc::new(Notify::new());
    let notify = enough.clone();
    records.add_listener(move |count| {
        if *count.value() >= 5 {
            notify.notify_one();
        }
    });
    records.start()?;
    enough.notified().await;
    println!("the report asks for the lock");
    let mutex = InterProcessMutex::new(client.clone(), "/batch/lock")?;
    for holder in mutex.participant_nodes().await? {
        if Revoker::attempt_revoke(&client, &holder).await?
            == RevokeOutcome::NodeGone
        {
            println!("a holder has left already");
        }
    }
    let guard = mutex.acquire().await?;
    println!("the report has the lock");
    guard.release().await?.held()?;
    records.close().await;
    client.close().await;
    Ok(())
}

fn connect(servers: &str) -> Result<CuratorFramework, Error> {
    let retry = ExponentialBackoffRetry::new(Duration::from_secs(1), 3)?;
    let client = CuratorFramework::new_client(servers, retry)?;
    client.start()?;
    Ok(client)
}
