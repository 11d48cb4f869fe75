//! The requests of a session, and what their replies prove.

mod create;
mod read;
mod recount;
mod submit;
mod transaction;
mod write;
