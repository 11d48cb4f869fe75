//! The read-write lock.

use std::fmt;
use std::sync::Arc;

use curator_framework::{CuratorFramework, node_from_path};

use crate::error::{LockError, Result};
use crate::locks::engine::driver::{
    LockInternalsDriver, Predicate, SortedChildren, StandardLockInternalsDriver, is_far_from_the_end, standard_sequence,
};
use crate::locks::engine::{Acquired, LockInternals, Shape, WaitMode, no_end, survive};
use crate::locks::guard::{LockGuard, guard_of_its_own, reenter, transaction};
use crate::locks::hold::{Hold, Place};
use crate::locks::methods::{acquire_methods, owner_methods};
use crate::locks::options::LockOptions;
use crate::locks::owner::LockOwner;
use crate::locks::participants::{Participant, ParticipantKind, Standing};
use crate::locks::reentrant::{Entry, Reentrant};

/// Curator's names for the nodes of the two halves.
const READ_NAME: &str = "__READ__";
const WRITE_NAME: &str = "__WRIT__";

/// A read-write lock across processes: Curator's `InterProcessReadWriteLock`. Cheap to clone; all clones are one lock.
///
/// Many may read at once; who writes is alone.
///
/// # Reentrancy
///
/// Explicit, as that of [`InterProcessMutex`](crate::InterProcessMutex#reentrancy), and of each half for itself. An
/// owner that writes may also read: see downgrading. An owner that reads and asks to write gets
/// [`LockError::Upgrade`], where Curator waits for ever.
///
/// # Downgrading
///
/// [`WriteGuard::downgrade`] turns the write lock into a read lock, without letting a queued writer in between; within
/// an owner Curator's way works too: acquire the read lock, release the write lock. The read lock carries the fencing
/// token of the write lock. (Near the end of ZooKeeper's sequence numbers a downgraded read lock keeps the others out,
/// readers too.)
///
/// # Losing the lock
///
/// As a mutex: see [`InterProcessMutex`](crate::InterProcessMutex#losing-the-lock).
///
/// # Fairness
///
/// First come, first served: a waiting writer lets no later reader pass.
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
/// reading.release().await?;
/// # Ok(())
/// # }
/// ```
///
/// # Differences from Curator
///
/// Those of the mutex. A waiting reader watches the last writer ahead of it, where Curator's watches the first and is
/// woken by each.
///
/// # Beside Java's Curator
///
/// Both take turns on the same path, in one queue; a downgrade here lets none of Java's writers in. Java's Curator before
/// 5.5 lets a queued writer in when it downgrades itself (CURATOR-621), this crate's too: both hold the lock then. And
/// see [`InterProcessMutex`](crate::InterProcessMutex#beside-other-clients) for the end of the sequence numbers.
///
/// # ZooKeeper layout
///
/// `<path>/_c_<uuid>-__READ__<number>` and `<path>/_c_<uuid>-__WRIT__<number>`, ephemeral and sequential; the read node
/// of a downgrade has the number of the write node and is not sequential. All as Curator's.
///
/// # Cost
///
/// As the mutex. A downgrade: one create, a look whether the write lock is still held (two requests), and one delete in
/// the background.
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

guard_of_its_own! {
    /// A read lock that is held.
    ReadGuard
}
reenter!(ReadGuard);

/// A write lock that is held.
///
/// All that guards have in common is in [`LockGuard`](crate::LockGuard), to which it dereferences.
#[must_use = "if unused the lock is released at once"]
#[derive(Debug)]
pub struct WriteGuard {
    guard: LockGuard,
    halves: Arc<Halves>,
    owner: Option<LockOwner>,
}

impl std::ops::Deref for WriteGuard {
    type Target = LockGuard;

    fn deref(&self) -> &LockGuard {
        &self.guard
    }
}

impl From<WriteGuard> for LockGuard {
    fn from(guard: WriteGuard) -> Self {
        guard.guard
    }
}

