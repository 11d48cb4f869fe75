//! Prints the connection states, and the state of a held lock, while the network fails. A connection that returns in
//! the same session keeps the lock. A long silence loses it, and the guard reports the loss before the next grant.

use std::process::ExitCode;

use clap::Parser;
use curator_examples::{Outcome, Servers, run, say};
use curator_framework::ConnectionState;
use curator_recipes::InterProcessMutex;
use tokio::sync::mpsc;

/// Prints the connection states, and the state of a held lock, while the network fails.
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
        // The listener runs on another thread and gets every state in order.
        let (tell, mut told) = mpsc::unbounded_channel();
        client.connection_state_listenable().add_listener(move |_, state| {
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
        say("in the new session the lock is acquired again");
        guard.release().await?.held()?;
        Ok(())
    })
    .await
}

/// Prints the states that the listener receives, up to and including `last`.
async fn see(told: &mut mpsc::UnboundedReceiver<ConnectionState>, last: ConnectionState) -> Outcome {
    loop {
        let state = told.recv().await.ok_or("the listener is gone")?;
        say(format!("    the client is {state}"));
        if state == last {
            return Ok(());
        }
    }
}
