//! `SharedValue` and `SharedCount`: on the in-process server, on Apache ZooKeeper, and under simulated faults.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on fails")]

#[allow(dead_code, reason = "other tests use the rest of it")]
#[path = "../integration/clients.rs"]
mod clients;
#[macro_use]
#[path = "../integration/env.rs"]
#[allow(dead_code, reason = "made for more tests than these")]
mod env;

mod curator;
mod promises;
mod simulated;
mod storm;
