//! One storm: clients that contend for a lock while everything that can go wrong does, all from one seed.

mod players;

use std::time::Duration;

use curator_framework::{CuratorFramework, CuratorFrameworkBuilder, ExponentialBackoffRetry, RetryNTimes};
use curator_test::{ClientId, SimulatedEnsemble};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio::time::{sleep, timeout};

use crate::contenders::{Lock, Outcome, Pace, Recipe, Scribe, work};

const PATH: &str = "/storm/lock";
const SESSION: Duration = Duration::from_secs(6);
/// How long a client may take to be back after a fault.
const RECOVERY: Duration = Duration::from_secs(14);
/// How long a place may stay free outside of faults.
const PATIENCE: Duration = Duration::from_secs(3);
/// Longer than all workers need.
const THE_END: Duration = Duration::from_secs(1200);
const CLIENTS: u32 = 3;
const WORKERS: u32 = 2;
const PACE: Pace = Pace { speed: 1, rounds: 4, long: 8, uneven: false, looks: true };
/// Half of the clients know the lock by another path.
const NAMESPACE: (&str, &str) = ("storm", "/lock");

/// Runs one storm.
pub fn run(seed: u64, recipe: Recipe) -> Outcome {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.expect("a runtime without I/O needs nothing that can fail").block_on(storm(seed, recipe))
}

/// What kind of storm it is. Seeds in a row have all kinds.
#[derive(Debug, Clone, Copy)]
struct Weather {
    /// How many may work at each client.
    workers: u32,
    /// Without any fault.
    calm: bool,
    /// Faults come from two sides at once.
    doubled: bool,
    /// Longest time between two reads of a client, in milliseconds; none if it does not read beside its work.
    reads: Option<u64>,
    /// The sequence numbers come to their end.
    numbers_end: bool,
    /// The servers may lose all data, and their transactions begin anew.
    loses_data: bool,
    /// One holds for very long, and the others for a moment.
    uneven: bool,
    /// After what time clients delete empty parents.
    reaps: Option<Duration>,
    /// Some clients have a namespace.
    namespace: bool,
    /// The smallest session timeout is two ticks.
    tick: Duration,
}

impl Weather {
    fn of(seed: u64) -> Self {
        Self {
            workers: if seed % 4 == 1 { 1 } else { WORKERS },
            calm: seed % 10 == 0,
            doubled: seed % 5 == 2,
            reads: [Some(1400), Some(200), None][(seed % 3) as usize],
            numbers_end: seed % 7 == 3,
            loses_data: seed % 11 == 5,
            uneven: seed % 6 == 4,
            reaps: (seed % 17 < 5).then_some(Duration::from_secs(2 + seed % 3)),
            namespace: seed % 19 < 4,
            tick: if seed % 13 == 0 { SESSION / 6 } else { SESSION / 2 },
        }
    }
}

