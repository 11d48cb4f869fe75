//! The decisions of a member of a double barrier. Pure: the runner performs the steps and returns their results.

pub(super) mod entering;
pub(super) mod leaving;
#[cfg(test)]
mod model;

/// The node `ready` of a round.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Ready {
    /// The transaction that created the node: the number of the round.
    pub(super) czxid: i64,
    /// The version of its data.
    pub(super) version: i32,
    /// The names in its data, the opener's first. Java's `ready` has none.
    pub(super) members: Vec<String>,
}

/// The nodes of a barrier, read in this order: the path's version, the names of the members, `ready`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Look<R> {
    /// The version of the barrier's own node, which each write of a member raises.
    pub(super) version: i32,
    /// The names of all children but `ready`.
    pub(super) names: Vec<String>,
    pub(super) ready: Option<R>,
}
