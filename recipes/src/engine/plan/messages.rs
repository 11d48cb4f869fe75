//! The inputs of the planner, and what its actions consist of.

use std::sync::Arc;

use crate::engine::driver::{LockInternalsDriver, SortedChildren};

/// The number of a connection within its session.
pub(crate) type Epoch = u64;

/// The rules that a contender decides by.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rules<'a> {
    pub(crate) driver: &'a dyn LockInternalsDriver,
    /// One contender holds the lock at a time, in the order of the queue. It does not matter which others have held it.
    pub(crate) is_queue: bool,
    /// A contender may move ahead of another one. An event that comes before the deletions after the move tells of it, from
    /// a listing on.
    pub(crate) may_be_overtaken: bool,
    /// The limit never changes.
    pub(crate) limit_is_fixed: bool,
    /// A contender that is granted writes its node. That signals to a waiter behind it to watch the children.
    pub(crate) signals_grant: bool,
    /// A holder of the same session reports that it is first, and the contender may rely on it.
    pub(crate) hears_holders: bool,
    /// The contender is granted or refused at once: it does not wait.
    pub(crate) asks_once: bool,
}

/// The result of the last action, or the event that ends a wait.
#[derive(Debug)]
pub(crate) enum Input<'a> {
    /// The node exists. It is `certain` if no reply was lost: otherwise several nodes may exist.
    Created {
        epoch: Epoch,
        certain: bool,
        /// The nearest contender ahead that blocks this one, if the process knows one.
        ahead: Option<Ahead>,
    },
    /// The write of [`Action::Barrier`] was answered.
    Ordered {
        epoch: Epoch,
    },
    /// One of several nodes was kept.
    Adopted {
        epoch: Epoch,
        /// See [`Created`](Self::Created).
        ahead: Option<Ahead>,
    },
    /// The process knows another contender ahead, behind the one that has left.
    Behind {
        epoch: Epoch,
        ahead: Ahead,
    },
    Listed(Listing<'a>),
    Armed(Armed<'a>),
    /// The node that the contender waits for was deleted.
    Deleted {
        /// The connection that carried the notification.
        epoch: Option<Epoch>,
        by: DeletedBy,
    },
    /// The node that the contender waits for was written.
    Written,
    /// The watch on that node must be set again.
    Unwatched,
    /// The awaited holder, of this session, reports that it is first.
    HolderIsFirst {
        /// The connection that has shown it.
        epoch: Epoch,
    },
    /// The watch on this contender's node reports its deletion.
    OwnDeleted,
    /// This contender's node was changed, or its watch must be set again.
    OwnChanged,
    /// The wait has lasted so long that this contender's node is now watched.
    WaitsLong,
    /// The children or the limit changed.
    QueueChanged,
    /// The connection was lost, and the session has another one.
    Reconnected,
}

/// A contender that the process knows ahead in the queue, and that blocks this one: of the same session, or a writer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ahead {
    pub(crate) node: Arc<str>,
    /// The contender has the next number.
    pub(crate) is_next: bool,
}

/// The contenders of a lock at one moment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Listing<'a> {
    /// The connection that carried the reply.
    pub(crate) epoch: Epoch,
    pub(crate) queue: &'a SortedChildren,
    /// The name of this contender's node.
    pub(crate) own: &'a str,
    pub(crate) max_leases: usize,
    /// Sorted by creation, which was read after the listing: contenders may have joined behind this one since.
    pub(crate) may_be_followed: bool,
    /// The predecessor is a contender of this process and session.
    pub(crate) predecessor_is_ours: bool,
}

/// The results of setting watches, and of the listing after them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Armed<'a> {
    pub(crate) node: Watched,
    pub(crate) own: Watched,
    pub(crate) listing: Option<Listing<'a>>,
}

/// The result of setting one watch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Watched {
    NotAsked,
    /// The node does not exist.
    Gone,
    /// The node exists.
    Set {
        /// The connection that carried the reply.
        epoch: Epoch,
        /// The node's owner has signalled that it holds a lease, or no session owns the node.
        has_signalled: bool,
    },
}

/// The owner of the transaction that deleted a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum DeletedBy {
    /// The node belonged to another session. The end of that session deletes none of our nodes.
    OtherSession,
    /// The node's owner is in this session, and the server has answered its delete.
    Owner,
    /// Perhaps the end of our own session, which deletes all its nodes at once and notifies of them in any order. Or a
    /// contender may have moved ahead.
    Unknown,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Arm {
    pub(crate) node: Option<Arc<str>>,
    pub(crate) own: bool,
    pub(crate) list: bool,
}

/// The events that a contender waits for, besides the events of its own node and a change of the limit.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct WaitSet {
    /// The node that is watched; `None` for the children.
    pub(crate) node: Option<Arc<str>>,
    /// The node's owner, in this session, may report that it is first.
    pub(crate) hears_holder: bool,
}
