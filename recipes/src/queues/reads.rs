//! Reads of items ahead of their turn, several in one write.

use std::collections::HashMap;

use curator_framework::{Error, Session, Stat, make_path};
use futures_util::future::join_all;

use crate::queues::backlog::{Apart, Backlog};
use crate::queues::error::QueueError;
use crate::queues::follower::Changed;

/// The largest number of items that are read at once.
const MOST: usize = 16;

/// The items that were read ahead of their turn.
#[derive(Debug)]
pub(super) struct Reads {
    found: HashMap<Box<str>, (Vec<u8>, Stat)>,
    /// The number of items to read at once. Other consumers make it smaller.
    window: usize,
}

impl Reads {
    pub(super) fn new() -> Self {
        Self { found: HashMap::new(), window: MOST }
    }

    /// Forgets the items that have changed.
    pub(super) fn forget(&mut self, changed: &Changed) {
        match changed {
            Changed::Written(name) | Changed::Deleted(name) => drop(self.found.remove(&**name)),
            Changed::All => self.found.clear(),
        }
    }

    /// Records that another consumer was faster: what is read ahead is likely in vain.
    pub(super) const fn conflict(&mut self) {
        self.window = if self.window > 1 { self.window / 2 } else { 1 };
    }

    /// Records that an item was taken.
    pub(super) const fn success(&mut self) {
        if self.window < MOST {
            self.window += 1;
        }
    }

    /// Removes and returns an item that was read.
    pub(super) fn take(&mut self, name: &str) -> Option<(Vec<u8>, Stat)> {
        self.found.remove(name)
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.found.contains_key(name)
    }

    /// Reads the items that are due from this place on, in one write. An item that is missing leaves the backlog. An
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
        let names = backlog.due(now).skip(skip).take(self.window).filter(|name| !self.has(name));
        let names: Vec<Box<str>> = names.map(Into::into).collect();
        let reads = names.iter().map(|name| {
            let node = make_path(path, name);
            async move { session.get_data(&node).await }
        });
        let read = session.in_one_write(join_all(reads)).await;
        let (mut is_missing, mut first_error) = (false, None);
        for (name, read) in names.into_iter().zip(read) {
            match read {
                Ok(found) => drop(self.found.insert(name, found)),
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
