//! One item: its lock, the work under it, its end.

use std::fmt;
use std::future::Future;
use std::panic::Location;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use curator_framework::recipe::report;
use curator_framework::{Error, LossReason};
use futures_util::FutureExt as _;
use parking_lot::Mutex;
use tokio::sync::{SetOnce, watch};
use tokio::time::{sleep, timeout};

use super::inner::Inner;
use super::ownership::{Ownership, node_error};
use super::settling::Claim;
use crate::engine::caller::Caller;
use crate::engine::error::LockError;
use crate::engine::guarded_transaction::GuardedTransaction;
use crate::engine::hold::HoldShare;
use crate::engine::while_held::while_held;
use crate::engine::{Acquired, LockInternals, WaitMode, acquire, no_end};
use crate::held::{FencingToken, impl_held};
use crate::nodes::error::NodeError;
use crate::standing::Pauses;
use crate::standing::runs::Polls;

/// A view of an item that this member owns. [Clones](crate#handles) are cheap. Dropping a view does not give the item
/// up.
#[derive(Clone)]
pub struct OwnedItem {
    ownership: Arc<Ownership>,
}

impl OwnedItem {
    /// Returns the item's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.ownership.name
    }

    /// Returns the path of the node that owns the item.
    #[must_use]
    pub fn node_path(&self) -> &str {
        self.ownership.share.path()
    }

    /// Returns the fencing token, which grows with each owner of the item: see
    /// [`LockGuard::token`](crate::LockGuard::token).
    #[must_use]
    pub fn token(&self) -> FencingToken {
        self.ownership.share.fencing_token()
    }

    /// Returns `true` if this member certainly owns the item now. Compares the clock with the session's deadline,
    /// without a request, so the first call after the machine has slept is right too.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.ownership.share.is_held()
    }

    /// Returns how long this member certainly owns the item if the server sends nothing more; zero if it does not.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.ownership.share.remaining()
    }

    /// Resolves with the reason when the item is lost, at once if it is. Never resolves if the item was given up before:
    /// see [`revoked`](Self::revoked).
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when it is dropped.
    pub async fn lost(&self) -> LossReason {
        self.ownership.share.lost().await
    }

    /// Asks the leader of the ensemble whether this member owns the item: see
    /// [`LockGuard::verify`](crate::LockGuard::verify).
    ///
    /// # Errors
    ///
    /// `LockError::LockLost` after a loss; `LockError::InvalidArgument` once the item was given up; `Error::ConnectionLoss`
    /// or another error of the framework if no server replied until the retry policy gave up.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when it is dropped.
    pub async fn verify(&self) -> Result<(), LockError> {
        self.ownership.share.verify().await
    }

    /// Resolves when the item has to move to another member, or the partition is closed: the work has the
    /// [grace](crate::PartitionOptions::grace) to return. It also resolves when the item is lost or was given up.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when it is dropped.
    pub async fn revoked(&self) {
        tokio::select! {
            biased;
            _ = self.ownership.revoked.wait() => {}
            _reason = self.ownership.share.lost() => {}
        }
    }

    /// Starts a transaction that the server carries out only if this member owns the item at that moment. The commit
    /// fails with `LockError::LockLost` after a loss, and with `LockError::InvalidArgument` once the item was given up.
    /// With the client `zookeeper-async` the commit fails with `Error::Unsupported`.
    pub fn transaction(&self) -> GuardedTransaction<'_> {
        GuardedTransaction::new(&self.ownership.share, Vec::new())
    }
}

impl_held!(OwnedItem, LockError);

impl fmt::Debug for OwnedItem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OwnedItem")
            .field("name", &self.name())
            .field("token", &self.token())
            .field("is_held", &self.is_held())
            .finish_non_exhaustive()
    }
}

/// The run's hold on an item. Its drop gives the item up, although views of it may remain.
struct Tenure<'a> {
    inner: &'a Inner,
    ownership: Arc<Ownership>,
}

impl<'a> Tenure<'a> {
    #[track_caller]
    fn new(inner: &'a Inner, name: &str, internals: &LockInternals, acquired: Acquired) -> Self {
        let caller = Caller { owner: None, at: Location::caller() };
        let share = HoldShare::first(internals.hold(acquired, caller.origin()));
        inner.owns(name, true);
        let (revoked, polls) = (SetOnce::new(), Polls::default());
        let ownership = Arc::new(Ownership { name: name.to_owned(), share, revoked, polls });
        inner.held.add(name, &ownership);
        Self { inner, ownership }
    }

    fn view(&self) -> OwnedItem {
        OwnedItem { ownership: Arc::clone(&self.ownership) }
    }

    /// Ends the ownership for all its views, then deletes its node: the work is dropped by now.
    async fn end(self) {
        self.withdraw();
        // The node is deleted in the background if it cannot be deleted now.
        drop(self.ownership.share.release().await);
    }

