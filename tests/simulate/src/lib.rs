//! Storms: clients that contend for a lock or for the lead, keep nodes standing, or have caches, while everything that can
//! go wrong does, and the notes on them.

#![allow(
    missing_docs,
    clippy::missing_panics_doc,
    clippy::missing_errors_doc,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::must_use_candidate,
    reason = "helpers of tests"
)]

pub mod caching;
pub mod candidates;
pub mod contenders;
pub mod registrants;
pub mod storm;
