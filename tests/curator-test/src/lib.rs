//! ZooKeeper servers, wire faults and checks, for tests of code that talks to ZooKeeper.
//!
//! ```toml
//! [dev-dependencies]
//! curator-test = { path = "../curator/tests/curator-test" }
//! tokio = { version = "1", features = ["macros", "rt"] }
//! ```
//!
//! The path is that of a copy of the repository. Tests on [`SimulatedEnsemble`] need tokio's feature `test-util` too.
//! The cargo feature `apache` adds real Apache ZooKeeper, with TLS and SASL; it needs Java and Debian's package
//! `zookeeper`.
//!
//! | | |
//! | --- | --- |
//! | [`TestingServer`] | a ZooKeeper server in the test's process, in memory, without a JVM |
//! | [`ApacheServer`] | a real Apache ZooKeeper server, from Debian's package |
//! | [`TestAuthority`] | issues certificates for a server and its clients |
//! | [`ApacheCluster`] | several of them as one ensemble, with links that can be cut |
//! | [`installed_packages`] | the packages that they come from |
//! | [`FaultProxy`] | a proxy before any server that injects faults on command |
//! | [`kill_session`] | ends a session on any server |
//! | [`SimulatedEnsemble`] | an ensemble and its network under paused time, from one seed |
//! | [`history`] | the steps of a lock, and their violations |
//! | [`elections`] | the events of a leader election, and their violations |
//! | [`registrations`] | the nodes that clients keep standing, and their violations |
//! | [`groups`] | the views of a group's members, and their violations |
//! | [`caches`] | the contents and events of caches, and their violations |
//! | [`partitions`] | the owners of a partition's items, and their violations |
//! | [`barriers`] | the members and waiters of barriers, and their violations |
//! | [`latches`] | the counts and waiters of latches, and their violations |
//! | [`counters`] | the calls of counters, and their violations |
//! | [`timeline`] | events with their times, which these share |
//! | [`wire`] | ZooKeeper's protocol, for raw requests |
//!
//! The page [`guide`] shows how to test your own code with them.
//!
//! # Examples
//!
//! ```
//! # #[tokio::main]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use std::time::Duration;
//! use curator_framework::{CuratorFramework, RetryNTimes};
//! use curator_recipes::InterProcessMutex;
//! use curator_test::TestingServer;
//!
//! let server = TestingServer::start()?;
//! let retry = RetryNTimes::new(3, Duration::from_millis(100));
//! let client = CuratorFramework::new_client(server.connect_string(), retry)?;
//! client.start()?;
//! let mutex = InterProcessMutex::new(client, "/locks/printer")?;
//! let guard = mutex.acquire().await?;
//! server.kill_session(server.sessions()[0]);
//! guard.lost().await; // your code should stop here
//! # Ok(())
//! # }
//! ```

#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(feature = "apache")]
mod apache;
pub mod barriers;
pub mod caches;
#[cfg(feature = "apache")]
mod certificates;
pub mod counters;
pub mod elections;
pub mod groups;
pub mod guide;
pub mod history;
mod kill_session;
pub mod latches;
pub mod nodes;
pub mod partitions;
mod proxy;
pub mod registrations;
mod server;
mod simulation;
pub mod timeline;
pub mod wire;

#[cfg(feature = "apache")]
pub use apache::{
    ApacheCluster, ApacheClusterBuilder, ApacheError, ApacheServer, ApacheServerBuilder, ClientAuth, installed_packages,
};
#[cfg(feature = "apache")]
pub use certificates::{CertificateError, TestAuthority, TestCertificate};
pub use kill_session::kill_session;
pub use proxy::FaultProxy;
pub use server::{Backup, LoggedRequest, TestingServer, TestingServerBuilder, Traffic};
pub use simulation::{ClientId, SimulatedEnsemble};

/// The examples of the project's front page compile.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct FrontPage;