transaction!(WriteGuard);

acquire_methods!(ReadLock => ReadGuard);
owner_methods!(ReadLock => ReadGuard);
acquire_methods!(WriteLock => WriteGuard);
owner_methods!(WriteLock => WriteGuard);

impl InterProcessReadWriteLock {
    /// A lock at a path. Nothing is sent.
    ///
    /// # Errors
    ///
    /// `InvalidPath`; `InvalidArgument` for the root.
    pub fn new(client: CuratorFramework, path: impl Into<String>) -> Result<Self> {
        Self::with_options(client, path, LockOptions::new())
    }

    /// A lock with options.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new); `InvalidArgument` also for a driver, since the lock brings its own.
    pub fn with_options(client: CuratorFramework, path: impl Into<String>, options: LockOptions) -> Result<Self> {
        if options.driver.is_some() {
            return Err(LockError::invalid("driver", "a read-write lock has its own"));
        }
        let path = path.into();
        let half = |name, driver: Arc<dyn LockInternalsDriver>| {
            LockInternals::new(client.clone(), path.clone(), Shape::exclusive(name, driver), options.clone())
        };
        // An owner reads or writes or waits for one of them at a time.
        let turns = Arc::default();
        let read = Reentrant::new(half(READ_NAME, Arc::new(ReadDriver))?, Arc::clone(&turns));
        let write = Reentrant::new(half(WRITE_NAME, Arc::new(WriteDriver))?, turns);
        Ok(Self { halves: Arc::new(Halves { read, write }) })
    }

    /// The path of the lock.
    #[must_use]
    pub fn path(&self) -> &str {
        self.halves.write.internals().base_path()
    }

    /// The lock to read under.
    #[must_use]
    pub fn read_lock(&self) -> ReadLock {
        ReadLock { halves: Arc::clone(&self.halves) }
    }

    /// The lock to write under.
    #[must_use]
    pub fn write_lock(&self) -> WriteLock {
        WriteLock { halves: Arc::clone(&self.halves) }
    }

    /// Who reads or writes and who waits, in order. A listing and one read for each contender.
    ///
    /// # Errors
    ///
    /// `ConnectionLoss`, `SessionExpired`, `NoAuth`, `NotStarted`, `Closed`.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    pub async fn participants(&self) -> Result<Vec<Participant>> {
        self.halves.participants(|_| true).await
    }
}

