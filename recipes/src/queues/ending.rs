//! The end of a delivery with a lock: one transaction, in the session of the claim, under the version of the claim.

use std::sync::atomic::{AtomicBool, Ordering};

use curator_framework::recipe::{OwnedNode, RecipeClient as _};
use curator_framework::spi::Operation;
use curator_framework::{CreateMode, CuratorFramework, CuratorTransaction, Error, LossReason, RetryLoop, make_path};
use tokio::sync::mpsc::UnboundedSender;

use crate::engine::hold::Release;
use crate::node_hold::NodeHold;
use crate::queues::error::QueueError;
use crate::queues::items::{self, History};
use crate::queues::names::{self, Kind, RETURNED};
use crate::queues::paths::PathsMade;
use crate::queues::put::QueuePath;

/// The end of a delivery, for its consumer.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) name: Box<str>,
    /// The queue has a node of this name: the item was given back, or the path was created again.
    pub(super) is_there: bool,
}

/// The node of a delivered item.
#[derive(Debug)]
pub(super) struct ItemNode {
    pub(super) kind: Kind,
    pub(super) queue: String,
    pub(super) dead_letters: String,
    pub(super) path: String,
    pub(super) name: Box<str>,
    /// The data, decompressed.
    pub(super) data: Vec<u8>,
    pub(super) czxid: i64,
    /// The version that the claim has written.
    pub(super) version: i32,
    /// The number of this delivery, from 1, and the first node.
    pub(super) history: History,
}

impl ItemNode {
    /// Returns the check that no other consumer of this crate has claimed the item since.
    fn check(&self) -> Operation {
        Operation::Check { path: self.path.clone(), version: Some(self.version) }
    }
}

/// A delivery with a lock.
pub(super) struct Locked {
    pub(super) client: CuratorFramework,
    pub(super) hold: NodeHold,
    pub(super) item: ItemNode,
    pub(super) ended: UnboundedSender<Ended>,
    state: tokio::sync::Mutex<State>,
    loss_is_logged: AtomicBool,
}

struct State {
    /// `None` once the delivery has ended.
    lock: Option<OwnedNode>,
    /// The call that has sent a transaction, if the outcome is unknown.
    sent: Option<Finish>,
    /// The connection on which the item was known to be there.
    epoch: u64,
    /// The item is deleted, and another one has its name.
    is_followed: bool,
    outcome: Option<Outcome>,
}

/// The way in which a delivery has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    /// The item was completed, moved to the end, or rejected.
    Finished(Finish),
    GivenBack(Release),
}

/// A call that takes the item out of its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Finish {
    Complete,
    Requeue,
    Reject,
}

impl Locked {
    pub(super) fn new(
        client: CuratorFramework,
        item: ItemNode,
        lock: OwnedNode,
        ended: UnboundedSender<Ended>,
    ) -> Self {
        let hold = NodeHold::new(&client, &item.path, &lock);
        let epoch = lock.session().epoch();
        let state = State { lock: Some(lock), sent: None, epoch, is_followed: false, outcome: None };
        Self {
            client,
            hold,
            item,
            ended,
            state: tokio::sync::Mutex::new(state),
            loss_is_logged: AtomicBool::new(false),
        }
    }

    /// Deletes the item with the caller's changes.
    pub(super) async fn complete(&self, transaction: Option<&CuratorTransaction<'_>>) -> Result<(), QueueError> {
        let changes = match transaction {
            Some(transaction) => self.client.operations_of(transaction, self.hold.session())?,
            None => Vec::new(),
        };
        self.finish(Finish::Complete, changes, None).await
    }

    /// Deletes the item, and creates it again as the last one of its id, priority or time.
    pub(super) async fn requeue(&self) -> Result<(), QueueError> {
        let create = self.create_in(&self.item.queue, &[])?;
        self.finish(Finish::Requeue, vec![create], None).await
    }

    /// Moves the item to the dead letters.
    pub(super) async fn reject(&self, reason: &str) -> Result<(), QueueError> {
        let create = self.create_in(&self.item.dead_letters, &items::reason(reason))?;
        let was_rejected = matches!(self.state.lock().await.outcome, Some(Outcome::Finished(Finish::Reject)));
        let dead_letters = &self.item.dead_letters;
        self.finish(Finish::Reject, vec![create], Some(dead_letters)).await?;
        if !was_rejected {
            tracing::warn!(path = %self.item.path, %dead_letters, attempts = self.item.history.attempts, "an item has moved to the dead letters");
        }
        Ok(())
    }

