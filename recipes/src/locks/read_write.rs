//! The read-write lock.

use std::fmt;
use std::sync::Arc;

use curator_framework::recipe::RecipeClient as _;
use curator_framework::{CuratorFramework, node_from_path};

use crate::engine::caller::{Caller, Origin};
use crate::engine::driver::{LockInternalsDriver, READ_NAME, SortedChildren, WRITE_NAME, is_far_from_the_end};
use crate::engine::error::LockError;
use crate::engine::hold::{Hold, HoldShare};
use crate::engine::options::LockOptions;
use crate::engine::owner::LockOwner;
use crate::engine::participants::{Participant, ParticipantKind};
use crate::engine::read_write_driver::{ReadDriver, WriteDriver, kind_of};
use crate::engine::{Acquired, Contention, LockInternals, LockSpec, Role, Sharing, WaitMode, no_end};
use crate::locks::acquire_methods::{acquire_methods, owner_methods};
use crate::locks::guard::kinds;
use crate::locks::guard::lock_guard::LockGuard;
use crate::locks::reentrant::{OwnerState, Reentrant};

/// A read-write lock across processes: Curator's `InterProcessReadWriteLock`. Cheap to clone; all clones are one lock.
///
/// The read lock may have many holders at once. The write lock has one, and excludes all readers.
///
/// # Reentrancy
///
/// Each half is reentrant for an owner, as an [`InterProcessMutex`](crate::InterProcessMutex#reentrancy) is. An owner
/// of the write lock can also acquire the read lock: see downgrading. The reverse fails with [`LockError::Upgrade`]; in
/// Curator it deadlocks.
///
/// Without an owner, a task that holds one half and acquires the other one waits for itself. A
/// [warning](crate#tracing) names the file and line of both acquires.
///
/// # Downgrading
///
/// [`WriteGuard::downgrade`] turns the write lock into a read lock, without letting a queued writer in between. With an
/// owner, Curator's way works too: acquire the read lock, then release the write lock. The read lock has the fencing
/// token of the write lock. Near the end of ZooKeeper's sequence numbers, a downgraded read lock excludes readers too.
///
/// # Losing the lock
///
/// Each half can be lost as a mutex can: see [`InterProcessMutex`](crate::InterProcessMutex#losing-the-lock).
///
/// # Fairness
///
/// First come, first served: a reader does not overtake a waiting writer. Waiters of a client beyond
/// [`max_waiting_nodes`](LockOptions::max_waiting_nodes) join when others of that client are granted or leave.
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
/// use curator_recipes::InterProcessReadWriteLock;
///
/// let settings = InterProcessReadWriteLock::new(client, "/locks/settings")?;
/// let writing = settings.write_lock().acquire().await?;
/// // … change them …
/// let reading = writing.downgrade().await?;
/// // … others may read them now too …
/// reading.release().await?.held()?;
/// # Ok(())
/// # }
/// ```
///
/// # Differences from Curator
///
/// The [mutex's](crate::InterProcessMutex#differences-from-curator), and one more. A waiting reader watches the last
/// writer ahead of it. In Curator it watches the first, so each of the writers wakes it.
///
/// # Beside Java's Curator
///
/// On the same path, Java's clients and this lock share one queue. A downgrade here lets no Java writer in. A downgrade
/// in Java's Curator before 5.5 lets in a queued writer of either crate, and both hold the lock (CURATOR-621). For the
/// end of the sequence numbers see [`InterProcessMutex`](crate::InterProcessMutex#beside-other-clients).
///
/// # ZooKeeper layout
///
/// `<path>/_c_<uuid>-__READ__<number>` and `<path>/_c_<uuid>-__WRIT__<number>`, ephemeral and sequential; the read node
/// of a downgrade has the number of the write node and is not sequential. All as in Curator.
///
/// # Cost
///
/// Acquire and release cost as much as for a [mutex](crate::InterProcessMutex#cost), but a writer lists before each
/// grant. A reader joins without a listing if its client knows a writer ahead: its own, or one that another reader
/// waits for. A writer joins without one behind any contender of its client. So a further waiter of a client costs the
/// same in a queue of any length: about 200 bytes from the server for a reader, 300 for a writer. A reader lists if it
/// knows no writer.
///
/// A downgrade sends one create, two requests that check the write lock, a read that watches the new node, and one
/// delete in the background.
#[derive(Clone)]
pub struct InterProcessReadWriteLock {
    halves: Arc<Halves>,
}

