//! The facts of ZooKeeper's nodes: paths and names, stats, access control lists, events.

pub(crate) mod acl_provider;
pub(crate) mod compression;
#[cfg(feature = "compression")]
pub(crate) mod gzip;
#[cfg(not(feature = "compression"))]
#[path = "no_gzip.rs"]
pub(crate) mod gzip;
pub(crate) mod ids;
pub(crate) mod namespace;
pub(crate) mod new_node;
pub(crate) mod path;
pub mod protected;
#[cfg(feature = "schema")]
pub(crate) mod schema;
#[cfg(not(feature = "schema"))]
#[path = "no_schema.rs"]
pub(crate) mod schema;
mod types;
pub mod zk_paths;

pub use types::{
    Acl, AddWatchMode, AuthInfo, CreateMode, EventType, Identity, MultiReadResult, Permission, PersistentEvent, Stat,
    WatchKind, WatchedEvent, owning_session,
};

/// A read with or without a watch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reading {
    Plain,
    Watched,
}
