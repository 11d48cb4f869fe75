//! The framework's own watch registry.
//!
//! The server keeps one watch for each path and kind of a session; this registry keeps its waiters. An event or the end
//! of the session wakes a waiter. A reconnect wakes it only if the client does not restore watches. A wake-up is a
//! hint: the waiter reads again.

mod registry;
mod waiters;
mod wake;
mod watch;

pub(crate) use self::registry::WatchRegistry;
pub use self::wake::{Found, WakeReason};
pub use self::watch::{Watch, WatchedData};
