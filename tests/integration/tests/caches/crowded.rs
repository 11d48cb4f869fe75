//! A node with 80,000 children on Apache ZooKeeper, in a cache of a client that holds a lock.

use std::time::Duration;

use curator_framework::{ConnectionState, CuratorFramework, CuratorOp, Error, Session};
use curator_integration::connection_stage::Told;
use curator_integration::env::{Env, Kind, builder, connected, in_time};
use curator_recipes::{CacheError, CacheEvent, CuratorCache, InterProcessMutex, Lookup, MutexGuard, TreeCache};
use futures_util::StreamExt as _;
use futures_util::stream;

const CHILDREN: usize = 80_000;
const BATCH: usize = 500;
const IN_FLIGHT: usize = 16;
/// ZooKeeper's usual limit of a message.
const USUAL_LIMIT: usize = 1 << 20;
/// The default of `max_reply`.
const MAX_REPLY: usize = 4 << 20;
/// The bytes of a name in a listing, beside the name.
const LENGTH: usize = 4;

/// A client that holds a lock, and the crowd.
struct Stage {
    env: Env,
    client: CuratorFramework,
    states: Told,
    session: Session,
    epoch: u64,
    guard: MutexGuard,
    digits: usize,
}

impl Stage {
    /// Creates the crowd with names of this length.
    async fn new(digits: usize) -> Self {
        let env = Env::new(Kind::Apache).alone();
        let other = env.client().await;
        let crowd = env.path("tree/crowd");
        other.create().creating_parents_if_needed().for_path(&crowd).await.unwrap();
        stream::iter(0..CHILDREN / BATCH)
            .for_each_concurrent(IN_FLIGHT, async |batch| {
                let names = (batch * BATCH..).take(BATCH).map(|number| format!("{crowd}/{number:0>digits$}"));
                other.transaction().operations(names.map(CuratorOp::create)).commit().await.unwrap();
            })
            .await;
        let client = connected(builder(env.address()).session_timeout(Duration::from_secs(6))).await;
        let states = Told::by(&client);
        let session = client.session().await.unwrap();
        let guard =
            in_time(InterProcessMutex::new(client.clone(), env.path("mutex")).unwrap().acquire()).await.unwrap();
        Self { epoch: session.epoch(), env, client, states, session, guard, digits }
    }

    fn tree(&self) -> String {
        self.env.path("tree")
    }

    fn child(&self, number: usize) -> String {
        format!("{}/crowd/{number:0>digits$}", self.tree(), digits = self.digits)
    }

    /// Checks that the lock and its connection have not noticed the crowd.
    async fn was_calm(self) {
        in_time(self.guard.verify()).await.unwrap();
        assert!(self.guard.is_held() && self.session.is_connected());
        assert_eq!(self.session.epoch(), self.epoch, "the connection was lost");
        self.guard.release().await.unwrap().held().unwrap();
        let states = self.states.all(self.client).await;
        assert!(!states.contains(&ConnectionState::Suspended), "{states:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn listing_above_the_limit_is_reported_and_the_lock_of_the_client_is_kept() {
    let stage = Stage::new(60).await;
    assert!(CHILDREN * (LENGTH + stage.digits) > MAX_REPLY);
    let crowd = format!("{}/crowd", stage.tree());
    let cache = CuratorCache::new(stage.client.clone(), stage.tree()).unwrap();
    let mut events = cache.changes();
    cache.start().unwrap();
    in_time(cache.initialized()).await.unwrap();
    assert_eq!((cache.len(), cache.get(&stage.child(0))), (2, Lookup::NotLoaded));
    let error = loop {
        match in_time(events.recv()).await.unwrap() {
            CacheEvent::Failed { path, error } if path == crowd => break error,
            _ => {}
        }
    };
    assert!(matches!(error, CacheError::Framework(Error::ReplyTooLarge { .. })), "{error}");
    // The cache follows the nodes that it can read.
    stage.client.set_data().for_path(&crowd, "new").await.unwrap();
    in_time(cache.synced()).await.unwrap();
    assert_eq!(cache.get(&crowd).present().unwrap().data, b"new");
    in_time(cache.close()).await;
    stage.was_calm().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn listing_above_zookeepers_usual_limit_is_read_and_the_lock_of_the_client_is_kept() {
    let stage = Stage::new(10).await;
    assert!(CHILDREN * (LENGTH + stage.digits) > USUAL_LIMIT);
    let cache = TreeCache::new(stage.client.clone(), stage.tree()).unwrap();
    cache.start().unwrap();
    in_time(cache.initialized()).await.unwrap();
    assert_eq!(cache.size(), CHILDREN + 2);
    let last = stage.child(CHILDREN - 1);
    stage.client.set_data().for_path(&last, "new").await.unwrap();
    in_time(cache.synced()).await.unwrap();
    assert_eq!(cache.current_data(&last).unwrap().data, b"new");
    in_time(cache.close()).await;
    stage.was_calm().await;
}