    /// Returns the create of a node with the same items, with the history of this delivery.
    fn create_in(&self, parent: &str, more: &[u8]) -> Result<Operation, QueueError> {
        let ItemNode { kind, name, data, history, .. } = &self.item;
        let path = make_path(parent, names::prefix(*kind, name));
        // It was decoded before.
        let mut new = match items::decode(data) {
            Ok(content) => items::with_history(data, &content, *history),
            Err(_) => data.clone(),
        };
        new.extend(more);
        let (acl, mode) = (self.hold.session().acl_for(&path), CreateMode::PersistentSequential);
        self.client.check_create(&path, mode, &new, &acl)?;
        let data = self.client.to_stored(&path, new, None)?;
        Ok(Operation::Create { path, data, acl, mode })
    }

    /// Deletes the item and its lock with these changes. Creates `parent` if it is missing.
    async fn finish(&self, finish: Finish, changes: Vec<Operation>, parent: Option<&str>) -> Result<(), QueueError> {
        let mut state = self.state.lock().await;
        match state.outcome {
            Some(Outcome::Finished(earlier)) if earlier == finish => return Ok(()),
            Some(_) => return Err(QueueError::Ended { path: self.hold.path_text() }),
            None => {}
        }
        let mut operations = vec![Operation::Delete { path: self.item.path.clone(), version: Some(self.item.version) }];
        operations.extend(changes);
        let (mut retries, mut paths_made) = (self.client.retry_loop(), PathsMade::default());
        loop {
            let error = match self.attempt(&mut state, finish, &operations).await {
                Ok(()) => break,
                Err(QueueError::Framework(Error::Transaction { index: 1, cause, .. }))
                    if parent.is_some() && matches!(*cause, Error::NoNode { .. }) =>
                {
                    let parent = parent.unwrap_or_default();
                    paths_made.create(&self.client, &mut retries, parent, QueuePath::Persistent).await?;
                    continue;
                }
                Err(QueueError::Framework(error)) => error,
                Err(error) => return Err(error),
            };
            self.failed(&mut retries, state.sent.is_some(), error).await?;
        }
        self.end(&mut state, Outcome::Finished(finish));
        Ok(())
    }

    /// Waits until a request may be repeated in the session.
    async fn failed(&self, retries: &mut RetryLoop, is_sent: bool, error: Error) -> Result<(), QueueError> {
        let Err(error) = retries.failed_in(self.hold.session(), error).await else { return Ok(()) };
        match self.hold.session().end_reason() {
            // Nothing was changed: the session has ended before.
            Some(end) if !is_sent => Err(self.lost(LossReason::Session(end))),
            Some(_) => Err(QueueError::Unknown { path: self.hold.path_text() }),
            None => Err(error.into()),
        }
    }

    /// Sends the transaction, or finds out that an earlier one was applied.
    async fn attempt(&self, state: &mut State, finish: Finish, operations: &[Operation]) -> Result<(), QueueError> {
        if let (None, Some(reason)) = (state.sent, self.hold.loss()) {
            return Err(self.lost(reason));
        }
        let is_doubtful = state.sent.is_some() || self.hold.session().epoch() != state.epoch;
        // Boxed: a rare branch must not enlarge every delivery's future.
        if is_doubtful && !Box::pin(self.is_there(state)).await? {
            return match state.sent.take() {
                None => Err(QueueError::AlreadyGone { path: self.hold.path_text() }),
                Some(sent) if sent == finish => Ok(()),
                Some(sent) => {
                    self.end(state, Outcome::Finished(sent));
                    Err(QueueError::Ended { path: self.hold.path_text() })
                }
            };
        }
        let Some(lock) = &mut state.lock else { return Ok(()) };
        state.sent = Some(finish);
        let done = lock.delete_with(operations.to_vec()).await;
        if !done.as_ref().is_err_and(Error::outcome_unknown) {
            state.sent = None;
        }
        match done {
            Ok(Some(done)) if !done.is_empty() => Ok(()),
            // The lock was deleted before, perhaps by an earlier call. The item is as it was claimed.
            Ok(_) => Err(self.lost(LossReason::NodeDeleted)),
            Err(Error::Transaction { index: 0, cause, .. }) => Err(match *cause {
                Error::NoNode { .. } => QueueError::AlreadyGone { path: self.hold.path_text() },
                Error::BadVersion { .. } => self.lost(LossReason::NodeDeleted),
                cause => cause.into(),
            }),
            Err(error) => Err(error.into()),
        }
    }

    /// Reads whether the claimed item exists, after an unknown outcome and on a new connection. Between two connections
    /// the path may be created again, with another item of this name and version. If the item is gone, and the
    /// transaction that was sent has not deleted it, none counts as sent.
    async fn is_there(&self, state: &mut State) -> Result<bool, Error> {
        let session = self.hold.session().pinned();
        let (item, lock) = (session.exists(&self.item.path), session.exists(self.hold.node_path()));
        let both = async { tokio::try_join!(session.write_barrier(), item, lock) };
        let (_, item, lock) = session.in_one_write(both).await?;
        let czxid = item.map(|found| found.czxid);
        if czxid == Some(self.item.czxid) {
            (state.sent, state.epoch) = (None, session.epoch());
            return Ok(true);
        }
        state.is_followed = czxid.is_some();
        let own_lock = state.lock.as_ref().and_then(OwnedNode::czxid);
        if lock.is_some_and(|found| Some(found.czxid) == own_lock) {
            // The transaction deletes both.
            state.sent = None;
        }
        Ok(false)
    }

