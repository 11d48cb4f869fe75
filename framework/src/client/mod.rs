//! The client: its facade, its builder, and the task that keeps it connected.

pub(crate) mod builder;
mod contained;
pub(crate) mod ensure_containers;
mod framework;
mod life;
mod listeners;
mod operations;
pub(crate) mod recipe;
mod run;
mod supervisor;
pub(crate) mod within_one_session;

pub(crate) use self::framework::WeakClient;
pub use self::framework::{ConnectionStateListenable, ConnectionStateListener, CuratorFramework};
