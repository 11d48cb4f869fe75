//! The mutex.

use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use curator_framework::{CuratorFramework, LossReason, make_path};
use parking_lot::Mutex;

use crate::error::{LockError, Result};
use crate::locks::driver::{LockInternalsDriver, StandardLockInternalsDriver};
use crate::locks::hold::{Hold, Place, Release};
use crate::locks::lock_internals::{LockInternals, Patience, acquire, name_of};
use crate::locks::owner::LockOwner;

/// Curator's name for the nodes of a mutex.
pub(crate) const LOCK_NAME: &str = "lock-";

/// A mutex across processes: Curator's `InterProcessMutex`.
///
/// Where `tokio::sync::Mutex` excludes the tasks of one process, this one excludes everybody who uses the same path
/// on the same ensemble, Java's Curator included. Cheap to clone; all clones are one mutex.
///
/// # Reentrancy
///
/// Each acquire stands for itself, unless it runs inside [`LockOwner::scope`] or names an owner with
/// [`acquire_as`](Self::acquire_as): within one owner an inner acquire returns at once, without a request, and the
/// last guard that goes deletes the node. `guard.reenter()` gives a further guard without any owner. A plain acquire
/// beneath a guard of the same task waits like anybody else, which is for ever if nobody releases that guard; it logs
/// one warning (in tasks; `block_on` is none).
///
/// # Losing the lock
///
/// A lock in ZooKeeper lives in a session, and a session can end. [`MutexGuard::lost`] tells of it; how soon depends
/// on what happened:
///
/// | certainly before anybody else gets the lock | promptly (one event, one reconnect or one heartbeat) | not at all |
/// | --- | --- | --- |
/// | silent network, frozen server, server cut off from its leader, machine asleep (seen when it wakes) | session killed on the server, node deleted by somebody, session swapped by the server | process paused between a look and the write that follows; server data restored from a backup |
///
/// Against the second and third column gives [`MutexGuard::fencing_token`] to the resource, and let the resource
/// refuse a token smaller than one it has seen.
///
/// # Fairness
///
/// First come, first served, in the order in which the server created the nodes. A waiter whose session ends joins
/// again at the back.
///
/// # Examples
///
/// ```no_run
/// # async fn run(client: curator_framework::CuratorFramework) -> Result<(), curator_recipes::LockError> {
/// use curator_recipes::InterProcessMutex;
///
/// let mutex = InterProcessMutex::new(client, "/locks/printer")?;
/// let guard = mutex.acquire().await?;
/// // … the printer is ours …
/// guard.release().await?;
/// # Ok(())
/// # }
/// ```
///
/// # Differences from Curator
///
/// A guard is the holder, not a thread: it may move between tasks, and whoever has it may release it. Loss is told.
/// Children that are no contenders are ignored, where Curator lets them block. Parents are persistent, not
/// containers.
///
/// # ZooKeeper layout
///
/// `<path>/_c_<uuid>-lock-<number>`, ephemeral and sequential, as Curator's.
///
/// # Cost
///
/// Without contention three requests: create, list, delete. A hold longer than a tenth of the session timeout adds
/// one read. A waiter has two watches, and a hand-over takes at most one listing, which grows with the queue (55
/// bytes a contender). An inner acquire of an owner: none.
#[derive(Clone)]
pub struct InterProcessMutex {
    inner: Arc<Inner>,
}

/// What an owner holds; locked while it acquires.
type Turn = tokio::sync::Mutex<Weak<Hold>>;

struct Inner {
    internals: LockInternals,
    by_owner: Mutex<HashMap<LockOwner, Arc<Turn>>>,
    /// The task that got the lock last without an owner, to warn it of itself.
    last_task: Mutex<Option<(tokio::task::Id, Weak<Hold>)>>,
    warned: AtomicBool,
}

impl InterProcessMutex {
    /// A mutex at a path. Nothing is sent.
    ///
    /// # Errors
    ///
    /// `InvalidPath`; `InvalidArgument` for the root.
    pub fn new(client: CuratorFramework, path: impl Into<String>) -> Result<Self> {
        Self::with_driver(client, path, StandardLockInternalsDriver)
    }

    /// A mutex whose contenders are sorted and chosen by a driver of your own.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new).
    pub fn with_driver(
        client: CuratorFramework,
        path: impl Into<String>,
        driver: impl LockInternalsDriver,
    ) -> Result<Self> {
        let internals = LockInternals::new(client, path.into(), LOCK_NAME, Arc::new(driver), 1, None)?;
        Ok(Self {
            inner: Arc::new(Inner {
                internals,
                by_owner: Mutex::new(HashMap::new()),
                last_task: Mutex::new(None),
                warned: AtomicBool::new(false),
            }),
        })
    }

