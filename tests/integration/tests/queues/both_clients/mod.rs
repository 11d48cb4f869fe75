//! Queues on both servers, over either client.

mod faults;
mod kinds;
mod path;
mod plain;
mod promises;
mod simple;
