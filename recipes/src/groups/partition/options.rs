//! The options of a partition.

use std::time::Duration;

use curator_framework::Acl;

/// The options of a [`Partition`](crate::Partition). All members should have the same, apart from their data.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use curator_recipes::PartitionOptions;
///
/// let options = PartitionOptions::new().settle(Duration::from_secs(5)).grace(Duration::from_secs(60));
/// # let _ = options;
/// ```
#[derive(Debug, Clone)]
#[must_use = "options do nothing by themselves"]
pub struct PartitionOptions {
    pub(super) settle: Duration,
    pub(super) grace: Duration,
    pub(super) data: Option<Vec<u8>>,
    pub(super) acl: Option<Vec<Acl>>,
}

impl Default for PartitionOptions {
    fn default() -> Self {
        Self { settle: Duration::from_secs(1), grace: Duration::from_secs(30), data: None, acl: None }
    }
}

impl PartitionOptions {
    /// Returns the defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes items from their owners only when the members have stayed the same for this time: kazoo's `time_boundary`.
    /// Default: 1 s. Members that change more often prolong it to three times this time at most.
    ///
    /// A member that restarts within this time moves nothing, and takes its items back at once. With a longer time a
    /// rolling restart moves fewer items, and the items of a crashed member have no owner for longer. Zero moves items
    /// with each change. [`Duration::MAX`] moves no item from its owner.
    pub fn settle(mut self, settle: Duration) -> Self {
        self.settle = settle;
        self
    }

    /// Gives work this time to return when its item is to move, or the partition is closed. At its end the work is
    /// dropped. Default: 30 s. The next owner waits for that. Zero drops work at once, without a poll after
    /// [`revoked`](crate::OwnedItem::revoked).
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// Sets the data of this member, such as its address, which each member sees in
    /// [`members`](crate::Partition::members). Default: the client's default data, this host's address.
    pub fn data(mut self, data: impl Into<Vec<u8>>) -> Self {
        self.data = Some(data.into());
        self
    }

    /// Sets the access control list of the member's node and of its nodes at the items, which all members must be able
    /// to read. Default: the client's [`AclProvider`](curator_framework::AclProvider).
    pub fn acl(mut self, acl: impl Into<Vec<Acl>>) -> Self {
        self.acl = Some(acl.into());
        self
    }
}
