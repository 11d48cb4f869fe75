//! Our own client against servers that misbehave: scripted ones, the in-process server behind a proxy, and Apache.

mod closing;
mod cluster;
mod decoding;
mod fronts;
mod hosts;
mod identity;
mod limits;
mod reconnect;
mod relay;
mod runtime_end;
pub(crate) mod scripted;
mod timeouts;
mod watches;
