//! The engine of every lock: Curator's `LockInternals`.
//!
//! Create a protected node, list, decide, watch, wait, decide again; all of one attempt in one session. A
//! [`NodeClaim`] owns the node from before the create is sent, so whatever happens to the attempt (an error, its
//! budget, a dropped future) the node is cleaned up.

use std::borrow::Cow;
use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use curator_framework::{
    CreateMode, CuratorFramework, Error, EventType, NewNode, NodeClaim, RetryLoop, Session, Stat, WakeReason, Watch,
    make_path, validate_path,
};

use curator_framework::mutants::{Mutant, is_broken, keep_node};
use parking_lot::Mutex;
use tokio::sync::futures::Notified;
use tokio::time::Instant;

use crate::error::{LockError, Result};
use crate::locks::driver::{
    LockInternalsDriver, Predicate, SortedChildren, StandardLockInternalsDriver, is_far_from_the_end,
};
use crate::locks::hold::Hold;
use crate::locks::limit::Limit;
use crate::locks::options::LockOptions;
use crate::locks::reentrant::left;
use crate::locks::revoker::Revocation;

/// How long somebody is ready to wait for a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Patience {
    /// As long as it takes.
    Forever,
    /// For this long, everything included.
    AtMost(Duration),
    /// Ask once.
    Once,
}

impl Patience {
    /// A budget of nothing still asks once, as Curator's does.
    pub(crate) fn at_most(budget: Duration) -> Self {
        if budget.is_zero() { Self::Once } else { Self::AtMost(budget) }
    }
}

/// A node that has the lock.
#[derive(Debug)]
pub(crate) struct Acquired {
    pub(crate) claim: NodeClaim,
    /// The transaction that created it.
    pub(crate) czxid: i64,
    pub(crate) revocation: Option<Revocation>,
    /// How many were ahead when it joined.
    pub(crate) queue_position: usize,
}

/// What one kind of lock is like.
#[derive(Debug)]
pub(crate) struct Shape {
    pub(crate) lock_name: &'static str,
    pub(crate) driver: Arc<dyn LockInternalsDriver>,
    pub(crate) limit: Arc<Limit>,
    pub(crate) touch: Touch,
    /// Nobody ever comes to stand before a contender, and one after the other has the lock: so the end of the first one
    /// in line makes its follower the first.
    pub(crate) is_line: bool,
    /// The data of the parent, if it is created.
    pub(crate) parent_data: &'static [u8],
}

impl Acquired {
    /// The path of its node.
    pub(crate) fn path(&self) -> &str {
        self.claim.path().unwrap_or_default()
    }
}

impl Shape {
    /// A lock that one has at a time.
    pub(crate) fn exclusive(lock_name: &'static str, driver: Arc<dyn LockInternalsDriver>) -> Self {
        let limit = Arc::new(Limit::new(1));
        Self { lock_name, driver, limit, touch: Touch::Never, is_line: false, parent_data: &[] }
    }

    /// A lock that one has at a time, in the order in which they came.
    pub(crate) fn line(lock_name: &'static str) -> Self {
        Self { is_line: true, ..Self::exclusive(lock_name, Arc::new(StandardLockInternalsDriver)) }
    }
}

/// Whether a node is written once more when it is granted, which tells the contender behind it that it is the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Touch {
    Never,
    /// If somebody is behind.
    IfFollowed,
    /// In any case: the limit may be lowered, and then who has a place is not to be seen from the order.
    Always,
}

/// The contenders of one kind under one path.
#[derive(Debug)]
pub(crate) struct LockInternals {
    client: CuratorFramework,
    base_path: String,
    shape: Shape,
    options: LockOptions,
    /// What is held through this object.
    holds: Mutex<Vec<Weak<Hold>>>,
    /// Of the end of the sequence numbers.
    warned: AtomicBool,
}

/// What is attempted in one session after the other until it is granted.
pub(crate) trait Attempt: Sync {
    /// What is granted.
    type Granted: Send;

    /// One attempt in one session. `Ok(None)` only if it asks `once` and somebody else has the lock.
    fn attempt(
        &self,
        session: &Session,
        retries: &mut RetryLoop,
        once: bool,
    ) -> impl Future<Output = Result<Option<Self::Granted>>> + Send;
}

/// Tells those who listen how an acquire ended, also when its future is dropped.
struct Wait<'a> {
    path: &'a str,
    began: Instant,
    outcome: &'static str,
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        tracing::debug!(path = self.path, wait = ?self.began.elapsed(), outcome = self.outcome, "lock acquire");
    }
}

