//! The steps of a consumer, one delivery after the other.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use curator_framework::recipe::{RecipeClient as _, RecipeError as _};
use curator_framework::{Error, Session, Stat, WakeReason, Watch};
use futures_util::future::join_all;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::{Instant, sleep, sleep_until};

use crate::queues::backlog::{Apart, Backlog};
use crate::queues::claim::{Claimed, Claiming};
use crate::queues::delivery::{About, Delivery, Hold};
use crate::queues::ending::{Ended, ItemNode, Locked};
use crate::queues::error::QueueError;
use crate::queues::follower::{Changed, Follower};
use crate::queues::items::History;
use crate::queues::options::Mode;
use crate::queues::paths::PathsMade;
use crate::queues::put::QueuePath;
use crate::queues::reads::Reads;
use crate::queues::shared::{Decoded, Shared, now_millis};
use crate::queues::taking::{Item, Taken, Taking};
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
    /// The items that were read, and that the consumer takes at most once.
    taking: Taking<(Vec<T>, History)>,
    /// The items that were read, and that the consumer locks next.
    claims: Vec<Claim<T>>,
    /// The items that were taken and not delivered yet, at most a batch, and errors about others.
    taken: VecDeque<Result<Delivery<T>, QueueError>>,
    locks: Locks,
    /// The number of items at the front to choose from. It is 1 without rivals.
    spread: u8,
    /// The lock path is known to exist, or is not needed.
    has_lock_path: bool,
    pauses: Pauses,
    pause: Option<Duration>,
    ended: (UnboundedSender<Ended>, UnboundedReceiver<Ended>),
}

/// An item that the consumer locks next.
struct Claim<T> {
    claiming: Box<Claiming>,
    items: Vec<T>,
    /// The data, decompressed.
    data: Vec<u8>,
    /// The deliveries from earlier nodes of the item.
    earlier: History,
}

/// The locks of other consumers.
#[derive(Default)]
struct Locks {
    /// Fires when a lock is created or deleted.
    changed: Option<Watch>,
    read_at: Option<Instant>,
}

