//! Clients that count, meet at barriers, wait at latches and share queues, and the record of it. Only the storm's faults and servers are
//! elsewhere.

mod counting;
mod gathering;
mod latching;
mod queueing;
mod record;

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use curator_framework::CuratorFramework;
use curator_test::{ClientId, SimulatedEnsemble};
use rand::Rng;
use rand::rngs::StdRng;
use tokio::sync::watch;
use tokio::time::sleep;

pub use counting::Counting;
pub use gathering::Gathering;
pub use latching::Latching;
pub use queueing::{Kind, QUEUE, Queueing};
pub use record::{Recorded, Scribe};

/// The subject of a storm of this kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Together {
    /// Counters and ids.
    Counters,
    /// Barriers, and double barriers.
    Barriers,
    /// Count-down latches.
    Latches,
    /// Queues.
    Queues,
}

impl Together {
    /// Returns the subject of a seed: in a hundred seeds in a row each meets all kinds of weather.
    pub const fn of(seed: u64) -> Self {
        match seed / 4 % 4 {
            0 => Self::Counters,
            1 => Self::Barriers,
            2 => Self::Latches,
            _ => Self::Queues,
        }
    }
}

impl fmt::Display for Together {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Counters => "counters",
            Self::Barriers => "barriers",
            Self::Latches => "latches",
            Self::Queues => "queues",
        })
    }
}

/// A worker's place among the others. All wait for each other at the end.
#[derive(Debug, Clone)]
pub struct Meeting {
    /// The number of arrivals so far.
    pub arrived: Arc<AtomicU32>,
    /// The number of workers.
    pub workers: u32,
    /// The number of meetings that this worker has come to.
    pub meetings: u32,
}

/// A worker of a client.
#[derive(Debug)]
pub struct Worker<E> {
    pub scribe: Scribe<E>,
    pub ensemble: SimulatedEnsemble,
    pub client: CuratorFramework,
    /// The name of its client in the simulation.
    pub name: ClientId,
    /// Its number among all workers.
    pub number: u32,
    /// The parent of all nodes, as the client knows it.
    pub path: &'static str,
    /// The parent of all nodes, as the servers know it.
    pub root: &'static str,
    pub random: StdRng,
    /// The longest pause between two steps, in milliseconds.
    pub pause: u64,
    /// `true` once all faults are over.
    pub calm: watch::Receiver<bool>,
    pub meeting: Meeting,
}

impl<E: Recorded> Worker<E> {
    fn one_of(&mut self, cases: u32) -> u32 {
        self.random.random_range(0..cases)
    }

    fn time(&mut self, milliseconds: Range<u64>) -> Duration {
        Duration::from_millis(self.random.random_range(milliseconds))
    }

    async fn pause(&mut self) {
        sleep(self.time(0..self.pause)).await;
    }

    fn is_calm(&self) -> bool {
        *self.calm.borrow()
    }

    /// Now and then has the reply to the client's next write lost.
    fn lose_a_reply(&mut self) {
        if !self.is_calm() && self.one_of(6) == 0 {
            self.scribe.note(format_args!("the reply to the next write of {:?} is lost", self.name));
            self.ensemble.drop_reply(self.name);
        }
    }

    /// Waits for all other workers. Each one continues at a time of its own.
    async fn meet(&mut self) {
        let Meeting { arrived, workers, meetings } = &mut self.meeting;
        *meetings += 1;
        arrived.fetch_add(1, Ordering::Relaxed);
        while arrived.load(Ordering::Relaxed) < *workers * *meetings {
            sleep(Duration::from_millis(20)).await;
        }
        let own = self.time(0..50);
        sleep(own + Duration::from_millis(u64::from(self.number))).await;
    }
}
