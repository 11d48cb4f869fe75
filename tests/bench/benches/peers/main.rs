//! The locks of this project beside their peers, on one Apache ZooKeeper: `cargo bench -p curator-bench --bench peers`.
//!
//! Each workload is done by each peer in turn, for a moment, again and again, since the machine may be slow for seconds;
//! forwards and backwards, so that nobody always comes behind the same one; then by those that are not in ZooKeeper, since
//! the server grows cold meanwhile. What counts is the ratio to Java's Curator within a round, because machines differ
//! and change. `--json FILE` writes all figures, `--plot FILE` the bytes of a hand-off as SVG. The exit status is 1 if a
//! peer could not start, failed, or a target was missed.

mod bare;
mod costs;
mod other_languages;
mod others;
mod ours;
mod peer;
mod report;
mod sockets;
mod workload;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use curator_test::{ApacheServer, FaultProxy};
use serde_json::{Map, Value, json};

use crate::bare::BareCrate;
use crate::other_languages::Spawned;
use crate::others::{Redis, Sqlite, ZookeeperClient};
use crate::peer::{BARE_CRATE, CURATOR, OURS, Peer, Result, Run, SOCKETS, TOKIO_SOCKETS};
use crate::sockets::BareSockets;
use crate::workload::{Workload, median};
use curator_bench::cycles::Ours;
use curator_bench::process::exit_code;

#[derive(Parser)]
#[command(about = "The locks of this project beside their peers, on one Apache ZooKeeper")]
struct Options {
    /// Rounds that count.
    #[arg(long, default_value_t = 20)]
    rounds: usize,
    /// Rounds before them, in which Java compiles itself.
    #[arg(long, default_value_t = 6)]
    warm_up: usize,
    /// How long a run of cycles takes, in milliseconds.
    #[arg(long, default_value_t = 400)]
    millis: u64,
    /// Only the workloads and costs whose title has this in it. The costs: "processor time", "waiting", "hand-offs",
    /// "connections".
    #[arg(long)]
    only: Option<String>,
    /// Only the peers whose name has this in it; without Curator there are no ratios, and no target is met.
    #[arg(long)]
    peer: Vec<String>,
    /// Only the costs.
    #[arg(long)]
    costs: bool,
    /// Where all figures are written as JSON.
    #[arg(long)]
    json: Option<PathBuf>,
    /// Where the bytes of a hand-off are drawn as SVG.
    #[arg(long)]
    plot: Option<PathBuf>,
    /// Given by `cargo bench`.
    #[arg(long, hide = true)]
    bench: bool,
}

impl Options {
    fn wants(&self, title: &str) -> bool {
        self.only.as_ref().is_none_or(|only| title.contains(only.as_str()))
    }
}

/// The peers there are, and the names of those that are missing, with the reason.
async fn peers(only: &[String]) -> (Vec<Box<dyn Peer>>, Vec<String>) {
    let mut peers: Vec<Box<dyn Peer>> = vec![Box::new(Ours::Own), Box::new(Ours::ZookeeperAsync)];
    let mut missing = Vec::new();
    let mut add = |name: &str, peer: Result<Box<dyn Peer>>| match peer {
        Ok(peer) => peers.push(peer),
        Err(error) => missing.push(format!("{name} is missing: {error}")),
    };
    add(CURATOR, Spawned::curator().await.map(|peer| Box::new(peer) as _));
    add("kazoo", Spawned::kazoo().await.map(|peer| Box::new(peer) as _));
    add("zookeeper-client", Ok(Box::new(ZookeeperClient)));
    add(BARE_CRATE, Ok(Box::new(BareCrate)));
    add(SOCKETS, Ok(Box::new(BareSockets::Blocking)));
    add(TOKIO_SOCKETS, Ok(Box::new(BareSockets::Tokio)));
    add("Redis", Redis::start().await.map(|peer| Box::new(peer) as _));
    add("SQLite", Sqlite::start().map(|peer| Box::new(peer) as _));
    peers.retain(|peer| only.is_empty() || only.iter().any(|only| peer.name().contains(only.as_str())));
    (peers, missing)
}

/// Who runs when: the round, and the place among the peers. Forwards and backwards, first in ZooKeeper, then elsewhere.
fn plan(workload: Workload, peers: &[Box<dyn Peer>], rounds: usize) -> Vec<(usize, usize)> {
    let mut plan = Vec::new();
    for in_zookeeper in [true, false] {
        let is_meant = |peer: &dyn Peer| peer.does(workload) && peer.is_in_zookeeper() == in_zookeeper;
        let mut order: Vec<_> = (0..peers.len()).filter(|&place| is_meant(&*peers[place])).collect();
        for round in 0..rounds {
            plan.extend(order.iter().map(|&place| (round, place)));
            order.reverse();
        }
    }
    plan
}

