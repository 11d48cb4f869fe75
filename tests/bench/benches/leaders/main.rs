//! Leaders of this project beside Curator's `LeaderLatch`: `cargo bench -p curator-bench --bench leaders`.
//!
//! - Faults on a cluster of three Apache servers. All implementations have their candidates on the same servers, so that
//!   one fault hits all of them. A row says when the old leader's flag was last true, counted from the moment at which
//!   the next leader's flag was first true. Below zero, they do not overlap.
//! - The hand-off of twenty candidates, in one session and in twenty.
//!
//! The candidates are processes of their own. The exit status is 1 if two leaders of ours overlap where the old one can
//! prove its loss.

mod candidates;
mod faults;
mod hand_offs;
mod outcome;
mod process;

use std::process::ExitCode;

use clap::Parser;
use curator_bench::process::exit_code;

use crate::faults::{Fault, SESSION, SYNC_LIMIT, Side, Stage, TICK};
use crate::outcome::{Outcome, cell};
use crate::process::Result;

#[derive(Parser)]
#[command(about = "Leaders of this project beside Curator's, under faults and in a queue")]
struct Options {
    /// Rounds of each row.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Only the faults with this text in their titles.
    #[arg(long)]
    only: Option<String>,
    /// Only the side of this name, as often as given: `ours`, `curator`, `curator-session`.
    #[arg(long)]
    side: Vec<String>,
    /// No faults.
    #[arg(long)]
    hand_offs: bool,
    /// No hand-offs.
    #[arg(long)]
    faults: bool,
    /// The program is a process with candidates.
    #[arg(long, hide = true)]
    candidates: bool,
    /// Given by `cargo bench`.
    #[arg(long, hide = true)]
    bench: bool,
}

/// The outcomes and the times to the next leader of all rounds, by side.
type Rows = Vec<(Vec<Outcome>, Vec<f64>)>;

/// Returns true if ours holds what it promises.
async fn faults(options: &Options) -> Result<bool> {
    let is_meant = |side: &Side| options.side.is_empty() || options.side.iter().any(|name| name == side.name());
    let mut stage = Stage::new(Side::ALL.into_iter().filter(is_meant).collect()).await?;
    println!(
        "Apache ZooKeeper {}, three servers, session {SESSION:?}, tick {TICK:?}, syncLimit {SYNC_LIMIT}, {} rounds\n",
        stage.version(),
        options.rounds,
    );
    println!(
        "| fault | provable | ours | Curator | Curator, session policy | next leader after: ours | Curator | Curator, session policy |"
    );
    println!("| --- | --- | --- | --- | --- | --- | --- | --- |");
    let mut all_well = true;
    for fault in Fault::ALL {
        if options.only.as_ref().is_some_and(|only| !fault.title().contains(only.as_str())) {
            continue;
        }
        let mut rows: Rows = vec![Default::default(); Side::ALL.len()];
        for round in 0..options.rounds {
            for row in stage.round(fault, round).await? {
                let (outcomes, takeovers) = &mut rows[row.side as usize];
                eprintln!("{}, round {round}, {}: {:?}", fault.title(), row.side.name(), row.outcome);
                outcomes.push(row.outcome);
                takeovers.extend(row.takeover.map(|takeover| takeover.as_secs_f64()));
            }
        }
        let outcomes: Vec<_> = rows.iter().map(|(outcomes, _)| cell(outcomes)).collect();
        let takeovers: Vec<_> = rows.iter().map(|(_, takeovers)| median(takeovers)).collect();
        let provable = if fault.is_provable() { "yes" } else { "no" };
        println!("| {} | {provable} | {} | {} |", fault.title(), outcomes.join(" | "), takeovers.join(" | "));
        all_well &= !fault.is_provable() || rows[Side::Ours as usize].0.iter().all(|outcome| !outcome.overlaps());
    }
    Ok(all_well)
}

fn median(seconds: &[f64]) -> String {
    let mut sorted = seconds.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).map_or_else(|| "–".to_owned(), |median| format!("{median:.2} s"))
}

async fn run(options: Options) -> Result<bool> {
    let mut all_well = true;
    if !options.hand_offs {
        all_well = faults(&options).await?;
    }
    if !options.faults {
        hand_offs::run(options.rounds).await?;
    }
    Ok(all_well)
}

#[tokio::main]
async fn main() -> ExitCode {
    let options = Options::parse();
    let work = async move {
        match options.candidates {
            true => candidates::serve().await.map(|()| true),
            false => run(options).await,
        }
    };
    exit_code(work).await
}
