//! The versions of a simulated server's nodes, and the reads that the servers refuse: what a cache may show.

/// One version of a node.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Node {
    /// The transaction that created it.
    pub czxid: i64,
    /// The transaction that changed its data last.
    pub mzxid: i64,
    /// The number of changes of its data.
    pub version: i32,
    /// Its data; `None` for a reader that does not keep data.
    pub data: Option<Vec<u8>>,
}

/// One change at the server.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Change {
    /// The transaction of the change, or a later one before the next change.
    pub zxid: i64,
    /// The path of the node.
    pub path: String,
    /// The node from then on; `None` if it was deleted.
    pub node: Option<Node>,
}

/// The answers of the servers to the clients' reads of one node.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Access {
    /// The clients may not read the node: not its data, nor its children. They get no notification of its changes.
    pub is_denied: bool,
    /// The reply with its data is above the clients' limit.
    pub has_large_data: bool,
    /// The reply with its children is above the clients' limit.
    pub has_large_list: bool,
}

/// One event at the server.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Event {
    /// A node has changed.
    Changed(Change),
    /// The servers have lost all nodes. The transactions continue from this one.
    Emptied(i64),
    /// The servers answer reads of this node so from now on. At the start they answer all.
    Access(String, Access),
}
