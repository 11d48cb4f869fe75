//! The metrics of the cargo feature `metrics`, as a recorder receives them.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on fails")]

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use curator_integration::env::{builder, connected, eventually, in_time, reports_are_made};
use curator_recipes::{
    InterProcessMutex, InterProcessReadWriteLock, InterProcessSemaphoreMutex, InterProcessSemaphoreV2, LockOptions,
    MutexOptions,
};
use curator_test::{FaultProxy, TestingServer};
use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};

/// The metrics so far: each with its labels, as Prometheus writes them.
struct Recorded {
    snapshotter: Snapshotter,
    totals: BTreeMap<String, f64>,
    samples: BTreeMap<String, Vec<f64>>,
    /// The kind and the names of the labels of each name.
    shapes: BTreeMap<String, (String, BTreeSet<String>)>,
}

impl Recorded {
    /// Adds what the recorder has received since the last call. Taking a snapshot resets the recorder.
    fn update(&mut self) {
        for (key, _, _, value) in self.snapshotter.snapshot().into_vec() {
            let (kind, key) = (format!("{:?}", key.kind()).to_lowercase(), key.key());
            let labels: BTreeMap<_, _> = key.labels().map(|label| (label.key(), label.value())).collect();
            let shape = (kind, labels.keys().map(ToString::to_string).collect());
            assert_eq!(*self.shapes.entry(key.name().to_owned()).or_insert_with(|| shape.clone()), shape);
            let labels: Vec<_> = labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
            let name = format!("{}{{{}}}", key.name(), labels.join(","));
            match value {
                DebugValue::Counter(count) => *self.totals.entry(name).or_default() += count as f64,
                DebugValue::Gauge(change) => *self.totals.entry(name).or_default() += change.into_inner(),
                DebugValue::Histogram(samples) => {
                    self.samples.entry(name).or_default().extend(samples.iter().map(|sample| sample.into_inner()));
                }
            }
        }
    }

    /// The present value of a counter or a gauge.
    fn total(&mut self, name: &str) -> f64 {
        reports_are_made();
        self.update();
        self.totals.get(name).copied().unwrap_or_default()
    }

    /// The samples of a histogram.
    fn samples(&mut self, name: &str) -> Vec<f64> {
        self.update();
        self.samples.get(name).cloned().unwrap_or_default()
    }
}

/// Runs a test with the recorder of the process: some metrics are recorded on a thread of their own.
fn recorded(test: impl AsyncFnOnce(&mut Recorded)) {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    recorder.install().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (totals, samples, shapes) = Default::default();
    runtime.block_on(test(&mut Recorded { snapshotter, totals, samples, shapes }));
}

/// The rows of the tables in the docs of both crates: name, kind, labels.
fn promised() -> BTreeMap<String, (String, BTreeSet<String>)> {
    let quoted = |text: &str| text.split('`').skip(1).step_by(2).map(str::to_owned).collect::<BTreeSet<_>>();
    let pages = [include_str!("../../../../framework/src/lib.rs"), include_str!("../../../../recipes/src/lib.rs")];
    let rows = pages.iter().flat_map(|page| page.lines()).filter_map(|line| line.strip_prefix("//! | "));
    let rows = rows.filter(|row| row.starts_with("`curator_"));
    let shape = |row: &str| {
        let cells: Vec<_> = row.split(" | ").collect();
        (quoted(cells[0]).pop_first().unwrap(), (cells[1].to_owned(), quoted(cells[2])))
    };
    rows.map(shape).collect()
}

