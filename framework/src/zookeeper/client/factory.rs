//! The factory of sessions of the default client.

use std::sync::Arc;

use async_trait::async_trait;

use super::connector::Connector;
use super::{CAPABILITIES, CLIENT, connecting, connector};
use crate::error::{ConnectError, Result};
use crate::zookeeper::{Capabilities, ConnectConfig, Connection, ZooKeeperFactory};

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

    /// Connects to the servers by `connector`: through a proxy, over Unix sockets, in a simulation. TLS is then the
    /// connector's work: a client with [`tls`](crate::CuratorFrameworkBuilder::tls) is not built.
    #[must_use]
    pub fn with_connector(connector: impl Connector) -> Self {
        Self { connector: Some(Arc::new(connector)) }
    }
}

#[async_trait]
impl ZooKeeperFactory for DefaultZooKeeperFactory {
    fn capabilities(&self) -> Capabilities {
        // The streams of a connector are used as they are.
        Capabilities { tls: CAPABILITIES.tls && self.connector.is_none(), ..CAPABILITIES }
    }

    fn client(&self) -> &'static str {
        CLIENT
    }

    fn needs_io(&self) -> bool {
        self.connector.is_none()
    }

    async fn connect(&self, config: &ConnectConfig) -> Result<Connection, ConnectError> {
        let opener = connector::Opener::new(self.connector.clone(), config);
        connecting::connect(opener, config).await
    }
}
