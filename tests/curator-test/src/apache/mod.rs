//! Real Apache ZooKeeper servers for tests, in processes of their own.

mod ask;
mod cluster;
mod error;
mod jars;
mod launcher;
mod links;
mod node;
mod options;
mod packages;
mod security;
mod server;
mod snapshot;

pub use ask::{server_version, unique_root};
pub use cluster::{ApacheCluster, ApacheClusterBuilder};
pub use error::ApacheError;
pub use jars::curator_class_path;
pub use packages::installed_packages;
pub use security::ClientAuth;
pub use server::{ApacheServer, ApacheServerBuilder};
