//! The task that keeps one node: performs the steps of its [plan](crate::nodes::plan), and decides nothing.
//!
//! | file | contents |
//! | --- | --- |
//! | [`task`] | one step after the other; the waits |
//! | [`requests`] | the steps that send requests |
//! | [`lost_create`] | the node of a sequential create with a lost reply |
//! | [`reports`] | the state and the results that the task publishes |
//! | [`contest`] | the pauses of two clients that undo each other's changes |

mod contest;
mod lost_create;
mod reports;
mod requests;
mod task;

pub(super) use self::task::Keeper;
