//! Barriers, double barriers and count-down latches: Curator's own tests and what they leave out.
//!
//! They run on the in-process server, on Apache ZooKeeper, and under simulated faults.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on fails")]

mod barrier_faults;
mod both_clients;
mod double;
mod double_curator;
mod double_deaths;
mod double_faults;
mod double_simulated;
mod double_stage;
mod fault;
mod latch;
mod latch_faults;
mod latch_requests;
