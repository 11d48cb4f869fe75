//! Several Apache ZooKeeper servers as one ensemble, and a lock on it.
//!
//! These tests need the Debian package `zookeeper`. Without it they fail and say so.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

use std::time::{Duration, Instant};

use curator_test::{ApacheCluster, ApacheError};

#[test]
fn probe() {
    let t = Instant::now();
    let cluster = ApacheCluster::builder().tick(Duration::from_millis(500)).start().unwrap_or_else(|e| panic!("{e}"));
    eprintln!("started {:?} {} {:?} {:?}", t.elapsed(), cluster.version(), cluster.leader(), cluster.connections());
    let _ = std::process::Command::new("ss").args(["-tnpH"]).status();
    let first = cluster.wait_until_serving().unwrap();
    let t = Instant::now();
    cluster.isolate(first).unwrap();
    let second = cluster.wait_until_serving().unwrap();
    eprintln!("isolated {first} -> {second} {:?}", t.elapsed());
    let t = Instant::now();
    cluster.repair(first).unwrap();
    cluster.wait_for_server(first).unwrap();
    eprintln!("mended {:?} {:?}", t.elapsed(), cluster.connections());
    std::thread::sleep(Duration::from_secs(5));
    cluster.wait_for_server(first).unwrap();
    eprintln!("mended {:?} {:?}", t.elapsed(), cluster.connections());
    let _ = std::process::Command::new("ss").args(["-tnpH"]).status();
    let _: Option<ApacheError> = None;
}
