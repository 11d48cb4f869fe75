//! Our own client against servers that misbehave: scripted ones, the in-process server behind a proxy, and Apache.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on fails")]

#[allow(dead_code, reason = "other tests use the rest of it")]
#[path = "../integration/clients.rs"]
mod clients;
#[allow(dead_code, unused_macros, reason = "other tests use the rest of it")]
#[macro_use]
#[path = "../integration/env.rs"]
mod env;

mod closing;
mod cluster;
mod decoding;
mod fronts;
mod hosts;
mod identity;
mod limits;
mod reconnect;
mod relay;
mod scripted;
mod timeouts;
mod watches;
