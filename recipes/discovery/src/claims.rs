//! The registrations of a client, by the paths of their nodes.

use std::collections::HashSet;
use std::sync::Arc;

use curator_framework::CuratorFramework;
use curator_framework::recipe::RecipeClient as _;
use parking_lot::Mutex;

type Key = (String, String);

/// The namespaces and paths of all registrations of a client.
#[derive(Debug, Default)]
struct Claims(Mutex<HashSet<Key>>);

/// The claim of one registration to a path, up to its drop.
#[derive(Debug)]
pub(crate) struct Claim {
    claims: Arc<Claims>,
    key: Key,
}

impl Claim {
    /// Claims a path. Returns `None` if another registration of the client has claimed it.
    pub(crate) fn new(client: &CuratorFramework, path: &str) -> Option<Self> {
        let (claims, key) = (client.extension::<Claims>(), (client.namespace().to_owned(), path.to_owned()));
        let is_new = claims.0.lock().insert(key.clone());
        is_new.then(|| Self { claims, key })
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.claims.0.lock().remove(&self.key);
    }
}
