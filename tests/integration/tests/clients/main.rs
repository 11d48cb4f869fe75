//! The clients below the framework: ours against servers that misbehave, ours beside the crate `zookeeper-async`, and the
//! adapter to that crate.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on fails")]

mod client;
mod decoder_run;
mod our_client;
mod zookeeper_async;
