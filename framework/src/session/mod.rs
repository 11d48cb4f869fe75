//! One session with the ensemble, from its first reply to its end.

pub(crate) mod background;
pub(crate) mod container_reaper;
mod deadlines;
pub(crate) mod delete_tree;
mod ephemeral_nodes;
mod error_states;
pub(crate) mod known_node;
mod life;
mod link;
pub(crate) mod liveness;
mod long_hold;
pub(crate) mod loss_signal;
pub(crate) mod owned_node;
mod requests;
mod state;
pub(crate) mod subscription;
pub(crate) mod timers;
pub(crate) mod watches;

pub(crate) use self::ephemeral_nodes::DEFAULT_MAX_EPHEMERAL_BYTES;
pub use self::state::Session;
pub(crate) use self::state::SessionConfig;
pub use self::watches::WatchedData;
