//! Reads of items ahead of their turn, several in one write.

use std::collections::HashMap;

use curator_framework::{Error, Session, Stat, make_path};

use crate::queues::backlog::{Apart, Backlog};
use crate::queues::error::QueueError;
use crate::queues::follower::Changed;

/// The largest number of items that are read at once.
const MOST: usize = 16;
/// The number of items from which on those that wait are dropped before the next read. A consumer with rivals skips items.
const MOST_KEPT: usize = 64;
/// The bytes from which on the same is done, and the bytes that one read aims at.
const MOST_BYTES: usize = 1 << 20;

/// The items that were read ahead of their turn.
#[derive(Debug)]
pub(super) struct Reads {
    found: HashMap<Box<str>, (Vec<u8>, Stat)>,
    /// The bytes of the data in `found`.
    bytes: usize,
    /// The bytes of the largest item of the newest read.
    largest: usize,
    /// The number of items to read at once. Other consumers make it smaller.
    window: usize,
    /// The limit of the window.
    most: usize,
}

impl Reads {
    /// Creates reads for a consumer that takes this number of items at once.
    pub(super) fn new(batch: usize) -> Self {
        let most = batch.max(MOST);
        Self { found: HashMap::new(), bytes: 0, largest: 0, window: most, most }
    }

    /// Forgets the items that have changed.
    pub(super) fn forget(&mut self, changed: &Changed) {
        match changed {
            Changed::Written(name) | Changed::Deleted(name) => drop(self.take(name)),
            Changed::All | Changed::Path { .. } => self.clear(),
        }
    }

    /// Records that another consumer was faster: what is read ahead is likely in vain.
    pub(super) const fn conflict(&mut self) {
        self.window = if self.window > 1 { self.window / 2 } else { 1 };
    }

    /// Records that an item was taken.
    pub(super) const fn success(&mut self) {
        if self.window < self.most {
            self.window += 1;
        }
    }

    /// Removes and returns an item that was read.
    pub(super) fn take(&mut self, name: &str) -> Option<(Vec<u8>, Stat)> {
        let found = self.found.remove(name)?;
        self.bytes -= found.0.len();
        Some(found)
    }

    /// Drops the items that were read before, if there are many.
    fn make_room(&mut self) {
        if self.found.len() >= MOST_KEPT.max(self.most) || self.bytes >= MOST_BYTES {
            self.clear();
        }
    }

    fn clear(&mut self) {
        self.found.clear();
        self.bytes = 0;
    }

    /// Keeps an item that was read.
    fn keep(&mut self, name: Box<str>, found: (Vec<u8>, Stat)) {
        drop(self.take(&name));
        self.bytes += found.0.len();
        self.largest = self.largest.max(found.0.len());
        self.found.insert(name, found);
    }

    /// Returns the number of items to read at once, and the most to take at once. Large ones are read one by one.
    pub(super) fn window(&self) -> usize {
        self.window.min(MOST_BYTES / self.largest.max(1)).max(1)
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.found.contains_key(name)
    }

    /// Reads the items that are due from this place on, at once. An item that is missing leaves the backlog. An
    /// item that cannot be read is set apart, and its error returned. Returns `true` if an item is missing: another
    /// consumer was faster.
    pub(super) async fn read(
        &mut self,
        session: &Session,
        path: &str,
        backlog: &mut Backlog,
        (now, skip): (i64, usize),
        failed: impl Fn(&str, Error) -> QueueError,
    ) -> Result<bool, QueueError> {
        self.make_room();
        let names = backlog.due(now).skip(skip).take(self.window()).filter(|name| !self.has(name));
        let names: Vec<Box<str>> = names.map(Into::into).collect();
        let read = session.get_data_of_all(names.iter().map(|name| make_path(path, name)).collect()).await?;
        let (mut is_missing, mut first_error) = (false, None);
        self.largest = 0;
        for (name, read) in names.into_iter().zip(read) {
            match read {
                Ok(found) => self.keep(name, found),
                Err(Error::NoNode { .. }) => {
                    is_missing = true;
                    backlog.deleted(&name);
                }
                Err(error) => {
                    let error = failed(&name, error);
                    if error.is_of_one_item() && first_error.is_some() {
                        // It is reported by the next read.
                        continue;
                    }
                    if error.is_of_one_item() {
                        // The others are not delayed.
                        backlog.set_apart(&name, Apart::Reported);
                    }
                    first_error = first_error.or(Some(error));
                }
            }
        }
        first_error.map_or(Ok(is_missing), Err)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_that_are_skipped_do_not_pile_up() {
        let mut reads = Reads::new(1);
        for number in 0..1_000 {
            reads.make_room();
            reads.keep(format!("queue-{number:010}").into(), (vec![0; 10_000], Stat::default()));
            let bytes: usize = reads.found.values().map(|(data, _)| data.len()).sum();
            assert_eq!(reads.bytes, bytes);
            assert!(reads.found.len() <= MOST_KEPT && bytes < MOST_BYTES + 10_000, "{}", reads.found.len());
        }
    }

    #[test]
    fn few_large_items_are_read_at_once() {
        let mut reads = Reads::new(1);
        assert_eq!(reads.window(), MOST);
        reads.keep("queue-0000000000".into(), (vec![0; MOST_BYTES / 4], Stat::default()));
        assert_eq!(reads.window(), 4);
        reads.keep("queue-0000000000".into(), (vec![0; 3 * MOST_BYTES], Stat::default()));
        assert_eq!((reads.window(), reads.bytes), (1, 3 * MOST_BYTES));
        drop(reads.take("queue-0000000000"));
        assert_eq!(reads.bytes, 0);
    }
}
