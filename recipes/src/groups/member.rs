//! A member of a group.
//!
//! The task of the member's group starts with the member, and waits until the members are wanted. So `members()` needs
//! no runtime, and a process that only registers reads nothing.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use curator_framework::recipe::Budget;
use curator_framework::{Acl, Changes, CuratorFramework, SessionId, make_path, validate_path};
use tokio::sync::watch;

use crate::groups::group::Group;
use crate::groups::members::{GroupState, Member, MemberChange, Members};
use crate::nodes::error::NodeError;
use crate::nodes::persistent_node::PersistentNode;
use crate::nodes::state::{NodeState, StandingNode};

/// The options of a [`GroupMember`].
#[derive(Debug, Clone, Default)]
#[must_use = "options do nothing by themselves"]
pub struct GroupMemberOptions {
    pub(super) data: Option<Vec<u8>>,
    pub(super) acl: Option<Vec<Acl>>,
}

impl GroupMemberOptions {
    /// Returns the defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the member's data. Default: the client's default data, this host's address.
    pub fn data(mut self, data: impl Into<Vec<u8>>) -> Self {
        self.data = Some(data.into());
        self
    }

    /// Sets the access control list of the member's node, which all clients that follow the group must be able to read.
    /// Default: the client's [`AclProvider`](curator_framework::AclProvider).
    pub fn acl(mut self, acl: impl Into<Vec<Acl>>) -> Self {
        self.acl = Some(acl.into());
        self
    }
}

/// A member of a group, which also follows the group if it is asked for the members: Curator's `GroupMember`.
///
/// The member is a [`PersistentNode`] with its id as the name. It joins again in each session, and when another client
/// deletes its node. All clones are one member. They keep the client open.
/// [`close`](Self::close), or the drop of the last clone, takes the member out of the group.
///
/// # Following the others
///
/// A member reads nothing of the others before it is asked. The first call of [`members`](Self::members),
/// [`watch`](Self::watch) or [`changes`](Self::changes) starts to follow the group, as does the first call on
/// [`group`](Self::group) of one of these methods, [`state`](Group::state) or [`initialized`](Group::initialized). It
/// ends when the member is closed. The members are not known at once: [`initialized`](Group::initialized) waits for them.
///
/// # Two members with one id
///
/// The second one is not in the group, and the node of the first one is not touched. [`join_timeout`](Self::join_timeout)
/// fails with [`DuplicateMember`](NodeError::DuplicateMember). The second one joins when the first one has left. After
/// a crash the earlier process is such a first one, until its session expires. So give a budget above the session
/// timeout, which is 60 s by default.
///
/// # Out of the group
///
/// A member's [`changes`](Self::changes) have its id too. [`Left`](MemberChange::Left) with that id says that it was out of
/// the group, for example because its session has expired. [`Joined`](MemberChange::Joined) follows when it is back, with
/// another `czxid`.
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
/// use curator_recipes::{GroupMember, GroupMemberOptions};
///
/// let options = GroupMemberOptions::new().data("http://host-7:8080");
/// let member = GroupMember::with_options(client, "/workers", "host-7", options)?;
/// member.start()?;
/// member.join_timeout(Duration::from_secs(90)).await?.ok_or("the group is slow")?;
/// for member in member.group().initialized().await?.iter() {
///     println!("{} of session {:?}", member.id, member.session);
/// }
/// member.close().await;
/// # Ok(())
/// # }
/// ```
///
/// # Differences from Curator
///
/// * [`members`](Self::members) has the nodes that exist on the server. Curator always adds the caller's own id, even
///   when its node does not exist.
/// * The second process with an id gets an error, and waits. In Curator both are members, and the last data wins.
/// * [`changes`](Self::changes) reports each change, and a [`Member`] has a session and a `czxid`. Curator has neither
///   (CURATOR-314).
/// * [`node`](Self::node) gives access to the member's node (CURATOR-485).
///
/// # ZooKeeper layout
///
/// `<path>/<id>`, ephemeral, below containers, with the member's data, as in Curator. Java's `GroupMember` and this one
/// share one group.
///
/// # Cost
///
/// A member costs as much as a [`PersistentNode`]. One that was asked for the others costs as much as a [`Group`] too.
#[derive(Clone)]
pub struct GroupMember {
    owner: Arc<Owner>,
}

