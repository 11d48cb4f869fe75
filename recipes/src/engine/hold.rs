//! The hold: one node that was granted the lock, shared by the guards of one owner. The last guard deletes it. The fencing
//! token comes with the grant: `engine/acquired.rs`.
//!
//! A drop deletes the node by way of three files: [`HoldShare`] here, `OwnedNode` in the framework's
//! `session/owned_node/delete.rs`, and `session/background/delete.rs` if the first request fails.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use curator_framework::recipe::{Budget, LossListener, LossSignal, OwnedNode, RecipeClient as _, report};
use curator_framework::spi::Operation;
use curator_framework::{Chain, CuratorFramework, Error, LossReason, PathText, Session, SessionEnd};
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::engine::acquired::{Acquired, HeldNode};
use crate::engine::batch::Turn;
use crate::engine::caller::Origin;
use crate::engine::error::LockError;
use crate::engine::label::Label;
use crate::engine::metrics;
use crate::engine::requests::verify_in_session;
use crate::engine::revocation::Revocation;
use crate::engine::same_session::Entry;
use crate::engine::slot::{Slot, Slots};
use crate::held::FencingToken;

/// The outcome of the release of a lock, a barrier or a leadership.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[must_use = "it says whether the lock was held until now: work under a lost lock may have met another holder"]
pub enum Release {
    /// It was held until now. The last guard of an owner of a lock deletes the node; the others only give up their share.
    Released,
    /// It was lost before, for this reason. Another client may have held it in the meantime.
    AlreadyLost(LossReason),
}

impl Release {
    /// Returns `Ok` if it was held until now, for callers that fail their work otherwise.
    ///
    /// # Errors
    ///
    /// The reason of the loss: another client may have held it during the work.
    pub const fn held(self) -> Result<(), LossReason> {
        match self {
            Self::Released => Ok(()),
            Self::AlreadyLost(reason) => Err(reason),
        }
    }

    /// Returns `true` if it was held until now.
    #[must_use]
    pub const fn is_released(self) -> bool {
        matches!(self, Self::Released)
    }
}

/// One node that holds the lock, shared by guards.
pub(crate) struct Hold {
    lock_path: PathText,
    label: Label,
    path: PathText,
    fencing_token: FencingToken,
    session: Session,
    signal: LossSignal,
    /// Does not keep the client: [`Kept`] does, until the release.
    client: CuratorFramework,
    since: Instant,
    origin: Origin,
    revocation: OnceLock<Revocation>,
    /// The number of a lease.
    slot: Option<Box<Slot>>,
    shares: Mutex<Shares>,
    /// The batch's turn, which ends with the node. Not among the shares: a loss ends it.
    turn: Mutex<Option<Turn>>,
    /// True once a loss or the release was counted.
    over: AtomicBool,
    /// The last guard has given up its share.
    released: AtomicBool,
    /// False if the node must be deleted at the release: see [`ends_turn`](Self::ends_turn).
    passes: AtomicBool,
    /// The number of transactions without a certain outcome, which the server may carry out later.
    open_transactions: AtomicUsize,
}

/// The number of guards that share a hold, and the owned node that the last of them deletes.
struct Shares {
    guards: usize,
    /// Taken by the guard that releases it last, or dropped with it.
    kept: Option<Kept>,
    /// Lets contenders of the same session find the holder.
    entry: Option<Entry>,
}

/// The node of a hold, and the client, which stays open for it.
struct Kept<N = HeldNode> {
    owned: N,
    client: CuratorFramework,
}

impl Hold {
    pub(crate) fn new(
        client: CuratorFramework,
        lock_path: PathText,
        label: Label,
        acquired: Acquired,
        origin: Origin,
        slots: Option<Arc<Slots>>,
    ) -> Arc<Self> {
        let Acquired { owned, entry, fencing_token, revocation, turn, .. } = acquired;
        metrics::granted(&label);
        let hold = Arc::new(Self {
            lock_path,
            label,
            path: owned.path_text().unwrap_or_else(|| "".into()),
            fencing_token,
            session: owned.session().clone(),
            signal: owned.loss_signal(),
            client: client.weak_clone(),
            since: Instant::now(),
            origin,
            revocation: revocation.map_or_else(OnceLock::new, OnceLock::from),
            slot: slots.map(|slots| Box::new(Slot::new(slots))),
            shares: Mutex::new(Shares { guards: 0, kept: Some(Kept { owned, client }), entry }),
            turn: Mutex::new(turn),
            over: AtomicBool::new(false),
            released: AtomicBool::new(false),
            passes: AtomicBool::new(true),
            open_transactions: AtomicUsize::new(0),
        });
        hold.log_a_loss();
        hold
    }

