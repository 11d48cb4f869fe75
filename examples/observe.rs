//! Shows holders and waiters of any lock path as a live table.
//!
//! ```text
//! cargo run --example observe -- --connect zk1:2181 --path /licences/solver --leases 3
//! cargo run --example observe
//! ```
//!
//! Without `--connect` the program starts its own server, on which three contenders take turns. On a terminal the table
//! is updated in place; otherwise the program prints it after each change.

use std::io::{IsTerminal as _, Write as _};
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use curator_cli::contenders::{Contender, contenders};
use curator_cli::text::{kind, shown, table};
use curator_examples::{Ensemble, Outcome, Servers, run, say};
use curator_framework::{CuratorFramework, Error};
use curator_recipes::{InterProcessMutex, LockError, MutexOptions};
use tokio::task::JoinSet;

/// Shows the holders and waiters of a lock.
#[derive(Debug, Clone, Parser)]
struct Options {
    #[command(flatten)]
    servers: Servers,
    /// The lock's path; the names of its nodes show the kind of lock
    #[arg(long, default_value = "/examples/observe")]
    path: String,
    /// Number of leases of a semaphore, because its nodes do not show it
    #[arg(long)]
    leases: Option<usize>,
    /// Pause between two listings, in milliseconds
    #[arg(long, default_value_t = 200)]
    interval_ms: u64,
    /// List once, then exit
    #[arg(long)]
    once: bool,
    /// Show only the columns that are the same in every run: state, kind and data
    #[arg(long)]
    brief: bool,
}

#[tokio::main]
async fn main() -> ExitCode {
    let options = Options::parse();
    run(options.servers.clone(), |ensemble| async move {
        let client = ensemble.client().await?;
        if ensemble.is_own() {
            let mut play = play(&ensemble, &options.path).await?;
            tokio::select! {
                seen = observe(&client, &options) => seen?,
                played = async { while let Some(one) = play.join_next().await { one??; } Outcome::Ok(()) } => played?,
            }
            return Ok(());
        }
        observe(&client, &options).await
    })
    .await
}

/// Shows the table until the program ends, or once with `--once`.
async fn observe(client: &CuratorFramework, options: &Options) -> Outcome {
    let live = std::io::stdout().is_terminal() && !options.once;
    let mut before = None;
    loop {
        let seen = match contenders(client, &options.path, options.leases).await {
            Ok(seen) => seen,
            // The lock was not used yet, or the server deleted its empty parents.
            Err(LockError::Framework(Error::NoNode { .. })) => Vec::new(),
            Err(error) => return Err(error.into()),
        };
        let nodes: Vec<_> = seen.iter().map(|one| (one.participant.path.clone(), one.state)).collect();
        if live {
            // Draws from the upper left corner, and clears the rest of each line and of the screen.
            let mut screen = String::from("\x1b[H");
            for line in lines(&seen, options) {
                screen += &format!("{line}\x1b[K\r\n");
            }
            screen += "\x1b[J";
            std::io::stdout().write_all(screen.as_bytes())?;
            std::io::stdout().flush()?;
        } else if before.as_ref() != Some(&nodes) {
            for line in lines(&seen, options) {
                say(line);
            }
        }
        if options.once {
            return Ok(());
        }
        before = Some(nodes);
        tokio::time::sleep(Duration::from_millis(options.interval_ms)).await;
    }
}

fn lines(seen: &[Contender], options: &Options) -> Vec<String> {
    let waiting = seen.iter().filter(|one| one.state == "waits").count();
    let holding = seen.iter().filter(|one| one.state == "holds" || one.state == "lease").count();
    let mut lines = vec![format!("{}: {holding} at it, {waiting} waiting", options.path)];
    if options.brief {
        let brief = |one: &Contender| {
            format!("{}  {}  {}", one.state, kind(one.participant.kind), shown(&one.participant.data))
        };
        lines.extend(seen.iter().map(brief));
    } else {
        lines.extend(table(seen));
    }
    lines
}

/// Starts three contenders that each hold the lock for a second. Returns when all are in the queue.
async fn play(ensemble: &Ensemble, path: &str) -> Outcome<JoinSet<Outcome>> {
    let mut play = JoinSet::new();
    for (number, name) in ["ann", "ben", "cleo"].into_iter().enumerate() {
        let options = MutexOptions::new().data(name);
        let mutex = InterProcessMutex::with_options(ensemble.client().await?, path, options)?;
        let observer = mutex.clone();
        play.spawn(async move {
            let guard = mutex.acquire().await?;
            tokio::time::sleep(Duration::from_secs(1)).await;
            guard.release().await?.held()?;
            Ok(())
        });
        curator_examples::until(|| async { Ok(observer.participant_nodes().await?.len() > number) }).await?;
    }
    Ok(play)
}
