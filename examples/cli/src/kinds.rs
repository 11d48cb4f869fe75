//! The kinds of locks, and the names of nodes that show them.

use curator_framework::{node_from_path, parent_of};
use curator_recipes::{InterProcessSemaphoreV2, ParticipantKind};
use serde::Serialize;

/// The kind of a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum LockKind {
    /// A mutex.
    Mutex,
    /// A read-write lock.
    ReadWrite,
    /// A semaphore.
    Semaphore,
    /// A leader election, on the nodes of a leader latch.
    LeaderLatch,
}

impl LockKind {
    /// Returns the kind of the lock that has contenders of this kind.
    #[must_use]
    pub const fn of(contender: ParticipantKind) -> Self {
        match contender {
            ParticipantKind::Read | ParticipantKind::Write => Self::ReadWrite,
            ParticipantKind::Lease => Self::Semaphore,
            ParticipantKind::Candidate => Self::LeaderLatch,
            _ => Self::Mutex,
        }
    }

    /// Returns the words for the kind.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::Mutex => "mutex",
            Self::ReadWrite => "read-write lock",
            Self::Semaphore => "semaphore",
            Self::LeaderLatch => "leader latch",
        }
    }
}

/// Returns the kind of the lock that these children are nodes of, by their names alone; `None` if they do not show one.
#[must_use]
pub fn kind_of(children: &[String]) -> Option<LockKind> {
    kinds_of(children).next()
}

/// Returns the kinds of locks that may have these children, by their names. The stat of a node decides whether it is a
/// contender: a persistent node may have any name.
pub fn kinds_of(children: &[String]) -> impl Iterator<Item = LockKind> {
    let is_shown = |kind: &LockKind| children.iter().any(|name| shown_by(name) == Some(*kind));
    [LockKind::ReadWrite, LockKind::Mutex, LockKind::LeaderLatch, LockKind::Semaphore].into_iter().filter(is_shown)
}

/// Returns the kind of the lock that has a child with this name. The leases of a semaphore are below its child.
pub(crate) fn shown_by(child: &str) -> Option<LockKind> {
    match kind_of_node(child) {
        None | Some(ParticipantKind::Lease) => {
            (child == InterProcessSemaphoreV2::LEASES).then_some(LockKind::Semaphore)
        }
        Some(kind) => Some(LockKind::of(kind)),
    }
}

/// Returns the kind of the contender that has a node with this name.
pub(crate) fn kind_of_node(name: &str) -> Option<ParticipantKind> {
    ParticipantKind::of_node(name).map(|(kind, _)| kind)
}

/// Returns `true` if a node has the name of a candidate's node in an election by latches.
#[must_use]
pub fn is_candidate(child: &str) -> bool {
    kind_of_node(child) == Some(ParticipantKind::Candidate)
}

/// Returns the path of the lock, if a path ends in a name that a server gives to a contender's node. Such a name ends in
/// a number of ten characters. A user may have named a lock `lock-7`.
#[must_use]
pub fn lock_of_contender(path: &str) -> Option<&str> {
    let name = node_from_path(path);
    let number = name.len().checked_sub(10).and_then(|begin| name.get(begin..))?;
    let is_number = number.strip_prefix('-').unwrap_or(number).bytes().all(|byte| byte.is_ascii_digit());
    (is_number && kind_of_node(name).is_some()).then(|| whole_of(path))
}

/// Returns the path of the lock, if a path ends in the name of a contender's node, with any number.
#[must_use]
pub fn lock_of_name(path: &str) -> Option<&str> {
    kind_of_node(node_from_path(path)).map(|_| whole_of(path))
}

/// Returns the path of the lock that a contender's node belongs to.
pub(crate) fn whole_of(path: &str) -> &str {
    let parent = parent_of(path);
    if kind_of_node(node_from_path(path)) == Some(ParticipantKind::Lease) { parent_of(parent) } else { parent }
}

/// Returns the message about a persistent node with a contender's name.
#[must_use]
pub fn not_a_contender(node: &str) -> String {
    format!("{node} is a persistent node, not a contender: delete it with curator revoke --force {node}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_children_show_the_kind() {
        let kind = |names: &[&str]| kind_of(&names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>());
        let id = "_c_0f2a0000-0000-0000-0000-000000000000";
        for (names, expected) in [
            (&[][..], None),
            (&["database-url", "lock", "locks", "leases-", "padlock-x"], None),
            (&[&*format!("{id}-lock-0000000001"), "leases"], Some(LockKind::Mutex)),
            (&["lock-0000000001"], Some(LockKind::Mutex)),
            (&[&*format!("{id}-__READ__0000000001")], Some(LockKind::ReadWrite)),
            (&[&*format!("{id}-__WRIT__0000000001")], Some(LockKind::ReadWrite)),
            (&["leases", "locks"], Some(LockKind::Semaphore)),
            (&[&*format!("{id}-lease-0000000001")], None),
            (&[&*format!("{id}-latch-0000000001")], Some(LockKind::LeaderLatch)),
            (&["latch-x", "latches"], None),
        ] {
            assert_eq!(kind(names), expected, "{names:?}");
        }
    }
}
