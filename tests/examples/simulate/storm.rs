//! One storm: clients that contend for a lock while everything that can go wrong does, all from one seed.

#[path = "players.rs"]
mod players;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use curator_framework::mutants::{self, Mutant};
use curator_framework::{CuratorFramework, ExponentialBackoffRetry, LossReason, RetryNTimes};
use curator_recipes::{InterProcessMutex, InterProcessSemaphoreV2, Lease, LockError, MutexGuard, Release};
use curator_test::history::{Attempt, History, Mode, Rules, Step, Violation};
use curator_test::{ClientId, SimulatedEnsemble};
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio::time::{sleep, timeout};

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
const ROUNDS: u32 = 4;

/// Which lock is stormed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Recipe {
    /// `InterProcessMutex`.
    Mutex,
    /// `InterProcessSemaphoreV2` with this many leases.
    Semaphore(usize),
}

impl Recipe {
    /// All that there are.
    pub(crate) const ALL: [Self; 3] = [Self::Mutex, Self::Semaphore(1), Self::Semaphore(2)];

    fn rules(self) -> Rules {
        match self {
            Self::Mutex => Rules::mutex(PATIENCE).prompt(SESSION),
            Self::Semaphore(leases) => Rules::semaphore(leases, PATIENCE).prompt(SESSION),
        }
    }

    /// Where the nodes are that hold the lock, and all parts.
    fn parts(self) -> Vec<String> {
        match self {
            Self::Mutex => vec![PATH.to_owned()],
            Self::Semaphore(_) => vec![format!("{PATH}/leases"), format!("{PATH}/locks")],
        }
    }
}

impl fmt::Display for Recipe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mutex => f.write_str("mutex"),
            Self::Semaphore(leases) => write!(f, "semaphore of {leases}"),
        }
    }
}

/// What came of a storm.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Outcome {
    /// What happened, in order: the same for the same seed.
    pub(crate) log: Vec<String>,
    /// What must not have happened.
    pub(crate) violations: Vec<Violation>,
    /// How often the lock was granted.
    pub(crate) grants: usize,
}

/// Runs one storm.
pub(crate) fn run(seed: u64, recipe: Recipe, mutant: Option<Mutant>) -> Outcome {
    mutants::set(mutant);
    let _nothing_kept = mutants::keep_node(None);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let outcome = runtime.expect("a runtime without I/O needs nothing that can fail").block_on(storm(seed, recipe));
    mutants::set(None);
    outcome
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
            tick: if seed % 13 == 0 { SESSION / 6 } else { SESSION / 2 },
        }
    }
}

/// What all workers write down.
#[derive(Debug, Default)]
struct Book {
    history: History,
    log: Vec<String>,
    next: u64,
    /// Who holds with which node.
    holding: Vec<(Attempt, String)>,
    /// Nodes that the servers have taken away.
    revoked: Vec<String>,
}

#[derive(Debug, Clone)]
struct Scribe {
    ensemble: SimulatedEnsemble,
    book: Arc<Mutex<Book>>,
}

impl Scribe {
    fn note(&self, what: impl fmt::Display) {
        let line = format!("{:>12?} {what}", self.ensemble.now());
        self.book.lock().log.push(line);
    }

    fn step(&self, attempt: Attempt, step: Step) {
        self.note(format_args!("{attempt:?} {step:?}"));
        self.book.lock().history.record(self.ensemble.now(), attempt, step);
    }

    fn ask(&self) -> Attempt {
        let attempt = {
            let mut book = self.book.lock();
            book.next += 1;
            Attempt(book.next)
        };
        self.step(attempt, Step::Asked(Mode::Exclusive));
        attempt
    }

    fn granted(&self, attempt: Attempt, guard: &Guard) {
        // The grant may have been on its way when its node was taken away.
        if self.book.lock().revoked.iter().any(|path| path == guard.path()) {
            self.step(attempt, Step::Revoked);
        } else {
            self.book.lock().holding.push((attempt, guard.path().to_owned()));
        }
        self.step(attempt, Step::Granted(guard.fencing_token()));
    }

    fn leaves(&self, attempt: Attempt, step: Step) {
        self.book.lock().holding.retain(|(holder, _)| *holder != attempt);
        self.step(attempt, step);
    }

    fn fault(&self, what: impl fmt::Display, lasting: Duration) {
        self.note(what);
        let now = self.ensemble.now();
        self.book.lock().history.fault(now, now + lasting + RECOVERY);
    }

    /// The nodes there are, each with its owner.
    fn nodes(&self, recipe: Recipe) -> Vec<(String, i64)> {
        let below = |part: &String| {
            let paths =
                self.ensemble.children(part).into_iter().map(|node| format!("{part}/{node}")).collect::<Vec<_>>();
            paths.into_iter().filter_map(|path| Some((path.clone(), self.ensemble.owner(&path)?)))
        };
        recipe.parts().iter().flat_map(below).collect()
    }

