//! A set of items, divided among the members of a group.
//!
//! | file | contents |
//! | --- | --- |
//! | [`allocation`] | the items of each member; pure |
//! | [`settling`] | the members that count, and the items that this one claims; pure |
//! | [`run`] | follows the members, and drives the items |
//! | [`item`] | one item: its lock, the work under it, its end |
//! | [`inner`], [`ownership`], [`share`] | what a partition, an owned item and the share are |
//! | [`options`] | the options |

mod allocation;
mod inner;
mod item;
mod options;
mod ownership;
mod run;
mod settling;
mod share;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::future::Future;
use std::sync::Arc;

use curator_framework::recipe::RecipeClient as _;
use curator_framework::{CuratorFramework, PathText, make_path, validate_path};
use parking_lot::Mutex;
use tokio::sync::watch;

use self::inner::{Held, Inner};
pub use self::item::OwnedItem;
pub use self::options::PartitionOptions;
pub use self::share::Share;
use crate::groups::member::{GroupMember, GroupMemberOptions};
use crate::groups::members::Members;
use crate::nodes::error::NodeError;
use crate::standing::runs::{Runs, until};

/// Divides a set of items among the members of a group: kazoo's `SetPartitioner`. Each item has at most one owner at a
/// time. It suits work such as the consumption of queues, shards or tenants by several processes.
///
/// A [`LeaderSelector`](crate::LeaderSelector) gives all work to one process. A partition gives each process its share.
///
/// Each process [runs](Self::run) a partition with an id of its own, and with the same items. The present members decide
/// alone, by their names, which items each of them owns. A mutex for each item excludes two owners, even while members
/// disagree.
///
/// | event | effect |
/// | --- | --- |
/// | a member joins | it takes the free items of its share at once; after the time [`settle`](PartitionOptions::settle) the others move, each when its work has returned |
/// | a member leaves, or its session ends | its items have no owner for the time `settle`; then the others take them |
/// | a member leaves and returns within the time `settle` | it takes its items at once, and no other item moves |
/// | the members change again in that time | items stay with their owners for `settle` after the newest change, but at most three times `settle` after the first one |
/// | a member restarts in a loop, for three times `settle` | its items move to the others, until it stays for the time `settle` |
/// | an item is to move | [`OwnedItem::revoked`] resolves; the work has the time [`grace`](PartitionOptions::grace) to return, then it is dropped |
/// | work returns by itself, with or without success | the item stays owned and idle, until it moves: repeat failed work inside of the work |
/// | the session is silent for three quarters of its timeout | all work is dropped, before another member can own an item |
/// | another process has the id | this one waits, and owns nothing: see [`Share::is_member`] |
/// | the members have different sets of items | an item still has at most one owner; it may have none |
///
/// The set of a partition is fixed. To add an item, close the partition in each process, one after the other, and run
/// another one with the new set.
///
/// All clones are one partition, with one run at a time.
///
/// # Balance
///
/// The numbers of items of two members differ by at most one. A change moves little more than it has to. The table
/// counts the moved items at a join; they are the same at a leave.
///
/// | items | members | at least | mean | at most |
/// | --- | --- | --- | --- | --- |
/// | 10 | 3, then 4 | 2 | 3 | 5 |
/// | 100 | 10, then 11 | 9 | 14 | 20 |
/// | 256 | 64, then 65 | 3 | 9 | 14 |
/// | 1000 | 10, then 11 | 90 | 108 | 120 |
///
/// [`allocation`](Self::allocation) computes the same from names, for example for a process that sends requests to the
/// owner of an item. The result is the same in all versions of this crate.
///
/// # Work
///
/// All work of a run shares the task of the caller. Work that blocks its thread holds up the other work. If its session
/// ends in the meantime, the work is dropped only when it yields. So spawn work that computes, in a `JoinSet` that the
/// work owns. [`LockGuard::protect`](crate::LockGuard::protect) lists the kinds of work that continue after the drop of
/// their future.
///
/// An owner that is paused may act late, beside the next one. Let the resource check [`OwnedItem::token`], or write
/// with [`OwnedItem::transaction`].
///
/// A panic of work ends the run. All other work is dropped, and the session gives up the items in the background.
///
/// # Examples
///
/// ```
/// # async fn consume(_queue: &str) {}
/// # #[tokio::main]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = curator_test::TestingServer::start()?;
/// # let retry = curator_framework::RetryOneTime::new(std::time::Duration::from_millis(50));
/// # let client = curator_framework::CuratorFramework::new_client(server.connect_string(), retry)?;
/// # client.start()?;
/// use curator_recipes::Partition;
///
/// let partition = Partition::new(client, "/mailers", "host-7", ["queue-1", "queue-2", "queue-3"])?;
/// let running = partition.clone();
/// let run = tokio::spawn(async move {
///     let work = running.run(async |item| {
///         tokio::select! {
///             () = item.revoked() => {} // another member is to have the queue
///             () = consume(item.name()) => {}
///         }
///     });
///     work.await
/// });
/// partition.watch().wait_for(|share| share.owned.len() == 3).await?;
/// partition.close().await;
/// run.await??;
/// # Ok(())
/// # }
/// ```
///
/// # Differences from kazoo
///
/// | kazoo's `SetPartitioner` | here |
/// | --- | --- |
/// | a change of the members releases all items of all members | only the items that move are released |
/// | the caller polls the state, and releases and waits by itself | [`run`](Self::run) does |
/// | a lost session is a failure: create a new partitioner | the run joins again in the next session |
/// | a member may work on when its session has ended, beside the next owner | the work is dropped before that |
/// | the sorted items go round the sorted members, so one change moves almost all items | see the [balance](#balance) |
/// | `partition_func` | not offered: all members must compute the same |
/// | two processes with one id both get its items, and wait for each other's locks | the second waits |
/// | `time_boundary`, default 30 s | [`settle`](PartitionOptions::settle), default 1 s |
///
/// # ZooKeeper layout
///
/// | path | node |
/// | --- | --- |
/// | `<path>/members/<id>` | a [`GroupMember`] |
/// | `<path>/items/<item>/_c_<uuid>-lock-<number>` | ephemeral, with the id as data: as of an [`InterProcessMutex`](crate::InterProcessMutex) at `<path>/items/<item>` |
///
/// # Cost
///
/// | case | requests |
/// | --- | --- |
/// | a member joins, leaves or follows the others | as for a [`GroupMember`] |
/// | an item is acquired and given up | as for a [mutex](crate::InterProcessMutex#cost): 3 in 2 round trips if it has no owner, and 1 more when another member asks for it |
/// | a member joins, or takes the items of a member that has left | 1 read more for each item of the share, which shows whether it has a contender |
/// | the members change before they have settled | 1 read for each item that a member would take and that was not free |
/// | the items that do not move, and idle members | 0 |
///
/// Each settled change of the members costs a sort of (items × members) pairs of 24 bytes. A million pairs take some
/// 50 ms. A member that joins computes it at each change until it has settled.
#[derive(Clone)]
pub struct Partition {
    inner: Arc<Inner>,
}

