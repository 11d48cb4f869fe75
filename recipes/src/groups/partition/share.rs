//! The part of the items that a member has.

/// The part of the items that a member has.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Share {
    /// The number of members that share the items, as this one sees them.
    pub members: usize,
    /// This partition is one of the members: the node of its id is its own. `false` while an earlier process, or
    /// another one by mistake, has the id.
    pub is_member: bool,
    /// The items of this member's share, in order. It contends for them, or takes them if they have no contender.
    pub wanted: Vec<String>,
    /// The items that this member owns, in order. Those that are not wanted are about to move.
    pub owned: Vec<String>,
}