#[derive(Debug)]
struct Halves {
    read: Reentrant,
    write: Reentrant,
}

/// The read half of an [`InterProcessReadWriteLock`]: Curator's `ReadLock`.
#[derive(Clone)]
pub struct ReadLock {
    halves: Arc<Halves>,
}

/// The write half of an [`InterProcessReadWriteLock`]: Curator's `WriteLock`.
#[derive(Clone)]
pub struct WriteLock {
    halves: Arc<Halves>,
}

/// The guard of a [`ReadLock`].
pub type ReadGuard = LockGuard<kinds::Read>;

/// The guard of a [`WriteLock`].
pub type WriteGuard = LockGuard<Write>;

/// A [`WriteLock`].
#[derive(Debug, Clone)]
pub struct Write {
    halves: Arc<Halves>,
    owner: Option<LockOwner>,
}

acquire_methods!(ReadLock => ReadGuard);
owner_methods!(ReadLock => ReadGuard);
acquire_methods!(WriteLock => WriteGuard);
owner_methods!(WriteLock => WriteGuard);

impl InterProcessReadWriteLock {
    /// Creates a lock at a path, without a request.
    ///
    /// # Errors
    ///
    /// `Error::InvalidPath`; `LockError::InvalidArgument` for the root.
    pub fn new(client: CuratorFramework, path: impl Into<String>) -> Result<Self, LockError> {
        Self::with_options(client, path, LockOptions::new())
    }

    /// Creates a lock with options.
    ///
    /// # Errors
    ///
    /// * `Error::InvalidPath`: ZooKeeper does not allow this path.
    /// * `LockError::InvalidArgument`: the path is the root, [`linger`](LockOptions::linger) is set without
    ///   [`one_node_per_client`](LockOptions::one_node_per_client), or `max_waiting_nodes` is 0.
    pub fn with_options(
        client: CuratorFramework,
        path: impl Into<String>,
        options: LockOptions,
    ) -> Result<Self, LockError> {
        let path = path.into();
        let half = |recipe, name, driver: Arc<dyn LockInternalsDriver>, role, sharing| {
            let role = Some(role);
            let spec = LockSpec { recipe, sharing, role, has_places: true, ..LockSpec::exclusive(name, driver) };
            LockInternals::new(client.clone(), path.clone(), spec, options.clone())
        };
        // Shared, so that an owner's acquires of the two halves cannot overlap and miss an upgrade.
        let owner_locks = Arc::default();
        let read = Reentrant::new(
            half("read_lock", READ_NAME, Arc::new(ReadDriver), Role::Reader, Sharing::Together)?,
            Arc::clone(&owner_locks),
        );
        let write = half("write_lock", WRITE_NAME, Arc::new(WriteDriver), Role::Writer, Sharing::Path)?;
        let write = Reentrant::new(write, owner_locks);
        Ok(Self { halves: Arc::new(Halves { read, write }) })
    }

    /// Returns the path of the lock.
    #[must_use]
    pub fn path(&self) -> &str {
        self.halves.write.internals().base_path()
    }

    /// Returns the read half.
    #[must_use]
    pub fn read_lock(&self) -> ReadLock {
        ReadLock { halves: Arc::clone(&self.halves) }
    }

    /// Returns the write half.
    #[must_use]
    pub fn write_lock(&self) -> WriteLock {
        WriteLock { halves: Arc::clone(&self.halves) }
    }

    /// Returns the holders and waiters of both halves, in order. Costs a listing and one read for each contender.
    ///
    /// # Errors
    ///
    /// `Error::NotStarted`, `Error::Closed`; `Error::NoAuth` if the ACL forbids reading; `Error::ConnectionLoss`,
    /// `Error::SessionExpired`: call again. `Error::ReplyTooLarge`:
    /// the listing is above the client's limit.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    pub async fn participants(&self) -> Result<Vec<Participant>, LockError> {
        self.halves.participants(|_| true).await
    }
}