struct Owner {
    id: String,
    node: PersistentNode,
    group: Group,
}

impl GroupMember {
    /// Creates a member of the group at a path, without a request.
    ///
    /// # Errors
    ///
    /// * `Error::InvalidPath`: ZooKeeper does not allow this path, or the id in it.
    /// * `NodeError::InvalidArgument`: the id is empty, or has a slash.
    pub fn new(client: CuratorFramework, path: impl Into<String>, id: impl Into<String>) -> Result<Self, NodeError> {
        Self::with_options(client, path, id, GroupMemberOptions::new())
    }

    /// Creates a member with options.
    ///
    /// # Errors
    ///
    /// * `Error::InvalidPath`: ZooKeeper does not allow this path, or the id in it.
    /// * `NodeError::InvalidArgument`: the id is empty, or has a slash.
    pub fn with_options(
        client: CuratorFramework,
        path: impl Into<String>,
        id: impl Into<String>,
        options: GroupMemberOptions,
    ) -> Result<Self, NodeError> {
        let (path, id) = (path.into(), id.into());
        validate_path(&path)?;
        if id.is_empty() || id.contains('/') {
            let reason = format!("{id:?} is empty or has a slash, so it is not the name of one node");
            return Err(NodeError::InvalidArgument { argument: "id", reason });
        }
        let GroupMemberOptions { data, acl } = options;
        let node = PersistentNode::ephemeral(client.clone(), make_path(&path, &id), data, acl)?;
        Ok(Self { owner: Arc::new(Owner { id, node, group: Group::new(client, path)? }) })
    }

    /// Joins the group in the background, now or when the client is connected. Does not
    /// [follow the others](Self#following-the-others).
    ///
    /// # Errors
    ///
    /// * `NodeError::AlreadyStarted`: an earlier call has started the member.
    /// * `NodeError::Closed`: create another object.
    /// * `Error::NoRuntime`: call it in a tokio runtime.
    pub fn start(&self) -> Result<(), NodeError> {
        self.owner.node.start()?;
        self.owner.group.start_when_wanted()
    }

    /// Waits until the member is in the group. If it [follows the others](Self#following-the-others), also waits until
    /// [`members`](Self::members) has it. Waits as long as another member has its id.
    ///
    /// # Errors
    ///
    /// * `NodeError::NotStarted`: call [`start`](Self::start) first.
    /// * `NodeError::Closed`: the member or the client was closed, before or during the call.
    /// * The error of [`NodeState::Failed`], such as `Error::NoAuth`, at once. The task tries again with pauses, so a
    ///   later call may succeed.
    ///
    /// If the group cannot be read, for example for a missing permission, `join` resolves once the node exists: see
    /// [`watch`](Self::watch).
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    pub async fn join(&self) -> Result<Member, NodeError> {
        loop {
            let standing = self.owner.node.created().await?;
            if let Some(member) = self.seen(standing).await {
                return Ok(member);
            }
        }
    }

