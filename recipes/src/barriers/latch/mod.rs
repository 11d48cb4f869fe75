//! A count-down latch.
//!
//! | file | contents |
//! | --- | --- |
//! | [`plan`] | the record of a round, and the pure decisions of all operations |
//! | [`store`] | the nodes of a latch, and their reads |
//! | [`call`] | the tries of a call that writes |
//! | [`set_count`] | the call that starts a round |
//! | [`counting`] | one count |
//! | [`opening`] | the wait for the end of a round |
//! | [`participant`] | participants, and the wait for the death of one |

mod call;
mod counting;
mod opening;
pub(crate) mod participant;
mod plan;
mod set_count;
mod store;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use curator_framework::{CuratorFramework, Error, Session, validate_path};

use self::call::run;
use self::counting::Counting;
use self::opening::Opening;
use self::participant::{Deaths, LatchParticipant};
use self::set_count::SetCount;
use self::store::{Known, Store};
use crate::barriers::checks::check_path;
use crate::barriers::error::BarrierError;
use crate::barriers::waiting::wait;

/// A latch that opens after a number of counts, from any processes: the `CountDownLatch` of `java.util.concurrent`
/// between processes. Curator does not have it; in Redisson it is `RCountDownLatch`.
///
/// [`try_set_count`](Self::try_set_count) starts a round with a count. Each [`count_down`](Self::count_down) lowers it
/// by one. At zero the round ends: all its waiters pass, and the next round may start.
///
/// # Counted once
///
/// Each count is a child of the round's node, named by the id of its operation. A second create of that child fails, so
/// a count is made once, even if replies, connections and sessions are lost. [`count_down_as`](Self::count_down_as)
/// takes the id from the caller: a process that repeats its work after a crash counts once too.
///
/// The last count and the mark that the round has ended are one transaction. So no process can die between the two.
///
/// # Participants
///
/// A process that will count can announce that: [`participate`](Self::participate) creates an ephemeral node. If the
/// process dies before its count, [`participant_lost`](Self::participant_lost) reports its name to the others.
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
/// use curator_recipes::CountDownLatch;
///
/// let latch = CountDownLatch::new(client.clone(), "/latches/import")?;
/// assert!(latch.try_set_count(2).await?);
/// let waiter = latch.clone();
/// let waiting = tokio::spawn(async move { waiter.wait().await });
///
/// assert_eq!(latch.count_down_as("part-1").await?, 1);
/// assert_eq!(latch.count_down_as("part-1").await?, 1); // it is counted already
/// let participant = latch.participate("host-7").await?;
/// tokio::select! {
///     left = participant.count_down() => assert_eq!(left?, 0),
///     lost = latch.participant_lost() => println!("{} has died", lost?),
/// }
/// waiting.await??;
/// # Ok(())
/// # }
/// ```
///
/// # Differences from Redisson's `RCountDownLatch`
///
/// * A count with a lost reply counts once. Redisson's counts twice if it is repeated.
/// * A waiter cannot miss the end of its round: it passes even if it was away while that round ended and the next one
///   started.
/// * A latch that was never set is an error, [`NotSet`](BarrierError::NotSet). Redisson's lets waiters pass.
/// * Participants, operation ids and numbers of rounds are additions.
///
/// # ZooKeeper layout
///
/// | path | mode | data |
/// | --- | --- | --- |
/// | the latch's | persistent | `<round> <count> <id of the call>`, and ` open` after the end of the round |
/// | `<round>` below it | persistent | empty; its version is the number of counts |
/// | `<round>/<operation id>` | persistent | empty: one count |
/// | `here/<operation id>-<round>-<name>` | ephemeral | the operation id: one participant |
///
/// The first round of a latch has the zxid of its node as number, each later one a number larger by one.
/// `try_set_count` deletes the nodes of earlier rounds. A client cannot list a round above
/// [`max_reply`](curator_framework::CuratorFrameworkBuilder::max_reply), by default some 100,000 counts without ids of the
/// caller. The nodes of such a round stay, and each object of the latch reads the listing once.
///
/// # Cost
///
/// | operation | requests |
/// | --- | --- |
/// | `count_down` | 1 after an earlier one of this object, if no other client has counted since; else 3; 5 if no count is left |
/// | `try_set_count` | 6, and a delete for each count of the round before; 3 if counts are left |
/// | `wait` | 2, however many counts follow, even if no count is left; 2 more in each new session |
/// | `count`, `round` | 2; 5 if no count is left, which is read again after a write |
/// | `glance` | 2; 1 without a count |
/// | `participate` | 5; the first one of a latch 7 |
/// | [`LatchParticipant::count_down`] | as `count_down`, and at most 1 in the background, a read for the watch on the node |
/// | `participant_lost` | a listing, and one more whenever participants join or count, with 1 read for each that counts |
///
/// # Over `zookeeper-async`
///
/// That client has no transactions, so the calls that write fail with `Error::Unsupported` before they write:
/// `try_set_count`, `count_down`, `count_down_as` and `participate`. The calls that only read work.
#[derive(Clone)]
pub struct CountDownLatch {
    store: Arc<Store>,
}

