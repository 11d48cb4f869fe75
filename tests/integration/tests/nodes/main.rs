//! Nodes that stand and groups.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on fails")]

mod attack;
mod attack_in_process;