    /// Has the session log a loss, even if no task awaits it.
    fn log_a_loss(self: &Arc<Self>) {
        if let Some(kept) = &self.shares.lock().kept {
            kept.owned.tells(Arc::downgrade(self));
        }
        // The node may be lost already.
        self.loss();
    }

    pub(crate) fn lock_path(&self) -> &PathText {
        &self.lock_path
    }

    pub(crate) fn origin(&self) -> &Origin {
        &self.origin
    }

    /// Returns the reason of a loss. The clock may show one before the session reports it.
    pub(crate) fn loss(&self) -> Option<LossReason> {
        self.signal.loss().inspect(|&reason| self.on_loss(reason))
    }

    pub(crate) const fn signal(&self) -> &LossSignal {
        &self.signal
    }

    /// Returns whether at least one guard shares it.
    pub(crate) fn is_shared(&self) -> bool {
        self.shares.lock().guards > 0
    }

    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    pub(crate) fn session(&self) -> &Session {
        &self.session
    }

    /// Has the release delete the node rather than pass it on: a read lock at the same place in the queue follows.
    pub(crate) fn ends_turn(&self) {
        self.passes.store(false, Ordering::SeqCst);
    }

    /// Records a transaction that is sent.
    pub(crate) fn transaction_begins(&self) {
        self.open_transactions.fetch_add(1, Ordering::SeqCst);
    }

    /// Records that the outcome of a transaction is certain.
    pub(crate) fn transaction_ends(&self) {
        self.open_transactions.fetch_sub(1, Ordering::SeqCst);
    }

    /// Returns whether the node may serve another holder: nothing that this one has done may follow.
    fn may_pass(&self) -> bool {
        self.passes.load(Ordering::SeqCst) && self.open_transactions.load(Ordering::SeqCst) == 0
    }

    /// Asks the leader whether the node is there, with retries in its session. Returns the reason of a loss.
    pub(crate) async fn verify(&self) -> Result<Option<LossReason>, Error> {
        let loss = verify_in_session(&self.client, &self.session, &self.signal, &self.lock_path).await?;
        Ok(loss.inspect(|&reason| self.on_loss(reason)))
    }

    pub(crate) fn client(&self) -> &CuratorFramework {
        &self.client
    }

    pub(crate) fn fencing_token(&self) -> FencingToken {
        self.fencing_token
    }

    /// Returns the node's revocation requests. The first call sets the watch, or returns `None` after the release.
    fn revocation(&self) -> Option<&Revocation> {
        if let Some(revocation) = self.revocation.get() {
            return Some(revocation);
        }
        let shares = self.shares.lock();
        let owned = &shares.kept.as_ref()?.owned;
        Some(self.revocation.get_or_init(|| owned.revocation(&self.client)))
    }

    /// Logs a loss, unless the last guard was released before.
    fn on_loss(&self, reason: LossReason) {
        // Not under the lock of the shares: a caller that sets a watch under it may learn of the loss.
        if !self.released.load(Ordering::SeqCst) {
            self.log_loss(reason);
        }
    }

    /// Logs and counts a loss, once. The caller reacts to the loss, so it does not wait for the log.
    fn log_loss(&self, reason: LossReason) {
        if self.over.swap(true, Ordering::SeqCst) {
            return;
        }
        metrics::lost(&self.label, reason);
        drop(self.end_slot());
        let turn = self.turn.lock().take();
        drop(turn);
        let (path, node) = (self.lock_path.clone(), self.path.clone());
        let held_s = self.since.elapsed().as_secs_f64();
        let session_id = self.session.id().map(tracing::field::display);
        report(move || tracing::warn!(path = &*path, node = &*node, %reason, held_s, session_id, "lock lost"));
    }

    /// Ends the number of a lease. A drop of its node deletes it in the background.
    fn end_slot(&self) -> Option<OwnedNode> {
        self.slot.as_ref()?.end()
    }

