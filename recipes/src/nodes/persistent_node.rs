//! A node that a task keeps on the server.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use curator_framework::recipe::{Budget, RecipeClient as _};
use curator_framework::{Acl, Changes, CuratorFramework, ListenerId, validate_path};
use futures_util::future::join_all;
use tokio::sync::watch;

use crate::nodes::error::NodeError;
use crate::nodes::keeper::Keeper;
use crate::nodes::options::PersistentNodeOptions;
use crate::nodes::shared::{Ending, KeptNode, Shared, Wanted};
use crate::nodes::state::{NodeState, Owner, StandingNode};
use crate::standing::changes::Change;
use crate::standing::{StandingTask, first_found};

/// A node that a task keeps on the server: it creates the node in each session, and again when another client deletes
/// it. Curator's `PersistentNode`.
///
/// With an ephemeral mode it is a registration, which lasts as long as its process. Other clients may see it deleted
/// before this process learns of that. So it gives no right to act alone: use a lock or an election.
///
/// [Clones](crate#handles) are cheap, and all clones are one node. They keep the client open. [`close`](Self::close)
/// deletes the node in every mode, as Curator does, unless it has children. The drop of the last clone does so in the
/// background. If the client is closed first, a node of a mode that is not ephemeral stays: await `close` before.
///
/// # A path that is taken
///
/// | node at the path | of an ephemeral mode | of another mode |
/// | --- | --- | --- |
/// | of another session, or of another object of this client | waits: [`TakenBy`](NodeState::TakenBy) | waits |
/// | of an earlier session of this node | is replaced in one transaction, so the name does not vanish | – |
/// | not ephemeral | waits | is adopted, with its data replaced |
///
/// Over `zookeeper-async`, which has no transactions, a node waits for the end of its own earlier session too. So does
/// a node without the permission to delete.
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
/// use curator_recipes::PersistentNode;
///
/// let node = PersistentNode::new(client.clone(), "/workers/host-7", "http://host-7:8080")?;
/// node.start()?;
/// let standing = node.created().await?;
/// assert_eq!(standing.path, "/workers/host-7");
///
/// node.set_data("http://host-7:9090").await?;
/// assert_eq!(client.get_data().for_path("/workers/host-7").await?.0, b"http://host-7:9090");
/// node.close().await;
/// assert!(client.check_exists().for_path("/workers/host-7").await?.is_none());
/// # Ok(())
/// # }
/// ```
///
/// # Differences from Curator
///
/// * An ephemeral node of another session is never taken for this one. Curator writes its data into it, reports the
///   node as created, and loses it with the other session.
/// * If the server still has the node of the lost session, the new node takes its place in one transaction. The client
///   closes the lost session too; if that is faster, the name is missing for up to two round trips.
/// * Data that another client writes is [reported or replaced](crate::ForeignData). Curator does neither.
/// * An error that waiting cannot fix reaches [`created`](Self::created), and attempts pause. Curator sends creates
///   without a pause after some errors, and none at all after others.
/// * [`set_data`](Self::set_data) works before the first create. Curator's throws.
///
/// # ZooKeeper layout
///
/// The node at the path, named as in Curator: a sequential mode appends a number to the name, and
/// [`protected`](PersistentNodeOptions::protected) puts `_c_<uuid>-` before it. Both stay through sessions.
///
/// # Cost
///
/// | case | requests |
/// | --- | --- |
/// | first create, new session, deletion by another client | 2 in 1 round trip: create, and a read that sets a watch |
/// | first create of a sequential or protected node | 2 in 2 round trips |
/// | lost reply to the first create of an ephemeral sequential node | 2, and 1 for each node with its name and a number |
/// | first create with missing parents | 2 more, and 1 for each parent |
/// | earlier session's node is still there | 4 in 3 round trips |
/// | a node that is not ephemeral exists at the start | 3, and 2 to write its data |
/// | new session, mode not ephemeral | 1 |
/// | [`set_data`](Self::set_data) | 2: the write, and a read that sets the watch again |
/// | data written by another client | 2, and 2 to [mend](crate::ForeignData::Mend) it |
/// | lost connection | none, apart from the watch that the session sets again |
/// | wait for another session's node | none; 2 for each change of that node |
/// | close | 1 |
///
/// The node needs no heartbeat beside the session's pings: it excludes no other client from anything.
#[derive(Clone)]
#[doc(alias = "PersistentEphemeralNode")]
pub struct PersistentNode {
    owner: Arc<OwnerOfNode>,
}

