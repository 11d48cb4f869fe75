//! Our client, with handles that refuse some requests.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use curator_framework::recipe::Resync;
use curator_framework::spi::{
    AddedWatch, Capabilities, ConnectConfig, Connection, Evidence, Reply, ReplyFuture, Request, ZooKeeperFactory,
    ZooKeeperHandle,
};
use curator_framework::{AddWatchMode, ConnectError, DefaultZooKeeperFactory, Error};

type Refuse = dyn Fn(&Request) -> Option<Error> + Send + Sync;

/// A factory of handles that ask a closure about each request. They send it if the closure returns `None`.
#[derive(Clone)]
pub struct RefusingFactory {
    refuse: Arc<Refuse>,
}

impl RefusingFactory {
    pub fn new(refuse: impl Fn(&Request) -> Option<Error> + Send + Sync + 'static) -> Self {
        Self { refuse: Arc::new(refuse) }
    }
}

impl fmt::Debug for RefusingFactory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RefusingFactory").finish_non_exhaustive()
    }
}

#[async_trait]
impl ZooKeeperFactory for RefusingFactory {
    async fn connect(&self, config: &ConnectConfig) -> Result<Connection, ConnectError> {
        let connection = DefaultZooKeeperFactory::new().connect(config).await?;
        let handle = Arc::new(Handle { inner: connection.handle, factory: self.clone() });
        Ok(Connection { handle, ..connection })
    }

    fn capabilities(&self) -> Capabilities {
        DefaultZooKeeperFactory::new().capabilities()
    }
}

#[derive(Debug)]
struct Handle {
    inner: Arc<dyn ZooKeeperHandle>,
    factory: RefusingFactory,
}

impl ZooKeeperHandle for Handle {
    fn submit(&self, request: Request, epoch: u64) -> ReplyFuture {
        match (self.factory.refuse)(&request) {
            Some(error) => ReplyFuture::new(async move { Reply::not_sent(error) }),
            None => self.inner.submit(request, epoch),
        }
    }

    fn heartbeat(&self, evidence: Evidence) -> ReplyFuture {
        self.inner.heartbeat(evidence)
    }

    fn session_id(&self) -> Option<i64> {
        self.inner.session_id()
    }

    fn set_owning(&self, owning: bool) {
        self.inner.set_owning(owning);
    }

    fn negotiated_timeout(&self) -> Duration {
        self.inner.negotiated_timeout()
    }

    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn add_watch(&self, path: &str, mode: AddWatchMode, resync: Option<Arc<dyn Resync>>) -> AddedWatch {
        self.inner.add_watch(path, mode, resync)
    }

    fn client(&self) -> &'static str {
        self.inner.client()
    }

    fn end(&self) {
        self.inner.end();
    }

    fn closed(&self) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        self.inner.closed()
    }
}
