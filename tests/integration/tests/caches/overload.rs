//! Servers that refuse reads because they are overloaded.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use curator_framework::{
    AddWatchMode, AddedWatch, Capabilities, ConnectConfig, ConnectError, Connection, CuratorOp,
    DefaultZooKeeperFactory, Error, Evidence, Reply, ReplyFuture, Request, Resync, ZooKeeperFactory, ZooKeeperHandle,
};
use curator_integration::env::{connected, eventually, in_time};
use curator_integration::in_process;
use curator_recipes::CuratorCacheOptions;

use crate::stage::{Replay, Told, commit, loaded};

/// ZooKeeper's `THROTTLEDOP`.
const THROTTLED: i32 = -127;

/// A factory of handles that refuse reads as a server with too much to do does.
#[derive(Debug, Clone, Default)]
struct Throttled {
    /// The number of reads that are still to be refused.
    left: Arc<AtomicUsize>,
}

#[derive(Debug)]
struct ThrottledHandle {
    inner: Arc<dyn ZooKeeperHandle>,
    throttled: Throttled,
}

#[async_trait]
impl ZooKeeperFactory for Throttled {
    async fn connect(&self, config: &ConnectConfig) -> Result<Connection, ConnectError> {
        let connection = DefaultZooKeeperFactory::new().connect(config).await?;
        let handle = Arc::new(ThrottledHandle { inner: connection.handle, throttled: self.clone() });
        Ok(Connection { handle, ..connection })
    }
}

impl ZooKeeperHandle for ThrottledHandle {
    fn submit(&self, request: Request, epoch: u64) -> ReplyFuture {
        let is_refused = matches!(request, Request::GetData { .. })
            && self.throttled.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok();
        if !is_refused {
            return self.inner.submit(request, epoch);
        }
        let error = Error::ZooKeeper { code: THROTTLED, request: request.to_string().into() };
        ReplyFuture::new(async move { Reply::not_sent(error) })
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_read_that_an_overloaded_server_refuses_is_repeated() {
    let (server, throttled) = (in_process::server(), Throttled::default());
    let client = connected(in_process::options(&server).zookeeper_factory(throttled.clone())).await;
    commit(&client, ["/tree", "/tree/a", "/tree/b"].map(CuratorOp::create)).await;
    let cache = loaded(&client, "/tree", CuratorCacheOptions::new()).await;
    let (mut events, mut replay) = (cache.events(), Replay::default());
    replay.arrived(&mut events);
    throttled.left.store(2, Ordering::SeqCst);
    commit(&client, ["/tree", "/tree/a"].map(|path| CuratorOp::set_data(path, "new"))).await;
    eventually("both reads are refused", async || throttled.left.load(Ordering::SeqCst) == 0).await;
    // Notifications that arrive all the time do not put the repetition off.
    let writes = async {
        loop {
            commit(&client, [CuratorOp::set_data("/tree/b", "new")]).await;
        }
    };
    tokio::select! {
        () = writes => {}
        fresh = in_time(cache.caught_up()) => assert!(fresh.is_ok(), "{fresh:?}"),
    }
    let told = replay.arrived(&mut events);
    assert!(told.iter().all(|told| matches!(told, Told::Changed(_))), "{told:?}");
    assert!(["/tree", "/tree/a"].iter().all(|path| told.contains(&Told::Changed((*path).to_owned()))), "{told:?}");
}
