//! A loss by the clock depends on no other task: not on a log, a task that computes, or a runtime that is not driven.

use std::cell::RefCell;
use std::future::pending;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::task::{Context, Wake, Waker};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use curator_framework::recipe::{RecipeClient as _, report, report_metric};
use curator_framework::spi::{ByteStream, Connector};
use curator_framework::{
    AddWatchMode, BootClock, Clock, CuratorFramework, DefaultZooKeeperFactory, LossReason,
    SessionConnectionStateErrorPolicy, SessionEnd, StandardConnectionStateErrorPolicy,
};
use curator_integration::env::{PATIENCE, builder, connected, eventually};
use curator_recipes::{
    InterProcessMultiLock, InterProcessMutex, LeaderError, LeaderLatch, LockError, LockGuard, MutexGuard, TermEnd,
};
use curator_test::{FaultProxy, TestingServer};
use futures_util::FutureExt as _;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use tokio::net::TcpStream;
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

const SESSION: Duration = Duration::from_secs(2);
const PATH: &str = "/busy/lock";

/// A gate, closed at first, that blocks the thread of each caller.
#[derive(Clone, Default)]
struct Gate(Arc<(Mutex<bool>, Condvar)>);

impl Gate {
    fn pass(&self) {
        let (open, changed) = &*self.0;
        let open = open.lock().unwrap_or_else(PoisonError::into_inner);
        drop(changed.wait_while(open, |open| !*open).unwrap_or_else(PoisonError::into_inner));
    }

    fn open(&self) {
        *self.0.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.0.1.notify_all();
    }
}

/// Opens the gate at the end of a test. Created after a runtime, because the drop of that waits for its threads.
struct OpenAtEnd(Gate);

impl Drop for OpenAtEnd {
    fn drop(&mut self) {
        self.0.open();
    }
}

fn gate() -> (Gate, OpenAtEnd) {
    let gate = Gate::default();
    (gate.clone(), OpenAtEnd(gate))
}

fn workers(number: usize) -> Runtime {
    Builder::new_multi_thread().worker_threads(number).enable_all().build().unwrap()
}

async fn client(address: SocketAddr) -> CuratorFramework {
    connected(builder(address).session_timeout(SESSION)).await
}

async fn mutex_of(address: SocketAddr) -> MutexGuard {
    client_and_guard(address).await.1
}

async fn client_and_guard(address: SocketAddr) -> (CuratorFramework, MutexGuard) {
    let client = client(address).await;
    let guard = InterProcessMutex::new(client.clone(), PATH).unwrap().acquire().await.unwrap();
    (client, guard)
}

/// A server, a proxy before it for the holder, and the runtime of a waiter that connects without the proxy.
struct Stage {
    server: TestingServer,
    proxy: FaultProxy,
    others: Runtime,
}

impl Stage {
    fn new() -> Self {
        let server = TestingServer::start().unwrap();
        let proxy = FaultProxy::start(server.address()).unwrap();
        Self { server, proxy, others: workers(2) }
    }

    /// Cuts the holder off. Returns the times of its loss and of the next grant.
    fn loss_and_next_grant(&self, guard: &MutexGuard) -> (Instant, LossReason, Instant) {
        let address = self.server.address();
        self.others.block_on(async {
            let next = tokio::spawn(async move { (mutex_of(address).await, Instant::now()) });
            self.proxy.partition();
            let reason = timeout(PATIENCE, guard.lost()).await.expect("the loss is reported");
            let lost = Instant::now();
            let (_next, granted) = timeout(PATIENCE, next).await.unwrap().unwrap();
            (lost, reason, granted)
        })
    }

    fn is_lost_before_the_next_grant(&self, guard: &MutexGuard) {
        let (lost, reason, granted) = self.loss_and_next_grant(guard);
        assert_eq!(reason, LossReason::Session(SessionEnd::DeadlinePassed));
        assert!(lost < granted, "lost {:?} after the next grant", lost - granted);
    }
}

#[test]
fn guard_is_lost_in_time_while_no_thread_drives_the_runtime_of_its_client() {
    let stage = Stage::new();
    let of_client = Builder::new_current_thread().enable_all().build().unwrap();
    let guard = of_client.block_on(mutex_of(stage.proxy.address()));
    stage.is_lost_before_the_next_grant(&guard);
}

