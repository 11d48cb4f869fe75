//! The recipes and the framework against real servers: each test of `on_every_server!` runs unchanged on the
//! in-process server and on Apache ZooKeeper.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on fails")]

#[macro_use]
mod env;

mod clients;
mod cost;
mod exclusion;
mod framework;
mod guards;
mod loss;
mod misuse;
mod semaphore;
mod send_sync;
mod sequence_end;
mod wire_faults;
