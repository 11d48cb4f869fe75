//! The servers: Apache ZooKeeper for times, and one in this process for requests.

use std::collections::BTreeMap;
use std::time::Duration;

use curator_test::wire::OpCode;
use curator_test::{ApacheServer, FaultProxy, TestingServer};
use tokio::task::block_in_place;
use tokio::time::sleep;

use crate::process::Result;

/// The requests of each kind.
pub type Requests = BTreeMap<&'static str, usize>;

const MOST: Duration = Duration::from_secs(60);
const LEAST: Duration = Duration::from_secs(2);

/// The log is complete when nothing has been added to it for so long.
const QUIET: Duration = Duration::from_millis(600);

/// Starts an in-process server for sessions of a minute.
pub fn server() -> Result<TestingServer> {
    Ok(TestingServer::builder().session_timeouts(LEAST, MOST).start()?)
}

/// Starts one Apache ZooKeeper that does not wait for its disk.
pub fn apache() -> Result<ApacheServer> {
    Ok(block_in_place(|| ApacheServer::builder().session_timeouts(LEAST, MOST).compiles_fully().start())?)
}

/// Starts a proxy before a server, 5 ms from it each way.
pub fn far(server: &ApacheServer) -> Result<FaultProxy> {
    let proxy = FaultProxy::start(server.address())?;
    proxy.latency(Duration::from_millis(5));
    Ok(proxy)
}

/// Returns the number of requests of each kind since the last call, apart from pings, when no more come.
pub async fn requests(server: &TestingServer) -> Requests {
    let count = || server.requests().iter().filter(|one| one.op != OpCode::Ping).count();
    let mut before = usize::MAX;
    while before != count() {
        before = count();
        sleep(QUIET).await;
    }
    let mut counts = BTreeMap::new();
    for request in server.requests().iter().filter(|one| one.op != OpCode::Ping) {
        *counts.entry(request.op.name()).or_default() += 1;
    }
    server.clear_requests();
    counts
}

/// Describes requests in a cell of a table.
#[must_use]
pub fn cell(counts: &Requests) -> String {
    let kinds: Vec<_> = counts.iter().map(|(op, count)| format!("{count} {op}")).collect();
    format!("{}: {}", counts.values().sum::<usize>(), kinds.join(", "))
}
