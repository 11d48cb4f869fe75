//! `SharedValue`, `SharedCount` and typed nodes: on the in-process server, on Apache ZooKeeper, and under simulated faults.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on fails")]

mod both_clients;
mod curator;
mod migrations;
mod promises;
mod simulated;
mod storm;
mod typed;
mod typed_stage;