/// Runs attempts, each in a session of its own, until one is granted or the patience ends.
pub(crate) async fn acquire<A: Attempt>(
    client: &CuratorFramework,
    path: &str,
    patience: Patience,
    what: &A,
) -> Result<Option<A::Granted>> {
    let mut wait = Wait { path, began: Instant::now(), outcome: "cancelled" };
    let outcome = acquire_silently(client, patience, what).await;
    wait.outcome = match &outcome {
        Ok(Some(_)) => "granted",
        Ok(None) => "timeout",
        Err(_) => "error",
    };
    outcome
}

async fn acquire_silently<A: Attempt>(
    client: &CuratorFramework,
    patience: Patience,
    what: &A,
) -> Result<Option<A::Granted>> {
    let mut retries = client.retry_loop();
    if patience == Patience::Once {
        // Both together bounded by the connection timeout. No answer in that time is an error, not a "no".
        let began = Instant::now();
        let session = retries.session().await?;
        let left = left(client.connection_timeout(), began);
        return match tokio::time::timeout(left, Box::pin(what.attempt(&session, &mut retries, true))).await {
            Ok(outcome) => outcome,
            Err(_elapsed) => Err(client.no_answer("asking for a lock").into()),
        };
    }
    // On the heap: the future of an acquire stays small wherever it is kept.
    let attempts = Box::pin(async {
        loop {
            let error = match retries.session().await {
                Ok(session) => match Box::pin(what.attempt(&session, &mut retries, false)).await {
                    Ok(outcome) => return Ok(outcome),
                    Err(LockError::Framework(error)) => error,
                    Err(error) => return Err(error),
                },
                Err(error) => error,
            };
            match error {
                // The own node or the parent went away: a new node is the cure, at the back of the queue.
                error @ Error::NoNode { .. } => retries.pause_after(error).await?,
                error => retries.failed(error).await?,
            }
        }
    });
    within(patience, attempts).await
}

async fn within<T>(patience: Patience, attempts: impl Future<Output = Result<Option<T>>>) -> Result<Option<T>> {
    match patience {
        Patience::AtMost(budget) => tokio::time::timeout(budget, attempts).await.unwrap_or(Ok(None)),
        _ => attempts.await,
    }
}

/// The watches of a waiting contender.
#[derive(Debug, Default)]
struct Watches {
    /// On the own node, where it decides who is next, and else when the wait has lasted.
    own: Option<Watch>,
}

/// What a contender knows of itself.
struct Contender {
    /// The transaction that created its node.
    czxid: i64,
    /// The children that are known already, and on which connection of the session they were listed.
    early: Option<(Vec<String>, u64)>,
    /// The connection on which our newest write was answered: what is listed on it is not older than that.
    ordered_at: Option<u64>,
    /// Which transactions created the nodes near the end of the sequence numbers.
    created: HashMap<String, i64>,
    watch_children: bool,
    /// The node ahead, when all others before it are believed to be gone.
    last_ahead: Option<String>,
    queue_position: Option<usize>,
    revocation: Option<Revocation>,
    watches: Watches,
    claim: NodeClaim,
}

impl Contender {
    /// Sees to it that what is listed from now on is not older than our newest write.
    async fn order(&mut self, session: &Session, reconnects: u64) -> Result<Step, Error> {
        // On the heap, as this is rare.
        Box::pin(session.order()).await?;
        self.ordered_at = Some(reconnects);
        Ok(Step::Again)
    }
}

/// What a look at the line has shown to somebody who has to wait.
struct Seen<'a> {
    session: &'a Session,
    /// The connection on which it was listed.
    reconnects: u64,
    child_watch: Option<Watch>,
    /// The node ahead, if it is watched already.
    ahead_watched: Option<(String, Watch)>,
    /// The one before that, if it is waited for first.
    second_ahead: Option<String>,
    /// Is broken.
    trusts: bool,
}

/// What came of one look at the line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// Nothing is decided yet.
    Again,
    /// The contender has the lock.
    Granted,
    /// Somebody else has it, and was to be asked once.
    Refused,
}

impl Attempt for LockInternals {
    type Granted = Acquired;

    async fn attempt(&self, session: &Session, retries: &mut RetryLoop, once: bool) -> Result<Option<Acquired>> {
        Ok(self.contend(session, retries, once).await?)
    }
}

