//! The client below its facade: what operations, retries and the supervisor share.

mod client_core;
pub(crate) mod config;
pub(crate) mod retry_loop;

pub(crate) use self::client_core::{ClientCore, ClientState, LifeCycle, Shutdown, TaskEnd, WeakCore};
