//! What the locks tell those who listen to `tracing`.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use curator_integration::env::{builder, connected, eventually, in_time};
use curator_recipes::{InterProcessMutex, InterProcessSemaphoreV2, LockOptions, LockOwner};
use curator_test::TestingServer;
use parking_lot::Mutex;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};

/// One event of the recipes.
#[derive(Debug, Clone)]
struct Told {
    level: Level,
    fields: BTreeMap<&'static str, String>,
}

impl Visit for Told {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.fields.insert(field.name(), format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.fields.insert(field.name(), value.to_owned());
    }
}

#[derive(Debug, Clone, Default)]
struct Listener {
    told: Arc<Mutex<Vec<Told>>>,
}

impl<S: Subscriber> Layer<S> for Listener {
    fn on_event(&self, event: &Event<'_>, _context: Context<'_, S>) {
        if event.metadata().target().starts_with("curator_recipes") {
            let mut told = Told { level: *event.metadata().level(), fields: BTreeMap::new() };
            event.record(&mut told);
            self.told.lock().push(told);
        }
    }
}

impl Listener {
    /// The events with this message, with what stands in these fields.
    fn of<const N: usize>(&self, message: &str, fields: [&str; N]) -> Vec<[String; N]> {
        let told = self.told.lock();
        let matching = told.iter().filter(|told| told.fields.get("message").is_some_and(|text| text == message));
        matching.map(|told| fields.map(|field| told.fields.get(field).cloned().unwrap_or_default())).collect()
    }

    fn warnings(&self) -> Vec<Told> {
        self.told.lock().iter().filter(|told| told.level == Level::WARN).cloned().collect()
    }
}

/// On one thread, so that the listener hears all of this test and nothing else.
fn run(test: impl AsyncFnOnce(Listener)) {
    let listener = Listener::default();
    let _listening = tracing::subscriber::set_default(tracing_subscriber::registry().with(listener.clone()));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(test(listener));
}

#[test]
fn an_acquire_and_a_release_are_told_with_stable_fields() {
    run(async |listener| {
        let server = TestingServer::start().unwrap();
        let client = connected(builder(server.address())).await;
        let mutex = InterProcessMutex::new(client.clone(), "/lock").unwrap();
        let guard = mutex.acquire().await.unwrap();
        let (node, token) = (guard.path().to_owned(), guard.fencing_token().to_string());
        assert_eq!(listener.of("lock acquire", ["path", "outcome"]), [["/lock", "granted"]]);
        let granted = listener.of("lock granted", ["path", "node", "queue_position", "fencing_token"]);
        assert_eq!(granted, [["/lock", node.as_str(), "0", token.as_str()]]);

        assert!(mutex.try_acquire().await.unwrap().is_none());
        assert!(mutex.acquire_timeout(Duration::from_millis(300)).await.unwrap().is_none());
        let waiter = {
            let mutex = mutex.clone();
            tokio::spawn(async move { mutex.acquire().await.unwrap() })
        };
        let cancelled = {
            let mutex = mutex.clone();
            tokio::spawn(async move { mutex.acquire().await.unwrap() })
        };
        eventually("both wait", async || server.children("/lock").unwrap().len() == 3).await;
        cancelled.abort();
        assert!(cancelled.await.unwrap_err().is_cancelled());
        guard.release().await.unwrap();
        assert_eq!(listener.of("lock released", ["path", "node", "outcome"]), [["/lock", node.as_str(), "released"]]);
        let next = in_time(waiter).await.unwrap();
        let outcomes = listener.of("lock acquire", ["outcome"]).concat();
        assert_eq!(outcomes, ["granted", "timeout", "timeout", "cancelled", "granted"]);
        assert_eq!(listener.of("lock granted", ["queue_position"])[1], ["1"]);
        client.delete().for_path(next.path()).await.unwrap();
        in_time(next.lost()).await;
        next.release().await.unwrap();
        drop(mutex.acquire().await.unwrap());
        let ends = listener.of("lock released", ["outcome"]).concat();
        assert_eq!(ends, ["released", "lost", "dropped"]);
        assert!(listener.of("lock released", ["hold"]).concat().iter().all(|hold| hold.ends_with('s')));
        assert!(listener.of("lock acquire", ["wait"]).concat().iter().all(|wait| wait.ends_with('s')));

        // An inner acquire of an owner is none.
        let before = listener.of("lock granted", []).len();
        LockOwner::scope(async {
            let outer = mutex.acquire().await.unwrap();
            let inner = mutex.acquire().await.unwrap();
            inner.release().await.unwrap();
            assert_eq!(listener.of("lock released", []).len(), 3);
            outer.release().await.unwrap();
        })
        .await;
        assert_eq!(listener.of("lock granted", []).len(), before + 1);
        client.close().await;
        assert!(mutex.acquire().await.is_err());
        assert_eq!(listener.of("lock acquire", ["outcome"]).concat().last().unwrap(), "error");
        assert!(listener.warnings().is_empty(), "{:?}", listener.warnings());
    });
}

#[test]
fn a_lock_that_is_held_for_long_is_warned_of_once() {
    run(async |listener| {
        let server = TestingServer::start().unwrap();
        let client = connected(builder(server.address())).await;
        let options = LockOptions::new().warn_after(Duration::from_millis(40));
        let mutex = InterProcessMutex::with_options(client.clone(), "/lock", options.clone()).unwrap();
        // This one is gone before its time.
        drop(mutex.acquire().await.unwrap());
        let guard = mutex.acquire().await.unwrap();
        let inner = guard.reenter().unwrap();
        let semaphore = InterProcessSemaphoreV2::with_options(client.clone(), "/semaphore", 2, options).unwrap();
        eventually("a warning", async || !listener.warnings().is_empty()).await;
        let lease = semaphore.acquire().await.unwrap();
        // It is due after whatever else of the first guard would be.
        eventually("another warning", async || listener.warnings().len() > 1).await;
        let told = listener.of("a lock is held for long", ["path", "node", "held_for_more_than"]);
        assert_eq!(told, [["/lock", guard.path(), "40ms"], ["/semaphore", lease.path(), "40ms"]]);
        assert_eq!(listener.warnings().len(), 2);
        inner.release().await.unwrap();
        lease.release().await.unwrap();
        guard.release().await.unwrap();
    });
}