macro_rules! half {
    ($lock:ident, $half:ident, $kind:ident) => {
        impl $lock {
            /// The path of the lock.
            #[must_use]
            pub fn path(&self) -> &str {
                self.halves.$half.internals().base_path()
            }

            /// Whether this half is held through this object or a clone of it: Curator's `isAcquiredInThisProcess`.
            #[must_use]
            pub fn is_acquired_in_this_process(&self) -> bool {
                self.halves.$half.internals().is_held()
            }

            /// The paths of this half's contenders, in order: Curator's `getParticipantNodes`.
            ///
            /// # Errors
            ///
            /// `ConnectionLoss`, `SessionExpired`, `NoAuth`, `NotStarted`, `Closed`.
            ///
            /// # Cancel safety
            ///
            /// Nothing is lost when the future is dropped.
            pub async fn participant_nodes(&self) -> Result<Vec<String>> {
                let nodes = self.halves.$half.internals().participant_nodes().await?;
                Ok(nodes.into_iter().filter(|node| kind_of(node) == ParticipantKind::$kind).collect())
            }

            /// Who holds this half and who waits for it, in order. A listing and one read for each contender.
            ///
            /// # Errors
            ///
            /// As [`participant_nodes`](Self::participant_nodes).
            ///
            /// # Cancel safety
            ///
            /// Nothing is lost when the future is dropped.
            pub async fn participants(&self) -> Result<Vec<Participant>> {
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
    async fn acquire_for(&self, owner: Option<LockOwner>, mode: WaitMode) -> Result<Option<ReadGuard>> {
        let place = match owner {
            None => self.halves.read.acquire_for_nobody(mode).await?,
            Some(owner) => self.halves.read_for(owner, mode).await?,
        };
        Ok(place.map(ReadGuard::new))
    }
}

impl WriteLock {
    async fn acquire_for(&self, owner: Option<LockOwner>, mode: WaitMode) -> Result<Option<WriteGuard>> {
        let Halves { read, write } = &*self.halves;
        let place = match &owner {
            None => write.acquire_for_nobody(mode).await?,
            Some(owner) => match write.enter(owner.clone(), mode).await? {
                Entry::Inner(place) => Some(place),
                Entry::TimeOver => None,
                Entry::Turn(_) if read.held_by(owner).is_some() => {
                    return Err(LockError::Upgrade { path: self.path().to_owned() });
                }
                Entry::Turn(turn) => {
                    let hold = write.acquire_hold(mode).await?;
                    hold.map(|hold| {
                        turn.has(&hold);
                        Place::first(hold)
                    })
                }
            },
        };
        Ok(place.map(|place| WriteGuard { guard: LockGuard::one(place), halves: Arc::clone(&self.halves), owner }))
    }
}

impl WriteGuard {
    /// Another guard on the same lock, without a request. The last one that goes releases it.
    ///
    /// # Errors
    ///
    /// `LockLost` if the lock is lost; `InvalidArgument` if this guard was released.
    pub fn reenter(&self) -> Result<Self> {
        let guard = LockGuard::one(self.guard.beside()?);
        Ok(Self { guard, halves: Arc::clone(&self.halves), owner: self.owner.clone() })
    }

    /// Turns this write lock into a read lock, without letting a queued writer in between. This guard is released then;
    /// while others of the same write lock are left it is still held too. The read lock carries the fencing token of the
    /// write lock.
    ///
    /// # Errors
    ///
    /// `LockLost` if the lock is lost; `InvalidArgument` if this guard was released; `ConnectionLoss` if the retry policy
    /// gave up. This guard still holds the write lock after an error, unless it is lost.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, the write lock is still held by this guard.
    pub async fn downgrade(&self) -> Result<ReadGuard> {
        // Keeps the write lock, however long this takes.
        let writing = self.guard.beside()?;
        let read = match &self.owner {
            None => self.halves.read_beside(writing.hold(), WaitMode::Forever).await?,
            Some(owner) => self.halves.read_for(owner.clone(), WaitMode::Forever).await?,
        };
        let read = read.ok_or_else(no_end)?;
        if let (Some(owner), true) = (&self.owner, Arc::ptr_eq(read.hold(), writing.hold())) {
            self.halves.write.forget(owner);
        }
        self.guard.place().let_go();
        Ok(ReadGuard::new(read))
    }
}

impl Halves {
    /// A read lock for an owner, who may read or write already.
    async fn read_for(&self, owner: LockOwner, mode: WaitMode) -> Result<Option<Place>> {
        match self.read.enter(owner.clone(), mode).await? {
            Entry::Inner(place) => Ok(Some(place)),
            Entry::TimeOver => Ok(None),
            Entry::Turn(turn) => {
                let place = match self.write.held_by(&owner) {
                    Some(writing) => self.read_beside(&writing, mode).await?,
                    None => self.read.acquire_hold(mode).await?.map(Place::first),
                };
                if let Some(place) = &place {
                    turn.has(place.hold());
                }
                Ok(place)
            }
        }
    }

    /// A read lock beside a write lock that is held: its node gets the number of the write node, so that it stands
    /// before everybody who waits (CURATOR-621).
    async fn read_beside(&self, writing: &Arc<Hold>, mode: WaitMode) -> Result<Option<Place>> {
        let lost = || writing.loss().map(|reason| LockError::LockLost { path: writing.lock_path().to_owned(), reason });
        if let Some(lost) = lost() {
            return Err(lost);
        }
        let internals = self.read.internals();
        let name = node_from_path(writing.path());
        let number = name.rsplit_once(WRITE_NAME).map(|(_, number)| number).unwrap_or_default();
        if !number.parse().is_ok_and(is_far_from_the_end) {
            // Numbers do not tell the order there, and a new node would stand behind those who wait: the write node stays
            // and stands for the reader.
            return Ok(Place::join(writing));
        }
        let mut retries = internals.client().retry_loop();
        let name = format!("{READ_NAME}{number}");
        let created = async {
            let claim = internals.create_named(writing.session(), &name, &mut retries).await?;
            // If the write node is there now, whoever comes next finds ours in its place. If somebody has deleted it,
            // the next one may write already.
            loop {
                match writing.verify().await {
                    Ok(_) => return Result::Ok(claim),
                    Err(error) => survive(error, writing.session(), &mut retries).await?,
                }
            }
        };
        let created = mode.bound(internals.client(), "a read lock beside a write lock", created).await;
        // If the write lock was lost meanwhile, somebody else may write.
        if let Some(lost) = lost() {
            return Err(lost);
        }
        let Some(claim) = created? else { return Ok(None) };
        claim.watch_node(claim.session().timeout() / 10);
        let (czxid, path) = (writing.fencing_token(), writing.lock_path());
        let revocation = internals.revocation(&claim);
        let hold = internals.hold(path, Acquired { claim, entry: None, czxid, revocation, queue_position: 0 });
        Ok(Some(Place::first(hold)))
    }

    async fn participants(&self, wanted: impl Fn(ParticipantKind) -> bool) -> Result<Vec<Participant>> {
        let standing = |sorted: &SortedChildren, name: &str| {
            let kind = kind_of(name);
            let half = if kind == ParticipantKind::Write { &self.write } else { &self.read };
            let first = first_of_its_number(sorted, name);
            wanted(kind)
                .then(|| Standing { kind, holds: half.internals().decide(sorted, first) == Predicate::Acquired })
        };
        self.write.internals().participants(standing).await
    }
}

/// The first node that has the number of this one: a writer that reads too has two, which stand and go for themselves.
fn first_of_its_number<'a>(sorted: &'a SortedChildren, name: &'a str) -> &'a str {
    let number = sorted.numbered().find_map(|(number, other)| (other == name).then_some(number));
    sorted.numbered().find_map(|(other, first)| (Some(other) == number).then_some(first)).unwrap_or(name)
}

/// The half that a node belongs to, by its name or its path.
fn kind_of(node: &str) -> ParticipantKind {
    let name = node_from_path(node);
    if standard_sequence(name, WRITE_NAME).is_some() { ParticipantKind::Write } else { ParticipantKind::Read }
}

/// The number of a node of either half.
fn sequence(name: &str) -> Option<i64> {
    standard_sequence(name, WRITE_NAME).or_else(|| standard_sequence(name, READ_NAME))
}

/// Lets a reader in when no writer is ahead.
#[derive(Debug)]
struct ReadDriver;

impl LockInternalsDriver for ReadDriver {
    fn sequence(&self, name: &str, _lock_name: &str) -> Option<i64> {
        sequence(name)
    }

    fn gets_the_lock(&self, children: &SortedChildren, ours: &str, _max_leases: usize) -> Predicate {
        let Some(index) = children.position(ours) else { return Predicate::Missing };
        let mut writers = children.names().take(index).filter(|name| kind_of(name) == ParticipantKind::Write);
        let first = writers.next();
        match (first, writers.next_back()) {
            (None, _) => Predicate::Acquired,
            (Some(only), None) => Predicate::WatchNode { node: only.to_owned(), blocks_alone: true },
            // Those before it are gone when it is, but for those that give up.
            (Some(_), Some(last)) => Predicate::WatchNode { node: last.to_owned(), blocks_alone: false },
        }
    }
}

/// Lets a writer in when nobody is ahead.
#[derive(Debug)]
struct WriteDriver;

impl LockInternalsDriver for WriteDriver {
    fn sequence(&self, name: &str, _lock_name: &str) -> Option<i64> {
        sequence(name)
    }

    fn gets_the_lock(&self, children: &SortedChildren, ours: &str, _max_leases: usize) -> Predicate {
        match StandardLockInternalsDriver.gets_the_lock(children, ours, 1) {
            // The writer ahead may downgrade: when its node goes, a reader's is there.
            Predicate::WatchNode { node, .. } => Predicate::WatchNode { node, blocks_alone: false },
            decided => decided,
        }
    }
}

impl fmt::Debug for InterProcessReadWriteLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InterProcessReadWriteLock").field("path", &self.path()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sorted(listing: &[&str]) -> SortedChildren {
        SortedChildren::new(listing.iter().map(|name| (*name).to_owned()), READ_NAME, &ReadDriver)
    }

    fn watch(node: &str, blocks_alone: bool) -> Predicate {
        Predicate::WatchNode { node: node.into(), blocks_alone }
    }

    const QUEUE: [&str; 6] = [
        "_c_e-__READ__0000000001",
        "_c_d-__READ__0000000002",
        "_c_c-__WRIT__0000000003",
        "_c_b-__READ__0000000004",
        "_c_a-__WRIT__0000000005",
        "_c_0-__READ__0000000006",
    ];

    #[test]
    fn readers_pass_readers_and_wait_for_the_last_writer_ahead() {
        let children = sorted(&QUEUE);
        assert_eq!(children.names().collect::<Vec<_>>(), QUEUE);
        let read = |ours: &str| ReadDriver.gets_the_lock(&children, ours, 1);
        assert_eq!(read(QUEUE[0]), Predicate::Acquired);
        assert_eq!(read(QUEUE[1]), Predicate::Acquired);
        assert_eq!(read(QUEUE[3]), watch(QUEUE[2], true));
        assert_eq!(read(QUEUE[5]), watch(QUEUE[4], false));
        assert_eq!(read("gone"), Predicate::Missing);
    }

    #[test]
    fn writers_wait_for_everybody_ahead_and_never_trust_a_deletion_alone() {
        let children = sorted(&QUEUE);
        let write = |ours: &str| WriteDriver.gets_the_lock(&children, ours, 1);
        assert_eq!(write(QUEUE[2]), watch(QUEUE[1], false));
        assert_eq!(write(QUEUE[4]), watch(QUEUE[3], false));
        assert_eq!(WriteDriver.gets_the_lock(&sorted(&QUEUE[2..]), QUEUE[2], 1), Predicate::Acquired);
        assert_eq!(WriteDriver.gets_the_lock(&sorted(&QUEUE[1..]), QUEUE[2], 1), watch(QUEUE[1], false));
    }

    #[test]
    fn a_downgraded_reader_stands_where_the_writer_stood() {
        let children = sorted(&["_c_z-__READ__0000000003", "_c_a-__WRIT__0000000004", "_c_b-__WRIT__0000000003"]);
        assert_eq!(children.position("_c_a-__WRIT__0000000004"), Some(2));
        assert_eq!(
            WriteDriver.gets_the_lock(
                &sorted(&["_c_z-__READ__0000000003", "_c_a-__WRIT__0000000004"]),
                "_c_a-__WRIT__0000000004",
                1
            ),
            watch("_c_z-__READ__0000000003", false)
        );
    }

    #[test]
    fn names_of_other_locks_are_no_contenders() {
        assert_eq!(sorted(&["_c_a-lock-0000000001", "__READ__", "_c_b-__READ__0000000001"]).len(), 1);
    }
}
