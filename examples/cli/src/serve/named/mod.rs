//! The nodes that options name, because their names and data do not show their kinds: groups, counters, barriers,
//! latches and queues. One task reads them again and again, for all browsers, and publishes their states.
//!
//! A watch would notify this program of each put, each claim and each change of a counter. A look costs a few requests
//! of some bytes, however busy a path is. A group is followed by its recipe, and a look costs nothing while it has
//! members.
//!
//! A kind is a variant of `Kind` and of `State`, a way to read it (`reader`), and its fields (`fields`). The page, the
//! JSON and the metrics show any fields.

pub(crate) mod api;
mod fields;
pub(crate) mod page;
mod reader;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use curator_cli::queues::QueueState;
use curator_framework::CuratorFramework;
use curator_recipes::Members;
use futures_util::future::join_all;
use tokio::sync::watch;
use tokio::time::sleep;

pub(crate) use self::fields::{Field, fields};
pub(crate) use self::reader::Reader;
use super::follow::now;
use crate::barrier::Look;
use crate::failure::Failure;

/// The pause between two looks.
const PACE: Duration = Duration::from_secs(1);
/// The exit status of a request without a connection.
const NO_CONNECTION: u8 = 69;

/// The paths to show.
#[derive(Debug, Args)]
pub(crate) struct Paths {
    /// A group to show, with its members; may be repeated
    #[arg(long = "group", value_name = "PATH", env = "CURATOR_GROUP")]
    groups: Vec<String>,
    /// A counter to show, of 8 or 4 bytes; may be repeated
    #[arg(long = "counter", value_name = "PATH", env = "CURATOR_COUNTER")]
    counters: Vec<String>,
    /// A barrier or a double barrier to show; may be repeated
    #[arg(long = "barrier", value_name = "PATH", env = "CURATOR_BARRIER")]
    barriers: Vec<String>,
    /// A count-down latch to show; may be repeated
    #[arg(long = "latch", value_name = "PATH", env = "CURATOR_LATCH")]
    latches: Vec<String>,
    /// A queue to show; may be repeated. Its locks are at PATH-locks, its dead letters at PATH-dead
    #[arg(long = "queue", value_name = "PATH", env = "CURATOR_QUEUE")]
    queues: Vec<String>,
}

impl Paths {
    fn of(&self, kind: Kind) -> &[String] {
        match kind {
            Kind::Group => &self.groups,
            Kind::Counter => &self.counters,
            Kind::Barrier => &self.barriers,
            Kind::Latch => &self.latches,
            Kind::Queue => &self.queues,
        }
    }
}

/// The kind of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Group,
    Counter,
    Barrier,
    Latch,
    Queue,
}

impl Kind {
    /// The kinds, in the order of the page.
    pub(crate) const ALL: [Self; 5] = [Self::Group, Self::Counter, Self::Barrier, Self::Latch, Self::Queue];

    /// Returns the words for one and for many.
    pub(crate) const fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::Group => ("group", "groups"),
            Self::Counter => ("counter", "counters"),
            Self::Barrier => ("barrier", "barriers"),
            Self::Latch => ("latch", "latches"),
            Self::Queue => ("queue", "queues"),
        }
    }
}

/// The paths that options name, at a time.
#[derive(Debug, Clone, Default)]
pub(crate) struct Named([Things; Kind::ALL.len()]);

/// The paths of one kind.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Things {
    pub(crate) by_path: BTreeMap<String, Arc<Thing>>,
    /// The time of the newest look that has read all of them, in milliseconds since 1970.
    pub(crate) at: i64,
}

/// A path, and what is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Thing {
    pub(crate) path: String,
    /// The newest state that was read.
    pub(crate) state: Option<State>,
    /// The newest look has read the state.
    pub(crate) is_fresh: bool,
    /// The reason for which the newest look has failed, other than a lost connection.
    pub(crate) problem: Option<String>,
}

/// The state of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum State {
    Missing,
    Group(Members),
    Counter(i64),
    Barrier(Look),
    Latch { round: u64, remaining: u32 },
    Queue(QueueState),
}

impl Named {
    /// Returns the paths before the first look.
    pub(crate) fn unknown(paths: &Paths) -> Self {
        let thing = |path: &String| Thing { path: path.clone(), state: None, is_fresh: false, problem: None };
        let things = |kind| Things {
            by_path: paths.of(kind).iter().map(|path| (path.clone(), Arc::new(thing(path)))).collect(),
            at: 0,
        };
        Self(Kind::ALL.map(things))
    }

    /// Returns the paths of a kind.
    pub(crate) const fn of(&self, kind: Kind) -> &Things {
        &self.0[kind as usize]
    }

    /// Returns the paths that could not be read.
    pub(crate) fn unread(&self) -> impl Iterator<Item = &str> {
        let things = self.0.iter().flat_map(|things| things.by_path.values());
        things.filter(|thing| thing.problem.is_some()).map(|thing| thing.path.as_str())
    }
}

impl Things {
    /// Returns `true` if the newest look has read all of them.
    pub(crate) fn are_fresh(&self) -> bool {
        self.by_path.values().all(|thing| thing.is_fresh)
    }
}

impl Thing {
    /// Returns whether the path exists, if that is known. A barrier that is open has no node.
    pub(crate) fn exists(&self) -> Option<bool> {
        self.state.as_ref().map(|state| match state {
            State::Missing => false,
            State::Barrier(look) => look.exists(),
            _ => true,
        })
    }

    /// Returns the path after a look.
    fn after(&self, look: Result<Option<State>, Failure>) -> Self {
        let (path, before) = (self.path.clone(), self.state.clone());
        match look {
            Ok(Some(state)) => Self { path, state: Some(state), is_fresh: true, problem: None },
            // The state of the connection tells of a lost one.
            Ok(None) | Err(Failure(NO_CONNECTION, _)) => Self { path, state: before, is_fresh: false, problem: None },
            Err(Failure(_, reason)) => Self { path, state: before, is_fresh: false, problem: Some(reason) },
        }
    }
}

/// Publishes the states of all paths, until the caller drops it.
pub(crate) async fn follow(mut readers: Vec<Reader>, named: watch::Sender<Arc<Named>>) {
    while !readers.is_empty() {
        let looks = join_all(readers.iter_mut().map(async |reader| (reader.read().await, reader.place()))).await;
        let mut next = (**named.borrow()).clone();
        for (look, (kind, path)) in looks {
            if let Some(thing) = next.0[kind as usize].by_path.get_mut(path) {
                *thing = Arc::new(thing.after(look));
            }
        }
        let is_new = Kind::ALL.into_iter().any(|kind| named.borrow().of(kind).by_path != next.of(kind).by_path);
        for things in next.0.iter_mut().filter(|things| things.are_fresh()) {
            things.at = now();
        }
        named.send_if_modified(|named| {
            *named = Arc::new(next);
            is_new
        });
        sleep(PACE).await;
    }
}

/// Returns the readers of all paths.
pub(crate) fn readers(client: &CuratorFramework, paths: &Paths) -> Result<Vec<Reader>, Failure> {
    let all = Kind::ALL.into_iter().flat_map(|kind| paths.of(kind).iter().map(move |path| (kind, path)));
    all.map(|(kind, path)| Reader::new(client, kind, path)).collect()
}
