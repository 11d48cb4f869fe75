//! The choice of an instance for a request.
//!
//! | file | part |
//! | --- | --- |
//! | `strategy` | the strategies, without I/O |
//! | `down` | the instances that have failed, without I/O and without a clock |
//! | `service_provider` | the provider over a cache, and its picks |

pub(crate) mod down;
pub(crate) mod service_provider;
pub(crate) mod strategy;
