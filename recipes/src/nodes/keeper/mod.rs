//! The task that keeps one node: performs the steps of its [plan](crate::nodes::plan), and decides nothing.
//!
//! | file | contents |
//! | --- | --- |
//! | [`task`] | one step after the other; the waits |
//! | [`requests`] | the steps that send requests |
//! | [`reports`] | the state and the results that the task publishes |
//! | [`contest`] | the pauses of two clients that undo each other's changes |

mod contest;
mod reports;
mod requests;
mod task;

pub(super) use self::task::Keeper;
