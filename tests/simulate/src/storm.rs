//! One storm: clients that contend for a lock or for the lead, keep nodes standing, or have caches, while everything that
//! can go wrong does, all from one seed.

mod caches;
mod election;
mod field;
mod locks;
mod presence;
mod stage;
mod together;
mod weather;

use std::fmt;

use self::weather::Weather;
pub(crate) use self::weather::{PATH, RECOVERY, long_children};
use crate::candidates::Election;
use crate::contenders::Recipe;
use crate::registrants::Presence;
use crate::scribe::Outcome;
use crate::together::Together;

/// The subject of a storm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Storm {
    /// A lock.
    Lock(Recipe),
    /// A single holder of a lock.
    Holder,
    /// An election.
    Election(Election),
    /// Persistent nodes.
    Presence(Presence),
    /// Caches.
    Caches,
    /// Counters, barriers, latches or a queue.
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
    /// The storms of batches: of a semaphore, a mutex, and a read-write lock.
    pub const BATCHES: [Self; 3] =
        [Self::Lock(Recipe::SharedLeases), Self::Lock(Recipe::Batches), Self::Lock(Recipe::SharedReads)];

    /// Returns the storms of one seed: three of locks, one of a single holder, one of an election or of persistent
    /// nodes. Then one of caches, one of counters, barriers, latches or a queue, and the hard one. Even seeds have one
    /// of batches, odd seeds one of a service. A parity of bits chooses between an election and nodes, so that both
    /// have all kinds of weather.
    pub fn of(seed: u64) -> Vec<Self> {
        let other = if seed.count_ones() % 2 == 1 { Self::election(seed) } else { Self::presence(seed) };
        let others = [Self::Holder, other, Self::Caches, Self::together(seed), Self::hard(seed)];
        let last = match seed % 2 {
            0 => Self::BATCHES[[0, 1, 2, 1][(seed / 2 % 4) as usize]],
            _ => Self::Presence(Presence::Services),
        };
        Self::locks(seed).into_iter().chain(others).chain([last]).collect()
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

    /// Returns the storm of counters, barriers, latches or a queue that a seed has.
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
            Self::Lock(recipe) => runtime.block_on(locks::storm(seed, recipe, usual)),
            Self::Holder => runtime.block_on(locks::holder::storm(seed)),
            Self::Hard(Hard::Lock(recipe)) => runtime.block_on(locks::storm(seed, recipe, hard)),
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
            Self::Holder => f.write_str("single holder"),
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