#[test]
fn silence_ends_a_hold_in_time_while_no_thread_drives_the_runtime_of_its_client() {
    for silence_is_error in [true, false] {
        let stage = Stage::new();
        let of_client = Builder::new_current_thread().enable_all().build().unwrap();
        let guard = of_client.block_on(async {
            let builder = builder(stage.proxy.address()).session_timeout(SESSION);
            let builder = match silence_is_error {
                true => builder.connection_state_error_policy(StandardConnectionStateErrorPolicy),
                false => builder.connection_state_error_policy(SessionConnectionStateErrorPolicy),
            };
            let client = connected(builder).await;
            InterProcessMutex::new(client, PATH).unwrap().acquire().await.unwrap()
        });
        let (_, reason, _) = stage.loss_and_next_grant(&guard);
        let expected = match silence_is_error {
            true => LossReason::ConnectionError,
            false => LossReason::Session(SessionEnd::DeadlinePassed),
        };
        assert_eq!(reason, expected);
    }
}

/// Blocks each event until the gate opens, like a log that writes to a full pipe.
struct FullPipe {
    gate: Gate,
    is_full: Arc<AtomicBool>,
}

impl Subscriber for FullPipe {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= tracing::Level::INFO
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, _: &Event<'_>) {
        if self.is_full.load(Ordering::SeqCst) {
            self.gate.pass();
        }
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

thread_local! {
    static LOG: RefCell<Option<tracing::subscriber::DefaultGuard>> = const { RefCell::new(None) };
}

#[test]
fn guard_is_lost_in_time_while_the_reader_of_the_log_stands_still() {
    let stage = Stage::new();
    let (gate, is_full) = (Gate::default(), Arc::new(AtomicBool::new(false)));
    let log = tracing::Dispatch::new(FullPipe { gate: gate.clone(), is_full: Arc::clone(&is_full) });
    let of_client = Builder::new_multi_thread()
        .worker_threads(4)
        .enable_all()
        .on_thread_start(move || LOG.set(Some(tracing::dispatcher::set_default(&log))))
        .build()
        .unwrap();
    let _open = OpenAtEnd(gate);
    let (guard, address) = (of_client.spawn(mutex_of(stage.proxy.address())), stage.server.address());
    let guard = stage.others.block_on(guard).unwrap();
    is_full.store(true, Ordering::SeqCst);
    // In the client's own runtime, as a program does it.
    let (lost, granted) = stage.others.block_on(async {
        let next = tokio::spawn(async move { (mutex_of(address).await, Instant::now()) });
        stage.proxy.partition();
        let lost = of_client.spawn(async move {
            guard.protect(pending::<()>()).await.unwrap_err();
            assert!(!guard.is_held());
            Instant::now()
        });
        let lost = timeout(PATIENCE, lost).await.expect("the loss is reported").unwrap();
        (lost, timeout(PATIENCE, next).await.unwrap().unwrap().1)
    });
    assert!(lost < granted, "lost {:?} after the next grant", lost - granted);
}

/// A waker that blocks, like one that sends to a full channel.
struct Blocking(Gate);

impl Wake for Blocking {
    fn wake(self: Arc<Self>) {
        self.0.pass();
    }
}

/// Loses one guard while the waker of another one, of another session, blocks.
fn is_lost_in_time_while_a_waker_blocks<K>(acquire: impl AsyncFnOnce(CuratorFramework) -> LockGuard<K>) {
    let (blocked, stage) = (Stage::new(), Stage::new());
    let not_driven = [(); 2].map(|()| Builder::new_current_thread().enable_all().build().unwrap());
    let (gate, _open) = gate();
    let of_blocked = not_driven[0].block_on(async { acquire(client(blocked.proxy.address()).await).await });
    let guard = not_driven[1].block_on(mutex_of(stage.proxy.address()));
    let waker = Waker::from(Arc::new(Blocking(gate)));
    let mut lost = pin!(of_blocked.lost());
    assert!(lost.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    blocked.proxy.partition();
    stage.others.block_on(eventually("the other loss", async || !of_blocked.is_held()));
    stage.is_lost_before_the_next_grant(&guard);
}

#[test]
fn guard_is_lost_in_time_while_the_waker_of_another_session_blocks() {
    is_lost_in_time_while_a_waker_blocks(async |client| {
        InterProcessMutex::new(client, PATH).unwrap().acquire().await.unwrap()
    });
}

#[test]
fn guard_is_lost_in_time_while_the_waker_of_a_multi_lock_blocks() {
    is_lost_in_time_while_a_waker_blocks(async |client| {
        InterProcessMultiLock::new(client, [PATH, "/busy/other"]).unwrap().acquire().await.unwrap()
    });
}

#[test]
fn metrics_are_recorded_while_the_log_blocks() {
    let (gate, _open) = gate();
    let log = tracing::Dispatch::new(FullPipe { gate: gate.clone(), is_full: Arc::default() });
    let (done, recorded) = std::sync::mpsc::channel();
    tracing::dispatcher::with_default(&log, || report(move || gate.pass()));
    report_metric(move || done.send(()).unwrap());
    recorded.recv_timeout(PATIENCE).unwrap();
}

#[test]
fn guard_is_lost_in_time_while_a_task_that_gave_up_a_guaranteed_delete_computes() {
    let stage = Stage::new();
    let of_client = workers(4);
    let (gate, _open) = gate();
    let (client, guard) = of_client.block_on(async {
        let client = client(stage.proxy.address()).await;
        client.create().for_path("/deleted").await.unwrap();
        let guard = InterProcessMutex::new(client.clone(), PATH).unwrap().acquire().await.unwrap();
        (client, guard)
    });
    let computing = of_client.spawn(async move {
        // Polled once, so that it is given up.
        assert!(client.delete().guaranteed().for_path("/deleted").now_or_never().is_none());
        gate.pass();
    });
    stage.is_lost_before_the_next_grant(&guard);
    assert!(!computing.is_finished());
}

/// Drops something in a task that then computes for longer than a session lasts, and checks that the client keeps a lock.
fn keeps_its_lock_while_a_task_computes_that_drops<T: Send + 'static>(make: impl AsyncFnOnce(&CuratorFramework) -> T) {
    let stage = Stage::new();
    let of_client = workers(4);
    let (gate, _open) = gate();
    let ((_client, guard), dropped) = of_client.block_on(async {
        let (client, guard) = client_and_guard(stage.proxy.address()).await;
        let dropped = make(&client).await;
        ((client, guard), dropped)
    });
    let computing = of_client.spawn(async move {
        drop(dropped);
        gate.pass();
    });
    let lost = stage.others.block_on(async { timeout(SESSION * 3 / 2, guard.lost()).await });
    assert!(lost.is_err() && guard.is_held(), "{lost:?}");
    assert!(!computing.is_finished());
}

#[test]
fn lock_is_kept_while_a_task_that_dropped_a_watch_computes() {
    keeps_its_lock_while_a_task_computes_that_drops(async |client| {
        client.create().for_path("/watched").await.unwrap();
        client.session().await.unwrap().get_data_watched("/watched").await.unwrap()
    });
}

#[test]
fn lock_is_kept_while_a_task_that_dropped_a_persistent_watch_computes() {
    keeps_its_lock_while_a_task_computes_that_drops(async |client| {
        client.session().await.unwrap().subscribe("/watched", AddWatchMode::Persistent, None).await.unwrap()
    });
}

#[test]
fn lock_is_kept_while_a_task_that_gave_up_a_wait_computes() {
    keeps_its_lock_while_a_task_computes_that_drops(async |client| {
        let mutex = InterProcessMutex::new(client.clone(), "/busy/other").unwrap();
        let holder = mutex.acquire().await.unwrap();
        let mut waiting = Box::pin(async move { mutex.acquire().await.map(drop) });
        eventually("the second contender waits", async || {
            assert!(waiting.as_mut().now_or_never().is_none());
            client.watchers() > 0
        })
        .await;
        (waiting, holder)
    });
}

/// Takes a lock away from a client with troubles that the generator chooses, at a moment that it chooses.
fn loss_among_troubles(mut random: StdRng) {
    let stage = Stage::new();
    let (is_driven, gate, is_full) = (random.random_bool(0.7), Gate::default(), Arc::new(AtomicBool::new(false)));
    let log = tracing::Dispatch::new(FullPipe { gate: gate.clone(), is_full: Arc::clone(&is_full) });
    let mut of_client = if is_driven { Builder::new_multi_thread() } else { Builder::new_current_thread() };
    of_client.worker_threads(4).enable_all();
    of_client.on_thread_start(move || LOG.set(Some(tracing::dispatcher::set_default(&log))));
    let of_client = of_client.build().unwrap();
    let _open = OpenAtEnd(gate.clone());
    let ((client, guard), watch) = of_client.block_on(async {
        let (client, guard) = client_and_guard(stage.proxy.address()).await;
        let watched = client.session().await.unwrap().get_data_watched("/").await.unwrap();
        ((client, guard), watched.watch)
    });
    is_full.store(random.random_bool(0.5), Ordering::SeqCst);
    let computes = random.random_range(0..4);
    of_client.spawn(async move {
        match computes {
            0 => return,
            1 => drop(watch),
            2 => drop(client.delete().guaranteed().for_path("/none").now_or_never()),
            _ => drop(InterProcessMutex::new(client, PATH).unwrap().acquire().now_or_never()),
        }
        gate.pass();
    });
    std::thread::sleep(Duration::from_millis(random.random_range(0..500)));
    let troubles = (is_driven, is_full.load(Ordering::SeqCst), computes);
    let (lost, reason, granted) = stage.loss_and_next_grant(&guard);
    assert!(lost < granted, "{troubles:?}: {reason} {:?} after the next grant", lost - granted);
}

/// `CURATOR_STORM_SECONDS` makes it longer.
#[test]
fn losses_come_in_time_in_a_storm_of_blocked_tasks() {
    let seconds = std::env::var("CURATOR_STORM_SECONDS").map_or(4, |seconds| seconds.parse().unwrap());
    let seed = rand::random::<u64>();
    println!("seed {seed}, {seconds} s");
    let mut random = StdRng::seed_from_u64(seed);
    let (until, mut losses) = (Instant::now() + Duration::from_secs(seconds), 0);
    while Instant::now() < until {
        let generators: Vec<_> = (0..8).map(|_| StdRng::from_rng(&mut random)).collect();
        losses += generators.len();
        let threads = generators.into_iter().map(|random| std::thread::spawn(|| loss_among_troubles(random)));
        for thread in threads.collect::<Vec<_>>() {
            thread.join().unwrap();
        }
    }
    println!("{losses} losses, each before the next grant");
}

/// Connects by a stream that is not a plain socket to the client, as TLS is not.
#[derive(Debug)]
struct Wrapped;

#[async_trait]
impl Connector for Wrapped {
    async fn connect(&self, server: &str) -> io::Result<Box<dyn ByteStream>> {
        Ok(Box::new(TcpStream::connect(server.to_owned()).await?))
    }
}

#[test]
fn dropped_guard_is_released_while_its_task_computes() {
    for is_wrapped in [false, true] {
        let stage = Stage::new();
        let of_client = workers(4);
        let (gate, _open) = gate();
        let (_client, guard) = of_client.block_on(async {
            let builder = builder(stage.proxy.address()).session_timeout(SESSION);
            let client = connected(match is_wrapped {
                true => builder.zookeeper_factory(DefaultZooKeeperFactory::with_connector(Wrapped)),
                false => builder,
            });
            let client = client.await;
            let guard = InterProcessMutex::new(client.clone(), PATH).unwrap().acquire().await.unwrap();
            (client, guard)
        });
        let computing = of_client.spawn(async move {
            drop(guard);
            gate.pass();
        });
        let next = async { timeout(SESSION / 2, mutex_of(stage.server.address())).await };
        assert!(stage.others.block_on(next).is_ok_and(|guard| guard.is_held()), "wrapped: {is_wrapped}");
        assert!(!computing.is_finished());
    }
}

#[test]
fn guard_dropped_outside_of_its_runtime_is_released_while_no_thread_drives_that() {
    let stage = Stage::new();
    let of_client = Builder::new_current_thread().enable_all().build().unwrap();
    let (_client, guard) = of_client.block_on(client_and_guard(stage.proxy.address()));
    drop(guard);
    let next = async { timeout(SESSION / 2, mutex_of(stage.server.address())).await };
    assert!(stage.others.block_on(next).is_ok_and(|guard| guard.is_held()));
}

/// A clock that panics at times.
#[derive(Debug, Clone, Default)]
struct Broken(Arc<AtomicBool>);

impl Clock for Broken {
    fn now(&self) -> Duration {
        assert!(!self.0.load(Ordering::SeqCst), "the clock is broken");
        BootClock.now()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn panic_of_a_clock_ends_neither_the_session_nor_a_wait() {
    let server = TestingServer::start().unwrap();
    let (clock, other) = (Broken::default(), client(server.address()).await);
    let client = connected(builder(server.address()).clock(clock.clone())).await;
    let mutex = Arc::new(InterProcessMutex::new(client.clone(), PATH).unwrap());
    let guard = mutex.acquire().await.unwrap();
    let waiting = tokio::spawn(async move { mutex.acquire().await.map(|guard| guard.is_held()) });
    eventually("the second contender waits", async || client.watchers() > 0).await;
    clock.0.store(true, Ordering::SeqCst);
    // The notification makes the task of the connection read the clock, and the drop reads it too.
    other.set_data().for_path(guard.node_path(), "").await.unwrap();
    drop(guard);
    assert!(timeout(PATIENCE, waiting).await.expect("the waiter is granted").unwrap().unwrap());
}

/// A clock that is far ahead in one of its next calls.
#[derive(Debug, Clone, Default)]
struct Leaping(Arc<AtomicU32>);

impl Clock for Leaping {
    fn now(&self) -> Duration {
        let before = self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |calls| calls.checked_sub(1));
        BootClock.now() + if before == Ok(1) { Duration::from_secs(3600) } else { Duration::ZERO }
    }
}

/// The deadline has passed at one look, and a reply has moved it before the next look.
#[tokio::test]
async fn work_at_a_deadline_that_moves_ends_with_that_reason() {
    let server = TestingServer::start().unwrap();
    let clock = Leaping::default();
    let client = connected(builder(server.address()).clock(clock.clone())).await;
    let mutex = InterProcessMutex::new(client.clone(), PATH).unwrap();
    let latch = LeaderLatch::new(client, "/busy/election").unwrap();
    latch.start().unwrap();
    let passed = LossReason::Session(SessionEnd::DeadlinePassed);
    let mut ends = [0, 0];
    for calls in 1..=6 {
        let (guard, term) = (mutex.acquire().await.unwrap(), latch.leading().await.unwrap());
        clock.0.store(calls, Ordering::SeqCst);
        let of_lock = guard.protect(pending::<()>()).now_or_never();
        clock.0.store(calls, Ordering::SeqCst);
        let of_term = term.protect(pending::<()>()).now_or_never();
        clock.0.store(0, Ordering::SeqCst);
        match of_lock {
            None => {}
            Some(Err(LockError::LockLost { reason, .. })) if reason == passed => ends[0] += 1,
            Some(end) => panic!("{end:?} at call {calls}"),
        }
        match of_term {
            None => {}
            Some(Err(LeaderError::LeadershipLost { reason: TermEnd::Lost(reason), .. })) if reason == passed => {
                ends[1] += 1
            }
            Some(end) => panic!("{end:?} at call {calls}"),
        }
        drop(guard);
    }
    assert!(ends.iter().all(|&ends| ends > 0), "{ends:?}");
}

#[cfg(curator_mutants)]
#[test]
fn loss_that_depends_on_the_tasks_of_the_client_is_found() {
    let stage = Stage::new();
    let of_client = Builder::new_current_thread().enable_all().build().unwrap();
    let guard = curator_framework::mutants::with("leave-the-deadline-to-the-tasks", || {
        of_client.block_on(mutex_of(stage.proxy.address()))
    });
    stage.proxy.partition();
    assert!(stage.others.block_on(async { timeout(SESSION * 2, guard.lost()).await }).is_err());
}
