//! One writer changes a configuration of two nodes, and many readers read it. No reader sees one old and one new node,
//! because the readers share a lock that excludes the writer.

use std::process::ExitCode;

use clap::Parser;
use curator_examples::{Outcome, Servers, run, say, until};
use curator_framework::CuratorFramework;
use curator_recipes::{InterProcessReadWriteLock, ParticipantKind};

/// Changes a configuration of two nodes that several readers read.
#[derive(Debug, Parser)]
struct Options {
    #[command(flatten)]
    servers: Servers,
    /// Number of readers
    #[arg(long, default_value_t = 3)]
    readers: usize,
    /// The configuration's path
    #[arg(long, default_value = "/examples/read_write")]
    path: String,
}

#[tokio::main]
async fn main() -> ExitCode {
    let Options { servers, readers, path } = Options::parse();
    run(servers, |ensemble| async move {
        let (lock, config) = (format!("{path}/lock"), format!("{path}/config"));
        let writer = ensemble.client().await?;
        write(&writer, &config, "one").await?;

        // All readers hold the lock at once, each in its own session.
        let mut reading = Vec::new();
        for number in 1..=readers {
            let client = ensemble.client().await?;
            let guard = InterProcessReadWriteLock::new(client.clone(), &lock)?.read_lock().acquire().await?;
            say(format!("reader {number} reads {}", read(&client, &config).await?));
            reading.push(guard);
        }

        let whole = InterProcessReadWriteLock::new(writer.clone(), &lock)?;
        let change = async {
            let guard = whole.write_lock().acquire().await?;
            say("the writer has the lock for itself, and changes the configuration");
            write(&writer, &config, "two").await?;
            // From now on readers are granted, but another writer waits until this guard is released.
            let guard = guard.downgrade().await?;
            Outcome::Ok(guard)
        };
        let go = async {
            until(|| async {
                let waiting = whole.participants().await?;
                Ok(waiting.iter().any(|one| one.kind == ParticipantKind::Write))
            })
            .await?;
            say(format!("the writer waits for {} readers", reading.len()));
            for guard in &reading {
                guard.release().await?.held()?;
            }
            Outcome::Ok(())
        };
        let (guard, ()) = tokio::try_join!(change, go)?;

        let client = ensemble.client().await?;
        let late = InterProcessReadWriteLock::new(client.clone(), &lock)?.read_lock().acquire().await?;
        say(format!("a late reader reads beside the writer {}", read(&client, &config).await?));
        late.release().await?.held()?;
        guard.release().await?.held()?;
        writer.delete().deleting_children_if_needed().for_path(&config).await?;
        Ok(())
    })
    .await
}

/// Writes both nodes. Between the two writes the configuration is neither the old one nor the new.
async fn write(client: &CuratorFramework, config: &str, version: &str) -> Outcome {
    for part in ["host", "port"] {
        let node = format!("{config}/{part}");
        let data = format!("{part}-{version}");
        client.create().creating_parents_if_needed().or_set_data().with_data(data).for_path(&node).await?;
    }
    Ok(())
}

async fn read(client: &CuratorFramework, config: &str) -> Outcome<String> {
    let (host, _) = client.get_data().for_path(&format!("{config}/host")).await?;
    let (port, _) = client.get_data().for_path(&format!("{config}/port")).await?;
    Ok(format!("{} and {}", String::from_utf8(host)?, String::from_utf8(port)?))
}