    /// The path of the lock.
    #[must_use]
    pub fn path(&self) -> &str {
        self.inner.internals.base_path()
    }

    /// Waits for the lock as long as it takes.
    ///
    /// # Errors
    ///
    /// * `ConnectionLoss` if there was no connection for the connection timeout and the retry policy gave up.
    /// * `SessionExpired` if the session ended while waiting and the retry policy does not allow another try.
    /// * `LockLost` if the owner already holds the lock and has lost it.
    /// * `NotStarted`, `Closed`, `NoAuth`.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, the place in the queue is given up, and a node that was created is deleted in the
    /// background.
    pub async fn acquire(&self) -> Result<MutexGuard> {
        self.acquire_for(LockOwner::current(), Patience::Forever).await?.ok_or_else(|| self.unreachable())
    }

    /// Waits for the lock for at most `budget`, which covers everything: the connection, missing parents, the queue.
    /// `Ok(None)` if it was not granted in that time. With a budget of zero it asks once, as
    /// [`try_acquire`](Self::try_acquire).
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire).
    ///
    /// # Cancel safety
    ///
    /// As [`acquire`](Self::acquire).
    pub async fn acquire_timeout(&self, budget: Duration) -> Result<Option<MutexGuard>> {
        self.acquire_for(LockOwner::current(), Patience::at_most(budget)).await
    }

    /// Asks once: `Ok(None)` if somebody else has the lock. Bounded by the connection timeout.
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire); `ConnectionLoss` also if there was no answer in the connection timeout.
    ///
    /// # Cancel safety
    ///
    /// As [`acquire`](Self::acquire).
    pub async fn try_acquire(&self) -> Result<Option<MutexGuard>> {
        self.acquire_for(LockOwner::current(), Patience::Once).await
    }

    /// As [`acquire`](Self::acquire), for an owner by name.
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire).
    ///
    /// # Cancel safety
    ///
    /// As [`acquire`](Self::acquire).
    pub async fn acquire_as(&self, owner: &LockOwner) -> Result<MutexGuard> {
        self.acquire_for(Some(owner.clone()), Patience::Forever).await?.ok_or_else(|| self.unreachable())
    }

    /// As [`acquire_timeout`](Self::acquire_timeout), for an owner by name.
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire).
    ///
    /// # Cancel safety
    ///
    /// As [`acquire`](Self::acquire).
    pub async fn acquire_timeout_as(&self, owner: &LockOwner, budget: Duration) -> Result<Option<MutexGuard>> {
        self.acquire_for(Some(owner.clone()), Patience::at_most(budget)).await
    }

    /// Patience without end has no end but a grant or an error.
    fn unreachable(&self) -> LockError {
        LockError::Framework(curator_framework::Error::Closed)
    }

    async fn acquire_for(&self, owner: Option<LockOwner>, patience: Patience) -> Result<Option<MutexGuard>> {
        let Some(owner) = owner else {
            self.warn_of_itself();
            let Some(hold) = self.acquire_hold(patience).await? else { return Ok(None) };
            *self.inner.last_task.lock() = tokio::task::try_id().map(|task| (task, Arc::downgrade(&hold)));
            return Ok(Some(MutexGuard { place: Place::first(hold) }));
        };
        // Two acquires of one owner at once: the second waits for the first, and enters beside it.
        let turn = self.turn_of(owner);
        let began = tokio::time::Instant::now();
        let bound = match patience {
            Patience::Forever => None,
            Patience::AtMost(budget) => Some(budget),
            Patience::Once => Some(self.inner.internals.client().connection_timeout()),
        };
        let mut held = match bound {
            None => turn.lock().await,
            Some(bound) => match tokio::time::timeout(bound, turn.lock()).await {
                Ok(held) => held,
                Err(_elapsed) => return Ok(None),
            },
        };
        if let Some(place) = held.upgrade().as_ref().and_then(Place::join) {
            return match place.hold().loss() {
                Some(reason) => Err(LockError::LockLost { path: self.path().to_owned(), reason }),
                None => Ok(Some(MutexGuard { place })),
            };
        }
        let patience = match patience {
            Patience::AtMost(budget) => Patience::AtMost(budget.saturating_sub(began.elapsed())),
            other => other,
        };
        let Some(hold) = self.acquire_hold(patience).await? else { return Ok(None) };
        *held = Arc::downgrade(&hold);
        Ok(Some(MutexGuard { place: Place::first(hold) }))
    }

    async fn acquire_hold(&self, patience: Patience) -> Result<Option<Arc<Hold>>> {
        let internals = &self.inner.internals;
        let acquired = acquire(internals.client(), patience, internals).await?;
        Ok(acquired.map(|acquired| Hold::new(internals.client().clone(), self.path(), acquired)))
    }

    /// Where an owner's acquires of this mutex take turns.
    fn turn_of(&self, owner: LockOwner) -> Arc<Turn> {
        let mut by_owner = self.inner.by_owner.lock();
        // Owners that neither hold nor acquire are forgotten.
        by_owner.retain(|_, turn| {
            Arc::strong_count(turn) > 1 || turn.try_lock().map_or(true, |held| held.strong_count() > 0)
        });
        Arc::clone(by_owner.entry(owner).or_default())
    }

    fn warn_of_itself(&self) {
        let own = tokio::task::try_id();
        let holds = match &*self.inner.last_task.lock() {
            Some((task, hold)) => own == Some(*task) && hold.upgrade().is_some_and(|hold| hold.is_shared()),
            None => false,
        };
        if holds && !self.inner.warned.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                path = self.path(),
                "the task that holds this lock acquires it again and waits for itself; use LockOwner for nested acquires"
            );
        }
    }

    /// The paths of all contenders, holder first: Curator's `getParticipantNodes`.
    ///
    /// # Errors
    ///
    /// `ConnectionLoss`, `SessionExpired`, `NoAuth`, `NotStarted`, `Closed`.
    pub async fn participant_nodes(&self) -> Result<Vec<String>> {
        let names = self.inner.internals.participants().await?;
        Ok(names.iter().map(|name| make_path(self.path(), name)).collect())
    }
}

