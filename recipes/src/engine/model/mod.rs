//! A model checker over the real planner and the real drivers: it searches every order in which commits, deliveries and
//! faults can happen.
//!
//! | file | content |
//! | --- | --- |
//! | [`state`] | what a search knows at one moment |
//! | [`world`] | the leader's log, the servers, the connections |
//! | [`contender`] | the runner: its part in actions, replies and notifications |
//! | [`properties`] | the properties that must hold |
//! | [`search`] | the search |
//! | [`scenario`] | the scenarios, and broken planners |
//! | [`tests`] | the bounds, and the broken planners that must be found |
//!
//! The environment variable `CURATOR_MODEL=long` widens the bounds.

mod contender;
mod properties;
mod scenario;
mod search;
mod state;
mod tests;
mod world;
