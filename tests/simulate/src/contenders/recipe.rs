//! The locks that are stormed.

use std::fmt;
use std::time::Duration;

use curator_checkers::locks::{Mode, Rules};
use curator_framework::{CuratorFramework, LossReason};
use curator_recipes::{
    FencingToken, InterProcessMultiLock, InterProcessMutex, InterProcessReadWriteLock, InterProcessSemaphoreMutex,
    InterProcessSemaphoreV2, LeaseSet, LockError, LockGuard, LockOptions, MultiLockGuard, MutexGuard, MutexOptions,
    ReadGuard, Release, SemaphoreOptions, SemaphoreProtocol, WriteGuard,
};
use rand::Rng;
use rand::rngs::StdRng;
use tokio::time::timeout;

/// How many leases a semaphore has of which several are taken at once.
const MANY: usize = 3;

/// Which lock is stormed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recipe {
    /// `InterProcessMutex`.
    Mutex,
    /// `InterProcessMutex`; of some clients the tasks share a node.
    Batches,
    /// `InterProcessSemaphoreV2` with two leases, which the tasks of some clients share.
    SharedLeases,
    /// `InterProcessReadWriteLock`; of some clients the tasks share nodes.
    SharedReads,
    /// `InterProcessReadWriteLock`.
    ReadWrite,
    /// `InterProcessMultiLock` of two or three mutexes.
    Multi,
    /// `InterProcessSemaphoreMutex`.
    SemaphoreMutex,
    /// `InterProcessSemaphoreV2` with this many leases.
    Semaphore(usize, SemaphoreProtocol),
    /// `InterProcessSemaphoreV2`: some contenders take several leases at once.
    Many(SemaphoreProtocol),
}

impl Recipe {
    /// All that there are but for the batches, which are stormed apart.
    pub const ALL: [Self; 10] = [
        Self::Mutex,
        Self::Semaphore(2, SemaphoreProtocol::Curator),
        Self::ReadWrite,
        Self::Semaphore(1, SemaphoreProtocol::Direct),
        Self::Multi,
        Self::Many(SemaphoreProtocol::Curator),
        Self::SemaphoreMutex,
        Self::Semaphore(2, SemaphoreProtocol::Direct),
        Self::Semaphore(1, SemaphoreProtocol::Curator),
        Self::Many(SemaphoreProtocol::Direct),
    ];

    /// Those that one seed storms: each recipe has its turn three times in ten seeds in a row, and meets all kinds of
    /// weather in a hundred times as many.
    pub fn of(seed: u64) -> [Self; 3] {
        let first = (seed % 10) * 3 + seed / 10 % 10;
        [0, 1, 2].map(|next| Self::ALL[((first + next) % 10) as usize])
    }

    /// What its history is held to.
    pub const fn rules(self, patience: Duration, prompt: Duration) -> Rules {
        match self {
            Self::Mutex | Self::Batches | Self::Multi => Rules::mutex(patience),
            Self::ReadWrite | Self::SharedReads => Rules::read_write(patience),
            Self::SemaphoreMutex => Rules::semaphore(1, patience),
            Self::SharedLeases => Rules::semaphore(2, patience),
            Self::Semaphore(leases, _) => Rules::semaphore(leases, patience),
            Self::Many(_) => Rules::semaphore(MANY, patience),
        }
        .prompt(prompt)
    }

    /// Where the nodes are that hold the lock, and all parts.
    pub fn parts(self, path: &str) -> Vec<String> {
        match self {
            Self::Mutex | Self::Batches | Self::ReadWrite | Self::SharedReads => vec![path.to_owned()],
            Self::Multi => ["c", "b", "a"].map(|part| format!("{path}/{part}")).to_vec(),
            _ => vec![format!("{path}/leases"), format!("{path}/locks")],
        }
    }
}

impl fmt::Display for Recipe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mutex => f.write_str("mutex"),
            Self::Batches => f.write_str("mutex of batches"),
            Self::SharedLeases => f.write_str("semaphore of batches"),
            Self::SharedReads => f.write_str("read-write lock of batches"),
            Self::ReadWrite => f.write_str("read-write lock"),
            Self::Multi => f.write_str("multi lock"),
            Self::SemaphoreMutex => f.write_str("semaphore mutex"),
            Self::Semaphore(leases, protocol) => write!(f, "semaphore of {leases} ({protocol})"),
            Self::Many(protocol) => write!(f, "several leases of {MANY} at once ({protocol})"),
        }
    }
}

