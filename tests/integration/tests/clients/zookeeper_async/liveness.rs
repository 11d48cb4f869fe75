//! What counts as an answer of the server.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use curator_framework::{Acl, Clock, CreateMode, Error};
use curator_integration::env::connected;
use curator_test::{FaultProxy, TestingServer};

use super::builder;

/// A clock that a test sets.
#[derive(Debug, Clone, Default)]
struct Seconds(Arc<AtomicU64>);

impl Clock for Seconds {
    fn now(&self) -> Duration {
        Duration::from_secs(self.0.load(Ordering::SeqCst))
    }

    fn is_simulated(&self) -> bool {
        true
    }
}

/// The crate answers such a request itself, even when no server can be reached.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn request_that_the_crate_refuses_does_not_move_the_deadline() {
    let server = TestingServer::start().unwrap();
    let proxy = FaultProxy::start(server.address()).unwrap();
    let clock = Seconds::default();
    let client = connected(builder(proxy.address()).clock(clock.clone())).await;
    let session = client.session().await.unwrap();
    proxy.partition();
    clock.0.store(3, Ordering::SeqCst);
    let before = session.remaining();
    for path in ["/a/", ""] {
        let results = [
            session.exists(path).await.map(drop),
            session.get_children(path).await.map(drop),
            session.delete(path, None).await,
            session.set_data(path, Vec::new(), None).await.map(drop),
        ];
        for result in results {
            assert!(matches!(&result, Err(Error::InvalidPath { path: named, .. }) if named == path), "{result:?}");
        }
        assert_eq!(session.remaining(), before, "{path:?}");
    }
    let created = session.create("", Vec::new(), Acl::open_unsafe(), CreateMode::Persistent).await;
    assert!(matches!(created, Err(Error::InvalidPath { .. })), "{created:?}");
    assert_eq!(session.remaining(), before);
}