    /// Notes that the servers take nodes away.
    fn revoke(&self, paths: impl IntoIterator<Item = String>) {
        for path in paths {
            let holder = self.book.lock().holding.iter().find(|(_, held)| *held == path).map(|(holder, _)| *holder);
            if let Some(holder) = holder {
                self.leaves(holder, Step::Revoked);
            }
            self.book.lock().revoked.push(path);
        }
    }
}

enum Lock {
    Mutex(InterProcessMutex),
    Semaphore(InterProcessSemaphoreV2),
}

enum Guard {
    Mutex(MutexGuard),
    Lease(Lease),
}

impl Lock {
    fn new(client: CuratorFramework, recipe: Recipe) -> Result<Self, LockError> {
        Ok(match recipe {
            Recipe::Mutex => Self::Mutex(InterProcessMutex::new(client, PATH)?),
            Recipe::Semaphore(leases) => Self::Semaphore(InterProcessSemaphoreV2::new(client, PATH, leases)?),
        })
    }

    async fn acquire(&self) -> Result<Option<Guard>, LockError> {
        Ok(Some(match self {
            Self::Mutex(mutex) => Guard::Mutex(mutex.acquire().await?),
            Self::Semaphore(semaphore) => Guard::Lease(semaphore.acquire().await?),
        }))
    }

    async fn acquire_timeout(&self, budget: Duration) -> Result<Option<Guard>, LockError> {
        Ok(match self {
            Self::Mutex(mutex) => mutex.acquire_timeout(budget).await?.map(Guard::Mutex),
            Self::Semaphore(semaphore) => semaphore.acquire_timeout(budget).await?.map(Guard::Lease),
        })
    }

    async fn try_acquire(&self) -> Result<Option<Guard>, LockError> {
        Ok(match self {
            Self::Mutex(mutex) => mutex.try_acquire().await?.map(Guard::Mutex),
            Self::Semaphore(semaphore) => semaphore.try_acquire().await?.map(Guard::Lease),
        })
    }
}

impl Guard {
    fn path(&self) -> &str {
        match self {
            Self::Mutex(guard) => guard.path(),
            Self::Lease(lease) => lease.path(),
        }
    }

    fn fencing_token(&self) -> i64 {
        match self {
            Self::Mutex(guard) => guard.fencing_token(),
            Self::Lease(lease) => lease.fencing_token(),
        }
    }

    fn is_held(&self) -> bool {
        match self {
            Self::Mutex(guard) => guard.is_held(),
            Self::Lease(lease) => lease.is_held(),
        }
    }

    async fn lost(&self) -> LossReason {
        match self {
            Self::Mutex(guard) => guard.lost().await,
            Self::Lease(lease) => lease.lost().await,
        }
    }

    async fn release(&self) -> Result<Release, LockError> {
        match self {
            Self::Mutex(guard) => guard.release().await,
            Self::Lease(lease) => lease.release().await,
        }
    }
}