async fn storm(seed: u64, recipe: Recipe) -> Outcome {
    let mut random = StdRng::seed_from_u64(seed);
    let latency = Duration::from_millis(random.random_range(0..60));
    let weather = Weather::of(seed);
    let ensemble = SimulatedEnsemble::with_tick(seed, latency, weather.tick);
    let scribe = Scribe::new(RECOVERY, None);
    scribe.note(format_args!("seed {seed}, {recipe}, latency {latency:?}, {weather:?}"));

    let mut clients = Vec::new();
    let mut readers = tokio::task::JoinSet::new();
    let mut workers = tokio::task::JoinSet::new();
    for id in 0..CLIENTS {
        let mut options = client_options(&ensemble, ClientId(id)).reap_interval(weather.reaps);
        let mut path = PATH;
        if weather.namespace && id % 2 == 1 {
            options = options.namespace(NAMESPACE.0);
            path = NAMESPACE.1;
        }
        let client = if random.random() {
            options.retry_policy(RetryNTimes::new(100, Duration::from_millis(200))).build()
        } else {
            let policy = ExponentialBackoffRetry::with_max_pause(Duration::from_millis(50), 20, Duration::from_secs(2));
            options.retry_policy(policy.expect("valid")).build()
        };
        let client = client.expect("valid options");
        client.start().expect("there is a runtime");
        for worker in 0..weather.workers {
            let random = StdRng::seed_from_u64(seed ^ (u64::from(id * WORKERS + worker) + 1) << 32);
            let lock = Lock::new(client.clone(), recipe, path).expect("a valid path");
            let pace = Pace { uneven: weather.uneven, ..PACE };
            workers.spawn(work(scribe.clone(), lock, random, pace, id + worker == 0));
        }
        if let Some(longest) = weather.reads {
            readers.spawn(read(client.clone(), longest, StdRng::seed_from_u64(seed ^ (u64::from(id) + 100) << 32)));
        }
        clients.push(client);
    }
    if !weather.calm {
        clients.extend(players::play(seed, recipe, &scribe, &ensemble, &mut workers));
    }
    let ended = {
        let mut other = StdRng::seed_from_u64(seed ^ 202 << 32);
        let nemesis = async {
            let one = nemesis(&scribe, &ensemble, recipe, weather, &mut random);
            let two = async {
                if weather.doubled {
                    nemesis(&scribe, &ensemble, recipe, weather, &mut other).await;
                }
            };
            tokio::join!(one, two)
        };
        let all = async {
            while let Some(ended) = workers.join_next().await {
                if let Err(panicked) = ended {
                    scribe.wrong(format!("a worker that failed: {panicked}"));
                }
            }
        };
        tokio::pin!(nemesis, all);
        // The nemesis ends by itself; what is left then is calm.
        let calm_end = async {
            tokio::select! {
                biased;
                () = &mut all => return true,
                _ = &mut nemesis => {}
            }
            timeout(THE_END, all).await.is_ok()
        };
        calm_end.await
    };
    if !ended {
        scribe.wrong("a worker that waits for ever");
    }
    drop(workers);
    drop(readers);
    for id in 0..CLIENTS {
        ensemble.repair(ClientId(id));
    }
    // Everything must be cleaned while the sessions live: nobody needs their end for that.
    sleep(RECOVERY).await;
    for part in recipe.parts(PATH) {
        for node in ensemble.children(&part) {
            scribe.wrong(format!("{part}/{node}"));
        }
    }
    for client in &clients {
        if client.watchers() > 0 {
            scribe.wrong(format!("watches of {:?}", client.watched_paths()));
        }
        client.close().await;
    }
    drop(clients);
    sleep(RECOVERY).await;
    if !ensemble.sessions().is_empty() {
        scribe.wrong(format!("sessions {:?}", ensemble.sessions()));
    }
    // The one that is left carries the ensemble's messages.
    let tasks = tokio::runtime::Handle::current().metrics().num_alive_tasks();
    if tasks > 1 {
        scribe.wrong(format!("{} tasks", tasks - 1));
    }
    let mut rules = recipe.rules(PATIENCE, SESSION).no_loss_in_calm();
    if recipe != Recipe::Multi {
        // There and back of a listing. The parts of a multi lock that are held look at their nodes later.
        rules = rules.on_its_way(latency * 2);
    }
    // Tokens are transactions.
    rules.growing_tokens &= !weather.loses_data;
    scribe.outcome(&rules)
}

fn client_options(ensemble: &SimulatedEnsemble, id: ClientId) -> CuratorFrameworkBuilder {
    let options = ensemble.client(id).session_timeout(SESSION).connection_timeout(Duration::from_secs(5));
    // The host's address would be another one elsewhere.
    options.default_data("").reap_interval(None)
}

/// Reads go on while a server is cut off, and prove nothing.
async fn read(client: CuratorFramework, longest: u64, mut random: StdRng) {
    loop {
        let _unanswered = timeout(Duration::from_secs(1), client.check_exists().for_path("/")).await;
        sleep(Duration::from_millis(random.random_range(longest / 10..=longest))).await;
    }
}

/// The nodes there are, each with its owner.
fn nodes(ensemble: &SimulatedEnsemble, recipe: Recipe) -> Vec<(String, i64)> {
    let below = |part: &String| {
        let paths = ensemble.children(part).into_iter().map(|node| format!("{part}/{node}")).collect::<Vec<_>>();
        paths.into_iter().filter_map(|path| Some((path.clone(), ensemble.owner(&path)?)))
    };
    recipe.parts(PATH).iter().flat_map(below).collect()
}

/// The nodes below a parent, in the order of their numbers.
fn queue(ensemble: &SimulatedEnsemble, parent: &str) -> Vec<String> {
    let mut nodes: Vec<_> = ensemble.children(parent).iter().map(|node| format!("{parent}/{node}")).collect();
    nodes.sort_by_key(|node| number(node));
    nodes
}

fn number(node: &str) -> Option<i64> {
    node.rsplit_once('-')?.1.parse().ok()
}

