//! The ownership of one node, and its create.

use std::sync::Arc;

use super::exact::Exact;
use crate::error::{Error, PathText, Result};
use crate::model::new_node::NodeSpec;
use crate::model::path::{make_path, node_from_path, parent_of};
use crate::model::protected::{ProtectedId, normalize, to_protected_path};
use crate::model::{Acl, CreateMode, Stat};
use crate::session::Session;
use crate::session::known_node::KnownNode;
use crate::zookeeper::{Done, Operation};

/// A node that was just created.
#[derive(Debug, Clone)]
pub struct Created {
    /// The node's stat in the reply.
    pub stat: Stat,
    /// The epoch that carried the reply: later reads on that connection are not older than the create.
    pub epoch: u64,
}

/// The ownership of one node under one session, from before its create is sent until it is deleted.
///
/// However the owner fails (an error, a time-out, a dropped future), `Drop` hands the node to the session's
/// background task, which finds and deletes it. While an owned node exists, only the leader's replies move the
/// session's deadline.
#[derive(Debug)]
pub struct OwnedNode {
    pub(super) session: Session,
    /// The path of the create: without the number that the server appends.
    pub(super) path: Box<str>,
    pub(super) id: ProtectedId,
    /// `Some` if the id is the node's data, and not in its name.
    // Boxed: it must not enlarge the node of every waiter.
    pub(super) exact: Option<Box<Exact>>,
    /// Its transactions join others.
    pub(super) joins: bool,
    pub(super) mode: CreateMode,
    /// A create was sent and its reply lost, so none, one or two nodes exist.
    pub(super) outcome_unknown: bool,
    /// The one node, as soon as it is known.
    pub(super) node: Option<Arc<KnownNode>>,
    /// A delete was sent, and its outcome is unknown.
    pub(super) delete_sent: bool,
    /// No node is left to delete.
    pub(super) cleaned_up: bool,
}

impl Session {
    /// Returns an owned node under `parent`, to be named `_c_<uuid>-<name>`. Sends no request.
    #[must_use]
    pub fn owned_node(&self, parent: &str, name: &str, mode: CreateMode) -> OwnedNode {
        self.owned_node_of(parent, name, mode, self.new_id())
    }

    /// Returns an owned node like [`owned_node`](Self::owned_node), with a given id. If the mode is not sequential, a late
    /// create of an earlier session with the same id fails beside the node, or the node's create beside that one.
    #[must_use]
    pub fn owned_node_of(&self, parent: &str, name: &str, mode: CreateMode, id: ProtectedId) -> OwnedNode {
        OwnedNode::new(self.clone(), parent, id, name, mode)
    }

    /// Returns an owned node like [`owned_node`](Self::owned_node). Its name sorts behind the name of the node with the
    /// id `other`, if the rest of both names is the same. `None` if such a name is not left.
    #[must_use]
    pub fn owned_node_behind(
        &self,
        parent: &str,
        name: &str,
        mode: CreateMode,
        other: ProtectedId,
    ) -> Option<OwnedNode> {
        let id = other.behind(&*self.inner.randomness)?;
        Some(self.owned_node_of(parent, name, mode, id))
    }

    /// Returns the path of a node under `parent`, to be named `_c_<uuid>-<name>`, with a new id. Sends no request.
    #[must_use]
    pub fn new_protected_path(&self, parent: &str, name: &str) -> String {
        Self::protected_path(parent, self.new_id(), name)
    }

    /// Returns the path of an owned node, without its number.
    pub(crate) fn protected_path(parent: &str, id: ProtectedId, name: &str) -> String {
        to_protected_path(parent, name, id)
    }
}

impl OwnedNode {
    pub(crate) fn new(session: Session, parent: &str, id: ProtectedId, name: &str, mode: CreateMode) -> Self {
        session.add_owned_node();
        Self {
            // An owned node outlives the connection.
            session: session.unpinned(),
            path: Session::protected_path(parent, id, name).into(),
            id,
            exact: None,
            joins: false,
            mode,
            outcome_unknown: false,
            node: None,
            delete_sent: false,
            cleaned_up: false,
        }
    }

