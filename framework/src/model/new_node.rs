//! A node that is to be created.

use crate::model::Acl;

/// The treatment of missing parents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Parents {
    /// The parents must exist.
    #[default]
    Expected,
    /// Creates them, persistent and empty.
    Persistent,
    /// Creates them as containers, which the server deletes when they are empty for a while. If the client has no
    /// containers, they are persistent, and this client deletes them when they are empty and unused for its [reap
    /// interval](crate::CuratorFrameworkBuilder::reap_interval).
    Containers,
}

impl Parents {
    /// Returns how often the parents, or the node of a namespace, are created for one new node before its creator gives
    /// up. The limit is needed because another client may delete empty nodes as soon as they exist.
    pub(crate) const fn max_create_attempts(self) -> usize {
        match self {
            Self::Expected => 1,
            Self::Persistent | Self::Containers => 16,
        }
    }
}

/// A node that is to be created: all but its name and its mode.
#[derive(Debug, Clone, Copy, Default)]
pub struct NodeSpec<'a> {
    pub(crate) data: &'a [u8],
    pub(crate) acl: Option<&'a [Acl]>,
    pub(crate) parents: Parents,
    pub(crate) acl_on_parents: bool,
    pub(crate) parent_data: &'a [u8],
}

impl<'a> NodeSpec<'a> {
    /// Describes a node with this data, existing parents and the access control list of the client's
    /// [`AclProvider`](crate::AclProvider).
    #[must_use]
    pub const fn new(data: &'a [u8]) -> Self {
        Self { data, acl: None, parents: Parents::Expected, acl_on_parents: false, parent_data: &[] }
    }

    /// Sets the data of the node's own parent, if that is created. Default: empty.
    #[must_use]
    pub const fn with_parent_data(mut self, data: &'a [u8]) -> Self {
        self.parent_data = data;
        self
    }

    /// Sets the access control list.
    #[must_use]
    pub const fn with_acl(mut self, acl: &'a [Acl]) -> Self {
        self.acl = Some(acl);
        self
    }

    /// Sets the treatment of missing parents. Default: [`Parents::Expected`].
    #[must_use]
    pub const fn with_parents(mut self, parents: Parents) -> Self {
        self.parents = parents;
        self
    }
}
