//! Clients that keep nodes standing, and the notes on them: the part of a storm that is the same in any world.

mod member;
mod node;
mod partition;
mod scribe;
mod service;

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use curator_framework::CuratorFramework;
use curator_test::ClientId;
use rand::Rng;
use rand::rngs::StdRng;
use tokio::sync::{Barrier, watch};

pub use member::observe;
pub use scribe::{Book, Scribe};
pub(crate) use service::SERVICE;
pub use service::observe_service;

/// The recipe that keeps nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Presence {
    /// `PersistentNode`.
    Nodes,
    /// `GroupMember`, and `Group` beside it.
    Group,
    /// `Partition`.
    Partition,
    /// `Registration`, and `ServiceCache` beside it.
    Services,
}

impl Presence {
    /// Returns the recipe of a seed: in a hundred seeds in a row each meets all kinds of weather.
    pub const fn of(seed: u64) -> Self {
        match seed / 8 % 3 {
            0 => Self::Nodes,
            1 => Self::Group,
            _ => Self::Partition,
        }
    }
}

impl fmt::Display for Presence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Nodes => "persistent nodes",
            Self::Group => "group",
            Self::Partition => "partition",
            Self::Services => "service",
        })
    }
}

/// The place of a registrant's nodes.
#[derive(Debug, Clone)]
pub struct Place {
    /// The parent of the nodes, as the client knows it.
    pub path: String,
    /// The path of the client's namespace.
    pub namespace: &'static str,
}

impl Place {
    /// Returns the path of a node as the client knows it.
    fn node(&self, name: &str) -> String {
        format!("{}/{name}", self.path)
    }

    /// Returns a path as the server knows it.
    fn at_the_server(&self, path: &str) -> String {
        format!("{}{path}", self.namespace)
    }
}

/// A worker that keeps nodes, one after the other.
#[derive(Debug)]
pub struct Registrant {
    pub scribe: Scribe,
    pub client: CuratorFramework,
    /// The name of its client in the simulation.
    pub name: ClientId,
    /// Its number among the workers of its client. They share no path.
    pub worker: u32,
    pub place: Place,
    pub random: StdRng,
    pub rounds: u32,
    /// True if some of its sequential nodes have no protection: the next number is free.
    pub unprotected: bool,
    /// The items of a partition.
    pub items: Vec<String>,
    /// True once all faults are over.
    pub calm: watch::Receiver<bool>,
    /// All registrants meet here with their last nodes, which then exist for a time.
    pub all: Arc<Barrier>,
    pub stays: Duration,
}

impl Registrant {
    /// Keeps some nodes. The last one exists until all faults have ended.
    pub async fn register(mut self, presence: Presence) {
        for round in 1..=self.rounds {
            self.pause(0..3000).await;
            match presence {
                Presence::Nodes => self.node(round == self.rounds).await,
                Presence::Group => self.member(round == self.rounds).await,
                Presence::Partition => self.partition(round == self.rounds).await,
                Presence::Services => self.service(round == self.rounds).await,
            }
        }
    }

    fn one_of(&mut self, cases: u32) -> u32 {
        self.random.random_range(0..cases)
    }

    fn time(&mut self, milliseconds: Range<u64>) -> Duration {
        Duration::from_millis(self.random.random_range(milliseconds))
    }

    async fn pause(&mut self, milliseconds: Range<u64>) {
        tokio::time::sleep(self.time(milliseconds)).await;
    }

    /// Calls a node, and continues a moment later: a channel wakes its receivers in a random order, and the notes on
    /// the same change come first.
    async fn call<T>(&self, call: impl Future<Output = T>) -> T {
        let outcome = call.await;
        tokio::time::sleep(Duration::from_millis(1)).await;
        outcome
    }

    /// Waits until all faults are over and all registrants have their last nodes, and for some time more.
    async fn stay(&mut self) {
        // An error means that the storm has ended.
        drop(self.calm.wait_for(|calm| *calm).await);
        self.all.wait().await;
        // The barrier wakes its waiters in a random order: each continues at a time of its own.
        let place = Duration::from_millis(u64::from(self.name.0) * 2 + u64::from(self.worker));
        tokio::time::sleep(self.stays + place).await;
    }
}
