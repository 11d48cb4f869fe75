//! A double barrier: members enter together and leave together.
//!
//! The life of a round:
//!
//! | file | function | step |
//! | --- | --- | --- |
//! | `enter.rs` | `enter` | makes one attempt after the other, each in one session, within the budget |
//! | `enter.rs` | `arrive` | creates the member's node and raises the barrier's version in one transaction: its reply has the number of children |
//! | `plan/entering.rs` | `next` | decides by that number: list the members, or read `ready` with a watch |
//! | `plan/entering.rs` | `open` | lets the last member create `ready`, if each member that it has listed still exists |
//! | `attempt.rs` | `wait` | waits for the watch, the loss of the member's node, the end of the budget |
//! | `enter.rs` | `give_up` | deletes the node if the barrier still has the version last read: otherwise the member may have entered |
//! | `member.rs` | `watch_others` | watches the other members for a death, while the caller works |
//! | `leave.rs` | `depart` | writes to the node and deletes it, in one transaction |
//! | `plan/leaving.rs` | `next` | the last member deletes `ready`, the others wait for that; after a grace they search for dead members |

mod attempt;
mod enter;
mod leave;
mod member;
mod nodes;
mod options;
mod plan;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use curator_framework::recipe::{Budget, owning_session};
use curator_framework::{CuratorFramework, Error, Zxid, make_path};
use futures_util::future::join_all;

use self::enter::enter;
pub use self::member::{BarrierMember, Departure};
use self::nodes::Nodes;
pub use self::options::DoubleBarrierOptions;
use crate::barriers::checks::found;
use crate::barriers::error::BarrierError;
use crate::groups::members::Member;

/// A barrier that members enter together and leave together: Curator's `DistributedDoubleBarrier`.
///
/// [`enter`](Self::enter) returns when all members have arrived, [`BarrierMember::leave`] when all have left or died.
/// Then the next round can start. Within one process [`tokio::sync::Barrier`] does the same without a server. Clones
/// are cheap, and keep the client open. Each call of `enter` is a separate member.
///
/// # Rounds
///
/// A round starts when the last member opens the barrier, in one transaction, which checks that the node of each
/// counted member exists. So a member enters only if `member_qty` members, or the
/// [quorum](DoubleBarrierOptions::quorum), were there at one moment. A member that arrives while members of a round are
/// still there joins that round. A barrier that dead members have left open is closed first.
///
/// # Losing a member
///
/// A member is lost with its session. Before the barrier opens it arrives again in the next session, and counts once.
/// After that, [`BarrierMember::lost`] reports the loss to the member itself; [`BarrierMember::member_lost`] and
/// [`Departure::died`] report it to the others. No wait hangs when a member dies: `leave` notices a death at most a
/// tenth of the session timeout after the server has deleted the node of the dead member.
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
/// use curator_recipes::DistributedDoubleBarrier;
///
/// let barrier = DistributedDoubleBarrier::new(client.clone(), "/jobs/nightly", 2)?;
/// let other = barrier.clone(); // in another process
/// let worker = tokio::spawn(async move { other.enter().await?.leave().await });
/// match barrier.enter_timeout(Duration::from_secs(30)).await? {
///     Some(member) => {
///         println!("all members have begun");
///         println!("all members have ended, {} by dying", member.leave().await?.died);
///     }
///     None => println!("no second member has come"), // its node is deleted
/// }
/// worker.await??;
/// # client.close().await;
/// # Ok(())
/// # }
/// ```
///
/// # Differences from Curator
///
/// * At the end of its budget a member deletes its node. Curator's node stays and counts, so a later member enters
///   alone (CURATOR-80, CURATOR-318).
/// * A `ready` that dead members have left lets no member in. Curator's next member enters alone.
/// * A member continues after a lost reply. Curator's caller gets `NodeExists`, and its node stays.
/// * A late member enters the round. In Curator a late member may make all others wait forever.
/// * The death of a member is reported, and no wait hangs for it. `leave` returns
///   [`BarrierError::Lost`](crate::BarrierError::Lost) if the member's own node was lost.
/// * [Quorum](DoubleBarrierOptions::quorum), [rounds](BarrierMember::round), the
///   [member that opens](BarrierMember::has_opened) and [members](Self::members) are additions.
/// * These promises hold for groups without Java's clients.
///
/// # Over `zookeeper-async`
///
/// That client has no transactions, so `enter` fails with `Error::Unsupported` before it writes.
/// [`members`](Self::members) works.
///
/// # ZooKeeper layout
///
/// | node | mode | data |
/// | --- | --- | --- |
/// | `<path>` | container | the number of members; each change of a child writes it too |
/// | `<path>/_c_<uuid>-member` | ephemeral | the [id](DoubleBarrierOptions::id) |
/// | `<path>/ready` | persistent, while a round lasts | the names of the members of the round |
///
/// Give the barrier a path of its own: members overwrite the data of a node that exists there. Each other child counts
/// as a member, for Java's clients too. So fewer members open the barrier, and wait in `leave` until that child is
/// deleted. Java's clients take part, and ignore the data.
///
/// # Cost
///
/// | step | requests | round trips |
/// | --- | --- | --- |
/// | enter | 2 | 2, and the notification |
/// | enter as the last member | 3 | 3 |
/// | the end of a budget | 2, of which one removes the watch | 1 |
/// | leave | 2 | 2, and the notification |
/// | leave as the last member | 2 | 2 |
/// | `members` | 1, and 1 for each member | 2 |
/// | `member_lost` | 3, and 1 for each other member, which is watched | 2, and the notification |
///
/// Waiting sends nothing, apart from one read: after a tenth of the session timeout a member watches its own node. When
/// that member leaves, at most 1 read follows in the background. A member that waits in `leave` for longer than a tenth
/// of the timeout sends 4 requests, and again when the member that it watches has gone. After half of that time 1 read
/// follows at the end. The transaction that opens the barrier checks each member. With a short path some eight thousand
/// fit into the default frame, and after that some twenty thousand late members of one round.
#[derive(Clone)]
pub struct DistributedDoubleBarrier {
    nodes: Arc<Nodes>,
}

