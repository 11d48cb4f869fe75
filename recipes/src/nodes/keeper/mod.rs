//! The task that keeps one node standing.
//!
//! | file | contents |
//! | --- | --- |
//! | [`task`] | attempts, one session after the other |
//! | [`state`] | what the task knows |
//! | [`placing`] | one attempt: creates the node, or decides what stands at its path |
//! | [`data`] | compares the data that the server has, and writes the wanted data |
//! | [`holding`] | the time in which the node stands |
//! | [`contest`] | the pauses of two clients that undo each other's changes |
//! | [`closing`] | the end of the task |

mod closing;
mod contest;
mod data;
mod holding;
mod placing;
mod state;
mod task;

pub(super) use self::state::Keeper;
