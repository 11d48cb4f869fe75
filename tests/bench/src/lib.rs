//! The parts that benchmarks share.

#![allow(missing_docs, missing_debug_implementations, clippy::missing_errors_doc, reason = "helpers of benchmarks")]

pub mod chart;
pub mod clients;
pub mod cycles;
pub mod figures;
pub mod harness;
pub mod plain;
pub mod process;
pub mod servers;
pub mod socket;
