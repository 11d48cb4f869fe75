//! Leader election: Curator's own tests of latches and selectors, and what they leave out; on the in-process server, on
//! Apache ZooKeeper, and under simulated faults.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on fails")]

mod both_clients;
mod calls;
mod cluster;
mod delays;
mod ends;
mod handovers;
mod held_nodes;
mod in_process;
mod moves;
mod simulated;
mod stage;
mod suspended;
mod terms;
mod writes;
