//! The framework's own client: a handle is exactly one session.
//!
//! | file | task | I/O |
//! | --- | --- | --- |
//! | `protocol` | decides everything about a session: numbers, timeouts, watches, outcomes | none |
//! | `history.rs` | decides if a server has the writes that the client has seen | none |
//! | `records.rs`, `armed_watches.rs`, `sasl.rs`, `hosts.rs` | requests as bytes, armed watches, the login, the order of servers | none |
//! | `connecting.rs` | opens connections | sockets |
//! | `driver.rs`, `link.rs`, `handle.rs` | carry bytes, keep the one timer | sockets |
//! | `connector.rs`, `stream.rs`, `tls.rs` | names, addresses, byte streams, TLS | sockets |
//! | `blocking_socket.rs` | closes a session after the end of its runtime | sockets |

mod armed_watches;
mod blocking_socket;
mod connecting;
mod connector;
#[doc(hidden)]
pub mod decoder;
mod driver;
mod handle;
pub(crate) mod history;
pub(crate) mod hosts;
mod link;
mod protocol;
mod records;
mod sasl;
mod stream;
#[cfg(any(feature = "tls", feature = "tls-ring"))]
pub(crate) mod tls;

use std::sync::Arc;

use async_trait::async_trait;

pub use self::connector::Connector;
pub use self::stream::ByteStream;
use crate::error::{ConnectError, Result};
use crate::zookeeper::{Capabilities, ConnectConfig, Connection, ZooKeeperFactory};

pub(super) const CLIENT: &str = "curator-framework's client";

pub(super) const CAPABILITIES: Capabilities = Capabilities {
    containers: true,
    ttl: true,
    transactions: true,
    sync: true,
    remove_watches: true,
    persistent_watches: true,
    read_only: true,
    bare_numbers: true,
    reconfig: true,
    tls: cfg!(any(feature = "tls", feature = "tls-ring")),
    sasl: true,
    restores_watches: true,
};

/// The factory of the framework's own client: the default, with Curator's name.
///
/// The page [`default_client`](crate::default_client) lists its guarantees.
#[derive(Debug, Clone, Default)]
pub struct DefaultZooKeeperFactory {
    connector: Option<Arc<dyn Connector>>,
}

impl DefaultZooKeeperFactory {
    /// Connects to the servers by TCP, or by TLS if the client is built with [`TlsOptions`](crate::TlsOptions).
    #[must_use]
    pub const fn new() -> Self {
        Self { connector: None }
    }

    /// Connects to the servers by `connector`: through a proxy, over Unix sockets, in a simulation.
    #[must_use]
    pub fn with_connector(connector: impl Connector) -> Self {
        Self { connector: Some(Arc::new(connector)) }
    }
}

#[async_trait]
impl ZooKeeperFactory for DefaultZooKeeperFactory {
    fn capabilities(&self) -> Capabilities {
        CAPABILITIES
    }

    fn client(&self) -> &'static str {
        CLIENT
    }

    fn needs_io(&self) -> bool {
        self.connector.is_none()
    }

    async fn connect(&self, config: &ConnectConfig) -> Result<Connection, ConnectError> {
        let opener = connector::Opener::new(self.connector.clone(), config)?;
        connecting::connect(opener, config).await
    }
}
