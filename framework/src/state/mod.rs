//! The state of the connection, and how it changes: pure.

pub(crate) mod circuit_breaker;
pub(crate) mod connection_state;
