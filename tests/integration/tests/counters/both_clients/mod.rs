//! Counters on both servers, over either client.

mod contention;
mod curator;
mod faults;
mod layout;
mod numbers;
mod sources;