impl LockInternals {
    async fn contend(&self, session: &Session, retries: &mut RetryLoop, once: bool) -> Result<Option<Acquired>, Error> {
        let mut claim = session.claim(&self.base_path, self.shape.lock_name, self.shape.driver.create_mode());
        let (czxid, created_at, early) = self.enter(&mut claim, retries, once).await?;
        let mut own = Contender {
            czxid,
            early: early.map(|children| (children, created_at)),
            ordered_at: Some(created_at),
            created: HashMap::new(),
            watch_children: false,
            last_ahead: None,
            queue_position: None,
            revocation: None,
            watches: Watches::default(),
            claim,
        };
        if is_broken(Mutant::TrustTheOldSession) {
            Box::pin(self.trust_the_old_session(&mut own)).await?;
        }
        loop {
            match self.step(session, &mut own, retries, once).await {
                Ok(Step::Again) => {}
                Ok(Step::Granted) => return self.granted(own).map(Some),
                Ok(Step::Refused) => {
                    // Gone when this is answered: whoever asks next must not find it in the way.
                    own.claim.delete().await?;
                    return Ok(None);
                }
                Err(error) => self.survive(error, session, retries).await?,
            }
        }
    }

    async fn trust_the_old_session(&self, own: &mut Contender) -> Result<(), Error> {
        let session = own.claim.session().clone();
        let kept = keep_node(own.claim.node_name().map(ToOwned::to_owned));
        if let Some(old) = kept.filter(|old| old.contains(self.shape.lock_name)) {
            if let Some(stat) = session.exists(&make_path(&self.base_path, &old)).await? {
                session.delete(own.claim.path().unwrap_or_default(), None).await?;
                own.claim.settle(&old, &stat, &[]).await?;
                own.czxid = stat.czxid;
            }
        }
        Ok(())
    }

    /// Looks at the line once, and waits for what a contender in its place waits for.
    async fn step(
        &self,
        session: &Session,
        own: &mut Contender,
        retries: &mut RetryLoop,
        once: bool,
    ) -> Result<Step, Error> {
        let reconnects = session.epoch();
        if own.claim.is_uncertain() && own.ordered_at != Some(reconnects) {
            return own.order(session, reconnects).await;
        }
        let mut ahead_watched = None;
        let listed = if let Some(ahead) = own.last_ahead.take() {
            // On the heap: it is short, and a wait may be long.
            let (listed, watch) = Box::pin(self.look_at_both(session, own, &ahead)).await?;
            ahead_watched = watch.map(|watch| (ahead, watch));
            listed.map(|children| (children, None))
        } else if let Some((children, _)) = own.early.take().filter(|&(_, listed_at)| listed_at == reconnects) {
            Ok((children, None))
        } else if own.watch_children {
            session.get_children_watched(&self.base_path).await.map(|(children, watch)| (children, Some(watch)))
        } else {
            session.get_children(&self.base_path).await.map(|children| (children, None))
        };
        let (children, child_watch) = match listed {
            // The parent cannot go while our node is there, so the node is gone too.
            Err(Error::NoNode { .. }) => (Vec::new(), None),
            listed => listed?,
        };
        if session.epoch() != reconnects {
            return Ok(Step::Again);
        }
        if own.claim.is_uncertain() {
            Box::pin(self.settle(&mut own.claim, &mut own.czxid, &children)).await?;
        }
        let sorted = self.in_order(session, children, &mut own.created).await?;
        if own.revocation.is_none() {
            own.revocation = self.revocation(&own.claim);
        }
        let ours = own.claim.node_name().unwrap_or_default();
        let place = sorted.position(ours);
        own.queue_position = own.queue_position.or(place);
        // From here on no change of the limit is missed.
        let mut limit_changes = std::pin::pin!(self.shape.limit.changed());
        let decided = self.shape.driver.gets_the_lock(&sorted, ours, self.shape.limit.get());
        // Near the end of the counter the list is older than what was asked of its nodes: who is behind may be missing in it,
        // and have seen ours wait.
        let followed = sorted.is_near_the_end() || place.is_some_and(|place| place + 1 < sorted.len());
        let trusts =
            is_broken(Mutant::SkipTheRelist) || (is_broken(Mutant::SkipTheEarlyListing) && ahead_watched.is_some());
        let second_ahead = self.second_ahead(session, &sorted, place).filter(|_| !trusts).map(ToOwned::to_owned);
        // A wait may be long, and those who wait many: none of them keeps the list.
        drop(sorted);
        if is_broken(Mutant::FirstBeforeItsTurn) {
            own.claim.say_first();
        }
        match decided {
            Predicate::Acquired => {
                let tells = self.shape.touch == Touch::Always || (self.shape.touch == Touch::IfFollowed && followed);
                if tells && !is_broken(Mutant::GrantedWithoutATouch) {
                    own.claim.touch(self.stored_data()?.into_owned());
                }
                return Ok(Step::Granted);
            }
            // The list may come from a server that is behind; after an answered write it is not.
            Predicate::Missing if own.ordered_at != Some(reconnects) => return own.order(session, reconnects).await,
            Predicate::Missing => {
                return Err(Error::NoNode { path: own.claim.path().unwrap_or(&self.base_path).to_owned() });
            }
            _ if once => return Ok(Step::Refused),
            _ => {}
        }
        retries.progressed();
        let seen = Seen { session, reconnects, child_watch, ahead_watched, second_ahead, trusts };
        self.wait(decided, seen, own, limit_changes.as_mut()).await
    }

