//! The hold of an owner, a member or a participant on its node.

use std::sync::OnceLock;
use std::time::Duration;

use curator_framework::recipe::{LossSignal, OwnedNode, RecipeClient as _};
use curator_framework::{CuratorFramework, LossReason, Session};

use crate::barriers::error::BarrierError;
use crate::engine::verify_in_session;
use crate::held::FencingToken;

/// The hold on an owned node, from its creation until its owner gives it up.
pub(super) struct NodeHold {
    /// Does not keep the client.
    client: CuratorFramework,
    /// The path of the barrier or latch.
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
    pub(super) fn new(client: &CuratorFramework, path: &str, node: &OwnedNode) -> Self {
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

    pub(super) fn path(&self) -> &str {
        &self.path
    }

    pub(super) fn node_path(&self) -> &str {
        &self.node_path
    }

    pub(super) fn session(&self) -> &Session {
        &self.session
    }

    /// Ends the hold, once. Returns the reason of a loss that preceded its end.
    pub(super) fn give_up(&self) -> Option<LossReason> {
        *self.given_up.get_or_init(|| self.signal.loss())
    }

    /// Returns the reason of a loss; `None` while the node is held, and if it was given up before.
    pub(super) fn loss(&self) -> Option<LossReason> {
        self.given_up.get().copied().unwrap_or_else(|| self.signal.loss())
    }

    pub(super) fn is_held(&self) -> bool {
        self.given_up.get().is_none() && self.signal.loss().is_none()
    }

    pub(super) fn remaining(&self) -> Duration {
        if self.is_held() { self.session.remaining() } else { Duration::ZERO }
    }

    pub(super) async fn lost(&self) -> LossReason {
        let reason = self.signal.lost().await;
        match self.given_up.get() {
            None => reason,
            Some(Some(before)) => *before,
            // The end of the hold preceded the loss of the node.
            Some(None) => std::future::pending().await,
        }
    }

    pub(super) async fn verify(&self) -> Result<(), BarrierError> {
        if self.given_up.get().is_some() {
            let reason = "it has given its node up".to_owned();
            return Err(BarrierError::InvalidArgument { argument: "owner", reason });
        }
        match verify_in_session(&self.client, &self.session, &self.signal, &self.path).await? {
            None => Ok(()),
            Some(reason) => Err(self.lost_with(reason)),
        }
    }

    pub(super) fn token(&self) -> FencingToken {
        self.token
    }

    pub(super) fn lost_with(&self, reason: LossReason) -> BarrierError {
        BarrierError::Lost { path: self.client.path_text(&self.path), reason }
    }
}
