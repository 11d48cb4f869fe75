//! Exhaustive searches over the real planners: every order in which commits, deliveries and faults can happen.
//!
//! | file | content |
//! | --- | --- |
//! | [`world`] | the nodes, the servers that show them, and the sessions |
//! | [`search`] | the search, and random walks |
//!
//! A model adds the clients around the world: it repeats a runner by hand and asks the runner's own planner. Each lies
//! beside its planner. The environment variable `CURATOR_MODEL=long` widens the bounds.

pub(crate) mod search;
pub(crate) mod world;
