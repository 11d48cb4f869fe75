//! What a client and the holder of a lock see when the network fails: a connection that breaks and comes back in the
//! same session costs nothing; a silence that lasts costs the lock, and the holder hears of it in time.

use std::process::ExitCode;

use clap::Parser;
use curator_examples::{Servers, run, say};
use curator_framework::{ConnectionState, CuratorFramework};
use curator_recipes::InterProcessMutex;

/// What a client and the holder of a lock see when the network fails.
#[derive(Debug, Parser)]
struct Options {
    #[command(flatten)]
    servers: Servers,
    /// The path of the lock
    #[arg(long, default_value = "/examples/connection_states")]
    path: String,
}

#[tokio::main]
async fn main() -> ExitCode {
    let Options { servers, path } = Options::parse();
    run(servers, |ensemble| async move {
        let (client, network) = ensemble.client_behind_a_proxy().await?;
        // A listener is told of every state, in order; `watch_connection_state` is the same as a channel.
        client.connection_state_listenable().add_listener(|_: &CuratorFramework, state: ConnectionState| {
            say(format!("    the client is {state}"));
        });
        let mut states = client.watch_connection_state();
        let mutex = InterProcessMutex::new(client.clone(), &path)?;
        let guard = mutex.acquire().await?;
        say(format!("the client is {}", client.connection_state().ok_or("not connected")?));

        say("the connection breaks");
        network.refuse();
        network.reset();
        states.wait_for(|state| *state == Some(ConnectionState::Suspended)).await?;
        network.accept();
        states.wait_for(|state| *state == Some(ConnectionState::Reconnected)).await?;
        guard.verify().await?;
        say(format!("the lock is held: {}", guard.is_held()));

        say("the network is silent");
        network.partition();
        let reason = guard.lost().await;
        states.wait_for(|state| *state == Some(ConnectionState::Lost)).await?;
        network.repair();
        states.wait_for(|state| *state == Some(ConnectionState::Reconnected)).await?;
        say(format!("the lock is held: {} ({reason})", guard.is_held()));
        drop(guard);

        let guard = mutex.acquire().await?;
        say("in the new session the lock is acquired anew");
        guard.release().await?;
        Ok(())
    })
    .await
}
