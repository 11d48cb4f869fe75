//! A holder cut off in silence knows of its loss before the next one has the lock: rounds from seeds, in the simulation.

use std::time::Duration;

use curator_framework::{CuratorFramework, RetryNTimes};
use curator_integration::held::Way;
use curator_test::{ClientId, SimulatedEnsemble};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio::time::{sleep, timeout};

use super::players::{Outcome, Round};

const PATH: &str = "/rounds/lock";
const ROUNDS: u64 = 200;
const HOLDER: ClientId = ClientId(0);
const NEXT: ClientId = ClientId(1);

/// What becomes of the holder's connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Silence {
    /// Nothing passes.
    Partition,
    /// The holder's server does not follow the leader any more, but answers reads.
    ServerCutOff,
    /// Everything comes late, and at last nothing any more.
    Delays,
    /// Nothing passes at all, for the next one too, which is the first to be back.
    AllServers,
    /// The holder's host sleeps.
    Sleep,
}

const SILENCES: [Silence; 5] =
    [Silence::Partition, Silence::ServerCutOff, Silence::Delays, Silence::AllServers, Silence::Sleep];

/// All that a seed decides, but for the moments.
#[derive(Debug, Clone, Copy)]
struct Plan {
    way: Way,
    silence: Silence,
    timeout: Duration,
    tick: Duration,
    latency: Duration,
    /// The silence starts while the holder acquires.
    in_acquire: bool,
    /// The next one waits when it starts.
    waits: bool,
    /// How often the holder's client reads.
    reads: Option<Duration>,
}

impl Plan {
    /// Seeds in a row meet each way to hold with each silence.
    fn of(seed: u64, random: &mut StdRng) -> Self {
        let ways = Way::ALL.len() as u64;
        let timeout = Duration::from_millis(random.random_range(2000..20_000));
        Self {
            way: Way::ALL[(seed % ways) as usize],
            silence: SILENCES[(seed / ways % 5) as usize],
            timeout,
            tick: timeout / random.random_range(2..7),
            latency: Duration::from_millis(random.random_range(0..50)),
            in_acquire: random.random_range(0..4) == 0,
            waits: random.random(),
            reads: random.random::<bool>().then(|| timeout / random.random_range(4..40)),
        }
    }
}

fn part_of(random: &mut StdRng, time: Duration, from: f64, to: f64) -> Duration {
    time.mul_f64(random.random_range(from..to))
}

/// Plays one round; the same seed gives the same.
fn play(seed: u64) -> (Plan, Outcome) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(round(seed))
}

async fn round(seed: u64) -> (Plan, Outcome) {
    let mut random = StdRng::seed_from_u64(seed);
    let plan = Plan::of(seed, &mut random);
    let ensemble = SimulatedEnsemble::with_tick(seed, plan.latency, plan.tick);
    let (holder, next) = (connected(&ensemble, HOLDER, plan).await, connected(&ensemble, NEXT, plan).await);
    let clock = ensemble.clone();
    let round = Round::new(plan.way, PATH, move || clock.now());
    let reads = plan.reads.map(|pause| tokio::spawn(read(holder.clone(), pause)));

    let holding = tokio::spawn(std::sync::Arc::clone(&round).hold(holder.clone()));
    if plan.in_acquire {
        let most = plan.latency * 12;
        sleep(part_of(&mut random, most, 0.0, 1.0)).await;
    } else {
        round.is_held().await;
        sleep(part_of(&mut random, plan.timeout, 0.0, 2.0)).await;
    }
    let keeps = part_of(&mut random, plan.timeout, 0.0, 0.3);
    let follow = || tokio::spawn(std::sync::Arc::clone(&round).follow(next.clone(), keeps));
    let early = plan.waits.then(follow);
    if early.is_some() {
        sleep(plan.latency * random.random_range(0..12)).await;
    }
    fall_silent(&ensemble, &round, plan, &mut random).await;
    let mut following = match early {
        Some(early) => early,
        None => {
            sleep(part_of(&mut random, plan.timeout, 0.0, 1.2)).await;
            follow()
        }
    };
    let served = timeout(plan.timeout * 3, &mut following).await.is_ok();
    for client in [HOLDER, NEXT] {
        ensemble.repair(client);
    }
    round.end_of_silence();
    if !served && timeout(plan.timeout * 6, following).await.is_err() {
        round.wrong("the next one waits for ever");
    }
    if timeout(plan.timeout * 6, holding).await.is_err() {
        round.wrong("the holder waits for ever");
    }
    if let Some(reads) = reads {
        reads.abort();
    }
    sleep(plan.timeout).await;
    for parent in plan.way.parents(PATH) {
        for left in ensemble.children(&parent) {
            round.wrong(format!("left behind: {parent}/{left}"));
        }
    }
    holder.close().await;
    next.close().await;
    (plan, round.outcome())
}