#[test]
fn each_metric_of_the_docs_is_recorded_and_no_other() {
    recorded(async |recorded| {
        let server = TestingServer::start().unwrap();
        let proxy = FaultProxy::start(server.address()).unwrap();
        let client = connected(builder(proxy.connect_string().parse().unwrap())).await;
        assert_eq!(recorded.total("curator_connection_state{state=connected}"), 1.0);

        // A grant, a refusal, a cancellation, a wait.
        let options = LockOptions::new().name("tenants");
        let mutex = InterProcessMutex::with_options(client.clone(), "/tenants/17", options).unwrap();
        let guard = mutex.acquire().await.unwrap();
        assert_eq!(recorded.total("curator_locks_granted_total{lock=tenants}"), 1.0);
        assert_eq!(recorded.total("curator_lock_held{lock=tenants}"), 1.0);
        assert!(mutex.acquire_timeout(Duration::from_millis(30)).await.unwrap().is_none());
        assert!(mutex.try_acquire().await.unwrap().is_none());
        assert_eq!(recorded.total("curator_lock_timeouts_total{lock=tenants}"), 2.0);
        let waiter = || {
            let mutex = mutex.clone();
            tokio::spawn(async move { mutex.acquire().await.unwrap() })
        };
        let (waiting, cancelled) = (waiter(), waiter());
        eventually("both wait", async || server.children("/tenants/17").unwrap().len() == 3).await;
        let queued = Instant::now();
        cancelled.abort();
        assert!(cancelled.await.unwrap_err().is_cancelled());
        assert_eq!(recorded.total("curator_lock_cancellations_total{lock=tenants}"), 1.0);
        let waited = queued.elapsed();
        assert!(guard.release().await.unwrap().is_released());
        assert_eq!(
            recorded.total("curator_lock_held{lock=tenants}"),
            recorded.total("curator_locks_granted_total{lock=tenants}") - 1.0
        );
        let next = in_time(waiting).await.unwrap();
        let waits = recorded.samples("curator_lock_wait_seconds{lock=tenants,outcome=granted}");
        assert!(waits.len() == 2 && waits[1] >= waited.as_secs_f64() && waits[1] < 30.0, "{waits:?}");
        assert_eq!(recorded.samples("curator_lock_wait_seconds{lock=tenants,outcome=timeout}").len(), 2);
        assert_eq!(recorded.samples("curator_lock_wait_seconds{lock=tenants,outcome=cancelled}").len(), 1);

        // An inner guard is part of the same hold.
        let inner = next.reenter().unwrap();
        drop(next);
        assert_eq!(recorded.total("curator_lock_held{lock=tenants}"), 1.0);
        drop(inner);
        assert_eq!(recorded.total("curator_lock_held{lock=tenants}"), 0.0);

        // Locks without a name are counted by their recipe.
        let lock = InterProcessReadWriteLock::new(client.clone(), "/read-write").unwrap();
        drop(lock.read_lock().acquire().await.unwrap());
        drop(lock.write_lock().acquire().await.unwrap());
        drop(InterProcessMutex::new(client.clone(), "/mutex").unwrap().acquire().await.unwrap());
        drop(InterProcessSemaphoreMutex::new(client.clone(), "/single").unwrap().acquire().await.unwrap());
        for recipe in ["mutex", "read_lock", "write_lock", "semaphore_mutex"] {
            assert_eq!(recorded.total(&format!("curator_locks_granted_total{{lock={recipe}}}")), 1.0, "{recipe}");
            assert_eq!(recorded.total(&format!("curator_lock_held{{lock={recipe}}}")), 0.0, "{recipe}");
        }

        // Tasks that share a node.
        let options = MutexOptions::new().name("batch").one_node_per_client();
        let batch = InterProcessMutex::with_options(client.clone(), "/batch", options).unwrap();
        let held = batch.acquire().await.unwrap();
        let waiters = [(); 2].map(|()| {
            let batch = batch.clone();
            tokio::spawn(async move { batch.acquire().await.unwrap() })
        });
        let waiting = "curator_lock_waiting{lock=batch}";
        eventually("both wait", async || recorded.total(waiting) == 2.0).await;
        drop(held);
        for waiter in waiters {
            drop(in_time(waiter).await.unwrap());
        }
        assert_eq!(recorded.total(waiting), 0.0);
        assert_eq!(recorded.total("curator_locks_granted_total{lock=batch}"), 3.0);
        assert_eq!(recorded.total("curator_lock_held{lock=batch}"), 0.0);

        // Tasks beyond the limit of waiting nodes.
        let options = MutexOptions::new().name("line").max_waiting_nodes(1);
        let line = InterProcessMutex::with_options(client.clone(), "/line", options).unwrap();
        let held = line.acquire().await.unwrap();
        let waiters = [(); 4].map(|()| {
            let line = line.clone();
            tokio::spawn(async move { line.acquire().await.unwrap() })
        });
        let waiting = "curator_lock_waiting{lock=line}";
        eventually("three wait in the process", async || recorded.total(waiting) == 3.0).await;
        waiters[3].abort();
        eventually("two wait in the process", async || recorded.total(waiting) == 2.0).await;
        drop(held);
        for waiter in waiters.into_iter().take(3) {
            drop(in_time(waiter).await.unwrap());
        }
        assert_eq!(recorded.total(waiting), 0.0);

        // Two leases, one of which is lost, then a reconnect.
        let semaphore = InterProcessSemaphoreV2::new(client.clone(), "/semaphore", 3).unwrap();
        let leases = semaphore.acquire_many(2).await.unwrap();
        client.delete().for_path(leases.iter().next().unwrap().node_path()).await.unwrap();
        let lost = "curator_locks_lost_total{lock=semaphore,reason=node_deleted}";
        eventually("the loss is counted", async || recorded.total(lost) == 1.0).await;
        assert_eq!(recorded.total("curator_lock_held{lock=semaphore}"), 1.0);
        proxy.reset();
        eventually("the reconnect is counted", async || recorded.total("curator_reconnects_total{}") == 1.0).await;
        let states = ["connected", "suspended", "reconnected"];
        let states = states.map(|state| recorded.total(&format!("curator_connection_state{{state={state}}}")));
        assert_eq!(states, [0.0, 0.0, 1.0]);

        // The other lease is lost with the session: the notification of its deletion may come first.
        let guard = mutex.acquire().await.unwrap();
        server.kill_session(server.sessions()[0]);
        let lost = "curator_locks_lost_total{lock=tenants,reason=session_expired}";
        eventually("the loss with the session is counted", async || recorded.total(lost) == 1.0).await;
        assert_eq!(recorded.total("curator_lock_held{lock=tenants}"), 0.0);
        drop(guard);
        drop(leases);
        assert_eq!(recorded.total("curator_lock_held{lock=tenants}"), 0.0);
        assert_eq!(recorded.total("curator_lock_held{lock=semaphore}"), 0.0);

        in_time(client.block_until_connected()).await.unwrap();
        client.close().await;
        assert!(mutex.acquire().await.is_err());
        assert_eq!(recorded.total("curator_lock_errors_total{lock=tenants}"), 1.0);
        assert!(!recorded.samples("curator_request_seconds{request=create}").is_empty());
        assert!(
            recorded.samples("curator_request_seconds{request=create}").iter().all(|time| (0.0..30.0).contains(time))
        );
        // The client is in no state once it is closed.
        let states = recorded.totals.iter().filter(|(name, _)| name.starts_with("curator_connection_state"));
        assert!(states.clone().count() >= 3 && states.clone().all(|(_, clients)| *clients == 0.0), "{states:?}");
        assert_eq!(recorded.shapes, promised());
    });
}
