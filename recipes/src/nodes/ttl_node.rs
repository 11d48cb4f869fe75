//! A node with a time to live that a task keeps.

use std::time::Duration;

use curator_framework::{Changes, CreateMode, CuratorFramework, ListenerId, make_path, validate_path};
use tokio::sync::watch;

use crate::nodes::error::NodeError;
use crate::nodes::options::{ForeignData, PersistentTtlNodeOptions};
use crate::nodes::persistent_node::PersistentNode;
use crate::nodes::shared::{KeptNode, Touch};
use crate::nodes::state::{NodeState, StandingNode};
use crate::standing::changes::Change;

/// A node that outlives its process by a time to live: Curator's `PersistentTtlNode`.
///
/// The server deletes the child `touch` when it was not written for that time, and then the node without a child. The
/// task writes the child more often. The servers need `zookeeper.extendedTypesEnabled=true`, and `zookeeper-async`
/// cannot create such nodes.
///
/// [Clones](crate#handles) are cheap, and all clones are one node. [`close`](Self::close) and the drop of the last
/// clone end the writes and leave both nodes to the server.
///
/// # Examples
///
/// ```
/// # #[tokio::main]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = curator_test::TestingServer::builder().extended_types(true).start()?;
/// # let retry = curator_framework::RetryOneTime::new(std::time::Duration::from_millis(50));
/// # let client = curator_framework::CuratorFramework::new_client(server.connect_string(), retry)?;
/// # client.start()?;
/// use std::time::Duration;
/// use curator_recipes::PersistentTtlNode;
///
/// let node = PersistentTtlNode::new(client, "/jobs/42", Duration::from_secs(60), "running")?;
/// node.start()?;
/// node.created().await?;
/// node.close().await; // the server deletes the node a minute later
/// # Ok(())
/// # }
/// ```
///
/// # Differences from Curator
///
/// * The child is written before the node counts as created. In Curator a process that ends before the first write
///   leaves the node forever.
/// * A write that the server refuses is reported: [`NodeState::Failed`]. Curator ignores it.
///
/// # ZooKeeper layout
///
/// The node at the path and its child `touch`, both of mode `PERSISTENT_WITH_TTL` with the same time. Curator 5.4 makes a
/// container of the first, which stays if the child was never written. Each adopts the other's node.
///
/// # Cost
///
/// The cost of a [`PersistentNode`], and one write of the child in each half of the time to live. The first one needs a
/// create in addition.
#[derive(Debug, Clone)]
pub struct PersistentTtlNode {
    node: PersistentNode,
}

impl PersistentTtlNode {
    /// Creates the object that keeps a node at a path, without a request.
    ///
    /// # Errors
    ///
    /// * `Error::InvalidPath`: ZooKeeper does not allow this path.
    /// * `NodeError::InvalidArgument`: the path is the root, or the time to live is below a millisecond or above
    ///   [`CreateMode::LONGEST_TTL`]: choose another one.
    pub fn new(
        client: CuratorFramework,
        path: impl Into<String>,
        ttl: Duration,
        data: impl Into<Vec<u8>>,
    ) -> Result<Self, NodeError> {
        Self::with_options(client, path, ttl, data, PersistentTtlNodeOptions::new())
    }

    /// Creates a node with options.
    ///
    /// # Errors
    ///
    /// * `Error::InvalidPath`: ZooKeeper does not allow this path, or the path of the child.
    /// * `NodeError::InvalidArgument`: the path is the root, or the time to live is below a millisecond or above
    ///   [`CreateMode::LONGEST_TTL`]: choose another one.
    /// * `NodeError::InvalidArgument`: the touch factor is 0 or leaves less than a millisecond between two writes, or
    ///   the child is not the name of one node.
    pub fn with_options(
        client: CuratorFramework,
        path: impl Into<String>,
        ttl: Duration,
        data: impl Into<Vec<u8>>,
        options: PersistentTtlNodeOptions,
    ) -> Result<Self, NodeError> {
        let PersistentTtlNodeOptions { child, touch_factor, parents } = options;
        let path = path.into();
        validate_path(&path)?;
        validate_path(&make_path(&path, &child))?;
        let invalid = |argument, reason: &str| Err(NodeError::InvalidArgument { argument, reason: reason.to_owned() });
        if ttl < Duration::from_millis(1) {
            return invalid("time to live", "it is below a millisecond");
        }
        if ttl > CreateMode::LONGEST_TTL {
            return invalid("time to live", "it is above 2^40 - 1 milliseconds");
        }
        if child.contains('/') || child.is_empty() {
            return invalid("child", "it is not the name of one node");
        }
        let Some(every) = ttl.checked_div(touch_factor).filter(|every| *every >= Duration::from_millis(1)) else {
            return invalid("touch factor", "it is 0, or leaves less than a millisecond between two writes");
        };
        let kept = KeptNode {
            path,
            mode: CreateMode::PersistentWithTtl(ttl),
            is_protected: false,
            parents,
            acl: None,
            foreign_data: ForeignData::Keep,
            touch: Some(Touch { child, ttl, every }),
            stays: false,
        };
        Ok(Self { node: PersistentNode::of_kept(client, kept, Some(data.into()))? })
    }

