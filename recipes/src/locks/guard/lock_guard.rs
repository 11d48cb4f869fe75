//! The guard of a lock: what its owner calls. For the release of its node see `hold.rs`.

use std::fmt;
use std::future::Future;
use std::slice;
use std::time::Duration;

use curator_framework::recipe::{LossSignal, RecipeClient as _};
use curator_framework::{LossReason, PathText, SessionEnd, node_from_path};
use futures_util::future::{join_all, select_all};

use crate::engine::error::LockError;
use crate::engine::guarded_transaction::GuardedTransaction;
use crate::engine::hold::{HoldShare, Release};
use crate::engine::while_held::while_held;
use crate::held::{FencingToken, impl_held};
use crate::locks::guard::kinds::{Any, Exclusive, GuardKind, Reentrant, Several};

/// The guard of a lock. Dropping it sends the delete of the lock's node at once, from the thread that drops it.
/// [`release`](Self::release) waits for the reply and returns the outcome.
///
/// Each kind of lock has a guard of its own, such as [`MutexGuard`](crate::MutexGuard). `From` turns each of them into a
/// `LockGuard` without a kind, which has the methods of all.
///
/// A task of the client repeats a delete that fails. The runtime may end first, as at the end of `main`. Its drop then closes
/// the session of the default client, and the server releases all locks of the client at once.
/// [`CuratorFramework::run`](curator_framework::CuratorFramework::run) closes the client on every path. After
/// `process::exit` or an abort the lock stays until the session times out:
/// [`CuratorFramework`](curator_framework::CuratorFramework#the-end-of-a-program) lists the cases.
///
/// A guard may be sent to other tasks and shared in an `Arc`. Any task that has it may release the lock.
///
/// A guard keeps its client open.
#[must_use = "if unused the lock is released at once"]
#[doc(alias = "Locker")]
pub struct LockGuard<K = Any> {
    parts: Parts,
    pub(crate) kind: K,
}

enum Parts {
    One(HoldShare),
    /// The guards of a multi lock or of several leases, in the order of their acquires: at least one, and each has one
    /// lock.
    All(Vec<LockGuard>),
}

impl<K: Default> LockGuard<K> {
    pub(crate) fn new(share: HoldShare) -> Self {
        Self::one(share, K::default())
    }

    /// Returns one guard for several. A multi lock inside a multi lock is replaced by its parts.
    pub(crate) fn all(guards: impl IntoIterator<Item = LockGuard>) -> Self {
        Self::of_several(guards.into_iter().flat_map(LockGuard::into_several).collect())
    }

    pub(crate) fn of_several(guards: Vec<LockGuard>) -> Self {
        Self { parts: Parts::All(guards), kind: K::default() }
    }
}

impl LockGuard {
    /// Returns the guards of a multi lock's locks or of a set's leases, in their order; for one lock only this guard.
    pub fn parts(&self) -> impl DoubleEndedIterator<Item = &Self> {
        match &self.parts {
            Parts::One(_) => slice::from_ref(self).iter(),
            Parts::All(guards) => guards.iter(),
        }
    }

    /// Returns the signal of each part's loss, with the path of its lock.
    pub(crate) fn losses(&self) -> impl Iterator<Item = (LossSignal, PathText)> {
        self.shares().map(|share| (share.hold().signal().clone(), share.hold().lock_path().clone()))
    }
}

impl<K> LockGuard<K> {
    pub(crate) const fn one(share: HoldShare, kind: K) -> Self {
        Self { parts: Parts::One(share), kind }
    }

    /// Returns the guards of several locks; none for the guard of one lock.
    pub(crate) fn several(&self) -> &[LockGuard] {
        match &self.parts {
            Parts::One(_) => &[],
            Parts::All(guards) => guards,
        }
    }

    /// Returns the guards of several locks; for one lock only this guard.
    pub(crate) fn into_several(self) -> Vec<LockGuard> {
        match self.parts {
            Parts::One(share) => vec![LockGuard::new(share)],
            Parts::All(guards) => guards,
        }
    }

