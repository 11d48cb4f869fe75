//! The guard of a lock: what its owner calls. For the release of its node see `hold.rs`.

use std::fmt;
use std::future::Future;
use std::time::Duration;

use curator_framework::{LossReason, PathText, node_from_path};
use futures_util::future::select_all;

use crate::locks::error::{LockError, Result};
use crate::locks::guard::hold::{HoldShare, Release};
use crate::locks::guard::protect::while_held;

/// The guard of any lock: all other guards dereference to it. Dropping it sends the delete of the lock's node at once,
/// from the thread that drops it. [`release`](Self::release) waits for the reply and returns the outcome.
///
/// A task of the client repeats a delete that fails. The runtime may end first, as at the end of `main`. Its drop then closes
/// the session of the default client, and the server releases all locks of the client at once.
/// [`CuratorFramework::run`](curator_framework::CuratorFramework::run) closes the client on every path. After
/// `process::exit` or an abort the lock stays until the session times out:
/// [`CuratorFramework`](curator_framework::CuratorFramework#the-end-of-a-program) lists the cases.
///
/// A guard may be sent to other tasks and shared in an `Arc`. Any task that has it may release the lock.
#[must_use = "if unused the lock is released at once"]
pub struct LockGuard {
    parts: Parts,
}

enum Parts {
    One(HoldShare),
    /// The guards of a multi lock or of several leases, in the order of their acquires: at least one, and each has one
    /// lock.
    All(Vec<LockGuard>),
}

impl LockGuard {
    pub(crate) const fn one(share: HoldShare) -> Self {
        Self { parts: Parts::One(share) }
    }

    /// Returns one guard for several. A multi lock inside a multi lock is replaced by its parts.
    pub(crate) fn all(guards: Vec<Self>) -> Self {
        Self { parts: Parts::All(guards.into_iter().flat_map(Self::into_several).collect()) }
    }

    /// Returns the guards of a multi lock's locks or of a set's leases, in their order; for one lock this guard alone.
    pub fn parts(&self) -> impl DoubleEndedIterator<Item = &Self> {
        match &self.parts {
            Parts::One(_) => std::slice::from_ref(self).iter(),
            Parts::All(guards) => guards.iter(),
        }
    }

    /// Returns the guards of several locks; none for the guard of one lock.
    pub(crate) fn several(&self) -> &[Self] {
        match &self.parts {
            Parts::One(_) => &[],
            Parts::All(guards) => guards,
        }
    }

    /// Takes the guard of several locks apart; returns that of one lock alone.
    pub(crate) fn into_several(self) -> Vec<Self> {
        match self.parts {
            Parts::One(_) => vec![self],
            Parts::All(guards) => guards,
        }
    }

    /// Returns the path of the lock.
    pub(crate) fn lock_path(&self) -> &PathText {
        self.first_share().hold().lock_path()
    }

    /// Returns the reason of the loss, if any part is lost.
    pub(crate) fn loss(&self) -> Option<LossReason> {
        self.parts().find_map(|part| part.first_share().hold().loss())
    }

    /// Returns the share in the hold of the only lock, or of the first of several.
    pub(crate) fn first_share(&self) -> &HoldShare {
        match &self.parts {
            Parts::One(share) => share,
            Parts::All(guards) => guards[0].first_share(),
        }
    }

