//! A barrier: while its node exists, it holds waiters back.

use std::fmt;
use std::time::Duration;

use curator_framework::recipe::{RecipeClient as _, owning_session};
use curator_framework::{CuratorFramework, Error, EventType, Session};

use crate::barriers::checks::check_path;
use crate::barriers::error::BarrierError;
use crate::barriers::owned::OwnedBarrier;
use crate::barriers::waiting::{Awaited, Look, wait};

/// A barrier that any client sets and removes, and at which any number of tasks wait: Curator's `DistributedBarrier`.
///
/// The barrier is set while its node exists. A barrier that is not set lets all waiters pass at once.
///
/// # Owned barriers
///
/// A barrier of [`set_barrier`](Self::set_barrier) stays until a client removes it, even if the process that set it
/// dies. One of [`set_owned`](Self::set_owned) is removed with its owner: when the guard is dropped, or when the
/// owner's session ends. Waiters wait at both in the same way, Java's too.
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
/// use std::time::Duration;
/// use curator_recipes::DistributedBarrier;
///
/// let barrier = DistributedBarrier::new(client.clone(), "/barriers/import")?;
/// let owned = barrier.set_owned().await?;
/// assert_eq!(barrier.wait_on_barrier_timeout(Duration::from_millis(50)).await?, None); // still set
///
/// let waiter = barrier.clone(); // in another process
/// let waiting = tokio::spawn(async move { waiter.wait_on_barrier().await });
/// owned.release().await?.held()?;
/// waiting.await??;
/// # Ok(())
/// # }
/// ```
///
/// # Differences from Curator
///
/// * A wait survives lost connections, and any number of sessions. Curator's fails with `ConnectionLoss`.
/// * A waiter passes when the barrier that it has seen is removed, even if another one is set at once.
/// * `set_barrier` fails while an owned barrier is set, because that one falls with its owner.
/// * The watch of a waiter that gives up is removed. Curator leaves it to the server
///   ([#1170](https://github.com/apache/curator/issues/1170)).
/// * `set_owned` and `is_set` are additions. So is the monotonic clock of the time limit.
///
/// # ZooKeeper layout
///
/// | path | mode | data |
/// | --- | --- | --- |
/// | the barrier's | persistent; ephemeral if owned | the client's default data; a UUID if owned |
///
/// Missing parents are created as containers.
///
/// # Cost
///
/// | operation | requests |
/// | --- | --- |
/// | `set_barrier`, `remove_barrier`, `is_set` | 1; `set_barrier` of one that is set 2 |
/// | `set_owned` | 2: the create, and a read with a watch, which notices a removal |
/// | [`OwnedBarrier::release`] | 2, and at most 1 in the background, a read for the watch on the node |
/// | a wait | 1, and 2 more in each new session; over `zookeeper-async` 1 more after each notification |
#[derive(Clone)]
pub struct DistributedBarrier {
    client: CuratorFramework,
    path: String,
}

impl DistributedBarrier {
    /// Creates a barrier at a path, without a request.
    ///
    /// # Errors
    ///
    /// `Error::InvalidPath`; `BarrierError::InvalidArgument` for the root.
    pub fn new(client: CuratorFramework, path: impl Into<String>) -> Result<Self, BarrierError> {
        let path = path.into();
        check_path(&path)?;
        Ok(Self { client, path })
    }

    /// Returns the barrier's path.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Sets the barrier, if it is not set. It stays until a client removes it.
    ///
    /// # Errors
    ///
    /// * `BarrierError::AlreadySet`: an owned barrier is set, which will fall with its owner. Nothing is changed.
    /// * `Error::ConnectionLoss`, `Error::SessionExpired`: the retry policy gave up. The barrier may be set.
    /// * `Error::NotStarted`, `Error::Closed`, `Error::NoAuth`, `Error::NoChildrenForEphemerals`: the barrier is not
    ///   set. `Error::NoAuth` also means a barrier that another client has set, and that this one may not read.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped the barrier may be set.
    pub async fn set_barrier(&self) -> Result<(), BarrierError> {
        loop {
            match self.client.create().creating_parent_containers_if_needed().for_path(&self.path).await {
                Ok(_) => return Ok(()),
                Err(Error::NodeExists { .. }) => {}
                Err(error) => return Err(error.into()),
            }
            let found = self.client.check_exists().for_path(&self.path).await?;
            match found.map(|stat| owning_session(stat.ephemeral_owner)) {
                // An earlier create with a lost reply may have set it.
                Some(None) => return Ok(()),
                Some(session) => {
                    return Err(BarrierError::AlreadySet { path: self.client.path_text(&self.path), session });
                }
                None => {}
            }
        }
    }