/// The share of one run. Its drop publishes an empty one.
struct Sharing<'a>(&'a Inner);

impl Drop for Sharing<'_> {
    fn drop(&mut self) {
        self.0.share.send_replace(Share::default());
        self.0.held.member.lock().take();
    }
}

impl Partition {
    /// Creates a partition, without a request. The id names this process among the members. An id that survives a
    /// restart, such as the name of a host, brings the same items back.
    ///
    /// # Errors
    ///
    /// * `Error::InvalidPath`: ZooKeeper does not allow this path.
    /// * `NodeError::InvalidArgument`: the id or an item is empty, has a slash or cannot be the name of a node; an item
    ///   is repeated, or the set is empty.
    pub fn new<I>(
        client: CuratorFramework,
        path: impl Into<String>,
        id: impl Into<String>,
        items: I,
    ) -> Result<Self, NodeError>
    where
        I: IntoIterator,
        I::Item: Into<String>,
    {
        Self::with_options(client, path, id, items, PartitionOptions::new())
    }

    /// Creates a partition with options.
    ///
    /// # Errors
    ///
    /// * `Error::InvalidPath`: ZooKeeper does not allow this path.
    /// * `NodeError::InvalidArgument`: the id or an item is empty, has a slash or cannot be the name of a node; an item
    ///   is repeated, or the set is empty.
    pub fn with_options<I>(
        client: CuratorFramework,
        path: impl Into<String>,
        id: impl Into<String>,
        items: I,
        options: PartitionOptions,
    ) -> Result<Self, NodeError>
    where
        I: IntoIterator,
        I::Item: Into<String>,
    {
        let (path, id, items) = (path.into(), id.into(), set_of(items)?);
        validate_path(&path)?;
        check_name("id", &id)?;
        let PartitionOptions { settle, grace, data, acl } = options;
        let (share, runs, held) = (watch::Sender::default(), Runs::default(), Held::default());
        Ok(Self { inner: Arc::new(Inner { client, path, id, items, settle, grace, data, acl, share, runs, held }) })
    }

