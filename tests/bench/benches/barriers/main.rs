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

use std::process::ExitCode;

use curator_bench::figures::float;
use curator_bench::harness::{self, CURATOR, Figures, OURS, Report, Side, Suite, Target, names, tell};
use curator_bench::process::{Program, Result};
use curator_bench::servers::{apache, cell, far, requests, server};

const MEMBERS: usize = 20;
/// Milliseconds between two members that come one by one.
const ONE_BY_ONE: u64 = 20;
/// The rounds of requests.
const COUNTED: usize = 3;

/// Lets all members take a step. Returns the milliseconds until the last has taken it.
async fn step(side: &mut Side, line: &str) -> Result<f64> {
    let answer = side.process.ask(line).await?;
    let nanos = answer.strip_prefix("entered ").or_else(|| answer.strip_prefix("left "));
    Ok(nanos.ok_or_else(|| answer.clone())?.parse::<f64>()? / 1e6)
}

/// Prints the requests of all members.
async fn print_requests(sides: &mut [Side], report: &mut Report) -> Result<()> {
    report.table(&format!("requests of {MEMBERS} members"), &names(sides), &[CURATOR]);
    let mut servers = Vec::new();
    for side in &mut *sides {
        let server = server()?;
        side.process.tell(&format!("connect {MEMBERS} {}", server.connect_string()), "connected").await?;
        // The first path has parents to create.
        step(side, "enter /app/warm-up 0").await?;
        step(side, "leave 0").await?;
        requests(&server).await;
        servers.push(server);
    }
    for (title, path, pause) in [("all at once", "/app/at-once", 0), ("one by one", "/app/one-by-one", ONE_BY_ONE)] {
        let title = format!("requests of a double barrier, {title}");
        let (mut first, mut others) = (Figures::default(), Figures::default());
        for round in 0..=COUNTED {
            let mut cells = Vec::new();
            for (side, server) in sides.iter_mut().zip(&servers) {
                step(side, &format!("enter {path} {pause}")).await?;
                let enter = requests(server).await;
                step(side, &format!("leave {pause}")).await?;
                let leave = requests(server).await;
                let all = float(enter.values().chain(leave.values()).sum());
                if round == 0 { &mut first } else { &mut others }.add(side.name, all);
                cells.push(format!("enter {}; leave {}", cell(&enter), cell(&leave)));
            }
            report.text(&format!("{title}, round {round}"), &cells);
        }
        report.row(&format!("{title}, the path is new"), &first, Target::None);
        report.row(&title, &others, Target::AtMost(0.5));
    }
    tell(sides, "end", "ended").await
}

/// Prints the times until the last member has entered and left.
async fn print_times(suite: &Suite, sides: &mut [Side], report: &mut Report) -> Result<()> {
    let server = apache()?;
    let proxy = far(&server)?;
    report.table(&format!("Apache ZooKeeper {}, {MEMBERS} members, ms", server.version()), &names(sides), &[CURATOR]);
    for (title, name, servers) in [
        ("all at once", "near", server.connect_string()),
        ("all at once, 5 ms each way", "far", proxy.connect_string()),
    ] {
        tell(sides, &format!("connect {MEMBERS} {servers}"), "connected").await?;
        let [mut enters, mut leaves, mut both] = <[Figures; 3]>::default();
        for turn in suite.turns(sides.len()) {
            let side = &mut sides[turn.side];
            let enter = step(side, &format!("enter /{name}-{} 0", side.name)).await?;
            let leave = step(side, "leave 0").await?;
            if turn.counts {
                enters.add(side.name, enter);
                leaves.add(side.name, leave);
                both.add(side.name, enter + leave);
            }
        }
        report.row(&format!("to enter a double barrier, {title}"), &enters, Target::None);
        report.row(&format!("to leave a double barrier, {title}"), &leaves, Target::None);
        report.row(&format!("times of a double barrier, {title}"), &both, Target::AtMost(0.5));
        tell(sides, "end", "ended").await?;
    }
    Ok(())
}

async fn run(suite: Suite) -> Result<Report> {
    let mut report = Report::default();
    let mut sides = suite.start().await?;
    if suite.wants("requests") {
        print_requests(&mut sides, &mut report).await?;
    }
    if suite.wants("times") {
        print_times(&suite, &mut sides, &mut report).await?;
    }
    Ok(report)
}

#[tokio::main]
async fn main() -> ExitCode {
    let suite = Suite {
        name: "barriers",
        sides: vec![(OURS, Program::Ours), (CURATOR, Program::Java("CuratorBarriers", ""))],
        parts: vec!["requests", "times"],
        without_rounds: &["requests"],
        rounds: Some(21),
        warm_up: Some(5),
        ..Suite::default()
    };
    harness::main(suite, ours::All::default(), run).await
}
