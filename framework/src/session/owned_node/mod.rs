//! The ownership of a node from before its create is sent, so that no node is left behind.

mod delete;
mod exact;
mod hold;
mod node;
mod transactions;

pub use self::exact::Occupant;
pub use self::node::{Created, OwnedNode};
