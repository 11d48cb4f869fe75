//! Curator's own tests of its locks, and what they leave out; on the in-process server and on Apache ZooKeeper.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on fails")]

#[allow(dead_code, reason = "other tests use the rest of it")]
#[macro_use]
#[path = "../integration/env.rs"]
mod env;

mod acls;
mod changing_limit;
mod direct;
mod downgrade;
mod gaps;
mod internals;
mod kinds;
mod laws;
mod many;
mod multi;
mod mutex;
mod observed;
mod participants;
mod read_write;
mod revocation;
mod semaphore;
mod semaphore_cluster;
mod semaphore_mutex;
