//! The nodes of a simulated server, and their changes.

/// One node at the server.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Node {
    /// The transaction that created it.
    pub czxid: i64,
    /// The session that owns it; 0 if it is not ephemeral.
    pub session: i64,
    /// Its data.
    pub data: Vec<u8>,
}

/// One change at the server.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Change {
    /// The node was created.
    Created {
        /// Its path.
        path: String,
        /// Its first state.
        node: Node,
    },
    /// The data of the node changed.
    DataChanged {
        /// Its path.
        path: String,
        /// The new data.
        data: Vec<u8>,
    },
    /// The node was deleted.
    Deleted {
        /// Its path.
        path: String,
        /// The transaction that deleted it. A node that replaces it in one transaction has the same `czxid`.
        zxid: i64,
    },
}
