//! The locks of this project beside their peers, on one Apache ZooKeeper: `cargo bench -p curator-bench --bench peers`.
//!
//! Each workload is done by each peer in turn, for a moment, again and again, since the machine may be slow for seconds.
//! Peers outside of ZooKeeper come last, since the server grows cold during them. What counts is the ratio to Java's
//! Curator within a round, because machines differ and change. The exit status is 1 too if a peer could not start.

mod bare;
mod costs;
mod guards;
mod other_languages;
mod others;
mod ours;
mod peer;
mod report;
mod sockets;
mod workload;

use std::process::ExitCode;

use curator_bench::clients::Ours;
use curator_bench::harness::{self, CURATOR, Figures, KAZOO, OURS, Report, SOCKETS, Suite};
use curator_bench::process::{Program, Result};
use curator_bench::servers::{apache, far};
use curator_bench::socket::Socket;
use curator_test::ApacheServer;

use crate::bare::BareCrate;
use crate::other_languages::Spawned;
use crate::others::{Redis, Sqlite, ZookeeperClient};
use crate::peer::{BARE_CRATE, CLIENT, OURS_SECOND, Peer, REDIS, Run, SQLITE, TOKIO_SOCKETS};
use crate::sockets::BareSockets;
use crate::workload::{Recipe, WORKLOADS, Workload, does};

const CYCLES: &str = "costs: processor time";
const WAITING: &str = "costs: waiting";
const CONNECTIONS: &str = "costs: connections";
const GUARDS: &str = "costs: guards";
const HAND_OFFS: &str = "costs: hand-offs";
const JAVA: Program = Program::Java("CuratorBench", "");

type Peers = Vec<(&'static str, Box<dyn Peer>)>;

async fn start(name: &str, program: Program) -> Result<Box<dyn Peer>> {
    Ok(match name {
        OURS => Box::new(Ours::Own),
        OURS_SECOND => Box::new(Ours::ZookeeperAsync),
        CLIENT => Box::new(ZookeeperClient),
        BARE_CRATE => Box::new(BareCrate),
        SOCKETS => Box::new(BareSockets::Blocking),
        TOKIO_SOCKETS => Box::new(BareSockets::Tokio),
        REDIS => Box::new(Redis::start().await?),
        SQLITE => Box::new(Sqlite::start()?),
        _ => Box::new(Spawned::start(program).await?),
    })
}

/// True if a peer has no ZooKeeper.
fn is_outside(name: &str) -> bool {
    [REDIS, SQLITE].contains(&name)
}

/// True if the path of a lock has a mark, which its first client writes.
fn creates_its_path(name: &str, recipe: Recipe) -> bool {
    recipe == Recipe::DirectSemaphore && [OURS, OURS_SECOND].contains(&name)
}

/// Creates the nodes above the locks for each peer, so that its first cycle is as long as the others.
async fn create_parents(run: &Run, server: &ApacheServer) -> Result<()> {
    let mut socket = Socket::connect(server.address()).await?;
    for parent in run.parents() {
        socket.create_parent(&parent).await?;
    }
    socket.close().await
}

/// The figures of each peer, round by round.
async fn measure(suite: &Suite, workload: &Workload, peers: &mut Peers, server: &ApacheServer) -> Result<Figures> {
    let proxy = far(server)?;
    let address = if workload.is_far { proxy.address() } else { server.address() };
    let (inside, outside): (Vec<_>, Vec<_>) = (0..peers.len())
        .filter(|place| does(peers[*place].0, workload))
        .partition(|place| !is_outside(peers[*place].0));
    let mut figures = Figures::default();
    for places in [inside, outside] {
        for turn in suite.turns(places.len()) {
            let (name, peer) = &mut peers[places[turn.side]];
            let path = format!("/{}-{name}-{}", workload.title, turn.round).replace([' ', ',', ':', '%'], "-");
            let run = Run { recipe: workload.recipe, server: address, path, time: suite.time(), size: workload.size };
            if !is_outside(name) && !creates_its_path(name, run.recipe) {
                create_parents(&run, server).await?;
            }
            let figure = peer.run(&run).await.map_err(|error| format!("{name}, {}: {error}", workload.title))?;
            if turn.counts {
                figures.add(name, figure);
            }
        }
    }
    Ok(figures)
}

async fn costs(suite: &Suite, server: &ApacheServer, report: &mut Report) -> Result<()> {
    if suite.wants(CYCLES) {
        costs::of_cycles(suite, server.address(), report).await?;
    }
    if suite.wants(GUARDS) {
        guards::of_guards(suite, server.address(), report).await?;
    }
    if suite.wants(WAITING) && suite.has(OURS) {
        costs::of_waiting(server.address(), report).await?;
    }
    if suite.wants(CONNECTIONS) {
        costs::of_connections(suite, report).await?;
    }
    if suite.wants(HAND_OFFS) {
        let curator = if suite.has(CURATOR) { Spawned::start(JAVA).await.ok() } else { None };
        costs::of_queues(suite, curator, report).await?;
    }
    Ok(())
}

async fn run(suite: Suite) -> Result<Report> {
    let (mut report, server) = (Report::default(), apache()?);
    println!("Apache ZooKeeper {}, {} processors", server.version(), std::thread::available_parallelism()?);
    let workloads: Vec<_> = WORKLOADS.iter().filter(|workload| suite.wants(workload.title)).collect();
    let mut peers = Peers::new();
    for (name, program) in suite.sides.iter().filter(|_| !workloads.is_empty()) {
        match start(name, *program).await {
            Ok(peer) => peers.push((name, peer)),
            Err(error) => {
                println!("{name} is missing: {error}");
                report.judge(false);
            }
        }
    }
    if !workloads.is_empty() {
        let names: Vec<_> = peers.iter().map(|(name, _)| *name).collect();
        report.table("cycles/s, or ms", &names, &[CURATOR, SOCKETS]);
    }
    for workload in workloads {
        let figures = measure(&suite, workload, &mut peers, &server).await?;
        report.row(workload.title, &figures, workload.target);
    }
    drop(peers);
    costs(&suite, &server, &mut report).await?;
    Ok(report)
}

#[tokio::main]
async fn main() -> ExitCode {
    let here = [CLIENT, BARE_CRATE, SOCKETS, TOKIO_SOCKETS, REDIS, SQLITE].map(|name| (name, Program::Here));
    let mut sides = vec![(OURS, Program::Here), (OURS_SECOND, Program::Here), (CURATOR, JAVA)];
    sides.push((KAZOO, Program::Python("kazoo_bench.py")));
    sides.extend(here);
    let suite = Suite {
        name: "peers",
        sides,
        parts: WORKLOADS.iter().map(|one| one.title).chain([CYCLES, GUARDS, WAITING, CONNECTIONS, HAND_OFFS]).collect(),
        without_rounds: &[WAITING, CONNECTIONS, HAND_OFFS],
        rounds: Some(20),
        warm_up: Some(6),
        millis: Some(400),
        plot: Some(report::plot),
        ..Suite::default()
    };
    harness::main(suite, (), run).await
}
