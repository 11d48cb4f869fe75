//! Processes of several kinds at the same paths: this crate, Java's Curator, and kazoo.
//!
//! Each process is driven over its standard input and output. All of them read the clock of the host, which counts from
//! its start, so what they report can be put in one order: see [`record`].

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on fails")]

mod caches;
mod counts;
mod crowds;
mod discovery;
mod downgrade;
mod expiry;
mod fleet;
mod groups;
mod kazoo;
mod kills;
mod leaders;
mod limits;
mod participants;
mod peer;
mod queues;
mod record;
mod revocation;
mod rust_peer;
mod sequence_end;
mod shared_count;
mod tries;
mod turns;