    /// Takes the guards from a position on out of the guard of several locks.
    pub(crate) fn split_off(&mut self, at: usize) -> Vec<LockGuard> {
        match &mut self.parts {
            Parts::One(_) => Vec::new(),
            Parts::All(guards) => guards.split_off(at),
        }
    }

    /// Returns the same guard as one of another kind.
    pub(crate) fn into_kind<J: Default>(self) -> LockGuard<J> {
        LockGuard { parts: self.parts, kind: J::default() }
    }

    /// Returns the share in the hold of each lock.
    pub(crate) fn shares(&self) -> impl DoubleEndedIterator<Item = &HoldShare> {
        let one = match &self.parts {
            Parts::One(share) => Some(share),
            Parts::All(_) => None,
        };
        one.into_iter().chain(self.several().iter().map(LockGuard::first_share))
    }

    /// Returns the path of the lock.
    pub(crate) fn lock_path(&self) -> &PathText {
        self.first_share().hold().lock_path()
    }

    /// Returns the reason of the loss, if any part is lost.
    pub(crate) fn loss(&self) -> Option<LossReason> {
        self.shares().find_map(|share| share.hold().loss())
    }

    /// Returns the share in the hold of the only lock, or of the first of several.
    pub(crate) fn first_share(&self) -> &HoldShare {
        match &self.parts {
            Parts::One(share) => share,
            Parts::All(guards) => guards[0].first_share(),
        }
    }

    /// Releases the lock and returns whether it was held until now. After a success, further calls return the same
    /// outcome. The deletes of several locks or leases leave together, in the reverse order, even if one of them fails.
    /// They were lost if any of them was.
    ///
    /// # Errors
    ///
    /// `Error::ConnectionLoss`: no server has confirmed the deletion of the node within the client's
    /// [`max_close_wait`](curator_framework::CuratorFrameworkBuilder::max_close_wait), 5 s by default, or before the retry
    /// policy gave up. The guard no longer holds the lock. The session deletes the node in the background, or ends with
    /// it. Call `release` again to wait for that.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, the guard no longer holds the lock. The next call, or the drop of the guard, deletes
    /// the node.
    #[doc(alias = "returnLease")]
    #[doc(alias = "returnAll")]
    pub async fn release(&self) -> Result<Release, LockError> {
        if let Parts::One(share) = &self.parts {
            return share.release().await;
        }
        let budget = self.first_share().hold().client().close_budget();
        let releases = self.shares().rev().map(|share| share.release_with(None, budget));
        let mut total = Release::Released;
        for outcome in join_all(releases).await {
            total = match (total, outcome?) {
                (Release::Released, outcome) => outcome,
                (lost, _) => lost,
            };
        }
        Ok(total)
    }

