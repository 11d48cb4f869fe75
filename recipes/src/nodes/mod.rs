//! Nodes that tasks keep: a task creates its node in each session, and again when another client deletes it.
//!
//! Such a node has no heartbeat. It excludes no other client, so nothing has to prove that its session lives.
//! Locks have to prove it, and write each eighth of the session timeout.
//!
//! The node of an earlier session is replaced, not awaited. The client knows the ids of its sessions, so it recognises
//! the node. One transaction deletes and creates, so followers see no gap. A session that ended by its deadline is
//! closed with the next connection, which may delete the node first.

mod claims;
pub(crate) mod error;
mod keeper;
pub(crate) mod options;
pub(crate) mod persistent_node;
mod plan;
mod shared;
pub(crate) mod state;
pub(crate) mod ttl_node;
