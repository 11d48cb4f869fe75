//! Performs the engine's steps, in the future of one of the callers.
//!
//! A caller sends the requests of all tasks that share the counter. A separate task would keep the client open, and
//! outlive its callers. If the future of that caller is dropped, the next caller sends the requests, and first settles
//! the write in flight.

use curator_framework::recipe::{NodeSpec, Parents, RecipeClient as _};
use curator_framework::spi::{Done, Operation};
use curator_framework::{CreateMode, CuratorFramework, Error, RetryLoop, Session, Stat};
use parking_lot::MutexGuard;
use tokio::time::{Instant, sleep_until};

use crate::content::sealed::Content;
use crate::counters::attempts::{Attempts, Known, Reply};
use crate::counters::effect::Stored;
use crate::counters::engine::Engine;
use crate::counters::error::without_change;
use crate::counters::pacing::Pacing;
use crate::counters::state::{Counter, Requests, Ticket};
use crate::counters::step::{Condition, Failed, Refusal, Step, Write};
use crate::marker::Proof;

/// The number of times that the parents of a node are created for one write.
const MOST_PARENTS_MADE: u32 = 16;

/// Sends the requests of all callers of a counter.
pub(super) struct Runner<'a, V: Content> {
    counter: &'a Counter<V>,
    attempts: &'a mut Attempts,
    pacing: &'a mut Pacing,
    retries: RetryLoop,
}

/// The outcome of one try.
enum Tried {
    /// The write is applied or refused.
    Settled,
    NoParent,
    /// The write ends with this error.
    Fail(Error),
}

/// The reply to a read.
type Read = Result<(Vec<u8>, Stat), Error>;

impl<'a, V: Content> Runner<'a, V> {
    pub(super) fn new(counter: &'a Counter<V>, requests: &'a mut Requests) -> Self {
        let Requests { attempts, pacing } = requests;
        Self { counter, attempts, pacing, retries: counter.client.retry_loop() }
    }

    /// Sends requests until this change is decided.
    pub(super) async fn run(mut self, ticket: &Ticket<'_, V>) {
        let began = self.engine().mark();
        self.take_over();
        while !ticket.is_decided() {
            self.pause().await;
            let step = self.engine().next(|value| self.is_allowed(value));
            let performed = match &step {
                Step::Idle => continue,
                Step::Read => self.read().await,
                Step::CreateZero => self.create_zero().await,
                Step::Write(write) => self.write(write).await,
            };
            match performed {
                Ok(()) => self.retries.progressed(),
                Err(error) => self.failed(&step, began, error),
            }
        }
    }