    /// Counts the end of a hold that was not lost, once.
    fn count_end(&self) {
        if !self.over.swap(true, Ordering::SeqCst) {
            metrics::ended(&self.label);
        }
    }

    /// Logs the end of the hold.
    fn log_end(&self, outcome: &str) {
        self.count_end();
        let held_s = self.since.elapsed().as_secs_f64();
        tracing::debug!(path = &*self.lock_path, node = &*self.path, held_s, outcome, "lock released");
    }

    /// Deletes the node, with retries in its session: in one transaction with `mark`, if the server accepts that. Without
    /// `owned` the node was left to the session, which may have deleted it.
    async fn delete(
        &self,
        mut owned: Option<&mut OwnedNode>,
        mut mark: Option<Operation>,
    ) -> Result<Release, LockError> {
        let lost = || {
            let end = self.session.end_reason().unwrap_or(SessionEnd::Expired);
            Ok(Release::AlreadyLost(LossReason::Session(end)))
        };
        let mut retries = self.client.retry_loop();
        loop {
            let deleted = match &mut owned {
                Some(owned) => owned.delete_with(mark.iter().cloned().collect()).await.map(|done| done.is_some()),
                None => match self.session.delete(&self.path, None).await {
                    Ok(()) | Err(Error::NoNode { .. }) => Ok(true),
                    Err(error) => Err(error),
                },
            };
            let error = match deleted {
                Ok(true) => return Ok(Release::Released),
                Ok(false) => return Ok(Release::AlreadyLost(LossReason::NodeDeleted)),
                Err(error @ (Error::Transaction { .. } | Error::Unsupported { .. })) if mark.take().is_some() => {
                    tracing::debug!(error = %Chain(&error), node = &*self.path, "the node is deleted without a mark");
                    continue;
                }
                Err(error) => error,
            };
            if matches!(error, Error::SessionExpired { .. }) || self.session.end_reason().is_some() {
                return lost();
            }
            retries.failed(error.about(&self.lock_path)).await?;
            match retries.reconnected(&self.session).await {
                Err(Error::SessionExpired { .. }) => return lost(),
                reconnected => reconnected.map_err(|error| error.about(&self.lock_path))?,
            }
        }
    }
}

impl LossListener for Hold {
    fn node_lost(&self) {
        self.loss();
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        // A release that failed has not counted it.
        self.count_end();
    }
}

/// One guard's share in a [`Hold`].
pub(crate) struct HoldShare {
    hold: Arc<Hold>,
    /// Changes only under the mutex of the hold's shares.
    detached: AtomicBool,
    /// The reason of a loss that preceded the release of this share.
    lost_before: OnceLock<LossReason>,
    release: tokio::sync::Mutex<ReleaseProgress>,
}

/// The state of a release, kept for the next call.
#[derive(Default)]
struct ReleaseProgress {
    /// The owned node, if this was the last share. If it is dropped, the session's background task deletes the node.
    kept: Option<Kept<OwnedNode>>,
    /// A release that failed has dropped the owned node.
    is_left: bool,
    outcome: Option<Release>,
}

impl HoldShare {
    /// Returns the first guard's share.
    pub(crate) fn first(hold: Arc<Hold>) -> Self {
        hold.shares.lock().guards += 1;
        Self::new(hold)
    }

    /// Returns a further guard's share, if a guard still shares the hold.
    pub(crate) fn join(hold: &Arc<Hold>) -> Option<Self> {
        let mut shares = hold.shares.lock();
        if shares.guards == 0 {
            return None;
        }
        shares.guards += 1;
        drop(shares);
        Some(Self::new(Arc::clone(hold)))
    }

    /// Returns another share in the same hold, if this share was not released.
    pub(crate) fn another(&self) -> Option<Self> {
        let mut shares = self.hold.shares.lock();
        if self.detached.load(Ordering::SeqCst) {
            return None;
        }
        shares.guards += 1;
        drop(shares);
        Some(Self::new(Arc::clone(&self.hold)))
    }

    fn new(hold: Arc<Hold>) -> Self {
        Self {
            hold,
            detached: AtomicBool::new(false),
            lost_before: OnceLock::new(),
            release: tokio::sync::Mutex::new(ReleaseProgress::default()),
        }
    }

