//! What a holder has.

use std::fmt;
use std::future::Future;
use std::time::Duration;

use curator_framework::{LossReason, node_from_path};
use futures_util::future::select_all;

use crate::error::{LockError, Result};
use crate::locks::hold::{Place, Release};

/// A lock, as long as it is kept: what the guards of all locks have in common. Dropping it releases in the background;
/// [`release`](Self::release) also tells how that went.
///
/// It may be sent to other tasks and shared in an `Arc`; whoever has it may release it.
#[must_use = "if unused the lock is released at once"]
pub struct LockGuard {
    parts: Parts,
}

enum Parts {
    One(Place),
    /// Of a multi lock, in the order in which they were acquired; never empty, each of them one.
    All(Vec<LockGuard>),
}

impl LockGuard {
    pub(crate) const fn one(place: Place) -> Self {
        Self { parts: Parts::One(place) }
    }

    /// Those of a multi lock within a multi lock are taken out of it.
    pub(crate) fn all(guards: Vec<Self>) -> Self {
        let single = |guard: Self| match guard.parts {
            Parts::One(_) => vec![guard],
            Parts::All(guards) => guards,
        };
        Self { parts: Parts::All(guards.into_iter().flat_map(single).collect()) }
    }

    /// The guards of a multi lock's locks, in its order; of any other lock itself.
    pub fn parts(&self) -> impl DoubleEndedIterator<Item = &Self> {
        match &self.parts {
            Parts::One(_) => std::slice::from_ref(self).iter(),
            Parts::All(guards) => guards.iter(),
        }
    }

    /// The path of the lock.
    pub(crate) fn lock_path(&self) -> &str {
        self.place().hold().lock_path()
    }

    /// Why it is lost, if any part of it is.
    pub(crate) fn loss(&self) -> Option<LossReason> {
        self.parts().find_map(|part| part.place().hold().loss())
    }

    /// The place of a lock that is one, or of the first of several.
    pub(crate) fn place(&self) -> &Place {
        match &self.parts {
            Parts::One(place) => place,
            Parts::All(guards) => guards[0].place(),
        }
    }

    /// Releases the lock and says whether it was held until now. May be called again, after an error or a success;
    /// the answer stays the same. A multi lock is released in the reverse order, all of it also when some of it fails;
    /// it was lost if any part was.
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
        let guards = match &self.parts {
            Parts::One(place) => return place.release().await,
            Parts::All(guards) => guards,
        };
        let mut outcome = Ok(Release::Released);
        for guard in guards.iter().rev() {
            match (guard.place().release().await, &outcome) {
                (Err(error), Ok(_)) => outcome = Err(error),
                (Ok(lost @ Release::AlreadyLost(_)), Ok(Release::Released)) => outcome = Ok(lost),
                _ => {}
            }
        }
        outcome
    }

    /// Resolves when the lock is lost, with the reason; of a multi lock when any of it is. It never resolves for a lock
    /// that is released in time.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when it is dropped.
    pub async fn lost(&self) -> LossReason {
        match &self.parts {
            Parts::One(place) => place.lost().await,
            Parts::All(guards) => select_all(guards.iter().map(|guard| Box::pin(guard.place().lost()))).await.0,
        }
    }

    /// Whether the lock is certainly held now, a multi lock the whole of it. Local and cheap: it compares the clock with
    /// the session's deadline, so it is right also at the first look after the process slept.
    #[must_use]
    pub fn is_held(&self) -> bool {
        match &self.parts {
            Parts::One(place) => place.is_held(),
            Parts::All(guards) => guards.iter().all(Self::is_held),
        }
    }

    /// How long the lock is certainly held from now on if nothing more is heard from the server; zero if it is not.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        match &self.parts {
            Parts::One(place) => place.remaining(),
            Parts::All(guards) => guards.iter().map(Self::remaining).min().unwrap_or_default(),
        }
    }

    /// Asks the server whether the lock is held: a round trip to the leader and a read of the node. Where a paused
    /// process or a killed session matter, ask before what cannot be undone; a fence at the resource is still better.
    ///
    /// # Errors
    ///
    /// `LockLost` if it is not held; `ConnectionLoss` and other errors of the framework if that is not known.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when it is dropped.
    pub async fn verify(&self) -> Result<()> {
        match &self.parts {
            Parts::One(place) => place.verify().await,
            Parts::All(guards) => {
                for guard in guards {
                    guard.place().verify().await?;
                }
                Ok(())
            }
        }
    }

    /// Runs work while the lock is held: when it is lost the work is dropped where it stands.
    ///
    /// # Errors
    ///
    /// `LockLost` if the lock was lost before the work was done.
    ///
    /// # Cancel safety
    ///
    /// As the work.
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
    pub async fn protect<F: Future>(&self, work: F) -> Result<F::Output> {
        let mut work = std::pin::pin!(work);
        let looked_after = std::future::poll_fn(|cx| {
            // A look before each step: a timer may be late, a look is not.
            if self.is_held() { work.as_mut().poll(cx).map(Some) } else { std::task::Poll::Ready(None) }
        });
        let reason = tokio::select! {
            biased;
            reason = self.lost() => reason,
            done = looked_after => match done {
                Some(output) => return Ok(output),
                None => match self.loss() {
                    Some(reason) => reason,
                    None => return Err(LockError::invalid("guard", "it was released")),
                },
            },
        };
        Err(LockError::LockLost { path: self.lock_path().to_owned(), reason })
    }

    /// Resolves when somebody asks for the lock to be given back, with a [`Revoker`](crate::Revoker), also if that was
    /// before. The first call sends one read.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when it is dropped.
    pub async fn revocation_requested(&self) {
        match &self.parts {
            Parts::One(place) => place.revocation_requested().await,
            Parts::All(guards) => {
                select_all(guards.iter().map(|guard| Box::pin(guard.place().revocation_requested()))).await;
            }
        }
    }

    /// A number (the node's `czxid`) that grows with every exclusive grant of this lock. Give it to the resource with
    /// every write; a resource that refuses a smaller number than one it has seen is safe from a holder that does not
    /// know of its loss. It survives the lock's path and changes of leader, not a restored backup.
    ///
    /// Of a lease or a read lock it identifies the holder and orders the creation of the nodes, no more, since several
    /// hold at once; a read lock that was downgraded carries the number of the write lock. Of a multi lock it is the
    /// number of its first lock: each of the [`parts`](Self::parts) has its own.
    #[must_use]
    pub fn fencing_token(&self) -> i64 {
        self.place().fencing_token()
    }

    /// The path of the node that holds the lock: Curator's `getLockPath`; of a multi lock the first one.
    #[must_use]
    pub fn path(&self) -> &str {
        self.place().path()
    }

    /// The name of the node that holds the lock.
    #[must_use]
    pub fn node_name(&self) -> &str {
        node_from_path(self.path())
    }

    /// Another guard on the same hold, without a request. The last one that goes releases it.
    pub(crate) fn beside(&self) -> Result<Place> {
        let hold = self.place().hold();
        if let Some(reason) = hold.loss() {
            return Err(LockError::LockLost { path: hold.lock_path().to_owned(), reason });
        }
        self.place().beside().ok_or_else(|| LockError::invalid("guard", "it was released"))
    }
}