/// The figures of each peer, round by round.
async fn measure(
    workload: Workload,
    peers: &mut [Box<dyn Peer>],
    server: &ApacheServer,
    options: &Options,
) -> Result<Vec<(&'static str, Vec<f64>)>> {
    let proxy = FaultProxy::start(server.address())?;
    proxy.latency(Duration::from_millis(5));
    let address = if workload.is_far() { proxy.address() } else { server.address() };
    let mut figures: Vec<_> = peers.iter().map(|peer| (peer.name(), Vec::new())).collect();
    for (round, place) in plan(workload, peers, options.warm_up + options.rounds) {
        let (peer, (name, figures)) = (&mut peers[place], &mut figures[place]);
        let path =
            format!("/{}-{}-{round}", workload.title().replace([' ', ',', ':', '%'], "-"), name.replace(' ', "-"));
        let run = Run { server: address, path, time: Duration::from_millis(options.millis), size: workload.size() };
        let outcome =
            peer.run(workload, &run).await.map_err(|error| format!("{name}, {}: {error}", workload.title()))?;
        if round >= options.warm_up {
            figures.push(outcome.figure());
        }
    }
    figures.retain(|(_, figures)| !figures.is_empty());
    Ok(figures)
}

/// The median ratio to another peer within the rounds.
fn ratio(own: &[f64], other: Option<&[f64]>) -> Option<f64> {
    let ratios: Vec<_> = own.iter().zip(other?).map(|(own, other)| own / other).collect();
    Some(median(&ratios))
}

/// Prints a workload's rows. Whether the target is met, and all of it as JSON.
fn tell(workload: Workload, figures: &[(&'static str, Vec<f64>)]) -> (bool, Value) {
    let of = |peer: &str| figures.iter().find(|(name, _)| *name == peer).map(|(_, figures)| figures.as_slice());
    let (curator, sockets) = (of(CURATOR), of(SOCKETS));
    let in_text = |ratio: Option<f64>| ratio.map_or_else(|| "–".to_owned(), |ratio| format!("{ratio:.2}"));
    let mut is_met = false;
    let mut rows = Map::new();
    for (name, figures) in figures {
        let (to_sockets, ratio) = (ratio(figures, sockets), ratio(figures, curator));
        let (least, most) = figures.iter().fold((f64::MAX, 0.0_f64), |(a, b), figure| (a.min(*figure), b.max(*figure)));
        let verdict = match ratio {
            Some(ratio) if *name == OURS => {
                is_met = workload.target().is_met(ratio);
                format!("{}: {}", workload.target().text(), if is_met { "met" } else { "missed" })
            }
            _ => String::new(),
        };
        println!(
            "| {} | {name} | {:.1} {} | {least:.1} to {most:.1} | {} | {} | {verdict} |",
            workload.title(),
            median(figures),
            workload.unit(),
            in_text(to_sockets),
            in_text(ratio),
        );
        let row =
            json!({ "rounds": figures, "median": median(figures), "ratio": ratio, "of_bare_sockets": to_sockets });
        rows.insert((*name).to_owned(), row);
    }
    (is_met, json!({ "unit": workload.unit(), "target": workload.target().text(), "is_met": is_met, "peers": rows }))
}

/// Measures the costs. Whether they are within their bounds.
async fn costs(server: &ApacheServer, options: &Options) -> Result<(Map<String, Value>, bool)> {
    let mut costs = Map::new();
    let mut all_well = true;
    if options.wants("processor time") {
        let (cycles, is_cheap) = costs::of_cycles(server.address(), options.rounds).await?;
        all_well &= is_cheap;
        costs.insert("cycles".to_owned(), cycles);
    }
    if options.wants("waiting") {
        costs.insert("waiting".to_owned(), costs::of_waiting(server.address()).await?);
    }
    if options.wants("connections") {
        costs.insert("connections".to_owned(), costs::of_connections(10_000).await?);
    }
    if options.wants("hand-offs") {
        let queues = costs::of_queues(&mut Spawned::curator().await.ok()).await?;
        if let Some(file) = &options.plot {
            report::plot(&queues, file)?;
        }
        costs.insert("queues".to_owned(), queues);
    }
    Ok((costs, all_well))
}

async fn run(options: Options) -> Result<bool> {
    let options = &options;
    let server = ApacheServer::builder().compiles_fully().start()?;
    println!("Apache ZooKeeper {}, {} processors", server.version(), std::thread::available_parallelism()?);
    let (mut peers, missing) = peers(&options.peer).await;
    let mut all_well = missing.is_empty();
    let mut workloads = Map::new();
    if !options.costs {
        println!(
            "\n| workload | peer | median | spread | of bare sockets' | ratio to Curator | target |\n| --- | --- | --- | --- | --- | --- | --- |"
        );
        for workload in Workload::ALL {
            if !options.wants(workload.title()) {
                continue;
            }
            let mut figures = measure(workload, &mut peers, &server, options).await?;
            figures.sort_by_key(|(name, _)| *name != OURS);
            let (is_met, rows) = tell(workload, &figures);
            all_well &= is_met;
            workloads.insert(workload.title().to_owned(), rows);
        }
    }
    drop(peers);
    let (costs, is_cheap) = costs(&server, options).await?;
    all_well &= is_cheap;
    if let Some(file) = &options.json {
        let all = json!({ "zookeeper": server.version(), "missing": missing, "workloads": workloads, "costs": costs });
        std::fs::write(file, serde_json::to_string_pretty(&all)?)?;
    }
    for missing in missing {
        println!("\n{missing}");
    }
    Ok(all_well)
}

#[tokio::main]
async fn main() -> ExitCode {
    exit_code(run(Options::parse())).await
}
