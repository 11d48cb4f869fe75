//! Curator's own tests of its framework, by name, and what they leave out. What Curator does in the background is here
//! a future that is spawned.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on fails")]

#[allow(dead_code, reason = "other tests use the rest of it")]
#[path = "../integration/clients.rs"]
mod clients;
#[macro_use]
#[path = "../integration/env.rs"]
#[allow(dead_code, reason = "the integration tests need more of it")]
mod env;
mod ground;
mod stage;

mod access;
mod background;
mod changing;
mod closing;
mod connection_states;
mod containers;
mod creating;
mod credentials;
mod edges;
mod ending;
mod ensembles;
mod error_policies;
mod failed_deletes;
mod faults;
mod lost_replies;
mod namespaces;
mod operations;
mod parents;
mod protection;
mod retry_loops;
mod roots;
mod session_order;
mod waiting;
mod waiting_cost;
mod watches;
mod with_cluster;
mod without_containers;
