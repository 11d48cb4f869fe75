//! A lock and its contenders, and the choice among them: pure, without I/O.

use std::collections::BTreeMap;
use std::sync::Arc;

use curator_cli::kinds::LockKind;
use curator_recipes::{LockInternalsDriver as _, ParticipantKind, Revoker, StandardLockInternalsDriver, queue_order};

/// The state of a contender.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    /// Not judged yet.
    New,
    Waits,
    Holds,
    /// A lease that the first of a semaphore's queue has created, and that is not granted yet. Its contender has
    /// another node in the queue, so it is not counted.
    Pending,
}

/// The contents of a contender's node.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Detail {
    /// The start of the data.
    pub(crate) data: Vec<u8>,
    /// The length of all of the data.
    pub(crate) length: usize,
    pub(crate) session: i64,
    pub(crate) czxid: i64,
    /// The time of its creation on ZooKeeper's clock, in milliseconds since 1970.
    pub(crate) created: i64,
}

impl Detail {
    /// Returns `true` for a node that is not a contender, regardless of its name.
    pub(crate) fn is_persistent(&self) -> bool {
        !StandardLockInternalsDriver.is_contender(self.session)
    }

    pub(crate) fn asks_to_release(&self) -> bool {
        Revoker::is_request(&self.data)
    }
}

/// One contender of a lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Contender {
    /// The path of its node.
    pub(crate) path: String,
    pub(crate) kind: ParticipantKind,
    pub(crate) sequence: i64,
    pub(crate) state: State,
    /// The time of the grant, in milliseconds since 1970. `None` if it was granted before the first look.
    pub(crate) granted: Option<i64>,
    /// `None` if the node could not be read before it was deleted.
    pub(crate) detail: Option<Detail>,
}

impl Contender {
    pub(crate) fn holds(&self) -> bool {
        self.state == State::Holds
    }

    pub(crate) fn waits(&self) -> bool {
        self.state == State::Waits
    }

    pub(crate) fn session(&self) -> Option<i64> {
        self.detail.as_ref().map(|detail| detail.session)
    }

    /// Returns the time from which on it has the lock, or, if it waits or the grant was not seen, of its creation.
    pub(crate) fn since(&self) -> Option<i64> {
        self.granted.or_else(|| self.detail.as_ref().map(|detail| detail.created))
    }

    /// Returns a text that sorts the contenders of a lock. A candidate of an election may have the leader's number, to
    /// lead after it.
    pub(crate) fn key(&self) -> String {
        let (number, path) = self.order();
        format!("{}{number:020}{path}", u8::from(self.kind != ParticipantKind::Lease))
    }

    pub(crate) fn order(&self) -> (i64, &str) {
        let czxid = || self.detail.as_ref().map(|detail| detail.czxid);
        (queue_order(self.sequence, czxid).unwrap_or(i64::MAX), &self.path)
    }
}

/// One lock with its contenders in order: of a semaphore the leases, then the queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Lock {
    pub(crate) path: String,
    pub(crate) recipe: LockKind,
    pub(crate) contenders: Vec<Arc<Contender>>,
    /// The path of a persistent node with a contender's name, if one blocks the waiters.
    pub(crate) blocked_by: Option<String>,
}

impl Lock {
    pub(crate) fn holders(&self) -> impl Iterator<Item = &Arc<Contender>> {
        self.contenders.iter().filter(|contender| contender.holds())
    }

    pub(crate) fn waiters(&self) -> usize {
        self.contenders.iter().filter(|contender| contender.waits()).count()
    }

    /// Returns the time from which on the oldest holder has the lock.
    pub(crate) fn held_since(&self) -> Option<i64> {
        self.holders().filter_map(|holder| holder.since()).min()
    }
}

/// The locks below the served path, by path.
pub(crate) type Locks = BTreeMap<String, Arc<Lock>>;

/// Returns whether a contender of a lock waits for an earlier node of another kind. Kazoo gives the nodes of its writers
/// and of its mutex the same name.
pub(crate) fn waits_for(recipe: LockKind, kind: ParticipantKind, earlier: ParticipantKind) -> bool {
    let in_the_lock = |kind| match (recipe, kind) {
        (LockKind::ReadWrite, ParticipantKind::Lock) => ParticipantKind::Write,
        _ => kind,
    };
    in_the_lock(kind).waits_for(in_the_lock(earlier))
}

/// Returns the contenders with a state other than before.
pub(crate) fn states(
    recipe: LockKind,
    nodes: &[&Contender],
    is_blocked: impl Fn(&Contender) -> bool,
) -> Vec<(String, State)> {
    let leases = nodes.iter().filter(|node| node.kind == ParticipantKind::Lease).count();
    let head = nodes.get(leases).and_then(|node| node.session());
    // The kinds of the contenders ahead, each once.
    let mut ahead = Vec::new();
    let state = |(index, node): (usize, &&Contender)| {
        let state = match recipe {
            LockKind::Semaphore if node.kind != ParticipantKind::Lease => State::Waits,
            // The first of the queue creates its lease, and waits for a free one under its turn.
            LockKind::Semaphore if index + 1 == leases && head.is_some() && node.session() == head && !node.holds() => {
                State::Pending
            }
            // It was gone before it could be read: a try that found no free lease.
            LockKind::Semaphore if node.detail.is_none() && !node.holds() => State::Pending,
            LockKind::Semaphore => State::Holds,
            _ if ahead.iter().any(|kind| waits_for(recipe, node.kind, *kind)) || is_blocked(node) => State::Waits,
            _ => State::Holds,
        };
        if !ahead.contains(&node.kind) {
            ahead.push(node.kind);
        }
        (node.state != state).then(|| (node.path.clone(), state))
    };
    nodes.iter().enumerate().filter_map(state).collect()
}
