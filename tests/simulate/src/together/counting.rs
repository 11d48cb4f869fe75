//! Clients that count.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use curator_checkers::counters::{Call, Counter, Event, Operation, Outcome};
use curator_framework::{CuratorFramework, RetryNTimes};
use curator_recipes::{AtomicChange, CachedAtomicLong, Compared, CounterError, DistributedAtomicLong, UniqueIds};
use futures_util::future::join_all;
use rand::Rng;
use tokio::time::timeout;

use super::Worker;

/// A counter of additions alone.
const SUM: Counter = Counter(1);
const MIXED: Counter = Counter(2);
const IDS: Counter = Counter(3);
const BLOCKS: Counter = Counter(4);
/// The limit of the time of a call. A session is restored or replaced in less.
const LIMIT: Duration = Duration::from_secs(90);
/// The limit of the time of a call without faults.
const CALM_LIMIT: Duration = Duration::from_secs(20);
const STEPS: u32 = 10;
/// The parent of all counters, below the path of the storm.
const PARENT: &str = "/deep";

/// The counters of a client, which its workers share.
#[derive(Debug, Clone)]
pub struct Counting {
    sum: Number,
    mixed: Number,
    ids: UniqueIds,
    blocks: CachedAtomicLong,
}

/// A counter of one client.
#[derive(Debug, Clone)]
struct Number {
    counter: Counter,
    atomic: DistributedAtomicLong,
    /// The session in which it has written, so that it knows its marker; 0 before its first write.
    marked_in: Arc<AtomicI64>,
}

impl Number {
    fn new(client: &CuratorFramework, counter: Counter, path: String) -> Self {
        Self { counter, atomic: atomic(client, path), marked_in: Arc::default() }
    }
}

/// Returns the counter with a number at this path.
pub(super) fn counter_at(path: &str) -> Option<Counter> {
    let (_, node) = path.rsplit_once(PARENT)?;
    [SUM, MIXED].into_iter().find(|counter| node_of(*counter) == node.strip_prefix('/'))
}

/// Returns the name of the node of a counter with a number.
fn node_of(counter: Counter) -> Option<&'static str> {
    match counter {
        SUM => Some("sum"),
        MIXED => Some("mixed"),
        _ => None,
    }
}

impl Counting {
    /// Creates the counters of a client.
    pub fn new(client: &CuratorFramework, path: &str) -> Self {
        let at = |name: &str| format!("{path}{PARENT}/{name}");
        let blocks = atomic(client, at("blocks"));
        Self {
            sum: Number::new(client, SUM, at("sum")),
            mixed: Number::new(client, MIXED, at("mixed")),
            ids: UniqueIds::new(client.clone(), at("ids")).expect("a valid path"),
            blocks: CachedAtomicLong::new(blocks, 3).expect("a valid factor"),
        }
    }
}

fn atomic(client: &CuratorFramework, path: String) -> DistributedAtomicLong {
    let policy = RetryNTimes::new(20, Duration::from_millis(20));
    DistributedAtomicLong::new(client.clone(), path, policy).expect("a valid path")
}

fn changed(change: &AtomicChange<i64>) -> Outcome {
    Outcome::Changed { pre: change.pre_value, post: change.post_value }
}

impl Worker<Event> {
    /// Counts until all faults are over, and once more.
    pub async fn count(mut self, counting: Counting) {
        let mut steps = 0;
        while !self.is_calm() || steps < STEPS {
            steps += 1;
            self.pause().await;
            self.lose_a_reply();
            self.step(&counting).await;
        }
        self.meet().await;
        for _ in 0..2 {
            let delta = self.delta();
            self.add(&counting.sum, delta, None).await;
            self.add(&counting.mixed, delta, None).await;
            self.take(&counting.ids, 1, None).await;
        }
        self.meet().await;
        self.get(&counting.sum).await;
        self.get(&counting.mixed).await;
        self.meet().await;
        // The drop of some counters leaves their markers to their sessions.
        if self.one_of(2) == 0 {
            counting.sum.atomic.release_marker().await;
            counting.mixed.atomic.release_marker().await;
        }
    }

    /// Various deltas have sums that differ.
    fn delta(&mut self) -> i64 {
        self.random.random_range(1..1_000_000)
    }

    /// Drops some calls before their ends.
    fn brief(&mut self) -> Option<Duration> {
        (self.one_of(8) == 0).then(|| self.time(0..400))
    }

    async fn step(&mut self, counting: &Counting) {
        let Counting { sum, mixed, ids, blocks } = counting;
        let (delta, brief) = (self.delta(), self.brief());
        match self.one_of(20) {
            0..=5 => self.add(sum, delta, brief).await,
            6 | 7 => {
                let deltas: Vec<_> =
                    (0..self.random.random_range(2..7)).map(|_| (self.delta(), self.brief())).collect();
                let this = &*self;
                join_all(deltas.into_iter().map(|(delta, brief)| this.add(sum, delta, brief))).await;
            }
            8 => self.add(mixed, delta, brief).await,
            9 => self.add(mixed, -delta, brief).await,
            10 => {
                self.get(sum).await;
                self.get(mixed).await;
            }
            11 | 12 => self.compare(mixed, delta, brief).await,
            13 => {
                let set = mixed.atomic.try_set(delta);
                self.change(mixed, Operation::Set(delta), set, |change| changed(&change), brief).await;
            }
            14 => {
                let set = mixed.atomic.force_set(delta);
                self.change(mixed, Operation::Set(delta), set, |()| Outcome::Done, brief).await;
            }
            15 => {
                let outcome = |by_this| if by_this { Outcome::Done } else { Outcome::Exists };
                let initialized = mixed.atomic.initialize(delta);
                self.change(mixed, Operation::Initialize(delta), initialized, outcome, brief).await;
            }
            16 => {
                let count = self.random.random_range(1..5);
                self.take(ids, count, brief).await;
            }
            17 => {
                let outcome = |id: i64| Outcome::Ids(vec![id.unsigned_abs()]);
                self.call(BLOCKS, Operation::Ids { rising: false }, blocks.next(), outcome, brief).await;
            }
            18 => {
                // Most values and this number overflow.
                self.add(mixed, i64::MAX, brief).await;
                let back = mixed.atomic.try_set(delta);
                self.change(mixed, Operation::Set(delta), back, |change| changed(&change), None).await;
            }
            _ => {
                // An object of its own.
                let own = Number::new(&self.client, SUM, sum.atomic.path().to_owned());
                self.add(&own, delta, brief).await;
                self.lose_a_reply();
                self.add(&own, delta, None).await;
                if self.one_of(2) == 0 {
                    own.atomic.release_marker().await;
                }
            }
        }
    }

