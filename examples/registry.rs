//! A registry of datasets, hosts, and the copies of datasets on hosts: three types of records in typed nodes. A copy and the
//! room on its host change in one transaction. A cache follows the copies, and each change has the old and the new value.

use std::process::ExitCode;

use clap::Parser;
use curator_examples::{Outcome, Servers, run, say};
use curator_framework::{CuratorFramework, CuratorOp, Error};
use curator_recipes::{JsonCodec, Migration, MigrationManager, MigrationSet, ModelChange, ModelSpec, ModeledFramework};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// Keeps datasets, hosts and copies in ZooKeeper, and changes two of them in one transaction.
#[derive(Debug, Parser)]
struct Options {
    #[command(flatten)]
    servers: Servers,
    /// The path of the registry
    #[arg(long, default_value = "/examples/registry")]
    path: String,
}

#[derive(Debug, Serialize, Deserialize)]
struct Dataset {
    owner: String,
}

#[derive(Debug, Serialize, Deserialize)]
struct Host {
    room: u32,
}

#[derive(Debug, Serialize, Deserialize)]
struct Copy {
    dataset: String,
    host: String,
}

struct Registry {
    client: CuratorFramework,
    datasets: ModeledFramework<Dataset>,
    hosts: ModeledFramework<Host>,
    copies: ModeledFramework<Copy>,
}

impl Registry {
    /// Opens the registry. The first program that does makes its parents.
    async fn open(client: CuratorFramework, path: &str) -> Outcome<Self> {
        client.create_containers(path).await?;
        let paths = ["datasets", "hosts", "copies"].map(|name| format!("{path}/{name}"));
        let parents = paths.each_ref().map(|path| CuratorOp::create(path).with_data(""));
        let migrations = MigrationManager::new(client.clone(), format!("{path}/locks"), format!("{path}/migrations"))?;
        migrations.migrate(&MigrationSet::new("registry", [Migration::new(parents)])).await?;
        let [datasets, hosts, copies] = paths.map(|path| (client.clone(), path));
        Ok(Self { datasets: nodes(datasets)?, hosts: nodes(hosts)?, copies: nodes(copies)?, client })
    }

    /// Copies a dataset to a host. Returns `false` if the host has no room. Several programs may do so at once.
    async fn place(&self, dataset: &str, host: &str) -> Outcome<bool> {
        let copy = Copy { dataset: dataset.to_owned(), host: host.to_owned() };
        let (host, node) = (self.hosts.at(host)?, self.copies.at(format!("{dataset}@{host}"))?);
        loop {
            let read = host.read().await?;
            let Some(room) = read.value.room.checked_sub(1) else { return Ok(false) };
            let changes = [host.update_op(read.version, &Host { room })?, node.create_op(&copy)?];
            match self.client.transaction().operations(changes).commit().await {
                Ok(_) => return Ok(true),
                Err(Error::Transaction { index: 0, .. }) => {} // another program has used the host's room
                Err(error) => return Err(error.into()),
            }
        }
    }
}

fn nodes<T: Serialize + DeserializeOwned + 'static>(at: (CuratorFramework, String)) -> Outcome<ModeledFramework<T>> {
    Ok(ModeledFramework::new(at.0, ModelSpec::new(at.1 + "/{name}", JsonCodec)?)?)
}

#[tokio::main]
async fn main() -> ExitCode {
    let Options { servers, path } = Options::parse();
    run(servers, |ensemble| async move {
        let one = Registry::open(ensemble.client().await?, &path).await?;
        let two = Registry::open(ensemble.client().await?, &path).await?;
        one.datasets.at("trips")?.set(&Dataset { owner: "ann".to_owned() }).await?;
        for host in ["berlin", "oslo"] {
            one.hosts.at(host)?.set(&Host { room: 2 }).await?;
        }
        let cache = one.copies.cached()?;
        cache.start()?;
        cache.initialized().await?;
        say("two programs place copies at once, on hosts with room for 2");
        tokio::try_join!(one.place("trips", "berlin"), two.place("weather", "berlin"))?;
        tokio::try_join!(one.place("weather", "oslo"), two.place("trips", "oslo"))?;
        cache.synced().await?; // the cache shows the writes of both programs
        cache.models().iter().for_each(|copy| say(format!("    {} on {}", copy.value.dataset, copy.value.host)));
        say(format!("a third copy on oslo is placed: {}", one.place("logs", "oslo").await?));
        let mut changes = cache.changes();
        while changes.try_recv().is_ok() {} // the present copies
        two.copies.at("weather@oslo")?.delete().await?;
        cache.synced().await?;
        two.client.set_data().for_path(two.copies.at("trips@oslo")?.path(), "not JSON").await?;
        for _ in 0..3 {
            match changes.recv().await {
                Some(ModelChange::Removed(copy)) => say(format!("    {} is gone", copy.key)),
                Some(ModelChange::Broken { error, .. }) => say(format!("    {error}")),
                other => return Err(format!("{other:?}").into()),
            }
        }
        let (copies, broken) = (cache.models().len(), cache.broken().len());
        say(format!("the cache has {copies} copies, and {broken} that cannot be decoded"));
        cache.close().await;
        one.client.delete().deleting_children_if_needed().for_path(&path).await?;
        Ok(())
    })
    .await
}
