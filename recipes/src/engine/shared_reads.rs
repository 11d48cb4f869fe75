//! An optimisation: contenders of one lock in one session share listings, and the write that orders them.
//!
//! A listing that was sent after a contender asked for one is as good as its own. An older one of the same connection
//! shows at least which nodes a contender has ahead: none ever joins there. So of thousands that lose a reply or the node
//! ahead at once, one lists. `tests/integration/tests/cost/queues.rs` shows it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use curator_framework::{Error, Session};
use parking_lot::Mutex;
use tokio::sync::MutexGuard;

use crate::engine::driver::SortedChildren;
use crate::engine::plan::Epoch;

/// The most contenders ahead that an earlier listing is asked for. With fewer ahead, each of them and the contender's
/// node are read one by one rather than listed.
pub(super) const NEAREST: usize = 6;

/// A moment in a lock's session, in the order of this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(super) struct Moment(u64);

/// The state that the contenders of one lock share in one session.
#[derive(Debug, Default)]
pub(super) struct SharedReads {
    moments: AtomicU64,
    /// The connection of the newest write that orders, and when it was sent. Held by the contender that sends one.
    ordered: tokio::sync::Mutex<Option<(Epoch, Moment)>>,
    /// Held by the contender that lists.
    listing: tokio::sync::Mutex<()>,
    newest: Mutex<Option<Snapshot>>,
}

/// A listing that the contenders keep.
#[derive(Debug)]
struct Snapshot {
    epoch: Epoch,
    sent: Moment,
    queue: Arc<SortedChildren>,
    /// All before this position have gone since: a contender of the session was first.
    first: usize,
    /// By position: the contender has gone since.
    gone: Vec<bool>,
}

/// Waits for the request of another contender, but not for long: its future may not be polled.
async fn one_at_a_time<'a, T>(mutex: &'a tokio::sync::Mutex<T>, session: &Session) -> Option<MutexGuard<'a, T>> {
    tokio::time::timeout(session.timeout() / 100, mutex.lock()).await.ok()
}

impl SharedReads {
    /// Returns the present moment: what is sent later is after it.
    pub(super) fn now(&self) -> Moment {
        Moment(self.moments.load(Ordering::SeqCst))
    }

    /// Returns the moment of a request that is sent next.
    pub(super) fn sends(&self) -> Moment {
        Moment(self.moments.fetch_add(1, Ordering::SeqCst) + 1)
    }

    /// Sends a write that changes nothing, unless another contender has sent one since. A later listing on its connection
    /// reflects every earlier write of the session. Returns the session on that connection, and when the write was sent.
    pub(super) async fn order(&self, session: &Session) -> Result<(Session, Moment), Error> {
        let since = self.now();
        let mut ordered = one_at_a_time(&self.ordered, session).await;
        let at = session.pinned();
        if let Some((epoch, sent)) = ordered.as_deref().copied().flatten() {
            if epoch == at.epoch() && sent > since {
                return Ok((at, sent));
            }
        }
        let sent = self.sends();
        at.write_barrier().await?;
        if let Some(ordered) = &mut ordered {
            **ordered = Some((at.epoch(), sent));
        }
        Ok((at, sent))
    }

    /// Waits for the turn to list.
    pub(super) async fn turn_to_list(&self, session: &Session) -> Option<MutexGuard<'_, ()>> {
        one_at_a_time(&self.listing, session).await
    }

    /// Forgets the newest listing.
    pub(super) fn forget(&self) {
        self.newest.lock().take();
    }

    /// Returns the newest listing of a connection, if it was sent after a moment.
    pub(super) fn newest(&self, epoch: Epoch, since: Moment) -> Option<Arc<SortedChildren>> {
        let newest = self.newest.lock();
        let newest = newest.as_ref().filter(|newest| newest.epoch == epoch && newest.sent > since)?;
        Some(Arc::clone(&newest.queue))
    }

    pub(super) fn keep(&self, epoch: Epoch, sent: Moment, queue: &Arc<SortedChildren>) {
        let gone = vec![false; queue.len()];
        *self.newest.lock() = Some(Snapshot { epoch, sent, queue: Arc::clone(queue), first: 0, gone });
    }

    /// Records that the contender with this number was first, as a connection has shown.
    pub(super) fn was_first(&self, epoch: Epoch, number: i64) {
        if let Some(newest) = self.newest.lock().as_mut().filter(|newest| newest.epoch == epoch) {
            newest.first = newest.first.max(newest.queue.numbers_below(number));
        }
    }

    /// Records that a contender has gone, as a connection has shown.
    pub(super) fn is_gone(&self, epoch: Epoch, number: i64, name: &str) {
        if let Some(newest) = self.newest.lock().as_mut().filter(|newest| newest.epoch == epoch) {
            if let Some(position) = newest.queue.position_of(number, name) {
                newest.gone[position] = true;
            }
        }
    }

    /// Returns a contender, and the [nearest](NEAREST) ahead, of the newest listing of a connection, without those that
    /// are known to have gone. `None` if the contender is not in it, or first.
    pub(super) fn ahead_of(&self, epoch: Epoch, own: i64, name: &str) -> Option<SortedChildren> {
        let newest = self.newest.lock();
        let newest = newest.as_ref().filter(|newest| newest.epoch == epoch)?;
        let own = newest.queue.position_of(own, name)?;
        let nearest: Vec<_> =
            (newest.first..own).rev().filter(|position| !newest.gone[*position]).take(NEAREST).collect();
        (!nearest.is_empty()).then(|| newest.queue.at(nearest.into_iter().rev().chain([own])))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::driver::StandardLockInternalsDriver;

    fn queue(numbers: impl IntoIterator<Item = i64>) -> Arc<SortedChildren> {
        let names = numbers.into_iter().map(|number| format!("lock-{number}"));
        Arc::new(SortedChildren::new(names, "lock-", &StandardLockInternalsDriver))
    }

    #[test]
    fn an_older_listing_shows_the_nearest_contender_that_has_not_gone() {
        let reads = SharedReads::default();
        reads.keep(1, reads.sends(), &queue(1..=6));
        let ahead_of = |own: i64, gone: i64| {
            reads.is_gone(1, gone, &format!("lock-{gone}"));
            let found = reads.ahead_of(1, own, &format!("lock-{own}"))?;
            Some(found.numbered().map(|(number, _)| number).collect::<Vec<_>>())
        };
        reads.is_gone(2, 2, "lock-2");
        assert_eq!(ahead_of(6, 5), Some(vec![1, 2, 3, 4, 6]));
        assert_eq!(ahead_of(4, 3), Some(vec![1, 2, 4]));
        assert_eq!(ahead_of(6, 4), Some(vec![1, 2, 6]));
        reads.was_first(1, 2);
        assert_eq!(ahead_of(4, 3), Some(vec![2, 4]));
        assert_eq!(ahead_of(2, 1), None, "it is first now, which only a new listing proves");
        assert_eq!(ahead_of(7, 6), None, "it joined later");
    }

    #[test]
    fn only_a_listing_of_the_same_connection_counts() {
        let reads = SharedReads::default();
        let before = reads.now();
        reads.keep(1, reads.sends(), &queue(1..=3));
        assert!(reads.ahead_of(1, 3, "lock-3").is_some());
        assert!(reads.ahead_of(2, 3, "lock-3").is_none());
        assert!(reads.newest(1, before).is_some());
        assert!(reads.newest(2, before).is_none());
        assert!(reads.newest(1, reads.now()).is_none(), "it was sent before");
    }
}
