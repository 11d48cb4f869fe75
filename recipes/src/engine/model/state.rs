//! The state of a search: the nodes, the sessions, the contenders and what is under way between them.

use crate::engine::model::scenario::Kind;
use crate::engine::plan::Plan;
use crate::model::world;
pub(super) use crate::model::world::{Event, Position};

/// A set of nodes, by their indices.
pub(super) type Nodes = u32;

/// One transition of the world.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// The leader commits the session's oldest request.
    Commit(usize),
    /// The leader commits a write of a connection that was lost.
    CommitStraggler(usize),
    /// The session's server applies the next transaction, and notifies in this order.
    Apply(usize, usize),
    /// The session's server answers the oldest request, a read.
    Serve(usize),
    /// The session's oldest notification wakes waiters.
    Dispatch(usize),
    /// A contender handles what it has received.
    Run(usize),
    /// A holder checks its node and sees that it is deleted, or a request sees that it has lost the turn.
    Look(usize),
    /// A session learns of its end.
    End(usize),
    /// A session learns the limit.
    Learn(usize),
    /// A contender gets the turn to take a lease.
    Turn(usize),
    /// A first try has seen a queue, or too few leases.
    Refuse(usize),
    /// A waiter has waited so long that it watches its own node.
    WaitsLong(usize),
    Release(usize),
    /// A leader wishes that the candidate with this node leads next.
    HandOver(usize, usize),
    /// A leader stops waiting for its candidate.
    Withdraw(usize),
    /// A call of the leader comes to a candidate.
    Called(usize),
    /// A writer becomes a reader.
    Downgrade(usize),
    /// An administrator deletes a node.
    DeleteOne(usize),
    /// An administrator deletes two nodes in one transaction.
    DeleteBoth(usize, usize),
    /// The leader ends a session.
    Kill(usize),
    /// A session loses its connection and gets another, to a server at this position, which replays in this order.
    Break(usize, Position, usize),
    /// A waiter's caller gives up.
    GiveUp(usize),
    /// An administrator deletes the node of the turn.
    LoseTurn(usize),
    /// The limit changes.
    Limit(u8),
}

/// The contender that a node is of. Its path is its index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Owned {
    pub(super) owner: usize,
    pub(super) kind: Kind,
    pub(super) number: u8,
}

pub(super) type Target = world::Target<usize>;
/// The path's data.
pub(super) const RECORD: Target = Target::Node(usize::MAX);
pub(super) type Session = world::Session<usize, Request>;

/// A request, with the contender and the owner that its reply is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Request {
    pub(super) contender: usize,
    pub(super) owner: usize,
    pub(super) what: What,
    /// The log when it was committed.
    pub(super) committed: Option<(Position, Answer)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum What {
    Create,
    /// The node of a reader, with the number of the writer that it was.
    CreateReader,
    /// A write that changes nothing.
    Barrier,
    /// A delete by the owner.
    Delete(usize),
    /// A delete of a node that a lost reply has left.
    DeleteExtra(usize),
    /// The session deletes the remaining nodes of an owner.
    Clean,
    /// The session writes the node of a holder.
    Signal(usize),
    List,
    /// Finds the nodes of the owner.
    FindOwn,
    /// A leader writes the wish for this node into the path's data.
    Wish(usize),
    Withdraw,
    /// A candidate moves directly behind the leader: from the node `old` to a node of this owner.
    Follow {
        owner: usize,
        old: usize,
    },
    ReadNode(usize),
    ReadOwn(usize),
    ReadRecord,
    Exists(usize),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Answer {
    Done,
    Created(usize),
    NoNode,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Locks {
    pub(super) world: world::World<usize, Owned, Request>,
    pub(super) owners: Vec<Owner>,
    /// The limits that the sessions know.
    pub(super) limits: Vec<u8>,
    pub(super) contenders: Vec<Contender>,
    /// The newest listings that the sessions keep.
    pub(super) newest: Vec<Option<Newest>>,
    /// The nodes of writers that the sessions know.
    pub(super) writers: Vec<Nodes>,
    /// The contender that has the turn to take a lease.
    pub(super) turn: Option<usize>,
    /// The path's data.
    pub(super) record: Record,
    /// The transactions that have written the path's data.
    pub(super) record_written: Vec<Position>,
    /// The nodes of candidates that have followed a wish.
    pub(super) moved: Nodes,
    /// The number of wishes that leaders may still write.
    pub(super) hand_overs: usize,
    /// The administrator's transactions that have deleted two nodes.
    pub(super) multis: Vec<Position>,
    pub(super) limit: u8,
    pub(super) faults: usize,
}

/// The data of an election's path: nodes by their indices.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(super) struct Record {
    pub(super) leader: usize,
    pub(super) wish: Option<usize>,
}

/// A listing that the contenders of a session share, without the contenders that have left since.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Newest {
    pub(super) epoch: u64,
    pub(super) listed: Nodes,
}

