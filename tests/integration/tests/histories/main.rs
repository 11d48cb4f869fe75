//! Servers that were restored from a backup, or have lost their data: caches, values, nodes, ids, and all recipes at once.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on fails")]

mod apache;
mod program;
mod restored;