    /// Releases several guards, such as the guards of many locks at the end of a batch, and returns the outcome of each
    /// in their order. All deletes leave together: it takes as long as one [`release`](Self::release).
    ///
    /// # Errors
    ///
    /// `Error::ConnectionLoss`, for each guard: no server has confirmed the deletion of its node within the client's
    /// [`max_close_wait`](curator_framework::CuratorFrameworkBuilder::max_close_wait), 5 s by default, or before the
    /// retry policy gave up. The guard no longer holds the lock. The session deletes the node in the background, or
    /// ends with it. Call `release` again to wait for that.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, the guards no longer hold their locks. The next release, or the drop of each guard,
    /// deletes its node.
    pub async fn release_all<'a>(guards: impl IntoIterator<Item = &'a Self>) -> Vec<Result<Release, LockError>>
    where
        K: 'a,
    {
        join_all(guards.into_iter().map(Self::release)).await
    }

    /// Resolves with the reason when the lock, or any of several parts, is lost. Never resolves for a lock that was
    /// released before.
    ///
    /// A loss by the clock depends on no other task. It is reported in time while a log blocks, a task computes, or no
    /// thread drives the runtime of the client. Only the runtime that awaits this future must be driven. Logs and metrics
    /// of the loss follow on another thread.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when it is dropped.
    pub async fn lost(&self) -> LossReason {
        match &self.parts {
            Parts::One(share) => share.lost().await,
            // Not as a set that polls the woken ones: its drop would block while the caller's waker does.
            Parts::All(_) => select_all(self.shares().map(|share| Box::pin(share.lost()))).await.0,
        }
    }

    /// Returns whether the lock, or each of several parts, is certainly held now. Compares the clock
    /// with the session's deadline, without a request, so the first call after the machine has slept is right too.
    #[must_use]
    #[doc(alias = "isOwnedByCurrentThread")]
    pub fn is_held(&self) -> bool {
        self.shares().all(HoldShare::is_held)
    }

    /// Returns how long the lock is certainly held if the server sends nothing more; zero if it is not held.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.shares().map(HoldShare::remaining).min().unwrap_or_default()
    }

    /// Asks the server whether the lock is held: a round trip to the leader and a read of the node. Call it before a
    /// step that cannot be undone, because `is_held` does not see a killed session at once. Fencing is safer still.
    ///
    /// # Errors
    ///
    /// `LockError::LockLost` if the lock is lost; `LockError::InvalidArgument` if the guard was released;
    /// `Error::ConnectionLoss` or another error of the framework if no server replied until the retry policy gave up.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when it is dropped.
    pub async fn verify(&self) -> Result<(), LockError> {
        for share in self.shares() {
            share.verify().await?;
        }
        Ok(())
    }

    /// Runs `work` while the lock is held. A loss of the lock drops the unfinished `work`.
    ///
    /// # Work that continues after a loss
    ///
    /// A dropped future stops only itself:
    ///
    /// * A spawned task continues, unless it is in a `JoinSet` of `work` or is cancelled.
    /// * Work of `spawn_blocking` and of threads continues, unless it checks [`is_held`](Self::is_held) or a token.
    /// * The resource may carry out a request that was sent: add the [fencing token](Self::token) to it.
    ///
    /// # Errors
    ///
    /// `LockError::LockLost` if the lock was lost before `work` was done; `LockError::InvalidArgument` if the guard was
    /// released before.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops `work`.
    ///
    /// # Examples
    ///
    /// ```
    /// # async fn print() {}
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = curator_test::TestingServer::start()?;
    /// # let retry = curator_framework::RetryOneTime::new(std::time::Duration::from_millis(50));
    /// # let client = curator_framework::CuratorFramework::new_client(server.connect_string(), retry)?;
    /// # client.start()?;
    /// # let mutex = curator_recipes::InterProcessMutex::new(client, "/locks/printer")?;
    /// let guard = mutex.acquire().await?;
    /// guard.protect(print()).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// A token stops tasks and threads as soon as `work` is dropped:
    ///
    /// ```
    /// # async fn print(_page: usize) {}
    /// # fn render(_page: usize) {}
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = curator_test::TestingServer::start()?;
    /// # let retry = curator_framework::RetryOneTime::new(std::time::Duration::from_millis(50));
    /// # let client = curator_framework::CuratorFramework::new_client(server.connect_string(), retry)?;
    /// # client.start()?;
    /// # let mutex = curator_recipes::InterProcessMutex::new(client, "/locks/printer")?;
    /// use tokio_util::sync::CancellationToken;
    ///
    /// let guard = mutex.acquire().await?;
    /// guard
    ///     .protect(async {
    ///         let stop = CancellationToken::new();
    ///         let _cancel_when_dropped = stop.clone().drop_guard();
    ///         let printing = tokio::spawn(stop.clone().run_until_cancelled_owned(print(1)));
    ///         let rendering = tokio::task::spawn_blocking(move || {
    ///             for page in 2..10 {
    ///                 if stop.is_cancelled() {
    ///                     return; // the lock is lost
    ///                 }
    ///                 render(page);
    ///             }
    ///         });
    ///         tokio::try_join!(printing, rendering)
    ///     })
    ///     .await??;
    /// guard.release().await?.held()?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn protect<F: Future>(&self, work: F) -> Result<F::Output, LockError> {
        let reason = match while_held(|| self.is_held(), self.lost(), work).await {
            Ok(output) => return Ok(output),
            Err(Some(reason)) => reason,
            Err(None) => {
                self.shares().try_for_each(HoldShare::check_held)?;
                // The deadline had passed, and a reply has moved it since. The work is dropped too.
                LossReason::Session(SessionEnd::DeadlinePassed)
            }
        };
        Err(LockError::LockLost { path: self.lock_path().clone(), reason })
    }

    /// Resolves when a client has requested the release of the lock with a [`Revoker`](crate::Revoker), even before
    /// this call. The first call sends one read.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when it is dropped.
    #[doc(alias = "makeRevocable")]
    pub async fn revocation_requested(&self) {
        match &self.parts {
            Parts::One(share) => share.revocation_requested().await,
            Parts::All(_) => {
                select_all(self.shares().map(|share| Box::pin(share.revocation_requested()))).await;
            }
        }
    }

    /// Returns the fencing token: the node's `czxid` and the number of the [pass](crate::batches). It grows with each
    /// exclusive grant of this lock. Deleting the path or a new leader does not reset it; restoring a backup does.
    ///
    /// Leases and read locks have several holders at once: there the token only identifies the holder and orders the
    /// creates. A downgraded read lock has the token of the write lock. A multi lock or a set of leases has the token
    /// of its first part; each part has its own.
    #[must_use]
    pub fn token(&self) -> FencingToken {
        self.first_share().fencing_token()
    }

    /// Returns the path of the lock, as its object got it; of several parts the first's.
    #[must_use]
    pub fn path(&self) -> &str {
        self.lock_path()
    }

    /// Returns the path of the node that holds the lock, of several parts the first: Curator's
    /// `getLockPath`.
    #[doc(alias = "getLockPath")]
    #[must_use]
    pub fn node_path(&self) -> &str {
        self.first_share().path()
    }

    /// Returns the name of the node that holds the lock, of several parts the first.
    #[must_use]
    pub fn node_name(&self) -> &str {
        node_from_path(self.node_path())
    }

    /// Returns another share in the same hold, without a request. The last share deletes the node.
    pub(crate) fn another_share(&self) -> Result<HoldShare, LockError> {
        let hold = self.first_share().hold();
        if let Some(reason) = hold.loss() {
            return Err(LockError::LockLost { path: hold.lock_path().clone(), reason });
        }
        self.first_share().another().ok_or_else(|| LockError::invalid("guard", "it was released"))
    }
}

