//! Workers that start together and end together, at a double barrier. None starts before all have come, and none
//! continues before all are through, although their work takes different times. In the second round the network of one
//! worker falls silent: that worker stops, the others learn which one died, and end without it.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;
use curator_examples::{Outcome, Servers, run, say};
use curator_recipes::{BarrierMember, DistributedDoubleBarrier, DoubleBarrierOptions};
use tokio::task::JoinSet;

/// Starts four workers together, in two rounds.
#[derive(Debug, Parser)]
struct Options {
    #[command(flatten)]
    servers: Servers,
    /// The barrier's path
    #[arg(long, default_value = "/examples/start_together")]
    path: String,
}

const NAMES: [&str; 4] = ["ann", "ben", "cleo", "dora"];

/// The times of a worker. All workers are in this process, so they have one clock.
struct Times {
    came: Instant,
    began: Instant,
    ended: Instant,
    left: Instant,
}

/// Works in one round, between the barrier's two sides.
async fn round(barrier: DistributedDoubleBarrier, number: u64) -> Outcome<Times> {
    tokio::time::sleep(Duration::from_millis(20 * number)).await; // arrives later than the one before
    let came = Instant::now();
    let member = barrier.enter().await?;
    let began = Instant::now();
    tokio::time::sleep(Duration::from_millis(30 * (NAMES.len() as u64 + 1 - number))).await; // the work
    let ended = Instant::now();
    if member.leave().await?.died > 0 {
        return Err("a worker has died in the round".into());
    }
    Ok(Times { came, began, ended, left: Instant::now() })
}

/// Compares the times of all workers.
fn compare(all: &[Times]) -> Outcome {
    let (last_came, first_began) = (all.iter().map(|one| one.came).max(), all.iter().map(|one| one.began).min());
    let (last_ended, first_left) = (all.iter().map(|one| one.ended).max(), all.iter().map(|one| one.left).min());
    if last_came > first_began || last_ended > first_left {
        return Err("a worker was alone inside".into());
    }
    let names = NAMES.join(", ");
    say(format!("round 1: {names} begin when the last one has come, and leave when the last one has ended"));
    Ok(())
}

/// Waits for news of the other workers, and ends with those that live.
async fn until_told(name: &str, member: BarrierMember) -> Outcome<String> {
    let died = tokio::select! {
        biased;
        reason = member.lost() => return Ok(format!("{name} stops: {reason}")),
        died = member.member_lost() => died?,
    };
    let departure = member.leave().await?;
    Ok(format!("{name} is told that {died} died, and ends with the others; deaths of the round: {}", departure.died))
}

#[tokio::main]
async fn main() -> ExitCode {
    let Options { servers, path } = Options::parse();
    run(servers, |ensemble| async move {
        let (mut barriers, mut networks) = (Vec::new(), Vec::new());
        for name in NAMES {
            let (client, network) = ensemble.client_behind_a_proxy().await?;
            let options = DoubleBarrierOptions::new().id(name);
            barriers.push(DistributedDoubleBarrier::with_options(client, &path, NAMES.len(), options)?);
            networks.push(network);
        }
        let mut workers = JoinSet::new();
        for (barrier, number) in barriers.iter().zip(1..) {
            workers.spawn(round(barrier.clone(), number));
        }
        let mut times = Vec::new();
        while let Some(worked) = workers.join_next().await {
            times.push(worked??);
        }
        compare(&times)?;

        let mut members = JoinSet::new();
        for (barrier, name) in barriers.iter().cloned().zip(NAMES) {
            members.spawn(async move { Outcome::Ok((name, barrier.enter().await?)) });
        }
        let (mut inside, mut told) = (Vec::new(), JoinSet::new());
        while let Some(entered) = members.join_next().await {
            inside.push(entered??);
        }
        say("round 2: all are inside; cleo's network falls silent");
        networks[2].partition();
        for (name, member) in inside {
            told.spawn(until_told(name, member));
        }
        let mut lines = Vec::new();
        while let Some(line) = told.join_next().await {
            lines.push(line??);
        }
        lines.sort();
        lines.iter().for_each(say);
        networks[2].repair();
        for barrier in &barriers {
            if !barrier.members().await?.is_empty() {
                return Err("a member is left".into());
            }
        }
        Ok(())
    })
    .await
}
