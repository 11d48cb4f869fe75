//! The servers of the ensemble, and how a client follows their changes.

pub(crate) mod config;
pub(crate) mod provider;
pub(crate) mod tracker;
