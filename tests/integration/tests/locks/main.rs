//! Curator's own tests of its locks, and what they leave out; on the in-process server and on Apache ZooKeeper.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on fails")]

mod acls;
mod both_clients;
mod bounded;
mod downgrade;
mod error_sections;
mod guarded_set;
mod held;
mod internals;
mod laws;
mod loss;
mod misuse;
mod multi;
mod mutex;
mod named_errors;
mod one_node;
mod one_node_attacks;
mod one_node_readers;
mod owners;
mod participants;
mod persistent_names;
mod quiet_logs;
mod read_write;
mod revocation;
mod semaphore;
mod shared_lease_attacks;
mod shared_leases;
mod shutdown;
mod tower_layers;
mod tracing_events;
mod waiting_nodes;
