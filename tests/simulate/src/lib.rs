//! Storms: clients use the recipes while everything that can go wrong does. The notes on them are checked.

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
pub mod scribe;
pub mod storm;
pub mod together;
