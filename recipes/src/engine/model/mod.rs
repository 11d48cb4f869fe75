//! The contenders of a lock around the [world](crate::model), with the real planner and the real drivers.
//!
//! | file | content |
//! | --- | --- |
//! | [`state`] | what a search knows at one moment |
//! | [`steps`] | the steps: the leader's log, the servers, the connections |
//! | [`contender`] | the runner: its part in actions, replies and notifications |
//! | [`latch`] | the hand-over of a leader to a candidate |
//! | [`request`] | several leases of one request |
//! | [`properties`] | the properties that must hold |
//! | [`scenario`] | the scenarios, and broken planners |
//! | [`tests`] | the bounds, and the broken planners that must be found |
//!
//! The model has the planner, but repeats the runners by hand: a change of a runner must be repeated here.
//!
//! | runner | its model |
//! | --- | --- |
//! | `run/runner.rs`, `waits.rs`, `same_session.rs`, `shared_reads.rs` | `contender` |
//! | `run/calls.rs`, `leader/handover.rs` | `latch` |
//!
//! The model leaves out that contenders share one request, and that a few nodes are read in place of a listing.

mod contender;
mod latch;
mod properties;
mod request;
mod scenario;
mod state;
mod steps;
mod tests;
