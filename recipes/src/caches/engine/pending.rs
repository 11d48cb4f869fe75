//! The requests that are not done, and the batch that waits for each.

use super::freshness::Freshness;

/// The stage of a request that is not done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    Queued,
    Sent,
    /// Sent, and to be repeated for this batch, because the reply may be older than a notification.
    SentAndRequested(u64),
}

/// A request that is not done.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pending {
    pub(super) stage: Stage,
    /// The node was deleted since the request was sent, so the reply may show the deleted one.
    pub(super) is_void: bool,
    /// The node has lost a child since the request was sent, so the reply may show the stat before.
    pub(super) has_old_stat: bool,
    /// The batch of the freshness that waits for the reply.
    pub(super) batch: u64,
}

impl Pending {
    /// Records that a batch needs the reply to a sending from now on, because an earlier reply may be too old.
    pub(super) fn request_again(&mut self, batch: u64, freshness: &mut Freshness) {
        let newer = match &mut self.stage {
            Stage::Queued => &mut self.batch,
            Stage::SentAndRequested(again) => again,
            Stage::Sent => {
                freshness.begun(batch);
                self.stage = Stage::SentAndRequested(batch);
                return;
            }
        };
        if batch < *newer {
            freshness.begun(batch);
            freshness.completed(std::mem::replace(newer, batch));
        }
    }

    /// Leaves the request to the newest batch: the deletion of the node is newer than all that the older one waits for.
    /// Otherwise a node that is deleted and created all the time would hold up the older batch.
    pub(super) fn postpone(&mut self, newest: u64, freshness: &mut Freshness) {
        let again = match &mut self.stage {
            Stage::SentAndRequested(again) => Some(again),
            Stage::Queued | Stage::Sent => None,
        };
        for batch in [Some(&mut self.batch), again].into_iter().flatten() {
            freshness.begun(newest);
            freshness.completed(std::mem::replace(batch, newest));
        }
    }

    /// Queues the request again. `is_answered`: its batch has the reply that it waits for.
    pub(super) fn queue(&mut self, is_answered: bool, freshness: &mut Freshness) {
        if let Stage::SentAndRequested(again) = self.stage {
            let (done, left) = match is_answered {
                true => (self.batch, again),
                false => (self.batch.max(again), self.batch.min(again)),
            };
            freshness.completed(done);
            self.batch = left;
        }
        self.stage = Stage::Queued;
    }
}
