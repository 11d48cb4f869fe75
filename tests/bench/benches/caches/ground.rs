//! The server, the proxy that counts, and the trees.

use std::time::Duration;

use curator_bench::clients::{SESSION, connect};
use curator_bench::figures::float;
use curator_bench::process::Result;
use curator_bench::servers::{Requests, apache};
use curator_framework::{CuratorFramework, CuratorOp, Error};
use curator_test::wire::OpCode;
use curator_test::{ApacheServer, FaultProxy};
use tokio::task::block_in_place;
use tokio::time::sleep;

/// The log is complete when nothing has been added to it for so long.
const QUIET: Duration = Duration::from_secs(1);
/// The creates of a transaction.
const PART: usize = 500;
/// The bytes of data of a node.
pub(crate) const SIZE: usize = 100;

const READS: [OpCode; 4] = [OpCode::GetData, OpCode::GetChildren, OpCode::GetChildren2, OpCode::MultiRead];
const REST: [OpCode; 7] = [
    // The questions whether the servers have the history that a cache knows.
    OpCode::Exists,
    OpCode::AddWatch,
    OpCode::SetWatches,
    OpCode::SetWatches2,
    OpCode::RemoveWatches,
    OpCode::CheckWatches,
    OpCode::Sync,
];

/// The requests that were answered since an earlier look, apart from pings and connects, and the bytes to the server.
#[derive(Debug)]
pub(crate) struct Counts {
    pub(crate) kinds: Requests,
    pub(crate) sent: u64,
}

impl Counts {
    pub(crate) fn requests(&self) -> f64 {
        float(self.kinds.values().sum())
    }

    pub(crate) fn reads(&self) -> f64 {
        float(READS.iter().filter_map(|op| self.kinds.get(op.name())).sum())
    }

    /// Returns the bytes to the server for each of these nodes.
    #[allow(clippy::cast_precision_loss, reason = "not that many")]
    pub(crate) fn sent_each(&self, nodes: usize) -> f64 {
        self.sent as f64 / float(nodes)
    }
}

/// One Apache ZooKeeper, with a client that writes to it directly.
pub(crate) struct Ground {
    server: ApacheServer,
    proxy: FaultProxy,
    client: CuratorFramework,
}

impl Ground {
    pub(crate) async fn new() -> Result<Self> {
        let server = apache()?;
        let proxy = FaultProxy::start(server.address())?;
        let client = connect(&server.connect_string(), SESSION).await?;
        Ok(Self { server, proxy, client })
    }

    pub(crate) fn version(&self) -> &str {
        self.server.version()
    }

    /// Returns the address of the server itself.
    pub(crate) fn direct(&self) -> String {
        self.server.connect_string()
    }

    /// Returns the address of the proxy.
    pub(crate) fn counted(&self) -> String {
        self.proxy.connect_string()
    }

    pub(crate) const fn client(&self) -> &CuratorFramework {
        &self.client
    }

    /// Creates the nodes of a path, unless it exists: `parents` nodes that share `nodes` children, or all below the path
    /// itself if there is one parent. Returns the number of all nodes with the path's own.
    pub(crate) async fn plant(&self, path: &str, parents: usize, nodes: usize) -> Result<usize> {
        let all = nodes + 1 + if parents > 1 { parents } else { 0 };
        match self.client.create().for_path(path).await {
            Ok(_) => {}
            Err(Error::NodeExists { .. }) => return Ok(all),
            Err(error) => return Err(error.into()),
        }
        let folders: Vec<_> = match parents {
            1 => vec![path.to_owned()],
            _ => (0..parents).map(|parent| format!("{path}/folder-{parent:03}")).collect(),
        };
        if parents > 1 {
            self.create(&folders).await?;
        }
        let leaves: Vec<_> = (0..nodes).map(|node| leaf(&folders[node / nodes.div_ceil(parents)], node)).collect();
        self.create(&leaves).await?;
        Ok(all)
    }

    async fn create(&self, paths: &[String]) -> Result<()> {
        for part in paths.chunks(PART) {
            let creates = part.iter().map(|path| CuratorOp::create(path).with_data([b'x'; SIZE]));
            self.client.transaction().operations(creates).commit().await?;
        }
        Ok(())
    }

    pub(crate) async fn set(&self, path: &str, data: &str) -> Result<()> {
        self.client.set_data().for_path(path, data).await?;
        Ok(())
    }

    pub(crate) fn counts(&self) -> Counts {
        let kinds = READS.into_iter().chain(REST).map(|op| (op.name(), self.proxy.replies(op)));
        Counts { kinds: kinds.collect(), sent: self.proxy.traffic().received }
    }

    /// Returns the requests since an earlier look, when no more come.
    pub(crate) async fn settled(&self, since: &Counts) -> Counts {
        let mut last = -1.0;
        loop {
            let mut now = self.counts();
            if now.requests() <= last {
                now.kinds.iter_mut().for_each(|(kind, count)| *count -= since.kinds[kind]);
                now.kinds.retain(|_, count| *count > 0);
                return Counts { sent: now.sent - since.sent, ..now };
            }
            last = now.requests();
            sleep(QUIET).await;
        }
    }

    fn connects(&self) -> usize {
        self.proxy.replies(OpCode::CreateSession)
    }

    async fn wait_for_connects(&self, count: usize) {
        while self.connects() < count {
            sleep(Duration::from_millis(10)).await;
        }
    }

    /// Breaks the counted connection while `changes` happen, and returns when it is back.
    pub(crate) async fn bounce(&self, changes: impl Future<Output = Result<()>>) -> Result<()> {
        let connects = self.connects();
        self.proxy.refuse();
        self.proxy.reset();
        changes.await?;
        self.proxy.accept();
        self.wait_for_connects(connects + 1).await;
        Ok(())
    }

    /// Restarts the server, and returns when so many clients are connected again.
    pub(crate) async fn restart(&self, clients: usize) -> Result<()> {
        let connects = self.connects();
        block_in_place(|| self.server.restart())?;
        self.wait_for_connects(connects + clients).await;
        self.client.block_until_connected().await?;
        Ok(())
    }
}

/// Returns the path of a node without children.
pub(crate) fn leaf(parent: &str, number: usize) -> String {
    format!("{parent}/node-{number:06}")
}