/// The lock that a client has.
#[derive(Debug)]
pub enum Lock {
    Mutex(InterProcessMutex),
    ReadWrite(InterProcessReadWriteLock),
    /// Any two of these have the last path in common, which comes last.
    Multi(Vec<InterProcessMultiLock>),
    SemaphoreMutex(InterProcessSemaphoreMutex),
    Semaphore(InterProcessSemaphoreV2),
    Many(InterProcessSemaphoreV2),
}

/// The time for which a contender waits for a lock.
#[derive(Debug, Clone, Copy)]
pub enum Verb {
    Acquire,
    Within(Duration),
    Try,
    /// The future is dropped.
    Drop(Duration),
}

impl Recipe {
    /// Returns the recipe of a client: some have Curator's order beside batches.
    #[must_use]
    pub fn of_client(self, client: u32) -> Self {
        match self {
            Self::Batches if client % 3 == 0 => Self::Mutex,
            Self::SharedLeases if client % 3 == 0 => Self::Semaphore(2, SemaphoreProtocol::Curator),
            Self::SharedReads if client % 3 == 0 => Self::ReadWrite,
            recipe => recipe,
        }
    }
}

impl Lock {
    pub fn new(client: CuratorFramework, recipe: Recipe, path: &str) -> Result<Self, LockError> {
        let semaphore = |client, leases, protocol| {
            InterProcessSemaphoreV2::with_options(client, path, leases, SemaphoreOptions::new().protocol(protocol))
        };
        let multi = |names: &[&str]| {
            InterProcessMultiLock::new(client.clone(), names.iter().map(|name| format!("{path}/{name}")))
        };
        Ok(match recipe {
            Recipe::Mutex => Self::Mutex(InterProcessMutex::new(client, path)?),
            Recipe::Batches => {
                let options = MutexOptions::new().one_node_per_client();
                Self::Mutex(InterProcessMutex::with_options(client, path, options)?)
            }
            Recipe::SharedLeases => {
                let options = SemaphoreOptions::new().one_node_per_client();
                Self::Semaphore(InterProcessSemaphoreV2::with_options(client, path, 2, options)?)
            }
            Recipe::SharedReads => {
                let options = LockOptions::new().one_node_per_client();
                Self::ReadWrite(InterProcessReadWriteLock::with_options(client, path, options)?)
            }
            Recipe::ReadWrite => Self::ReadWrite(InterProcessReadWriteLock::new(client, path)?),
            Recipe::Multi => Self::Multi(vec![multi(&["a", "c"])?, multi(&["b", "c"])?, multi(&["a", "b", "c"])?]),
            Recipe::SemaphoreMutex => Self::SemaphoreMutex(InterProcessSemaphoreMutex::new(client, path)?),
            Recipe::Semaphore(leases, protocol) => Self::Semaphore(semaphore(client, leases, protocol)?),
            Recipe::Many(protocol) => Self::Many(semaphore(client, MANY, protocol)?),
        })
    }

    /// A mode in which a contender may want the lock.
    pub fn mode(&self, random: &mut StdRng) -> Mode {
        match self {
            Self::ReadWrite(_) if random.random_range(0..5) < 3 => Mode::Shared,
            Self::Many(_) => match random.random_range(1..=MANY) {
                1 => Mode::Exclusive,
                leases => Mode::Leases(leases),
            },
            _ => Mode::Exclusive,
        }
    }

