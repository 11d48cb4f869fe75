//! Tests that run with our client and with `zookeeper-async`.

mod facade;
mod wire_faults;
