//! Creates of owned nodes in transactions.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::{Created, OwnedNode};
use crate::error::{Error, Result};
use crate::model::new_node::NodeSpec;
use crate::session::Session;
use crate::session::known_node::KnownNode;
use crate::zookeeper::{Done, Operation};

/// The mark of a node that its owner replaces. Unless that is done, a later deletion is a loss again.
struct Replacing<'a> {
    node: &'a KnownNode,
    is_done: bool,
}

impl Drop for Replacing<'_> {
    fn drop(&mut self) {
        self.node.deleting.store(self.is_done, Ordering::SeqCst);
    }
}

impl OwnedNode {
    /// Creates the node in one transaction behind other operations, and returns their results too. It creates no parents.
    /// The node's `czxid` is known only if one of the operations writes data.
    ///
    /// After an unknown outcome the node is [uncertain](Self::is_uncertain): a read of its [planned
    /// path](Self::planned_path) behind a [write barrier](Session::write_barrier) decides, and [`adopt`](Self::adopt)
    /// keeps the node.
    ///
    /// # Errors
    ///
    /// * `Error::Transaction`, `Error::SchemaViolation`: nothing was changed. `Error::Unsupported`: the client has no
    ///   transactions.
    /// * `Error::ConnectionLoss`, `Error::SessionExpired`: all operations were applied, or none.
    ///
    /// # Cancel safety
    ///
    /// After the future is dropped, the operations may be applied. Dropping the owned node deletes its node.
    pub async fn create_with(&mut self, node: &NodeSpec<'_>, before: Vec<Operation>) -> Result<(Created, Vec<Done>)> {
        let session = self.session.pinned();
        let acl = node.acl.map_or_else(|| session.acl_for(&self.path), <[_]>::to_vec);
        self.check_schemas(&session, node.data, &acl)?;
        let was_uncertain = self.outcome_unknown;
        let created = Operation::Create { path: self.path.to_string(), data: node.data.to_vec(), acl, mode: self.mode };
        let index = before.len();
        let mut operations = before;
        operations.push(created);
        // Until the reply arrives the node may or may not exist, even if this future is dropped.
        self.outcome_unknown = true;
        let result = self.transaction(&session, operations).await;
        self.outcome_unknown = was_uncertain || result.as_ref().is_err_and(Error::outcome_unknown);
        let mut done = result?;
        let created = self.created_by(&session, &done, index)?;
        done.truncate(index);
        Ok((created, done))
    }

    /// Creates the node in the place of `old`, if the `checks` succeed: one transaction, which deletes `old`. The
    /// node's `czxid` is known only if a check writes data.
    ///
    /// # Errors
    ///
    /// * `Error::Transaction`: nothing was changed. `Error::Unsupported`: the client has no transactions.
    /// * `Error::ConnectionLoss`, `Error::SessionExpired`: one of the two nodes exists. Dropping both owned nodes deletes
    ///   it.
    ///
    /// # Cancel safety
    ///
    /// After the future is dropped, one of the two nodes exists. Dropping both owned nodes deletes it.
    pub async fn replace(&mut self, old: &mut Self, data: Vec<u8>, checks: Vec<Operation>) -> Result<Created> {
        let Some(node) = old.node.clone() else { return Err(Error::NoNode { path: old.path.as_ref().into() }) };
        let session = self.session.pinned();
        let (old_path, index) = (session.root().to_client_path(&node.path).to_owned(), checks.len());
        let mut operations = checks;
        let acl = session.acl_for(&self.path);
        operations.push(Operation::Create { path: self.path.to_string(), data, acl, mode: self.mode });
        operations.push(Operation::Delete { path: old_path, version: None });
        self.outcome_unknown = true;
        // From here on a deletion counts as the owner's.
        node.deleting.store(true, Ordering::SeqCst);
        let mut replacing = Replacing { node: &node, is_done: false };
        let done = session.transaction(operations).await;
        self.outcome_unknown = done.as_ref().is_err_and(Error::outcome_unknown);
        let done = done?;
        replacing.is_done = true;
        old.cleaned_up = !old.outcome_unknown;
        self.created_by(&session, &done, index)
    }

    /// Adopts the node that an operation of an applied transaction has created.
    fn created_by(&mut self, session: &Session, done: &[Done], index: usize) -> Result<Created> {
        let Some(Done::Created { path, mut stat }) = done.get(index).cloned() else {
            self.outcome_unknown = true;
            return Err(Error::NoNode { path: self.path.as_ref().into() });
        };
        if stat.czxid == 0 {
            // A transaction's reply has the stats of changed nodes, but not of created ones.
            let changed = done.iter().find_map(|done| if let Done::Set(stat) = done { Some(stat.mzxid) } else { None });
            stat.czxid = changed.unwrap_or_default();
        }
        let full = Arc::from(&*self.session.root().to_server_path(&path));
        self.set_node(KnownNode::new(full, stat.czxid));
        Ok(Created { stat, epoch: session.epoch() })
    }
}
