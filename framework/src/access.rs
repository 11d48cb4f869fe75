//! Who may do what with the nodes that the client creates.

use std::fmt;

use crate::model::Acl;

/// Gives every node that is created without an access control list of its own one: Curator's `ACLProvider`.
///
/// It is also asked for the parents that the client creates, and for the nodes of locks.
pub trait AclProvider: Send + Sync + fmt::Debug + 'static {
    /// The list of a node that [`acl_for_path`](Self::acl_for_path) says nothing about.
    fn default_acl(&self) -> Vec<Acl>;

    /// The list of the node at this path, which has the client's namespace before it. Default: nothing.
    fn acl_for_path(&self, path: &str) -> Option<Vec<Acl>> {
        let _ = path;
        None
    }
}

/// Everybody may do everything: Curator's `DefaultACLProvider`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DefaultAclProvider;

impl AclProvider for DefaultAclProvider {
    fn default_acl(&self) -> Vec<Acl> {
        Acl::open_unsafe()
    }
}

/// The same list for every node.
impl AclProvider for Vec<Acl> {
    fn default_acl(&self) -> Vec<Acl> {
        self.clone()
    }
}
