//! The drivers that choose which contender a reader or a writer waits for.

use curator_framework::node_from_path;

use crate::engine::driver::{
    LockInternalsDriver, Predicate, READ_NAME, SortedChildren, StandardLockInternalsDriver, WRITE_NAME,
    standard_sequence,
};
use crate::engine::participants::ParticipantKind;

/// Returns the half that a node belongs to, by its name or its path.
pub(crate) fn kind_of(node: &str) -> ParticipantKind {
    let name = node_from_path(node);
    if standard_sequence(name, WRITE_NAME).is_some() { ParticipantKind::Write } else { ParticipantKind::Read }
}

/// Returns the number of a node of either half.
pub(crate) fn sequence(name: &str) -> Option<i64> {
    standard_sequence(name, WRITE_NAME).or_else(|| standard_sequence(name, READ_NAME))
}

/// Grants the lock to a reader when no writer is ahead.
#[derive(Debug)]
pub(crate) struct ReadDriver;

impl LockInternalsDriver for ReadDriver {
    fn sequence(&self, name: &str, _lock_name: &str) -> Option<i64> {
        sequence(name)
    }

    fn gets_the_lock(&self, children: &SortedChildren, ours: &str, _max_leases: usize) -> Predicate {
        let Some(index) = children.position(ours) else { return Predicate::Missing };
        let mut writers = children.names().take(index).filter(|name| kind_of(name) == ParticipantKind::Write);
        let first = writers.next();
        match (first, writers.next_back()) {
            (None, _) => Predicate::Acquired,
            (Some(only), None) => Predicate::WatchNode { node: only.to_owned(), is_last_blocker: true },
            // The earlier writers are deleted before the last one, unless the last one gives up while it waits.
            (Some(_), Some(last)) => Predicate::WatchNode { node: last.to_owned(), is_last_blocker: false },
        }
    }
}

/// Grants the lock to a writer when no contender is ahead.
#[derive(Debug)]
pub(crate) struct WriteDriver;

impl LockInternalsDriver for WriteDriver {
    fn sequence(&self, name: &str, _lock_name: &str) -> Option<i64> {
        sequence(name)
    }

    fn gets_the_lock(&self, children: &SortedChildren, ours: &str, _max_leases: usize) -> Predicate {
        match StandardLockInternalsDriver.gets_the_lock(children, ours, 1) {
            // A writer ahead may downgrade: after the deletion of its node, a read node is ahead.
            Predicate::WatchNode { node, .. } => Predicate::WatchNode { node, is_last_blocker: false },
            decided => decided,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sorted(listing: &[&str]) -> SortedChildren {
        SortedChildren::new(listing.iter().map(|name| (*name).to_owned()), READ_NAME, &ReadDriver)
    }

    fn watch(node: &str) -> Predicate {
        Predicate::WatchNode { node: node.into(), is_last_blocker: false }
    }

    const QUEUE: [&str; 6] = [
        "_c_e-__READ__0000000001",
        "_c_d-__READ__0000000002",
        "_c_c-__WRIT__0000000003",
        "_c_b-__READ__0000000004",
        "_c_a-__WRIT__0000000005",
        "_c_0-__READ__0000000006",
    ];

    #[test]
    fn readers_pass_readers_and_wait_for_the_last_writer_ahead() {
        let children = sorted(&QUEUE);
        assert_eq!(children.names().collect::<Vec<_>>(), QUEUE);
        let read = |ours: &str| ReadDriver.gets_the_lock(&children, ours, 1);
        assert_eq!(read(QUEUE[0]), Predicate::Acquired);
        assert_eq!(read(QUEUE[1]), Predicate::Acquired);
        assert_eq!(read(QUEUE[3]), Predicate::WatchNode { node: QUEUE[2].into(), is_last_blocker: true });
        assert_eq!(read(QUEUE[5]), watch(QUEUE[4]));
        assert_eq!(read("gone"), Predicate::Missing);
    }

    #[test]
    fn writers_wait_for_all_contenders_ahead_and_list_after_a_deletion() {
        let children = sorted(&QUEUE);
        let write = |ours: &str| WriteDriver.gets_the_lock(&children, ours, 1);
        assert_eq!(write(QUEUE[2]), watch(QUEUE[1]));
        assert_eq!(write(QUEUE[4]), watch(QUEUE[3]));
        assert_eq!(WriteDriver.gets_the_lock(&sorted(&QUEUE[2..]), QUEUE[2], 1), Predicate::Acquired);
        assert_eq!(WriteDriver.gets_the_lock(&sorted(&QUEUE[1..]), QUEUE[2], 1), watch(QUEUE[1]));
    }

    #[test]
    fn a_downgraded_reader_stands_where_the_writer_stood() {
        let children = sorted(&["_c_z-__READ__0000000003", "_c_a-__WRIT__0000000004", "_c_b-__WRIT__0000000003"]);
        assert_eq!(children.position("_c_a-__WRIT__0000000004"), Some(2));
        assert_eq!(
            WriteDriver.gets_the_lock(
                &sorted(&["_c_z-__READ__0000000003", "_c_a-__WRIT__0000000004"]),
                "_c_a-__WRIT__0000000004",
                1
            ),
            watch("_c_z-__READ__0000000003")
        );
    }

    #[test]
    fn names_of_other_locks_are_no_contenders() {
        assert_eq!(sorted(&["_c_a-lock-0000000001", "__READ__", "_c_b-__READ__0000000001"]).len(), 1);
    }
}