impl fmt::Debug for LockGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.parts {
            Parts::One(place) => place.fmt(f),
            Parts::All(guards) => f.debug_list().entries(guards).finish(),
        }
    }
}

/// A guard of its own name for one kind of lock.
macro_rules! guard_of_its_own {
    ($(#[$doc:meta])* $name:ident) => {
        $crate::locks::guard::guard_of_its_own!(of several $(#[$doc])* $name);

        impl $name {
            pub(crate) const fn new(place: $crate::locks::hold::Place) -> Self {
                Self { guard: $crate::locks::guard::LockGuard::one(place) }
            }
        }
    };
    (of several $(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        ///
        /// All that guards have in common is in [`LockGuard`](crate::LockGuard), to which it dereferences.
        #[must_use = "if unused the lock is released at once"]
        #[derive(Debug)]
        pub struct $name {
            guard: $crate::locks::guard::LockGuard,
        }

        impl std::ops::Deref for $name {
            type Target = $crate::locks::guard::LockGuard;

            fn deref(&self) -> &$crate::locks::guard::LockGuard {
                &self.guard
            }
        }

        impl From<$name> for $crate::locks::guard::LockGuard {
            fn from(guard: $name) -> Self {
                guard.guard
            }
        }
    };
}

/// `reenter` for the guards of reentrant locks.
macro_rules! reenter {
    ($name:ident) => {
        impl $name {
            /// Another guard on the same lock, without a request. The last one that goes releases it.
            ///
            /// # Errors
            ///
            /// `LockLost` if the lock is lost; `InvalidArgument` if this guard was released.
            pub fn reenter(&self) -> $crate::error::Result<Self> {
                self.guard.beside().map(Self::new)
            }
        }
    };
}

/// `transaction` for the guards of exclusive locks.
macro_rules! transaction {
    ($name:ident) => {
        impl $name {
            /// Begins changes in ZooKeeper that are made only if the lock is held when the server makes them. With the
            /// client `zookeeper-async` the commit fails with `Unsupported`.
            pub fn transaction(&self) -> $crate::locks::guarded::GuardedTransaction<'_> {
                $crate::locks::guarded::GuardedTransaction::new(self.guard.place(), Vec::new())
            }
        }
    };
}

pub(crate) use {guard_of_its_own, reenter, transaction};
