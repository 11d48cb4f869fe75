//! The steps of a consumer, one delivery after the other.

use std::sync::Arc;
use std::time::Duration;

use curator_framework::recipe::{RecipeClient as _, RecipeError as _};
use curator_framework::{Error, Session, Stat, WakeReason, Watch};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::{Instant, sleep, sleep_until};

use crate::queues::backlog::{Apart, Backlog};
use crate::queues::claim::{Claimed, Claiming};
use crate::queues::delivery::{About, Delivery, Hold};
use crate::queues::ending::{Ended, ItemNode, Locked};
use crate::queues::error::QueueError;
use crate::queues::follower::{Changed, Follower};
use crate::queues::items::{self, Content, History};
use crate::queues::options::Mode;
use crate::queues::paths::PathsMade;
use crate::queues::put::QueuePath;
use crate::queues::reads::Reads;
use crate::queues::shared::{Shared, now_millis};
use crate::queues::taking::{Taken, Taking};
use crate::standing::Pauses;
use crate::standing::in_sessions::may_pass;

/// The longest sleep until an item is due: the machine's clock may be set in the meantime.
const LONGEST_SLEEP: Duration = Duration::from_secs(60);
/// The time after which a busy consumer reads which locks exist, if it has skipped a locked item.
const LOCKS_READ_AFTER: Duration = Duration::from_secs(1);
/// The number of items at the front from which a consumer with rivals chooses.
const SPREAD: u8 = 16;

/// A consumer's knowledge, and its work in progress.
pub(super) struct Engine<T> {
    shared: Arc<Shared<T>>,
    backlog: Backlog,
    reads: Reads,
    follower: Option<Follower>,
    /// An item that was read: the work on it has not ended, because a request has failed.
    work: Option<AtWork<T>>,
    locks: Locks,
    /// The number of items at the front to choose from. It is 1 without rivals.
    spread: u8,
    pauses: Pauses,
    pause: Option<Duration>,
    ended: (UnboundedSender<Ended>, UnboundedReceiver<Ended>),
}

/// An item at work.
struct AtWork<T> {
    work: Work,
    items: Vec<T>,
    /// The data, decompressed.
    data: Vec<u8>,
    /// The deliveries from earlier nodes of the item.
    earlier: History,
}

/// The request for one item.
enum Work {
    Take(Taking),
    Claim(Box<Claiming>),
}

/// The locks of other consumers.
#[derive(Default)]
struct Locks {
    /// Fires when a lock is created or deleted.
    changed: Option<Watch>,
    read_at: Option<Instant>,
}

/// The result of one step.
enum Step<T> {
    Delivery(Delivery<T>),
    /// Another step follows.
    Again,
}

