//! The limits of the contenders of one client at one path, which keep a queue of thousands from delaying its head and
//! from filling the servers.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use curator_framework::recipe::RecipeClient as _;
use curator_framework::{CuratorFramework, PathText};
use parking_lot::Mutex;
use tokio::sync::{Semaphore, SemaphorePermit};

/// The most contenders of a client that join at one path at once. The requests of the queue's head follow theirs on the
/// connection: a release is behind at most so many creates and reads.
const MOST_JOINING: usize = 64;

/// The places of a client's contenders at one path.
#[derive(Debug)]
pub(crate) struct Places {
    joins: Semaphore,
}

/// The places of a client, by the path as the server knows it.
#[derive(Default)]
struct OfClient(Mutex<HashMap<Box<str>, Weak<Places>>>);

impl Places {
    /// Returns the places that all objects of a client share at a path.
    pub(super) fn of(client: &CuratorFramework, path: &PathText) -> Arc<Self> {
        let of_client = client.extension::<OfClient>();
        let mut of_client = of_client.0.lock();
        let key = path.full().into();
        if let Some(places) = of_client.get(&key).and_then(Weak::upgrade) {
            return places;
        }
        // Before each growth, so that the map is at most twice as large as needed.
        if of_client.len() == of_client.capacity() {
            of_client.retain(|_, places| places.strong_count() > 0);
        }
        let places = Arc::new(Self { joins: Semaphore::new(MOST_JOINING) });
        of_client.insert(key, Arc::downgrade(&places));
        places
    }

    /// Waits until the contender may send its create. The permit ends once the contender knows what it waits for.
    pub(super) async fn join(&self) -> Option<SemaphorePermit<'_>> {
        // Never closed.
        self.joins.acquire().await.ok()
    }
}