    /// Releases the lock and returns whether it was held until now. After a success, further calls return the same
    /// outcome. Several [parts](Self::parts), of a multi lock or of a set of leases, are released in the reverse order,
    /// also if one of them fails. They were lost if any part was.
    ///
    /// # Errors
    ///
    /// `Error::ConnectionLoss`: no server has confirmed the deletion of the node within the client's
    /// [`max_close_wait`](curator_framework::CuratorFrameworkBuilder::max_close_wait), 5 s by default, or before the retry
    /// policy gave up. The guard does not hold the lock any more. The session deletes the node in the background, or ends
    /// with it. Call `release` again to wait for that.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, the guard does not hold the lock any more. The next call, or the drop of the guard,
    /// deletes the node.
    pub async fn release(&self) -> Result<Release> {
        let guards = match &self.parts {
            Parts::One(share) => return share.release().await,
            Parts::All(guards) => guards,
        };
        let budget = self.first_share().hold().client().close_budget();
        let mut outcomes = Vec::with_capacity(guards.len());
        for guard in guards.iter().rev() {
            outcomes.push(guard.first_share().release_with(None, budget).await);
        }
        total(outcomes)
    }

    /// Resolves with the reason when the lock, or any of several [parts](Self::parts), is lost. Never resolves for a
    /// lock that was released before.
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
            Parts::All(guards) => select_all(guards.iter().map(|guard| Box::pin(guard.first_share().lost()))).await.0,
        }
    }

    /// Returns whether the lock, or each of several [parts](Self::parts), is certainly held now. Compares the clock
    /// with the session's deadline, without a request, so the first call after the machine has slept is right too.
    #[must_use]
    pub fn is_held(&self) -> bool {
        match &self.parts {
            Parts::One(share) => share.is_held(),
            Parts::All(guards) => guards.iter().all(Self::is_held),
        }
    }

    /// Returns how long the lock is certainly held if the server sends nothing more; zero if it is not held.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        match &self.parts {
            Parts::One(share) => share.remaining(),
            Parts::All(guards) => guards.iter().map(Self::remaining).min().unwrap_or_default(),
        }
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
    pub async fn verify(&self) -> Result<()> {
        match &self.parts {
            Parts::One(share) => share.verify().await,
            Parts::All(guards) => {
                for guard in guards {
                    guard.first_share().verify().await?;
                }
                Ok(())
            }
        }
    }

    /// Runs `work` while the lock is held. A loss of the lock drops the unfinished `work`.
    ///
    /// # Work that goes on after a loss
    ///
    /// A dropped future stops only itself:
    ///
    /// * A spawned task goes on, unless it is in a `JoinSet` of `work` or is cancelled.
    /// * Work of `spawn_blocking` and of threads goes on, unless it checks [`is_held`](Self::is_held) or a token.
    /// * The resource may carry out a request that was sent: add the [fencing token](Self::fencing_token) to it.
    ///
    /// # Errors
    ///
    /// `LockError::LockLost` if the lock was lost before `work` was done; `LockError::InvalidArgument` if the guard was
    /// released before.
    ///
    /// # Cancel safety
    ///
    /// That of `work`.
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
    pub async fn protect<F: Future>(&self, work: F) -> Result<F::Output> {
        let reason = match while_held(|| self.is_held(), self.lost(), work).await {
            Ok(output) => return Ok(output),
            Err(reason) => reason.or_else(|| self.loss()),
        };
        let Some(reason) = reason else { return Err(LockError::invalid("guard", "it was released")) };
        Err(LockError::LockLost { path: self.lock_path().clone(), reason })
    }

    /// Resolves when a client has requested the release of the lock with a [`Revoker`](crate::Revoker), even before
    /// this call. The first call sends one read.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when it is dropped.
    pub async fn revocation_requested(&self) {
        match &self.parts {
            Parts::One(share) => share.revocation_requested().await,
            Parts::All(guards) => {
                select_all(guards.iter().map(|guard| Box::pin(guard.first_share().revocation_requested()))).await;
            }
        }
    }

    /// Returns a number that grows with every exclusive grant of this lock: the node's `czxid`. Send it to the resource
    /// with every write. A resource that refuses a smaller number than one it has seen is safe from a holder that does
    /// not know of its loss. Deleting the path or a new leader does not reset the number; restoring a backup does.
    ///
    /// Leases and read locks have several holders at once: there the number only identifies the holder and orders the
    /// creates. A downgraded read lock has the number of the write lock. A multi lock or a set of leases has that of
    /// its first part; each of the [`parts`](Self::parts) has its own.
    #[must_use]
    pub fn fencing_token(&self) -> i64 {
        self.first_share().fencing_token()
    }

    /// Returns the path of the node that holds the lock, of several [parts](Self::parts) the first: Curator's
    /// `getLockPath`.
    #[must_use]
    pub fn path(&self) -> &str {
        self.first_share().path()
    }

    /// Returns the name of the node that holds the lock, of several [parts](Self::parts) the first.
    #[must_use]
    pub fn node_name(&self) -> &str {
        node_from_path(self.path())
    }

    /// Returns another share in the same hold, without a request. The last share deletes the node.
    pub(crate) fn another_share(&self) -> Result<HoldShare> {
        let hold = self.first_share().hold();
        if let Some(reason) = hold.loss() {
            return Err(LockError::LockLost { path: hold.lock_path().clone(), reason });
        }
        self.first_share().another().ok_or_else(|| LockError::invalid("guard", "it was released"))
    }
}