    fn withdraw(&self) {
        self.ownership.revoke();
        self.inner.owns(&self.ownership.name, false);
    }
}

impl Drop for Tenure<'_> {
    fn drop(&mut self) {
        self.withdraw();
        self.ownership.share.delete_in_background("dropped");
    }
}

/// The wish for one item, which the run may take back and renew.
#[derive(Debug)]
pub(super) struct Wish(watch::Receiver<Option<Claim>>);

impl Wish {
    /// Returns a wish, and its sender.
    pub(super) fn new(claim: Claim) -> (watch::Sender<Option<Claim>>, Self) {
        let (sender, receiver) = watch::channel(Some(claim));
        (sender, Self(receiver))
    }

    fn claim(&self) -> Option<Claim> {
        self.0.has_changed().ok().and(*self.0.borrow())
    }

    /// Resolves when the item is not wanted.
    async fn is_over(&mut self) {
        // An error means that the run has ended, so this member does not want the item either.
        drop(self.0.wait_for(Option::is_none).await);
    }
}

/// The end of a pursuit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    NotWanted,
    /// The item is wanted only without contenders, and has some.
    NotFree,
}

/// Owns an item again and again while it is wanted: contends for its lock, and runs its work. Fails with an error that
/// waiting cannot fix.
pub(super) async fn pursue<W, F>(inner: &Inner, name: &str, mut wish: Wish, work: &Mutex<W>) -> Result<End, NodeError>
where
    W: FnMut(OwnedItem) -> F,
    F: Future<Output = ()>,
{
    let internals = inner.lock_of(name)?;
    let mut pauses = Pauses::default();
    while let Some(claim) = wish.claim() {
        let granted = tokio::select! {
            biased;
            () = wish.is_over() => continue,
            granted = contend(inner, &internals, claim) => granted,
        };
        let error = match granted {
            Ok(Some(acquired)) => {
                pauses = Pauses::default();
                let tenure = Tenure::new(inner, name, &internals, acquired);
                own(tenure, &mut wish, work).await;
                continue;
            }
            Ok(None) => return Ok(End::NotFree),
            Err(LockError::Framework(error)) => error,
            Err(error) => return Err(node_error(error)),
        };
        if !(error.is_retryable() || matches!(error, Error::NoNode { .. } | Error::TooManyEphemeralNodes { .. })) {
            return Err(error.into());
        }
        tokio::select! {
            biased;
            () = wish.is_over() => {}
            () = sleep(pauses.after(true)) => {}
        }
    }
    Ok(End::NotWanted)
}

/// Acquires the lock of an item. Returns `None` if the item is claimed only without contenders, and has some.
async fn contend(inner: &Inner, internals: &LockInternals, claim: Claim) -> Result<Option<Acquired>, LockError> {
    let path = internals.base_path();
    if claim == Claim::IfFree {
        // A read instead of a place in the queue: the next owner is the member that the settled view chooses.
        let parent = inner.client.check_exists().for_path(path).await?;
        if parent.is_some_and(|parent| parent.num_children > 0) {
            return Ok(None);
        }
    }
    // Without a budget a grant is the only success.
    acquire(&inner.client, path, WaitMode::Forever, internals).await?.ok_or_else(no_end).map(Some)
}

/// Runs the work of an item until the item is lost or not wanted.
async fn own<W, F>(tenure: Tenure<'_>, wish: &mut Wish, work: &Mutex<W>)
where
    W: FnMut(OwnedItem) -> F,
    F: Future<Output = ()>,
{
    let ownership = Arc::clone(&tenure.ownership);
    if wish.claim().is_some() && ownership.share.is_held() {
        let work = ownership.polls.of(|| ownership.share.is_held(), (work.lock())(tenure.view()));
        let attended = attend(tenure.inner, &ownership, wish, work);
        // The work is dropped here, before the node is deleted. A loss drops it too, at the deadline.
        let _loss = while_held(|| ownership.share.is_held(), ownership.share.lost(), attended).await;
    }
    tenure.end().await;
}

/// Runs the work until the item is not wanted, then until the end of its grace. Without work the item stays owned.
/// Returns at once if the work may no longer be polled, `None`: the item is lost.
async fn attend(inner: &Inner, ownership: &Ownership, wish: &mut Wish, work: impl Future<Output = Option<()>>) {
    let mut work = pin!(work.fuse());
    let done = tokio::select! {
        biased;
        () = wish.is_over() => None,
        done = &mut work => Some(done),
    };
    match done {
        Some(None) => return,
        Some(Some(())) => return wish.is_over().await,
        None => ownership.revoke(),
    }
    if timeout(inner.grace, work).await.is_err() {
        let (path, item) = (inner.path.to_string(), ownership.name.to_string());
        let grace_s = inner.grace.as_secs_f64();
        report(move || tracing::warn!(path, item, grace_s, "the work of an item is dropped at the end of its grace"));
    }
}
