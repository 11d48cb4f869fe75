//! Queues on both servers, over either client.

mod faults;
mod kinds;
mod plain;
mod simple;