impl CountDownLatch {
    /// Creates a latch at a path, without a request.
    ///
    /// # Errors
    ///
    /// `Error::InvalidPath`; `BarrierError::InvalidArgument` for the root.
    pub fn new(client: CuratorFramework, path: impl Into<String>) -> Result<Self, BarrierError> {
        let path = path.into();
        check_path(&path)?;
        Ok(Self { store: Arc::new(Store::new(client, path)) })
    }

    /// Returns the latch's path.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.store.path
    }

    /// Starts a round with this count, unless a round is in progress. Returns `true` if this call started it.
    ///
    /// # Errors
    ///
    /// * `BarrierError::InvalidArgument`: the count is 0.
    /// * `BarrierError::NotALatch`: the path has other data.
    /// * `Error::ConnectionLoss`, `Error::SessionExpired`: the retry policy gave up. With an [unknown
    ///   outcome](BarrierError::outcome_unknown) the round may have started, and may already have ended, or been
    ///   deleted with the latch.
    /// * `Error::NotStarted`, `Error::Closed`, `Error::NoAuth`, `Error::NoChildrenForEphemerals`: no round has started.
    /// * `Error::Unsupported`: the client has no transactions; use the default client. Nothing is written.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, the round may have started.
    pub async fn try_set_count(&self, count: u32) -> Result<bool, BarrierError> {
        if count == 0 {
            return Err(BarrierError::InvalidArgument { argument: "count", reason: "it cannot be 0".to_owned() });
        }
        run(&self.store, SetCount::new(&self.store, count)).await
    }

    /// Returns how many counts are left in the present round; 0 if it has ended.
    ///
    /// # Errors
    ///
    /// * `BarrierError::NotSet`: no round has started. `BarrierError::NotALatch`: the path has other data.
    /// * `Error::ConnectionLoss`, `Error::SessionExpired`: the retry policy gave up.
    /// * `Error::NoAuth`: the ACL forbids reading the latch. `Error::NoNode`: another program has deleted the node of
    ///   the round.
    /// * `Error::NotStarted`, `Error::Closed`: the client does not run.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    pub async fn count(&self) -> Result<u32, BarrierError> {
        Ok(self.read().await?.0.left())
    }

    /// Returns the number of the present round. Later rounds have larger numbers, even if the latch was deleted and set
    /// again.
    ///
    /// # Errors
    ///
    /// * `BarrierError::NotSet`: no round has started. `BarrierError::NotALatch`: the path has other data.
    /// * `Error::ConnectionLoss`, `Error::SessionExpired`: the retry policy gave up.
    /// * `Error::NoAuth`: the ACL forbids reading the latch. `Error::NoNode`: another program has deleted the node of
    ///   the round.
    /// * `Error::NotStarted`, `Error::Closed`: the client does not run.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    pub async fn round(&self) -> Result<u64, BarrierError> {
        Ok(self.read().await?.0.record.round)
    }

    /// Returns the number of the present round, and how many counts are left, as the connected server has them; `None` if
    /// it has no round. For displays: the server may lag behind, and this call never writes to find out, as `count` does.
    ///
    /// # Errors
    ///
    /// * `BarrierError::NotALatch`: the path has other data.
    /// * `Error::ConnectionLoss`, `Error::SessionExpired`: the retry policy gave up.
    /// * `Error::NoAuth`: the ACL forbids reading the latch. `Error::NoNode`: another program has deleted the node of
    ///   the round.
    /// * `Error::NotStarted`, `Error::Closed`: the client does not run.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    pub async fn glance(&self) -> Result<Option<(u64, u32)>, BarrierError> {
        let mut retries = self.store.client.retry_loop();
        loop {
            let session = retries.connected(self.path()).await?;
            let known = match self.store.read_once(&session.pinned()).await {
                Err(BarrierError::NotSet { .. }) => return Ok(None),
                known => known,
            };
            if let Some(known) = retries.done(known, self.path()).await? {
                return Ok(Some((known.record.round, known.left())));
            }
        }
    }

    /// Counts once, in the present round. Returns how many counts are left; 0 too if the round has ended.
    ///
    /// # Errors
    ///
    /// * `BarrierError::NotSet`: no round has started. `BarrierError::NotALatch`: the path has other data.
    /// * `Error::ConnectionLoss`, `Error::SessionExpired`: the retry policy gave up. With an [unknown
    ///   outcome](BarrierError::outcome_unknown) the count may be made. A repeated call may count again;
    ///   [`count_down_as`](Self::count_down_as) never does.
    /// * `Error::NotStarted`, `Error::Closed`, `Error::NoAuth`: the count is not made.
    /// * `Error::Unsupported`: the client has no transactions; use the default client. Nothing is written.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, the count may be made, once.
    pub async fn count_down(&self) -> Result<u32, BarrierError> {
        run(&self.store, Counting::new(&self.store, None, None)).await
    }

    /// Counts as [`count_down`](Self::count_down) does, but once in a round for each operation id, over all processes.
    /// The id is the name of a node: it has no `/`.
    ///
    /// # Errors
    ///
    /// * `BarrierError::InvalidArgument`: the id cannot be the name of a node.
    /// * `BarrierError::NotSet`: no round has started. `BarrierError::NotALatch`: the path has other data.
    /// * `Error::ConnectionLoss`, `Error::SessionExpired`: the retry policy gave up. With an [unknown
    ///   outcome](BarrierError::outcome_unknown) the count may be made. Call it again with the same id: it counts once.
    /// * `Error::NotStarted`, `Error::Closed`, `Error::NoAuth`: the count is not made.
    /// * `Error::Unsupported`: the client has no transactions; use the default client. Nothing is written.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, the count may be made, once.
    pub async fn count_down_as(&self, operation_id: &str) -> Result<u32, BarrierError> {
        check_name("operation id", operation_id)?;
        run(&self.store, Counting::new(&self.store, Some(operation_id.to_owned()), None)).await
    }

    /// Waits until the present round ends. Survives lost connections and sessions.
    ///
    /// # Errors
    ///
    /// * `BarrierError::NotSet`: no round has started, or the latch was deleted during the wait, and counts may be
    ///   left.
    /// * `BarrierError::NotALatch`: the path has other data.
    /// * `Error::ConnectionLoss`: no connection within the connection timeout, and the retry policy gave up.
    /// * `Error::NotStarted`, `Error::Closed`, `Error::NoAuth`: the client does not run, or may not read the latch.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped, and no watch is left.
    pub async fn wait(&self) -> Result<(), BarrierError> {
        self.wait_within(None).await.map(drop)
    }

    /// Waits for at most `budget` until the present round ends. Returns `None` if counts are left when the budget ends.
    /// A budget of zero reads once, for at most the connection timeout.
    ///
    /// # Errors
    ///
    /// * `BarrierError::NotSet`: no round has started, or the latch was deleted during the wait, and counts may be
    ///   left.
    /// * `BarrierError::NotALatch`: the path has other data.
    /// * `Error::ConnectionLoss`: the budget ended before the first reply, or without a connection.
    /// * `Error::ConnectionLoss`: no connection within the connection timeout, and the retry policy gave up.
    /// * `Error::NotStarted`, `Error::Closed`, `Error::NoAuth`: the client does not run, or may not read the latch.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped, and no watch is left.
    pub async fn wait_timeout(&self, budget: Duration) -> Result<Option<()>, BarrierError> {
        self.wait_within(Some(budget)).await
    }

    async fn wait_within(&self, budget: Option<Duration>) -> Result<Option<()>, BarrierError> {
        wait(&self.store.client, self.path(), budget, Opening { store: &self.store, round: None }).await
    }

    /// Announces that this process will count in the present round. The other processes see the name, which has no `/`.
    ///
    /// # Errors
    ///
    /// * `BarrierError::InvalidArgument`: the name cannot be part of the name of a node.
    /// * `BarrierError::NotSet`: no round has started. `BarrierError::NotALatch`: the path has other data.
    /// * `Error::ConnectionLoss`, `Error::SessionExpired`: the retry policy gave up; `Error::NotStarted`,
    ///   `Error::Closed`, `Error::NoAuth`. The participant's node is deleted in the background if it was created.
    /// * `Error::Unsupported`: the client has no transactions; use the default client. Nothing is written.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, the participant's node is deleted in the background if it was created.
    pub async fn participate(&self, name: &str) -> Result<LatchParticipant, BarrierError> {
        check_name("name", name)?;
        self.store.check_transactions().await?;
        loop {
            let (known, session) = self.read().await?;
            let participant = LatchParticipant::join(&self.store, known.record, name, session.new_id()).await?;
            // A server that lags behind may have shown an earlier round.
            if participant.is_in_present_round().await? {
                return Ok(participant);
            }
        }
    }

    /// Resolves with the name of a participant that has lost its node before its count, in a round that is not over.
    /// Its session has ended, or it was dropped. The call reports only participants that it has seen, and waits for the
    /// first one, even at a latch that is not set.
    ///
    /// # Errors
    ///
    /// * `BarrierError::NotALatch`: the path had other data when a participant lost its node.
    /// * `Error::ConnectionLoss`: no connection within the connection timeout, and the retry policy gave up.
    /// * `Error::NotStarted`, `Error::Closed`, `Error::NoAuth`: the client does not run, or may not read the nodes.
    ///
    /// # Cancel safety
    ///
    /// No watch is left when the future is dropped. A participant that is lost between two calls is not reported.
    pub async fn participant_lost(&self) -> Result<String, BarrierError> {
        let deaths = Deaths { store: &self.store, listed: BTreeSet::new() };
        // Without a budget only a death ends the wait.
        wait(&self.store.client, self.path(), None, deaths).await?.ok_or_else(|| Error::Closed.into())
    }

    /// Reads the state of the present round. Also returns the session that has read it.
    async fn read(&self) -> Result<(Known, Session), BarrierError> {
        let mut retries = self.store.client.retry_loop();
        loop {
            let session = retries.connected(self.path()).await?;
            let known = self.store.read(&session, None).await;
            if let Some(known) = retries.done(known, self.path()).await? {
                return Ok((known, session));
            }
        }
    }
}

impl fmt::Debug for CountDownLatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CountDownLatch").field("path", &self.path()).finish_non_exhaustive()
    }
}

/// Checks a part of the name of a node.
fn check_name(argument: &'static str, name: &str) -> Result<(), BarrierError> {
    let is_name = !name.is_empty() && !name.contains('/') && validate_path(&format!("/{name}")).is_ok();
    let reason = || format!("{name:?} cannot be the name of a node");
    is_name.then_some(()).ok_or_else(|| BarrierError::InvalidArgument { argument, reason: reason() })
}