macro_rules! half {
    ($lock:ident, $half:ident, $kind:ident) => {
        impl $lock {
            /// Returns the path of the lock.
            #[must_use]
            pub fn path(&self) -> &str {
                self.halves.$half.internals().base_path()
            }

            /// Returns whether this object or a clone of it holds this half: Curator's `isAcquiredInThisProcess`.
            #[must_use]
            pub fn is_acquired_in_this_process(&self) -> bool {
                self.halves.$half.internals().is_held()
            }

            /// Returns the paths of this half's contenders, in order: Curator's `getParticipantNodes`.
            ///
            /// # Errors
            ///
            /// * `Error::ConnectionLoss`, `Error::SessionExpired`: the retry policy gave up. Call again.
            /// * `Error::NoAuth`: the ACL forbids reading.
            /// * `Error::NotStarted`, `Error::Closed`: the client does not run.
            ///
            /// # Cancel safety
            ///
            /// Nothing is lost when the future is dropped.
            pub async fn participant_nodes(&self) -> Result<Vec<String>, LockError> {
                let nodes = self.halves.$half.internals().participant_nodes().await?;
                Ok(nodes.into_iter().filter(|node| kind_of(node) == ParticipantKind::$kind).collect())
            }

            /// Returns the holders and waiters of this half, in order. Costs a listing and one read for each contender.
            ///
            /// # Errors
            ///
            /// * `Error::ConnectionLoss`, `Error::SessionExpired`: the retry policy gave up. Call again.
            /// * `Error::NoAuth`: the ACL forbids reading. `Error::ReplyTooLarge`: the listing is above the client's limit.
            /// * `Error::NotStarted`, `Error::Closed`: the client does not run.
            ///
            /// # Cancel safety
            ///
            /// Nothing is lost when the future is dropped.
            pub async fn participants(&self) -> Result<Vec<Participant>, LockError> {
                self.halves.participants(|kind| kind == ParticipantKind::$kind).await
            }
        }

        impl fmt::Debug for $lock {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($lock)).field("path", &self.path()).finish_non_exhaustive()
            }
        }
    };
}

half!(ReadLock, read, Read);
half!(WriteLock, write, Write);

impl ReadLock {
    async fn acquire_for(&self, caller: Caller, mode: WaitMode) -> Result<Option<ReadGuard>, LockError> {
        let origin = caller.origin();
        self.halves.write.warn_of_self_deadlock(mode, &origin);
        let share = match caller.owner {
            None => self.halves.read.acquire_without_owner(mode, &origin).await?,
            Some(owner) => self.halves.read_as(owner, mode, &origin).await?,
        };
        Ok(share.map(ReadGuard::new))
    }
}

impl WriteLock {
    async fn acquire_for(&self, caller: Caller, mode: WaitMode) -> Result<Option<WriteGuard>, LockError> {
        let Halves { read, write } = &*self.halves;
        let origin = caller.origin();
        write.warn_of_self_deadlock(mode, &origin);
        read.warn_of_self_deadlock(mode, &origin);
        let owner = caller.owner;
        let share = match &owner {
            None => write.acquire_without_owner(mode, &origin).await?,
            Some(owner) => match write.enter(owner.clone(), mode).await? {
                OwnerState::Holds(share) => Some(share),
                OwnerState::TimeOver => None,
                OwnerState::MayAcquire(_) if read.held_by(owner).is_some() => {
                    return Err(LockError::Upgrade { path: write.internals().client().path_text(self.path()) });
                }
                OwnerState::MayAcquire(permit) => {
                    let hold = write.acquire_hold(mode, &origin).await?;
                    hold.map(|hold| {
                        permit.record(&hold);
                        HoldShare::first(hold)
                    })
                }
            },
        };
        Ok(share.map(|share| LockGuard::one(share, Write { halves: Arc::clone(&self.halves), owner })))
    }
}

impl WriteGuard {
    /// Turns this write lock into a read lock, without letting a queued writer in between, and releases this guard.
    /// Other guards of the same write lock still hold it. The read lock has the fencing token of the write lock.
    ///
    /// # Errors
    ///
    /// `LockError::LockLost` if the lock is lost; `LockError::InvalidArgument` if this guard was released;
    /// `Error::ConnectionLoss` if the retry policy gave up. `Error::TooManyEphemeralNodes` if the node of the read lock
    /// does not fit among the session's nodes: release another lock, and call again. After an error, this guard still holds the write lock
    /// unless it is lost or released.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, this guard still holds the write lock.
    pub async fn downgrade(&self) -> Result<ReadGuard, LockError> {
        // Keeps the write lock until the read lock is granted, even if this guard is released in the meantime.
        let writing = self.another_share()?;
        let Write { halves, owner } = &self.kind;
        let read = match owner {
            None => halves.downgrade_from(writing.hold(), WaitMode::Forever).await?,
            Some(owner) => halves.read_as(owner.clone(), WaitMode::Forever, writing.hold().origin()).await?,
        };
        let read = read.ok_or_else(no_end)?;
        if let (Some(owner), true) = (owner, Arc::ptr_eq(read.hold(), writing.hold())) {
            halves.write.forget(owner);
        }
        self.first_share().delete_in_background("released");
        Ok(ReadGuard::new(read))
    }
}

