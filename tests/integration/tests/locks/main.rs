//! Curator's own tests of its locks, and what they leave out; on the in-process server and on Apache ZooKeeper.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on fails")]

mod acls;
mod both_clients;
mod bounded;
mod cache_cancellation;
mod cancellation;
mod counter_cancellation;
mod double_barrier_cancellation;
mod downgrade;
mod error_sections;
mod guarded_set;
mod held;
mod internals;
mod latch_cancellation;
mod laws;
mod leader_cancellation;
mod loss;
mod misuse;
mod multi;
mod mutex;
mod named_errors;
mod node_cancellation;
mod operations;
mod owners;
mod participants;
mod persistent_names;
mod public_methods;
mod quiet_logs;
mod read_write;
mod revocation;
mod semaphore;
mod shared_cancellation;
mod shutdown;
mod tracing_events;