/// Notes that the servers are about to take nodes away.
fn revoke(scribe: &Scribe, ensemble: &SimulatedEnsemble, recipe: Recipe, nodes: Vec<String>) {
    // Near the end of the sequence numbers these do not tell the order.
    let waits = |node: &&String| {
        let (parent, _) = node.rsplit_once('/').unwrap_or_default();
        let is_far = number(node).is_some_and(|number| (0..i64::from(i32::MAX / 2)).contains(&number));
        is_far && queue(ensemble, parent).first() != Some(node)
    };
    if matches!(recipe, Recipe::Mutex | Recipe::Multi) {
        scribe.rule_out(nodes.iter().filter(waits).cloned());
    }
    scribe.revoke(nodes);
}

/// Deletes a node as an administrator would.
fn delete(scribe: &Scribe, ensemble: &SimulatedEnsemble, recipe: Recipe, node: &str) {
    revoke(scribe, ensemble, recipe, vec![node.to_owned()]);
    ensemble.delete(node);
}

/// Ends a session on the servers.
fn kill(scribe: &Scribe, ensemble: &SimulatedEnsemble, recipe: Recipe, session: i64) {
    let its = nodes(ensemble, recipe).into_iter().filter(|(_, owner)| *owner == session);
    revoke(scribe, ensemble, recipe, its.map(|(path, _)| path).collect());
    ensemble.kill_session(session);
}

/// Does its worst for a while, then mends everything.
async fn nemesis(scribe: &Scribe, ensemble: &SimulatedEnsemble, recipe: Recipe, weather: Weather, random: &mut StdRng) {
    if weather.calm {
        return;
    }
    if weather.numbers_end {
        sleep(Duration::from_millis(random.random_range(0..5000))).await;
        let next = i32::MAX - random.random_range(0..5);
        for part in recipe.parts(PATH) {
            // There may be no such part yet.
            let set = ensemble.set_next_sequence(&part, next);
            scribe.note(format_args!("the next number in {part} is {next}: {set}"));
        }
    }
    for _ in 0..random.random_range(2..9) {
        sleep(Duration::from_millis(random.random_range(200..6000))).await;
        let client = ClientId(random.random_range(0..CLIENTS));
        let lasting = Duration::from_millis(random.random_range(100..12_000));
        match random.random_range(0..12) {
            0 | 1 => {
                scribe.fault(format_args!("{client:?} is reset"), Duration::ZERO);
                ensemble.reset(client);
            }
            2 | 3 => {
                scribe.fault(format_args!("{client:?} is partitioned for {lasting:?}"), lasting);
                ensemble.partition(client);
                sleep(lasting).await;
                ensemble.repair(client);
            }
            4 => {
                let sessions = ensemble.sessions();
                if let Some(session) = sessions.get(random.random_range(0..sessions.len().max(1))) {
                    scribe.end(format_args!("session {session} is killed"));
                    kill(scribe, ensemble, recipe, *session);
                }
            }
            5 => {
                scribe.fault(format_args!("the server of {client:?} is cut off for {lasting:?}"), lasting);
                ensemble.cut_off_server(client);
                sleep(lasting).await;
                ensemble.repair(client);
            }
            6 => {
                scribe.fault(format_args!("the server of {client:?} is behind for a while"), Duration::from_secs(6));
                ensemble.stale_reads(client);
                // It falls behind again and again, and loses its connection meanwhile.
                for _ in 0..random.random_range(1..12) {
                    sleep(Duration::from_millis(random.random_range(20..500))).await;
                    ensemble.reset(client);
                    ensemble.stale_reads(client);
                }
                ensemble.repair(client);
            }
            7 if weather.loses_data => {
                scribe.fault("all servers start again without their data", Duration::ZERO);
                revoke(scribe, ensemble, recipe, nodes(ensemble, recipe).into_iter().map(|(path, _)| path).collect());
                ensemble.restart_empty();
            }
            7 => {
                scribe.fault("all servers start again", Duration::ZERO);
                ensemble.restart();
            }
            8..=10 => {
                scribe.fault(format_args!("the answer to the next write of {client:?} is lost"), lasting);
                ensemble.drop_reply(client);
            }
            _ => match random.random_range(0..3) {
                0 => {
                    scribe.fault(format_args!("the clock of {client:?} skips {lasting:?}"), Duration::ZERO);
                    ensemble.skip_clock(client, lasting);
                }
                _ => {
                    // An administrator deletes a node.
                    let nodes = nodes(ensemble, recipe);
                    if let Some((node, _)) = nodes.get(random.random_range(0..nodes.len().max(1))) {
                        scribe.end(format_args!("somebody deletes {node}"));
                        delete(scribe, ensemble, recipe, node);
                    }
                }
            },
        }
    }
}
