//! Curator's own tests of its locks, and what they leave out; on the in-process server and on Apache ZooKeeper.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on fails")]

#[allow(dead_code, reason = "other tests use the rest of it")]
#[path = "../integration/clients.rs"]
mod clients;
#[allow(dead_code, reason = "other tests use the rest of it")]
#[macro_use]
#[path = "../integration/env.rs"]
mod env;

mod acls;
mod bounded;
mod cancellation;
mod changing_limit;
mod direct;
mod downgrade;
mod gaps;
mod guarded_set;
mod internals;
mod kinds;
mod laws;
mod loss;
mod many;
mod misuse;
mod multi;
mod mutex;
mod observed;
mod operations;
mod participants;
mod public_methods;
mod read_write;
mod revocation;
mod scale;
mod semaphore;
mod semaphore_cluster;
mod semaphore_mutex;
mod shared_cancellation;
mod shutdown;
mod stage;
mod stopped_process;
