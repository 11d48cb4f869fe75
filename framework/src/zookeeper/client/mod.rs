//! The framework's own client: a handle is exactly one session.
//!
//! | file | task | I/O |
//! | --- | --- | --- |
//! | `protocol` | decides everything about a session: numbers, timeouts, watches, outcomes | none |
//! | `history.rs` | decides if a server has the writes that the client has seen | none |
//! | `records.rs`, `armed_watches.rs`, `hosts.rs` | requests as bytes, armed watches, the order of servers | none |
//! | `connecting.rs` | opens connections | sockets |
//! | `socket_task.rs`, `link.rs`, `handle.rs` | carry bytes, keep the one timer | sockets |
//! | `login.rs` | runs the conversation of a SASL mechanism | the mechanism's |
//! | `connector.rs`, `stream.rs`, `tls.rs` | names, addresses, byte streams, TLS | sockets |
//! | `blocking_socket.rs` | closes a session after the end of its runtime | sockets |

mod armed_watches;
mod blocking_socket;
mod connecting;
mod connector;
#[doc(hidden)]
pub mod decoder;
mod factory;
mod handle;
pub(crate) mod history;
pub(crate) mod hosts;
mod link;
mod login;
mod protocol;
mod records;
mod socket_task;
mod stream;
#[cfg(any(feature = "tls", feature = "tls-ring"))]
pub(crate) mod tls;

pub use self::connector::Connector;
pub use self::factory::DefaultZooKeeperFactory;
pub use self::stream::ByteStream;
use crate::zookeeper::Capabilities;

pub(super) const CLIENT: &str = "curator-framework's client";

pub(super) const CAPABILITIES: Capabilities = Capabilities {
    containers: true,
    ttl: true,
    transactions: true,
    sync: true,
    ephemerals: true,
    remove_watches: true,
    persistent_watches: true,
    read_only: true,
    bare_numbers: true,
    reconfig: true,
    tls: cfg!(any(feature = "tls", feature = "tls-ring")),
    sasl: true,
    restores_watches: true,
    multi_read: true,
    who_am_i: true,
};
