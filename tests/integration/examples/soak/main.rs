//! A soak: every recipe in one process, for minutes, on three Apache servers with rolling faults.
//!
//! It runs in legs. In each leg clients contend, count, write and meet while servers are killed and frozen and connections
//! are cut. Then all is calm, and the leg checks what must be true, and what the process still occupies. The program ends
//! with 1 at the first leg with a violation.
//!
//! | variable | meaning |
//! | --- | --- |
//! | `CURATOR_SOAK_SECONDS` | legs start until so many seconds have passed: 600 without it, at least two legs |
//! | `CURATOR_SOAK_SEED` | the seed of the faults and the players; a fresh one without it |

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on fails")]

mod ground;
mod members;
mod players;
mod tally;

use std::alloc::System;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use curator_framework::CuratorFramework;
use curator_integration::env::tasks;
use curator_simulate::contenders::{Lock, Pace, Recipe, Scribe, work};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use ground::{CLIENTS, Ground};
use members::Members;
use players::Players;
use tally::Tally;

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const PACE: Pace = Pace { speed: 4, rounds: 1, long: 10, uneven: false, looks: false };
/// The times of a leg with faults, and with players alone.
const STORMY: Duration = Duration::from_secs(40);
const CALM: Duration = Duration::from_secs(25);
/// The time that clients may take to be back after a fault: a leader has to be elected.
const RECOVERY: Duration = Duration::from_secs(15);
/// The limit of the time for which a lock may be free beside a waiter outside of faults.
const PATIENCE: Duration = Duration::from_secs(8);
/// The limit of the time in which a contender notes what has happened.
const LATE: Duration = Duration::from_secs(10);
/// The limit of the time in which all players end their last round.
const THE_END: Duration = Duration::from_secs(60);
/// The growth that is not a leak: buffers of connections. A leak of 40 bytes in each operation is more within one leg.
const TASKS: usize = 4;
const BYTES: usize = 512 << 10;

fn variable(name: &str) -> Option<u64> {
    let value = std::env::var(name).ok()?;
    Some(value.parse().unwrap_or_else(|_| panic!("{name} cannot be {value:?}")))
}

fn main() -> ExitCode {
    let seconds = variable("CURATOR_SOAK_SECONDS").unwrap_or(600);
    let seed = variable("CURATOR_SOAK_SEED").unwrap_or_else(|| u64::from(rand::random::<u32>()));
    println!("seed {seed}, {seconds} s");
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(soak(Duration::from_secs(seconds), StdRng::seed_from_u64(seed)))
}

async fn soak(lasting: Duration, mut random: StdRng) -> ExitCode {
    let ground = Arc::new(Ground::start().await);
    let tally = Arc::new(Tally::default());
    let members = Members::start(&ground, &tally).await;
    let players = Players::start(&ground, &tally).await;
    let (began, mut rests) = (Instant::now(), Vec::new());
    while began.elapsed() < lasting || rests.len() < 2 {
        leg(&ground, &tally, &players, &mut random).await;
        members.are_well(&ground).await;
        players.agree(&ground, &tally).await;
        rests.push(Rest::now().await);
        println!("{:>8.1?} leg {}: {tally}; {:?}", began.elapsed(), rests.len(), rests.last());
        if tally.is_bad() {
            return ExitCode::FAILURE;
        }
    }
    // A leak is in each of the later legs.
    let (first, later) = (rests[0], &rests[rests.len() / 2..]);
    if later.iter().all(|rest| rest.tasks > first.tasks + TASKS || rest.bytes > first.bytes + BYTES) {
        println!("VIOLATION: the process has grown from {first:?} to {later:?}");
        return ExitCode::FAILURE;
    }
    println!("{} legs, {} faults, no violation", rests.len(), ground.faults());
    drop((members, players));
    ground.close().await;
    ExitCode::SUCCESS
}

/// Lets all play in faults, then in the calm.
async fn leg(ground: &Arc<Ground>, tally: &Arc<Tally>, players: &Players, random: &mut StdRng) {
    let until = Instant::now() + STORMY + CALM;
    let mut playing = JoinSet::new();
    let scribes = Recipe::ALL.map(|recipe| {
        let scribe = Scribe::new(RECOVERY, Some(LATE));
        for client in ground.clients() {
            let random = StdRng::seed_from_u64(random.random());
            playing.spawn(contend(scribe.clone(), client.clone(), recipe, random, until));
        }
        scribe
    });
    players.play(&mut playing, until, random);
    ground
        .rage(random, STORMY, |what, lasting| {
            println!("         {what}");
            scribes.iter().for_each(|scribe| scribe.fault(&what, lasting));
        })
        .await;
    let all = async {
        while let Some(ended) = playing.join_next().await {
            if let Err(panic) = ended {
                tally.wrong(format!("a player's panic: {panic}"));
            }
        }
    };
    if timeout(until - Instant::now() + THE_END, all).await.is_err() {
        tally.wrong("a player does not end");
    }
    for (recipe, scribe) in Recipe::ALL.into_iter().zip(scribes) {
        let outcome = scribe.outcome(&recipe.rules(PATIENCE, LATE));
        tally.add("grants", outcome.grants);
        if outcome.grants < CLIENTS {
            tally.wrong(format!("{recipe}: {} grants", outcome.grants));
        }
        if !outcome.violations.is_empty() {
            println!("{}", outcome.log.join("\n"));
        }
        outcome.violations.into_iter().for_each(|violation| tally.wrong(format!("{recipe}: {violation}")));
    }
}

/// Contends for a lock again and again.
async fn contend(scribe: Scribe, client: CuratorFramework, recipe: Recipe, mut random: StdRng, until: Instant) {
    let path = format!("/soak/{recipe}").replace(' ', "-");
    while Instant::now() < until {
        let lock = Lock::new(client.clone(), recipe, &path).unwrap();
        work(scribe.clone(), lock, StdRng::seed_from_u64(random.random()), PACE, false).await;
    }
}

/// The tasks and the memory of the process at rest.
#[derive(Debug, Clone, Copy)]
struct Rest {
    tasks: usize,
    bytes: usize,
}

impl Rest {
    /// Takes the least of some moments without a player at work.
    async fn now() -> Self {
        let mut rest = Self { tasks: usize::MAX, bytes: usize::MAX };
        for _ in 0..50 {
            sleep(Duration::from_millis(100)).await;
            let stats = ALLOCATOR.stats();
            rest.bytes = rest.bytes.min(stats.bytes_allocated - stats.bytes_deallocated);
            rest.tasks = rest.tasks.min(tasks());
        }
        rest
    }
}
