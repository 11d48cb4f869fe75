//! Runs locks, elections, persistent nodes, caches, counters, barriers and queues through simulated storms, and checks
//! what happened.
//!
//! Each seed storms three of the ten locks, in rotation: in a hundred seeds in a row each has thirty storms, in all
//! kinds of weather. A short storm has a single holder, and a server that refuses its credentials or some of its requests. Half of the seeds also storm an election:
//! two of three a latch, one a selector. The other half storms persistent nodes. Each seed storms caches, and counters,
//! barriers, latches or a queue. In its hard storm servers refuse reads and credentials, have large replies, and return to backups.
//!
//! ```text
//! cargo run --release -p curator-simulate -- --seeds 10000
//! cargo run --release -p curator-simulate -- --seeds 1 --from 4711   # again, with its log
//! cargo run --release -p curator-simulate -- --seeds 2000 --only nodes   # one such storm for each seed
//! cargo run --release -p curator-simulate -- --seeds 2000 --only hard
//! cargo run --release -p curator-simulate -- --list-mutants
//! cargo run --release -p curator-simulate -- --seeds 500 --mutant one-too-many   # on code with this deliberate break
//! ```
//!
//! The last line is `<n> seeds, <f> failures, <s> s`; the exit status is 1 if there was a failure.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on fails")]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::{Command, ExitCode};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use clap::{Parser, ValueEnum};
use curator_simulate::registrants::Presence;
use curator_simulate::storm::Storm;
use curator_simulate::together::Together;

/// The subject of all storms of a run.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Only {
    Locks,
    Batches,
    Holder,
    Elections,
    Nodes,
    Services,
    Caches,
    Counters,
    Barriers,
    Latches,
    Queues,
    Hard,
}

/// Runs locks, elections, nodes that stand, caches, counters, barriers and queues through simulated storms and checks what happened.
#[derive(Debug, Clone, Parser)]
struct Options {
    /// How many seeds
    #[arg(long, default_value_t = 100)]
    seeds: u64,
    /// The first seed; fresh ones if it is not given
    #[arg(long)]
    from: Option<u64>,
    /// Storms this subject alone, with each seed
    #[arg(long, value_enum)]
    only: Option<Only>,
    /// Storms a copy of the code with this deliberate break
    #[arg(long, value_name = "NAME")]
    mutant: Option<String>,
    /// Prints the deliberate breaks
    #[arg(long)]
    list_mutants: bool,
}

/// Applies the deliberate breaks to a copy of the code, and runs this program there.
const MUTANTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../mutants/run");
/// The script sets it for the program that it runs.
const MUTANT: &str = "CURATOR_MUTANT";

/// How many failures are printed.
const PRINTED: u64 = 5;

fn main() -> ExitCode {
    let options = Options::parse();
    if options.list_mutants {
        return mutants(&["--list".to_owned()]);
    }
    if let (Some(mutant), None) = (&options.mutant, std::env::var_os(MUTANT)) {
        let mut arguments = ["--seeds", &options.seeds.to_string(), "--mutant", mutant].map(str::to_owned).to_vec();
        if let Some(from) = options.from {
            arguments.extend(["--from".to_owned(), from.to_string()]);
        }
        return mutants(&arguments);
    }
    // Small enough to be typed again.
    let from = options.from.unwrap_or_else(|| u64::from(rand::random::<u32>()));
    let began = Instant::now();
    let (next, failures) = (AtomicU64::new(0), AtomicU64::new(0));
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    if index >= options.seeds {
                        return;
                    }
                    let seed = from.wrapping_add(index);
                    let storms = AssertUnwindSafe(|| storms(seed, &options, &failures));
                    let well = catch_unwind(storms).unwrap_or_else(|_panic| {
                        println!("seed {seed}: a panic");
                        again(seed, &options);
                        false
                    });
                    if !well {
                        failures.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    let failures = failures.load(Ordering::Relaxed);
    println!("{} seeds, {failures} failures, {:.1} s", options.seeds, began.elapsed().as_secs_f64());
    if failures > 0 { ExitCode::from(1) } else { ExitCode::SUCCESS }
}

/// Runs the script of the deliberate breaks. Its exit status is this program's.
fn mutants(arguments: &[String]) -> ExitCode {
    match Command::new(MUTANTS).args(arguments).status() {
        Ok(status) => ExitCode::from(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1)),
        Err(error) => {
            eprintln!("error: {MUTANTS}: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Says how to see a failure again.
fn again(seed: u64, options: &Options) {
    let only = options.only.map(|only| format!(" --only {only:?}").to_lowercase()).unwrap_or_default();
    println!("again: --seeds 1 --from {seed}{only}");
}

/// The storms of one seed; whether they went well.
fn storms(seed: u64, options: &Options, failures: &AtomicU64) -> bool {
    let mut well = true;
    let storms = match options.only {
        None => Storm::of(seed),
        Some(Only::Locks) => Storm::locks(seed),
        Some(Only::Batches) => Storm::BATCHES.to_vec(),
        Some(Only::Holder) => vec![Storm::Holder],
        Some(Only::Elections) => vec![Storm::election(seed)],
        Some(Only::Nodes) => vec![Storm::presence(seed)],
        Some(Only::Services) => vec![Storm::Presence(Presence::Services)],
        Some(Only::Caches) => vec![Storm::Caches],
        Some(Only::Counters) => vec![Storm::Together(Together::Counters)],
        Some(Only::Barriers) => vec![Storm::Together(Together::Barriers)],
        Some(Only::Hard) => vec![Storm::hard(seed)],
        Some(Only::Latches) => vec![Storm::Together(Together::Latches)],
        Some(Only::Queues) => vec![Storm::Together(Together::Queues)],
    };
    for storm in storms {
        let outcome = storm.run(seed);
        let lone = options.seeds == 1;
        if lone {
            for line in &outcome.log {
                println!("{line}");
            }
        }
        if !outcome.violations.is_empty() {
            well = false;
            if lone || failures.load(Ordering::Relaxed) < PRINTED {
                for violation in &outcome.violations {
                    println!("seed {seed}, {storm}: {violation}");
                }
                again(seed, options);
            }
        }
    }
    well
}
