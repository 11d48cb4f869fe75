//! The hold of an owner, a member, a participant or a delivery on its node.

use std::sync::OnceLock;
use std::time::Duration;

use curator_framework::recipe::{LossSignal, OwnedNode, RecipeClient as _};
use curator_framework::{CuratorFramework, Error, LossReason, PathText, Session};

use crate::engine::verify_in_session;
use crate::held::FencingToken;

/// The hold on an owned node, from its creation until its owner gives it up.
pub(crate) struct NodeHold {
    /// Does not keep the client.
    client: CuratorFramework,
    /// The path of the barrier, the latch or the item.
    path: String,
    node_path: String,
    session: Session,
    signal: LossSignal,
    token: FencingToken,
    /// Set when the owner gives the node up: a loss that preceded that.
    given_up: OnceLock<Option<LossReason>>,
}

impl NodeHold {
    /// Returns the hold on a node that was created.
    pub(crate) fn new(client: &CuratorFramework, path: &str, node: &OwnedNode) -> Self {
        Self {
            client: client.weak_clone(),
            path: path.to_owned(),
            node_path: node.path().unwrap_or_default().to_owned(),
            session: node.session().clone(),
            signal: node.loss_signal(),
            token: FencingToken::of_node(node.czxid().unwrap_or_default()),
            given_up: OnceLock::new(),
        }
    }

    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    pub(crate) fn node_path(&self) -> &str {
        &self.node_path
    }

    pub(crate) fn session(&self) -> &Session {
        &self.session
    }

    /// Ends the hold, once. Returns the reason of a loss that preceded its end.
    pub(crate) fn give_up(&self) -> Option<LossReason> {
        *self.given_up.get_or_init(|| self.signal.loss())
    }

    /// Returns the reason of a loss; `None` while the node is held, and if it was given up before.
    pub(crate) fn loss(&self) -> Option<LossReason> {
        self.given_up.get().copied().unwrap_or_else(|| self.signal.loss())
    }

    pub(crate) fn is_held(&self) -> bool {
        self.given_up.get().is_none() && self.signal.loss().is_none()
    }

    pub(crate) fn remaining(&self) -> Duration {
        if self.is_held() { self.session.remaining() } else { Duration::ZERO }
    }

    pub(crate) async fn lost(&self) -> LossReason {
        let reason = self.signal.lost().await;
        match self.given_up.get() {
            None => reason,
            Some(Some(before)) => *before,
            // The end of the hold preceded the loss of the node.
            Some(None) => std::future::pending().await,
        }
    }

    pub(crate) fn is_given_up(&self) -> bool {
        self.given_up.get().is_some()
    }

    /// Asks the leader for the reason of a loss; `None` if the node is held.
    pub(crate) async fn verify(&self) -> Result<Option<LossReason>, Error> {
        verify_in_session(&self.client, &self.session, &self.signal, &self.path).await
    }

    pub(crate) fn token(&self) -> FencingToken {
        self.token
    }

    /// Returns the path for an error.
    pub(crate) fn path_text(&self) -> PathText {
        self.client.path_text(&self.path)
    }
}
