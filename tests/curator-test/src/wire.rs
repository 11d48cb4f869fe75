//! ZooKeeper's wire format, for tests that exchange raw bytes with a server.
//!
//! The records are [`curator_wire`]'s, which the framework's client uses too; [`read_frame`] and [`write_frame`]
//! carry them over a connection.

mod frame;

pub use curator_wire::*;
pub use frame::{read_frame, write_frame};
