//! Works on jobs, at most three at once in all copies.

use std::time::Duration;

use curator_framework::{CuratorFramework, RetryForever};
use curator_recipes::{
    InterProcessSemaphoreV2, LockError, Release, SemaphoreOptions,
};
use tokio::task::JoinSet;

const LIMIT: usize = 3; // of all processes together

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let name = arguments.next().ok_or("usage: throttled NAME JOBS")?;
    let count: usize = arguments.next().unwrap_or_default().parse()?;

    let servers = std::env::var("ZOOKEEPER")?;
    let retry = RetryForever::new(Duration::from_secs(1))?;
    let client = CuratorFramework::new_client(servers, retry)?;
    let me = name.clone();
    let states = client.connection_state_listenable();
    states.add_listener(move |_, state| println!("{me}: {state}"));

    let slots = InterProcessSemaphoreV2::with_options(
        client.clone(),
        "/jobs",
        LIMIT,
        SemaphoreOptions::new().one_node_per_client(),
    )?;
    client
        .run(async {
            let mut jobs = JoinSet::new();
            for number in 1..=count {
                let name = format!("{name}: job {number}");
                jobs.spawn(job(name, slots.clone()));
            }
            while let Some(done) = jobs.join_next().await {
                done??;
            }
            println!("{name}: {count} jobs done");
            Ok(())
        })
        .await
}

async fn job(
    job: String,
    slots: InterProcessSemaphoreV2,
) -> Result<(), LockError> {
    loop {
        let lease = slots.acquire().await?;
        println!("{job} begins");
        match lease.protect(work()).await {
            Ok(()) => {
                println!("{job} ends");
                match lease.release().await {
                    Ok(Release::AlreadyLost(reason)) => {
                        println!("{job}: its lease was lost: {reason}");
                    }
                    Ok(_) => {}
                    // The client releases it once a server answers.
                    Err(error) => println!("{job}: {error}"),
                }
                return Ok(());
            }
            Err(LockError::LockLost { reason, .. }) => {
                println!("{job} stops, to begin again: {reason}");
            }
            Err(error) => return Err(error),
        }
    }
}

async fn work() {
    tokio::time::sleep(Duration::from_secs(1)).await;
}
