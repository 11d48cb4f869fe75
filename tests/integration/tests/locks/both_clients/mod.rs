//! Tests that run with our client and with `zookeeper-async`.

mod exclusion;
mod guards;
mod send_sync;
mod sequence_end;
