//! Few nodes for the tasks of one client that wait at one lock: they form a *batch*.
//!
//! The tasks wait in the process, in the order in which they came. A task of the client takes one node for all of them, or
//! several leases of a semaphore, by the engine's own contender, which does not know of batches. A release passes the node
//! to the next entry without a request. [`plan`] decides, [`lobby`] has the entries, [`driver`] is the client's task,
//! [`source`] is the lock.

mod driver;
mod lobby;
mod plan;
mod source;

pub(crate) use self::lobby::{GrantedNode, Lobby, Turn};
pub(crate) use self::plan::Supply;
pub(crate) use self::source::{Boxed, Source};
