//! Elections at their worst moments: lost replies, broken connections, ends of tasks, and Java's latches beside.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on fails")]

mod calls;
mod delays;
mod ends;
mod moves;
mod suspended;
mod terms;
