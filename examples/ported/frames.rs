//! Renders frames, at most two at once in all processes together.

use std::error::Error;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use curator_framework::{CuratorFramework, RetryNTimes};
use curator_recipes::InterProcessSemaphoreV2;
use tokio::task::JoinSet;

static WORKING: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let servers = std::env::args().nth(1).ok_or("usage: frames SERVERS")?;
    let retry = RetryNTimes::new(5, Duration::from_millis(500));
    let client = CuratorFramework::new_client(servers, retry)?;
    client.start()?;
    let slots =
        InterProcessSemaphoreV2::new(client.clone(), "/frames/slots", 2)?;

    let mut frames = JoinSet::new();
    for _ in 0..6 {
        frames.spawn(render(slots.clone()));
    }
    let mut done = 0;
    while let Some(rendered) = frames.join_next().await {
        rendered??;
        done += 1;
    }
    println!("{done} frames rendered");
    println!("more than two at once: {}", MOST.load(SeqCst) > 2);

    let both = slots.acquire_many_timeout(2, Duration::from_secs(5)).await?;
    let both = both.ok_or("no two leases in time")?; // all or none
    println!("leases taken together: {}", both.len());
    let third = slots.acquire_timeout(Duration::from_secs(1)).await?;
    println!("a third lease: {}", third.is_some());
    drop(both); // returns both
    client.close().await;
    Ok(())
}

async fn render(
    slots: InterProcessSemaphoreV2,
) -> Result<(), Box<dyn Error + Send + Sync>> {
    let lease = slots.acquire().await?;
    MOST.fetch_max(WORKING.fetch_add(1, SeqCst) + 1, SeqCst);
    tokio::time::sleep(Duration::from_millis(50)).await; // the work
    WORKING.fetch_sub(1, SeqCst);
    lease.release().await?.held()?;
    Ok(())
}