    /// Waits for what the predicate says, and perhaps knows with that who is first.
    async fn wait(
        &self,
        decided: Predicate,
        seen: Seen<'_>,
        own: &mut Contender,
        limit_changes: Pin<&mut Notified<'_>>,
    ) -> Result<Step, Error> {
        let Seen { session, reconnects, child_watch, ahead_watched, second_ahead, trusts } = seen;
        match (decided, second_ahead) {
            (Predicate::WatchNode { node, .. }, Some(second)) => {
                let second = (second.as_str(), None, false);
                // Whatever it tells, a listing is due, but not before it is gone.
                self.wait_for_node(session, &own.claim, second, limit_changes, &mut own.watches).await?;
                own.last_ahead = Some(node);
            }
            (Predicate::WatchNode { node, blocks_alone }, None) => {
                let watch = ahead_watched.filter(|(watched, _)| *watched == node).map(|(_, watch)| watch);
                let ahead = (node.as_str(), watch, blocks_alone || trusts);
                let deleted = self.wait_for_node(session, &own.claim, ahead, limit_changes, &mut own.watches).await?;
                // Exactly one node stood before ours at the end, both were watched on one connection, and events come in
                // order: ours is still there, so it is first. No listing is needed to know it.
                if deleted && session.epoch() == reconnects {
                    return Ok(Step::Granted);
                }
            }
            (Predicate::WatchNeighbour { node }, _) => {
                own.watch_children |= match child_watch {
                    // The node ahead was written to, and ours is not the next: it has its place from a limit that was
                    // lowered, or somebody else wrote it. Any departure may be ours.
                    Some(watch) => {
                        self.wait_for_children(session, &own.claim, watch, limit_changes, &mut own.watches).await?;
                        true
                    }
                    None => {
                        self.wait_for_neighbour(session, &own.claim, &node, limit_changes, &mut own.watches).await?
                    }
                };
            }
            _ => match child_watch {
                Some(watch) => {
                    self.wait_for_children(session, &own.claim, watch, limit_changes, &mut own.watches).await?;
                }
                None => own.watch_children = true,
            },
        }
        Ok(Step::Again)
    }

    /// # Errors
    ///
    /// `InvalidPath`, or `InvalidArgument` for the root, which cannot be a lock.
    pub(crate) fn new(client: CuratorFramework, base_path: String, shape: Shape, options: LockOptions) -> Result<Self> {
        validate_path(&base_path)?;
        if base_path == "/" {
            return Err(LockError::invalid("lock path", "the root cannot be a lock"));
        }
        let (holds, warned) = (Mutex::default(), AtomicBool::new(false));
        Ok(Self { client, base_path, shape, options, holds, warned })
    }

    pub(crate) fn limit(&self) -> &Arc<Limit> {
        &self.shape.limit
    }

    /// What a contender that was granted the lock has from now on.
    pub(crate) fn hold(&self, lock_path: &str, acquired: Acquired) -> Arc<Hold> {
        let (queue_position, fencing_token) = (acquired.queue_position, acquired.czxid);
        if let Some(long) = self.options.warn_after {
            let (path, node) = (lock_path.to_owned(), acquired.claim.path().unwrap_or_default().to_owned());
            acquired.claim.when_held_for(long, move || {
                tracing::warn!(path, node, held_for_more_than = ?long, "a lock is held for long");
            });
        }
        let hold = Hold::new(self.client.clone(), lock_path, acquired);
        tracing::debug!(path = lock_path, node = hold.path(), queue_position, fencing_token, "lock granted");
        let mut holds = self.holds.lock();
        // So often that the list is never more than twice as long as it must be.
        if holds.len() == holds.capacity() {
            holds.retain(|hold| hold.strong_count() > 0);
        }
        holds.push(Arc::downgrade(&hold));
        hold
    }

