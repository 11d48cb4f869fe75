//! Clients with caches, writers of the cached nodes, and the notes on both: the part of a storm that is the same in any
//! world.

mod reader;
mod scribe;
mod writer;

pub use reader::Reader;
pub use scribe::Scribe;
pub use writer::Writer;
pub(crate) use writer::below;

/// The names of all nodes below the root. They are few, so that nodes are often created again.
pub const NAMES: [&str; 4] = ["a", "b", "c", "d"];
/// The number of levels below the root.
pub const LEVELS: usize = 3;

/// The place of a client's nodes.
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
