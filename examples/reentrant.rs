//! Two clients take turns at one mutex, and each acquires it twice: the usual first program of Curator's tutorials.
//!
//! In Java the thread owns a lock. Here the scope owns it.

use std::process::ExitCode;

use clap::Parser;
use curator_examples::{Outcome, Servers, run, say, until};
use curator_recipes::{InterProcessMutex, LockOwner};
use tokio::sync::oneshot;

/// Lets two clients take turns at one mutex, which each acquires twice.
#[derive(Debug, Parser)]
struct Options {
    #[command(flatten)]
    servers: Servers,
    /// The mutex's path
    #[arg(long, default_value = "/examples/reentrant")]
    path: String,
}

#[tokio::main]
async fn main() -> ExitCode {
    let options = Options::parse();
    run(options.servers, |ensemble| async move {
        let first = InterProcessMutex::new(ensemble.client().await?, &options.path)?;
        let second = InterProcessMutex::new(ensemble.client().await?, &options.path)?;
        let (go, begin) = oneshot::channel();
        // The second client starts when the first holds the lock. The first releases when the second waits.
        let one = async {
            take_twice("client 1", &first, async {
                let _gone = go.send(());
                until(|| async { Ok(first.participant_nodes().await?.len() == 2) }).await
            })
            .await
        };
        let two = async {
            begin.await?;
            say("client 2 asks for the lock, and waits");
            take_twice("client 2", &second, async { Ok(()) }).await
        };
        tokio::try_join!(one, two)?;
        Ok(())
    })
    .await
}

/// Acquires the mutex twice. All acquires within one scope have the same owner.
async fn take_twice(name: &str, mutex: &InterProcessMutex, meanwhile: impl Future<Output = Outcome>) -> Outcome {
    LockOwner::scope(async {
        let outer = mutex.acquire().await?;
        say(format!("{name} has the lock"));
        let inner = mutex.acquire().await?; // granted without a request
        say(format!("{name} has it again, on the same node: {}", inner.node_path() == outer.node_path()));
        meanwhile.await?;
        inner.release().await?.held()?;
        say(format!("{name} released it once and still has it: {}", outer.is_held()));
        say(format!("{name} releases it for good"));
        outer.release().await?.held()?;
        Ok(())
    })
    .await
}
