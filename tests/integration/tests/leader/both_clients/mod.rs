//! Elections on both servers, over either client.

mod acls;
mod edges;
mod latch;
mod listeners;
mod moves;
mod observers;
mod outages;
mod policies;
mod selector;
mod waits;
