//! The mutex.

use std::fmt;
use std::sync::Arc;

use curator_framework::CuratorFramework;

use crate::error::Result;
use crate::locks::engine::driver::{LockInternalsDriver, Predicate};
use crate::locks::engine::{LockInternals, Shape, WaitMode};
use crate::locks::guard::{guard_of_its_own, reenter, transaction};
use crate::locks::methods::{acquire_methods, owner_methods};
use crate::locks::options::LockOptions;
use crate::locks::owner::LockOwner;
use crate::locks::participants::{Participant, ParticipantKind, Standing};
use crate::locks::reentrant::Reentrant;

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
/// A lock in ZooKeeper lives in a session, and a session can end. [`LockGuard::lost`](crate::LockGuard::lost) tells of it; how soon depends
/// on what happened:
///
/// | certainly before anybody else gets the lock | promptly (one event, one reconnect or one heartbeat) | not at all |
/// | --- | --- | --- |
/// | silent network, frozen server, server cut off from its leader, machine asleep (seen when it wakes) | session killed on the server, node deleted by somebody, session swapped by the server | process paused between a look and the write that follows; server data restored from a backup |
///
/// Against the second and third column give the [`LockGuard::fencing_token`](crate::LockGuard::fencing_token) to the resource, and let the resource
/// refuse a token smaller than one it has seen: see [fencing](crate::choosing#fencing). There is a
/// [picture](crate::how_it_works#loss) of a loss.
///
/// # Fairness
///
/// First come, first served, in the order in which the server created the nodes. A waiter whose session ends joins
/// again at the back.
///
/// # Examples
///
/// ```
/// # #[tokio::main]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = curator_test::TestingServer::start()?;
/// # let retry = curator_framework::RetryOneTime::new(std::time::Duration::from_millis(50));
/// # let client = curator_framework::CuratorFramework::new_client(server.connect_string(), retry)?;
/// # client.start()?;
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
/// Children that are no contenders are ignored, where Curator lets them block. A lock that was made revocable stays
/// so, where Curator's must be made so again before each acquire.
///
/// # Beside other clients
///
/// Java's `InterProcessMutex` and this one take turns on the same path, in one queue, and can revoke each other's locks.
/// With kazoo's `Lock` see [`LockOptions::extra_lock_patterns`].
///
/// What Java cannot follow is the end of the sequence numbers: from 2^31 − 1 nodes under one path on, the server gives the
/// same number to several nodes. Here they are ordered by their creation then, and a warning is logged. Java's Curator
/// goes by the order of the listing and may get a lock that is held. Use another path before that, or no Java. It is the
/// same with all locks.
///
/// # ZooKeeper layout
///
/// `<path>/_c_<uuid>-lock-<number>`, ephemeral and sequential, as Curator's.
///
/// # Cost
///
/// Without contention three requests in two round trips: create and list, delete. A hold longer than a tenth of the
/// session timeout adds one read. A waiter watches the node before the one ahead of it, and when that is gone lists, and
/// watches the node ahead and its own: four reads more, and its grant is one event. Behind the holder alone, or in a
/// session with the one ahead: the node ahead and its own, two reads and no listing. Its own node it also watches when the
/// wait lasts for a tenth of the session timeout. What somebody in the session watches already takes no read: in a queue
/// of one session a hand-off is the delete and nothing else. A listing grows with the queue (55 bytes a contender). An
/// inner acquire of an owner: none.
#[derive(Clone)]
pub struct InterProcessMutex {
    lock: Arc<Reentrant>,
}

guard_of_its_own! {
    /// A mutex that is held.
    MutexGuard
}
reenter!(MutexGuard);
transaction!(MutexGuard);
acquire_methods!(InterProcessMutex => MutexGuard);
owner_methods!(InterProcessMutex => MutexGuard);

impl InterProcessMutex {
    /// A mutex at a path. Nothing is sent.
    ///
    /// # Errors
    ///
    /// `InvalidPath`; `InvalidArgument` for the root.
    pub fn new(client: CuratorFramework, path: impl Into<String>) -> Result<Self> {
        Self::with_options(client, path, LockOptions::new())
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
        Self::with_options(client, path, LockOptions::new().driver(driver))
    }

    /// A mutex with options.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new).
    pub fn with_options(client: CuratorFramework, path: impl Into<String>, options: LockOptions) -> Result<Self> {
        let shape = match options.driver.clone() {
            Some(driver) => Shape::exclusive(LOCK_NAME, driver),
            None => Shape::queue(LOCK_NAME),
        };
        let internals = LockInternals::new(client, path.into(), shape, options)?;
        Ok(Self { lock: Arc::new(Reentrant::new(internals, Arc::default())) })
    }

    /// The path of the lock.
    #[must_use]
    pub fn path(&self) -> &str {
        self.lock.internals().base_path()
    }

    /// Whether it is held through this object or a clone of it: Curator's `isAcquiredInThisProcess`. A lock that is lost
    /// is not. (Curator's does not notice.)
    #[must_use]
    pub fn is_acquired_in_this_process(&self) -> bool {
        self.lock.internals().is_held()
    }

    async fn acquire_for(&self, owner: Option<LockOwner>, mode: WaitMode) -> Result<Option<MutexGuard>> {
        Ok(self.lock.acquire_for(owner, mode).await?.map(MutexGuard::new))
    }

    /// The paths of all contenders, holder first: Curator's `getParticipantNodes`.
    ///
    /// # Errors
    ///
    /// `ConnectionLoss`, `SessionExpired`, `NoAuth`, `NotStarted`, `Closed`.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    pub async fn participant_nodes(&self) -> Result<Vec<String>> {
        self.lock.internals().participant_nodes().await
    }

    /// Who holds the lock and who waits for it, in order. A listing and one read for each contender.
    ///
    /// # Errors
    ///
    /// As [`participant_nodes`](Self::participant_nodes).
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    pub async fn participants(&self) -> Result<Vec<Participant>> {
        let internals = self.lock.internals();
        let standing = |sorted: &_, name: &str| {
            Some(Standing { kind: ParticipantKind::Lock, holds: internals.decide(sorted, name) == Predicate::Acquired })
        };
        internals.participants(standing).await
    }
}

impl fmt::Debug for InterProcessMutex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InterProcessMutex").field("path", &self.path()).finish_non_exhaustive()
    }
}
