//! One session with the ensemble, from its first reply to its end.
//!
//! The life of a loss, while a lock is held and the network is silent. T is the session timeout, counted from the newest
//! evidence.
//!
//! | at | file | function | step |
//! | --- | --- | --- | --- |
//! | T/8 | `client/supervisor.rs` | `look_at_the_clock` | sends a heartbeat that the leader must answer |
//! | T/3 | `zookeeper/client/socket_task.rs` | `carry`, `lose` | gives up the connection; its requests end as `ConnectionLoss` |
//! | T/3 | `zookeeper/client/connecting.rs` | `reattach`, `round` | tries the other servers, at the pace of `Pacer` |
//! | T/3 | `core/client_core.rs` | `on_event` | `Suspended`: notifies the session, then the listeners |
//! | 3T/4 | `session/loss_signal.rs` | `loss` | the guard is lost from this moment, by the clock alone |
//! | 3T/4 | `session/deadlines.rs` | `run` | reads the clock on a thread that runs no code of the user |
//! | 3T/4 | `session/life.rs` | `on_passed` | resolves `ended`, on another thread: wakers are code of the user |
//! | 3T/4 | `session/life.rs` | `complete_end` | wakes every watch, ends the handle, reports the losses |
//! | 3T/4 | `session/loss_signal.rs` | `lost` | resolves with the reason, and with it `lost` of the guard |
//! | 3T/4 | `core/client_core.rs` | `on_event` | `Lost`: notifies the listeners; the supervisor connects for the next session |
//! | T | the server | | deletes the node; the next contender is granted the lock |
//!
//! If a server answers before 3T/4, `set_reconnected` records the new connection. The deadline moves when the leader has
//! answered a write on it.

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
