//! Curator's own tests of its framework, by name, and what they leave out. What Curator does in the background is here
//! a future that is spawned.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on fails")]

#[macro_use]
#[path = "../integration/env.rs"]
#[allow(dead_code, reason = "the integration tests need more of it")]
mod env;
mod stage;

mod background;
mod connection_states;
mod ending;
mod ensembles;
mod faults;
mod retry_loops;
mod session_order;
mod waiting;
mod waiting_cost;
mod with_cluster;