    /// Whether something is held through this object.
    pub(crate) fn is_held(&self) -> bool {
        let holds = self.holds.lock();
        holds.iter().filter_map(Weak::upgrade).any(|hold| hold.is_shared() && hold.loss().is_none())
    }

    /// The data of a node, as it is written.
    fn stored_data(&self) -> Result<Cow<'_, [u8]>, Error> {
        let data = match (&self.options.revocation, &self.options.node_data) {
            // As Curator's.
            (Some(_), _) => &[],
            (None, Some(data)) => data.as_slice(),
            (None, None) => self.client.default_data(),
        };
        self.client.to_stored_at(&self.base_path, data)
    }

    pub(crate) fn client(&self) -> &CuratorFramework {
        &self.client
    }

    pub(crate) fn base_path(&self) -> &str {
        &self.base_path
    }

    /// Creates the node, and lists. Returns the node's `czxid`, on which connection of the session it was created, and the
    /// contenders if they are known.
    async fn enter(
        &self,
        claim: &mut NodeClaim,
        retries: &mut RetryLoop,
        once: bool,
    ) -> Result<(i64, u64, Option<Vec<String>>), Error> {
        // Sent behind the create without waiting for its answer. It counts if our node is in it: then it is as new as one
        // that was asked for afterwards. Who asks once would find what a guard leaves behind that was just dropped.
        let session = claim.session().clone();
        let listing = async {
            match once {
                true => None,
                false => session.get_children(&self.base_path).await.ok(),
            }
        };
        // On the heap: it is short, and a wait behind it may be long.
        let both = Box::pin(futures_util::future::join(self.create(claim, retries), listing));
        let (created, early) = session.in_one_write(both).await;
        let (czxid, created_at) = created?;
        let is_ours =
            |children: &Vec<String>| claim.node_name().is_some_and(|own| children.iter().any(|name| name == own));
        Ok((czxid, created_at, early.filter(is_ours)))
    }

    /// Creates the node, again and again if need be: under the same prefix, so that all of them are found. Returns
    /// its `czxid` and on which connection of the session it was created.
    async fn create(&self, claim: &mut NodeClaim, retries: &mut RetryLoop) -> Result<(i64, u64), Error> {
        let stored = self.stored_data()?;
        let node =
            NewNode::new(&stored).with_parents(self.client.lock_parents()).with_parent_data(self.shape.parent_data);
        let session = claim.session().clone();
        loop {
            let reconnects = session.epoch();
            match claim.create(&node).await {
                Ok(stat) => return Ok((stat.czxid, reconnects)),
                // At the end of the counter the same number again: the create whose reply was lost has made the node.
                // What it is, is settled with the first listing.
                Err(Error::NodeExists { .. }) if claim.is_uncertain() => return Ok((0, reconnects)),
                // The parents were removed as soon as they were made, by somebody who clears away empty ones.
                Err(error @ Error::NoNode { .. }) => Box::pin(retries.pause_after(error)).await?,
                Err(error) => self.survive(error, &session, retries).await?,
            }
        }
    }

    /// The contenders in order: by their numbers, and near the end of ZooKeeper's counter by the transactions that
    /// created them, one look each.
    pub(crate) async fn in_order(
        &self,
        session: &Session,
        children: Vec<String>,
        created: &mut HashMap<String, i64>,
    ) -> Result<SortedChildren, Error> {
        let sorted = self.sort(children);
        if !sorted.is_near_the_end() {
            return Ok(sorted);
        }
        if !self.warned.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                path = self.base_path,
                "the sequence numbers are near their end: contenders are ordered by their creation, which Java's Curator does not do"
            );
        }
        for (sequence, name) in sorted.numbered() {
            if is_far_from_the_end(sequence) || created.contains_key(name) {
                continue;
            }
            // On the heap, as this is rare.
            if let Some(stat) = Box::pin(session.exists(&make_path(&self.base_path, name))).await? {
                created.insert(name.to_owned(), stat.czxid);
            }
        }
        Ok(sorted.sorted_by(|name| created.get(name).copied()))
    }

    /// After lost replies there may be several nodes of the claim: keeps the oldest of the claim's own session, deletes the
    /// others.
    async fn settle(&self, claim: &mut NodeClaim, czxid: &mut i64, children: &[String]) -> Result<(), Error> {
        let mut oldest: Option<(Stat, String)> = None;
        let mut own: Vec<String> = claim.own(children).into_iter().map(ToOwned::to_owned).collect();
        for name in &own {
            let path = make_path(&self.base_path, name);
            let Some(stat) = claim.session().exists(&path).await? else { return Err(Error::NoNode { path }) };
            if claim.is_own(&stat) && oldest.as_ref().is_none_or(|(other, _)| stat.czxid < other.czxid) {
                oldest = Some((stat, name.clone()));
            }
        }
        // None at all is for the predicate to say.
        let Some((stat, oldest)) = oldest else { return Ok(()) };
        own.retain(|name| *name != oldest);
        let others: Vec<&str> = own.iter().map(String::as_str).collect();
        claim.settle(&oldest, &stat, &others).await?;
        *czxid = stat.czxid;
        Ok(())
    }

    /// Creates a node of this name, without a number of its own, in a session.
    pub(crate) async fn create_named(
        &self,
        session: &Session,
        name: &str,
        retries: &mut RetryLoop,
    ) -> Result<NodeClaim, Error> {
        let stored = self.stored_data()?;
        let mut claim = session.claim(&self.base_path, name, CreateMode::Ephemeral);
        loop {
            match claim.create(&NewNode::new(&stored)).await {
                Ok(_) => return Ok(claim),
                // Nobody else makes this name, so it is the one whose reply was lost.
                Err(Error::NodeExists { .. }) if claim.is_uncertain() => {
                    let own = format!("{}{name}", claim.protected_id().prefix());
                    let path = make_path(&self.base_path, &own);
                    let Some(stat) = session.exists(&path).await? else { return Err(Error::NoNode { path }) };
                    claim.settle(&own, &stat, &[]).await?;
                    return Ok(claim);
                }
                Err(error) => self.survive(error, session, retries).await?,
            }
        }
    }

    /// Waits out a lost connection in the same session, as the retry policy allows.
    ///
    /// On the heap, as this is rare: those who wait are many, and each is as large as the largest of what it may do.
    pub(crate) fn survive<'a>(
        &self,
        error: Error,
        session: &'a Session,
        retries: &'a mut RetryLoop,
    ) -> Pin<Box<dyn Future<Output = Result<(), Error>> + Send + 'a>> {
        Box::pin(async move {
            if !matches!(error, Error::ConnectionLoss { .. }) {
                return Err(error);
            }
            retries.failed(error).await?;
            retries.reconnected(session).await
        })
    }

    /// Waits until a node ahead is gone. `Ok(true)` if it was deleted, and our own node, which is watched, is there, all on
    /// the connection there was at first; `Ok(false)` if a listing has to tell, as always unless it stood there `alone`,
    /// or its owner, in this process, has said since that it does. It may be `watched` already.
    async fn wait_for_node(
        &self,
        session: &Session,
        claim: &NodeClaim,
        (ahead, mut watched, mut alone): (&str, Option<Watch>, bool),
        mut limit_changes: Pin<&mut Notified<'_>>,
        watches: &mut Watches,
    ) -> Result<bool, Error> {
        let path = make_path(&self.base_path, ahead);
        let began_at = session.epoch();
        loop {
            // Whoever takes further names for contenders may know of one that the owner of the node does not.
            let listens = self.shape.is_line && self.options.extra_lock_patterns.is_empty() && session.has_named(ahead);
            let mut word = listens.then(|| session.word_of(&path));
            let (same_session, owner) = (session.has_named(ahead), session.owner_of(&path));
            let mut ahead = match watched.take() {
                Some(watch) => watch,
                None => match watch_if_there(session, &path).await? {
                    Some(watch) => watch,
                    None => return Ok(false),
                },
            };
            let reason = loop {
                if alone && !self.watch_own(session, claim, watches).await? {
                    return Ok(false);
                }
                tokio::select! {
                    biased;
                    reason = self.own_changed(session, claim, watches) => match reason? {
                        Some(WakeReason::Event(EventType::NodeDeleted)) | None => return Ok(false),
                        Some(reason) => break reason,
                    },
                    // Before the end of the node ahead: the word came first, and with it no listing is due.
                    reason = some(&mut word) => {
                        alone |= reason == WakeReason::First;
                        word = None;
                    }
                    reason = &mut ahead => match reason {
                        WakeReason::Event(EventType::NodeDeleted) => {
                            // The end of a session deletes all of its nodes in one transaction, and tells of them in any
                            // order. So of a node of our own session the owner's delete must have been answered.
                            let by_owner = match owner {
                                // On the heap: rare, and short.
                                Some(owner) => Box::pin(async move { owner.is_done().await }).await,
                                None => !same_session,
                            };
                            // Events come in order on one connection: what came of the own node before this has fired its
                            // watch.
                            let in_order = |watch: &Watch| watch.is_set_in(began_at) && session.epoch() == began_at;
                            let own_is_there = watches.own.as_ref().is_some_and(|own| in_order(own) && !own.has_fired());
                            let by_owner = by_owner || is_broken(Mutant::FirstBeforeItsTurn);
                            return Ok(alone && by_owner && own_is_there && in_order(&ahead));
                        }
                        reason => break reason,
                    },
                    () = limit_changes.as_mut() => return Ok(false),
                }
            };
            if matches!(reason, WakeReason::SessionEnded(_)) {
                return Err(expired(session));
            }
            // A reconnect, or data that changed: the node ahead is what is waited for still, if it is there.
        }
    }

    /// Whom a contender waits for at first if two or more stand before it: the one before the one ahead. When that one is
    /// gone, the one ahead has the lock as a rule, and the listing that shows it stands there alone is made meanwhile
    /// and not between its end and our grant. Of two in one session the first says itself that it is alone.
    fn second_ahead<'a>(&self, session: &Session, sorted: &'a SortedChildren, place: Option<usize>) -> Option<&'a str> {
        let (second, ahead) = (sorted.get(place?.checked_sub(2)?)?, sorted.get(place?.checked_sub(1)?)?);
        (self.shape.is_line && !session.has_named(ahead)).then_some(second)
    }

    /// Watches the node ahead and our own, and lists, all of it in one round trip. The watches first: then the node ahead
    /// is not in the listing, or its deletion will be told.
    async fn look_at_both(
        &self,
        session: &Session,
        own: &mut Contender,
        ahead: &str,
    ) -> Result<(Result<Vec<String>, Error>, Option<Watch>), Error> {
        let path = make_path(&self.base_path, ahead);
        let (watch, own_watched, listed) = futures_util::join!(
            watch_if_there(session, &path),
            // Whether it is there the listing says too.
            self.watch_own(session, &own.claim, &mut own.watches),
            session.get_children(&self.base_path),
        );
        own_watched?;
        Ok((listed, watch?))
    }

    /// Waits until the node ahead is gone or tells that it has a place. `Ok(true)` if it has one already, so that ours
    /// is the next.
    async fn wait_for_neighbour(
        &self,
        session: &Session,
        claim: &NodeClaim,
        ahead: &str,
        limit_changes: Pin<&mut Notified<'_>>,
        watches: &mut Watches,
    ) -> Result<bool, Error> {
        match session.get_data_watched(&make_path(&self.base_path, ahead)).await {
            Ok((_, stat, _)) if stat.version > 0 => Ok(true),
            Ok((_, _, watch)) => {
                self.wait_for_children(session, claim, watch, limit_changes, watches).await.map(|()| false)
            }
            Err(Error::NoNode { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Waits for a watch, on the children or on the node ahead.
    async fn wait_for_children(
        &self,
        session: &Session,
        claim: &NodeClaim,
        mut watch: Watch,
        limit_changes: Pin<&mut Notified<'_>>,
        watches: &mut Watches,
    ) -> Result<(), Error> {
        tokio::select! {
            biased;
            reason = self.own_changed(session, claim, watches) => {
                reason?;
            }
            _ = &mut watch => {}
            () = limit_changes => {}
        }
        session.end_reason().map_or(Ok(()), |_| Err(expired(session)))
    }

    /// Waits until something happens to the own node; `Ok(None)` if it is not there. Without a watch it looks after a
    /// tenth of the session timeout for the first time: few waits are that long, and a watch costs a request.
    async fn own_changed(
        &self,
        session: &Session,
        claim: &NodeClaim,
        watches: &mut Watches,
    ) -> Result<Option<WakeReason>, Error> {
        if watches.own.is_none() {
            tokio::time::sleep(session.timeout() / 10).await;
        }
        if !self.watch_own(session, claim, watches).await? {
            return Ok(None);
        }
        let Some(own) = watches.own.as_mut() else { return Ok(None) };
        let reason = own.await;
        // To be set anew.
        watches.own = None;
        Ok(Some(reason))
    }

    /// Sees to a watch on the own node. `Ok(false)` if the node is not there.
    async fn watch_own(&self, session: &Session, claim: &NodeClaim, watches: &mut Watches) -> Result<bool, Error> {
        if watches.own.as_ref().is_some_and(|watch| !watch.has_fired()) {
            return Ok(true);
        }
        if is_broken(Mutant::HandOffWithoutTheOwnWatch) {
            // A watch that never fires.
            let (_, watch) = session.exists_watched("/nothing-is-ever-here").await?;
            watches.own = Some(watch);
            return Ok(true);
        }
        watches.own = None;
        watches.own = watch_if_there(session, claim.path().unwrap_or_default()).await?;
        Ok(watches.own.is_some())
    }

    /// Hands the node over to a guard, if the session certainly lives. From now on its deletion by somebody else is
    /// noticed.
    fn granted(&self, own: Contender) -> Result<Acquired, Error> {
        let Contender { czxid, queue_position, revocation, watches, claim, .. } = own;
        if !claim.session().is_alive() {
            return Err(expired(claim.session()));
        }
        match watches.own {
            Some(watch) => claim.watch_node_with(watch),
            None => claim.watch_node(claim.session().timeout() / 10),
        }
        if self.shape.is_line {
            claim.say_first();
        }
        Ok(Acquired { claim, czxid, revocation, queue_position: queue_position.unwrap_or_default() })
    }

    /// The contenders of a listing, by their numbers.
    pub(crate) fn sort(&self, children: Vec<String>) -> SortedChildren {
        let patterns = self.options.extra_lock_patterns.iter().map(String::as_str);
        SortedChildren::with_patterns(children, self.shape.lock_name, patterns, &*self.shape.driver)
    }

    /// Has the listener told of requests to give a node back, if there is one.
    pub(crate) fn revocation(&self, claim: &NodeClaim) -> Option<Revocation> {
        let listener = self.options.revocation.clone()?;
        Some(Revocation::watch(&self.client, claim, Some(listener)))
    }

    /// The number of a contender.
    pub(crate) fn sequence(&self, name: &str) -> Option<i64> {
        let alone = self.sort(vec![name.to_owned()]);
        alone.numbered().next().map(|(number, _)| number)
    }

    /// What a contender of a listing would do next.
    pub(crate) fn decide(&self, sorted: &SortedChildren, name: &str) -> Predicate {
        self.shape.driver.gets_the_lock(sorted, name, self.shape.limit.get())
    }
}

/// Patience without end has no end but a grant or an error.
pub(crate) fn no_end() -> LockError {
    Error::Closed.into()
}

/// A watch on a node, if that is there: no request if this session watches it already, as who is next but one does with
/// the node of the next.
async fn watch_if_there(session: &Session, path: &str) -> Result<Option<Watch>, Error> {
    if let Some(watch) = session.join_watch(path) {
        return Ok(Some(watch));
    }
    match session.get_data_watched(path).await {
        Ok((_, _, watch)) => Ok(Some(watch)),
        Err(Error::NoNode { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Waits for a watch, if there is one.
async fn some(watch: &mut Option<Watch>) -> WakeReason {
    match watch {
        Some(watch) => watch.await,
        None => std::future::pending().await,
    }
}

fn expired(session: &Session) -> Error {
    session.gone(format!("waiting for a lock in session {}", session.number()))
}

#[cfg(test)]
mod tests {
    use curator_framework::RetryNTimes;

    use super::*;

    /// Ten thousand may wait in one process.
    #[tokio::test]
    async fn a_waiter_is_small() {
        let client = CuratorFramework::new_client("nowhere:1", RetryNTimes::new(1, Duration::ZERO)).unwrap();
        let shape = Shape::line("lock-");
        let lock = LockInternals::new(client.clone(), "/lock".into(), shape, LockOptions::new()).unwrap();
        let in_front = size_of_val(&acquire(&client, "/lock", Patience::Forever, &lock));
        let mut retries = client.retry_loop();
        let looking_for_a_session = size_of_val(&retries.session());
        let pausing = size_of_val(&retries.pause_after(Error::Closed));
        println!("{in_front} bytes, and one of {looking_for_a_session} or {pausing} on the heap");
        assert!(in_front < 1024, "{in_front} bytes");
        assert!(looking_for_a_session < 2048, "{looking_for_a_session} bytes");
        assert!(pausing < 2048, "{pausing} bytes");
    }
}