    fn engine(&self) -> MutexGuard<'a, Engine<V>> {
        self.counter.engine.lock()
    }

    /// Returns the session, and records whether its client has transactions.
    async fn session(&mut self) -> Result<Session, Error> {
        let session = self.retries.session().await?;
        self.attempts.know_transactions(session.has_transactions());
        Ok(session)
    }

    /// Gives up the write of an earlier runner if none of its callers is left. It may still be applied. Without markers
    /// it makes the next change start with a read.
    fn take_over(&mut self) {
        let mut engine = self.engine();
        if self.attempts.is_in_flight() && !engine.is_awaited() {
            self.attempts.give_up();
            engine.flight_failed(&Error::Closed.into());
        }
        if self.attempts.lacks_transactions() {
            // Without a marker the node may have been deleted and created again.
            engine.forget();
        }
    }

    /// Waits until a pause for other sessions ends. After it, the value may be another one.
    async fn pause(&mut self) {
        let Some(end) = self.pacing.pause_end() else { return };
        sleep_until(end).await;
        let version = self.engine().forget();
        self.pacing.paused(version);
    }

    /// Returns `true` if the client's schemas allow this value.
    fn is_allowed(&self, value: &V) -> bool {
        self.counter.client.check_change(&self.counter.path, &value.to_data()).is_ok()
    }

    /// Ends the changes that need the step that failed. If no server was reached, ends also those that were in the queue
    /// at `began`.
    fn failed(&self, step: &Step, began: u64, error: Error) {
        let mut engine = self.engine();
        let is_refused_by_client =
            matches!(error, Error::RequestTooLarge { .. } | Error::SchemaViolation { .. } | Error::Compression { .. });
        let failed = match step {
            _ if error.is_retryable() => Some(Failed::Before(began)),
            Step::Read => Some(Failed::Reading),
            Step::CreateZero => Some(Failed::Sums),
            // The value of one change may be at fault, not of all.
            Step::Write(_) if is_refused_by_client && engine.part_flight() => None,
            Step::Write(_) | Step::Idle => None,
        };
        let unchanged = without_change(error.clone()).into();
        engine.flight_failed(&error.into());
        if let Some(failed) = failed {
            engine.queue_failed(failed, &unchanged);
        }
    }

    /// Reads the node for the engine.
    async fn read(&mut self) -> Result<(), Error> {
        loop {
            let mark = self.engine().mark();
            let read = match self.session().await {
                Ok(session) => session.get_data(&self.counter.path).await,
                Err(error) => Err(error),
            };
            match self.was_read(mark, read) {
                Ok(()) => break,
                Err(error) => self.retries.failed(error).await?,
            }
        }
        if self.pacing.has_lost_the_turn(self.engine().version()) {
            self.pacing.refused(Instant::now(), self.counter.client.random_unit());
        }
        Ok(())
    }

    fn was_read(&mut self, mark: u64, read: Read) -> Result<(), Error> {
        let found = match read {
            Ok((stored, stat)) => {
                let data = self.counter.client.from_stored(&self.counter.path, stored, None)?;
                self.attempts.set_known(Some(&stat));
                Some((Stored::of(&data), stat.version))
            }
            Err(Error::NoNode { .. }) => None,
            Err(error) => return Err(error),
        };
        self.engine().was_read(mark, found);
        Ok(())
    }

    /// Creates the missing node with the number 0, unless another client has created it.
    async fn create_zero(&mut self) -> Result<(), Error> {
        let Counter { client, path, .. } = self.counter;
        let (zero, mode) = (V::default().to_data(), CreateMode::Persistent);
        let mut parents_made = 0;
        loop {
            let mark = self.engine().mark();
            let created = match self.session().await {
                Ok(session) => {
                    let acl = session.acl_for(path);
                    client.check_create(path, mode, &zero, &acl)?;
                    session.create(path, client.to_stored(path, zero.clone(), None)?, acl, mode).await
                }
                Err(error) => Err(error),
            };
            match created {
                Ok((_, stat)) => {
                    self.attempts.set_known(Some(&stat));
                    self.engine().was_read(mark, Some((Stored::Value(V::default()), stat.version)));
                    return Ok(());
                }
                Err(Error::NodeExists { .. }) => {
                    self.engine().forget();
                    return Ok(());
                }
                Err(Error::NoNode { .. }) if parents_made < MOST_PARENTS_MADE => {
                    parents_made += 1;
                    self.create_parents().await?;
                }
                Err(error) => self.retries.failed(error).await?,
            }
        }
    }

    /// Sends the write in flight until it is applied or refused.
    async fn write(&mut self, write: &Write) -> Result<(), Error> {
        if self.attempts.begin(write.condition) {
            self.pacing.begins(Instant::now());
        }
        let client = &self.counter.client;
        let mut parents_made = 0;
        loop {
            let tried = match self.session().await {
                Ok(session) => self.attempt(write, &session).await,
                Err(error) => Err(error),
            };
            let failed = match tried {
                Ok(Tried::Settled) => return Ok(()),
                Ok(Tried::NoParent) if parents_made < MOST_PARENTS_MADE => {
                    parents_made += 1;
                    self.create_parents().await
                }
                Ok(Tried::NoParent) => Err(Error::NoNode { path: client.path_text(&self.counter.path) }),
                Ok(Tried::Fail(error)) => Err(error),
                Err(error) => self.retries.failed(error).await,
            };
            if let Err(error) = failed {
                return Err(self.attempts.fail(&self.counter.path, error));
            }
        }
    }

    async fn create_parents(&mut self) -> Result<(), Error> {
        loop {
            let parents = NodeSpec::new(&[]).with_parents(Parents::Containers);
            let created = match self.session().await {
                Ok(session) => session.create_parents(&self.counter.path, &parents).await,
                Err(error) => Err(error),
            };
            match created {
                Ok(_) => return Ok(()),
                Err(error) => self.retries.failed(error).await?,
            }
        }
    }

    /// Settles an earlier try, and sends the write if that was not applied.
    async fn attempt(&mut self, write: &Write, session: &Session) -> Result<Tried, Error> {
        match self.attempts.settle(session).await? {
            Some(Proof::Applied) => {
                // The marker does not show the stat.
                self.attempts.set_known(None);
                self.applied(write.condition.version_after(), None);
                return Ok(Tried::Settled);
            }
            // Without a version a second write could undo a later one, or repeat one that went with its node.
            Some(Proof::None) if !matches!(write.condition, Condition::Version(_)) => {
                return Ok(Tried::Fail(self.attempts.unknown(&self.counter.path)));
            }
            _ => {}
        }
        if self.attempts.needs_marker(session) {
            // Boxed: a rare branch must not enlarge the future.
            if let Some(tried) = Box::pin(self.create_marker(write.condition, session)).await? {
                return Ok(tried);
            }
        }
        let mark = self.engine().mark();
        let (reply, read) = self.send(write, session).await?;
        let tried = match reply {
            Reply::Applied(stat) => {
                self.attempts.set_known(stat.as_ref());
                let version = stat.map_or(0, |stat| stat.version);
                let markers = stat.map_or(1, |stat| u32::try_from(stat.num_children).unwrap_or_default());
                self.applied(Some(version), Some(markers));
                Tried::Settled
            }
            Reply::Refused(refusal) => self.refused(refusal),
            Reply::NoParent => return Ok(Tried::NoParent),
            Reply::Marker => {
                self.attempts.forget_marker();
                return Ok(self.refused(Refusal::Outdated));
            }
            Reply::Error(error) => return Err(error),
        };
        if let Some(read) = read {
            // If it failed, the engine asks for another one.
            drop(self.was_read(mark, read));
        }
        Ok(tried)
    }

    /// Creates the marker. Returns `None` if a read after that shows the node that the engine knows.
    async fn create_marker(&mut self, condition: Condition, session: &Session) -> Result<Option<Tried>, Error> {
        let Counter { client, path, .. } = self.counter;
        let (pinned, known) = (session.pinned(), self.attempts.known());
        let marker = self.attempts.marker_in(session, path);
        let create = marker.create(0);
        if let Err(error) = check_create(client, &create) {
            marker.refused();
            return Err(error);
        }
        let both = futures_util::future::join(pinned.transaction(vec![create]), pinned.exists(path));
        let (created, found) = pinned.in_one_write(both).await;
        let created = if let Err(Error::Transaction { cause, .. }) = created { Err(*cause) } else { created };
        let refusal = match created {
            // It exists after a lost reply.
            Ok(_) | Err(Error::NodeExists { .. }) => {
                let found = found?;
                marker.applied();
                let is_known = found.is_some_and(|stat| {
                    known == Some(Known::of(&stat)) && condition == Condition::Version(stat.version)
                });
                if is_known || condition == Condition::Exists {
                    return Ok(None);
                }
                Refusal::Outdated
            }
            Err(error) => {
                if !error.outcome_unknown() {
                    marker.refused();
                }
                let Error::NoNode { .. } = error else { return Err(error) };
                Refusal::Missing
            }
        };
        Ok(Some(self.refused(refusal)))
    }

    /// Ends the write as applied. `version` is the node's version after it, `sessions` the number of sessions with
    /// markers.
    fn applied(&mut self, version: Option<i32>, sessions: Option<u32>) {
        self.attempts.settled();
        let has_markers = !self.attempts.lacks_transactions();
        self.pacing.applied(Instant::now(), sessions.filter(|_| has_markers));
        self.engine().applied(version.filter(|_| has_markers));
    }

    /// Ends the write as refused. The refusal proves nothing if a lost try may have been applied.
    fn refused(&mut self, refusal: Refusal) -> Tried {
        if self.attempts.is_ambiguous() {
            return Tried::Fail(self.attempts.unknown(&self.counter.path));
        }
        let (now, random) = (Instant::now(), self.counter.client.random_unit());
        self.attempts.settled();
        if refusal == Refusal::Changed {
            self.pacing.refused(now, random);
        }
        self.engine().refused(refusal, now, random);
        Tried::Settled
    }

    /// Sends the write once; after a conflict with a read in the same packet.
    async fn send(&mut self, write: &Write, session: &Session) -> Result<(Reply, Option<Read>), Error> {
        let (pinned, carries_read) = (session.pinned(), self.pacing.is_contended());
        let (client, path) = (&self.counter.client, &self.counter.path);
        let change = self.operation(write, session)?;
        if self.attempts.lacks_transactions() {
            self.attempts.sends();
            let written = send_without_transaction(&pinned, change).await;
            return Ok((self.attempts.replied(written), None));
        }
        let record = self.attempts.record(session, path);
        check_create(client, &record)?;
        self.attempts.sends();
        let read = async {
            match carries_read {
                true => Some(pinned.get_data(path).await),
                false => None,
            }
        };
        let write_and_read = futures_util::future::join(pinned.transaction(vec![change, record]), read);
        let (written, read) = pinned.in_one_write(write_and_read).await;
        Ok((self.attempts.replied(written), read))
    }

    /// Returns the operation that changes the node.
    fn operation(&self, write: &Write, session: &Session) -> Result<Operation, Error> {
        let (client, path) = (&self.counter.client, self.counter.path.clone());
        let data = client.to_stored(&path, write.data.clone(), None)?;
        let version = match write.condition {
            Condition::Missing => {
                let (acl, mode) = (session.acl_for(&path), CreateMode::Persistent);
                client.check_create(&path, mode, &write.data, &acl)?;
                return Ok(Operation::Create { path, data, acl, mode });
            }
            Condition::Version(version) => Some(version),
            Condition::Exists => None,
        };
        client.check_change(&path, &write.data)?;
        Ok(Operation::SetData { path, data, version })
    }
}

/// Checks a create against the client's schemas.
fn check_create(client: &CuratorFramework, operation: &Operation) -> Result<(), Error> {
    match operation {
        Operation::Create { path, data, acl, mode } => client.check_create(path, *mode, data, acl),
        _ => Ok(()),
    }
}

/// Sends an operation as a request of its own.
async fn send_without_transaction(session: &Session, operation: Operation) -> Result<Vec<Done>, Error> {
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
