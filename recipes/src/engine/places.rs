//! The limits of the contenders of one client at one path, which keep a queue of thousands from delaying its head and
//! from filling the servers.
//!
//! An acquire takes a place before its first node, and keeps it through all sessions until it is granted or leaves. So the
//! acquires without a place, which wait here in their order, come after all that had a node, even in another session.
//! They have no node, so no contender waits for them: places add no cycle to the waits of the locks.
//!
//! A contender with a place takes turns with the others to join: it holds a permit from its create until it knows what
//! it waits for.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use curator_framework::recipe::RecipeClient as _;
use curator_framework::{CuratorFramework, PathText};
use tokio::sync::Semaphore;

use crate::engine::by_key::ByKey;

/// The most places by default.
pub(super) const MOST_WAITING: usize = 1_000;

/// The most contenders of a client that join at one path at once. The requests of the queue's head follow theirs on the
/// connection: a release waits for at most so many creates and reads.
const MOST_JOINING: usize = 64;

/// The places of a client's contenders at one path.
#[derive(Debug)]
pub(crate) struct Places {
    free: Semaphore,
    joins: Semaphore,
    /// The number of contenders with a place that know another one ahead.
    known: AtomicUsize,
    /// The contender that has left last knew another one ahead, or was granted behind it.
    last_was_known: AtomicBool,
}

/// The path as the server knows it, and the number of places.
type Key = (Box<str>, usize);

impl Places {
    /// Returns the places that all objects of a client with this number share at a path.
    pub(super) fn of(client: &CuratorFramework, path: &PathText, most: usize) -> Arc<Self> {
        client.extension::<ByKey<Key, Self>>().get((path.full().into(), most), || Arc::new(Self::new(most)))
    }

    /// Creates this number of places.
    pub(super) fn new(most: usize) -> Self {
        let free = Semaphore::new(most.min(Semaphore::MAX_PERMITS));
        let joins = Semaphore::new(MOST_JOINING);
        Self { free, joins, known: AtomicUsize::new(0), last_was_known: AtomicBool::new(false) }
    }

    /// Waits until the contender may send its create. The permit ends once the contender knows what it waits for.
    pub(super) async fn join(&self) -> Joining<'_> {
        // Never closed.
        if let Ok(permit) = self.joins.acquire().await {
            permit.forget();
        }
        Joining(self)
    }

    /// Takes a place, if one is free. No acquire passes those that wait.
    pub(super) fn try_take(self: &Arc<Self>) -> Option<Place> {
        self.free.try_acquire().ok()?.forget();
        Some(Place { places: Arc::clone(self), is_known: false })
    }

    /// Waits for a place, in the order of the first polls.
    pub(super) async fn take(self: Arc<Self>) -> Place {
        if let Ok(permit) = self.free.acquire().await {
            permit.forget();
        }
        Place { places: self, is_known: false }
    }

    /// Returns whether a contender with a place is in the queue, for all that the process knows. It is ahead of all
    /// acquires without a place.
    pub(super) fn is_taken(&self) -> bool {
        self.known.load(Ordering::Relaxed) > 0
    }

    /// Returns whether the contender that has just left a place was, or one with a place is, ahead of an acquire that
    /// takes it over.
    pub(super) fn was_taken(&self) -> bool {
        self.is_taken() || self.last_was_known.load(Ordering::Relaxed)
    }
}

/// The permit of a contender that joins. Smaller than the semaphore's: waiters are many.
pub(super) struct Joining<'a>(&'a Places);

impl Drop for Joining<'_> {
    fn drop(&mut self) {
        self.0.joins.add_permits(1);
    }
}

/// The place of one acquire.
#[derive(Debug)]
pub(super) struct Place {
    places: Arc<Places>,
    /// The acquire knows another contender ahead.
    is_known: bool,
}

impl Place {
    pub(super) fn is_known(&mut self, is_known: bool) {
        if is_known != self.is_known {
            self.is_known = is_known;
            match is_known {
                true => self.places.known.fetch_add(1, Ordering::Relaxed),
                false => self.places.known.fetch_sub(1, Ordering::Relaxed),
            };
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.places.last_was_known.store(self.is_known, Ordering::Relaxed);
        self.is_known(false);
        self.places.free.add_permits(1);
    }
}
