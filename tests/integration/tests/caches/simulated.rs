//! Caches on a simulated network, under paused time: a task that spins would stop the clock, and so the test.

use std::cell::Cell;
use std::time::Duration;

use async_trait::async_trait;
use curator_framework::spi::{ConnectConfig, Connection, HandleEvent, ZooKeeperFactory};
use curator_framework::{ConnectError, CuratorFramework, CuratorOp, DefaultZooKeeperFactory, RetryNTimes};
use curator_integration::simulated_stage::{LATENCY, ONE, SESSION, TWO, client, play, soon, until};
use curator_recipes::{CacheState, CuratorCache, TreeCache};
use futures_util::future::join_all;
use tokio::time::{Instant, sleep, timeout};

use crate::faces::{assert_next, until as events_until};
use crate::stage::commit;

/// Far more than a load takes.
const LONG: Duration = Duration::from_secs(5);

/// The number of writers, so that several writes come within the time of a read.
const WRITERS: usize = 20;

/// Lets many writers run all the time, and asserts that a cache beside them is loaded, and fresh again and again.
fn assert_gets_fresh(nodes: &[&str], write: impl AsyncFn(&CuratorFramework, usize), is_right: fn(usize) -> bool) {
    play(1, async |ensemble| {
        let (cached, writer) = (client(&ensemble, ONE).await, client(&ensemble, TWO).await);
        commit(&writer, nodes.iter().copied().map(CuratorOp::create)).await;
        let cache = CuratorCache::new(cached.clone(), "/tree").unwrap();
        let count = Cell::new(0);
        let writes = join_all((0..WRITERS).map(async |writer_number| {
            sleep(LATENCY * u32::try_from(writer_number).unwrap() / 10).await;
            loop {
                count.set(count.get() + 1);
                write(&writer, count.get()).await;
            }
        }));
        let reads = async {
            sleep(LATENCY * 5).await;
            cache.start().unwrap();
            timeout(LONG, cache.initialized()).await.expect("the load does not end").unwrap();
            for _ in 0..20 {
                timeout(LONG, cache.synced()).await.expect("the contents are never fresh").unwrap();
            }
        };
        tokio::select! {
            _ = writes => {}
            () = reads => {}
        }
        assert!(count.get() > 100, "{}", count.get());
        // The writes on their way arrive.
        sleep(LATENCY * 10).await;
        soon(cache.synced()).await.unwrap();
        assert!(is_right(cache.len()), "{:?}", cache.nodes());
        soon(cache.close()).await;
    });
}

#[test]
fn a_node_that_is_written_all_the_time_does_not_hold_up_the_freshness() {
    let write = async |client: &CuratorFramework, count: usize| {
        client.set_data().for_path("/tree/a", count.to_string()).await.unwrap();
    };
    assert_gets_fresh(&["/tree", "/tree/a"], write, |len| len == 2);
}

#[test]
fn a_node_that_is_created_again_all_the_time_does_not_hold_up_the_freshness() {
    let write = async |client: &CuratorFramework, _| {
        commit(client, [CuratorOp::delete("/tree/a"), CuratorOp::create("/tree/a")]).await;
    };
    assert_gets_fresh(&["/tree", "/tree/a"], write, |len| len == 2);
}

#[test]
fn a_tree_that_grows_all_the_time_does_not_hold_up_the_freshness() {
    let write = async |client: &CuratorFramework, count: usize| {
        let parent = format!("/tree/{count}");
        commit(client, [CuratorOp::create(&parent), CuratorOp::create(format!("{parent}/child"))]).await;
    };
    assert_gets_fresh(&["/tree"], write, |len| len % 2 == 1);
}

