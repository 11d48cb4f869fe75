//! Caches: Curator's own tests and further ones, on the in-process server, on Apache ZooKeeper, and under simulated
//! faults.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on fails")]

mod access;
mod both_clients;
mod crowded;
mod curator_cache;
mod faces;
mod large_replies;
mod lifetimes;
mod listeners;
mod node_cache;
mod outages;
mod overload;
mod panics;
mod path_children_cache;
mod resync;
mod simulated;
mod stage;
mod tree_cache;
