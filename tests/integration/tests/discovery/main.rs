//! Service discovery: registrations, queries, caches and providers, on the in-process server and on Apache ZooKeeper.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on fails")]

mod both_clients;
mod in_process;
mod new_sessions;
mod stage;
