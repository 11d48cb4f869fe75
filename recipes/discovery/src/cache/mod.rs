//! Services that are followed: local copies over the caches of `curator-recipes`.
//!
//! | file | part |
//! | --- | --- |
//! | `contents` | the decisions, without I/O: events of the nodes in, instances and changes out |
//! | `service_cache` | the instances of one service |
//! | `service_names` | the names of all services |

mod contents;
pub(crate) mod service_cache;
pub(crate) mod service_names;

pub use contents::InstanceChange;
pub(crate) use contents::Known;
