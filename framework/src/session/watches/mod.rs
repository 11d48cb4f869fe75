//! The framework's own watch registry.
//!
//! The server keeps one watch for each path and kind of a session; this registry keeps its waiters. An event or the end
//! of the session wakes a waiter. A reconnect wakes it only if the client does not restore watches. A wake-up is a
//! hint: the waiter reads again.
//!
//! The socket task passes notifications straight to the registry, in the order of the wire with the replies. So the
//! event of a deletion wakes no waiter for the next node of its path. Changes of the connection reach the session
//! through the supervisor. Events that a reconnect replays wait in the registry until the session has the new
//! connection, because their waiters send requests on it.

mod registry;
mod waiters;
mod wake;
mod watch;

pub(crate) use self::registry::WatchRegistry;
pub use self::wake::{Found, WakeReason};
pub use self::watch::{Watch, WatchedData};