    /// Gives up the share, once. The last share takes the owned node.
    fn detach(&self) -> Option<Kept> {
        let loss = self.hold.loss();
        let mut shares = self.hold.shares.lock();
        if self.detached.load(Ordering::SeqCst) {
            return None;
        }
        if let Some(loss) = loss {
            // Cannot fail: `detached` is set once.
            let _first = self.lost_before.set(loss);
        }
        self.detached.store(true, Ordering::SeqCst);
        shares.guards -= 1;
        if shares.guards > 0 {
            return None;
        }
        self.hold.released.store(true, Ordering::SeqCst);
        shares.kept.take()
    }

    /// Leaves the node to the other readers that hold it, or passes it to the next entry of its batch. Otherwise
    /// returns it: the caller deletes it.
    fn pass(&self, kept: Kept) -> Option<Kept<OwnedNode>> {
        let Kept { owned, client } = kept;
        let Some(owned) = owned.into_last() else {
            self.hold.log_end(if self.lost_before.get().is_some() { "lost" } else { "shared" });
            return None;
        };
        let kept = Kept { owned, client };
        let Some(turn) = self.hold.turn.lock().take() else { return Some(kept) };
        let revocation = self.hold.revocation.get();
        let is_revoked = revocation.is_some_and(Revocation::is_requested);
        if self.lost_before.get().is_some() || is_revoked || !self.hold.may_pass() {
            // The drop of the turn ends it.
            return Some(kept);
        }
        let Kept { owned, client } = kept;
        owned.changes_hands();
        let entry = self.hold.shares.lock().entry.take();
        let acquired = Acquired { entry, ..Acquired::new(owned, revocation.cloned(), turn.limit()) };
        let Some(Acquired { owned, entry, .. }) = turn.pass(acquired) else {
            drop(self.hold.end_slot());
            self.hold.log_end("passed");
            return None;
        };
        self.hold.shares.lock().entry = entry;
        owned.into_last().map(|owned| Kept { owned, client })
    }

    /// Gives up the share without waiting for the node's deletion.
    pub(crate) fn delete_in_background(&self, outcome: &str) {
        // A release that was dropped has kept the node for the next call.
        let kept = || self.release.try_lock().ok()?.kept.take();
        // The last share drops the owned node, and the session's background task deletes it.
        if let Some(kept) = self.detach().and_then(|kept| self.pass(kept)).or_else(kept) {
            drop(self.hold.end_slot());
            drop(kept);
            self.hold.log_end(if self.lost_before.get().is_some() { "lost" } else { outcome });
        }
    }

    /// Gives up the share, and returns the node if this was the last one.
    pub(crate) fn take_node(&self) -> Option<OwnedNode> {
        let kept = self.detach()?;
        self.hold.log_end("lost");
        kept.owned.into_last()
    }

    pub(crate) fn hold(&self) -> &Arc<Hold> {
        &self.hold
    }

    pub(crate) async fn release(&self) -> Result<Release, LockError> {
        self.release_with(None, self.hold.client.close_budget()).await
    }

    /// Releases the share like [`release`](Self::release), within a budget. The last share deletes the node in one
    /// transaction with `mark`, or alone if that fails. A release that fails leaves the node to the session.
    pub(crate) async fn release_with(&self, mark: Option<Operation>, budget: Budget) -> Result<Release, LockError> {
        let mut progress = self.release.lock().await;
        if let Some(outcome) = progress.outcome {
            return Ok(outcome);
        }
        if let Some(kept) = self.detach() {
            progress.kept = self.pass(kept);
            if progress.kept.is_none() {
                let released = self.lost_before.get().map_or(Release::Released, |&reason| Release::AlreadyLost(reason));
                return Ok(*progress.outcome.insert(released));
            }
        }
        // A loss after the release does not count.
        let loss = self.lost_before.get().copied();
        let is_last = progress.kept.is_some() || progress.is_left;
        let released = if is_last {
            let slot = self.hold.end_slot();
            let owned = progress.kept.as_mut().map(|kept| &mut kept.owned);
            let client = &self.hold.client;
            let delete = async {
                // Before the lease: the next one finds the number free.
                if let Some(slot) = slot {
                    Box::pin(delete_slot(slot)).await;
                }
                self.hold.delete(owned, mark).await
            };
            let deleted = client.within(budget, delete).await;
            match (deleted.unwrap_or_else(|| Err(client.no_answer("delete").into())), loss) {
                // A lock that was reported as lost was not held until now, even if its node was still there.
                (Ok(Release::Released), Some(reason)) => Release::AlreadyLost(reason),
                (Ok(released), _) => released,
                (Err(error), _) => {
                    (progress.kept, progress.is_left) = (None, true);
                    return Err(error);
                }
            }
        } else {
            loss.map_or(Release::Released, Release::AlreadyLost)
        };
        progress.kept = None;
        if is_last {
            let outcome = match released {
                Release::Released => "released",
                Release::AlreadyLost(reason) => {
                    self.hold.log_loss(reason);
                    "lost"
                }
            };
            self.hold.log_end(outcome);
        }
        Ok(*progress.outcome.insert(released))
    }

