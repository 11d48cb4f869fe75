//! Typed nodes on both servers, over either client.

mod typed;
mod typed_cache;
mod typed_faults;
