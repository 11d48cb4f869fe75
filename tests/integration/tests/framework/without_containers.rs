//! A client without containers, regardless of its options.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use curator_framework::recipe::Resync;
use curator_framework::spi::{
    AddedWatch, Capabilities, ConnectConfig, Connection, Evidence, ReplyFuture, Request, ZooKeeperFactory,
    ZooKeeperHandle,
};
use curator_framework::{AddWatchMode, ConnectError, DefaultZooKeeperFactory, WatchKind};

/// Makes sessions with handles that say that they have no containers.
#[derive(Debug)]
pub(crate) struct WithoutContainers(pub(crate) DefaultZooKeeperFactory);

#[async_trait]
impl ZooKeeperFactory for WithoutContainers {
    async fn connect(&self, config: &ConnectConfig) -> Result<Connection, ConnectError> {
        let connection = self.0.connect(config).await?;
        Ok(Connection { handle: Arc::new(Handle(connection.handle)), ..connection })
    }

    fn needs_io(&self) -> bool {
        self.0.needs_io()
    }
}

#[derive(Debug)]
struct Handle(Arc<dyn ZooKeeperHandle>);

impl ZooKeeperHandle for Handle {
    fn submit(&self, request: Request, epoch: u64) -> ReplyFuture {
        self.0.submit(request, epoch)
    }

    fn heartbeat(&self, evidence: Evidence) -> ReplyFuture {
        self.0.heartbeat(evidence)
    }

    fn negotiated_timeout(&self) -> Duration {
        self.0.negotiated_timeout()
    }

    fn session_id(&self) -> Option<i64> {
        self.0.session_id()
    }

    fn set_owning(&self, owning: bool) {
        self.0.set_owning(owning);
    }

    fn capabilities(&self) -> Capabilities {
        let mut can = self.0.capabilities();
        can.containers = false;
        can
    }

    fn add_watch(&self, path: &str, mode: AddWatchMode, resync: Option<Arc<dyn Resync>>) -> AddedWatch {
        self.0.add_watch(path, mode, resync)
    }

    fn forget_watch(&self, path: &str, kind: WatchKind) {
        self.0.forget_watch(path, kind);
    }

    fn client(&self) -> &'static str {
        self.0.client()
    }

    fn end(&self) {
        self.0.end();
    }

    fn closed(&self) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        self.0.closed()
    }
}
