//! The facts of ZooKeeper's nodes: paths and names, stats, access control lists, events.

pub(crate) mod acl_provider;
pub(crate) mod compression;
pub(crate) mod namespace;
pub(crate) mod new_node;
pub(crate) mod path;
pub mod protected;
pub(crate) mod schema;
mod types;
pub mod zk_paths;

pub use types::{
    Acl, AddWatchMode, AuthInfo, CreateMode, EventType, Permission, PersistentEvent, Stat, WatchKind, WatchedEvent,
};