    /// Acquires it in this manner. `which` chooses among several locks.
    pub async fn acquire(&self, mode: Mode, verb: Verb, which: usize) -> Result<Option<Guard>, LockError> {
        if let Verb::Drop(after) = verb {
            return timeout(after, Box::pin(self.acquire(mode, Verb::Acquire, which))).await.unwrap_or(Ok(None));
        }
        macro_rules! acquire {
            ($lock:expr) => {
                match verb {
                    Verb::Acquire => $lock.acquire().await.map(Some)?,
                    Verb::Within(budget) => $lock.acquire_timeout(budget).await?,
                    _ => $lock.try_acquire().await?,
                }
            };
        }
        Ok(match (self, mode) {
            (Self::Mutex(mutex), _) => acquire!(mutex).map(Guard::Mutex),
            (Self::ReadWrite(lock), Mode::Shared) => acquire!(lock.read_lock()).map(Guard::Read),
            (Self::ReadWrite(lock), _) => acquire!(lock.write_lock()).map(Guard::Write),
            (Self::Multi(locks), _) => acquire!(locks[which % locks.len()]).map(Guard::Multi),
            (Self::SemaphoreMutex(mutex), _) => acquire!(mutex).map(|guard| Guard::Other(guard.into())),
            (Self::Many(semaphore), Mode::Leases(leases)) => match verb {
                Verb::Acquire => Some(semaphore.acquire_many(leases).await?),
                Verb::Within(budget) => semaphore.acquire_many_timeout(leases, budget).await?,
                _ => semaphore.try_acquire_many(leases).await?,
            }
            .map(Guard::Leases),
            (Self::Semaphore(semaphore) | Self::Many(semaphore), _) => {
                acquire!(semaphore).map(|lease| Guard::Other(lease.into()))
            }
        })
    }
}

/// Does the same with a guard of any kind.
macro_rules! of_any {
    ($guard:expr, $one:ident => $does:expr) => {
        match $guard {
            Guard::Mutex($one) => $does,
            Guard::Read($one) => $does,
            Guard::Write($one) => $does,
            Guard::Multi($one) => $does,
            Guard::Leases($one) => $does,
            Guard::Other($one) => $does,
        }
    };
}

/// What a holder has.
pub enum Guard {
    Mutex(MutexGuard),
    Read(ReadGuard),
    Write(WriteGuard),
    Multi(MultiLockGuard),
    Leases(LeaseSet),
    Other(LockGuard),
}

impl Guard {
    /// The paths and tokens of its nodes.
    fn nodes(&self) -> Vec<(&str, FencingToken)> {
        match self {
            Self::Multi(guard) => guard.iter().map(|guard| (guard.node_path(), guard.token())).collect(),
            Self::Other(guard) => guard.parts().map(|guard| (guard.node_path(), guard.token())).collect(),
            Self::Leases(leases) => leases.iter().map(|guard| (guard.node_path(), guard.token())).collect(),
            one => vec![of_any!(one, guard => (guard.node_path(), guard.token()))],
        }
    }

    /// A node of it.
    pub fn path(&self) -> &str {
        of_any!(self, guard => guard.node_path())
    }

    /// Whether this is one of its nodes. A client with a namespace knows only the end of the path.
    pub fn has(&self, node: &str) -> bool {
        self.nodes().iter().any(|(path, _)| node.ends_with(path))
    }

    /// Of several locks the last one's: that is the one that all have in common. One number for both parts: no node of a
    /// storm serves as many.
    pub fn fencing_token(&self) -> i64 {
        let nodes = self.nodes();
        let node = if matches!(self, Self::Leases(_)) { nodes.first() } else { nodes.last() };
        node.map_or(0, |(_, token)| token.czxid().get() << 16 | i64::try_from(token.pass()).unwrap())
    }

    pub fn is_held(&self) -> bool {
        of_any!(self, guard => guard.is_held())
    }

    pub async fn lost(&self) -> LossReason {
        of_any!(self, guard => guard.lost().await)
    }

    pub async fn release(&self) -> Result<Release, LockError> {
        of_any!(self, guard => guard.release().await)
    }

    /// Another guard beside this one, if there is such a thing.
    pub fn reenter(&self) -> Option<Self> {
        match self {
            Self::Mutex(guard) => guard.reenter().ok().map(Self::Mutex),
            Self::Write(guard) => guard.reenter().ok().map(Self::Write),
            Self::Read(guard) => guard.reenter().ok().map(Self::Read),
            _ => None,
        }
    }

    /// Whether its owner is let in again.
    pub const fn lets_its_owner_in(&self) -> bool {
        matches!(self, Self::Mutex(_) | Self::Write(_) | Self::Read(_) | Self::Multi(_))
    }

    /// Whether others read beside it. (At the end of the sequence numbers a writer's node holds for its reader.)
    pub fn is_shared(&self) -> bool {
        matches!(self, Self::Read(guard) if guard.node_name().contains("__READ__"))
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.path())
    }
}