    /// Makes a call, and notes its outcome.
    async fn call<T>(
        &self,
        counter: Counter,
        operation: Operation,
        future: impl Future<Output = Result<T, CounterError>>,
        outcome: impl FnOnce(T) -> Outcome,
        brief: Option<Duration>,
    ) {
        let number = Number { marked_in: Arc::default(), ..Number::new(&self.client, counter, "/none".to_owned()) };
        self.change(&number, operation, future, outcome, brief).await;
    }

    /// Makes a call to a counter with a marker, and notes its outcome.
    async fn change<T>(
        &self,
        number: &Number,
        operation: Operation,
        future: impl Future<Output = Result<T, CounterError>>,
        outcome: impl FnOnce(T) -> Outcome,
        brief: Option<Duration>,
    ) {
        let call = Call(self.scribe.begins(|call| Event::Began(Call(call), number.counter, operation)));
        let (is_calm, session) = (self.is_calm(), self.session().await);
        let is_marked = number.marked_in.load(Ordering::Relaxed) == session && self.has_marker(number.counter, session);
        let limit = brief.unwrap_or(if is_calm { CALM_LIMIT } else { LIMIT });
        let outcome = match timeout(limit, future).await {
            Ok(Ok(result)) => outcome(result),
            Ok(Err(error)) => self.failed(&error, is_calm),
            Err(_) if brief.is_some() => {
                // The next call may give up the marker of this one.
                number.marked_in.store(0, Ordering::Relaxed);
                return self.scribe.note(format_args!("{call:?} is dropped"));
            }
            Err(_) => return self.scribe.wrong(format!("{call:?} does not end")),
        };
        match outcome {
            Outcome::Changed { .. } | Outcome::Done if session == self.session().await => {
                number.marked_in.store(session, Ordering::Relaxed);
            }
            Outcome::Unknown => {
                number.marked_in.store(0, Ordering::Relaxed);
                if session == 0 || !is_marked || !self.has_marker(number.counter, session) {
                    // A marker that was never seen proves nothing, nor does one that an administrator has deleted.
                    self.scribe.session_ended(format_args!("{call:?} had no marker"));
                }
            }
            _ => {}
        }
        self.scribe.event(Event::Ended(call, outcome));
    }

    /// Returns `true` if a marker of the counter in this session exists on the servers.
    fn has_marker(&self, counter: Counter, session: i64) -> bool {
        let Some(node) = node_of(counter).map(|name| format!("{}{PARENT}/{name}", self.root)) else { return false };
        let mut markers = self.ensemble.children(&node).into_iter();
        markers.any(|marker| self.ensemble.owner(&format!("{node}/{marker}")) == Some(session))
    }

    /// Returns the session of the client; 0 if it is not connected.
    async fn session(&self) -> i64 {
        let session = timeout(Duration::ZERO, self.client.session()).await;
        session.ok().and_then(Result::ok).and_then(|session| session.id().map(|id| id.get())).unwrap_or_default()
    }

    fn failed(&self, error: &CounterError, is_calm: bool) -> Outcome {
        if let CounterError::Overflow { value, .. } = error {
            return Outcome::Shows(*value);
        }
        let is_contended = matches!(error, CounterError::Contended { .. });
        self.scribe.judge(error, error.is_retryable() && (!is_calm || is_contended || error.outcome_unknown()));
        if error.outcome_unknown() { Outcome::Unknown } else { Outcome::Refused }
    }

    async fn add(&self, number: &Number, delta: i64, brief: Option<Duration>) {
        let added = number.atomic.add(delta);
        self.change(number, Operation::Add(delta), added, |change| changed(&change), brief).await;
    }

    async fn get(&self, number: &Number) {
        self.call(number.counter, Operation::Get, number.atomic.get(), Outcome::Shows, None).await;
    }

    async fn take(&self, ids: &UniqueIds, count: usize, brief: Option<Duration>) {
        self.call(IDS, Operation::Ids { rising: true }, ids.take(count), Outcome::Ids, brief).await;
    }

    /// Sets the mixed counter if it has the value that a read has shown.
    async fn compare(&mut self, mixed: &Number, new: i64, brief: Option<Duration>) {
        let Ok(Ok(expected)) = timeout(LIMIT, mixed.atomic.get()).await else { return };
        self.lose_a_reply();
        let outcome = |compared: Compared<i64>| match compared {
            Compared::Set(change) => changed(&change),
            Compared::Differs(value) => Outcome::Shows(value),
            Compared::Missing => Outcome::Missing,
        };
        let compared = mixed.atomic.compare_and_set(expected, new);
        self.change(mixed, Operation::CompareAndSet { expected, new }, compared, outcome, brief).await;
    }
}
