//! The part of the engine that only leader latches use: the position in the queue, and the move directly behind the
//! leader.
//!
//! A leader that resigns in favour of a candidate writes a wish into the path's data. It calls the candidate by a node
//! that it creates and deletes, and that the candidate watches. The candidate then creates a node with the leader's
//! number and deletes its own, in one transaction. The name of the new node sorts behind the leader's, so the candidate
//! keeps waiting until the leader has left.
//!
//! The new name has the same number and a larger id, so a listing alone has the order. A stored order would have to be
//! read with each listing, and Java's candidates would not know it.
//!
//! Another candidate may have moved ahead of a latch when the node ahead of it is deleted. Each move writes the path's
//! data. So the latch directly behind the leader reads that data with a watch, and lists after it in the same write. If
//! the data has not changed since, the deletion of the leader's node grants without a listing, and the data is known.
//!
//! That rests on the order of notifications. Servers with the fix of CVE-2024-23944 break it: they drop the notification
//! of a client that may not read the path any more.

mod record;

use std::task::{Context, Poll};

use curator_framework::spi::Operation;
use curator_framework::{CreateMode, Session, Stat, Watch, make_path};
use futures_util::FutureExt as _;
use parking_lot::Mutex;
use tokio::sync::watch;

pub(crate) use self::record::Record;
use crate::engine::driver::SortedChildren;

/// Curator's name for the nodes of a latch.
pub(crate) const LATCH_NAME: &str = "latch-";

/// The position of a candidate in the newest listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Place {
    /// The name of its node.
    pub(crate) own: String,
    /// The number of candidates ahead.
    pub(crate) position: usize,
}

/// The way of one latch through the queue.
#[derive(Debug, Default)]
pub(crate) struct Candidacy {
    /// The candidate waits for each one ahead of it in turn, and not for the second one ahead. With a delay it has to know
    /// the last leader.
    pub(super) hears_each: bool,
    place: watch::Sender<Option<Place>>,
    /// The last candidate that was seen directly ahead.
    last_ahead: Mutex<Option<String>>,
    /// The path's data, read with the newest listing.
    read: Mutex<Option<Read>>,
}

#[derive(Debug)]
struct Read {
    data: Vec<u8>,
    stat: Stat,
    /// Kept by the candidate directly behind the leader.
    watch: Option<Watch>,
}

impl Read {
    fn is_current(&self) -> bool {
        self.watch.as_ref().is_some_and(|watch| !watch.has_fired())
    }
}

impl Candidacy {
    pub(crate) fn new(hears_each: bool) -> Self {
        Self { hears_each, ..Self::default() }
    }

    /// Returns the position as a channel. It is `None` while no listing has shown the candidate's node.
    pub(crate) fn place(&self) -> watch::Receiver<Option<Place>> {
        self.place.subscribe()
    }

    /// Returns the name of the last candidate that was seen directly ahead.
    pub(crate) fn last_ahead(&self) -> Option<String> {
        self.last_ahead.lock().clone()
    }

    /// Takes the path's data as it was read with the newest listing, if it has not changed since. It has every write of the
    /// leaders that have led before this candidate.
    pub(crate) fn take_read(&self) -> Option<(Vec<u8>, Stat)> {
        let read = self.read.lock().take();
        read.filter(Read::is_current).map(|Read { data, stat, .. }| (data, stat))
    }

    /// Reads the path's data with a watch, and lists after that, in one write.
    pub(super) async fn list<T>(&self, at: &Session, base_path: &str, listing: impl Future<Output = T>) -> T {
        let both = futures_util::future::join(at.get_data_watched(base_path), listing);
        let (read, listed) = at.in_one_write(both).await;
        let read = read.ok().map(|read| Read { data: read.data, stat: read.stat, watch: Some(read.watch) });
        let before = std::mem::replace(&mut *self.read.lock(), read);
        drop(before);
        listed
    }

    /// Returns whether the path's data is as it was at the newest listing. Then no candidate has moved since.
    pub(super) fn is_current(&self) -> bool {
        self.read.lock().as_ref().is_some_and(Read::is_current)
    }

    /// Is ready once the path's data has changed since the newest listing, if that is watched.
    pub(super) fn poll_changed(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut read = self.read.lock();
        let Some(watch) = read.as_mut().and_then(|read| read.watch.as_mut()) else { return Poll::Pending };
        let changed = watch.poll_unpin(cx).map(drop);
        if changed.is_ready() {
            *read = None;
        }
        changed
    }

