//! The mutex.

use std::fmt;
use std::sync::Arc;

use curator_framework::CuratorFramework;

use crate::engine::caller::Caller;
use crate::engine::driver::LOCK_NAME;
use crate::engine::error::LockError;
use crate::engine::owner::LockOwner;
use crate::engine::participants::{Participant, ParticipantKind};
use crate::engine::{LockInternals, LockSpec, Sharing, WaitMode};
use crate::locks::acquire_methods::{acquire_methods, owner_methods};
use crate::locks::guard::kinds;
use crate::locks::guard::lock_guard::LockGuard;
use crate::locks::options::{MutexOptions, MutexQueue};
use crate::locks::reentrant::Reentrant;

/// A mutex across processes: Curator's `InterProcessMutex`.
///
/// `tokio::sync::Mutex` excludes the tasks of one process. This mutex excludes all clients of the same path on the same
/// ensemble, Java's Curator included. [Clones](crate#handles) are cheap, and all clones are one mutex.
///
/// # Reentrancy
///
/// By default, an acquire waits for the release of every other guard. A task that acquires twice deadlocks, unless
/// another task releases the first guard. A [warning](crate#tracing) names the file and line of both acquires. (Behind
/// `dyn InterProcessLock`, and in a multi lock, the line is one of this crate.)
///
/// For nested acquires, use [`LockOwner::scope`] or [`acquire_as`](Self::acquire_as): an inner acquire of the same
/// owner returns at once, without a request, and the owner's last guard deletes the node. `guard.reenter()` does the
/// same without an owner.
///
/// # Losing the lock
///
/// The lock ends with the client's session. [`LockGuard::lost`](crate::LockGuard::lost) reports its loss:
///
/// | cause of the loss | `lost` resolves |
/// | --- | --- |
/// | silent network, frozen server, server cut off from its leader | before another client can acquire the lock |
/// | machine asleep | when the machine wakes; another client may hold the lock by then |
/// | deleted node | soon: after one event and at most three requests, or at the reconnect |
/// | killed session, server that confuses sessions | soon: after one event, reconnect or heartbeat |
/// | process paused between a check and its write, server data restored from a backup | too late, or never |
///
/// For the causes in the last row, send the [fencing token](crate::LockGuard::token) to the resource. The resource
/// refuses a smaller token than one it has seen: see [fencing](crate::choosing#fencing). For a picture of a loss, see
/// [how it works](crate::how_it_works#loss).
///
/// A server may refuse the read that watches the node, for example because of too many requests. The session then repeats
/// the read while the lock is held. One transaction of another client may delete the nodes of the holder and of the next waiter,
/// if both have different sessions. Their notifications are two messages, and the first of them grants the lock. So the
/// waiter may hold a lock without a node until it receives the second one, or reconnects, or its session's deadline
/// passes. [`verify`](crate::LockGuard::verify) and a [guarded transaction](crate::MutexGuard::transaction) fail from the
/// start.
///
/// # Cancelling an acquire
///
/// An acquire is cancelled by dropping its future, so `select!` or `run_until_cancelled` is all that a cancellation
/// token needs:
///
/// ```
/// # #[tokio::main]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = curator_test::TestingServer::start()?;
/// # let retry = curator_framework::RetryOneTime::new(std::time::Duration::from_millis(50));
/// # let client = curator_framework::CuratorFramework::new_client(server.connect_string(), retry)?;
/// # client.start()?;
/// # let mutex = curator_recipes::InterProcessMutex::new(client, "/locks/printer")?;
/// # let shutdown = tokio_util::sync::CancellationToken::new();
/// let guard = tokio::select! {
///     biased; // a token that is cancelled already sends no request
///     () = shutdown.cancelled() => return Ok(()),
///     guard = mutex.acquire() => guard?,
/// };
/// # guard.release().await?.held()?;
/// # Ok(())
/// # }
/// ```
///
/// | moment of the cancellation | left behind |
/// | --- | --- |
/// | before the connection | nothing |
/// | in the queue | the node, until the session has deleted it in the background |
/// | granted in the same moment | the guard is dropped, so the node is deleted in the background |
///
/// `client.close()` waits for these deletes.
///
/// # Fairness
///
/// First come, first served, in the order in which the server created the nodes. A waiter that loses its session joins
/// the queue again at its end. Waiters of a client beyond [`max_waiting_nodes`](crate::LockOptions::max_waiting_nodes) join
/// when others of that client are granted or leave.
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
/// guard.release().await?.held()?;
/// # Ok(())
/// # }
/// ```
///
/// # Differences from Curator
///
/// The guard holds the lock, not a thread: any task that has the guard may release it. The guard reports a loss.
/// Children without the name of a contender are ignored; in Curator they block. A revocable lock stays revocable; in Curator it
/// must be made revocable before each acquire.
///
/// # Persistent nodes with the name of a contender
///
/// A persistent child such as `lock-1` or `report-lock-2024` blocks the contenders after it, as in Curator, until it is
/// deleted. Do not name a lock `lock-N` below the path of another lock. A waiter behind such a node logs a warning, and
/// [`participants`](Self::participants) shows it in [`blocked_by`](Participant::blocked_by). The same applies to all locks
/// and elections, with the names of their own nodes.
///
/// # Beside other clients
///
/// On the same path, Java's `InterProcessMutex` and this mutex share one queue and can revoke each other's locks. For
/// kazoo's `Lock` see [`MutexOptions::extra_lock_patterns`].
///
/// After 2^31 − 1 nodes under one path, the server gives the same number to several nodes. This crate then orders them
/// by their creation, and logs a warning. Java's Curator orders them as they are listed, and may grant a lock that is
/// held. Before that, change the path or stop the Java clients. The same is true of all locks.
///
/// # ZooKeeper layout
///
/// `<path>/_c_<uuid>-lock-<number>`, ephemeral and sequential, as in Curator.
///
/// # Cost
///
/// | case | requests |
/// | --- | --- |
/// | no contention | 3 in 2 round trips: create and listing, then delete |
/// | one contender of another client ahead | 2 more: watch the predecessor and this contender's node |
/// | several contenders of other clients ahead | 4 more: watch the second node ahead; after its deletion, list and watch as above |
/// | behind another contender of the same client | 3: create, watch the nearest such node, delete; a listing more if other clients are between |
/// | the first other contender joins behind a holder that did not wait | 1 more: the holder watches its node |
/// | acquire by an owner that holds the lock | 0 |
/// | wait or hold | the session's heartbeat: a write each eighth of the timeout, one for all locks and elections |
///
/// A holder that did not wait is watched by its listing: each change of the lock's children notifies it, its delete
/// last. That costs no request, and one notification for each acquire. A grant to a waiter is one event. A
/// waiter watches its own node after a tenth of the session timeout at the latest.
/// A watch that the session already has costs no request: in a queue of one session, a hand-off sends only the delete.
/// A listing takes 55 bytes for each contender. Contenders of one client share listings of one path: behind a node that
/// is deleted, a contender finds the next one in the newest listing. It lists if that lacks its node or is of an earlier
/// connection, if no node is left ahead, or if nodes of it were deleted. With [`MutexOptions::extra_lock_patterns`] a
/// mutex shares nothing.
#[derive(Clone)]
pub struct InterProcessMutex {
    lock: Arc<Reentrant>,
}

