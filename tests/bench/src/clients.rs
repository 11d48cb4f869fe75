//! Clients of this project.

use std::time::Duration;

use curator_framework::{CuratorFramework, ExponentialBackoffRetry, ZooKeeperAsyncFactory};

use crate::process::Result;

/// Curator's default.
pub const SESSION: Duration = Duration::from_secs(60);

/// Enough for the nodes of 20,000 waiters. An ensemble ends a session of less than 2 MiB.
const MOST_BYTES: usize = 1_600_000;

/// A client of this project, by what its sessions are made with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ours {
    Own,
    ZookeeperAsync,
}

impl Ours {
    /// Connects with Curator's defaults, apart from the session timeout.
    pub async fn connect(self, servers: &str, session: Duration) -> Result<CuratorFramework> {
        let retry = ExponentialBackoffRetry::new(Duration::from_secs(1), 3)?;
        let builder = CuratorFramework::builder(servers).session_timeout(session).retry_policy(retry);
        let builder = builder.max_ephemeral_bytes(MOST_BYTES);
        let client = match self {
            Self::Own => builder.build()?,
            Self::ZookeeperAsync => builder.zookeeper_factory(ZooKeeperAsyncFactory).build()?,
        };
        client.start()?;
        client.block_until_connected().await?;
        Ok(client)
    }
}

/// Connects as Curator does by default.
pub async fn connect(servers: &str, session: Duration) -> Result<CuratorFramework> {
    Ours::Own.connect(servers, session).await
}

/// The clients of a process.
#[derive(Debug, Default)]
pub struct Clients(pub Vec<CuratorFramework>);

impl Clients {
    /// Connects so many more clients. Returns the answer of the process.
    pub async fn connect(&mut self, count: &str, servers: &str) -> Result<String> {
        for _ in 0..count.parse()? {
            self.0.push(connect(servers, SESSION).await?);
        }
        Ok("connected".to_owned())
    }

    pub fn first(&self) -> Result<CuratorFramework> {
        Ok(self.0.first().ok_or("no client")?.clone())
    }

    /// Closes all clients. Returns the answer of the process.
    pub async fn end(&mut self) -> Result<String> {
        for client in self.0.drain(..) {
            client.close().await;
        }
        Ok("ended".to_owned())
    }
}
