//! The reads that the servers refuse.

use std::collections::BTreeMap;
use std::time::Duration;

use curator_test::versions::Access;

/// A read of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Read {
    Data,
    Children,
}

impl Read {
    const fn is_refused(self, access: Access) -> bool {
        access.is_denied
            || match self {
                Self::Data => access.has_large_data,
                Self::Children => access.has_large_list,
            }
    }
}

/// The newest refusal of a read.
#[derive(Debug, Clone, Copy)]
enum Refusal {
    Lasts,
    /// It has ended without a notification. A cache repeats the read at the next one.
    EndedInSilence,
    Ended(Duration),
}

/// The refusals of all reads so far.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    access: BTreeMap<String, Access>,
    newest: BTreeMap<(String, Read), Refusal>,
}

impl Refusals {
    /// Returns `true` if clients get no notification of changes of this node.
    pub(super) fn is_denied(&self, path: &str) -> bool {
        self.access.get(path).is_some_and(|access| access.is_denied)
    }

    pub(super) fn set(&mut self, at: Duration, path: &str, access: Access) {
        let before = self.access.insert(path.to_owned(), access).unwrap_or_default();
        for read in [Read::Data, Read::Children] {
            let now = match (read.is_refused(before), read.is_refused(access)) {
                (_, true) => Refusal::Lasts,
                (true, false) if before.is_denied => Refusal::EndedInSilence,
                (true, false) => Refusal::Ended(at),
                (false, false) => continue,
            };
            self.newest.insert((path.to_owned(), read), now);
        }
    }

    /// Records that clients are notified of a change of this node, or read it again.
    pub(super) fn notified(&mut self, at: Duration, path: &str) {
        for read in [Read::Data, Read::Children] {
            if let Some(refusal) = self.newest.get_mut(&(path.to_owned(), read)) {
                if matches!(refusal, Refusal::EndedInSilence) {
                    *refusal = Refusal::Ended(at);
                }
            }
        }
    }

    /// Records that clients read all nodes again.
    pub(super) fn all_notified(&mut self, at: Duration) {
        for refusal in self.newest.values_mut() {
            if matches!(refusal, Refusal::EndedInSilence) {
                *refusal = Refusal::Ended(at);
            }
        }
    }

    /// Returns `true` if a read was ever refused: the reader of a stream may be slow.
    pub(super) fn was_refused(&self, path: &str, read: Read) -> bool {
        self.newest.contains_key(&(path.to_owned(), read))
    }

    /// Returns `true` if a cache may not have the reply to a read. `is_recent` tells whether a refusal that has ended at a time
    /// counts.
    pub(super) fn excuse(&self, path: &str, read: Read, is_recent: impl Fn(Duration) -> bool) -> bool {
        match self.newest.get(&(path.to_owned(), read)) {
            None => false,
            Some(Refusal::Lasts | Refusal::EndedInSilence) => true,
            Some(Refusal::Ended(at)) => is_recent(*at),
        }
    }
}
