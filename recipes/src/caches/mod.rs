//! Caches: local copies of nodes and subtrees that know how fresh they are.
//!
//! | file | part |
//! | --- | --- |
//! | `engine` | the decisions, without I/O: notifications and replies in, requests and changes out |
//! | `task` | the standing task: one loop a session around the engine |
//! | `source` | the notifications in one session: a subscription, or watches set one by one |
//! | `shared` | the contents between the task and the readers |
//! | `events` | the bounded streams of changes |
//! | `curator_cache` | the public cache |

pub(crate) mod curator_cache;
mod engine;
pub(crate) mod error;
pub(crate) mod events;
pub(crate) mod listener;
pub(crate) mod model;
pub(crate) mod options;
mod shared;
mod source;
mod task;
