//! Owners of locks, and their repeated acquires.

pub(crate) mod caller;
pub(crate) mod owner;
pub(crate) mod reentrant;
