//! The in-process server, which answers as ZooKeeper 3.8 does, against Apache ZooKeeper: the same raw requests to both,
//! and every reply and event compared.
//!
//! `CURATOR_TEST_APACHE=host:port` names a server that runs for all tests; without it
//! they start one.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

mod access;
mod differences;
mod four_letter;
mod multi;
mod nodes;
mod random;
mod request;
mod sequence_end;
mod sessions;
mod side;
mod versions;
mod watches;
