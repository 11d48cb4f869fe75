#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

use std::time::{Duration, Instant};
use curator_test::{ApacheCluster};

#[test]
fn probe() {
    for _ in 0..8 {
    let t = Instant::now();
    let cluster = ApacheCluster::builder().tick(Duration::from_millis(500)).start().unwrap_or_else(|e| panic!("{e}"));
    eprintln!("started {:?} {} {:?} {:?}", t.elapsed(), cluster.version(), cluster.leader(), cluster.connections());
    let first = cluster.wait_until_serving().unwrap();
    let t = Instant::now();
    cluster.isolate(first).unwrap();
    let second = cluster.wait_until_serving().unwrap();
    eprintln!("isolated {first} -> {second} {:?}", t.elapsed());
    let t = Instant::now();
    cluster.repair(first).unwrap();
    while cluster.connections() != (2, 3) {std::thread::sleep(Duration::from_millis(10));}
    eprintln!("mended {:?} {:?}", t.elapsed(), cluster.connections());
    let t = Instant::now();
    cluster.kill(second).unwrap();
    let third = cluster.wait_until_serving().unwrap();
    eprintln!("killed {second} -> {third} {:?}", t.elapsed());
    let t = Instant::now();
    cluster.restart(second).unwrap();
    cluster.wait_for_server(second).unwrap();
    eprintln!("restarted {:?}", t.elapsed());
    let t = Instant::now();
    cluster.freeze(third).unwrap();
    let fourth = cluster.wait_until_serving().unwrap();
    eprintln!("frozen {third} -> {fourth} {:?}", t.elapsed());
    cluster.thaw(third).unwrap();
    let t = Instant::now();
    while cluster.connections() != (2, 3) {std::thread::sleep(Duration::from_millis(10));}
    eprintln!("thawed {:?}", t.elapsed());
    }
}
