//! What a client and the holder of a lock see when the network fails: a connection that breaks and comes back in the
//! same session costs nothing; a silence that lasts costs the lock, and the holder hears of it in time.

use std::process::ExitCode;

use clap::Parser;
use curator_examples::{Outcome, Servers, run, say};
use curator_framework::{ConnectionState, CuratorFramework};
use curator_recipes::InterProcessMutex;
use tokio::sync::mpsc;

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
        let mutex = InterProcessMutex::new(client.clone(), &path)?;
        let guard = mutex.acquire().await?;
        say(format!("the client is {}", client.connection_state().ok_or("not connected")?));
        // A listener is told of every state, in order, on a thread of its own.
        let (tell, mut told) = mpsc::unbounded_channel();
        client.connection_state_listenable().add_listener(move |_: &CuratorFramework, state: ConnectionState| {
            let _gone = tell.send(state);
        });

        say("the connection breaks");
        network.refuse();
        network.reset();
        see(&mut told, ConnectionState::Suspended).await?;
        network.accept();
        see(&mut told, ConnectionState::Reconnected).await?;
        guard.verify().await?;
        say(format!("the lock is held: {}", guard.is_held()));

        say("the network is silent");
        network.partition();
        let reason = guard.lost().await;
        see(&mut told, ConnectionState::Lost).await?;
        say(format!("the lock is held: {} ({reason})", guard.is_held()));
        drop(guard);
        network.repair();
        see(&mut told, ConnectionState::Reconnected).await?;
        let guard = mutex.acquire().await?;
        say("in the new session the lock is acquired anew");
        guard.release().await?;
        Ok(())
    })
    .await
}

/// Prints the states that the listener was told, up to this one.
async fn see(told: &mut mpsc::UnboundedReceiver<ConnectionState>, last: ConnectionState) -> Outcome {
    loop {
        let state = told.recv().await.ok_or("the listener is gone")?;
        say(format!("    the client is {state}"));
        if state == last {
            return Ok(());
        }
    }
}