struct OwnerOfNode {
    client: CuratorFramework,
    kept: Arc<KeptNode>,
    shared: Arc<Shared>,
    task: StandingTask,
}

impl PersistentNode {
    /// Creates the object that keeps an ephemeral node at a path, without a request.
    ///
    /// # Errors
    ///
    /// * `Error::InvalidPath`: ZooKeeper does not allow this path.
    /// * `NodeError::InvalidArgument`: the path is the root.
    pub fn new(client: CuratorFramework, path: impl Into<String>, data: impl Into<Vec<u8>>) -> Result<Self, NodeError> {
        Self::with_options(client, path, data, PersistentNodeOptions::new())
    }

    /// Creates a node with options, such as another [mode](PersistentNodeOptions::mode).
    ///
    /// # Errors
    ///
    /// * `Error::InvalidPath`: ZooKeeper does not allow this path.
    /// * `NodeError::InvalidArgument`: the path is the root.
    pub fn with_options(
        client: CuratorFramework,
        path: impl Into<String>,
        data: impl Into<Vec<u8>>,
        options: PersistentNodeOptions,
    ) -> Result<Self, NodeError> {
        Self::of_kept(client, kept(path.into(), options), Some(data.into()))
    }

    /// Creates an ephemeral node. Without data or a list the node gets the client's.
    pub(crate) fn ephemeral(
        client: CuratorFramework,
        path: String,
        data: Option<Vec<u8>>,
        acl: Option<Vec<Acl>>,
    ) -> Result<Self, NodeError> {
        let options = PersistentNodeOptions { acl, ..PersistentNodeOptions::new() };
        Self::of_kept(client, kept(path, options), data)
    }

    pub(super) fn of_kept(client: CuratorFramework, kept: KeptNode, data: Option<Vec<u8>>) -> Result<Self, NodeError> {
        validate_path(&kept.path)?;
        if kept.path == "/" {
            let reason = "the root cannot be created".to_owned();
            return Err(NodeError::InvalidArgument { argument: "node path", reason });
        }
        let shared = Arc::new(Shared::new(data, &kept));
        let task = StandingTask::that_cleans_up();
        Ok(Self { owner: Arc::new(OwnerOfNode { client, kept: Arc::new(kept), shared, task }) })
    }

    /// Creates the node in the background, now or when the client is connected, and keeps it.
    ///
    /// # Errors
    ///
    /// * `NodeError::AlreadyStarted`: an earlier call has started the task.
    /// * `NodeError::Closed`: create another object.
    /// * `Error::NoRuntime`: call it in a tokio runtime.
    pub fn start(&self) -> Result<(), NodeError> {
        let OwnerOfNode { client, kept, shared, task } = &*self.owner;
        // Does not keep the client: its last clone ends the task.
        let (client, kept, shared) = (client.weak_clone(), Arc::clone(kept), Arc::clone(shared));
        let started = task.start(move |stop| {
            shared.publish(NodeState::Creating);
            Keeper::new(client, kept, shared, stop).run()
        });
        started.map_err(|error| NodeError::of_start(error, self.path_text()))
    }

