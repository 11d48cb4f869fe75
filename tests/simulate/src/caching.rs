//! Clients with caches, writers of the cached nodes, and the record of both. Only the storm's faults and servers are
//! elsewhere.

mod reader;
mod scribe;
mod writer;

pub use reader::Reader;
pub use scribe::{Book, Scribe};
pub use writer::Writer;
pub(crate) use writer::below;

/// The names of all nodes below the root: few, so that nodes are often created again.
pub const NAMES: [&str; 4] = ["a", "b", "c", "d"];
/// The number of levels below the root.
pub const LEVELS: usize = 3;

/// The paths of a client's nodes, at the server and at the client.
#[derive(Debug, Clone, Copy)]
pub struct Place {
    /// The root of the nodes at the server.
    pub root: &'static str,
    /// The path of the client's namespace.
    pub namespace: &'static str,
}

impl Place {
    /// Returns a path as the client knows it.
    fn at_the_client<'p>(&self, path: &'p str) -> &'p str {
        path.strip_prefix(self.namespace).unwrap_or(path)
    }

    /// Returns a path as the server knows it.
    fn at_the_server(&self, path: &str) -> String {
        format!("{}{path}", self.namespace)
    }
}