    /// Lets the transactions of this node [join](Session::joined_transaction) others.
    #[must_use]
    pub fn joining(mut self) -> Self {
        self.joins = true;
        self
    }

    /// Sends a transaction of this node.
    pub(super) async fn transaction(&self, session: &Session, operations: Vec<Operation>) -> Result<Vec<Done>> {
        match self.joins {
            // Boxed: it must not enlarge every waiter's future.
            true => Box::pin(session.joined_transaction(operations)).await,
            false => session.transaction(operations).await,
        }
    }

    /// Returns the session in which the node lives.
    #[must_use]
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// Returns the id in the node's name `_c_<uuid>-<name>`.
    #[must_use]
    pub fn protected_id(&self) -> ProtectedId {
        self.id
    }

    /// Returns `true` if the reply to a create was lost: a node may exist that is not known, or two.
    #[must_use]
    pub fn is_uncertain(&self) -> bool {
        self.outcome_unknown
    }

    /// Records that a create with the same name was sent in an earlier session, with an unknown outcome.
    pub(crate) fn resume_uncertain(&mut self) {
        self.outcome_unknown = true;
    }

    /// Returns the path of the node, once it is known.
    #[must_use]
    pub fn path(&self) -> Option<&str> {
        self.node.as_deref().map(|node| self.session.root().to_client_path(&node.path))
    }

    /// Returns the path of the node for errors and logs, once it is known.
    #[must_use]
    pub fn path_text(&self) -> Option<PathText> {
        self.node.as_deref().zip(self.path()).map(|(node, short)| PathText::of_server(&node.path, short))
    }

    /// Returns the path that a create asks for: a server appends a number to it if the mode is sequential.
    #[must_use]
    pub fn planned_path(&self) -> &str {
        &self.path
    }

    /// Returns the parent's path as the server knows it.
    #[must_use]
    pub fn full_parent(&self) -> Arc<str> {
        self.session.to_server_path(self.parent())
    }

    /// Adopts the node. The registry marks it when it is deleted, before any waiter wakes.
    pub(super) fn set_node(&mut self, mut node: KnownNode) {
        self.forget_node();
        node.is_exact = self.exact.is_some();
        let node = Arc::new(node);
        // A missing node at an exact path may be another one, so the registry cannot decide.
        if self.exact.is_none() {
            self.session.watches().owns(&node.path, &node);
        }
        self.node = Some(node);
    }

    pub(super) fn forget_node(&self) {
        if let Some(node) = self.node.as_ref().filter(|_| self.exact.is_none()) {
            self.session.watches().disowns(&node.path);
        }
    }

    pub(super) fn parent(&self) -> &str {
        parent_of(&self.path)
    }

