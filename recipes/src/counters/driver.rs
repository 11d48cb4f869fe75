//! The requests of a counter, sent in the future of one of its callers.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use curator_framework::{
    CreateMode, CuratorFramework, Done, Error, NodeSpec, Operation, Parents, RetryLoop, RetryPolicy, Session, Stat,
    validate_path,
};
use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep_until};

use crate::counters::change::{AtomicChange, AtomicStats, Compared};
use crate::counters::content::sealed::Content;
use crate::counters::contention::Contention;
use crate::counters::engine::{Change, Effect, Engine, Failure, Guard, Outcome, Refusal, Step, Stored, Write};
use crate::counters::error::{CounterError, CounterResult};
use crate::counters::marker::{Marker, Proof};
use crate::counters::options::{CounterOptions, PromotedToLock};
use crate::locks::InterProcessMutex;

/// The number of times that the parents of a node are created for one write.
const MOST_PARENTS_MADE: u32 = 16;

/// The resolution of the runtime's timers.
const SHORTEST_SLEEP: Duration = Duration::from_millis(1);

/// The state that all clones of a counter or an atomic value share.
pub(super) struct Counter<V: Content> {
    client: CuratorFramework,
    path: String,
    policy: Arc<dyn RetryPolicy>,
    promoted: Option<Promotion>,
    engine: Mutex<Engine<V>>,
    /// Locked by the caller that sends the requests of all. If its future is dropped, the next caller continues.
    driver: tokio::sync::Mutex<Driver>,
}

/// The lock to which a change is promoted, and its options.
type Promotion = (InterProcessMutex, PromotedToLock);

/// A caller's change. Its drop takes the change back, unless it was sent.
struct Ticket<'a, V: Content> {
    engine: &'a Mutex<Engine<V>>,
    id: u64,
    outcome: oneshot::Receiver<Outcome<V>>,
}

impl<V: Content> Drop for Ticket<'_, V> {
    fn drop(&mut self) {
        self.engine.lock().withdraw(self.id);
    }
}

/// The state of the requests, kept between callers.
#[derive(Debug, Default)]
struct Driver {
    marker: Option<Marker>,
    /// The write that was begun and not settled.
    flight: Option<Flight>,
    attempts: u64,
    contention: Contention,
    pause: Option<Pause>,
    /// The version before a gap.
    expected: Option<i32>,
    /// The client has no transactions.
    is_plain: bool,
    /// The transaction that created the node which the engine knows.
    czxid: Option<i64>,
}

/// A pause for other sessions.
#[derive(Debug, Clone, Copy)]
struct Pause {
    end: Instant,
    /// A gap in the session's own turn.
    is_gap: bool,
}

impl Pause {
    fn until(now: Instant, pause: Duration) -> Option<Self> {
        (!pause.is_zero()).then(|| Self { end: now + pause, is_gap: false })
    }

    /// A gap, of which the read behind it is a part. Timers cannot measure shorter ones.
    fn gap(now: Instant, gap: Duration) -> Option<Self> {
        let sleep = if gap < SHORTEST_SLEEP { Duration::ZERO } else { gap };
        (!gap.is_zero()).then(|| Self { end: now + sleep, is_gap: true })
    }
}

/// A write that was begun.
#[derive(Debug)]
struct Flight {
    attempt: u64,
    guard: Guard,
    /// The write was sent, and its reply has not arrived.
    is_sent: bool,
    /// A lost try may have been applied, and nothing can prove it. So a refused condition proves nothing either.
    is_ambiguous: bool,
    /// The first error of a try with an unknown outcome.
    unknown: Option<Error>,
}

/// The reply to a write.
enum Reply {
    /// Applied; the node's stat behind it, unless the write has created it.
    Applied(Option<Stat>),
    Refused(Refusal),
    /// The parent of the node is missing. Nothing was applied.
    NoParent,
    /// The marker is not as expected: an administrator has deleted it. Nothing was applied.
    Marker,
    /// The client has no transactions. Nothing was sent.
    Plain,
    Error(Error),
}

