//! What is measured, and which peer does it.

use curator_bench::harness::{CURATOR, KAZOO, OURS, SOCKETS, Target};

use crate::peer::{BARE_CRATE, CLIENT, OURS_SECOND, REDIS, SQLITE, TOKIO_SOCKETS};

/// What each session does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Recipe {
    Mutex,
    /// A queue in one session has its turns.
    Drain,
    Semaphore,
    DirectSemaphore,
    ReadWrite,
    HandOff,
}

impl Recipe {
    /// The word by which the peers in processes of their own know it.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Mutex => "mutex",
            Self::Drain => "drain",
            // Curator has one protocol, and the other one is measured by it.
            Self::Semaphore | Self::DirectSemaphore => "semaphore",
            Self::ReadWrite => "read-write",
            Self::HandOff => "hand-off",
        }
    }
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Workload {
    pub(crate) title: &'static str,
    pub(crate) recipe: Recipe,
    /// The sessions, the waiters or the hand-offs.
    pub(crate) size: usize,
    /// Each byte takes 5 ms to the server, and 5 ms back.
    pub(crate) is_far: bool,
    /// To Curator in the same run.
    pub(crate) target: Target,
}

const fn near(title: &'static str, recipe: Recipe, size: usize, least: f64) -> Workload {
    Workload { title, recipe, size, is_far: false, target: Target::AtLeast(least) }
}

const fn far(title: &'static str, recipe: Recipe, size: usize, least: f64) -> Workload {
    Workload { is_far: true, ..near(title, recipe, size, least) }
}

pub(crate) const WORKLOADS: [Workload; 13] = [
    near("mutex, one client, no contention", Recipe::Mutex, 1, 1.7),
    near("mutex, 16 sessions, one path", Recipe::Mutex, 16, 1.85),
    near("300 waiters queued on one path in one session, drained", Recipe::Drain, 300, 2.0),
    near("semaphore, 4 leases, 16 sessions, Curator's protocol", Recipe::Semaphore, 16, 1.5),
    near("semaphore, 4 leases, 16 sessions, direct protocol", Recipe::DirectSemaphore, 16, 3.0),
    near("semaphore, 4 leases, one client, so one is free", Recipe::Semaphore, 1, 2.0),
    near("read-write lock, 90 % reads, 16 sessions", Recipe::ReadWrite, 16, 1.5),
    far("mutex, one client, no contention, 5 ms each way", Recipe::Mutex, 1, 1.43),
    far("mutex, 16 sessions, one path, 5 ms each way", Recipe::Mutex, 16, 1.82),
    Workload {
        target: Target::AtMost(0.45),
        ..far("two contenders, 5 ms each way: release to the next grant, ms", Recipe::HandOff, 12, 0.0)
    },
    far("semaphore, 4 leases, one client, 5 ms each way", Recipe::Semaphore, 1, 2.86),
    far("semaphore, 4 leases, 16 sessions, Curator's protocol, 5 ms each way", Recipe::Semaphore, 16, 1.67),
    far("semaphore, 4 leases, 16 sessions, direct protocol, 5 ms each way", Recipe::DirectSemaphore, 16, 2.5),
];

/// True if a peer has such a lock.
pub(crate) fn does(peer: &str, workload: &Workload) -> bool {
    let is_mutex = workload.recipe == Recipe::Mutex;
    let is_semaphore = matches!(workload.recipe, Recipe::Semaphore | Recipe::DirectSemaphore);
    let is_bare = is_mutex || (is_semaphore && workload.size > 1 && !workload.is_far);
    match peer {
        OURS | OURS_SECOND | CURATOR => true,
        // Its readers and writers can wait for each other forever.
        KAZOO => !matches!(workload.recipe, Recipe::ReadWrite | Recipe::DirectSemaphore),
        CLIENT => is_mutex,
        BARE_CRATE => is_bare || workload.recipe == Recipe::Drain,
        SOCKETS | TOKIO_SOCKETS => is_bare,
        REDIS | SQLITE => is_mutex && !workload.is_far,
        _ => false,
    }
}
