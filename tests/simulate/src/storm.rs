//! One storm: clients that contend for a lock or for the lead, keep nodes standing, or have caches, while everything that
//! can go wrong does, all from one seed.

mod caches;
mod election;
mod players;
mod presence;
mod together;
mod weather;

use std::fmt;
use std::time::Duration;

use curator_test::SimulatedEnsemble;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio::task::JoinSet;

pub(crate) use self::weather::long_children;
use self::weather::{CLIENTS, Field, PATH, RECOVERY, SESSION, WORKERS, Weather};
use crate::candidates::Election;
use crate::contenders::{Lock, Outcome, Pace, Recipe, Scribe, work};
use crate::registrants::Presence;
use crate::together::Together;

/// How long a place may stay free outside of faults.
const PATIENCE: Duration = Duration::from_secs(3);
const PACE: Pace = Pace { speed: 1, rounds: 4, long: 8, uneven: false, looks: true };

/// The subject of a storm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Storm {
    /// A lock.
    Lock(Recipe),
    /// An election.
    Election(Election),
    /// Nodes that stand.
    Presence(Presence),
    /// Caches.
    Caches,
    /// Counters, barriers or latches.
    Together(Together),
    /// A storm in which servers refuse credentials and reads, have large replies, and return to backups.
    Hard(Hard),
}

/// The subject of a hard storm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hard {
    /// A lock.
    Lock(Recipe),
    /// A group.
    Group,
    /// Caches.
    Caches,
}

impl Hard {
    /// Returns the subject of a seed.
    pub const fn of(seed: u64) -> Self {
        match seed % 8 {
            0..4 => Self::Caches,
            4 => Self::Group,
            _ => Self::Lock(Recipe::ALL[(seed / 8 % 10) as usize]),
        }
    }
}

impl Storm {
    /// Returns the storms of one seed: three of locks, one of an election or of nodes that stand, one of caches, one of
    /// counters, barriers or latches, and the hard one.
    /// A parity of bits chooses between the second two, so that both have all kinds of weather.
    pub fn of(seed: u64) -> Vec<Self> {
        let other = if seed.count_ones() % 2 == 1 { Self::election(seed) } else { Self::presence(seed) };
        Self::locks(seed).into_iter().chain([other, Self::Caches, Self::together(seed), Self::hard(seed)]).collect()
    }

    /// Returns the storms of the locks of a seed.
    pub fn locks(seed: u64) -> Vec<Self> {
        Recipe::of(seed).map(Self::Lock).into()
    }

    /// Returns the storm of an election that a seed has or would have.
    pub const fn election(seed: u64) -> Self {
        Self::Election(Election::of(seed))
    }

    /// Returns the storm of nodes that a seed has or would have.
    pub const fn presence(seed: u64) -> Self {
        Self::Presence(Presence::of(seed))
    }

    /// Returns the storm of counters, barriers or latches that a seed has.
    pub const fn together(seed: u64) -> Self {
        Self::Together(Together::of(seed))
    }

    /// Returns the hard storm of a seed.
    pub const fn hard(seed: u64) -> Self {
        Self::Hard(Hard::of(seed))
    }

    /// Runs the storm.
    pub fn run(self, seed: u64) -> Outcome {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        let runtime = runtime.expect("a runtime without I/O needs nothing that can fail");
        let (usual, hard) = (Weather::of(seed), Weather::hard(seed));
        match self {
            Self::Lock(recipe) => runtime.block_on(storm(seed, recipe, usual)),
            Self::Hard(Hard::Lock(recipe)) => runtime.block_on(storm(seed, recipe, hard)),
            Self::Election(election) => runtime.block_on(election::storm(seed, election)),
            Self::Presence(presence) => runtime.block_on(presence::storm(seed, presence, usual)),
            Self::Hard(Hard::Group) => runtime.block_on(presence::storm(seed, Presence::Group, hard)),
            Self::Caches => runtime.block_on(caches::storm(seed, usual)),
            Self::Hard(Hard::Caches) => runtime.block_on(caches::storm(seed, hard)),
            Self::Together(together) => runtime.block_on(together::storm(seed, together)),
        }
    }
}

impl fmt::Display for Storm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lock(recipe) => recipe.fmt(f),
            Self::Election(election) => election.fmt(f),
            Self::Presence(presence) => presence.fmt(f),
            Self::Caches => f.write_str("caches"),
            Self::Together(together) => together.fmt(f),
            Self::Hard(Hard::Lock(recipe)) => write!(f, "hard storm of a {recipe}"),
            Self::Hard(Hard::Group) => f.write_str("hard storm of a group"),
            Self::Hard(Hard::Caches) => f.write_str("hard storm of caches"),
        }
    }
}

