//! Services that are followed: local copies over the caches of `curator-recipes`.
//!
//! | file | part |
//! | --- | --- |
//! | `change` | their reports |
//! | `service_cache` | the instances of one service |
//! | `service_names` | the names of all services |

mod change;
pub(crate) mod service_cache;
pub(crate) mod service_names;

pub use change::InstanceChange;
pub(crate) use change::Known;
