//! The access control lists of the nodes that the client creates.

use std::fmt;

use crate::model::Acl;

/// Provides the access control list of each node that is created without one: Curator's `ACLProvider`.
///
/// The client also calls it for the parents that it creates, and for the nodes of locks.
pub trait AclProvider: Send + Sync + fmt::Debug + 'static {
    /// Returns the list of a node for which [`acl_for_path`](Self::acl_for_path) returns `None`.
    fn default_acl(&self) -> Vec<Acl>;

    /// Returns the list of the node at this path, which includes the client's namespace. Default: `None`.
    fn acl_for_path(&self, path: &str) -> Option<Vec<Acl>> {
        let _ = path;
        None
    }
}

/// Allows everything to all clients: Curator's `DefaultACLProvider`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DefaultAclProvider;

impl AclProvider for DefaultAclProvider {
    fn default_acl(&self) -> Vec<Acl> {
        Acl::open_unsafe()
    }
}

/// Gives every node the same list.
impl AclProvider for Vec<Acl> {
    fn default_acl(&self) -> Vec<Acl> {
        self.clone()
    }
}
