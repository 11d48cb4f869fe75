//! A ZooKeeper client in the manner of Apache Curator's framework: it keeps one session at a time, knows when that
//! session can no longer be relied on, retries what may be retried, and leaves nothing behind.
//!
//! ```toml
//! [dependencies]
//! curator-framework = { path = "../curator/framework" }
//! tokio = { version = "1", features = ["macros", "rt-multi-thread"] }
//! ```
//!
//! The client needs a tokio runtime with timers and I/O, as `#[tokio::main]` starts it. This crate enables tokio's
//! features `net`, `rt`, `sync` and `time`. The path leads to a copy of the repository.
//!
//! Start with [`CuratorFramework`]. Locks, elections and groups are in the crate `curator-recipes`.
//!
//! | | |
//! | --- | --- |
//! | [`CuratorFramework`], [`CuratorFrameworkBuilder`] | the client and its options |
//! | [`CreateBuilder`], [`DeleteBuilder`], [`GetDataBuilder`] … | one operation each, with its retries |
//! | [`RetryPolicy`] and the policies of Curator | when to repeat a request |
//! | [`ConnectionState`], [`ConnectionStateListenable`] | the state of the connection and its listeners |
//! | [`Watch`] | a future that resolves when a node changes |
//! | [`PersistentWatcher`] | all changes of a node or a subtree |
//! | [`Session`], [`RetryLoop`] | one session, and the retries of an operation |
//! | [`zk_paths`] | paths |
//! | [`recipe`] | for authors of recipes: owned nodes and their loss, subscriptions |
//! | [`spi`] | for authors of ZooKeeper clients: the interface that the [`default_client`] implements |
//!
//! # Examples
//!
//! ```no_run
//! # async fn run() -> Result<(), curator_framework::Error> {
//! use std::time::Duration;
//! use curator_framework::{CuratorFramework, ExponentialBackoffRetry};
//!
//! let retry = ExponentialBackoffRetry::new(Duration::from_secs(1), 3)?;
//! let client = CuratorFramework::new_client("zk1:2181,zk2:2181,zk3:2181", retry)?;
//! client.start()?;
//! let create = client.create().or_set_data().creating_parents_if_needed();
//! create.with_data("one").for_path("/settings/mode").await?;
//! let get = client.get_data().watched();
//! let ((mode, _), changed) = get.for_path("/settings/mode").await?;
//! println!("{}", String::from_utf8_lossy(&mode));
//! changed.await; // a hint: read again
//! client.close().await;
//! # Ok(())
//! # }
//! ```
//!
//! # How a session is judged
//!
//! A session from which the servers receive nothing for the session timeout expires. In silence its locks are granted
//! to others not earlier than that. So the client counts from the moment at which it *sent* the newest answered
//! request:
//!
//! | after | what happens |
//! | --- | --- |
//! | a third of the timeout | a heartbeat |
//! | an eighth, while a node is owned | a heartbeat that the leader must answer |
//! | two thirds; one third with the default client while a node is owned | [`ConnectionState::Suspended`] |
//! | three quarters | [`ConnectionState::Lost`]: guards are lost, a new session is opened |
//!
//! A connection that breaks is `Suspended` at once. While a node is owned, the default client gives up a silent
//! connection after one third, which is `Suspended` too, and tries another server.
//!
//! While a node is owned, the count starts at the last request that the leader is known to have seen. A follower
//! reports its clients to the leader only every half tick, so this is earlier than the last answered request. The clock
//! also counts the time while the machine sleeps.
//!
//! # Which client
//!
//! Two are included. The default, [`DefaultZooKeeperFactory`], is this crate's own: [`default_client`] says what it
//! promises and why a lock needs it. The second is the crate `zookeeper-async`; one line selects it,
//! `.zookeeper_factory(ZooKeeperAsyncFactory)`. Use it for comparisons, not in production: it reconnects without a
//! pause, one silent server costs the session, and a reply with a large count aborts the process. A
//! [list](default_client#compared-with-zookeeper-async) has the tests that show it.
//!
//! | cargo feature | what it adds |
//! | --- | --- |
//! | `signal` (default) | [`CuratorFramework::run`] closes the client at Ctrl-C and `SIGTERM` |
//! | `zookeeper-async` (default) | the second client: `ZooKeeperAsyncFactory` |
//! | `metrics` | [metrics](#metrics) of connections and requests |
//! | `tls` | TLS with the default client: [`TlsOptions`], [`CuratorFrameworkBuilder::tls`]; with aws-lc-rs, which needs a C compiler |
//! | `tls-ring` | the same with ring |
//! | `compression` | gzip: `GzipCompressionProvider`, the default of [`CuratorFrameworkBuilder::compression_provider`] |
//! | `schema` | rules for nodes: `SchemaSet`, `Schema`, `CuratorFrameworkBuilder::schema_set` |
//! | `serde` | `SchemaDescription` is read from JSON, YAML and the like; includes `schema` |
//!
//! A request that the client does not support ends with [`Error::Unsupported`]. [`CuratorFrameworkBuilder::build`]
//! refuses an option that it does not support.
//!
//! # Tracing
//!
//! The names and fields of the first table are stable in a minor version, so filters and counters can rely on them. A
//! `path` of a request or a node is the server's, with chroot and namespace; errors show the caller's. Fields with
//! names in `_s` are numbers of seconds. The field `session_id` is ZooKeeper's, in hexadecimal as in the servers' logs;
//! `session` counts the client's sessions.
//!
//! No event carries credentials or data. But the crate `zookeeper-async`, when it is used, logs the password of each
//! session at the level *info*: keep its target `zookeeper_async` at *warn*.
//!
//! | level | event or span | fields |
//! | --- | --- | --- |
//! | info | span `connect` | |
//! | info | `session established` | `session`, `session_id`, `timeout_s` |
//! | info | `session ended` | `session`, `session_id`, `reason` |
//! | info | `disconnected` | `session`, `session_id`, `cause` |
//! | info | `reconnected` | `session`, `session_id`, `timeout_s` |
//! | info | `connection state` | `state` |
//! | warn | `not connected` | `error` |
//! | info | `the ensemble`: the ensemble tracker found other servers than before | `connect_string` |
//! | warn | `slow request`: longer than a tenth of the session timeout | `session`, `request`, `path`, `elapsed_s` |
//! | trace | `request` | `session`, `request`, `path`, `elapsed_s`, `error` |
//! | debug | `retrying` | `error`, `retry`, `pause_s` |
//! | warn | `a waiter cannot be signalled` | `error`, `path` |
//! | warn | `the node of a guard cannot be watched` | `error`, `path` |
//! | warn | `a node cannot be deleted`: its path is in the second field; if it is not tried again, it stays until its session ends, or for good without one | `error`, `remains`, `tried_again` |
//! | error | `code of the program has panicked`: a listener, a closure or a provider; its own request or object fails | `code`, `panic` |
//!
//! These events have no such promise. They say what to do:
//!
//! | event | level | cause, and what to do |
//! | --- | --- | --- |
//! | `the session timeout is shorter than the connection timeout` | warn | at `build`: choose a longer session timeout |
//! | `a reply is too large, or a request ends connections` | warn | the `error` says which: read less at once, or raise [`max_reply`](CuratorFrameworkBuilder::max_reply); write less, or raise the servers' `jute.maxbuffer` |
//! | `the list of servers cannot be read, so the one before it holds` | warn | correct the [`EnsembleProvider`] |
//! | `the servers may have another history, all nodes are read again` | warn | after a backup or a long outage; nothing, if the servers were not restored |
//! | `the options of TLS cannot be used, so those before are` | warn | correct the files or the [`TlsProvider`] before the certificate in use ends |
//! | `the ensemble's configuration cannot be read: the list of servers stays`, `the ensemble's configuration cannot be used: …` | warn | give the client the permission to read `/zookeeper/config`, or set the list of servers |
//! | `the servers have no configuration (before 3.5): …`, `the ensemble's configuration has no address for clients: …` | debug | switch the tracker off |
//! | `a handle answered a request with another one's response` | error | a fault of a client that the program has made: the session ends |
//! | `another request's answer: the handle ends`, `no node may be created that would show the session's id: the handle ends` | error | only the second client: the session ends, and its locks are lost; use the default client |
//! | `the crate's request numbers run out: the handle ends` | warn | only the second client, after some 2³¹ requests: the session ends, and its locks are lost |
//! | `no thread for listeners was started; the next notification tries again` | error | the system refuses threads: raise its limit; listeners are late |
//! | `the circuit to the listeners opens`, `the circuit to the listeners is closed` | info | [`circuit_breaking_listeners`](CuratorFrameworkBuilder::circuit_breaking_listeners) holds states back |
//! | `connection lost`, `the session is left to the server's timer`, `the session is not closed yet`, `another signal ends the wait for the close` | debug | nothing |
//! | `deleted a parent that nobody used`, `a parent stays`, `the host's address is not looked up` | debug | nothing |
//!
//! Three more events concern the whole process. The warning `the cargo feature signal is off: Ctrl-C does not close the
//! client` comes once, from [`CuratorFramework::run`]. The warning `events were dropped while the log was blocked` has their number as
//! `dropped`. The error `no thread for the deadlines of sessions; a task that computes can delay a loss` has no fields.
//!
//! # Metrics
//!
//! With the cargo feature `metrics`, the client reports to the program's recorder for the crate
//! [`metrics`](https://docs.rs/metrics/0.24). The names and labels are stable. The locks have metrics of their own.
//!
//! | metric | kind | labels | value |
//! | --- | --- | --- | --- |
//! | `curator_connection_state` | gauge | `state` | the clients of this process that are `connected`, `reconnected`, `read-only`, `suspended` or `lost` |
//! | `curator_reconnects_total` | counter | | connections of a session after its first |
//! | `curator_request_seconds` | histogram | `request` | time from the send of a request, such as `getData`, to its reply |

