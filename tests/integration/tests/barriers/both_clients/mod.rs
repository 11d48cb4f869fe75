//! Barriers and latches on both servers, over either client.

mod barrier;
mod curator;
mod double;
mod latch;