impl fmt::Debug for InterProcessMutex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InterProcessMutex").field("path", &self.path()).finish_non_exhaustive()
    }
}

/// The lock, as long as it is kept. Dropping it releases in the background; [`release`](Self::release) also tells how
/// that went.
#[must_use = "if unused the lock is released at once"]
pub struct MutexGuard {
    place: Place,
}

impl MutexGuard {
    /// Releases the lock and says whether it was held until now. May be called again, after an error or a success;
    /// the answer stays the same.
    ///
    /// # Errors
    ///
    /// `ConnectionLoss` if the node could not be deleted and the retry policy gave up. The lock is still to be
    /// released: call it again, or drop the guard.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, the lock is not held any more; the node is deleted when the guard is dropped, or
    /// by the next call.
    pub async fn release(&self) -> Result<Release> {
        self.place.release().await
    }

    /// Another guard on the same lock, without a request. The last one that goes releases it.
    ///
    /// # Errors
    ///
    /// `LockLost` if the lock is lost; `InvalidArgument` if this guard was released.
    pub fn reenter(&self) -> Result<Self> {
        let lost = |reason| LockError::LockLost { path: self.place.hold().lock_path().to_owned(), reason };
        if let Some(reason) = self.place.hold().loss() {
            return Err(lost(reason));
        }
        match self.place.beside() {
            Some(place) => Ok(Self { place }),
            None => Err(LockError::invalid("guard", "it was released")),
        }
    }

    /// Resolves when the lock is lost, with the reason. It never resolves for a lock that is released in time.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when it is dropped.
    pub fn lost(&self) -> impl Future<Output = LossReason> + Send + '_ {
        self.place.lost()
    }

    /// Whether the lock is certainly held now. Local and cheap: it compares the clock with the session's deadline, so
    /// it is right also at the first look after the process slept.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.place.is_held()
    }

    /// How long the lock is certainly held from now on if nothing more is heard from the server; zero if it is not.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.place.remaining()
    }

    /// A number that grows with every grant of this lock (the node's `czxid`). Give it to the resource with every
    /// write; a resource that refuses a smaller number than one it has seen is safe from a holder that does not know
    /// of its loss. It survives the lock's path and changes of leader, not a restored backup.
    #[must_use]
    pub fn fencing_token(&self) -> i64 {
        self.place.fencing_token()
    }

    /// The path of the node that holds the lock: Curator's `getLockPath`.
    #[must_use]
    pub fn path(&self) -> &str {
        self.place.path()
    }

    /// The name of the node that holds the lock.
    #[must_use]
    pub fn node_name(&self) -> &str {
        name_of(self.place.path())
    }
}

impl fmt::Debug for MutexGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("MutexGuard").field(&self.place).finish()
    }
}
