//! Curator's own tests of its framework, by name, and what they leave out. What Curator does in the background is here
//! a future that is spawned.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on fails")]

mod ground;

mod access;
mod added_credentials;
mod background;
mod both_clients;
mod changing;
mod cleaning;
mod closing;
mod connection_states;
mod containers;
mod creating;
mod credentials;
mod ending;
mod ensembles;
mod error_listeners;
mod error_policies;
mod failed_deletes;
mod faults;
mod lost_replies;
mod namespaces;
mod operations;
mod owned_transactions;
mod panics;
mod parents;
mod protection;
mod retry_loops;
mod roots;
mod run;
mod session_order;
mod throttled;
mod waiting;
mod watches;
mod with_cluster;
mod without_containers;
