//! A pool of scarce connections to a database. Each user holds a lease. Its slot is the number of a connection, and the
//! data of its node names the user. All processes share the pool's size as a count. A holder with a silent network stops
//! in time, and the database refuses its late write.

use std::collections::HashMap;
use std::process::ExitCode;

use clap::Parser;
use curator_examples::{Outcome, Servers, run, say, until};
use curator_framework::CuratorFramework;
use curator_recipes::{FencingToken, InterProcessSemaphoreV2, Lease, Release, SemaphoreOptions, SharedCount};

/// Leases the connections of a scarce pool to several users.
#[derive(Debug, Parser)]
struct Options {
    #[command(flatten)]
    servers: Servers,
    /// The pool's path
    #[arg(long, default_value = "/examples/leasing")]
    path: String,
}

/// The database. It keeps the newest fencing token of each connection, and refuses writes with older ones.
#[derive(Debug, Default)]
struct Database {
    newest: HashMap<u32, FencingToken>,
}

impl Database {
    fn write(&mut self, connection: u32, token: FencingToken) -> bool {
        let newest = self.newest.entry(connection).or_insert(token);
        *newest = token.max(*newest);
        *newest == token
    }
}

/// Returns the size of the pool, which all processes share.
async fn size(client: &CuratorFramework, path: &str) -> Outcome<SharedCount> {
    let size = SharedCount::new(client.clone(), format!("{path}/size"), 2)?;
    size.start()?;
    size.initialized().await?;
    Ok(size)
}

/// Opens the pool for one user, with the user's name as the data of the lease's node.
async fn pool(client: &CuratorFramework, path: &str, user: &str) -> Outcome<InterProcessSemaphoreV2> {
    let (size, options) = (size(client, path).await?, SemaphoreOptions::new().data(user));
    Ok(InterProcessSemaphoreV2::with_options(client.clone(), format!("{path}/pool"), &size, options)?)
}

/// Returns the names of the lease holders, in the order of the queue.
async fn holders(pool: &InterProcessSemaphoreV2) -> Outcome<String> {
    let holders = pool.participants().await?.into_iter().filter(|one| one.holds);
    Ok(holders.map(|one| String::from_utf8_lossy(&one.data).into_owned()).collect::<Vec<_>>().join(", "))
}

#[tokio::main]
async fn main() -> ExitCode {
    let Options { servers, path } = Options::parse();
    run(servers, |ensemble| async move {
        let mut database = Database::default();
        let office = ensemble.client().await?;
        let (size, ann_pool) = (size(&office, &path).await?, pool(&office, &path, "ann").await?);
        size.set_count(2).await?;
        until(|| async { Ok(ann_pool.max_leases() == 2) }).await?;
        let (ben_client, ben_network) = ensemble.client_behind_a_proxy().await?;
        let ben_pool = pool(&ben_client, &path, "ben").await?;
        let cleo_pool = pool(&ensemble.client().await?, &path, "cleo").await?;
        let dora_pool = pool(&ensemble.client().await?, &path, "dora").await?;

        let ann = ann_pool.acquire().await?;
        let ben = ben_pool.acquire().await?;
        say(format!("{} connections, leased to {}", ann_pool.max_leases(), holders(&ann_pool).await?));
        let (anns, bens) = (ann.slot().await?, ben.slot().await?);
        say(format!("ann has connection {anns}, ben {bens}"));
        say(format!("cleo gets one at once: {}", cleo_pool.try_acquire().await?.is_some()));

        let grow = async {
            until(|| async { Ok(ann_pool.participants().await?.len() > 2) }).await?;
            size.set_count(3).await?;
            Outcome::Ok(())
        };
        let wait = async { Outcome::Ok(cleo_pool.acquire().await?) };
        let ((), cleo) = tokio::try_join!(grow, wait)?;
        until(|| async { Ok(ann_pool.max_leases() == 3) }).await?;
        say(format!("the pool grows: {} connections, leased to {}", ann_pool.max_leases(), holders(&ann_pool).await?));

        say(format!("ben writes to connection {bens}: {}", database.write(bens, ben.token())));
        say("ben's network goes silent");
        let stops = async {
            let reason = ben.lost().await;
            say(format!("ben stops: {reason}"));
            Outcome::Ok(())
        };
        let silent = async {
            ben_network.partition();
            Outcome::Ok(dora_pool.acquire().await?) // granted when ben's session expires
        };
        let ((), dora) = tokio::try_join!(stops, silent)?;
        say(format!("dora takes over: leased to {}", holders(&ann_pool).await?));
        let doras = dora.slot().await?;
        say(format!("dora writes to connection {doras}: {}", database.write(doras, dora.token())));
        say(format!("ben, had he not stopped, writes to connection {bens}: {}", database.write(bens, ben.token())));
        ben_network.repair();

        for released in Lease::release_all(&[ann, cleo, dora]).await {
            released?.held()?;
        }
        if let Release::AlreadyLost(reason) = ben.release().await? {
            say(format!("all leases are given back; ben's was lost: {reason}"));
        }
        size.close().await;
        Ok(())
    })
    .await
}
