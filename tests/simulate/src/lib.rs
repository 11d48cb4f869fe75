//! Storms: clients that contend for a lock while everything that can go wrong does, and what is written down about them.

#![allow(
    missing_docs,
    clippy::missing_panics_doc,
    clippy::missing_errors_doc,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::must_use_candidate,
    reason = "helpers of tests"
)]

pub mod contenders;
pub mod storm;