async fn fall_silent(ensemble: &SimulatedEnsemble, round: &Round, plan: Plan, random: &mut StdRng) {
    match plan.silence {
        Silence::Partition => ensemble.partition(HOLDER),
        Silence::ServerCutOff => ensemble.cut_off_server(HOLDER),
        Silence::Delays => {
            for _ in 0..random.random_range(1..6) {
                ensemble.partition(HOLDER);
                sleep(part_of(random, plan.timeout, 0.05, 0.7)).await;
                ensemble.repair(HOLDER);
                sleep(plan.latency * random.random_range(0..4)).await;
            }
            ensemble.partition(HOLDER);
        }
        Silence::AllServers => {
            ensemble.partition(HOLDER);
            ensemble.partition(NEXT);
            sleep(part_of(random, plan.timeout, 0.5, 1.5)).await;
            ensemble.repair(NEXT);
        }
        Silence::Sleep => {
            // From its deadline on, before any of its timers or its connection could tell.
            ensemble.skip_clock(HOLDER, part_of(random, plan.timeout, 0.75, 2.0));
            round.look_at_the_old_holder("the first look after the sleep");
        }
    }
}

async fn connected(ensemble: &SimulatedEnsemble, id: ClientId, plan: Plan) -> CuratorFramework {
    let options = ensemble.client(id).session_timeout(plan.timeout).connection_timeout(plan.timeout);
    let options = options.default_data("").retry_policy(RetryNTimes::new(1000, Duration::from_millis(100)));
    // A release outlasts the silence too.
    let client = options.reap_interval(None).max_close_wait(plan.timeout * 4).build().unwrap();
    client.start().unwrap();
    client.block_until_connected().await.unwrap();
    client
}

/// Reads prove nothing, from any server.
async fn read(client: CuratorFramework, pause: Duration) {
    loop {
        let _unanswered = timeout(pause, client.check_exists().for_path("/")).await;
        sleep(pause).await;
    }
}

#[test]
fn a_holder_cut_off_in_silence_knows_before_the_next_one_has_the_lock() {
    let from = u64::from(rand::random::<u32>());
    println!("from seed {from}");
    let (mut told, mut grants) = (std::collections::BTreeMap::<String, usize>::new(), 0);
    for seed in from..from + ROUNDS {
        let (plan, outcome) = play(seed);
        assert!(outcome.wrong.is_empty(), "seed {seed}, {plan:?}: {:#?}\n{:#?}", outcome.wrong, outcome.history);
        grants += outcome.history.grants();
        *told.entry(format!("{:?}", plan.silence)).or_default() += usize::from(outcome.losses > 0);
    }
    println!("{ROUNDS} rounds, {grants} grants; rounds in which a holder was told: {told:?}");
    assert!(told.len() == SILENCES.len() && told.values().all(|told| *told > 12), "{told:?}");
    assert!(grants as u64 >= 2 * ROUNDS, "{grants} grants");
}

#[test]
fn a_round_played_twice_is_the_same() {
    let from = u64::from(rand::random::<u32>());
    for seed in from..from + 11 {
        assert_eq!(play(seed).1, play(seed).1, "seed {seed}");
    }
}

#[cfg(curator_mutants)]
#[test]
fn a_wrong_deadline_is_found() {
    for mutant in ["ignore-the-deadline", "reads-move-the-deadline"] {
        let found = |seed| !play(seed).1.wrong.is_empty();
        assert!(curator_framework::mutants::with(mutant, || (0..ROUNDS).any(found)), "{mutant} was not found");
    }
}
