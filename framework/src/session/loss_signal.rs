//! The loss of an owned node. `error_states.rs` says when a suspended connection is one.

use std::fmt;
use std::sync::Arc;

use super::Session;
use super::known_node::KnownNode;
use crate::error::Result;
use crate::model::namespace::Namespace;
use crate::zookeeper::SessionEnd;

/// The reason why something that was held in ZooKeeper is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LossReason {
    /// The session has ended.
    Session(SessionEnd),
    /// The node was deleted, but not by its owner.
    NodeDeleted,
    /// The connection was in a state that the client's
    /// [`ConnectionStateErrorPolicy`](crate::ConnectionStateErrorPolicy) takes for an error.
    ConnectionError,
}

impl std::error::Error for LossReason {}

impl fmt::Display for LossReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Session(end) => end.fmt(f),
            Self::NodeDeleted => f.write_str("the node was deleted, but not by its owner"),
            Self::ConnectionError => f.write_str("the connection was suspended"),
        }
    }
}

/// The signal of the loss of an owned node.
#[derive(Debug, Clone)]
pub struct LossSignal {
    pub(super) session: Session,
    pub(super) node: Option<Arc<KnownNode>>,
    /// The session's count of error states when this signal was created.
    pub(super) error_states: u64,
}

impl LossSignal {
    /// Returns the reason of the loss, or `None` while the node is held. Local, no request. It is right also at the
    /// first call after the process or the machine slept.
    #[must_use]
    pub fn loss(&self) -> Option<LossReason> {
        if let Some(end) = self.session.end_reason() {
            return Some(LossReason::Session(end));
        }
        if self.node.as_deref().is_some_and(|node| node.is_deleted()) {
            return Some(LossReason::NodeDeleted);
        }
        if self.session.error_states() > self.error_states {
            return Some(LossReason::ConnectionError);
        }
        (!self.session.is_alive()).then_some(LossReason::Session(SessionEnd::DeadlinePassed))
    }

    /// Asks the leader whether the session and the node exist. Returns `Ok(None)` if so, else the reason of the loss.
    ///
    /// # Errors
    ///
    /// `Error::ConnectionLoss` and other errors of the requests: it is not known whether the node is lost.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    pub async fn verify(&self) -> Result<Option<LossReason>> {
        let asked = async {
            loop {
                let reconnects = self.session.epoch();
                self.session.write_barrier().await?;
                if let Some(node) = &self.node {
                    let found = self.session.in_namespace(Namespace::default()).exists(&node.path).await?;
                    if found.is_none_or(|found| node.is_followed_by(&found)) {
                        node.set_deleted();
                    }
                }
                // After a reconnect, the server that answered the read may not have applied the barrier yet.
                if self.session.epoch() == reconnects {
                    return Ok(());
                }
            }
        };
        let asked = asked.await;
        match self.loss() {
            Some(loss) => Ok(Some(loss)),
            None => asked.map(|()| None),
        }
    }

    /// Resolves with the reason when the node is lost, at once if it is.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    pub async fn lost(&self) -> LossReason {
        let deleted = async {
            match &self.node {
                Some(node) => *node.deleted.wait().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            end = self.session.ended() => LossReason::Session(end),
            () = deleted => LossReason::NodeDeleted,
            () = self.session.error_states_above(self.error_states) => LossReason::ConnectionError,
        }
    }
}