    /// Forgets the position, before another attempt and after a term.
    pub(crate) fn begin(&self) {
        self.take_read();
        self.place.send_replace(None);
        *self.last_ahead.lock() = None;
    }

    /// Records that the contender is directly behind the leader now.
    pub(super) fn is_behind(&self, leader: &str) {
        *self.last_ahead.lock() = Some(leader.to_owned());
    }

    pub(super) fn listed(&self, own: &str, queue: &SortedChildren) {
        let Some(position) = queue.position(own) else { return };
        if let Some(ahead) = position.checked_sub(1).and_then(|ahead| queue.get(ahead)) {
            *self.last_ahead.lock() = Some(ahead.to_owned());
        }
        if position > 1 {
            // A write of the data wakes no candidate that waits for several others.
            let watch = self.read.lock().as_mut().and_then(|read| read.watch.take());
            drop(watch);
        }
        let place = Some(Place { own: own.to_owned(), position });
        self.place.send_if_modified(|before| {
            let is_new = *before != place;
            *before = place;
            is_new
        });
    }
}

/// Returns the operations that call a candidate: a node is created and deleted at a path that the candidate watches. No
/// listing ever shows that node. A write of the candidate's own node would call it too, but also the latch behind it,
/// and Java's takes only a deletion into account and sets no other watch.
pub(crate) fn call(session: &Session, base_path: &str, candidate: &str) -> [Operation; 2] {
    let path = call_path(base_path, candidate);
    let (acl, mode) = (session.acl_for(&path), CreateMode::Ephemeral);
    let create = Operation::Create { path: path.clone(), data: Vec::new(), acl, mode };
    [create, Operation::Delete { path, version: None }]
}

pub(super) fn call_path(base_path: &str, candidate: &str) -> String {
    make_path(base_path, &format!("{candidate}-call"))
}

/// Returns the name of a node with the number of the leader's, without an id: `latch-0000000007`.
pub(super) fn name_beside<'a>(leader: &'a str, lock_name: &str) -> Option<&'a str> {
    leader.rfind(lock_name).map(|begin| &leader[begin..])
}

#[cfg(test)]
mod tests {
    use curator_framework::node_from_path;

    use super::*;
    use crate::engine::driver::{LockInternalsDriver as _, Predicate, StandardLockInternalsDriver};

    fn queue(names: &[&str]) -> SortedChildren {
        SortedChildren::new(names.iter().map(|name| (*name).to_owned()), "latch-", &StandardLockInternalsDriver)
    }

    #[test]
    fn a_candidate_beside_the_leader_waits_for_it() {
        let leader = "_c_00000000-0000-4000-8000-000000000001-latch-0000000005";
        let moved = "_c_00000000-0000-4000-8000-000000000002-latch-0000000005";
        let other = "_c_00000000-0000-4000-8000-000000000000-latch-0000000006";
        let waits_for = |node: &str, is_last_blocker| Predicate::WatchNode { node: node.into(), is_last_blocker };
        let both = queue(&[other, moved, leader]);
        assert_eq!(StandardLockInternalsDriver.gets_the_lock(&both, moved, 1), waits_for(leader, true));
        assert_eq!(StandardLockInternalsDriver.gets_the_lock(&both, other, 1), waits_for(moved, false));
        assert_eq!(StandardLockInternalsDriver.gets_the_lock(&queue(&[other, moved]), moved, 1), Predicate::Acquired);
        assert_eq!(name_beside(leader, "latch-"), Some("latch-0000000005"));
        assert_eq!(name_beside("readme", "latch-"), None);
        let call = call_path("/election", moved);
        assert_eq!(queue(&[node_from_path(&call)]).len(), 0, "a call is not a candidate");
    }

    #[test]
    fn the_place_is_that_of_the_newest_listing() {
        let candidacy = Candidacy::default();
        let place = candidacy.place();
        candidacy.listed("b-latch-2", &queue(&["a-latch-1", "b-latch-2"]));
        assert_eq!(*place.borrow(), Some(Place { own: "b-latch-2".into(), position: 1 }));
        candidacy.listed("b-latch-2", &queue(&["b-latch-2"]));
        assert_eq!(*place.borrow(), Some(Place { own: "b-latch-2".into(), position: 0 }));
        assert_eq!(candidacy.last_ahead().as_deref(), Some("a-latch-1"));
        candidacy.listed("b-latch-2", &queue(&[]));
        assert!(place.borrow().is_some(), "a listing without the own node shows no place");
        candidacy.begin();
        assert_eq!((place.borrow().clone(), candidacy.last_ahead()), (None, None));
    }
}