    pub(crate) fn is_held(&self) -> bool {
        !self.detached.load(Ordering::SeqCst) && self.hold.loss().is_none()
    }

    pub(crate) fn remaining(&self) -> Duration {
        if self.is_held() { self.hold.session.remaining() } else { Duration::ZERO }
    }

    pub(crate) async fn lost(&self) -> LossReason {
        let reason = self.hold.signal.lost().await;
        if self.detached.load(Ordering::SeqCst) && self.lost_before.get().is_none() {
            // The release preceded the loss of the node.
            return std::future::pending().await;
        }
        self.lost_before.get().copied().unwrap_or(reason)
    }

    /// Fails if the share was released or a loss is known, without a request.
    pub(crate) fn check_held(&self) -> Result<(), LockError> {
        if self.detached.load(Ordering::SeqCst) {
            return Err(LockError::invalid("guard", "it was released"));
        }
        match self.hold.loss() {
            None => Ok(()),
            Some(reason) => Err(LockError::LockLost { path: self.hold.lock_path.clone(), reason }),
        }
    }

    pub(crate) async fn verify(&self) -> Result<(), LockError> {
        if self.detached.load(Ordering::SeqCst) {
            return Err(LockError::invalid("guard", "it was released"));
        }
        match self.hold.verify().await? {
            None => Ok(()),
            Some(reason) => Err(LockError::LockLost { path: self.hold.lock_path.clone(), reason }),
        }
    }

    /// Returns the number of a lease: see [`Lease::slot`](crate::Lease::slot).
    pub(crate) async fn slot(&self) -> Result<u32, LockError> {
        self.check_held()?;
        let Some(slot) = &self.hold.slot else { return Err(LockError::invalid("guard", "it is not a lease")) };
        let number = tokio::select! {
            biased;
            reason = self.lost() => Err(LockError::LockLost { path: self.hold.lock_path.clone(), reason }),
            () = slot.ended() => Err(LockError::invalid("guard", "it was released")),
            number = slot.number(self.hold.session(), &self.hold.client, &self.hold.lock_path) => number,
        };
        // The claim takes time.
        self.check_held()?;
        number
    }

    pub(crate) async fn revocation_requested(&self) {
        match self.hold.revocation() {
            Some(revocation) => revocation.requested().await,
            None => std::future::pending().await,
        }
        if self.detached.load(Ordering::SeqCst) {
            // The request is for the next holder of the node.
            std::future::pending().await
        }
    }

    pub(crate) fn fencing_token(&self) -> FencingToken {
        self.hold.fencing_token
    }

    pub(crate) fn path(&self) -> &str {
        &self.hold.path
    }
}

/// Deletes the node of a lease's number. Its drop repeats a delete that fails.
async fn delete_slot(mut slot: OwnedNode) {
    if let Err(error) = slot.delete().await {
        tracing::debug!(error = %Chain(&error), "a slot is deleted in the background");
    }
}

impl Drop for HoldShare {
    fn drop(&mut self) {
        self.delete_in_background("dropped");
    }
}

impl fmt::Debug for HoldShare {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HoldShare")
            .field("path", &self.hold.path)
            .field("fencing_token", &self.hold.fencing_token)
            .field("held", &self.is_held())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hold").field("path", &self.path).finish_non_exhaustive()
    }
}
