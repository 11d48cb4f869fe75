//! The requests of a session, and what their replies prove.

mod create;
mod joined;
mod read;
mod recount;
mod submit;
mod transaction;
mod write;
