//! ZooKeeper servers, wire faults and simulation, for tests of code that talks to ZooKeeper.
//!
//! ```toml
//! [dev-dependencies]
//! curator-test = { path = "../curator/tests/curator-test" }
//! tokio = { version = "1", features = ["macros", "rt"] }
//! ```
//!
//! The path points to a copy of the repository. Tests on [`SimulatedEnsemble`] need tokio's feature `test-util` too.
//! The cargo feature `apache` adds real Apache ZooKeeper, with TLS and SASL; it needs Java and Debian's package
//! `zookeeper`.
//!
//! | | |
//! | --- | --- |
//! | [`TestingServer`] | a ZooKeeper server in the test's process, in memory, without a JVM |
//! | [`ApacheServer`] | a real Apache ZooKeeper server, from Debian's package |
//! | [`TestAuthority`] | issues certificates for a server and its clients |
//! | [`ApacheCluster`] | several of them as one ensemble, with links that can be cut |
//! | [`installed_packages`], [`server_version`] | the packages that they come from, and their version |
//! | [`curator_class_path`] | the class path of Java's Curator, for tests beside it |
//! | [`FaultProxy`] | a proxy before any server that injects faults on command |
//! | [`kill_session`] | ends a session on any server |
//! | [`SimulatedEnsemble`] | an ensemble and its network under paused time, from one seed |
//! | [`nodes`] | the nodes of a simulated ensemble, and their changes |
//! | [`versions`] | the same changes for caches: versions, and refused reads |
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

/// The program of the package's page.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}

#[cfg(feature = "apache")]
mod apache;
#[cfg(feature = "apache")]
mod certificates;
pub mod guide;
mod kill_session;
pub mod nodes;
mod proxy;
mod server;
mod simulation;
pub mod versions;
pub mod wire;

#[cfg(feature = "apache")]
pub use apache::{
    ApacheCluster, ApacheClusterBuilder, ApacheError, ApacheServer, ApacheServerBuilder, ClientAuth,
    curator_class_path, installed_packages, server_version, unique_root,
};
#[cfg(feature = "apache")]
pub use certificates::{CertificateError, TestAuthority, TestCertificate};
pub use kill_session::kill_session;
pub use proxy::FaultProxy;
pub use server::{Backup, LoggedRequest, SaslAnswer, TestingServer, TestingServerBuilder, Traffic};
pub use simulation::{ClientId, SimulatedEnsemble};

/// The examples of the project's front page compile.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct FrontPage;