    /// Waits until the node exists, even while a node of another session has the path. Returns the last known node while
    /// the server [refuses](NodeState::Refused) a request about it, and its session lives.
    ///
    /// # Errors
    ///
    /// * `NodeError::NotStarted`: call [`start`](Self::start) first.
    /// * `NodeError::Closed`: the node or the client was closed, before or during the call.
    /// * The error of [`NodeState::Failed`], such as `Error::NoAuth`, at once. The task tries again with pauses, so a
    ///   later call may succeed.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    pub async fn created(&self) -> Result<StandingNode, NodeError> {
        let look = |state| match state {
            NodeState::Standing(node) | NodeState::Refused { node, .. } => Some(Ok(node)),
            NodeState::Creating | NodeState::TakenBy { .. } => None,
            NodeState::Latent => Some(Err(NodeError::NotStarted { path: self.path_text() })),
            NodeState::Failed(error) => Some(Err(error)),
            NodeState::Closed => Some(Err(self.closed())),
        };
        first_found(self.watch(), look).await.unwrap_or_else(|| Err(self.closed()))
    }

    /// Waits like [`created`](Self::created) for at most `budget`: Curator's `waitForInitialCreate`. Returns `Ok(None)`
    /// if the budget ends while the client is connected.
    ///
    /// After a crash the node of the earlier process exists until its session expires. So give a budget above the
    /// session timeout, which is 60 s by default.
    ///
    /// # Errors
    ///
    /// * `NodeError::NotStarted`, `NodeError::Closed`, and the error of [`NodeState::Failed`].
    /// * `NodeError::TakenBy`: another session has the path at the end of the budget.
    /// * `Error::ConnectionLoss`: the budget ended without a connection. The task still tries to create the node.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    #[doc(alias = "waitForInitialCreate")]
    pub async fn created_timeout(&self, budget: Duration) -> Result<Option<StandingNode>, NodeError> {
        match Budget::of(budget).limit(self.created()).await {
            Some(created) => created.map(Some),
            None => match self.state() {
                NodeState::Standing(node) | NodeState::Refused { node, .. } => Ok(Some(node)),
                NodeState::TakenBy { session, .. } => Err(NodeError::TakenBy { path: self.path_text(), session }),
                _ if self.owner.client.is_connected() => Ok(None),
                _ => Err(self.owner.client.no_answer(&format!("create {}", self.path())).into()),
            },
        }
    }

    /// Returns the present state.
    #[must_use]
    pub fn state(&self) -> NodeState {
        self.owner.shared.state.newest()
    }

    /// Returns the state as a channel. It may skip states; [`changes`](Self::changes) does not.
    #[must_use]
    pub fn watch(&self) -> watch::Receiver<NodeState> {
        self.owner.shared.state.watch()
    }

    /// Returns the changes of the state from now on, as a bounded stream. Read the present
    /// [`state`](Self::state) after this call, so that no change is missed; the stream may repeat it.
    pub fn changes(&self) -> Changes<Change<NodeState>> {
        self.owner.shared.state.changes()
    }

    /// Returns the owner of the node at the path; `None` as long as neither this node nor another one is known to
    /// exist.
    #[must_use]
    pub fn owner(&self) -> Option<Owner> {
        match self.state() {
            NodeState::Standing(_) | NodeState::Refused { .. } => Some(Owner::Us),
            NodeState::TakenBy { session, .. } => Some(Owner::Other(session)),
            _ => None,
        }
    }

    /// Returns the given path, without number and protection.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.owner.kept.path
    }

    /// Returns the node's own path: Curator's `getActualPath`. `None` for a sequential or protected node until its first
    /// create has given it a name.
    #[must_use]
    pub fn actual_path(&self) -> Option<String> {
        self.owner.shared.actual_path.borrow().clone()
    }

    /// Returns the data that the task keeps in the node.
    #[must_use]
    pub fn data(&self) -> Vec<u8> {
        self.owner.shared.wanted.borrow().data.to_vec()
    }

    /// Sets the data of the node, at once for all later creates. Resolves when the server has this data, or newer data
    /// of this object. Before [`start`](Self::start) it resolves at once; in an outage it waits for the next
    /// connection.
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
        let data = data.into();
        let OwnerOfNode { client, kept, shared, .. } = &*self.owner;
        client.check_change(&kept.path, &data)?;
        let (mut states, mut written) = (self.watch(), shared.written.subscribe());
        let mut generation = 0;
        shared.wanted.send_modify(|wanted| {
            generation = wanted.generation + 1;
            *wanted = Wanted { data: data.into(), generation, is_default: false };
        });
        loop {
            match &*states.borrow_and_update() {
                NodeState::Latent => return Ok(()),
                NodeState::Closed => return Err(self.closed()),
                _ => {}
            }
            let newest = written.borrow_and_update().clone();
            if newest.generation >= generation {
                return newest.refused.map_or(Ok(()), Err);
            }
            tokio::select! {
                changed = states.changed() => if changed.is_err() { return Err(self.closed()) },
                changed = written.changed() => if changed.is_err() { return Err(self.closed()) },
            }
        }
    }

    /// Adds a listener, to be called each time when the node was created, or adopted. Calls come in order, one at a time,
    /// on a thread apart from the runtime's. So a listener may block, and may panic.
    #[doc(alias = "PersistentNodeListener")]
    #[doc(alias = "nodeCreated")]
    pub fn add_listener(&self, listener: impl Fn(&StandingNode) + Send + Sync + 'static) -> ListenerId {
        self.owner.shared.listeners.add(Arc::new(listener))
    }

    /// Removes a listener. A call that is already queued may still reach it.
    pub fn remove_listener(&self, id: ListenerId) {
        self.owner.shared.listeners.remove(id);
    }

    /// Ends the task and deletes the node, unless the node [stays](PersistentNodeOptions::stays_when_closed). Resolves when
    /// the server has deleted it. Resolves even if the delete has failed, or after the client's
    /// [`max_close_wait`](curator_framework::CuratorFrameworkBuilder::max_close_wait), 5 s by default: then the client
    /// deletes the node in the background. A node with children stays. Closing twice is fine.
    ///
    /// # Cancel safety
    ///
    /// The closing continues when the future is dropped.
    pub async fn close(&self) {
        self.owner.task.close(&self.owner.client).await;
        // Without a start no task publishes the last state.
        drop(Ending(Arc::clone(&self.owner.shared)));
    }

    /// Ends the task and deletes the node as [`close`](Self::close) does, even a node that
    /// [stays](PersistentNodeOptions::stays_when_closed) otherwise. Has no effect after `close`, and before
    /// [`start`](Self::start).
    ///
    /// # Errors
    ///
    /// * `Error::NoAuth`: the server refuses the delete. Give the client the permission on the parent. In the meantime the
    ///   client tries again in the background.
    /// * `Error::NotEmpty`, and other refusals: the same applies once their reason is removed.
    ///
    /// A lost connection is not an error: the client deletes the node later.
    ///
    /// # Cancel safety
    ///
    /// The client deletes the node even if the future is dropped after its first poll.
    pub async fn delete(&self) -> Result<(), NodeError> {
        self.owner.shared.deletes.store(true, Ordering::SeqCst);
        self.close().await;
        self.owner.shared.undeleted.lock().clone().map_or(Ok(()), Err)
    }

    /// Closes several nodes, for example of all services of a process. All deletes leave together: it takes as long as one
    /// [`close`](Self::close).
    ///
    /// # Cancel safety
    ///
    /// All closings continue when the future is dropped.
    pub async fn close_all<'a>(nodes: impl IntoIterator<Item = &'a Self>) {
        join_all(nodes.into_iter().map(Self::close)).await;
    }

    fn path_text(&self) -> curator_framework::PathText {
        self.owner.client.path_text(&self.owner.kept.path)
    }

    fn closed(&self) -> NodeError {
        NodeError::Closed { path: self.path_text() }
    }
}

fn kept(path: String, options: PersistentNodeOptions) -> KeptNode {
    let PersistentNodeOptions { mode, protected: is_protected, parents, acl, foreign_data, stays } = options;
    KeptNode { path, mode, is_protected, parents, acl, foreign_data, touch: None, stays }
}

impl fmt::Debug for PersistentNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PersistentNode")
            .field("path", &self.path())
            .field("mode", &self.owner.kept.mode)
            .field("state", &self.state())
            .finish_non_exhaustive()
    }
}
