//! The node of a contender that was granted the lock.

use curator_framework::recipe::OwnedNode;

use crate::engine::batch::Turn;
use crate::engine::revocation::Revocation;
use crate::engine::same_session::Entry;
use crate::held::FencingToken;

/// A node that was granted the lock.
#[derive(Debug)]
pub(crate) struct Acquired {
    pub(crate) owned: OwnedNode,
    /// The facts that the session's other contenders may read.
    pub(crate) entry: Option<Entry>,
    /// The transaction that created the node, and the number of the pass.
    pub(crate) fencing_token: FencingToken,
    pub(crate) revocation: Option<Revocation>,
    /// The number of contenders ahead when it joined, or 1 if it joined behind one of its session without a listing.
    pub(crate) queue_position: usize,
    /// The batch's turn that ends with the node.
    pub(crate) turn: Option<Turn>,
}

impl Acquired {
    /// Makes the fencing token of the node: the transaction that created it.
    pub(super) fn new(owned: OwnedNode, revocation: Option<Revocation>) -> Self {
        let fencing_token = FencingToken::of_node(owned.czxid().unwrap_or_default());
        Self { owned, entry: None, fencing_token, revocation, queue_position: 0, turn: None }
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
