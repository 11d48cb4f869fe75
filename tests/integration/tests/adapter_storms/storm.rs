//! One storm in real time.

use std::time::Duration;

use curator_framework::recipe::RecipeClient as _;
use curator_framework::{CuratorFramework, Error, ExponentialBackoffRetry, RetryNTimes};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::ground::{Ground, Kind, until};
use crate::nemesis::Nemesis;
use curator_simulate::contenders::{Lock, Pace, Recipe, Scribe, work};
use curator_simulate::scribe::Outcome;

const CLIENTS: usize = 3;
const WORKERS: u64 = 2;
/// The client with the longest session.
pub(crate) const PATIENT: usize = 0;
const LONGEST: Duration = Duration::from_secs(8);
const PACE: Pace = Pace { speed: 2, rounds: 3, long: 3, uneven: false, looks: false };
/// How long a client may take to be back after a fault.
const RECOVERY: Duration = Duration::from_secs(8);
/// How long a place may stay free outside of faults, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(8);
/// How late a contender may note what happened: more than the longest session.
const LATE: Duration = Duration::from_secs(10);
/// Longer than all need when nothing happens any more.
const THE_END: Duration = Duration::from_secs(40);

/// Runs one storm.
pub(crate) fn run(seed: u64, recipe: Recipe, kind: &Kind) -> Outcome {
    let mut builder = if seed % 2 == 0 {
        tokio::runtime::Builder::new_current_thread()
    } else {
        tokio::runtime::Builder::new_multi_thread()
    };
    let runtime = builder.worker_threads(2).enable_all().build().expect("there is room for a runtime");
    runtime.block_on(storm(seed, recipe, kind))
}

async fn storm(seed: u64, recipe: Recipe, kind: &Kind) -> Outcome {
    let mut random = StdRng::seed_from_u64(seed);
    let ground = Ground::new(kind, recipe, CLIENTS).await;
    let scribe = Scribe::new(RECOVERY, Some(LATE));
    scribe.note(format_args!("seed {seed}, {recipe}"));
    if random.random_range(0..4) == 0 && ground.near_the_last_number() {
        scribe.note("sequence numbers are about to end");
    }
    let mut clients = Vec::new();
    let mut readers = JoinSet::new();
    let mut workers = JoinSet::new();
    for id in 0..CLIENTS {
        let session = if id == PATIENT { LONGEST } else { Duration::from_secs(random.random_range(2..5)) };
        let options = ground.client(id).session_timeout(session).connection_timeout(Duration::from_secs(5));
        let client = if random.random() {
            options.retry_policy(RetryNTimes::new(100, Duration::from_millis(100))).build()
        } else {
            let policy = ExponentialBackoffRetry::with_max_pause(Duration::from_millis(20), 20, Duration::from_secs(1));
            options.retry_policy(policy.expect("valid")).build()
        };
        let client = client.expect("valid options");
        client.start().expect("there is a runtime");
        for worker in 0..WORKERS {
            let random = StdRng::seed_from_u64(seed ^ (id as u64 * WORKERS + worker + 1) << 32);
            let pace = Pace { uneven: seed % 5 == 0, ..PACE };
            let lock = Lock::new(client.clone(), recipe, &ground.path()).expect("a valid path");
            workers.spawn(work(scribe.clone(), lock, random, pace, id as u64 + worker == 0));
        }
        readers.spawn(read(client.clone(), ground.echo(id), scribe.clone()));
        clients.push(client);
    }

    if !contend(workers, &scribe, &ground, seed).await {
        scribe.wrong("a worker that waits for ever");
    }
    readers.shutdown().await;
    check_what_is_left(&scribe, &ground, &clients).await;
    for client in &clients {
        if timeout(THE_END, client.close()).await.is_err() {
            scribe.wrong("a client that does not close");
        }
    }
    drop(clients);
    ground.clear().await;
    if let Some(server) = ground.own_server() {
        if until(RECOVERY, async || server.sessions().is_empty()).await.is_err() {
            scribe.wrong(format!("sessions {:?}", server.sessions()));
        }
    }
    // The crate `zookeeper-async` leaves timers for two thirds of a session, and needs a server to end.
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    if until(RECOVERY, async || tasks() == 0).await.is_err() {
        scribe.wrong(format!("{} tasks", tasks()));
    }
    drop(ground);
    scribe.outcome(&recipe.rules(PATIENCE, LATE))
}

/// Lets all do their work and the nemesis its own, then repairs everything; whether all came to their end.
async fn contend(mut workers: JoinSet<()>, scribe: &Scribe, ground: &Ground, seed: u64) -> bool {
    let all = scribe.all_end(&mut workers);
    tokio::pin!(all);
    let nemesis = Nemesis::new(scribe, ground, seed);
    let over = tokio::select! {
        biased;
        () = &mut all => true,
        () = nemesis.rage() => false,
    };
    ground.mend();
    if over {
        return true;
    }
    scribe.fault("everything is mended", Duration::ZERO);
    timeout(THE_END, all).await.is_ok()
}

/// Everything must be cleaned while the sessions live: it does not need their end.
async fn check_what_is_left(scribe: &Scribe, ground: &Ground, clients: &[CuratorFramework]) {
    let mut nodes = Ok(Vec::new());
    let cleaned = until(LATE, async || {
        nodes = ground.nodes().await;
        matches!(&nodes, Ok(nodes) if nodes.is_empty())
    });
    if cleaned.await.is_err() {
        scribe.wrong(match nodes {
            Ok(nodes) => format!("{nodes:?}"),
            Err(error) => format!("nodes that cannot be listed: {error}"),
        });
    }
    for client in clients {
        if until(LATE, async || client.watchers() == 0).await.is_err() {
            scribe.wrong(format!("watches of {:?}", client.watched_paths()));
        }
    }
}

/// Reads what is known: each answer is to be the one to its own request.
async fn read(client: CuratorFramework, echo: String, scribe: Scribe) {
    let none = format!("{echo}-none");
    loop {
        let both = async { tokio::join!(client.get_data().for_path(&echo), client.check_exists().for_path(&none)) };
        if let Ok((data, stat)) = timeout(Duration::from_secs(1), both).await {
            check_answer(&scribe, data.map(|(data, _)| data == echo.as_bytes()), &echo);
            check_answer(&scribe, stat.map(|stat| stat.is_none()), &none);
        }
        sleep(Duration::from_millis(70)).await;
    }
}

fn check_answer(scribe: &Scribe, is_right: Result<bool, Error>, path: &str) {
    match is_right {
        Ok(true) => {}
        Ok(false) => scribe.wrong(format!("a wrong answer about {path}")),
        Err(error) if error.is_retryable() => {}
        Err(error) => scribe.wrong(format!("an answer about {path}: {error}")),
    }
}