impl<K: Exclusive> LockGuard<K> {
    /// Starts a transaction that the server carries out only if the lock, or each lock of a multi lock, is held at that
    /// moment. The locks of a multi lock must have one client and one namespace. With the client `zookeeper-async`, the
    /// commit fails with `Unsupported`.
    pub fn transaction(&self) -> GuardedTransaction<'_> {
        GuardedTransaction::new(self.first_share(), self.shares().skip(1).collect())
    }
}

impl<K: Several> LockGuard<K> {
    /// Returns the number of locks or leases.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "there is at least one")]
    pub fn len(&self) -> usize {
        self.several().len()
    }

    /// Returns the guards of the locks or leases, in the order of their acquires.
    pub fn iter(&self) -> slice::Iter<'_, LockGuard> {
        self.several().iter()
    }
}

impl<'a, K: Several> IntoIterator for &'a LockGuard<K> {
    type Item = &'a LockGuard;
    type IntoIter = slice::Iter<'a, LockGuard>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl<K: Reentrant> LockGuard<K> {
    /// Returns another guard on the same lock, without a request. The last of these guards releases the lock.
    ///
    /// # Errors
    ///
    /// `LockError::LockLost` if the lock is lost; `LockError::InvalidArgument` if this guard was released.
    pub fn reenter(&self) -> Result<Self, LockError> {
        Ok(Self::one(self.another_share()?, self.kind.clone()))
    }
}

impl<K: GuardKind> From<LockGuard<K>> for LockGuard {
    fn from(guard: LockGuard<K>) -> Self {
        guard.into_kind()
    }
}

impl_held!(LockGuard<K>, LockError, [K: Sync]);

impl<K> fmt::Debug for LockGuard<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.parts {
            Parts::One(share) => share.fmt(f),
            Parts::All(guards) => f.debug_list().entries(guards).finish(),
        }
    }
}