async fn storm(seed: u64, recipe: Recipe, weather: Weather) -> Outcome {
    let mut random = StdRng::seed_from_u64(seed);
    let latency = Duration::from_millis(random.random_range(0..60));
    // The servers do not notify of the children of a node that clients may not read. A holder that watches its siblings then
    // does not learn that its node is deleted.
    let weather = Weather { hardship: weather.hardship.without_denials(), ..weather };
    let ensemble = SimulatedEnsemble::with_tick(seed, latency, weather.tick);
    let scribe = Scribe::new(RECOVERY, None);
    scribe.note(format_args!("seed {seed}, {recipe}, latency {latency:?}, {weather:?}"));
    let field = Locks { scribe: scribe.clone(), ensemble, recipe };

    let mut clients = Vec::new();
    let mut readers = JoinSet::new();
    let mut workers = JoinSet::new();
    for id in 0..CLIENTS {
        let (client, path) = weather::start_client(&field.ensemble, id, weather, &mut random);
        for worker in 0..weather.workers {
            let random = StdRng::seed_from_u64(seed ^ (u64::from(id * WORKERS + worker) + 1) << 32);
            let lock = Lock::new(client.clone(), recipe, path).expect("a valid path");
            let pace = Pace { uneven: weather.uneven, ..PACE };
            workers.spawn(work(scribe.clone(), lock, random, pace, id + worker == 0));
        }
        if let Some(longest) = weather.reads {
            let random = StdRng::seed_from_u64(seed ^ (u64::from(id) + 100) << 32);
            readers.spawn(weather::read(client.clone(), longest, random));
        }
        clients.push(client);
    }
    if !weather.calm {
        clients.extend(players::play(seed, &field, &mut workers));
    }
    let wrong = |what| scribe.wrong(what);
    let nemeses = weather::nemeses(&field, weather, seed, &mut random);
    if !weather::workers_end(&mut workers, nemeses, wrong).await {
        wrong("a worker that waits for ever".to_owned());
    }
    drop(workers);
    drop(readers);
    weather::relieve(&field);
    weather::clean_up(&field, clients, wrong).await;
    let mut rules = recipe.rules(PATIENCE, SESSION).no_loss_in_calm();
    if recipe != Recipe::Multi {
        // There and back of a listing. The parts of a multi lock that are held look at their nodes later.
        rules = rules.on_its_way(latency * 2);
    }
    // Tokens are transactions.
    rules.growing_tokens &= !weather.loses_data;
    scribe.outcome(&rules)
}

/// The nodes of a lock, and the notes on them.
#[derive(Debug, Clone)]
struct Locks {
    scribe: Scribe,
    ensemble: SimulatedEnsemble,
    recipe: Recipe,
}

impl Field for Locks {
    fn ensemble(&self) -> &SimulatedEnsemble {
        &self.ensemble
    }

    fn parts(&self) -> Vec<String> {
        self.recipe.parts(PATH)
    }

    fn note(&self, what: impl fmt::Display) {
        self.scribe.note(what);
    }

    fn fault(&self, what: impl fmt::Display, lasting: Duration) {
        self.scribe.fault(what, lasting);
    }

    fn end(&self, what: impl fmt::Display) {
        self.scribe.end(what);
    }

    fn hard_nodes(&self) -> Vec<String> {
        // All children of the leases are leases. Beside them a node may have the mark of the protocol as its data.
        let is_hard = |part: &String| {
            !part.ends_with("/leases") && !part.ends_with("/locks") && self.ensemble.owner(part).is_some()
        };
        self.parts().into_iter().filter(is_hard).collect()
    }

    fn hide(&self, what: impl fmt::Display, lasting: Duration) {
        self.fault(what, lasting);
    }

    fn exist_again<'a>(&self, nodes: impl Iterator<Item = &'a String>) {
        self.scribe.exist_again(nodes);
    }

    fn waiting(&self, nodes: &[String]) -> Vec<String> {
        // Near the end of the sequence numbers these do not tell the order.
        let waits = |node: &&String| {
            let (parent, _) = node.rsplit_once('/').unwrap_or_default();
            let is_far = weather::number(node).is_some_and(|number| (0..i64::from(i32::MAX / 2)).contains(&number));
            is_far && weather::queue(&self.ensemble, parent).first() != Some(node)
        };
        let is_queue = matches!(self.recipe, Recipe::Mutex | Recipe::Multi);
        nodes.iter().filter(|_| is_queue).filter(waits).cloned().collect()
    }

    fn rule_out(&self, nodes: Vec<String>) {
        self.scribe.rule_out(nodes);
    }

    fn revoke(&self, nodes: Vec<String>) {
        self.scribe.revoke(nodes);
    }
}
