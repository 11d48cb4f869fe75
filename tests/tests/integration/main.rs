//! The recipes and the framework against real servers: each test of `on_every_server!` runs unchanged on the in-process server and on Apache
//! ZooKeeper.

#[macro_use]
mod env;

mod cost;
mod exclusion;
mod framework;
mod loss;
mod misuse;
mod semaphore;
mod send_sync;
mod wire_faults;
