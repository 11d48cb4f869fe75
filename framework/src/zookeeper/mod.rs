//! The seam between the framework and a ZooKeeper client: the framework's own, or a crate behind an adapter.
//!
//! A [`ZooKeeperHandle`] lives for exactly one ZooKeeper session, and delivers each reply to its own request. Where a
//! crate does not guarantee that, its adapter adds it.

pub(crate) mod client;
mod connect_config;
mod reply;
mod request;
pub(crate) mod sasl;
mod seam;
pub(crate) mod security;
mod watch_events;
#[cfg(feature = "zookeeper-async")]
mod zookeeper_async;

#[doc(hidden)]
pub use self::client::decoder;
pub use self::client::hosts::Pacer;
pub use self::client::{ByteStream, Connector, DefaultZooKeeperFactory};
pub(crate) use self::connect_config::MIN_SESSION_TIMEOUT;
pub use self::connect_config::{Closing, ConnectConfig, DEFAULT_MAX_FRAME, DEFAULT_MAX_REPLY, ServerList};
pub(crate) use self::reply::Flush;
pub use self::reply::{Done, ReadDone, Reply, ReplyFuture, Response};
pub(crate) use self::request::{CONFIG_NODE, DEFAULT_CLIENT, SINCE_3_6};
pub use self::request::{Evidence, Operation, Read, Request};
pub use self::seam::{
    AddedWatch, Capabilities, Connection, HandleEvent, Notification, NotificationCall, Reattached, SessionEnd,
    ZooKeeperFactory, ZooKeeperHandle,
};
pub use self::watch_events::{KnownNodes, Resync, SubscriptionEvent, WatchEvents, WatchSender};
#[cfg(feature = "zookeeper-async")]
pub use self::zookeeper_async::ZooKeeperAsyncFactory;
