//! The servers and the proxy of `curator-test`, and Apache ZooKeeper as it starts it.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on fails")]

mod apache_cluster;
mod apache_security;
mod apache_server;
mod fault_proxy;
mod testing_server;
mod third_party;
