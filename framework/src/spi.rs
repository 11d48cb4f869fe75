//! For authors of ZooKeeper clients: the interface between the framework and a client. Programs choose a client with
//! [`zookeeper_factory`](crate::CuratorFrameworkBuilder::zookeeper_factory), and need nothing from this module.
//!
//! | | |
//! | --- | --- |
//! | [`ZooKeeperFactory`], [`ConnectConfig`], [`Connection`] | opens sessions, one at a time |
//! | [`ZooKeeperHandle`], [`HandleEvent`], [`Reattached`] | one session: its requests, and its events in order |
//! | [`Request`], [`Operation`], [`Reply`], [`Response`], [`Done`], [`Evidence`] | a request, its reply, and the evidence that the session lives |
//! | [`WatchEvents`], [`WatchSender`], [`AddedWatch`], [`Notification`], [`NotificationCall`] | watches |
//! | [`Capabilities`] | the optional features of a client |
//! | [`ServerList`], [`Pacer`], [`Closing`] | the servers, the pace of attempts, and the end of the framework's client |
//! | [`Connector`], [`ByteStream`] | another transport for the [default client](crate::default_client) |
//!
//! A lock is safe only if the client delivers each reply to its own request, and if a handle lives for exactly one session.
//! The page [`default_client`](crate::default_client) lists the promises to keep. For a proxy, a Unix socket or a
//! simulation a [`Connector`] is enough:
//! [`DefaultZooKeeperFactory::with_connector`](crate::DefaultZooKeeperFactory::with_connector).
//!
//! # Stability
//!
//! Before version 1.0 each minor version may change these items; `CHANGELOG.md` names the changes. New optional features
//! come as methods with a default, and as fields of [`Capabilities`]. Enums and [`ConnectConfig`] are `non_exhaustive`.
//!
//! # Examples
//!
//! A factory that wraps another one, and counts the sessions:
//!
//! ```
//! use std::sync::Arc;
//! use std::sync::atomic::{AtomicU64, Ordering};
//! use std::time::Duration;
//!
//! use async_trait::async_trait;
//! use curator_framework::spi::{Capabilities, ConnectConfig, Connection, ZooKeeperFactory};
//! use curator_framework::{ConnectError, CuratorFramework, DefaultZooKeeperFactory, RetryForever};
//!
//! #[derive(Debug)]
//! struct Counting {
//!     inner: DefaultZooKeeperFactory,
//!     sessions: Arc<AtomicU64>,
//! }
//!
//! #[async_trait]
//! impl ZooKeeperFactory for Counting {
//!     async fn connect(&self, config: &ConnectConfig) -> Result<Connection, ConnectError> {
//!         let connection = self.inner.connect(config).await?;
//!         self.sessions.fetch_add(1, Ordering::Relaxed);
//!         Ok(connection)
//!     }
//!
//!     fn capabilities(&self) -> Capabilities {
//!         self.inner.capabilities()
//!     }
//!
//!     fn client(&self) -> &'static str {
//!         self.inner.client()
//!     }
//!
//!     fn needs_io(&self) -> bool {
//!         self.inner.needs_io()
//!     }
//! }
//!
//! # fn main() -> Result<(), curator_framework::Error> {
//! let sessions = Arc::new(AtomicU64::new(0));
//! let factory = Counting { inner: DefaultZooKeeperFactory::new(), sessions: Arc::clone(&sessions) };
//! let client = CuratorFramework::builder("zk1:2181")
//!     .retry_policy(RetryForever::new(Duration::from_secs(1))?)
//!     .zookeeper_factory(factory)
//!     .build()?;
//! # drop(client);
//! # Ok(())
//! # }
//! ```

#[doc(hidden)]
pub use crate::zookeeper::decoder;
pub use crate::zookeeper::{
    AddedWatch, ByteStream, Capabilities, Closing, ConnectConfig, Connection, Connector, Done, Evidence, HandleEvent,
    Notification, NotificationCall, Operation, Pacer, Read, ReadDone, Reattached, Reply, ReplyFuture, Request,
    Response, ServerList, WatchEvents, WatchSender, ZooKeeperFactory, ZooKeeperHandle,
};
