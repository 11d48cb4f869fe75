//! Counters, atomic values and unique ids: Curator's own tests and what they leave out, on the in-process server, on
//! Apache ZooKeeper, and under simulated faults.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on fails")]

mod both_clients;
mod deletions;
mod failures;
mod stage;
mod versions;
