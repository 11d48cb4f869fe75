//! One node for the tasks of one client that wait at one lock: they form a *batch*.
//!
//! The tasks wait in the process, in the order in which they came. A task of the client takes the node for all of them,
//! by the engine's own contender, which does not know of batches. A release passes the node to the next entry without a
//! request. [`plan`] decides, [`lobby`] has the entries, [`driver`] is the client's task.

mod driver;
mod lobby;
mod plan;

pub(crate) use self::lobby::{Lobby, Turn};