impl<T: Send + Sync + 'static> Engine<T> {
    pub(super) fn new(shared: Arc<Shared<T>>) -> Self {
        Self {
            backlog: Backlog::new(shared.kind),
            shared,
            reads: Reads::new(),
            follower: None,
            work: None,
            locks: Locks::default(),
            spread: 1,
            pauses: Pauses::default(),
            pause: None,
            ended: unbounded_channel(),
        }
    }

    /// Returns the next delivery, or an error after which it continues. `None` once the client is closed.
    pub(super) async fn next(&mut self) -> Option<Result<Delivery<T>, QueueError>> {
        if let Some(pause) = self.pause.take() {
            sleep(pause).await;
        }
        let client = self.shared.client.clone();
        let mut retries = client.retry_loop();
        loop {
            let step = match retries.connected(&self.shared.path).await {
                Ok(session) => self.step(&session).await,
                Err(error) => Err(error.into()),
            };
            let error = match step {
                Ok(Step::Delivery(delivery)) => {
                    self.pauses = Pauses::default();
                    return Some(Ok(delivery));
                }
                Ok(Step::Again) => {
                    retries.progressed();
                    continue;
                }
                Err(error) => error,
            };
            let error = match error.into_framework() {
                Ok(Error::Closed) => return None,
                Ok(error) => match retries.failed(error).await {
                    Ok(()) => continue,
                    Err(Error::Closed) => return None,
                    Err(error) => error,
                },
                Err(error) => return Some(Err(error)),
            };
            self.pause = Some(self.pauses.after(may_pass(&error)));
            return Some(Err(error.into()));
        }
    }

    async fn step(&mut self, session: &Session) -> Result<Step<T>, QueueError> {
        self.update(session).await?;
        if self.work.is_some() {
            return self.finish_work(session).await;
        }
        if let Some(name) = self.backlog.next_foreign() {
            return Err(QueueError::Foreign { path: self.shared.node_text(&name) });
        }
        let now = now_millis();
        let place = self.place(now);
        let Some(name) = self.backlog.due(now).nth(place).map(Box::<str>::from) else {
            self.wait(session, now).await?;
            return Ok(Step::Again);
        };
        let Some(read) = self.reads.take(&name) else {
            let shared = &self.shared;
            let failed = |name: &str, error| shared.item_error(name, error);
            if self.reads.read(session, &shared.path, &mut self.backlog, (now, place), failed).await? {
                self.has_rival();
            }
            return Ok(Step::Again);
        };
        self.begin_work(session, name, read)
    }

    /// Applies all that has changed.
    async fn update(&mut self, session: &Session) -> Result<(), Error> {
        let follower = match self.follower.take().filter(|follower| follower.session().is_same(session)) {
            Some(follower) => self.follower.insert(follower),
            None => {
                self.locks = Locks::default();
                let wants_events = !self.shared.kind.is_in_order_of_puts();
                self.follower.insert(Follower::new(session, &self.shared.path, wants_events))
            }
        };
        let mut changed = Vec::new();
        let updated = follower.update(&mut self.backlog, &mut changed).await;
        self.apply(&changed);
        // After the events: the event of a claim precedes the end of its delivery.
        while let Ok(ended) = self.ended.1.try_recv() {
            self.has_ended(&ended);
        }
        updated?;
        let is_due = self.locks.read_at.is_none_or(|at| at.elapsed() >= LOCKS_READ_AFTER);
        if self.backlog.has_locked() && is_due {
            self.read_locks(session, false).await?;
        }
        Ok(())
    }

    /// Takes the end of a delivery.
    fn has_ended(&mut self, Ended { name, is_given_back }: &Ended) {
        match is_given_back {
            true => self.backlog.set_ready(name, Apart::Taken),
            false => self.backlog.deleted(name),
        }
    }

    fn apply(&mut self, changed: &[Changed]) {
        for change in changed {
            self.reads.forget(change);
            let may_be_sent = match self.work.as_ref().map(|at_work| &at_work.work) {
                Some(Work::Take(taking)) => taking.may_be_deleted(),
                Some(Work::Claim(claiming)) => claiming.may_be_applied(),
                None => true,
            };
            if let (Changed::All | Changed::Path { .. }, false) = (change, may_be_sent) {
                // It was read before.
                self.abandon_work();
            }
            if let Changed::Path { .. } = change {
                // The ends of earlier deliveries say nothing of the nodes that have their names now.
                self.ended = unbounded_channel();
            }
            if let (Changed::Written(name), Mode::Locked { .. }) = (change, &self.shared.options.mode) {
                // A consumer has claimed the item. Items of this consumer are apart already.
                self.backlog.set_apart(name, Apart::Locked);
            }
        }
    }

    /// Returns the place of the next item among those that are due.
    fn place(&self, now: i64) -> usize {
        let spread = usize::from(self.spread);
        if spread < 2 {
            return 0;
        }
        let choice = self.backlog.due(now).take(spread).count();
        // Below `choice`, so that nothing is cut off.
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss,
            reason = "small"
        )]
        let place = (self.shared.client.random_unit() * choice as f64) as usize;
        place.min(choice.saturating_sub(1))
    }

    /// Waits for the next change, or until the next item is due.
    async fn wait(&mut self, session: &Session, now: i64) -> Result<(), Error> {
        if self.backlog.has_locked() && self.locks.changed.is_none() {
            self.read_locks(session, true).await?;
            return Ok(());
        }
        let Some(follower) = &mut self.follower else { return Ok(()) };
        let due = self.backlog.first_due().filter(|due| *due > now);
        let sleep_for = due.map_or(LONGEST_SLEEP, |due| {
            Duration::from_millis(u64::try_from(due - now).unwrap_or_default()).min(LONGEST_SLEEP)
        });
        let mut changed = Vec::new();
        let (locks, is_due) = (&mut self.locks.changed, sleep_until(Instant::now() + sleep_for));
        let unlocked = async {
            match locks {
                Some(watch) => watch.await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            // The events first, as in `update`.
            biased;
            continues = follower.changed(&mut self.backlog, &mut changed) => if !continues {
                return Err(session.closed_error(format!("getChildren {}", self.shared.path)));
            },
            reason = unlocked => {
                self.locks.changed = None;
                if let WakeReason::SessionEnded(_) = reason {
                    return Err(session.closed_error(format!("getChildren {}", self.shared.path)));
                }
            }
            Some(ended) = self.ended.1.recv() => self.has_ended(&ended),
            () = is_due => {}
        }
        self.apply(&changed);
        Ok(())
    }

    /// Lists the locks, and makes each skipped item ready that has none.
    async fn read_locks(&mut self, session: &Session, watched: bool) -> Result<(), Error> {
        let Mode::Locked { lock_path } = &self.shared.options.mode else { return Ok(()) };
        let listed = match watched {
            true => session.get_children_watched(lock_path).await.map(|(names, watch)| (names, Some(watch))),
            false => session.get_children(lock_path).await.map(|names| (names, None)),
        };
        let (names, watch) = match listed {
            Err(Error::NoNode { .. }) => (Vec::new(), None),
            listed => listed?,
        };
        self.backlog.unlock_all_but(&names.into_iter().collect());
        if watched {
            self.locks.changed = watch;
        }
        self.locks.read_at = Some(Instant::now());
        Ok(())
    }

    /// Decodes an item that was read, and starts to take it.
    fn begin_work(
        &mut self,
        session: &Session,
        name: Box<str>,
        (data, stat): (Vec<u8>, Stat),
    ) -> Result<Step<T>, QueueError> {
        let path = self.shared.node(&name);
        let decoded = self.plain(&path, &data).and_then(|plain| Ok((self.decode(&path, &plain)?, plain)));
        let ((items, earlier), plain) = match decoded {
            Ok(decoded) => decoded,
            Err(corrupt) => {
                self.backlog.set_apart(&name, Apart::Reported);
                return Err(corrupt);
            }
        };
        self.backlog.set_apart(&name, Apart::Taken);
        let work = match &self.shared.options.mode {
            Mode::AtMostOnce => Work::Take(Taking::new(path, name, data, stat)),
            Mode::Locked { lock_path } => {
                Work::Claim(Box::new(Claiming::new(session, lock_path, path, name, (data, stat))))
            }
        };
        self.work = Some(AtWork { work, items, data: plain, earlier });
        Ok(Step::Again)
    }

    fn plain(&self, path: &str, stored: &[u8]) -> Result<Vec<u8>, QueueError> {
        let plain = self.shared.client.from_stored(path, stored.to_vec(), None);
        plain.map_err(|error| self.corrupt(path, error.into()))
    }

    fn decode(&self, path: &str, data: &[u8]) -> Result<(Vec<T>, History), QueueError> {
        let content = items::decode(data).map_err(|error| self.corrupt(path, error.into()))?;
        let Content { items, history, .. } = content;
        let items = items.into_iter().map(|item| self.shared.serializer.deserialize(item));
        let items = items.collect::<Result<_, _>>().map_err(|error| self.corrupt(path, error))?;
        Ok((items, history))
    }

    fn corrupt(&self, path: &str, cause: Box<dyn std::error::Error + Send + Sync>) -> QueueError {
        QueueError::Corrupt { path: self.shared.client.path_text(path), cause: cause.into() }
    }

    /// Takes or claims the item at work.
    async fn finish_work(&mut self, session: &Session) -> Result<Step<T>, QueueError> {
        match self.work.as_mut().map(|at_work| &mut at_work.work) {
            Some(Work::Take(taking)) => {
                let is_first = !taking.may_be_deleted();
                let taken = taking.delete(session).await;
                let name = taking.name.clone();
                if is_first && matches!(taken, Ok(Taken::Ours)) && self.path_was_deleted() {
                    self.work = None;
                    return Err(QueueError::Replaced { path: self.shared.node_text(&name) });
                }
                if taken.as_ref().is_err_and(|error| !error.is_retryable()) {
                    self.give_up_work(&name);
                }
                self.taken(taken?)
            }
            Some(Work::Claim(claiming)) if claiming.lock.session().is_same(session) => {
                let claimed = claiming.claim().await;
                let name = claiming.name.clone();
                let error = match claimed {
                    Ok(claimed) => return self.claimed(claimed).await,
                    Err(error) => self.shared.item_error(&name, error),
                };
                if !error.is_retryable() {
                    self.give_up_work(&name);
                }
                if error.is_of_one_item() {
                    self.backlog.set_apart(&name, Apart::Reported);
                }
                Err(error)
            }
            // The lock of an ended session goes with it.
            Some(Work::Claim(claiming)) => {
                let name = claiming.name.clone();
                self.work = None;
                self.backlog.set_ready(&name, Apart::Taken);
                Ok(Step::Again)
            }
            None => Ok(Step::Again),
        }
    }

    /// Returns whether the path was deleted before the newest reply, after what is known was read.
    fn path_was_deleted(&mut self) -> bool {
        let mut changed = Vec::new();
        if let Some(follower) = &mut self.follower {
            follower.notified(&mut self.backlog, &mut changed);
        }
        self.apply(&changed);
        changed.contains(&Changed::Path { is_deleted: true })
    }

    /// Ends the work on an item that no request was sent for.
    fn abandon_work(&mut self) {
        let name = match self.work.take().map(|at_work| at_work.work) {
            Some(Work::Take(taking)) => taking.name,
            Some(Work::Claim(claiming)) => claiming.name,
            None => return,
        };
        self.backlog.set_ready(&name, Apart::Taken);
    }

    /// Ends the work on an item that the server does not allow to take.
    fn give_up_work(&mut self, name: &str) {
        self.work = None;
        self.backlog.set_ready(name, Apart::Taken);
    }

    fn taken(&mut self, taken: Taken) -> Result<Step<T>, QueueError> {
        let Some(AtWork { work: Work::Take(Taking { path, name, stat, .. }), items, earlier, .. }) = self.work.take()
        else {
            return Ok(Step::Again);
        };
        match taken {
            Taken::Ours => {
                self.succeeded(&name);
                self.backlog.deleted(&name);
                let about = self.about(&path, &stat, earlier, 1);
                // An item of nothing, as Java's producers can put it.
                let is_empty = items.is_empty();
                let delivery = Delivery::new(items, about, Hold::AtMostOnce);
                return Ok(if is_empty { Step::Again } else { Step::Delivery(delivery) });
            }
            Taken::OfAnother => {
                self.backlog.deleted(&name);
                self.has_rival();
            }
            Taken::Changed => self.backlog.set_ready(&name, Apart::Taken),
        }
        Ok(Step::Again)
    }

    async fn claimed(&mut self, claimed: Claimed) -> Result<Step<T>, QueueError> {
        let Some(AtWork { work: Work::Claim(claiming), items, data, earlier }) = self.work.take() else {
            return Ok(Step::Again);
        };
        let name = claiming.name.clone();
        match claimed {
            Claimed::Ours => return self.locked(*claiming, items, data, earlier).await,
            Claimed::Replaced(czxid) => {
                let stat = Stat { czxid, ..claiming.stat };
                let (locked, _) = self.lock_of(Claiming { stat, ..*claiming }, data, earlier);
                locked
                    .reject(
                        "the path was created again during the claim, which has written the data of an earlier item",
                    )
                    .await?;
                return Err(QueueError::Replaced { path: self.shared.node_text(&name) });
            }
            Claimed::Locked => {
                self.backlog.set_ready(&name, Apart::Taken);
                self.backlog.set_apart(&name, Apart::Locked);
                self.has_rival();
            }
            Claimed::Gone => {
                self.backlog.deleted(&name);
                self.has_rival();
            }
            Claimed::NotApplied => self.backlog.set_ready(&name, Apart::Taken),
            Claimed::Changed => {
                self.backlog.set_ready(&name, Apart::Taken);
                self.has_rival();
            }
            Claimed::NoLockPath => {
                self.backlog.set_ready(&name, Apart::Taken);
                let Mode::Locked { lock_path } = &self.shared.options.mode else { return Ok(Step::Again) };
                let (client, mut paths_made) = (&self.shared.client, PathsMade::default());
                paths_made.create(client, &mut client.retry_loop(), lock_path, QueuePath::Persistent).await?;
            }
        }
        Ok(Step::Again)
    }

    /// Delivers a claimed item, unless it was delivered too often.
    async fn locked(
        &mut self,
        claiming: Claiming,
        items: Vec<T>,
        data: Vec<u8>,
        earlier: History,
    ) -> Result<Step<T>, QueueError> {
        self.succeeded(&claiming.name);
        let (locked, about) = self.lock_of(claiming, data, earlier);
        let attempt = about.attempt;
        let ended = if items.is_empty() {
            locked.complete(None).await
        } else if self.shared.options.max_attempts.is_some_and(|most| attempt > most) {
            locked.reject(&format!("not completed in {} deliveries", attempt - 1)).await
        } else {
            return Ok(Step::Delivery(Delivery::new(items, about, Hold::Locked(Box::new(locked)))));
        };
        match ended {
            // It is delivered again, or is gone.
            Ok(()) | Err(QueueError::Lost { .. } | QueueError::AlreadyGone { .. }) => Ok(Step::Again),
            Err(error) => {
                if !error.is_retryable() {
                    // The items behind it are not delayed.
                    self.backlog.set_ready(&locked.item.name, Apart::Taken);
                    self.backlog.set_apart(&locked.item.name, Apart::Reported);
                }
                Err(error)
            }
        }
    }

    /// Returns the hold on an item that was claimed, and what is known of the item.
    fn lock_of(&self, claiming: Claiming, data: Vec<u8>, earlier: History) -> (Locked, About) {
        let Claiming { path, name, stat, lock, .. } = claiming;
        let version = stat.version.wrapping_add(1);
        let attempt = earlier.attempts.saturating_add(u32::try_from(version).unwrap_or(u32::MAX));
        let about = self.about(&path, &stat, earlier, attempt);
        let history = History { attempts: attempt, first_czxid: about.first_czxid };
        let item = ItemNode {
            kind: self.shared.kind,
            queue: self.shared.path.clone(),
            dead_letters: self.shared.options.dead_letters.clone(),
            path,
            name,
            data,
            czxid: stat.czxid,
            version,
            history,
        };
        (Locked::new(self.shared.client.clone(), item, lock, self.ended.0.clone()), about)
    }

    fn about(&self, path: &str, stat: &Stat, history: History, attempt: u32) -> About {
        let first_czxid = if history.first_czxid == 0 { stat.czxid } else { history.first_czxid };
        let path = self.shared.client.path_text(path);
        About { kind: self.shared.kind, path, attempt, czxid: stat.czxid, first_czxid, created: stat.ctime }
    }

    fn succeeded(&mut self, name: &str) {
        self.reads.success();
        drop(self.reads.take(name));
        self.spread = self.spread.saturating_sub(1).max(1);
        if let Some(follower) = &mut self.follower {
            follower.has_taken();
        }
    }

    /// Records that another consumer was faster. From now on, this one does not start at the front.
    fn has_rival(&mut self) {
        self.reads.conflict();
        self.spread = SPREAD;
        if let Some(follower) = &mut self.follower {
            follower.has_rival();
        }
    }
}
