//! Every close ends, and every number of a caller is safe.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on fails")]

mod dropped;
mod extremes;
mod silent_network;
