//! A transfer between two accounts needs both locks or none.

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use curator_examples::{Servers, run, say};
use curator_recipes::{InterProcessMultiLock, InterProcessMutex};

/// Acquires the locks of two accounts for a transfer: both or none.
#[derive(Debug, Parser)]
struct Options {
    #[command(flatten)]
    servers: Servers,
    /// The parent path of the accounts
    #[arg(long, default_value = "/examples/multi_lock")]
    path: String,
}

#[tokio::main]
async fn main() -> ExitCode {
    let Options { servers, path } = Options::parse();
    run(servers, |ensemble| async move {
        // All transfers sort the paths in the same way, because two transfers could deadlock otherwise.
        let mut accounts = [format!("{path}/ben"), format!("{path}/ann")];
        accounts.sort();
        let transfer = InterProcessMultiLock::new(ensemble.client().await?, accounts.clone())?;
        let other = ensemble.client().await?;
        let ann = InterProcessMutex::new(other.clone(), &accounts[0])?;
        let ben = InterProcessMutex::new(other, &accounts[1])?;

        let guard = transfer.acquire().await?;
        say(format!("the transfer holds {} accounts", guard.len()));
        say(format!("another client gets ann: {}", ann.try_acquire().await?.is_some()));
        say(format!("another client gets ben: {}", ben.try_acquire().await?.is_some()));
        guard.release().await?.held()?;
        say("the transfer is done");

        let busy = ben.acquire().await?;
        say("another client works with ben");
        let granted = transfer.acquire_timeout(Duration::from_millis(200)).await?;
        say(format!("the next transfer gets both in 200 ms: {}", granted.is_some()));
        // The transfer held ann while it waited for ben, and released it after the timeout.
        let free = ann.acquire().await?;
        say("ann is free");
        free.release().await?.held()?;
        busy.release().await?.held()?;
        Ok(())
    })
    .await
}
