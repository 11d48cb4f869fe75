//! What the benchmarks share: clients that take and release one mutex.

#![allow(missing_docs, missing_debug_implementations, clippy::missing_errors_doc, reason = "helpers of benchmarks")]

pub mod cycles;
pub mod socket;
