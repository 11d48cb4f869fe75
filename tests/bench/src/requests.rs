//! The requests in the log of an in-process server.

use std::collections::BTreeMap;
use std::time::Duration;

use curator_test::TestingServer;
use curator_test::wire::OpCode;
use tokio::time::sleep;

use crate::process::Result;

/// The log is complete when nothing has been added to it for so long.
const QUIET: Duration = Duration::from_millis(600);

/// Starts an in-process server for sessions of a minute.
pub fn server() -> Result<TestingServer> {
    Ok(TestingServer::builder().session_timeouts(Duration::from_secs(2), Duration::from_secs(60)).start()?)
}

/// Returns the number of requests of each kind since the last call, apart from pings, when no more come.
pub async fn requests(server: &TestingServer) -> BTreeMap<&'static str, usize> {
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
pub fn cell(counts: &BTreeMap<&'static str, usize>) -> String {
    let kinds: Vec<_> = counts.iter().map(|(op, count)| format!("{count} {op}")).collect();
    format!("{}: {}", counts.values().sum::<usize>(), kinds.join(", "))
}
