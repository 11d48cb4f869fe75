//! A node that is to be created.

use crate::model::Acl;

/// What to do about parents that are missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Parents {
    /// They have to be there.
    #[default]
    Expected,
    /// Create them, persistent and empty.
    Persistent,
    /// Create them as containers, which go when they are empty for a while. Where the client has no containers they
    /// are persistent, and this client deletes them when they are empty and it has not used them for its
    /// [reap interval](crate::CuratorFrameworkBuilder::reap_interval).
    Containers,
}

impl Parents {
    /// How often they, or the node of a namespace, are made for one new node before its creator gives up: somebody who
    /// clears away empty nodes may take them away as soon as they are there.
    pub(crate) const fn most_times(self) -> usize {
        match self {
            Self::Expected => 1,
            Self::Persistent | Self::Containers => 16,
        }
    }
}

/// A node that is to be created: all but its name and its mode.
#[derive(Debug, Clone, Copy, Default)]
pub struct NewNode<'a> {
    pub(crate) data: &'a [u8],
    pub(crate) acl: Option<&'a [Acl]>,
    pub(crate) parents: Parents,
    pub(crate) acl_on_parents: bool,
    pub(crate) parent_data: &'a [u8],
}

impl<'a> NewNode<'a> {
    /// A node with this data, whose parents are there, and whose access control list is the client's
    /// [`AclProvider`](crate::AclProvider)'s.
    #[must_use]
    pub const fn new(data: &'a [u8]) -> Self {
        Self { data, acl: None, parents: Parents::Expected, acl_on_parents: false, parent_data: &[] }
    }

    /// With this data in the node's own parent, if that is created. Default: none.
    #[must_use]
    pub const fn with_parent_data(mut self, data: &'a [u8]) -> Self {
        self.parent_data = data;
        self
    }

    /// What to do about parents that are missing. Default: [`Parents::Expected`].
    #[must_use]
    pub const fn with_parents(mut self, parents: Parents) -> Self {
        self.parents = parents;
        self
    }
}