impl<T: Send + Sync + 'static> Engine<T> {
    pub(super) fn new(shared: Arc<Shared<T>>) -> Self {
        Self {
            backlog: Backlog::new(shared.kind),
            reads: Reads::new(shared.options.batch),
            follower: None,
            taking: Taking::new(),
            claims: Vec::new(),
            taken: VecDeque::new(),
            locks: Locks::default(),
            spread: 1,
            has_lock_path: matches!(shared.options.mode, Mode::AtMostOnce),
            shared,
            pauses: Pauses::default(),
            pause: None,
            ended: unbounded_channel(),
        }
    }

    /// Returns the next delivery, or an error after which it continues. `None` once the client is closed.
    pub(super) async fn next(&mut self) -> Option<Result<Delivery<T>, QueueError>> {
        if let Some(taken) = self.next_taken() {
            return Some(taken);
        }
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
                Ok(()) => {
                    if let Some(taken) = self.next_taken() {
                        self.pauses = Pauses::default();
                        return Some(taken);
                    }
                    retries.progressed();
                    continue;
                }
                Err(error) => error,
            };
            self.shared.report(&error);
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

    /// Returns the next item that was taken, or an error about one. The drop of an item that was lost gives it back.
    fn next_taken(&mut self) -> Option<Result<Delivery<T>, QueueError>> {
        let taken = std::iter::from_fn(|| self.taken.pop_front()).find(|taken| match taken {
            Ok(delivery) => delivery.is_held(),
            Err(_) => true,
        });
        if let Some(Err(error)) = &taken {
            self.shared.report(error);
        }
        taken
    }

    /// Makes one step, after which there may be items that were taken.
    async fn step(&mut self, session: &Session) -> Result<(), QueueError> {
        self.update(session).await?;
        if !self.taking.is_empty() {
            return self.finish_taking(session).await;
        }
        if !self.claims.is_empty() {
            return self.finish_claims(session).await;
        }
        if let Some(name) = self.backlog.next_foreign() {
            return Err(QueueError::Foreign { path: self.shared.node_text(&name) });
        }
        let now = now_millis();
        let place = self.place(now);
        let batch = self.shared.options.batch.min(self.reads.window());
        let names: Vec<Box<str>> = self.backlog.due(now).skip(place).take(batch).map(Into::into).collect();
        let Some(first) = names.first() else { return Ok(self.wait(session, now).await?) };
        if !self.reads.has(first) {
            let shared = &self.shared;
            let failed = |name: &str, error| shared.item_error(&shared.node(name), error);
            if self.reads.read(session, &shared.path, &mut self.backlog, (now, place), failed).await? {
                self.has_rival();
            }
            return Ok(());
        }
        for name in names {
            let Some(read) = self.reads.take(&name) else { break };
            self.begin_work(session, name, read)?;
        }
        Ok(())
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
        follower.notified(&mut self.backlog, &mut changed);
        self.apply(&changed);
        // After the events: the event of a claim precedes the end of its delivery. Before a listing, which may show another
        // item of that name.
        while let Ok(ended) = self.ended.1.try_recv() {
            self.has_ended(&ended);
        }
        let Some(follower) = &mut self.follower else { return Ok(()) };
        changed.clear();
        let updated = follower.update(&mut self.backlog, &mut changed).await;
        self.apply(&changed);
        updated?;
        let is_due = self.locks.read_at.is_none_or(|at| at.elapsed() >= LOCKS_READ_AFTER);
        if self.backlog.has_locked() && is_due {
            self.read_locks(session, false).await?;
        }
        Ok(())
    }

    /// Takes the end of a delivery.
    fn has_ended(&mut self, Ended { name, is_there }: &Ended) {
        self.has_left(name, *is_there);
    }

    /// Takes the end of the work on an item. `is_there` is true if the queue has a node of this name.
    fn has_left(&mut self, name: &str, is_there: bool) {
        match is_there {
            true => self.backlog.set_ready(name, Apart::Taken),
            false => self.backlog.deleted(name),
        }
    }

    fn apply(&mut self, changed: &[Changed]) {
        for change in changed {
            self.reads.forget(change);
            if let Changed::All | Changed::Path { .. } = change {
                self.abandon_unsent();
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

    /// Gives up what was read and not sent: it may be read again.
    fn abandon_unsent(&mut self) {
        if !self.taking.may_be_deleted() {
            let taking = std::mem::replace(&mut self.taking, Taking::new());
            taking.names().for_each(|name| self.backlog.set_ready(name, Apart::Taken));
        }
        let backlog = &mut self.backlog;
        self.claims.retain(|claim| {
            let is_sent = claim.claiming.may_be_applied();
            if !is_sent {
                backlog.set_ready(&claim.claiming.name, Apart::Taken);
            }
            is_sent
        });
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

    /// Decodes an item that was read, for the next step to take it.
    fn begin_work(
        &mut self,
        session: &Session,
        name: Box<str>,
        (data, stat): (Vec<u8>, Stat),
    ) -> Result<(), QueueError> {
        let path = self.shared.node(&name);
        let is_at_most_once = matches!(self.shared.options.mode, Mode::AtMostOnce);
        let decoded = match is_at_most_once && stat.version > 0 {
            true => Err(QueueError::MixedModes { path: self.shared.node_text(&name) }),
            false => self.shared.decode(&path, &data),
        };
        let Decoded { items, history: earlier, plain } = decoded.inspect_err(|_| {
            self.backlog.set_apart(&name, Apart::Reported);
        })?;
        self.backlog.set_apart(&name, Apart::Taken);
        match &self.shared.options.mode {
            Mode::AtMostOnce => {
                self.taking.add(Item { path, name, stat, content: (items, earlier), is_followed: false })
            }
            Mode::Locked { lock_path } => {
                let joins = self.shared.options.batch > 1;
                let claiming = Box::new(Claiming::new(session, lock_path, path, name, (data, stat), joins));
                self.claims.push(Claim { claiming, items, data: plain, earlier });
            }
        }
        Ok(())
    }

    /// Deletes the items to take. After an error that may pass, the next step continues.
    async fn finish_taking(&mut self, session: &Session) -> Result<(), QueueError> {
        let deleted = self.taking.delete(&self.shared.markers, session).await;
        let taken = self.taking.take_decided();
        let is_first = |(_, taken): &(_, _)| *taken == Taken::Ours { is_first: true };
        let is_replaced = taken.iter().any(is_first) && self.path_was_deleted();
        for (mut item, taken) in taken {
            item.is_followed |= is_replaced;
            match taken {
                Taken::Ours { is_first: true } if is_replaced => {
                    self.taken.push_back(Err(QueueError::Replaced { path: self.shared.node_text(&item.name) }));
                }
                taken => self.taken(taken, item),
            }
        }
        // The right to delete items is one of the queue's path.
        Ok(deleted.inspect_err(|error| {
            if !error.is_retryable() {
                self.abandon_unsent();
            }
        })?)
    }

    /// Claims items. The claim of an item stays if a repeated request may be applied.
    async fn finish_claims(&mut self, session: &Session) -> Result<(), QueueError> {
        if !session.is_alive() || !session.can_hold() {
            // Its timer ends it soon, or the machine has slept. Until then each claim would succeed, count as a delivery, and be
            // lost at once.
            return Err(session.closed_error(format!("claim items of {}", self.shared.path)).into());
        }
        // Without the lock path each claim of a batch would fail.
        let at_once = if self.has_lock_path { self.claims.len() } else { 1 };
        let later = self.claims.split_off(at_once);
        let mut claims = std::mem::take(&mut self.claims);
        // The lock of an ended session goes with it.
        claims.retain(|claim| {
            let is_of_session = claim.claiming.lock.session().is_same(session);
            if !is_of_session {
                self.backlog.set_ready(&claim.claiming.name, Apart::Taken);
            }
            is_of_session
        });
        let all_sent = join_all(claims.iter_mut().map(|claim| claim.claiming.claim())).await;
        let mut first_error = None;
        for (claim, sent) in claims.into_iter().zip(all_sent) {
            let error = match sent {
                Ok(claimed) => self.claimed(claimed, claim).await.err(),
                Err(error) => Some(self.refused(self.shared.item_error(&claim.claiming.path, error), claim)),
            };
            match error {
                // Each of them is reported.
                Some(error) if error.is_of_one_item() => self.taken.push_back(Err(error)),
                error => first_error = first_error.or(error),
            }
        }
        match self.has_lock_path || !self.claims.is_empty() {
            true => self.claims.extend(later),
            // In their order after the first one, which is tried again.
            false => later.iter().for_each(|claim| self.backlog.set_ready(&claim.claiming.name, Apart::Taken)),
        }
        first_error.map_or(Ok(()), Err)
    }

    /// Takes the error of a claim. The claim stays if a repeated request may be applied.
    fn refused(&mut self, error: QueueError, claim: Claim<T>) -> QueueError {
        if error.is_retryable() {
            self.claims.push(claim);
            return error;
        }
        match error.is_of_one_item() {
            true => self.is_reported(&claim.claiming.name),
            false => self.backlog.set_ready(&claim.claiming.name, Apart::Taken),
        }
        error
    }

    /// Skips an item from now on. The items after it are not delayed.
    fn is_reported(&mut self, name: &str) {
        self.backlog.set_ready(name, Apart::Taken);
        self.backlog.set_apart(name, Apart::Reported);
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

    fn taken(&mut self, taken: Taken, item: Item<(Vec<T>, History)>) {
        let Item { path, name, stat, content: (items, earlier), is_followed } = item;
        match taken {
            Taken::Ours { .. } => {
                self.succeeded(&name);
                self.has_left(&name, is_followed);
                let about = self.about(&path, &stat, earlier, 1);
                // An item of nothing, as Java's producers can put it, is not delivered.
                if !items.is_empty() {
                    self.taken.push_back(Ok(Delivery::new(items, about, Hold::AtMostOnce)));
                }
            }
            Taken::OfAnother => {
                self.has_left(&name, is_followed);
                self.has_rival();
            }
            Taken::Changed => self.backlog.set_ready(&name, Apart::Taken),
            Taken::HasChildren => {
                self.is_reported(&name);
                let path = self.shared.node_text(&name);
                let cause = Error::NotEmpty { path: path.clone() };
                self.taken.push_back(Err(QueueError::Refused { path, cause }));
            }
            Taken::Unknown => {
                self.has_left(&name, is_followed);
                self.taken.push_back(Err(QueueError::Unknown { path: self.shared.node_text(&name) }));
            }
        }
    }

    async fn claimed(&mut self, claimed: Claimed, claim: Claim<T>) -> Result<(), QueueError> {
        let Claim { claiming, items, data, earlier } = claim;
        let name = claiming.name.clone();
        match claimed {
            Claimed::Ours => return self.locked(*claiming, items, data, earlier).await,
            Claimed::Replaced(czxid) => {
                let stat = Stat { czxid, ..claiming.stat };
                let (locked, _) = self.lock_of(Claiming { stat, ..*claiming }, data, earlier);
                let reason =
                    "the path was created again during the claim, which has written the data of an earlier item";
                return Err(match locked.reject(reason).await {
                    // The data of the new item is lost in any case.
                    Ok(()) | Err(QueueError::Lost { .. } | QueueError::AlreadyGone { .. }) => {
                        QueueError::Replaced { path: self.shared.node_text(&name) }
                    }
                    Err(error) => error,
                });
            }
            Claimed::Locked => {
                self.has_lock_path = true;
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
                self.has_lock_path = false;
                self.backlog.set_ready(&name, Apart::Taken);
                let Mode::Locked { lock_path } = &self.shared.options.mode else { return Ok(()) };
                let (client, mut paths_made) = (&self.shared.client, PathsMade::default());
                paths_made.create(client, &mut client.retry_loop(), lock_path, QueuePath::Persistent).await?;
            }
        }
        Ok(())
    }

    /// Delivers a claimed item, unless it was delivered too often.
    async fn locked(
        &mut self,
        claiming: Claiming,
        items: Vec<T>,
        data: Vec<u8>,
        earlier: History,
    ) -> Result<(), QueueError> {
        self.succeeded(&claiming.name);
        self.has_lock_path = true;
        let (locked, about) = self.lock_of(claiming, data, earlier);
        let attempt = about.attempt;
        let ended = if items.is_empty() {
            locked.complete(None).await
        } else if self.shared.options.max_attempts.is_some_and(|most| attempt > most) {
            locked.reject(&format!("not completed in {} deliveries", attempt - 1)).await
        } else {
            self.taken.push_back(Ok(Delivery::new(items, about, Hold::Locked(Box::new(locked)))));
            return Ok(());
        };
        match ended {
            // It is delivered again, or is deleted.
            Ok(()) | Err(QueueError::Lost { .. } | QueueError::AlreadyGone { .. } | QueueError::Unknown { .. }) => {
                Ok(())
            }
            Err(error) => {
                let error = match error {
                    QueueError::Framework(error) => self.shared.item_error(&locked.item.path, error),
                    error => error,
                };
                if !error.is_retryable() {
                    self.is_reported(&locked.item.name);
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
