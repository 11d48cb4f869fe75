//! The cost of locks, nodes, groups, caches, counters, barriers and clients: requests, round trips, processor time, and
//! hand-offs in long queues.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on fails")]

mod barriers;
mod both_clients;
mod caches;
mod counters;
mod discovery;
mod double_barriers;
mod each_client;
mod groups;
mod latches;
mod meter;
mod nodes;
mod queues;
mod read_write_queues;
mod scale;
mod waiting;