/// One attempt of a contender: the ids in the names of its nodes.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Owner {
    pub(super) session: usize,
    /// The other contenders of the session can find it.
    pub(super) is_entered: bool,
    /// Its one node.
    pub(super) node: Option<usize>,
    /// Another contender of the session has seen that the node is deleted.
    pub(super) is_gone: bool,
    pub(super) says_first: Option<u64>,
    pub(super) delete: Delete,
}

impl Owner {
    pub(super) fn new(session: usize, is_entered: bool) -> Self {
        Self { session, is_entered, node: None, is_gone: false, says_first: None, delete: Delete::Idle }
    }
}

/// A delete by the owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Delete {
    Idle,
    Outstanding,
    Done,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Contender {
    pub(super) session: usize,
    pub(super) kind: Kind,
    pub(super) asks_once: bool,
    /// It tries to take a free lease without the turn.
    pub(super) tries: bool,
    /// It is for a further lease of the request of the contender before it.
    pub(super) follows: bool,
    pub(super) turn_is_lost: bool,
    pub(super) owner: usize,
    /// Its one node, or the newest that it knows.
    pub(super) node: Option<usize>,
    pub(super) plan: Plan,
    pub(super) phase: Phase,
    pub(super) awaited: Option<Watch>,
    /// The owner of the node that it waits for, if it was found in the session.
    pub(super) awaited_owner: Option<usize>,
    pub(super) own: Option<Watch>,
    /// The watch on the path's data.
    pub(super) record: Option<Watch>,
    pub(super) early: Option<Prefetched>,
    /// A create has lost its reply.
    pub(super) is_uncertain: bool,
    /// It holds the lock, and its session has been notified that its node is deleted.
    pub(super) is_notified: bool,
    /// The limit that it knows.
    pub(super) limit: u8,
    /// A leader waits for its candidate.
    pub(super) wishes: bool,
    /// A call has come, and the wish was not followed yet.
    pub(super) has_come: bool,
    /// The node beside the leader's, as the reply to the move has shown it.
    pub(super) moved: Option<usize>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Phase {
    /// It waits for the turn to contend.
    Idle,
    /// It waits for replies, or has received them.
    Asks(Ask),
    /// A request has failed with the connection.
    Failed,
    Wait(Wait),
    /// It waits for the reply to the owner's delete of the node.
    AsksOwner {
        epoch: u64,
        wait: Wait,
        owner: usize,
    },
    /// It holds one lease of a request that is not complete.
    Part,
    Holds,
    /// It creates the node of a reader, as this owner.
    Downgrades(usize),
    /// It deletes its node.
    Leaves,
    Over,
}

/// Requests that are outstanding, and their replies.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Ask {
    pub(super) what: Asked,
    /// The connection on which they were sent, or of the reply to the create.
    pub(super) epoch: u64,
    pub(super) outstanding: u8,
    pub(super) node: Option<Watch>,
    pub(super) own: Option<Watch>,
    pub(super) record: Option<Watch>,
    pub(super) listed: Option<Nodes>,
    /// The only nodes that are read, in place of a listing.
    pub(super) known: Option<Nodes>,
    /// The position of the session's server when they were sent.
    pub(super) sent: Position,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Asked {
    Create {
        is_done: bool,
    },
    Barrier,
    Settle {
        is_gone: bool,
    },
    List,
    Behind,
    Arm {
        node: bool,
        own: bool,
        list: bool,
    },
    /// All leases of the request are held.
    Check,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Prefetched {
    pub(super) epoch: u64,
    pub(super) listed: Nodes,
    pub(super) sent: Position,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Wait {
    pub(super) node: Option<usize>,
    /// The owner of the node, if it was found in the session.
    pub(super) owner: Option<usize>,
    pub(super) hears_holder: bool,
}

/// A waiter in the session's registry.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Watch {
    pub(super) target: Target,
    pub(super) found: Option<Found>,
    pub(super) fired: Option<(Event, u64)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Found {
    pub(super) epoch: u64,
    pub(super) has_signalled: bool,
}
