//! A service that takes its configuration from a subtree, which a cache follows. Each change makes a new configuration, if
//! all values are valid. In an outage of the network the service keeps its configuration, and the state of the cache is
//! stale. After the outage the cache reads only the nodes that have changed, and reports each.

use std::collections::BTreeMap;
use std::process::ExitCode;

use clap::Parser;
use curator_examples::{Servers, run, say};
use curator_recipes::{CacheEvent, CacheState, Changes, CuratorCache};
use tokio::sync::watch;

/// Follows the configuration of a service, also over a failure of its network.
#[derive(Debug, Parser)]
struct Options {
    #[command(flatten)]
    servers: Servers,
    /// The configuration's path
    #[arg(long, default_value = "/examples/config_cache")]
    path: String,
}

/// The configuration: the node `port`, and a quota for each node below `quotas`.
#[derive(Debug, PartialEq, Eq)]
struct Config {
    port: u16,
    quotas: BTreeMap<String, u32>,
}

/// Makes a configuration of the cache's nodes, all of one moment.
fn load(cache: &CuratorCache) -> Result<Config, String> {
    let (mut port, mut quotas) = (None, BTreeMap::new());
    for node in cache.nodes() {
        let (name, text) = (&node.path[cache.path().len()..], String::from_utf8_lossy(&node.data));
        let wrong = |error| format!("{name} is {text:?}: {error}");
        if name == "/port" {
            port = Some(text.parse().map_err(wrong)?);
        } else if let Some(tenant) = name.strip_prefix("/quotas/") {
            quotas.insert(tenant.to_owned(), text.parse().map_err(wrong)?);
        }
    }
    Ok(Config { port: port.ok_or("/port is missing")?, quotas })
}

/// Loads the configuration after each change. An invalid one is ignored, so the earlier one stays.
async fn reload(cache: CuratorCache, configs: watch::Sender<Config>) {
    let mut events = cache.changes();
    while events.recv().await.is_some() {
        if let Ok(config) = load(&cache) {
            configs.send_replace(config);
        }
    }
}

/// Prints the changes that the cache has reported since the last call, by path. Returns their number.
fn print_changes(events: &mut Changes<CacheEvent>) -> usize {
    let mut changes = Vec::new();
    while let Ok(event) = events.try_recv() {
        match event {
            CacheEvent::Created(node) => changes.push((node, "created")),
            CacheEvent::Changed { new, .. } => changes.push((new, "changed")),
            CacheEvent::Deleted(node) => changes.push((node, "deleted")),
            _ => {}
        }
    }
    changes.sort_by(|(one, _), (other, _)| one.path.cmp(&other.path));
    changes.iter().for_each(|(node, word)| say(format!("    {} was {word}", node.path)));
    changes.len()
}

#[tokio::main]
async fn main() -> ExitCode {
    let Options { servers, path } = Options::parse();
    run(servers, |ensemble| async move {
        let operator = ensemble.client().await?;
        let set = async |name: &str, text: &str| {
            let create = operator.create().or_set_data().creating_parents_if_needed().with_data(text);
            create.for_path(&format!("{path}/{name}")).await
        };
        for (name, text) in [("port", "8080"), ("quotas/ann", "10"), ("quotas/ben", "20")] {
            set(name, text).await?;
        }
        let (client, network) = ensemble.client_behind_a_proxy().await?;
        let cache = CuratorCache::new(client, &path)?;
        cache.start()?;
        cache.initialized().await?;
        let (sender, mut configs) = watch::channel(load(&cache)?);
        tokio::spawn(reload(cache.clone(), sender));
        let (mut states, mut events) = (cache.watch(), cache.changes());
        say(format!("the service starts: {:?}", *configs.borrow()));
        set("port", "9090").await?;
        say(format!("the operator changes the port: {:?}", *configs.wait_for(|config| config.port == 9090).await?));
        set("port", "none").await?;
        cache.synced().await?; // the cache shows the operator's writes
        let reason = load(&cache).err().ok_or("the port is valid")?;
        say(format!("{reason}: the service keeps {:?}", *configs.borrow()));
        while events.try_recv().is_ok() {} // the changes up to now
        network.refuse();
        network.reset();
        states.wait_for(|state| matches!(state, CacheState::Stale { .. })).await?;
        operator.delete().for_path(&format!("{path}/quotas/ann")).await?;
        for (name, text) in [("port", "9091"), ("quotas/ann", "10"), ("quotas/cleo", "30")] {
            set(name, text).await?;
        }
        say(format!("the network is away, the cache is stale: {:?}", *configs.borrow()));
        network.accept();
        states.wait_for(CacheState::is_fresh).await?;
        cache.synced().await?;
        say("the network is back, the cache is fresh, and tells each change");
        let told = print_changes(&mut events);
        let newest = load(&cache)?;
        say(format!("the service continues: {:?}", *configs.wait_for(|config| *config == newest).await?));
        cache.close().await;
        operator.delete().deleting_children_if_needed().for_path(&path).await?;
        say(format!("4 changes without the network, {told} told after it"));
        Ok(())
    })
    .await
}