    fn lost(&self, reason: LossReason) -> QueueError {
        self.report_loss(reason);
        QueueError::Lost { path: self.hold.path_text(), reason }
    }

    /// Logs a loss, once.
    fn report_loss(&self, reason: LossReason) {
        if !self.loss_is_logged.swap(true, Ordering::Relaxed) {
            tracing::warn!(path = %self.item.path, %reason, "a delivery is lost");
        }
    }

    /// Gives the item back, unless another call has ended the delivery.
    pub(super) async fn retry(&self) -> Result<(), QueueError> {
        let _release = self.give_back().await?;
        match self.state.lock().await.outcome {
            Some(Outcome::Finished(_)) => Err(QueueError::Ended { path: self.hold.path_text() }),
            _ => Ok(()),
        }
    }

    /// Deletes the lock and leaves the item in its place.
    pub(super) async fn give_back(&self) -> Result<Release, QueueError> {
        let before = self.hold.give_up();
        let mut state = self.state.lock().await;
        match state.outcome {
            Some(Outcome::GivenBack(release)) => return Ok(release),
            Some(Outcome::Finished(_)) => return Ok(Release::Released),
            None => {}
        }
        let mut retries = self.client.retry_loop();
        let deleted = loop {
            let State { lock: Some(lock), epoch, .. } = &mut *state else { break true };
            if self.hold.session().end_reason().is_some() {
                break false;
            }
            match delete_lock(lock, *epoch, &self.item.queue, self.item.check()).await {
                Ok(deleted) => break deleted,
                Err(error) => match retries.failed_in(self.hold.session(), error).await {
                    Err(_) if self.hold.session().end_reason().is_some() => break false,
                    failed => failed?,
                },
            }
        };
        let ended = self.hold.session().end_reason().map_or(LossReason::NodeDeleted, LossReason::Session);
        let release = match before {
            Some(reason) => Release::AlreadyLost(reason),
            None if deleted => Release::Released,
            None => Release::AlreadyLost(ended),
        };
        if let Release::AlreadyLost(reason) = release {
            self.report_loss(reason);
        }
        self.end(&mut state, Outcome::GivenBack(release));
        Ok(release)
    }

    fn end(&self, state: &mut State, outcome: Outcome) {
        self.hold.give_up();
        state.outcome = Some(outcome);
        state.lock = None;
        let is_there = state.is_followed || matches!(outcome, Outcome::GivenBack(_));
        // An error means that the consumer was dropped.
        let _consumer = self.ended.send(Ended { name: self.item.name.clone(), is_there });
    }
}

/// Deletes a lock if its item is as it was claimed, and changes the list of the queue's children, which wakes Java's
/// consumers. Returns `false` if the lock was deleted before.
async fn delete_lock(lock: &mut OwnedNode, epoch: u64, queue: &str, check: Operation) -> Result<bool, Error> {
    if lock.session().epoch() != epoch {
        // The path may have been created again, with another consumer's lock for an item of this name and version.
        let found = lock.session().exists(lock.planned_path()).await?;
        if found.is_some_and(|found| Some(found.czxid) != lock.czxid()) {
            return lock.delete().await;
        }
    }
    let path = make_path(queue, RETURNED);
    let acl = lock.session().acl_for(&path);
    let operations = vec![
        check,
        Operation::Create { path: path.clone(), data: Vec::new(), acl, mode: CreateMode::Persistent },
        Operation::Delete { path, version: None },
    ];
    match lock.delete_with(operations).await {
        Ok(done) => Ok(done.is_some()),
        // The item was deleted, or claimed by another consumer that has a lock at the same path now. Or the client may not
        // create the node. This deletes only the lock of this delivery.
        Err(Error::Transaction { .. }) => lock.delete().await,
        Err(error) => Err(error),
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        let state = self.state.get_mut();
        let (epoch, Some(mut lock)) = (state.epoch, state.lock.take()) else { return };
        if let Some(reason) = self.hold.give_up() {
            self.report_loss(reason);
        }
        let (queue, check) = (self.item.queue.clone(), self.item.check());
        let (ended, name) = (self.ended.clone(), self.item.name.clone());
        // Without a runtime, the drop of the lock has the session delete it.
        let Some(runtime) = self.client.runtime() else { return };
        runtime.spawn(async move {
            // If it fails, the drop of the lock has the session delete it.
            let _deleted = delete_lock(&mut lock, epoch, &queue, check).await;
            drop(lock);
            let _consumer = ended.send(Ended { name, is_there: true });
        });
    }
}
