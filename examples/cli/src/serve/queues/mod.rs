//! Reads queues again and again, for all browsers, and publishes their states.
//!
//! A watch would notify this program of each put, each claim and each end of a delivery. A look costs four requests of
//! some bytes, however busy the queue is.

pub(crate) mod api;
pub(crate) mod page;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use curator_cli::queues::{QueueReader, QueueState};
use curator_framework::{Chain, CuratorFramework, Error};
use tokio::sync::watch;
use tokio::time::sleep;

use super::follow::now;

/// The pause between two looks.
const PACE: Duration = Duration::from_secs(1);

/// The queues at a time.
#[derive(Debug, Clone, Default)]
pub(crate) struct Queues {
    pub(crate) by_path: BTreeMap<String, Arc<Queue>>,
    /// The newest look has read all queues.
    pub(crate) is_fresh: bool,
    /// The time of the newest look that has read all queues, in milliseconds since 1970.
    pub(crate) at: i64,
}

/// A queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Queue {
    pub(crate) path: String,
    pub(crate) seen: Seen,
    /// The reason for which the newest look has failed.
    pub(crate) problem: Option<String>,
}

/// The newest state of a queue that was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Seen {
    NotYet,
    Missing,
    State(QueueState),
}

impl Queue {
    pub(crate) const fn state(&self) -> Option<&QueueState> {
        match &self.seen {
            Seen::State(state) => Some(state),
            Seen::NotYet | Seen::Missing => None,
        }
    }
}

impl Queues {
    /// Returns the queues before the first look.
    pub(crate) fn unknown(paths: &[String]) -> Self {
        let queue =
            |path: &String| (path.clone(), Arc::new(Queue { path: path.clone(), seen: Seen::NotYet, problem: None }));
        Self { by_path: paths.iter().map(queue).collect(), ..Self::default() }
    }

    /// Returns the number that all queues have together.
    pub(crate) fn sum(&self, number: impl Fn(&QueueState) -> u64) -> u64 {
        self.by_path.values().filter_map(|queue| queue.state()).map(number).sum()
    }
}

/// Publishes the states of the queues, until the client is closed.
pub(crate) async fn follow(client: CuratorFramework, queues: watch::Sender<Arc<Queues>>) {
    let reader = |path: &String| QueueReader::new(path, format!("{path}-locks"), format!("{path}-dead"));
    let mut readers: Vec<QueueReader> = queues.borrow().by_path.keys().map(reader).collect();
    while !readers.is_empty() {
        let mut next = Queues { is_fresh: true, ..(**queues.borrow()).clone() };
        for reader in &mut readers {
            let Some(known) = next.by_path.get_mut(reader.path()) else { continue };
            let (seen, problem) = match reader.read(&client).await {
                Ok(state) => (state.map_or(Seen::Missing, Seen::State), None),
                Err(Error::Closed) => return,
                Err(error) => {
                    next.is_fresh = false;
                    // The state of the connection tells of a lost one.
                    let is_lost = matches!(error, Error::ConnectionLoss { .. } | Error::SessionExpired { .. });
                    (known.seen.clone(), (!is_lost).then(|| Chain(&error).to_string()))
                }
            };
            *known = Arc::new(Queue { path: known.path.clone(), seen, problem });
        }
        if next.is_fresh {
            next.at = now();
        }
        queues.send_if_modified(|queues| {
            let is_new = queues.by_path != next.by_path || queues.is_fresh != next.is_fresh;
            *queues = Arc::new(next);
            is_new
        });
        sleep(PACE).await;
    }
}