    /// Returns the member to own each item, if these are the members. Empty without members.
    pub fn allocation<'a>(
        members: impl IntoIterator<Item = &'a str>,
        items: impl IntoIterator<Item = &'a str>,
    ) -> BTreeMap<&'a str, &'a str> {
        allocation::allocate(members, items)
    }

    /// Joins the group, and runs `work` for each item that this member owns. Returns `Ok` after
    /// [`close`](Self::close). A program that ends by a signal or another event uses [`run_until`](Self::run_until): a
    /// `select!` of this future and that event drops the work without its grace.
    ///
    /// The run calls `work` each time that an item becomes its own. When [`OwnedItem::revoked`] resolves, the work should
    /// end what it has started, and return. An outage is not an error: the run waits for its end. An item waits while
    /// its lock does not fit among the session's nodes (`Error::TooManyEphemeralNodes`).
    ///
    /// The run has several futures of `work` at a time, so an async closure borrows its state. State that changes needs
    /// a lock, an atomic or a channel.
    ///
    /// # Errors
    ///
    /// * `NodeError::AlreadyStarted`: another run of this partition has not ended.
    /// * `NodeError::Closed`: the partition was closed before the call.
    /// * `Error::NoAuth` and other errors that waiting cannot fix. The work has its grace before the run returns.
    /// * `Error::Closed`: the client was closed.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, all work is dropped, without grace. Then the session gives up the items and leaves the
    /// group, in the background.
    pub async fn run<F>(&self, work: impl FnMut(OwnedItem) -> F) -> Result<(), NodeError>
    where
        F: Future<Output = ()>,
    {
        let inner = &*self.inner;
        // Two runs of one partition would be two members with one id.
        let _run = inner.runs.begin().map_err(|error| NodeError::of_start(error, self.path_text()))?;
        // Dropped before the run ends, so that `close` leaves an empty share.
        let _sharing = Sharing(inner);
        let (client, group) = (inner.client.clone(), make_path(&inner.path, "members"));
        let options = GroupMemberOptions { data: inner.data.clone(), acl: inner.acl.clone() };
        let member = GroupMember::with_options(client, group, &*inner.id, options)?;
        member.start()?;
        *inner.held.member.lock() = Some(member.clone());
        run::drive(inner, &member, &Mutex::new(work)).await
    }

    /// Runs like [`run`](Self::run) until `shutdown` resolves, which closes the partition: it leaves the group, the work
    /// has its [grace](PartitionOptions::grace) to return, and the items are given up. Then returns `Ok`.
    ///
    /// The output of `shutdown` is ignored, so `tokio::signal::ctrl_c()` and the receiver of a channel fit.
    ///
    /// # Errors
    ///
    /// * `NodeError::AlreadyStarted`: another run of this partition has not ended.
    /// * `NodeError::Closed`: the partition was closed before the call.
    /// * `Error::NoAuth` and other errors that waiting cannot fix. The work has its grace before the run returns.
    /// * `Error::Closed`: the client was closed.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, all work is dropped, without grace. Then the session gives up the items and leaves the
    /// group, in the background.
    pub async fn run_until<F>(&self, shutdown: impl Future, work: impl FnMut(OwnedItem) -> F) -> Result<(), NodeError>
    where
        F: Future<Output = ()>,
    {
        until(self.run(work), shutdown, || self.inner.runs.close()).await
    }

    /// Returns the newest share; an empty one without a run.
    #[must_use]
    pub fn share(&self) -> Share {
        self.inner.share.borrow().clone()
    }

    /// Returns the newest share as a channel.
    #[must_use]
    pub fn watch(&self) -> watch::Receiver<Share> {
        self.inner.share.subscribe()
    }

    /// Returns the last known members of the group, with their [data](PartitionOptions::data); `None` before the first
    /// read, and without a run.
    #[must_use]
    pub fn members(&self) -> Option<Members> {
        self.inner.held.member.lock().as_ref().and_then(GroupMember::members)
    }

    /// Returns the id.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.inner.id
    }

    /// Returns the path.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.inner.path
    }

    /// Closes the partition: the run leaves the group, and gives its work the [grace](PartitionOptions::grace) to return.
    /// Resolves when the run has ended, or after the grace and the client's
    /// [`max_close_wait`](curator_framework::CuratorFrameworkBuilder::max_close_wait), 5 s by default: then the session
    /// deletes the nodes in the background. Closing twice is fine.
    ///
    /// Keep polling the run in the meantime, as [`run_until`](Self::run_until) does. A `select!` with a pinned run and
    /// a signal does not. The close then takes the full time, and a node that waits for an item stays until the future
    /// of the run is dropped. The same holds for a `close` in the work itself. Work that blocks its thread keeps its
    /// item until it yields.
    ///
    /// # Cancel safety
    ///
    /// The closing continues when the future is dropped.
    pub async fn close(&self) {
        let Inner { client, grace, runs, held, .. } = &*self.inner;
        runs.close();
        if !runs.ended_within(client, client.close_budget().plus(*grace)).await {
            held.give_up();
        }
    }

    fn path_text(&self) -> PathText {
        self.inner.client.path_text(self.path())
    }
}