    /// Removes the barrier, if it is set, whichever client has set it. All waiters pass. The call deletes the node at
    /// the path, regardless of its data.
    ///
    /// # Errors
    ///
    /// * `Error::NotEmpty`: the node has children, so it is not a barrier.
    /// * `Error::ConnectionLoss`, `Error::SessionExpired`: the retry policy gave up. The barrier may be removed.
    /// * `Error::NotStarted`, `Error::Closed`, `Error::NoAuth`: the barrier is not removed.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped the barrier may be removed.
    pub async fn remove_barrier(&self) -> Result<(), BarrierError> {
        match self.client.delete().for_path(&self.path).await {
            Ok(()) | Err(Error::NoNode { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns `true` if the barrier is set.
    ///
    /// # Errors
    ///
    /// * `Error::ConnectionLoss`, `Error::SessionExpired`: the retry policy gave up.
    /// * `Error::NotStarted`, `Error::Closed`: the client does not run.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    pub async fn is_set(&self) -> Result<bool, BarrierError> {
        match self.client.check_exists().for_path(&self.path).await {
            // It exists, and the client may not read it.
            Err(Error::NoAuth { .. }) => Ok(true),
            found => Ok(found?.is_some()),
        }
    }

    /// Sets the barrier for as long as the returned guard exists and its session lasts.
    ///
    /// # Errors
    ///
    /// * `BarrierError::AlreadySet`: another client, or another guard, has set it. Nothing is changed.
    /// * `Error::ConnectionLoss`, `Error::SessionExpired`: the retry policy gave up. The barrier is removed in the
    ///   background if it was set.
    /// * `Error::NotStarted`, `Error::Closed`, `Error::NoChildrenForEphemerals`: the barrier is not set by this client.
    /// * `Error::NoAuth`: this client may not create the barrier, or may not read one that is set.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, the barrier is removed in the background if it was set.
    pub async fn set_owned(&self) -> Result<OwnedBarrier, BarrierError> {
        OwnedBarrier::set(&self.client, &self.path).await
    }

    /// Waits until the barrier is not set. Survives lost connections and sessions.
    ///
    /// # Errors
    ///
    /// * `Error::ConnectionLoss`: no connection within the connection timeout, and the retry policy gave up.
    /// * `Error::NoAuth`: the barrier is set, and this client may not read it. Servers from 3.8.4 and 3.9.2 on say so.
    /// * `Error::NotStarted`, `Error::Closed`: the client does not run.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped, and no watch is left.
    pub async fn wait_on_barrier(&self) -> Result<(), BarrierError> {
        self.wait_within(None).await.map(drop)
    }

    /// Waits for at most `budget` until the barrier is not set. Returns `None` if it is set when the budget ends. A
    /// budget of zero reads once, for at most the connection timeout.
    ///
    /// # Errors
    ///
    /// * `Error::ConnectionLoss`: the budget ended before the first reply, or without a connection.
    /// * `Error::ConnectionLoss`: no connection within the connection timeout, and the retry policy gave up.
    /// * `Error::NoAuth`: the barrier is set, and this client may not read it. Servers from 3.8.4 and 3.9.2 on say so.
    /// * `Error::NotStarted`, `Error::Closed`: the client does not run.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped, and no watch is left.
    pub async fn wait_on_barrier_timeout(&self, budget: Duration) -> Result<Option<()>, BarrierError> {
        self.wait_within(Some(budget)).await
    }

    async fn wait_within(&self, budget: Option<Duration>) -> Result<Option<()>, BarrierError> {
        wait(&self.client, &self.path, budget, Removal { path: &self.path, set_by: None }).await
    }
}

impl fmt::Debug for DistributedBarrier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DistributedBarrier").field("path", &self.path).finish_non_exhaustive()
    }
}

/// The removal of the barrier that the first read has shown.
struct Removal<'a> {
    path: &'a str,
    /// The transaction that has set the barrier.
    set_by: Option<i64>,
}

impl Awaited for Removal<'_> {
    type Output = ();

    async fn look(&mut self, session: &Session) -> Result<Look<()>, BarrierError> {
        let (found, watch) = session.exists_watched(self.path).await?;
        Ok(match found {
            // Another transaction has set this barrier only after the first one was removed.
            Some(stat) if *self.set_by.get_or_insert(stat.czxid) == stat.czxid => Look::Wait(watch),
            _ => Look::Done(()),
        })
    }

    fn proven_by(&self, event: EventType) -> Option<()> {
        (event == EventType::NodeDeleted).then_some(())
    }
}
