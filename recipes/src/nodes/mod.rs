//! Nodes that tasks keep: a task creates its node in each session, and again when another client deletes it.

mod claims;
pub(crate) mod error;
mod keeper;
pub(crate) mod options;
pub(crate) mod persistent_node;
mod plan;
mod shared;
pub(crate) mod state;
pub(crate) mod ttl_node;