impl<V: Content> Counter<V> {
    pub(super) fn new(
        client: CuratorFramework,
        path: String,
        policy: Arc<dyn RetryPolicy>,
        options: CounterOptions,
    ) -> CounterResult<Self> {
        validate_path(&path)?;
        let promoted = match options.promoted {
            Some(lock) => {
                let mutex = InterProcessMutex::new(client.clone(), &lock.lock_path).map_err(CounterError::Lock)?;
                Some((mutex, lock))
            }
            None => None,
        };
        let (engine, driver) = (Mutex::default(), tokio::sync::Mutex::default());
        Ok(Self { client, path, policy, promoted, engine, driver })
    }

    pub(super) fn path(&self) -> &str {
        &self.path
    }

    /// Reads the value; `None` if the node does not exist.
    pub(super) async fn get(&self) -> CounterResult<Option<V>> {
        match self.client.get_data().for_path(&self.path).await {
            Ok((data, _)) => {
                let wrong = || self.not_a_number(data.len());
                V::from_data(&data).map(Some).ok_or_else(wrong)
            }
            Err(Error::NoNode { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Makes a change, and returns its effect.
    pub(super) async fn change(&self, change: Change<V>) -> CounterResult<(Effect<V>, AtomicStats)> {
        let (began, mut stats) = (Instant::now(), AtomicStats::default());
        let mut outcome = self.run(change.clone(), &self.policy).await;
        (stats.optimistic_tries, stats.optimistic_time) = (outcome.tries, began.elapsed());
        if let (Err(Failure::Contended), Some(promotion)) = (&outcome.result, &self.promoted) {
            let began = Instant::now();
            // Boxed: a rare branch must not enlarge the future.
            if let Some(promoted) = Box::pin(self.run_promoted(change, promotion)).await? {
                stats.promoted_tries = promoted.tries;
                outcome = promoted;
            }
            stats.promoted_time = began.elapsed();
        }
        let path = || self.client.path_text(&self.path);
        match outcome.result {
            Ok(Effect::Overflow { value, delta }) => Err(CounterError::Overflow { path: path(), value, delta }),
            Ok(Effect::NotANumber { length }) => Err(self.not_a_number(length)),
            Ok(Effect::VersionsExhausted) => Err(CounterError::VersionsExhausted { path: path() }),
            Ok(effect) => Ok((effect, stats)),
            Err(Failure::Error(error)) => Err(error),
            Err(Failure::Contended) => {
                let tries = stats.optimistic_tries.saturating_add(stats.promoted_tries);
                Err(CounterError::Contended { path: path(), tries })
            }
        }
    }

    /// Makes a change under the lock. Returns `None` if the wait for the lock has ended before.
    async fn run_promoted(&self, change: Change<V>, promotion: &Promotion) -> CounterResult<Option<Outcome<V>>> {
        let (mutex, lock) = promotion;
        let guard = match lock.timeout {
            Some(timeout) => mutex.acquire_timeout(timeout).await,
            None => mutex.acquire().await.map(Some),
        };
        let Some(guard) = guard.map_err(CounterError::Lock)? else { return Ok(None) };
        let outcome = self.run(change, &lock.retry_policy).await;
        // If the release fails, the lock's node is deleted in the background, and the change is made all the same.
        let _released = guard.release().await;
        Ok(Some(outcome))
    }

    /// Makes a change that always sets the value.
    pub(super) async fn set(&self, change: Change<V>) -> CounterResult<AtomicChange<V>> {
        match self.change(change).await? {
            (Effect::Changed { pre, post }, stats) => Ok(AtomicChange::new(pre, post, stats)),
            // Never: such a change has this effect, or an error.
            _ => Err(Error::Closed.into()),
        }
    }

    pub(super) async fn compare_and_set(&self, expected: V, new: V) -> CounterResult<Compared<V>> {
        Ok(match self.change(Change::CompareAndSet { expected, new }).await? {
            (Effect::Changed { pre, post }, stats) => Compared::Set(AtomicChange::new(pre, post, stats)),
            (Effect::Differs(value), _) => Compared::Differs(value),
            _ => Compared::Missing,
        })
    }

    pub(super) async fn initialize(&self, value: V) -> CounterResult<bool> {
        let (effect, _) = self.change(Change::Initialize(value)).await?;
        Ok(matches!(effect, Effect::Changed { .. }))
    }

    fn not_a_number(&self, length: usize) -> CounterError {
        let expected = V::LENGTH.unwrap_or_default();
        CounterError::NotANumber { path: self.client.path_text(&self.path), length, expected }
    }

    /// Deletes the marker. The next change creates another one.
    pub(super) async fn close(&self) {
        let marker = {
            let mut driver = self.driver.lock().await;
            driver.marker.take()
        };
        if let Some(marker) = marker {
            marker.delete().await;
        }
    }

    /// Queues a change, and sends requests until it is decided, unless another caller does.
    async fn run(&self, change: Change<V>, policy: &Arc<dyn RetryPolicy>) -> Outcome<V> {
        let (id, outcome) = self.engine.lock().submit(change, Arc::clone(policy), Instant::now());
        let mut ticket = Ticket { engine: &self.engine, id, outcome };
        let decided = tokio::select! {
            biased;
            decided = &mut ticket.outcome => decided,
            mut driver = self.driver.lock() => {
                // Boxed: the futures of callers that wait for another one stay small.
                Box::pin(self.drive(&mut driver, &mut ticket)).await;
                drop(driver);
                (&mut ticket.outcome).await
            }
        };
        // Never fails: the engine ends each change that has a caller.
        decided.unwrap_or_else(|_| Outcome { result: Err(Failure::Error(Error::Closed.into())), tries: 0 })
    }

    /// Sends requests until this caller's change is decided.
    async fn drive(&self, driver: &mut Driver, ticket: &mut Ticket<'_, V>) {
        let began = self.engine.lock().mark();
        let mut retries = self.client.retry_loop();
        self.take_over(driver);
        while ticket.outcome.is_empty() && !ticket.outcome.is_terminated() {
            if let Some(pause) = driver.pause {
                sleep_until(pause.end).await;
                driver.pause = None;
                let known = self.engine.lock().forget();
                driver.expected = known.filter(|_| pause.is_gap);
            }
            let step = self.engine.lock().next();
            let is_done = match step {
                Step::Idle => continue,
                Step::Read => {
                    let read = self.read(driver, &mut retries).await;
                    match &read {
                        Ok(()) => self.looked(driver),
                        Err(error) => self.engine.lock().queue_failed(began, &error.clone().into()),
                    }
                    read.is_ok()
                }
                Step::Write(write) => {
                    let written = self.write(driver, &write, &mut retries).await;
                    if let Err(error) = &written {
                        let mut engine = self.engine.lock();
                        engine.flight_failed(&error.clone().into());
                        if error.is_retryable() {
                            engine.queue_failed(began, &error.clone().into());
                        }
                    }
                    written.is_ok()
                }
            };
            if is_done {
                retries.progressed();
            }
        }
    }

    /// Gives up the write of an earlier driver if none of its callers is left. It may still be applied. Without markers
    /// it makes the next change begin with a read.
    fn take_over(&self, driver: &mut Driver) {
        let mut engine = self.engine.lock();
        if driver.flight.is_some() && !engine.is_awaited() {
            driver.give_up();
            engine.flight_failed(&Error::Closed.into());
        }
        if driver.is_plain {
            // Without a marker the node may have been deleted and created again.
            engine.forget();
        }
    }

    /// Reads the node for the engine.
    async fn read(&self, driver: &mut Driver, retries: &mut RetryLoop) -> Result<(), Error> {
        loop {
            let mark = self.engine.lock().mark();
            let read = match retries.session().await {
                Ok(session) => session.get_data(&self.path).await,
                Err(error) => Err(error),
            };
            match self.was_read(driver, mark, read) {
                Ok(()) => return Ok(()),
                Err(error) => retries.failed(error).await?,
            }
        }
    }

    fn was_read(&self, driver: &mut Driver, mark: u64, read: Result<(Vec<u8>, Stat), Error>) -> Result<(), Error> {
        let found = match read {
            Ok((stored, stat)) => {
                driver.czxid = Some(stat.czxid);
                Some((Stored::of(&self.client.from_stored(&self.path, stored, None)?), stat.version))
            }
            Err(Error::NoNode { .. }) => None,
            Err(error) => return Err(error),
        };
        self.engine.lock().was_read(mark, found);
        Ok(())
    }

    /// Sends the write in flight until it is applied or refused.
    async fn write(&self, driver: &mut Driver, write: &Write, retries: &mut RetryLoop) -> Result<(), Error> {
        driver.begin(write.guard, Instant::now());
        let mut parents_made = 0;
        loop {
            let progress = match retries.session().await {
                Ok(session) => self.attempt(driver, write, &session).await,
                Err(error) => Err(error),
            };
            let failed = match progress {
                Ok(Progress::Settled) => return Ok(()),
                Ok(Progress::Again) => Ok(()),
                Ok(Progress::NoParent) if parents_made < MOST_PARENTS_MADE => {
                    parents_made += 1;
                    self.create_parents(retries).await
                }
                Ok(Progress::NoParent) => Err(Error::NoNode { path: self.client.path_text(&self.path) }),
                Ok(Progress::Fail(error)) => Err(error),
                Err(error) => retries.failed(error).await,
            };
            if let Err(error) = failed {
                return Err(driver.fail(&self.client, error));
            }
        }
    }

    async fn create_parents(&self, retries: &mut RetryLoop) -> Result<(), Error> {
        loop {
            let parents = NodeSpec::new(&[]).with_parents(Parents::Containers);
            let created = match retries.session().await {
                Ok(session) => session.create_parents(&self.path, &parents).await,
                Err(error) => Err(error),
            };
            match created {
                Ok(_) => return Ok(()),
                Err(error) => retries.failed(error).await?,
            }
        }
    }

    /// Settles an earlier try, and sends the write if that was not applied.
    async fn attempt(&self, driver: &mut Driver, write: &Write, session: &Session) -> Result<Progress, Error> {
        match driver.settle(session).await? {
            Some(Proof::Applied) => {
                if write.guard == Guard::Create {
                    // The marker does not tell it.
                    driver.czxid = None;
                }
                self.applied(driver, write.guard.version_after(), None);
                return Ok(Progress::Settled);
            }
            // Without a version a second write could undo a later one, or repeat one that went with its node.
            Some(Proof::None) if !matches!(write.guard, Guard::Version(_)) => {
                return Ok(Progress::Fail(driver.unknown(&self.client)));
            }
            _ => {}
        }
        if driver.needs_marker(write.guard, session) {
            // Boxed: a rare branch must not enlarge the future.
            if let Some(progress) = Box::pin(self.mark(driver, write.guard, session)).await? {
                return Ok(progress);
            }
        }
        let mark = self.engine.lock().mark();
        let (reply, read) = self.send(driver, write, session).await?;
        let settled = match reply {
            Reply::Applied(stat) => {
                driver.czxid = stat.map(|stat| stat.czxid);
                let version = stat.map_or(0, |stat| stat.version);
                let markers = stat.map_or(1, |stat| u32::try_from(stat.num_children).unwrap_or_default());
                self.applied(driver, Some(version), (!driver.is_plain).then_some(markers));
                Progress::Settled
            }
            Reply::Refused(_) | Reply::Marker if driver.is_ambiguous() => Progress::Fail(driver.unknown(&self.client)),
            Reply::Refused(refusal) => {
                self.refused(driver, refusal);
                Progress::Settled
            }
            Reply::NoParent => return Ok(Progress::NoParent),
            Reply::Marker => {
                driver.marker = None;
                self.refused(driver, Refusal::Outdated);
                return Ok(Progress::Settled);
            }
            Reply::Plain => {
                (driver.marker, driver.is_plain) = (None, true);
                return Ok(Progress::Again);
            }
            Reply::Error(error) => return Err(error),
        };
        if let Some(read) = read {
            // If it failed, the engine asks for another one.
            drop(self.was_read(driver, mark, read));
        }
        Ok(settled)
    }

    /// Creates the marker. Returns `None` if a read after that shows the node that the engine knows.
    async fn mark(&self, driver: &mut Driver, guard: Guard, session: &Session) -> Result<Option<Progress>, Error> {
        let (pinned, is_ambiguous, known) = (session.pinned(), driver.is_ambiguous(), driver.czxid);
        let marker = driver.marker_in(session, &self.path);
        let create = marker.create(0);
        if let Err(error) = self.check_marker(&create) {
            marker.refused();
            return Err(error);
        }
        let both = futures_util::future::join(pinned.transaction(vec![create]), pinned.exists(&self.path));
        let (created, found) = pinned.in_one_write(both).await;
        let created = if let Err(Error::Transaction { cause, .. }) = created { Err(*cause) } else { created };
        let refusal = match created {
            // It exists after a lost reply.
            Ok(_) | Err(Error::NodeExists { .. }) => {
                let found = found?;
                marker.applied();
                let is_known =
                    found.is_some_and(|stat| Some(stat.czxid) == known && guard == Guard::Version(stat.version));
                if is_known || guard == Guard::Any {
                    return Ok(None);
                }
                Refusal::Outdated
            }
            Err(Error::Unsupported { .. }) => {
                (driver.marker, driver.is_plain) = (None, true);
                return Ok(Some(Progress::Again));
            }
            Err(error) => {
                if !error.outcome_unknown() {
                    marker.refused();
                }
                let Error::NoNode { .. } = error else { return Err(error) };
                Refusal::Missing
            }
        };
        if is_ambiguous {
            return Ok(Some(Progress::Fail(driver.unknown(&self.client))));
        }
        self.refused(driver, refusal);
        Ok(Some(Progress::Settled))
    }

    fn check_marker(&self, create: &Operation) -> Result<(), Error> {
        match create {
            Operation::Create { path, data, acl, mode } => self.client.check_create(path, *mode, data, acl),
            _ => Ok(()),
        }
    }

    fn applied(&self, driver: &mut Driver, version: Option<i32>, markers: Option<u32>) {
        driver.flight = None;
        let version = version.filter(|_| !driver.is_plain);
        let now = Instant::now();
        let gap = driver.contention.applied(now, markers);
        driver.pause = Pause::gap(now, gap);
        self.engine.lock().applied(version);
    }

    /// Compares the version behind a gap with the one before it.
    fn looked(&self, driver: &mut Driver) {
        let Some(expected) = driver.expected.take() else { return };
        if self.engine.lock().version() != Some(expected) {
            let pause = driver.contention.refused(self.client.random_unit());
            driver.pause = Pause::until(Instant::now(), pause);
        }
    }

    fn refused(&self, driver: &mut Driver, refusal: Refusal) {
        let (now, random) = (Instant::now(), self.client.random_unit());
        driver.flight = None;
        if refusal == Refusal::Changed {
            let pause = driver.contention.refused(random);
            driver.pause = Pause::until(now, pause);
        }
        self.engine.lock().refused(refusal, now, random);
    }

    /// Sends the write once, behind contention with a read in the same packet.
    async fn send(&self, driver: &mut Driver, write: &Write, session: &Session) -> Result<(Reply, CarriedRead), Error> {
        let (pinned, carries) = (session.pinned(), driver.contention.is_contended());
        let change = self.operation(write, session)?;
        let read = async {
            match carries {
                true => Some(pinned.get_data(&self.path).await),
                false => None,
            }
        };
        if driver.is_plain {
            driver.sends();
            return Ok((driver.replied(send_plain(&pinned, change).await, write.guard), None));
        }
        let attempt = driver.attempts;
        let record = match write.guard {
            // The marker of an earlier node has gone with that.
            Guard::Create => driver.marker.insert(Marker::new(session, &self.path)).create(attempt),
            Guard::Version(_) | Guard::Any => driver.marker_in(session, &self.path).record(attempt),
        };
        self.check_marker(&record)?;
        driver.sends();
        let operations = vec![change, record];
        let write_and_read = futures_util::future::join(pinned.transaction(operations), read);
        let (written, read) = pinned.in_one_write(write_and_read).await;
        Ok((driver.replied(written, write.guard), read))
    }

    /// Returns the operation that changes the node.
    fn operation(&self, write: &Write, session: &Session) -> Result<Operation, Error> {
        let (path, mode) = (self.path.clone(), CreateMode::Persistent);
        let stored = self.client.to_stored(&path, write.data.clone(), None)?;
        let version = match write.guard {
            Guard::Create => {
                let acl = session.acl_for(&path);
                self.client.check_create(&path, mode, &write.data, &acl)?;
                return Ok(Operation::Create { path, data: stored, acl, mode });
            }
            Guard::Version(version) => Some(version),
            Guard::Any => None,
        };
        self.client.check_change(&path, &write.data)?;
        Ok(Operation::SetData { path, data: stored, version })
    }
}

/// The reply to a read that was sent with a write.
type CarriedRead = Option<Result<(Vec<u8>, Stat), Error>>;

/// The outcome of one try.
enum Progress {
    Settled,
    Again,
    NoParent,
    /// The write ends with this error.
    Fail(Error),
}

/// Sends an operation as a request of its own, for a client without transactions.
async fn send_plain(session: &Session, operation: Operation) -> Result<Vec<Done>, Error> {
    match operation {
        Operation::Create { path, data, acl, mode } => {
            let (path, stat) = session.create(&path, data, acl, mode).await?;
            Ok(vec![Done::Created { path, stat }])
        }
        Operation::SetData { path, data, version } => {
            Ok(vec![Done::Set(session.set_data(&path, data, version).await?)])
        }
        _ => Ok(Vec::new()),
    }
}

impl Reply {
    /// Returns the meaning of a reply to a write with this condition.
    fn of(result: Result<Vec<Done>, Error>, guard: Guard) -> Self {
        let (index, error) = match result {
            Ok(done) => {
                let stat = if let Some(Done::Set(stat)) = done.first() { Some(*stat) } else { None };
                return Self::Applied(stat);
            }
            Err(Error::Unsupported { .. }) => return Self::Plain,
            Err(Error::Transaction { index, cause, .. }) => (index, *cause),
            Err(error) => (0, error),
        };
        match (index, error) {
            (0, Error::BadVersion { .. } | Error::NodeExists { .. }) => Self::Refused(Refusal::Changed),
            (0, Error::NoNode { .. }) if guard == Guard::Create => Self::NoParent,
            (0, Error::NoNode { .. }) => Self::Refused(Refusal::Missing),
            (1, Error::NoNode { .. } | Error::NodeExists { .. }) => Self::Marker,
            (_, error) => Self::Error(error),
        }
    }
}

impl Driver {
    /// Begins a write, unless an earlier driver has begun it.
    fn begin(&mut self, guard: Guard, now: Instant) {
        if self.flight.is_none() {
            self.attempts += 1;
            let attempt = self.attempts;
            self.flight = Some(Flight { attempt, guard, is_sent: false, is_ambiguous: false, unknown: None });
            self.contention.begins(now);
            self.expected = None;
        }
    }

    /// Returns the marker of this session, which may not exist yet.
    fn marker_in(&mut self, session: &Session, path: &str) -> &mut Marker {
        let earlier = self.marker.take().filter(|marker| marker.is_of(session));
        self.marker.insert(earlier.unwrap_or_else(|| Marker::new(session, path)))
    }

    /// Returns `true` if a write on this condition has to wait for a marker. While one stands, the node is the one that the
    /// engine knows.
    fn needs_marker(&self, guard: Guard, session: &Session) -> bool {
        let stands = self.marker.as_ref().is_some_and(|marker| marker.is_of(session) && marker.stands());
        !(self.is_plain || stands || guard == Guard::Create)
    }

    fn is_ambiguous(&self) -> bool {
        self.flight.as_ref().is_some_and(|flight| flight.is_ambiguous)
    }

    /// Returns the proof of a try without a reply, or `None` if there is not such a try.
    async fn settle(&mut self, session: &Session) -> Result<Option<Proof>, Error> {
        let Some(flight) = self.flight.as_mut().filter(|flight| flight.is_sent) else { return Ok(None) };
        let proof = match &mut self.marker {
            Some(marker) if marker.is_of(session) => marker.proof(flight.attempt).await?,
            _ => Proof::None,
        };
        flight.is_sent = proof == Proof::Applied;
        flight.is_ambiguous |= proof == Proof::None;
        Ok(Some(proof))
    }

    /// Records that the write is sent.
    fn sends(&mut self) {
        if let Some(flight) = &mut self.flight {
            flight.is_sent = true;
        }
    }

    /// Books the reply to the write.
    fn replied(&mut self, result: Result<Vec<Done>, Error>, guard: Guard) -> Reply {
        let unknown = result.as_ref().err().filter(|error| error.outcome_unknown()).cloned();
        let is_applied = result.is_ok();
        if let Some(flight) = &mut self.flight {
            flight.is_sent = unknown.is_some();
            flight.unknown = flight.unknown.take().or_else(|| unknown.clone());
        }
        if let Some(marker) = self.marker.as_mut().filter(|_| unknown.is_none()) {
            if is_applied {
                marker.applied();
            } else {
                marker.refused();
            }
        }
        Reply::of(result, guard)
    }

    /// Returns the error of a write that may have been applied.
    fn unknown(&self, client: &CuratorFramework) -> Error {
        let unknown = self.flight.as_ref().and_then(|flight| flight.unknown.clone());
        unknown.unwrap_or_else(|| client.no_answer("the change of a counter"))
    }

    /// Ends the write in flight. Returns its error: one with an unknown outcome if the write may have been applied.
    fn fail(&mut self, client: &CuratorFramework, error: Error) -> Error {
        let may_be_applied = self.flight.as_ref().is_some_and(|flight| flight.is_sent || flight.is_ambiguous);
        let error = if may_be_applied { self.unknown(client) } else { error };
        self.give_up();
        error
    }

    /// Ends the write in flight, which may still be applied. Its marker is used again only if that cannot hide a later
    /// write: the marker exists, and the abandoned write is refused behind a later one.
    fn give_up(&mut self) {
        let Some(flight) = self.flight.take() else { return };
        let may_be_applied = flight.is_sent || flight.is_ambiguous;
        if may_be_applied && (flight.guard == Guard::Any || !self.marker.as_ref().is_some_and(Marker::stands)) {
            self.marker = None;
        }
    }
}

impl<V: Content> fmt::Debug for Counter<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Counter").field("path", &self.path).field("promoted", &self.promoted).finish_non_exhaustive()
    }
}
