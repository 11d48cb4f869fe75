//! The cost of locks, nodes, groups and clients: requests, round trips, processor time, and hand-offs in long queues.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on fails")]

mod both_clients;
mod caches;
mod each_client;
mod groups;
mod meter;
mod nodes;
mod scale;
mod waiting;