/// The guard of an [`InterProcessMutex`].
pub type MutexGuard = LockGuard<kinds::Mutex>;

acquire_methods!(InterProcessMutex => MutexGuard);
owner_methods!(InterProcessMutex => MutexGuard);

impl InterProcessMutex {
    /// Creates a mutex at a path, without a request.
    ///
    /// # Errors
    ///
    /// `Error::InvalidPath`; `LockError::InvalidArgument` for the root.
    pub fn new(client: CuratorFramework, path: impl Into<String>) -> Result<Self, LockError> {
        Self::with_options(client, path, MutexOptions::new())
    }

    /// Creates a mutex with options.
    ///
    /// # Errors
    ///
    /// * `Error::InvalidPath`: ZooKeeper does not allow this path.
    /// * `LockError::InvalidArgument`: the path is the root, [`linger`](MutexOptions::linger) is set without
    ///   [`one_node_per_client`](MutexOptions::one_node_per_client), or `max_waiting_nodes` is 0.
    pub fn with_options(
        client: CuratorFramework,
        path: impl Into<String>,
        options: MutexOptions,
    ) -> Result<Self, LockError> {
        let (options, MutexQueue { driver, extra_lock_patterns }) = options.split();
        let spec = match driver {
            Some(driver) => LockSpec { sharing: Sharing::Object, ..LockSpec::exclusive(LOCK_NAME, driver) },
            None => LockSpec::queue(LOCK_NAME),
        };
        let internals = LockInternals::new(client, path.into(), LockSpec { extra_lock_patterns, ..spec }, options)?;
        Ok(Self { lock: Arc::new(Reentrant::new(internals, Arc::default())) })
    }

    /// Returns the path of the lock.
    #[must_use]
    pub fn path(&self) -> &str {
        self.lock.internals().base_path()
    }

    /// Returns whether this object or a clone of it holds the lock: Curator's `isAcquiredInThisProcess`. A lost lock is
    /// not held; Curator does not notice the loss.
    #[must_use]
    pub fn is_acquired_in_this_process(&self) -> bool {
        self.lock.internals().is_held()
    }

    async fn acquire_for(&self, caller: Caller, mode: WaitMode) -> Result<Option<MutexGuard>, LockError> {
        Ok(self.lock.acquire_for(caller, mode).await?.map(MutexGuard::new))
    }

    /// Returns the paths of all contenders, holder first: Curator's `getParticipantNodes`. Goes by the names of the nodes:
    /// persistent nodes with the name of a contender are among them.
    ///
    /// # Errors
    ///
    /// `Error::NotStarted`, `Error::Closed`; `Error::NoAuth` if the ACL forbids reading; `Error::ConnectionLoss`,
    /// `Error::SessionExpired`: call again.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    pub async fn participant_nodes(&self) -> Result<Vec<String>, LockError> {
        self.lock.internals().participant_nodes().await
    }

    /// Returns the holder and the waiters, in order. Leaves out persistent nodes with the name of a contender. Costs a
    /// listing and one read for each node with such a name.
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
        let internals = self.lock.internals();
        internals.participants(|_| Some(ParticipantKind::Lock), |sorted, name| internals.is_granted(sorted, name)).await
    }
}

impl fmt::Debug for InterProcessMutex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InterProcessMutex").field("path", &self.path()).finish_non_exhaustive()
    }
}