impl fmt::Debug for Partition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Partition")
            .field("path", &self.path())
            .field("id", &self.id())
            .field("share", &self.share())
            .finish_non_exhaustive()
    }
}

/// Returns the set of the items, if it is one.
fn set_of<I>(items: I) -> Result<BTreeSet<String>, NodeError>
where
    I: IntoIterator,
    I::Item: Into<String>,
{
    let invalid = |reason| NodeError::InvalidArgument { argument: "items", reason };
    let mut set = BTreeSet::new();
    for item in items {
        let item = item.into();
        check_name("items", &item)?;
        if let Some(repeated) = set.replace(item) {
            return Err(invalid(format!("{repeated:?} is repeated")));
        }
    }
    if set.is_empty() { Err(invalid("the set is empty".to_owned())) } else { Ok(set) }
}

/// Checks that a text can be the name of a node.
fn check_name(argument: &'static str, name: &str) -> Result<(), NodeError> {
    let reason = if name.contains('/') {
        "it has a slash".to_owned()
    } else {
        match validate_path(&format!("/{name}")) {
            Ok(()) if !name.is_empty() => return Ok(()),
            Err(curator_framework::Error::InvalidPath { reason, .. }) if !name.is_empty() => reason.to_string(),
            _ => "it is empty".to_owned(),
        }
    };
    Err(NodeError::InvalidArgument { argument, reason: format!("{name:?}: {reason}") })
}
