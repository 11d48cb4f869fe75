//! What the integration tests share: servers and clients, every lock under one face, and the stages of simulated scenes.

#![allow(
    missing_docs,
    missing_debug_implementations,
    clippy::missing_panics_doc,
    clippy::missing_errors_doc,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::must_use_candidate,
    clippy::return_self_not_must_use,
    reason = "helpers of tests"
)]

pub mod caches;
pub mod clients;
pub mod connection_stage;
pub mod cuts;
pub mod env;
pub mod following;
pub mod held;
pub mod in_process;
pub mod kinds;
pub mod lock_stage;
pub mod operations;
pub mod refusals;
pub mod simulated_stage;
