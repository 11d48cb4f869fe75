//! The decisions of a member of a double barrier. Pure: the runner performs the steps and returns their results.

pub(super) mod entering;
pub(super) mod leaving;
#[cfg(test)]
mod model;

/// The decisions of a member that enters, or that leaves.
pub(super) trait Plan: Send {
    /// Starts in a session, with a node of this name, or starts again after an interruption.
    fn begin(&mut self, name: &str) -> Step;

    /// Takes the result of the last step, and returns the next one.
    fn next(&mut self, input: Input) -> Step;
}

/// A step of a member.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Step {
    /// Creates the member's node.
    Arrive,
    /// After a lost reply: reads whether this member's node exists.
    Settle,
    /// Lists the members, and whether `ready` exists.
    List,
    /// Reads `ready`.
    Watch(Reading),
    /// Lists the members, and reads `ready`.
    Look(Reading),
    /// Reads the transactions that have created these members.
    ReadCreations(Vec<String>),
    /// Creates `ready` for these members if each of their nodes exists, and the barrier still has this version: so no
    /// member has come since. This member's name is the first.
    Open { names: Vec<String>, version: i32 },
    /// Adds this member's name to the round if the node of the member `beside` exists and `ready` is unchanged.
    Join { beside: String, ready: Ready },
    /// Deletes `ready` if the barrier, and `ready` if its version is given, still have these versions: the members of its
    /// round are gone.
    Remove { version: i32, ready: Option<i32> },
    /// Deletes this member's node if the barrier still has this version.
    GiveUp { version: i32 },
    /// Deletes the member's node.
    Depart,
    /// Sets a watch on this member, which has not left.
    WatchOther(String),
    /// Waits for the watches, for the loss of this member's node, for the end of the budget, and with `grace` for a
    /// while.
    Wait { grace: bool },
    /// Starts again with a new node: the earlier one is lost, but not by its owner's delete.
    Rejoin,
    /// Ends: the member has entered the round, or all members have left.
    Done,
    /// Ends: the budget has ended, and the member has no node.
    Refuse,
}

/// The read of `ready`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Reading {
    /// Its existence, with a watch in both cases.
    Existence,
    /// Its data.
    Data,
    /// Its data, with a watch if it exists.
    WatchedData,
}

/// The result of a step.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Input {
    /// This member's node is created.
    Arrived(Written),
    /// This member's node exists; nothing but its transaction is known.
    Found(i64),
    /// This member's node does not exist, because its create was not applied.
    Missing,
    /// The transaction that created `ready`, which has a watch.
    Watched(Option<i64>),
    /// The transaction that created `ready`. Its watch has fired already, perhaps for an earlier `ready`.
    Fired(Option<i64>),
    /// The names of the members; `None` if `ready` exists.
    Listed(Option<Vec<String>>),
    /// The result of a read of the barrier, with a watch on `ready` and without its data.
    Looked(Look),
    /// The same with the data of `ready`.
    Round(Look),
    Creations(Vec<(String, i64)>),
    /// `ready` was created by this member, in this transaction.
    Opened(i64),
    Joined,
    Removed,
    GaveUp,
    /// This member's node is deleted.
    Departed(Written),
    /// This member's node was deleted by an earlier request.
    DepartedBefore,
    /// The conditions of the step did not hold, so nothing was changed.
    Refused,
    /// The other member's node exists, and a watch is set on it.
    OtherWatched,
    /// The other member has left or died.
    Left,
    /// The notification of the creation of `ready`, while this member's node is not known to be lost.
    Created,
    /// The notification of the deletion of `ready`.
    Deleted,
    /// A wake-up that proves nothing.
    Woken,
    GraceOver,
    BudgetOver,
    /// This member's node is lost, but not by its owner's delete.
    Gone,
    /// The step failed with the connection; `may_stand` if this member's node is not known and may exist.
    Interrupted {
        may_stand: bool,
    },
}

/// The barrier's own node in a transaction that creates or deletes the node of a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Written {
    /// The transaction.
    pub(super) zxid: i64,
    /// The number of children with the member's node, perhaps with `ready`.
    pub(super) children: usize,
    pub(super) version: i32,
}

/// The node `ready` of a round.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Ready {
    /// The transaction that created the node: the number of the round.
    pub(super) czxid: i64,
    /// The version of its data.
    pub(super) version: i32,
    /// The names in its data, the opener's first. Java's `ready` has none. Without a read of the data none.
    pub(super) members: Vec<String>,
}

/// The nodes of a barrier, read in this order: the path's version, the names of the members, `ready`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Look {
    /// The version of the barrier's own node, which each write of a member raises.
    pub(super) version: i32,
    /// The names of all children but `ready`.
    pub(super) names: Vec<String>,
    pub(super) ready: Option<Ready>,
}
