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

use clap::Parser;
use curator_bench::figures::median;
use curator_bench::process::{Java, Process, Result, exit_code};
use curator_bench::requests::{cell, requests, server};
use curator_test::{ApacheServer, FaultProxy, TestingServer};
use tokio::process::Command;
use tokio::task::block_in_place;

#[derive(Parser)]
#[command(about = "Double barriers of this project beside Curator's")]
struct Options {
    /// Rounds of each time.
    #[arg(long, default_value_t = 21)]
    rounds: usize,
    /// Only these parts, as often as given: `requests`, `times`.
    #[arg(long)]
    only: Vec<String>,
    /// The program is a process with members.
    #[arg(long, hide = true)]
    members: bool,
    /// Given by `cargo bench`.
    #[arg(long, hide = true)]
    bench: bool,
}

const MEMBERS: usize = 20;
const DELAY: Duration = Duration::from_millis(5);
/// Milliseconds between two members that come one by one.
const ONE_BY_ONE: u64 = 20;
/// The rounds of requests.
const COUNTED: usize = 3;
/// The rounds for all to get warm.
const WARM_UP: usize = 5;

/// Both implementations, ours first.
struct Sides {
    all: [(&'static str, Process); 2],
    /// The classes, which Java loads when it needs them.
    _java: Java,
}

impl Sides {
    async fn start() -> Result<Self> {
        let java = Java::compile("CuratorBarriers").await?;
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("--members");
        let ours = Process::start(command, |_| false).await?;
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
async fn print_requests(sides: &mut Sides) -> Result<()> {
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
        let mut ratios = Vec::new();
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
                ratios.push(ratio);
            }
        }
        println!(
            "| {title} | 1 to {COUNTED} | median of the ratios | | | {:.2} |",
            median(&ratios).unwrap_or(f64::NAN)
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
async fn print_times(sides: &mut Sides, rounds: usize) -> Result<()> {
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
        let (mut times, mut ratios) = (<[Times; 2]>::default(), Vec::new());
        for round in 0..rounds + WARM_UP {
            let mut each = [0.0; 2];
            // Each second round goes backwards.
            let order = if round % 2 == 0 { [0, 1] } else { [1, 0] };
            for index in order {
                let (side, process) = &mut sides.all[index];
                let enter = nanos(&process.ask(&format!("enter /{name}-{side} 0")).await?)? / 1e6;
                let leave = nanos(&process.ask("leave 0").await?)? / 1e6;
                each[index] = enter + leave;
                if round >= WARM_UP {
                    times[index].iter_mut().zip([enter, leave, enter + leave]).for_each(|(all, time)| all.push(time));
                }
            }
            if round >= WARM_UP {
                ratios.push(each[0] / each[1]);
            }
        }
        for ((side, _), times) in sides.all.iter().zip(&times) {
            let [enter, leave, both] = times.each_ref().map(|times| median(times).unwrap_or(f64::NAN));
            let ratio = if *side == "this" { median(&ratios).unwrap_or(f64::NAN) } else { 1.0 };
            println!("| {title} | {side} | {enter:.2} | {leave:.2} | {both:.2} | {ratio:.2} |");
        }
        for (_, process) in &mut sides.all {
            process.tell("end", "ended").await?;
        }
    }
    Ok(())
}

async fn run(options: Options) -> Result<()> {
    let is_meant = |part: &str| options.only.is_empty() || options.only.iter().any(|only| only == part);
    let mut sides = Sides::start().await?;
    if is_meant("requests") {
        print_requests(&mut sides).await?;
    }
    if is_meant("times") {
        print_times(&mut sides, options.rounds).await?;
    }
    Ok(())
}

#[tokio::main]
async fn main() -> ExitCode {
    let options = Options::parse();
    let work = async move {
        match options.members {
            true => ours::serve().await,
            false => run(options).await,
        }
        .map(|()| true)
    };
    exit_code(work).await
}
