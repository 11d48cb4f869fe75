//! The states of a node that a task keeps.

use curator_framework::{SessionId, Zxid};

use crate::nodes::error::NodeError;

/// A node that exists on the server.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct StandingNode {
    /// The path, with the number and the id of the node's name.
    pub path: String,
    /// The zxid of the transaction that created the node. A node that was created again has another one.
    pub czxid: Zxid,
    /// The session that owns the node; `None` if the mode is not ephemeral.
    pub session: Option<SessionId>,
    /// `true` if this object has found the node, and not created it. An ephemeral node is never adopted.
    pub adopted: bool,
    /// The data that another client has written, if it is not the wanted data.
    pub foreign_data: Option<Vec<u8>>,
}

/// The session that has a node at the path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Owner {
    /// The session of this client, or, in a mode that is not ephemeral, this node.
    Us,
    /// Another session, or this one for another object of the client; `None` for a node that is not ephemeral.
    Other(Option<SessionId>),
}

/// The state of a [`PersistentNode`](crate::PersistentNode).
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum NodeState {
    /// The node was not started.
    Latent,
    /// The node does not exist: not yet, or no longer because its session has ended or another client has deleted it.
    Creating,
    /// The node exists. The state stays during a lost connection, until the session ends.
    Standing(StandingNode),
    /// The node exists, as far as is known: the server refuses a request about it. The node tries again, with growing
    /// pauses of up to 30 s. Its session lives; a deletion by another client is noticed with the next reply.
    Refused {
        /// The node, as it was last known.
        node: StandingNode,
        /// The error of the request.
        cause: NodeError,
    },
    /// Another node is at the path: an ephemeral one of another session or of another object of this client, or one of
    /// the other kind, ephemeral or not. It is not touched. This node is created when that node is deleted.
    TakenBy {
        /// The session that owns the other node, this client's for another object; `None` if that node is not
        /// ephemeral.
        session: Option<SessionId>,
        /// The zxid of the transaction that created the other node.
        czxid: Zxid,
    },
    /// An attempt failed with an error that waiting cannot fix, such as a missing permission or parent. The node tries
    /// again, with growing pauses of up to 30 s. `Error::TooManyEphemeralNodes` passes when nodes of the session have
    /// gone, so the pauses after it are of up to 1 s.
    Failed(NodeError),
    /// The node or its client was closed, or the runtime of the node has ended.
    Closed,
}

impl NodeState {
    /// Returns the node that exists, even if a read is refused now.
    #[must_use]
    pub const fn standing(&self) -> Option<&StandingNode> {
        match self {
            Self::Standing(node) | Self::Refused { node, .. } => Some(node),
            _ => None,
        }
    }

    pub(super) fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Standing(one), Self::Standing(other)) => one == other,
            (Self::Refused { node, cause }, Self::Refused { node: other, cause: others }) => {
                node == other && cause.to_string() == others.to_string()
            }
            // Servers that have lost their data give out the same transactions again.
            (Self::TakenBy { session, czxid }, Self::TakenBy { session: other, czxid: others }) => {
                (session, czxid) == (other, others)
            }
            (Self::Failed(one), Self::Failed(other)) => one.to_string() == other.to_string(),
            _ => std::mem::discriminant(self) == std::mem::discriminant(other),
        }
    }
}
