//! The node of a contender that was granted the lock.

use std::ops::Deref;
use std::sync::{Arc, OnceLock, Weak};

use curator_framework::CuratorFramework;
use curator_framework::recipe::{LossListener, OwnedNode};
use parking_lot::Mutex;

use crate::engine::batch::Turn;
use crate::engine::hold::Hold;
use crate::engine::revocation::Revocation;
use crate::engine::same_session::Entry;
use crate::held::FencingToken;

/// A node that was granted the lock.
#[derive(Debug)]
pub(crate) struct Acquired {
    pub(crate) owned: HeldNode,
    /// The facts that the session's other contenders may read.
    pub(crate) entry: Option<Entry>,
    /// The transaction that created the node, and the number of the pass.
    pub(crate) fencing_token: FencingToken,
    pub(crate) revocation: Option<Revocation>,
    /// The number of contenders ahead when it joined, or 1 if it joined without a listing, behind one of its session.
    pub(crate) queue_position: usize,
    /// The limit of the decision that granted it. Under a lower one it may be one too many.
    pub(crate) limit: u32,
    /// The batch's turn that ends with the node.
    pub(crate) turn: Option<Turn>,
}

impl Acquired {
    /// Makes the fencing token of the node: the transaction that created it.
    pub(super) fn new(owned: OwnedNode, revocation: Option<Revocation>, limit: usize) -> Self {
        // A larger limit cannot fall below this one unseen: no server has so many nodes.
        let limit = u32::try_from(limit).unwrap_or(u32::MAX);
        let fencing_token = FencingToken::of_node(owned.czxid().unwrap_or_default());
        let owned = HeldNode::Own(owned);
        Self { owned, entry: None, fencing_token, revocation, queue_position: 0, limit, turn: None }
    }

    /// Returns whether it may serve no further task.
    pub(super) fn is_over(&self, limit: usize) -> bool {
        is_lost(&self.owned) || u32::try_from(limit).is_ok_and(|limit| limit < self.limit)
    }

    /// Returns the path of its node.
    pub(crate) fn path(&self) -> &str {
        self.owned.path().unwrap_or_default()
    }

    /// Returns the name of its node.
    pub(crate) fn name(&self) -> &str {
        self.owned.node_name().unwrap_or_default()
    }
}

/// The node of a holder.
#[derive(Debug)]
pub(crate) enum HeldNode {
    Own(OwnedNode),
    /// Other readers of the client have it too.
    Shared(Arc<SharedNode>),
}

/// A node that several readers hold. The last one deletes it.
#[derive(Debug)]
pub(crate) struct SharedNode {
    owned: OwnedNode,
    /// Lets contenders of the same session find the holder.
    _entry: Option<Entry>,
    holds: Mutex<Vec<Weak<Hold>>>,
    revocation: OnceLock<Revocation>,
}

impl HeldNode {
    /// Has a hold log the loss of the node, without a task that waits for it.
    pub(super) fn tells(&self, hold: Weak<Hold>) {
        match self {
            Self::Own(owned) => owned.set_loss_listener(hold),
            Self::Shared(shared) => shared.holds.lock().push(hold),
        }
    }

    /// Watches the node for revocation requests. All holds of a shared node have one watch.
    pub(super) fn revocation(&self, client: &CuratorFramework) -> Revocation {
        let watch = || Revocation::watch(client, self, None);
        match self {
            Self::Own(_) => watch(),
            Self::Shared(shared) => shared.revocation.get_or_init(watch).clone(),
        }
    }

    /// Gives up a share. The last one gets the node, to delete it.
    pub(crate) fn into_last(self) -> Option<OwnedNode> {
        match self {
            Self::Own(owned) => Some(owned),
            Self::Shared(shared) => Arc::into_inner(shared).map(|shared| shared.owned),
        }
    }
}

impl Deref for HeldNode {
    type Target = OwnedNode;

    fn deref(&self) -> &OwnedNode {
        match self {
            Self::Own(owned) => owned,
            Self::Shared(shared) => &shared.owned,
        }
    }
}

/// Returns whether a node serves no further task.
fn is_lost(owned: &OwnedNode) -> bool {
    owned.loss_signal().loss().is_some() || !owned.session().is_alive()
}

impl SharedNode {
    pub(super) fn new(owned: OwnedNode, entry: Option<Entry>) -> Arc<Self> {
        let (holds, revocation) = (Mutex::default(), OnceLock::new());
        let shared = Arc::new(Self { owned, _entry: entry, holds, revocation });
        let listener: Weak<Self> = Arc::downgrade(&shared);
        shared.owned.set_loss_listener(listener);
        shared
    }

    /// Returns whether it no longer serves a reader.
    pub(super) fn is_lost(&self) -> bool {
        is_lost(&self.owned)
    }
}

impl LossListener for SharedNode {
    fn node_lost(&self) {
        let holds = std::mem::take(&mut *self.holds.lock());
        holds.iter().filter_map(Weak::upgrade).for_each(|hold| hold.node_lost());
    }
}