async fn storm(seed: u64, recipe: Recipe) -> Outcome {
    let mut random = StdRng::seed_from_u64(seed);
    let latency = Duration::from_millis(random.random_range(0..60));
    let weather = Weather::of(seed);
    let ensemble = SimulatedEnsemble::with_tick(seed, latency, weather.tick);
    let scribe = Scribe { ensemble: ensemble.clone(), book: Arc::default() };
    scribe.note(format_args!("seed {seed}, {recipe}, latency {latency:?}, {weather:?}"));

    let mut clients = Vec::new();
    let mut readers = tokio::task::JoinSet::new();
    let mut workers = tokio::task::JoinSet::new();
    for id in 0..CLIENTS {
        let options = ensemble.client(ClientId(id)).session_timeout(SESSION).connection_timeout(Duration::from_secs(5));
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
            let lock = Lock::new(client.clone(), recipe).expect("a valid path");
            workers.spawn(work(scribe.clone(), lock, random));
        }
        if let Some(longest) = weather.reads {
            readers.spawn(read(client.clone(), longest, StdRng::seed_from_u64(seed ^ (u64::from(id) + 100) << 32)));
        }
        clients.push(client);
    }
    if !weather.calm {
        clients.extend(players::play(seed, recipe, &scribe, &mut workers));
    }
    let ended = {
        let mut other = StdRng::seed_from_u64(seed ^ 202 << 32);
        let nemesis = async {
            let one = nemesis(&scribe, recipe, weather, &mut random);
            let two = async {
                if weather.doubled {
                    nemesis(&scribe, recipe, weather, &mut other).await;
                }
            };
            tokio::join!(one, two)
        };
        let all = async {
            while let Some(ended) = workers.join_next().await {
                if let Err(panicked) = ended {
                    scribe.book.lock().history.left_behind(format!("a worker that failed: {panicked}"));
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
        scribe.book.lock().history.left_behind("a worker that waits for ever");
    }
    drop(workers);
    drop(readers);
    for id in 0..CLIENTS {
        ensemble.repair(ClientId(id));
    }
    // Everything must be cleaned while the sessions live: nobody needs their end for that.
    sleep(RECOVERY).await;
    for part in recipe.parts() {
        for node in ensemble.children(&part) {
            scribe.book.lock().history.left_behind(format!("{part}/{node}"));
        }
    }
    for client in &clients {
        if client.watchers() > 0 {
            scribe.book.lock().history.left_behind(format!("watches of {:?}", client.watched_paths()));
        }
        client.close().await;
    }
    drop(clients);
    sleep(RECOVERY).await;
    let mut book = scribe.book.lock();
    if !ensemble.sessions().is_empty() {
        book.history.left_behind(format!("sessions {:?}", ensemble.sessions()));
    }
    // The one that is left carries the ensemble's messages.
    let tasks = tokio::runtime::Handle::current().metrics().num_alive_tasks();
    if tasks > 1 {
        book.history.left_behind(format!("{} tasks", tasks - 1));
    }
    let mut rules = recipe.rules().no_loss_in_calm();
    // Tokens are transactions.
    rules.growing_tokens &= !weather.loses_data;
    let violations = book.history.check(&rules);
    Outcome { log: std::mem::take(&mut book.log), violations, grants: book.history.grants() }
}

/// Reads go on while a server is cut off, and prove nothing.
async fn read(client: CuratorFramework, longest: u64, mut random: StdRng) {
    loop {
        let _unanswered = timeout(Duration::from_secs(1), client.check_exists().for_path("/")).await;
        sleep(Duration::from_millis(random.random_range(longest / 10..=longest))).await;
    }
}

async fn work(scribe: Scribe, lock: Lock, mut random: StdRng) {
    for _ in 0..ROUNDS {
        sleep(Duration::from_millis(random.random_range(0..3000))).await;
        let attempt = scribe.ask();
        let short = Duration::from_millis(random.random_range(0..4000));
        let outcome = match random.random_range(0..10) {
            0..=4 => lock.acquire().await,
            5 | 6 => lock.acquire_timeout(short * 3).await,
            7 => lock.try_acquire().await,
            // The future is dropped.
            _ => timeout(short, lock.acquire()).await.unwrap_or(Ok(None)),
        };
        let guard = match outcome {
            Ok(Some(guard)) => guard,
            Ok(None) => {
                scribe.step(attempt, Step::GaveUp);
                continue;
            }
            Err(error) => {
                scribe.note(format_args!("{attempt:?}: {error}"));
                scribe.step(attempt, Step::GaveUp);
                continue;
            }
        };
        scribe.granted(attempt, &guard);
        let hold = Duration::from_millis(if random.random_range(0..8) == 0 {
            random.random_range(4000..16000)
        } else {
            random.random_range(0..1500)
        });
        let until = tokio::time::Instant::now() + hold;
        // It looks at the lock before each piece of work, as one should.
        let mut lost = !guard.is_held();
        while !lost && tokio::time::Instant::now() < until {
            lost = tokio::select! {
                biased;
                _ = guard.lost() => true,
                () = sleep(Duration::from_millis(100)) => !guard.is_held(),
            };
        }
        if lost {
            scribe.leaves(attempt, Step::Lost);
        }
        scribe.leaves(attempt, Step::Releasing);
        match random.random_range(0..6) {
            0 => drop(guard),
            1 => {
                // A release that is dropped half-way.
                let _dropped = timeout(Duration::from_millis(random.random_range(0..100)), guard.release()).await;
                drop(guard);
            }
            _ => {
                if let Err(error) = guard.release().await {
                    scribe.note(format_args!("{attempt:?}: {error}"));
                }
            }
        }
        scribe.step(attempt, Step::Released);
    }
}

/// Does its worst for a while, then mends everything.
async fn nemesis(scribe: &Scribe, recipe: Recipe, weather: Weather, random: &mut StdRng) {
    let ensemble = &scribe.ensemble;
    if weather.calm {
        return;
    }
    if weather.numbers_end {
        sleep(Duration::from_millis(random.random_range(0..5000))).await;
        let next = i32::MAX - random.random_range(0..5);
        for part in recipe.parts() {
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
                    scribe.fault(format_args!("session {session} is killed"), Duration::ZERO);
                    let nodes = scribe.nodes(recipe);
                    scribe.revoke(nodes.into_iter().filter(|(_, owner)| owner == session).map(|(path, _)| path));
                    ensemble.kill_session(*session);
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
                scribe.revoke(scribe.nodes(recipe).into_iter().map(|(path, _)| path));
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
                    let nodes = scribe.nodes(recipe);
                    if let Some((node, _)) = nodes.get(random.random_range(0..nodes.len().max(1))) {
                        scribe.fault(format_args!("somebody deletes {node}"), Duration::ZERO);
                        scribe.revoke([node.clone()]);
                        ensemble.delete(node);
                    }
                }
            },
        }
    }
}
