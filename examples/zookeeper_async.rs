//! Uses the crate `zookeeper-async` as the client, beside the framework's own client. Both share one mutex.

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use curator_examples::{Outcome, Servers, run, say, until};
use curator_framework::{CuratorFramework, ExponentialBackoffRetry, ZooKeeperAsyncFactory};
use curator_recipes::InterProcessMutex;

/// Lets two clients take turns at one mutex: the crate `zookeeper-async` and the framework's own.
#[derive(Debug, Parser)]
struct Options {
    #[command(flatten)]
    servers: Servers,
    /// The mutex's path
    #[arg(long, default_value = "/examples/zookeeper_async")]
    path: String,
}

#[tokio::main]
async fn main() -> ExitCode {
    let Options { servers, path } = Options::parse();
    run(servers, |ensemble| async move {
        let client = CuratorFramework::builder(ensemble.connect_string())
            .zookeeper_factory(ZooKeeperAsyncFactory) // the only line that differs
            .retry_policy(ExponentialBackoffRetry::new(Duration::from_millis(100), 5)?)
            .connection_timeout(Duration::from_secs(5))
            .build()?;
        client.start()?;
        let first = InterProcessMutex::new(ensemble.connected(client).await?, &path)?;
        let second = InterProcessMutex::new(ensemble.client().await?, &path)?;

        let held = first.acquire().await?;
        let token = held.token();
        say("the client zookeeper-async has the lock");
        let give_back = async {
            until(|| async { Ok(first.participant_nodes().await?.len() == 2) }).await?;
            say("the framework's own client waits");
            say("the client zookeeper-async releases the lock");
            held.release().await?.held()?;
            Outcome::Ok(())
        };
        let (guard, ()) = tokio::try_join!(async { Ok(second.acquire().await?) }, give_back)?;
        let is_greater = guard.token() > token;
        say(format!("the framework's own client has the lock, with a greater fencing token: {is_greater}"));
        guard.release().await?.held()?;
        Ok(())
    })
    .await
}
