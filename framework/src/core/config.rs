//! The client's options, as the builder has validated them.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::ensemble::provider::EnsembleProvider;
use crate::environment::local_address::LocalAddress;
use crate::model::AuthInfo;
use crate::model::compression::CompressionProvider;
use crate::session::SessionConfig;
use crate::zookeeper::ZooKeeperFactory;
use crate::zookeeper::sasl::SaslMechanism;
use crate::zookeeper::security::TlsProvider;

/// The validated options.
#[derive(Debug)]
pub(crate) struct Config {
    pub(crate) ensemble: Arc<dyn EnsembleProvider>,
    pub(crate) ensemble_tracker: bool,
    /// The chroot in the connect string.
    pub(crate) chroot: String,
    pub(crate) session_timeout: Duration,
    pub(crate) connection_timeout: Duration,
    /// The longest time that a close takes.
    pub(crate) max_close_wait: Duration,
    pub(crate) max_frame: usize,
    pub(crate) max_reply: usize,
    /// The credentials so far.
    pub(crate) auth: Mutex<Vec<AuthInfo>>,
    pub(crate) read_only: bool,
    pub(crate) tls: Option<Arc<dyn TlsProvider>>,
    #[cfg(any(feature = "tls", feature = "tls-ring"))]
    pub(crate) provider_turn: crate::zookeeper::security::ProviderTurn,
    pub(crate) sasl: Option<Arc<dyn SaslMechanism>>,
    pub(crate) default_data: DefaultData,
    pub(crate) factory: Arc<dyn ZooKeeperFactory>,
    pub(crate) container_parents: bool,
    pub(crate) compression: Arc<dyn CompressionProvider>,
    pub(crate) compress: bool,
    /// The options that each session takes from the client.
    pub(crate) session: SessionConfig,
}

/// The data of nodes that are created without data of their own.
#[derive(Debug, Clone)]
pub(crate) enum DefaultData {
    Given(Vec<u8>),
    HostAddress(&'static LocalAddress),
}
