//! The requests of a session, and what their replies prove.
//!
//! A listing marks every owned node that it lacks as deleted, and a read marks a node that it does not find. Nodes that
//! are newer than the reply's zxid are not marked. Replies of `zookeeper-async` have no zxid, so they mark no node. An
//! administrator may delete a holder's node. Without the mark, a later contender of the same client would be granted
//! the lock while the older guard reports that it is held.

mod create;
mod joined;
mod read;
mod recount;
mod submit;
mod transaction;
mod write;