#![cfg_attr(docsrs, feature(doc_cfg))]
#![cfg_attr(not(test), warn(clippy::too_many_lines))]

/// The program of the package's page.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}

mod client;
mod core;
#[doc = include_str!("../docs/client.md")]
pub mod default_client {}
mod ensemble;
mod environment;
mod error;
mod metrics;
mod model;
mod operations;
pub mod recipe;
mod retry;
mod session;
pub mod spi;
mod state;
mod sync;
mod zookeeper;

pub use client::builder::{
    CuratorFrameworkBuilder, DEFAULT_CONNECTION_TIMEOUT, DEFAULT_MAX_CLOSE_WAIT, DEFAULT_REAP_INTERVAL,
    DEFAULT_SESSION_TIMEOUT,
};
pub use client::ensure_containers::EnsureContainers;
pub use client::within_one_session::SessionFailMode;
pub use client::{ConnectionStateListenable, ConnectionStateListener, CuratorFramework};
pub use core::retry_loop::RetryLoop;
pub use ensemble::config::EnsembleConfig;
pub use ensemble::provider::{EnsembleProvider, FixedEnsembleProvider};
pub use environment::clock::{BootClock, Clock, TokioClock};
pub use environment::randomness::{Randomness, SeededRandomness, ThreadRandomness};
pub use error::{Chain, ConnectError, Error, PathText, Result};
pub use model::acl_provider::{AclProvider, DefaultAclProvider};
pub use model::compression::CompressionProvider;
#[cfg(feature = "compression")]
pub use model::gzip::GzipCompressionProvider;
pub use model::ids::{SessionId, Zxid};
pub use model::path::{make_path, node_from_path, parent_of, validate_path};
#[cfg(feature = "schema")]
pub use model::schema::{Allowance, OtherPaths, Schema, SchemaDescription, SchemaSet, SchemaValidator};
pub use model::{
    Acl, AddWatchMode, AuthInfo, CreateMode, EventType, Identity, MultiReadResult, Permission, PersistentEvent, Stat,
    WatchKind, WatchedEvent, zk_paths,
};
pub use operations::{
    CreateBuilder, CuratorOp, CuratorTransaction, CuratorTransactionResult, DeleteBuilder, ExistsBuilder,
    GetAclBuilder, GetChildrenBuilder, GetConfigBuilder, GetDataBuilder, MultiReadBuilder, OperationType,
    PersistentWatcher, ReconfigBuilder, SetAclBuilder, SetDataBuilder, Watched,
};
pub use retry::{
    BoundedExponentialBackoffRetry, ExponentialBackoffRetry, RetryAttempt, RetryForever, RetryNTimes, RetryOneTime,
    RetryPolicy, RetryUntilElapsed, SessionFailedRetryPolicy,
};
pub use session::Session;
pub use session::loss_signal::LossReason;
pub use session::watches::{WakeReason, Watch};
pub use state::connection_state::{
    ConnectionState, ConnectionStateErrorPolicy, SessionConnectionStateErrorPolicy, StandardConnectionStateErrorPolicy,
};
pub use sync::changes::Changes;
pub use sync::listeners::ListenerId;
pub use sync::safe_notify::SafeNotifyExecutor;
#[cfg(feature = "zookeeper-async")]
pub use zookeeper::ZooKeeperAsyncFactory;
pub use zookeeper::sasl::{SaslConversation, SaslDigest, SaslError, SaslMechanism, SaslServer};
pub use zookeeper::security::{TlsFiles, TlsOptions, TlsProvider};
pub use zookeeper::{DEFAULT_MAX_FRAME, DEFAULT_MAX_REPLY, DefaultZooKeeperFactory, SessionEnd};
