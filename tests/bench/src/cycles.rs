//! Clients that take and release one mutex without contention, for the cost of one cycle.

use std::net::SocketAddr;
use std::time::Duration;

use clap::ValueEnum;
use curator_framework::CuratorFramework;
use curator_recipes::InterProcessMutex;
use tokio::net::TcpStream;
use zookeeper_async::{Acl, CreateMode};

use crate::clients::{Ours, SESSION};
use crate::plain::{CrateSession, cycle};
use crate::process::Result;
use crate::socket::{Blocking, Socket, now};

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Client {
    /// This project's mutex.
    Ours,
    /// The same over `zookeeper-async`.
    OursAsync,
    /// Create and listing together, then delete, over the bare crate `zookeeper-async`.
    Async,
    /// The same three requests over a bare socket that blocks.
    Bare,
    /// The same three requests over a bare socket on the runtime of the others.
    BareTokio,
}

pub enum Cycler {
    Ours(CuratorFramework, InterProcessMutex),
    Async(CrateSession, String),
    Bare(Socket<Blocking>, String),
    BareTokio(Socket<TcpStream>, String),
}

impl Cycler {
    pub async fn connect(client: Client, server: SocketAddr, path: &str) -> Result<Self> {
        let (address, path) = (server.to_string(), path.to_owned());
        Ok(match client {
            Client::Ours | Client::OursAsync => {
                let ours = if client == Client::Ours { Ours::Own } else { Ours::ZookeeperAsync };
                let client = ours.connect(&address, SESSION).await?;
                let mutex = InterProcessMutex::new(client.clone(), path)?;
                Self::Ours(client, mutex)
            }
            Client::Async => {
                let session = CrateSession::connect(&address).await?;
                let acl = Acl::open_unsafe().clone();
                // Fails if the node exists, which is as well.
                let _exists = session.zookeeper.create(&path, Vec::new(), acl, CreateMode::Persistent).await;
                Self::Async(session, path)
            }
            Client::Bare => {
                let mut socket = Socket::connect_blocking(server)?;
                now(socket.create_parent(&path))?;
                Self::Bare(socket, path)
            }
            Client::BareTokio => {
                let mut socket = Socket::connect(server).await?;
                socket.create_parent(&path).await?;
                Self::BareTokio(socket, path)
            }
        })
    }

    /// Acquires the mutex and releases it.
    pub async fn cycle(&mut self) -> Result<()> {
        match self {
            Self::Ours(_, mutex) => _ = mutex.acquire().await?.release().await?,
            Self::Async(session, parent) => cycle(session, parent).await?,
            Self::Bare(socket, parent) => now(cycle(socket, parent))?,
            Self::BareTokio(socket, parent) => cycle(socket, parent).await?,
        }
        Ok(())
    }

    pub async fn close(self) -> Result<()> {
        match self {
            Self::Ours(client, _) => client.close().await,
            Self::Async(session, _) => session.zookeeper.close().await?,
            Self::Bare(socket, _) => now(socket.close())?,
            Self::BareTokio(socket, _) => socket.close().await?,
        }
        Ok(())
    }
}

/// The processor time that this process has used.
#[must_use]
pub fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or_default())
}
