//! Double barriers beside Curator's: `cargo bench -p curator-bench --bench barriers`.
//!
//! Each of twenty members has a client of its own. All enter, then all leave.
//!
//! - The requests, by the in-process server's log.
//! - The time, on one Apache ZooKeeper that does not wait for its disk.
//!
//! Each side is a process of its own, with these words:
//!
//! | line to it | its answer |
//! | --- | --- |
//! | `connect COUNT SERVERS` | `connected`: so many clients |
//! | `enter PATH MILLIS` | `entered NANOS`: each client has entered, MILLIS after the one before |
//! | `leave MILLIS` | `left NANOS`: the same of leaving |
//! | `end` | `ended`: all clients |

mod ours;

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::Duration;

use curator_bench::figures::median;
use curator_bench::harness::{self, Options, Report, Target, order, ratio_within};
use curator_bench::process::{Java, Process, Result};
use curator_bench::requests::{cell, requests, server};
use curator_test::{ApacheServer, FaultProxy, TestingServer};
use tokio::task::block_in_place;

const MEMBERS: usize = 20;
const DELAY: Duration = Duration::from_millis(5);
/// Milliseconds between two members that come one by one.
const ONE_BY_ONE: u64 = 20;
/// The rounds of requests.
const COUNTED: usize = 3;

