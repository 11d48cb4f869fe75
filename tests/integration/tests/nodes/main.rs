//! Persistent nodes, and groups: Curator's own tests and what they leave out, on the in-process server, on Apache
//! ZooKeeper, and under simulated faults.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on fails")]

mod both_clients;
mod faults;
mod faults_in_process;
mod group_servers;
mod in_process;
mod limits;
mod partition;
mod partition_kazoo;
mod partition_runs;
mod partition_simulated;
mod partition_stage;
mod simulated;
mod stage;
mod ttl;