    /// Waits like [`join`](Self::join) for at most `budget`. Returns `Ok(None)` if the budget ends while the client is
    /// connected. The member still joins.
    ///
    /// # Errors
    ///
    /// * `NodeError::NotStarted`, `NodeError::Closed`, and the error of [`NodeState::Failed`].
    /// * `NodeError::DuplicateMember`: another session has a member with this id at the end of the budget.
    /// * `Error::ConnectionLoss`: the budget ended without a connection. The member still joins.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    pub async fn join_timeout(&self, budget: Duration) -> Result<Option<Member>, NodeError> {
        match Budget::of(budget).limit(self.join()).await {
            Some(joined) => joined.map(Some),
            None => match self.owner.node.state() {
                NodeState::TakenBy { session, .. } => Err(self.duplicate(session)),
                _ if self.owner.group.is_connected() => Ok(None),
                _ => Err(self.owner.group.no_answer().into()),
            },
        }
    }

    /// Waits until the group shows the member, as long as the group is followed and can be read. Returns `None` if the node
    /// goes first.
    async fn seen(&self, standing: StandingNode) -> Option<Member> {
        let StandingNode { session, czxid, .. } = standing;
        let member = || Member { id: self.owner.id.clone(), data: self.owner.node.data(), session, czxid };
        if !self.owner.group.is_wanted() {
            return Some(member());
        }
        let (mut group, mut node) = (self.watch(), self.owner.node.watch());
        let is_seen = |state: &GroupState| match state {
            GroupState::Known(members) => members.get(&self.owner.id).is_some_and(|member| member.czxid >= czxid),
            GroupState::Latent | GroupState::Loading => false,
            GroupState::Refused { .. } | GroupState::Failed(_) | GroupState::Closed => true,
        };
        tokio::select! {
            biased;
            _ = group.wait_for(is_seen) => {}
            _ = node.wait_for(|state| state.standing().is_none()) => return None,
        }
        Some(member())
    }

    fn duplicate(&self, session: Option<SessionId>) -> NodeError {
        let group = self.owner.group.path_text();
        NodeError::DuplicateMember { group, id: self.owner.id.clone(), session }
    }

    /// Returns the member's id.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.owner.id
    }

    /// Returns the group's path.
    #[must_use]
    pub fn path(&self) -> &str {
        self.owner.group.path()
    }

    /// Returns the group as the member sees it, which is followed once it is [asked](Self#following-the-others).
    #[must_use]
    pub fn group(&self) -> &Group {
        &self.owner.group
    }

    /// Returns the member's node, for its state, its owner and its listeners.
    #[must_use]
    pub fn node(&self) -> &PersistentNode {
        &self.owner.node
    }

    /// Returns the members: see [`Group::members`]. The first call
    /// [starts to follow the others](Self#following-the-others), and returns `None`.
    #[must_use]
    #[doc(alias = "getCurrentMembers")]
    pub fn members(&self) -> Option<Members> {
        self.owner.group.members()
    }

    /// Returns the state of the group as a channel: see [`Group::watch`]. The first call
    /// [starts to follow the others](Self#following-the-others).
    #[must_use]
    pub fn watch(&self) -> watch::Receiver<GroupState> {
        self.owner.group.watch()
    }

    /// Returns the changes of the group: see [`Group::changes`]. The first call
    /// [starts to follow the others](Self#following-the-others).
    pub fn changes(&self) -> Changes<MemberChange> {
        self.owner.group.changes()
    }

    /// Sets the member's data, even before it has joined: Curator's `setThisData`, see [`PersistentNode::set_data`].
    ///
    /// # Errors
    ///
    /// * `Error::SchemaViolation`: the data stays as it was.
    /// * `Error::NoAuth`, `Error::RequestTooLarge` and other refusals of a node that exists: the data stays as it was.
    /// * `NodeError::DuplicateMember`, and refusals of a node that does not exist: the data is kept for the next
    ///   create.
    /// * `NodeError::Closed`: the member or the client was closed, before or during the call.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped the data is written anyway.
    #[doc(alias = "setThisData")]
    pub async fn set_data(&self, data: impl Into<Vec<u8>>) -> Result<(), NodeError> {
        match self.owner.node.set_data(data).await {
            Err(NodeError::TakenBy { session, .. }) => Err(self.duplicate(session)),
            set => set,
        }
    }

    /// Leaves the group, and ends the streams of its changes. Resolves when the member's node is deleted, or after the
    /// client's [`max_close_wait`](curator_framework::CuratorFrameworkBuilder::max_close_wait), 5 s by default: then the
    /// client deletes it in the background. Closing twice is fine.
    ///
    /// # Cancel safety
    ///
    /// The closing continues when the future is dropped.
    pub async fn close(&self) {
        futures_util::future::join(self.owner.node.close(), self.owner.group.close()).await;
    }
}

impl fmt::Debug for GroupMember {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GroupMember")
            .field("id", &self.owner.id)
            .field("node", &self.owner.node)
            .field("group", &self.owner.group)
            .finish()
    }
}
