//! Barriers, which cannot hang and let no member in alone, and a count-down latch.

pub(crate) mod barrier;
pub(crate) mod double;
pub(crate) mod error;
pub(crate) mod latch;
pub(crate) mod owned;
mod ownership;
mod waiting;