impl DistributedDoubleBarrier {
    /// Creates a barrier for `member_qty` members at a path, without a request.
    ///
    /// # Errors
    ///
    /// * `Error::InvalidPath`: ZooKeeper does not allow this path.
    /// * `BarrierError::InvalidArgument`: `member_qty` is 0, or the path is the root.
    pub fn new(client: CuratorFramework, path: impl Into<String>, member_qty: usize) -> Result<Self, BarrierError> {
        Self::with_options(client, path, member_qty, DoubleBarrierOptions::new())
    }

    /// Creates a barrier with options.
    ///
    /// # Errors
    ///
    /// * `Error::InvalidPath`: ZooKeeper does not allow this path.
    /// * `BarrierError::InvalidArgument`: `member_qty` is 0, the path is the root, or the quorum is 0 or above
    ///   `member_qty`.
    pub fn with_options(
        client: CuratorFramework,
        path: impl Into<String>,
        member_qty: usize,
        options: DoubleBarrierOptions,
    ) -> Result<Self, BarrierError> {
        Ok(Self { nodes: Arc::new(Nodes::new(client, path.into(), member_qty, options)?) })
    }

    /// Returns the barrier's path.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.nodes.path
    }

    /// Enters the barrier: waits until all members have arrived, over lost connections and sessions.
    ///
    /// # Errors
    ///
    /// * `Error::NoAuth`: the access control lists forbid reading, creating or deleting nodes; fix the credentials.
    /// * `Error::NoChildrenForEphemerals`: the path, or its parent, is an ephemeral node; choose another path.
    /// * `Error::RequestTooLarge`: the transaction that opens the barrier does not fit; see the cost. Raise the client's
    ///   largest frame, and the servers'.
    /// * `Error::TooManyEphemeralNodes`: the session cannot have another node. Delete others, or use another client.
    /// * `Error::ConnectionLoss`, `Error::SessionExpired`: the retry policy has given up.
    /// * `Error::NotStarted`, `Error::Closed`: the client does not run.
    /// * `Error::Unsupported`: the client has no transactions; use the default client. Nothing is written.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, the node of the member is deleted in the background.
    pub async fn enter(&self) -> Result<BarrierMember, BarrierError> {
        // Without a budget the wait does not end before.
        self.enter_within(Budget::ENDLESS).await?.ok_or_else(|| Error::Closed.into())
    }

    /// Enters like [`enter`](Self::enter), and waits at most for `budget`. Returns `None` if the barrier is not open
    /// then. The node of the member is deleted before that, so it counts no longer. With a budget of zero the member
    /// enters only if it is the last one.
    ///
    /// # Errors
    ///
    /// * `Error::ConnectionLoss`: no server has replied at the end of the budget and of a further tenth of the session
    ///   timeout. The node is deleted in the background then.
    /// * `Error::ConnectionLoss`, `Error::SessionExpired`: the retry policy has given up.
    /// * `Error::NoAuth`: the access control lists forbid reading, creating or deleting nodes; fix the credentials.
    /// * `Error::NoChildrenForEphemerals`: the path, or its parent, is an ephemeral node; choose another path.
    /// * `Error::RequestTooLarge`: the transaction that opens the barrier does not fit; see the cost. Raise the
    ///   client's largest frame, and the servers'.
    /// * `Error::TooManyEphemeralNodes`: the session cannot have another node. Delete others, or use another client.
    /// * `Error::NotStarted`, `Error::Closed`: the client does not run.
    /// * `Error::Unsupported`: the client has no transactions; use the default client. Nothing is written.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, the node of the member is deleted in the background.
    pub async fn enter_timeout(&self, budget: Duration) -> Result<Option<BarrierMember>, BarrierError> {
        self.enter_within(Budget::of(budget)).await
    }

    async fn enter_within(&self, budget: Budget) -> Result<Option<BarrierMember>, BarrierError> {
        let entering = Box::pin(enter(&self.nodes, budget));
        let entered = self.nodes.bounded(budget, "entering the barrier", entering).await?;
        entered.map(|(own, plan)| BarrierMember::new(Arc::clone(&self.nodes), own, &plan)).transpose()
    }

    /// Returns the members with nodes that exist, in the order of their arrival.
    ///
    /// # Errors
    ///
    /// * `Error::NoAuth`: the access control list of a member's node does not let this client read it.
    /// * `Error::ConnectionLoss`, `Error::SessionExpired`: the retry policy has given up.
    /// * `Error::NotStarted`, `Error::Closed`: the client does not run.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    pub async fn members(&self) -> Result<Vec<Member>, BarrierError> {
        let mut retries = self.nodes.client.retry_loop();
        loop {
            let session = retries.connected(self.path()).await?;
            let read = async |name: String| {
                let read = found(session.get_data(&make_path(self.path(), &name)).await)?;
                Ok::<_, Error>(read.map(|(data, stat)| {
                    let id = if data.is_empty() { name } else { String::from_utf8_lossy(&data).into_owned() };
                    let (session, czxid) = (owning_session(stat.ephemeral_owner), Zxid::new(stat.czxid));
                    Member { id, data, session, czxid }
                }))
            };
            let members = async {
                let names = self.nodes.members(&session).await?;
                let all = session.in_one_write(join_all(names.into_iter().map(read))).await;
                let mut members = all.into_iter().filter_map(Result::transpose).collect::<Result<Vec<_>, Error>>()?;
                members.sort_unstable_by_key(|member| member.czxid);
                Ok::<_, Error>(members)
            };
            if let Some(members) = retries.done(members.await, self.path()).await? {
                return Ok(members);
            }
        }
    }
}

impl fmt::Debug for DistributedDoubleBarrier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DistributedDoubleBarrier")
            .field("path", &self.nodes.path)
            .field("member_qty", &self.nodes.quantity)
            .field("options", &self.nodes.options)
            .finish_non_exhaustive()
    }
}