    /// Creates both nodes in the background, and keeps them: see [`PersistentNode::start`].
    ///
    /// # Errors
    ///
    /// * `NodeError::AlreadyStarted`: an earlier call has started the task.
    /// * `NodeError::Closed`: create another object.
    /// * `Error::NoRuntime`: call it in a tokio runtime.
    pub fn start(&self) -> Result<(), NodeError> {
        self.node.start()
    }

    /// Waits until both nodes exist: see [`PersistentNode::created`]. Returns a node too about which the server
    /// [refuses](crate::NodeState::Refused) a request.
    ///
    /// # Errors
    ///
    /// * `NodeError::NotStarted`: call [`start`](Self::start) first.
    /// * `NodeError::Closed`: the node or the client was closed, before or during the call.
    /// * `Error::Unsupported`: the servers or the client cannot create such nodes.
    /// * The error of [`NodeState::Failed`], such as `Error::NoAuth`, at once. The task tries again with pauses, so a
    ///   later call may succeed.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    pub async fn created(&self) -> Result<StandingNode, NodeError> {
        self.node.created().await
    }

    /// Waits for at most `budget`: see [`PersistentNode::created_timeout`]. Returns `Ok(None)`
    /// if the budget ends while the client is connected.
    ///
    /// # Errors
    ///
    /// * `NodeError::NotStarted`, `NodeError::Closed`: the node does not run.
    /// * `NodeError::TakenBy`: another session has the path at the end of the budget.
    /// * `Error::ConnectionLoss`: the budget ended without a connection. The task still tries to create the node.
    /// * `Error::Unsupported`: the servers or the client cannot create such nodes.
    /// * The error of [`NodeState::Failed`], such as `Error::NoAuth`, at once. The task tries again with pauses.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    #[doc(alias = "waitForInitialCreate")]
    pub async fn created_timeout(&self, budget: Duration) -> Result<Option<StandingNode>, NodeError> {
        self.node.created_timeout(budget).await
    }

    /// Returns the present state.
    #[must_use]
    pub fn state(&self) -> NodeState {
        self.node.state()
    }

    /// Returns the state as a channel. It may skip states; [`changes`](Self::changes) does not.
    #[must_use]
    pub fn watch(&self) -> watch::Receiver<NodeState> {
        self.node.watch()
    }

    /// Returns the changes of the state from now on: see
    /// [`PersistentNode::changes`](crate::PersistentNode::changes).
    pub fn changes(&self) -> Changes<Change<NodeState>> {
        self.node.changes()
    }

    /// Returns the path.
    #[must_use]
    pub fn path(&self) -> &str {
        self.node.path()
    }

    /// Returns the data that the task keeps in the node.
    #[must_use]
    pub fn data(&self) -> Vec<u8> {
        self.node.data()
    }

    /// Sets the data of the node: see [`PersistentNode::set_data`].
    ///
    /// # Errors
    ///
    /// * `Error::SchemaViolation`: the data stays as it was.
    /// * `Error::NoAuth`, `Error::RequestTooLarge` and other refusals of a node that exists: the data stays as it was.
    /// * `NodeError::TakenBy`, and refusals of a node that does not exist: the data is kept for the next create.
    /// * `NodeError::Closed`: the node or the client was closed, before or during the call.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped the data is written anyway.
    pub async fn set_data(&self, data: impl Into<Vec<u8>>) -> Result<(), NodeError> {
        self.node.set_data(data).await
    }

    /// Adds a listener, to be called each time when the node was created, or adopted: see
    /// [`PersistentNode::add_listener`].
    pub fn add_listener(&self, listener: impl Fn(&StandingNode) + Send + Sync + 'static) -> ListenerId {
        self.node.add_listener(listener)
    }

    /// Removes a listener. A call that is already queued may still reach it.
    pub fn remove_listener(&self, id: ListenerId) {
        self.node.remove_listener(id);
    }

    /// Ends the writes, and leaves both nodes to the server. Resolves within the client's
    /// [`max_close_wait`](curator_framework::CuratorFrameworkBuilder::max_close_wait). Closing twice is fine.
    ///
    /// # Cancel safety
    ///
    /// The closing continues when the future is dropped.
    pub async fn close(&self) {
        self.node.close().await;
    }
}