impl Halves {
    /// Acquires the read lock for an owner that may hold either half already.
    async fn read_as(&self, owner: LockOwner, mode: WaitMode, origin: &Origin) -> Result<Option<HoldShare>, LockError> {
        match self.read.enter(owner.clone(), mode).await? {
            OwnerState::Holds(share) => Ok(Some(share)),
            OwnerState::TimeOver => Ok(None),
            OwnerState::MayAcquire(permit) => {
                // The share keeps the write lock: a release would pass its node to another writer.
                let writing = self.write.held_by(&owner);
                let share = match writing.as_ref().and_then(HoldShare::join) {
                    Some(writing) => self.downgrade_from(writing.hold(), mode).await?,
                    None => self.read.acquire_hold(mode, origin).await?.map(HoldShare::first),
                };
                if let Some(share) = &share {
                    permit.record(share.hold());
                }
                Ok(share)
            }
        }
    }

    /// Acquires a read lock beside a held write lock. The read node gets the number of the write node, so it precedes
    /// all waiters (CURATOR-621).
    async fn downgrade_from(&self, writing: &Arc<Hold>, mode: WaitMode) -> Result<Option<HoldShare>, LockError> {
        let lost = || writing.loss().map(|reason| LockError::LockLost { path: writing.lock_path().clone(), reason });
        if let Some(lost) = lost() {
            return Err(lost);
        }
        // Otherwise the next writer of this client would hold the write lock beside the reader.
        writing.ends_turn();
        let internals = self.read.internals();
        let name = node_from_path(writing.path());
        let number = name.rsplit_once(WRITE_NAME).map(|(_, number)| number).unwrap_or_default();
        if !number.parse().is_ok_and(is_far_from_the_end) {
            // Near the end the creation orders the nodes, and a new node would be behind all waiters. So the write node
            // stays, and is the reader's.
            return Ok(HoldShare::join(writing));
        }
        let mut retries = internals.client().retry_loop();
        let name = format!("{READ_NAME}{number}");
        let created = async {
            let owned = internals.create_named(writing.session(), &name, &mut retries).await?;
            // If the write node still exists, every later listing has the read node at its position. If the write node
            // was deleted, another writer may hold the lock already.
            loop {
                match writing.verify().await {
                    Ok(_) => return Result::Ok(owned),
                    Err(error) => retries.failed_in(writing.session(), error).await?,
                }
            }
        };
        // Nothing is ahead of the read node.
        let contention = Contention::default();
        let created = mode.bound(internals.client(), "a read lock beside a write lock", &contention, created).await;
        // After a loss of the write lock, another writer may hold it.
        if let Some(lost) = lost() {
            return Err(lost);
        }
        let Some(owned) = created? else { return Ok(None) };
        let acquired = Acquired { fencing_token: writing.fencing_token(), ..internals.acquired_from(owned, None, 1) };
        Ok(Some(HoldShare::first(internals.hold(acquired, *writing.origin()))))
    }

    async fn participants(&self, wanted: impl Fn(ParticipantKind) -> bool) -> Result<Vec<Participant>, LockError> {
        let kind = |name: &str| Some(kind_of(name)).filter(|kind| wanted(*kind));
        let holds = |sorted: &SortedChildren, name: &str| {
            let half = if kind_of(name) == ParticipantKind::Write { &self.write } else { &self.read };
            half.internals().is_granted(sorted, first_of_its_number(sorted, name))
        };
        self.write.internals().participants(kind, holds).await
    }
}

/// Returns the first node with the same number. An owner of both halves has two such nodes, each deleted on its own.
fn first_of_its_number<'a>(sorted: &'a SortedChildren, name: &'a str) -> &'a str {
    let number = sorted.numbered().find_map(|(number, other)| (other == name).then_some(number));
    sorted.numbered().find_map(|(other, first)| (Some(other) == number).then_some(first)).unwrap_or(name)
}

impl fmt::Debug for InterProcessReadWriteLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InterProcessReadWriteLock").field("path", &self.path()).finish_non_exhaustive()
    }
}