#[test]
fn a_cache_without_a_session_is_stale() {
    play(1, async |ensemble| {
        let (cached, writer) = (client(&ensemble, ONE).await, client(&ensemble, TWO).await);
        commit(&writer, ["/tree"].map(CuratorOp::create)).await;
        let cache = CuratorCache::new(cached.clone(), "/tree").unwrap();
        cache.start().unwrap();
        soon(cache.initialized()).await.unwrap();
        let session = soon(cached.session()).await.unwrap();
        // The machine sleeps for longer than the session lasts, and its network is gone when it wakes.
        ensemble.partition(ONE);
        ensemble.skip_clock(ONE, SESSION * 2);
        soon(session.ended()).await;
        until("stale", || matches!(cache.state(), CacheState::Stale { .. })).await;
        writer.set_data().for_path("/tree", "new").await.unwrap();
        sleep(SESSION).await;
        assert!(matches!(cache.state(), CacheState::Stale { .. }), "{:?}", cache.state());
        ensemble.repair(ONE);
        soon(cache.watch().wait_for(CacheState::is_fresh)).await.unwrap();
        soon(cache.synced()).await.unwrap();
        assert_eq!(cache.get("/tree").present().unwrap().data, b"new");
    });
}

#[test]
fn a_cache_sends_nothing_in_an_outage_and_little_to_a_root_that_it_may_not_read() {
    play(1, async |ensemble| {
        let (cached, writer) = (client(&ensemble, ONE).await, client(&ensemble, TWO).await);
        let acl = curator_framework::Acl::new(
            curator_framework::Permission::CREATE | curator_framework::Permission::ADMIN,
            "world",
            "anyone",
        );
        writer.create().with_acl(vec![acl]).for_path("/tree").await.unwrap();
        let cache = CuratorCache::new(cached.clone(), "/tree").unwrap();
        cache.start().unwrap();
        soon(cache.initialized()).await.unwrap_err();
        let (begun, mut failures, mut states) = (Instant::now(), 0, cache.watch());
        while begun.elapsed() < Duration::from_secs(120) {
            soon(states.changed()).await.unwrap();
            assert!(matches!(*states.borrow_and_update(), CacheState::Failed(_)));
            failures += 1;
        }
        // The pauses double from 50 ms to 30 s.
        assert!((10..20).contains(&failures), "{failures}");
    });
}

/// Delays the report of each reconnect, but not the notifications on the new connection.
#[derive(Debug)]
struct Late(DefaultZooKeeperFactory);

#[async_trait]
impl ZooKeeperFactory for Late {
    async fn connect(&self, config: &ConnectConfig) -> Result<Connection, ConnectError> {
        let mut connection = self.0.connect(config).await?;
        let (late, events) = tokio::sync::mpsc::unbounded_channel();
        let mut early = std::mem::replace(&mut connection.events, events);
        tokio::spawn(async move {
            while let Some(event) = early.recv().await {
                if matches!(event, HandleEvent::Reconnected(_)) {
                    sleep(LATENCY * 10).await;
                }
                if late.send(event).is_err() {
                    return;
                }
            }
        });
        Ok(connection)
    }

    fn needs_io(&self) -> bool {
        false
    }
}

#[test]
fn change_is_reported_behind_the_connection_that_has_brought_it() {
    play(1, async |ensemble| {
        let two = client(&ensemble, TWO).await;
        commit(&two, ["/tree", "/tree/a"].into_iter().map(CuratorOp::create)).await;
        let options = ensemble.client(ONE).session_timeout(SESSION).zookeeper_factory(Late(ensemble.factory(ONE)));
        let options = options.retry_policy(RetryNTimes::new(1000, Duration::from_millis(100)));
        let one = options.build().unwrap();
        one.start().unwrap();
        let cache = TreeCache::builder(one.clone(), "/tree").build().unwrap();
        let mut events = cache.changes();
        cache.start().unwrap();
        events_until(&mut events, "initialized").await;
        ensemble.reset(ONE);
        ensemble.delete("/tree/a");
        assert_next(&mut events, &["suspended", "reconnected", "removed a="]).await;
        soon(cache.close()).await;
    });
}
