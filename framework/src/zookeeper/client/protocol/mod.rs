//! One ZooKeeper session as a state machine without I/O: bytes in, bytes out, time as an argument, events out.
//!
//! The socket task opens connections, carries bytes and calls [`Protocol::lost`]; this module makes all decisions about the
//! session. A reply out of order or a record that does not decode is a [`Violation`]: the socket task closes the connection,
//! and every outstanding request ends as `ConnectionLoss`. A reply above the limit ends its request alone, and its bytes
//! are skipped.

mod connection;
mod ending;
mod machine;
mod receiving;
mod restoring;
mod watches;

#[cfg(test)]
mod golden;
#[cfg(test)]
mod stories;

pub(super) use self::connection::Violation;
pub(super) use self::machine::{Event, Protocol, Settings};