/// Both implementations, ours first.
struct Sides {
    all: [(&'static str, Process); 2],
    /// The classes, which Java loads when it needs them.
    _java: Java,
}

impl Sides {
    async fn start() -> Result<Self> {
        let java = Java::compile("CuratorBarriers").await?;
        let ours = harness::ours().await?;
        let javas = Process::start(java.command(), |_| false).await?;
        Ok(Self { all: [("this", ours), ("Curator", javas)], _java: java })
    }
}

/// Returns the nanoseconds of an answer.
fn nanos(answer: &str) -> Result<f64> {
    let nanos = answer.strip_prefix("entered ").or_else(|| answer.strip_prefix("left "));
    Ok(nanos.ok_or_else(|| answer.to_owned())?.parse()?)
}

/// The requests of a round: those of entering and those of leaving.
type Counts = [BTreeMap<&'static str, usize>; 2];

fn total(counts: &Counts) -> usize {
    counts.iter().flat_map(BTreeMap::values).sum()
}

async fn counted(process: &mut Process, server: &TestingServer, path: &str, pause: u64) -> Result<Counts> {
    requests(server).await;
    nanos(&process.ask(&format!("enter {path} {pause}")).await?)?;
    let enter = requests(server).await;
    nanos(&process.ask(&format!("leave {pause}")).await?)?;
    Ok([enter, requests(server).await])
}

/// Prints the requests of all members.
async fn print_requests(sides: &mut Sides, report: &mut Report) -> Result<()> {
    println!(
        "| requests of {MEMBERS} members | round | | enter | leave | all |\n| --- | --- | --- | --- | --- | --- |"
    );
    let mut servers = Vec::new();
    for (_, process) in &mut sides.all {
        let server = server()?;
        process.tell(&format!("connect {MEMBERS} {}", server.connect_string()), "connected").await?;
        // The first path has parents to create.
        counted(process, &server, "/app/warm-up", 0).await?;
        servers.push(server);
    }
    for (title, path, pause) in [("all at once", "/app/at-once", 0), ("one by one", "/app/one-by-one", ONE_BY_ONE)] {
        let mut all_rounds = <[Vec<f64>; 2]>::default();
        for round in 0..=COUNTED {
            let mut totals = [0.0; 2];
            for ((total_of_side, server), (name, process)) in totals.iter_mut().zip(&servers).zip(&mut sides.all) {
                let counts = counted(process, server, path, pause).await?;
                let all = total(&counts);
                #[allow(clippy::cast_precision_loss, reason = "not that many")]
                let figure = all as f64;
                *total_of_side = figure;
                let round = if round == 0 { "the path is new".to_owned() } else { round.to_string() };
                let [enter, leave] = counts.each_ref().map(cell);
                println!("| {title} | {round} | {name} | {enter} | {leave} | {all} |");
            }
            let ratio = totals[0] / totals[1];
            if round == 0 {
                println!("| | | ratio | | | {ratio:.2} |");
            } else {
                all_rounds.iter_mut().zip(totals).for_each(|(all, total)| all.push(total));
            }
        }
        println!(
            "| {title} | 1 to {COUNTED} | median of the ratios | | | {:.2} |",
            ratio_within(&all_rounds[0], &all_rounds[1]).unwrap_or(f64::NAN)
        );
        report.add(
            &format!("requests of a double barrier, {title}"),
            &all_rounds[0],
            &all_rounds[1],
            Target::AtMost(0.5),
        );
    }
    for (_, process) in &mut sides.all {
        process.tell("end", "ended").await?;
    }
    Ok(())
}

/// The milliseconds of all rounds: of entering, of leaving, and of both.
type Times = [Vec<f64>; 3];

/// Prints the times until the last member has entered and left.
async fn print_times(sides: &mut Sides, options: &Options, report: &mut Report) -> Result<()> {
    let (rounds, warm_up) = (options.rounds(21), options.warm_up(5));
    let builder = ApacheServer::builder().session_timeouts(Duration::from_secs(2), Duration::from_secs(60));
    let server = block_in_place(|| builder.compiles_fully().start())?;
    let proxy = FaultProxy::start(server.address())?;
    proxy.latency(DELAY);
    println!("\nApache ZooKeeper {}, {MEMBERS} members, {rounds} rounds, medians, ms\n", server.version());
    println!("| | | enter | leave | both | ratio, median of the rounds |\n| --- | --- | --- | --- | --- | --- |");
    for (title, name, servers) in [
        ("all at once", "near", server.connect_string()),
        ("all at once, 5 ms each way", "far", proxy.connect_string()),
    ] {
        for (_, process) in &mut sides.all {
            process.tell(&format!("connect {MEMBERS} {servers}"), "connected").await?;
        }
        let mut times = <[Times; 2]>::default();
        for round in 0..rounds + warm_up {
            for index in order(round, 2) {
                let (side, process) = &mut sides.all[index];
                let enter = nanos(&process.ask(&format!("enter /{name}-{side} 0")).await?)? / 1e6;
                let leave = nanos(&process.ask("leave 0").await?)? / 1e6;
                if round >= warm_up {
                    times[index].iter_mut().zip([enter, leave, enter + leave]).for_each(|(all, time)| all.push(time));
                }
            }
        }
        let ratio_of_ours = ratio_within(&times[0][2], &times[1][2]).unwrap_or(f64::NAN);
        report.add(&format!("times of a double barrier, {title}"), &times[0][2], &times[1][2], Target::AtMost(0.5));
        for ((side, _), times) in sides.all.iter().zip(&times) {
            let [enter, leave, both] = times.each_ref().map(|times| median(times).unwrap_or(f64::NAN));
            let ratio = if *side == "this" { ratio_of_ours } else { 1.0 };
            println!("| {title} | {side} | {enter:.2} | {leave:.2} | {both:.2} | {ratio:.2} |");
        }
        for (_, process) in &mut sides.all {
            process.tell("end", "ended").await?;
        }
    }
    Ok(())
}

async fn run(options: Options) -> Result<Report> {
    let mut report = Report::default();
    let mut sides = Sides::start().await?;
    if options.wants("requests") {
        print_requests(&mut sides, &mut report).await?;
    }
    if options.wants("times") {
        print_times(&mut sides, &options, &mut report).await?;
    }
    Ok(report)
}

#[tokio::main]
async fn main() -> ExitCode {
    harness::main("barriers", ours::serve, run).await
}
