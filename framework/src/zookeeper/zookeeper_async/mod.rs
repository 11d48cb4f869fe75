//! The adapter to the crate `zookeeper-async`, the only folder that uses it.
//!
//! The crate starts a new session after an expiry, and matches replies by their order alone. It does not repeat
//! credentials or watches, cannot say which session it has, and cannot be stopped. So the adapter keeps these rules:
//!
//! * The state callback itself ends the handle at an expiry, before anything else. Every reply is delivered only
//!   after that flag was read.
//! * Each reply belongs to the connection on which its request was submitted. After a reconnect it counts as lost.
//! * A connection counts only when it is proven. First all older requests are answered or dropped. Then the adapter
//!   sends the credentials and two probes, one by one: reads with known, different results. If the session owns
//!   ephemeral nodes, a create shows the session's id.
//! * The reply to every create is compared with its request, and the node's owner with the owner of earlier creates.
//! * At most [`PLACES`](window::PLACES) requests are inside the crate, because its queue of 64 can block itself. A
//!   caller drives its request until it drops it, or slots run out, or the connection is lost. From then on the
//!   monitor does. So a caller that stops polling neither frees its request's slot nor blocks it.
//! * A panic of the crate over a reply ends the handle.
//! * An ended handle's close is queued last, and repeated until the crate says that it was sent.

mod convert;
mod ephemerals;
mod factory;
mod handle;
pub(crate) mod handshake;
mod in_flight;
mod judge;
mod link;
mod monitor;
mod session_proof;
pub(crate) mod slots;
mod window;

use std::time::Duration;

pub use self::factory::ZooKeeperAsyncFactory;

const CLIENT: &str = "zookeeper-async";
/// The pause between the crate's tries to reach a server, and between our tries to probe and to close.
const RETRY_PAUSE: Duration = Duration::from_millis(100);
/// The longest wait for the crate's report of the first connection, which may precede the adapter's listener.
const FIRST_CONNECT: Duration = Duration::from_millis(200);
