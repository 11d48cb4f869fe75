//! The jobs to do for owned nodes, in the order in which they are due.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Weak;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::session::known_node::KnownNode;

/// The least growth of the schedule before jobs of released nodes are removed from it.
const LEAST_TO_CLEAR: usize = 32;

/// The job to do for an owned node.
#[derive(Debug)]
pub(super) enum HeldTask {
    Watch,
    /// Runs the callback that the node keeps.
    Call,
    /// Writes its data once more. A deletion of the node makes that superfluous, because it fires the same watches.
    Touch(Vec<u8>),
}

/// The owned nodes and the jobs to do for them. Most nodes are released before their job is due. So a new job wakes the
/// task only if it is due before all that the task waits for.
#[derive(Debug, Default)]
pub(super) struct HeldNodes {
    guarded: Mutex<DueQueue>,
    pub(super) earlier: Notify,
}

impl HeldNodes {
    pub(super) fn push(&self, now: Duration, due: Duration, node: Weak<KnownNode>, how: HeldTask) {
        let is_earlier = {
            let mut guarded = self.guarded.lock();
            guarded.push(due, node, how);
            // After a sleep of the machine the task's timer is late, but the clock is not.
            guarded.waits_until.is_none_or(|until| due < until || until <= now)
        };
        if is_earlier {
            self.earlier.notify_one();
        }
    }

    pub(super) fn pop_due(&self, now: Duration) -> Option<(Weak<KnownNode>, HeldTask)> {
        self.guarded.lock().pop_due(now)
    }

    /// Records and returns the time until which the task waits, at most until `latest`.
    pub(super) fn wait_until_due(&self, latest: Duration) -> Duration {
        let mut guarded = self.guarded.lock();
        let until = guarded.next_due().map_or(latest, |due| due.min(latest));
        guarded.waits_until = Some(until);
        until
    }
}

/// The jobs for owned nodes, in the order in which they are due. Almost all are added in that order.
#[derive(Default)]
struct DueQueue {
    nodes: VecDeque<(Duration, Weak<KnownNode>, HeldTask)>,
    /// The number of jobs that were left when the jobs of released nodes were last removed.
    kept: usize,
    /// The time until which the task waits: the first due time at its last check.
    waits_until: Option<Duration>,
}

impl fmt::Debug for DueQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DueQueue").field("nodes", &self.nodes.len()).finish_non_exhaustive()
    }
}

impl DueQueue {
    pub(super) fn push(&mut self, due: Duration, node: Weak<KnownNode>, how: HeldTask) {
        if self.nodes.len() >= 2 * self.kept + LEAST_TO_CLEAR {
            self.nodes.retain(|(_, node, _)| node.strong_count() > 0);
            self.kept = self.nodes.len();
        }
        let index = self.nodes.iter().rposition(|(earlier, ..)| *earlier <= due).map_or(0, |index| index + 1);
        self.nodes.insert(index, (due, node, how));
    }

    pub(super) fn next_due(&mut self) -> Option<Duration> {
        while self.nodes.front().is_some_and(|(_, node, _)| node.strong_count() == 0) {
            self.nodes.pop_front();
        }
        self.nodes.front().map(|(due, ..)| *due)
    }

    pub(super) fn pop_due(&mut self, now: Duration) -> Option<(Weak<KnownNode>, HeldTask)> {
        (self.next_due()? <= now).then(|| self.nodes.pop_front()).flatten().map(|(_, node, how)| (node, how))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn nodes_are_watched_in_the_order_in_which_it_is_due() {
        let nodes: Vec<_> = (0..4).map(|number| Arc::new(KnownNode::new(format!("/{number}").into(), 1))).collect();
        let mut guarded = DueQueue::default();
        for (due, node) in [(5, 0), (3, 1), (9, 2), (4, 3)] {
            guarded.push(Duration::from_secs(due), Arc::downgrade(&nodes[node]), HeldTask::Watch);
        }
        let mut order = Vec::new();
        while let Some((node, _)) = guarded.pop_due(Duration::from_secs(8)) {
            order.push(node.upgrade().unwrap().path.clone());
        }
        assert_eq!(order, ["/1", "/3", "/0"].map(Arc::from));
        assert_eq!(guarded.next_due(), Some(Duration::from_secs(9)));
        drop(nodes);
        assert_eq!(guarded.next_due(), None);
    }
}