impl fmt::Debug for LockGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.parts {
            Parts::One(share) => share.fmt(f),
            Parts::All(guards) => f.debug_list().entries(guards).finish(),
        }
    }
}

/// Returns the outcome of several releases: the first error, or else the first loss.
pub(crate) fn total(outcomes: Vec<Result<Release>>) -> Result<Release> {
    let mut total = Release::Released;
    for outcome in outcomes {
        total = match (total, outcome?) {
            (Release::Released, outcome) => outcome,
            (lost, _) => lost,
        };
    }
    Ok(total)
}

/// Defines the guard of one kind of lock.
macro_rules! define_guard {
    ($(#[$doc:meta])* $name:ident) => {
        $crate::locks::guard::lock_guard::define_guard!(of several $(#[$doc])* $name);

        impl $name {
            pub(crate) const fn new(share: $crate::locks::guard::hold::HoldShare) -> Self {
                Self { guard: $crate::locks::guard::lock_guard::LockGuard::one(share) }
            }
        }
    };
    (of several $(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        ///
        /// It dereferences to [`LockGuard`](crate::LockGuard), which has the methods of all guards.
        #[must_use = "if unused the lock is released at once"]
        #[derive(Debug)]
        pub struct $name {
            guard: $crate::locks::guard::lock_guard::LockGuard,
        }

        impl std::ops::Deref for $name {
            type Target = $crate::locks::guard::lock_guard::LockGuard;

            fn deref(&self) -> &$crate::locks::guard::lock_guard::LockGuard {
                &self.guard
            }
        }

        impl From<$name> for $crate::locks::guard::lock_guard::LockGuard {
            fn from(guard: $name) -> Self {
                guard.guard
            }
        }
    };
}

/// Defines `reenter` for the guard of a reentrant lock.
macro_rules! reenter {
    ($name:ident) => {
        impl $name {
            /// Returns another guard on the same lock, without a request. The last of these guards releases the lock.
            ///
            /// # Errors
            ///
            /// `LockError::LockLost` if the lock is lost; `LockError::InvalidArgument` if this guard was released.
            pub fn reenter(&self) -> $crate::locks::error::Result<Self> {
                self.guard.another_share().map(Self::new)
            }
        }
    };
}

/// Defines `transaction` for the guard of an exclusive lock.
macro_rules! transaction {
    ($name:ident) => {
        impl $name {
            /// Begins a transaction that the server carries out only if the lock is held at that moment. With the
            /// client `zookeeper-async`, the commit fails with `Unsupported`.
            pub fn transaction(&self) -> $crate::locks::guard::guarded_transaction::GuardedTransaction<'_> {
                $crate::locks::guard::guarded_transaction::GuardedTransaction::new(self.guard.first_share(), Vec::new())
            }
        }
    };
}

pub(crate) use {define_guard, reenter, transaction};
