//! Caches: local copies of nodes and subtrees that know how fresh they are.
//!
//! | file | part |
//! | --- | --- |
//! | `engine` | the decisions, without I/O: notifications and replies in, requests and changes out |
//! | `task` | the standing task: one loop a session around the engine, over the source of `standing` |
//! | `contents` | the contents between the task and the readers |
//! | `events` | the bounded streams of changes |
//! | `model`, `snapshot`, `request` | the nodes as readers see them, the contents at one moment, the reads that a cache asks for |
//! | `connection` | the changes of the connection, for the streams of the older caches |
//! | `curator_cache` | the public cache |
//! | `legacy` | the streams of the older caches: `node_cache`, `path_children_cache`, `tree_cache` |

mod connection;
mod contents;
pub(crate) mod curator_cache;
mod engine;
pub(crate) mod error;
pub(crate) mod events;
pub(crate) mod legacy;
pub(crate) mod listener;
pub(crate) mod model;
pub(crate) mod node_cache;
pub(crate) mod options;
pub(crate) mod path_children_cache;
mod request;
pub(crate) mod snapshot;
mod task;
pub(crate) mod tree_cache;
