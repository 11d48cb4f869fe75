//! The transaction up to which a cache shows each change, while notifications and replies continue to arrive.
//!
//! Each request belongs to a batch. A batch ends when its requests have their replies, and so have all requests that
//! these replies have caused. Notifications that arrive in the meantime start requests of the next batch. So the
//! transaction advances even while other clients write all the time.
//!
//! A read from the root down belongs to the older batch.

/// The two batches that have requests.
#[derive(Debug, Default)]
pub(super) struct Freshness {
    /// The number of the older batch. The newer batch has the next number.
    older: u64,
    /// The requests without a reply, of the older and the newer batch.
    open: [usize; 2],
    /// All notifications of the transactions up to this one started requests of the older batch, or of earlier ones.
    marked: Option<i64>,
    /// The requests of all notifications up to this transaction have their replies.
    reached: Option<i64>,
    /// A transaction after the start of the full read.
    begun_at: Option<i64>,
}

impl Freshness {
    /// Returns the batch of the requests that notifications start now.
    pub(super) const fn newest(&self) -> u64 {
        self.older + 1
    }

    /// Returns the batch that ends next.
    pub(super) const fn oldest(&self) -> u64 {
        self.older
    }

    /// Returns `true` if a node that this transaction has created is newer than all that the older batch waits for.
    pub(super) fn is_news(&self, created: i64) -> bool {
        self.marked.max(self.begun_at).is_some_and(|zxid| created > zxid)
    }

    /// Counts a request of a batch.
    pub(super) fn begun(&mut self, batch: u64) {
        self.open[usize::from(batch > self.older)] += 1;
    }

    /// Counts the reply to a request of a batch.
    pub(super) fn completed(&mut self, batch: u64) {
        self.open[usize::from(batch > self.older)] -= 1;
    }

    /// Records that the notifications of all transactions up to `zxid` have started their requests. Returns the newest
    /// transaction up to which all requests have their replies.
    pub(super) fn mark(&mut self, zxid: i64) -> Option<i64> {
        if self.begun_at.is_none() && zxid > 0 {
            self.begun_at = Some(zxid);
        }
        // Twice, because the newer batch may be empty too.
        for _ in 0..2 {
            if self.open[0] == 0 {
                self.reached = self.reached.max(self.marked);
                self.marked = Some(zxid);
                self.older += 1;
                self.open = [self.open[1], 0];
            }
        }
        self.reached
    }

    /// Forgets the reached transaction, because notifications were missed. The open requests show their changes.
    pub(super) fn restart(&mut self) {
        (self.marked, self.reached, self.begun_at) = (None, None, None);
    }

    pub(super) const fn reached(&self) -> Option<i64> {
        self.reached
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_reached_before_the_requests_of_the_mark_are_answered() {
        let mut freshness = Freshness::default();
        let first = freshness.newest();
        freshness.begun(first);
        assert_eq!(freshness.mark(5), None);
        let second = freshness.newest();
        freshness.begun(second);
        assert_eq!(freshness.mark(7), None);
        freshness.completed(first);
        assert_eq!(freshness.mark(9), Some(5), "the second request is open");
        freshness.completed(second);
        assert_eq!(freshness.mark(9), Some(9));
        assert_eq!(freshness.mark(12), Some(12));
    }

    #[test]
    fn requests_that_replies_cause_belong_to_their_batch() {
        let mut freshness = Freshness::default();
        let load = freshness.newest();
        freshness.begun(load);
        freshness.mark(1);
        for zxid in 2..10 {
            freshness.begun(load);
            freshness.completed(load);
            assert_eq!(freshness.mark(zxid), None);
        }
        freshness.completed(load);
        assert_eq!(freshness.mark(10), Some(10));
    }
}
