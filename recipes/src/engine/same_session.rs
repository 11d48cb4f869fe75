//! An optimisation: contenders of one session in one process share what they would otherwise read from the server.
//!
//! A holder records here that it is first. A successor in the same session then knows without a listing that only the
//! holder is ahead. It also reads here whether the server has answered the holder's delete. In a queue of one session a
//! hand-off therefore costs one request, the delete: the benchmark's row *300 waiters of one session, drained* shows
//! it.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use curator_framework::recipe::{OwnedNode, OwnerDelete, ProtectedId};
use curator_framework::{Session, node_from_path};
use parking_lot::Mutex;
use tokio::sync::SetOnce;

use crate::engine::plan::Epoch;

/// The contenders of one session in this process, by the ids in the names of their nodes.
#[derive(Debug, Default)]
pub(super) struct Contenders(Mutex<HashMap<ProtectedId, Arc<SharedFacts>>>);

/// The facts of a contender that the session's other contenders may read.
#[derive(Debug, Default)]
pub(super) struct SharedFacts {
    /// The connection that has shown that the contender is first.
    is_first: SetOnce<Epoch>,
    delete: OnceLock<OwnerDelete>,
}

impl SharedFacts {
    /// Resolves when the contender is first in the queue with this node, for good, with the connection that has shown
    /// it.
    pub(super) async fn first_with(&self, node: &str) -> Epoch {
        let epoch = *self.is_first.wait().await;
        if !self.has_kept(node) {
            std::future::pending().await
        }
        epoch
    }

    /// Returns whether the server has answered the contender's own delete of this node. Waits for an outstanding reply.
    pub(super) async fn has_deleted(&self, node: &str) -> bool {
        match self.delete.get() {
            Some(delete) if self.has_kept(node) => delete.is_done().await,
            _ => false,
        }
    }

    /// Returns whether the contender has kept this node. Lost replies may have left other nodes of its id in the queue,
    /// for which its reports do not hold.
    fn has_kept(&self, node: &str) -> bool {
        self.delete.get().is_some_and(|delete| node_from_path(delete.full_path()) == node)
    }
}

impl Contenders {
    pub(super) fn of(session: &Session) -> Arc<Self> {
        session.extension()
    }

    /// Returns the facts of the contender that owns the node with this name.
    pub(super) fn get(&self, name: &str) -> Option<Arc<SharedFacts>> {
        self.0.lock().get(&ProtectedId::of(name)?).map(Arc::clone)
    }

    pub(super) fn has(&self, name: &str) -> bool {
        ProtectedId::of(name).is_some_and(|id| self.0.lock().contains_key(&id))
    }
}

/// The entry of a contender, removed when dropped.
#[derive(Debug)]
pub(crate) struct Entry {
    id: ProtectedId,
    contenders: Arc<Contenders>,
    facts: Arc<SharedFacts>,
}

impl Entry {
    /// Enters a contender before its create is sent.
    pub(super) fn new(contenders: &Arc<Contenders>, owned: &OwnedNode) -> Self {
        let (id, facts) = (owned.protected_id(), Arc::<SharedFacts>::default());
        contenders.0.lock().insert(id, Arc::clone(&facts));
        Self { id, contenders: Arc::clone(contenders), facts }
    }

    /// Records the contender's one node: no lost reply has left another.
    pub(super) fn has_node(&self, owned: &OwnedNode) {
        if let Some(delete) = owned.owner_delete() {
            // A second call has the same node.
            let _known = self.facts.delete.set(delete);
        }
    }

    /// Records that the contender is first in the queue, for good, as a connection has shown.
    pub(super) fn is_first(&self, epoch: Epoch) {
        // A contender is granted once.
        let _said = self.facts.is_first.set(epoch);
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.contenders.0.lock().remove(&self.id);
    }
}
