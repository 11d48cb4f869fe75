//! Tests that run with our client and with `zookeeper-async`.

mod ephemeral_limit;
mod facade;
mod wire_faults;
