//! The parts that benchmarks share: clients that take and release one mutex, processes, requests, figures.

#![allow(missing_docs, missing_debug_implementations, clippy::missing_errors_doc, reason = "helpers of benchmarks")]

pub mod cycles;
pub mod figures;
pub mod harness;
pub mod process;
pub mod requests;
pub mod socket;
