//! Queues: Curator's own tests and the defects that they leave out, on the in-process server and on Apache ZooKeeper.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on fails")]

mod batches;
mod both_clients;
mod costs;
mod dead_letters;
mod defects;
mod ended_sessions;
mod locked;
mod locked_faults;
mod promises;
mod stage;
