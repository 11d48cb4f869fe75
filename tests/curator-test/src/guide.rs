//! Tests of your own code with this crate. This module contains only text.
//!
//! Add `curator-test` to the `dev-dependencies` of your crate, and connect your code to one of these servers:
//!
//! ```toml
//! [dependencies]
//! curator-framework = { path = "../curator/framework" }
//! curator-recipes = { path = "../curator/recipes" }
//!
//! [dev-dependencies]
//! curator-test = { path = "../curator/tests/curator-test" }
//! # `test-util` is for paused time.
//! tokio = { version = "1", features = ["macros", "rt", "test-util"] }
//! ```
//!
//! # In ten lines
//!
//! This tests a function that prints under a lock, on a server in the test's own process. The server starts in about a
//! millisecond and needs neither Java nor a network, so each test can have its own:
//!
//! ```
//! # use std::time::Duration;
//! # use curator_framework::{CuratorFramework, Error, RetryNTimes};
//! # use curator_recipes::{InterProcessMutex, LockError};
//! # use curator_test::TestingServer;
//! # async fn print(client: &CuratorFramework) -> Result<(), LockError> {
//! #     InterProcessMutex::new(client.clone(), "/locks/printer")?.acquire().await?.release().await?; Ok(()) }
//! # #[tokio::main]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let server = TestingServer::start()?;
//! let retry = RetryNTimes::new(3, Duration::from_millis(50));
//! let client = CuratorFramework::new_client(server.connect_string(), retry)?;
//! client.start()?;
//! print(&client).await?; // your code
//! let left = client.get_children().for_path("/locks/printer").await?;
//! assert_eq!(left, [""; 0], "it leaves nothing behind");
//! # Ok(())
//! # }
//! ```
//!
//! # The bad day
//!
//! Test that your code stops when its lock is lost. Let the server end the session:
//!
//! ```
//! # use std::time::Duration;
//! # use curator_framework::{CuratorFramework, RetryNTimes};
//! # use curator_recipes::InterProcessMutex;
//! # use curator_test::TestingServer;
//! # #[tokio::main]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let server = TestingServer::start()?;
//! # let retry = RetryNTimes::new(3, Duration::from_millis(50));
//! # let client = CuratorFramework::new_client(server.connect_string(), retry)?;
//! # client.start()?;
//! let printer = InterProcessMutex::new(client.clone(), "/locks/printer")?;
//! let guard = printer.acquire().await?;
//! let work = guard.protect(std::future::pending::<()>()); // your code
//! server.kill_session(server.sessions()[0]);
//! assert!(work.await.is_err(), "it stops");
//! # Ok(())
//! # }
//! ```
//!
//! Or lose a reply, so that a node exists that its creator does not know of:
//!
//! ```
//! # use std::time::Duration;
//! # use curator_framework::{CuratorFramework, RetryNTimes};
//! # use curator_recipes::InterProcessMutex;
//! # use curator_test::{FaultProxy, TestingServer, wire::OpCode};
//! # #[tokio::main]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let server = TestingServer::start()?;
//! let proxy = FaultProxy::start(server.address())?;
//! let retry = RetryNTimes::new(20, Duration::from_millis(50));
//! let client = CuratorFramework::new_client(proxy.connect_string(), retry)?;
//! client.start()?;
//! client.block_until_connected().await?;
//! proxy.drop_reply(OpCode::Create2, 1);
//! let printer = InterProcessMutex::new(client.clone(), "/printer")?;
//! let guard = printer.acquire().await?; // the node is found again
//! let nodes = client.get_children().for_path("/printer").await?;
//! assert_eq!(nodes.len(), 1, "one node, not two");
//! # drop(guard);
//! # Ok(())
//! # }
//! ```
//!
//! | fault | method |
//! | --- | --- |
//! | the network goes silent, and recovers | [`FaultProxy::partition`], [`FaultProxy::repair`] |
//! | the connection breaks | [`FaultProxy::reset`], [`FaultProxy::refuse`] |
//! | a request, a reply or half of it is lost | [`FaultProxy::drop_request`], [`FaultProxy::drop_reply`], [`FaultProxy::cut_frame`] |
//! | the network is slow | [`FaultProxy::latency`], [`FaultProxy::late_connect_answer`] |
//! | the session ends | [`TestingServer::kill_session`], [`kill_session`](crate::kill_session) on any server |
//! | the server grants another session in silence | [`FaultProxy::swap_session`] |
//! | the server stops responding | [`TestingServer::freeze`], [`ApacheServer::freeze`] |
//! | the server starts again | [`TestingServer::restart`], [`ApacheServer::restart`] |
//! | a server lags behind the others | [`TestingServer::stale_reads`], [`ApacheCluster::isolate`] |
//! | the sequence numbers, or the versions of a node, reach their end | [`TestingServer::set_next_sequence`], [`TestingServer::set_version`] |
//! | the leader crashes | [`ApacheCluster::kill`] |
//!
//! # Real servers
//!
//! With the cargo feature `apache`, [`ApacheServer`] and [`ApacheCluster`] start Apache ZooKeeper itself where Debian's
//! package `zookeeper` is installed. `connect_string`, `stop`, `restart`, `freeze` and `thaw` exist there too; all
//! but the first return a `Result`. To end a session, call the function [`kill_session`](crate::kill_session). Code
//! that is tested on [`TestingServer`] behaves the same there: both pass the same conformance tests, request by
//! request. `TestingServer` lists where it differs.
//!
//! # TLS and SASL
//!
//! A [`TestingServer`] answers logins by SASL as a test says: see [`sasl`](crate::TestingServerBuilder::sasl).
//!
//! An [`ApacheServer`] can have a port for TLS, on which clients show certificates, and users that authenticate with
//! SASL. A [`TestAuthority`] issues the certificates, also expired ones and those for another name. Two authorities do
//! not trust each other.
//!
//! ```no_run
//! use curator_test::{ApacheServer, TestAuthority};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let authority = TestAuthority::new()?;
//! let builder = ApacheServer::builder().tls(&authority);
//! let server = builder.digest_sasl("worker", "secret").require_sasl().start()?;
//! let certificate = authority.client_certificate("worker")?;
//! # let _ = (server.secure_connect_string(), certificate.key_pem());
//! # Ok(())
//! # }
//! ```
//!
//! # A thousand storms in a second
//!
//! [`SimulatedEnsemble`] simulates an ensemble and its network under paused time, from one seed. Minutes of faults pass
//! in milliseconds, and the same seed repeats the run. Its clients are ordinary `CuratorFramework`s.
//!
//! ```
//! use std::time::Duration;
//! use curator_framework::RetryNTimes;
//! use curator_recipes::InterProcessMutex;
//! use curator_test::{ClientId, SimulatedEnsemble};
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let ensemble = SimulatedEnsemble::new(42, Duration::from_millis(20));
//! let retry = RetryNTimes::new(10, Duration::from_secs(1));
//! let builder = ensemble.client(ClientId(1)).retry_policy(retry);
//! let client = builder.session_timeout(Duration::from_secs(30)).build()?;
//! client.start()?;
//! let guard = InterProcessMutex::new(client, "/printer")?.acquire().await?;
//! ensemble.partition(ClientId(1));
//! let began = tokio::time::Instant::now();
//! guard.lost().await; // before the servers give the lock to another client
//! assert!(began.elapsed() < Duration::from_secs(30));
//! # Ok(())
//! # }
//! ```
//!
//! # Paused time
//!
//! `#[tokio::test(start_paused = true)]` makes the clock jump to the next timer whenever all tasks wait. A reply of a
//! server over a socket, such as [`TestingServer`], takes real time, so every time limit would end before it. A client
//! with sockets therefore refuses to start on a paused clock, with `Error::PausedClock`.
//!
//! | the test | write |
//! | --- | --- |
//! | waits for minutes, such as a session's time-out | [`SimulatedEnsemble`] with `start_paused`, as above |
//! | needs a server over a socket | `#[tokio::test]`, with short timeouts: [`TestingServer::builder`] allows them |
//! | needs both | `tokio::time::resume()` before `client.start()` |
//!
//! [`ApacheCluster`]: crate::ApacheCluster
//! [`ApacheCluster::isolate`]: crate::ApacheCluster::isolate
//! [`ApacheCluster::kill`]: crate::ApacheCluster::kill
//! [`ApacheServer`]: crate::ApacheServer
//! [`ApacheServer::freeze`]: crate::ApacheServer::freeze
//! [`ApacheServer::restart`]: crate::ApacheServer::restart
//! [`FaultProxy::cut_frame`]: crate::FaultProxy::cut_frame
//! [`FaultProxy::drop_reply`]: crate::FaultProxy::drop_reply
//! [`FaultProxy::drop_request`]: crate::FaultProxy::drop_request
//! [`FaultProxy::late_connect_answer`]: crate::FaultProxy::late_connect_answer
//! [`FaultProxy::latency`]: crate::FaultProxy::latency
//! [`FaultProxy::partition`]: crate::FaultProxy::partition
//! [`FaultProxy::refuse`]: crate::FaultProxy::refuse
//! [`FaultProxy::repair`]: crate::FaultProxy::repair
//! [`FaultProxy::reset`]: crate::FaultProxy::reset
//! [`FaultProxy::swap_session`]: crate::FaultProxy::swap_session
//! [`SimulatedEnsemble`]: crate::SimulatedEnsemble
//! [`TestAuthority`]: crate::TestAuthority
//! [`TestingServer`]: crate::TestingServer
//! [`TestingServer::builder`]: crate::TestingServer::builder
//! [`TestingServer::freeze`]: crate::TestingServer::freeze
//! [`TestingServer::kill_session`]: crate::TestingServer::kill_session
//! [`TestingServer::restart`]: crate::TestingServer::restart
//! [`TestingServer::set_next_sequence`]: crate::TestingServer::set_next_sequence
//! [`TestingServer::set_version`]: crate::TestingServer::set_version
//! [`TestingServer::stale_reads`]: crate::TestingServer::stale_reads