    /// Sends one create, and creates of missing parents if the new node wants them. No retry: after `ConnectionLoss` it
    /// may be called again, and [`adopt`](Self::adopt) then decides which of the nodes is kept.
    ///
    /// # Errors
    ///
    /// * `Error::NodeExists`: the path has a node. If the reply to an earlier create was lost, that create may have
    ///   made it.
    /// * `Error::NoNode`: a parent does not exist and is not to be created, or other clients delete the parents again
    ///   and again.
    /// * `Error::NoChildrenForEphemerals`: a parent is an ephemeral node. `Error::NoAuth`: its ACL forbids creating
    ///   children.
    /// * `Error::InvalidAcl`, `Error::SchemaViolation`: the ACL is not valid, or a rule of the client's schemas forbids
    ///   the node.
    /// * `Error::TooManyEphemeralNodes`: the session cannot have another node. Nothing was sent.
    /// * `Error::Unsupported`: the client or the server has no nodes of this mode, or none without a name.
    /// * `Error::ConnectionLoss`, `Error::SessionExpired`: the reply is missing, so the node may exist.
    ///
    /// # Cancel safety
    ///
    /// After the future is dropped the node may exist. Dropping the owned node deletes it.
    pub async fn create(&mut self, node: &NodeSpec<'_>) -> Result<Created> {
        let session = self.session.pinned();
        let acl_of_node = |path: &str| node.acl.map_or_else(|| session.acl_for(path), <[_]>::to_vec);
        let mut acl = acl_of_node(&self.path);
        self.check_schemas(&session, node.data, &acl)?;
        let mut parents_made = 0;
        loop {
            // Until the reply arrives the node may or may not exist, even if this future is dropped.
            let was_uncertain = self.outcome_unknown;
            self.outcome_unknown = true;
            let created = session.create_node(&self.path, node.data.to_vec(), acl, self.mode).await;
            self.outcome_unknown = was_uncertain;
            match created {
                Ok((path, stat)) => {
                    self.set_node(KnownNode::new(path, stat.czxid));
                    return Ok(Created { stat, epoch: session.epoch() });
                }
                Err(error @ Error::NoNode { .. }) if parents_made < node.parents.max_create_attempts() => {
                    // Boxed: a rare branch must not enlarge every waiter's future.
                    if !Box::pin(session.create_parents(&self.path, node)).await? {
                        return Err(error);
                    }
                    parents_made += 1;
                    acl = acl_of_node(&self.path);
                }
                Err(error) => {
                    self.outcome_unknown |= error.outcome_unknown();
                    return Err(error);
                }
            }
        }
    }

    pub(super) fn check_schemas(&self, session: &Session, data: &[u8], acl: &[Acl]) -> Result<()> {
        let Some(schemas) = session.schemas() else { return Ok(()) };
        let unprotected = make_path(self.parent(), normalize(node_from_path(&self.path)));
        schemas.check_create(&unprotected, self.mode, data, acl)
    }

    /// Returns the children that carry the id of this owned node in their names.
    pub fn own<'a>(&self, children: impl IntoIterator<Item = &'a String>) -> Vec<&'a str> {
        let prefix = self.id.prefix();
        children.into_iter().map(String::as_str).filter(|name| name.starts_with(&prefix)).collect()
    }

    /// Returns `true` if a node with this stat can be the owned node: an ephemeral one must belong to its session. A
    /// create with a lost reply may have run in another session, if the servers confuse sessions.
    #[must_use]
    pub fn is_own(&self, stat: &Stat) -> bool {
        let of_other = || self.session.id().is_some_and(|own| own.get() != stat.ephemeral_owner);
        !(self.mode.is_ephemeral() && of_other())
    }

    /// Adopts the node `keep`, and deletes the `others` that lost replies have left.
    ///
    /// # Errors
    ///
    /// * `Error::NoNode`: the node is [of another session](Self::is_own).
    /// * `Error::NotEmpty`: one of the others has children.
    /// * `Error::NoAuth`: the ACL of the parent forbids deleting the others.
    /// * `Error::ConnectionLoss`, `Error::SessionExpired`: the reply to a delete is missing. Adopt again.
    ///
    /// # Cancel safety
    ///
    /// After the future is dropped, others may be left. Adopt again, or drop the owned node, which deletes all.
    pub async fn adopt(&mut self, keep: &str, stat: &Stat, others: &[&str]) -> Result<()> {
        let path = make_path(self.parent(), keep);
        if !self.is_own(stat) {
            return Err(Error::NoNode { path: path.into() });
        }
        if self.path() != Some(path.as_str()) {
            let full = Arc::from(&*self.session.root().to_server_path(&path));
            self.set_node(KnownNode::new(full, stat.czxid));
        }
        for other in others {
            match self.session.delete(&make_path(self.parent(), other), None).await {
                Ok(()) | Err(Error::NoNode { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        self.outcome_unknown = false;
        Ok(())
    }

    /// Returns the id of the transaction that created the node, once it is known.
    #[must_use]
    pub fn czxid(&self) -> Option<i64> {
        self.node.as_ref().map(|node| node.czxid)
    }

    /// Returns the node's name, once it is known.
    #[must_use]
    pub fn node_name(&self) -> Option<&str> {
        self.path().map(node_from_path)
    }
}
