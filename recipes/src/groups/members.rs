//! The members of a group at one moment, and the differences between two moments.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use tokio::sync::watch;

use crate::nodes::error::NodeError;

/// A member of a group.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Member {
    /// The id: the name of the member's node.
    pub id: String,
    /// The member's data; empty if this client may not read it.
    pub data: Vec<u8>,
    /// The session that owns the member's node; 0 if that is not ephemeral.
    pub session: i64,
    /// The zxid of the transaction that created the member's node. A member that has joined again has another one.
    pub czxid: i64,
}

/// The members of a group at one moment. Clones are cheap.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Members(Arc<BTreeMap<String, Arc<Member>>>);

impl Members {
    /// Returns the number of members.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns `true` without members.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the member with this id.
    #[must_use]
    pub fn get(&self, id: &str) -> Option<&Member> {
        self.0.get(id).map(|member| &**member)
    }

    /// Returns `true` if the group has a member with this id.
    #[must_use]
    pub fn contains(&self, id: &str) -> bool {
        self.0.contains_key(id)
    }

    /// Returns the members in the order of their ids.
    pub fn iter(&self) -> impl Iterator<Item = &Member> {
        self.0.values().map(|member| &**member)
    }

    /// Returns the ids in their order.
    pub fn ids(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// Keeps the members with these ids.
    pub(super) fn retain(&mut self, ids: &BTreeSet<String>) {
        if self.0.keys().any(|id| !ids.contains(id)) {
            Arc::make_mut(&mut self.0).retain(|id, _| ids.contains(id));
        }
    }

    pub(super) fn set(&mut self, member: Member) {
        Arc::make_mut(&mut self.0).insert(member.id.clone(), Arc::new(member));
    }

    pub(super) fn remove(&mut self, id: &str) {
        if self.contains(id) {
            Arc::make_mut(&mut self.0).remove(id);
        }
    }

    /// Returns the changes from the earlier members to these: those that have left first, then in the order of ids.
    fn changes_since(&self, earlier: &Self) -> VecDeque<MemberChange> {
        let is_same_node = |one: &Member, other: &Member| one.czxid == other.czxid;
        let stays = |member: &Member| self.get(&member.id).is_some_and(|now| is_same_node(now, member));
        let left = earlier.iter().filter(|member| !stays(member)).cloned().map(MemberChange::Left);
        let arrived = self.iter().filter_map(|member| match earlier.get(&member.id) {
            Some(before) if is_same_node(before, member) => {
                (before != member).then(|| MemberChange::DataChanged(member.clone()))
            }
            _ => Some(MemberChange::Joined(member.clone())),
        });
        left.chain(arrived).collect()
    }
}

/// The state of a [`Group`](crate::Group).
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum GroupState {
    /// The group was not read yet.
    Unknown,
    /// The members. They stay during a lost connection: see
    /// [`CuratorFramework::is_connected`](curator_framework::CuratorFramework::is_connected).
    Known(Members),
    /// The last known members, which may have changed since: the server refuses a read. The task tries again, with
    /// growing pauses of up to 30 s.
    Stale {
        /// The members.
        members: Members,
        /// The error of the read.
        cause: NodeError,
    },
    /// The server refuses a read, for example for a missing permission, and no members are known. The task tries again,
    /// with growing pauses of up to 30 s.
    Failed(NodeError),
    /// The group object or its client was closed, or its runtime has ended.
    Closed,
}

impl GroupState {
    /// Returns the last known members, even if they are stale.
    #[must_use]
    pub const fn members(&self) -> Option<&Members> {
        match self {
            Self::Known(members) | Self::Stale { members, .. } => Some(members),
            Self::Unknown | Self::Failed(_) | Self::Closed => None,
        }
    }
}

/// A change of a group's members.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MemberChange {
    /// A member has joined. A member that has joined again has another `czxid`.
    Joined(Member),
    /// A member has changed its data.
    DataChanged(Member),
    /// A member has left. The data is the last that was read.
    Left(Member),
}

/// The changes of a group's members: first a [`Joined`](MemberChange::Joined) for each present member.
///
/// The stream reports all differences between the states that the reader has seen, not each step between them. So it
/// has no gap, and a slow reader needs no more memory than a fast one.
#[derive(Debug)]
pub struct MemberChanges {
    states: watch::Receiver<GroupState>,
    seen: Members,
    pending: VecDeque<MemberChange>,
}

impl MemberChanges {
    pub(super) fn new(mut states: watch::Receiver<GroupState>) -> Self {
        states.mark_changed();
        Self { states, seen: Members::default(), pending: VecDeque::new() }
    }

    /// Returns the next change; `None` once the group is closed and all changes were returned.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    pub async fn next(&mut self) -> Option<MemberChange> {
        loop {
            if let Some(change) = self.pending.pop_front() {
                return Some(change);
            }
            self.states.changed().await.ok()?;
            let known = match &*self.states.borrow_and_update() {
                GroupState::Known(members) => members.clone(),
                GroupState::Unknown | GroupState::Stale { .. } | GroupState::Failed(_) => continue,
                GroupState::Closed => return None,
            };
            self.pending = known.changes_since(&self.seen);
            self.seen = known;
        }
    }

    /// Returns the changes as a [`Stream`](futures_util::Stream).
    pub fn into_stream(self) -> impl futures_util::Stream<Item = MemberChange> {
        futures_util::stream::unfold(self, |mut changes| async move { Some((changes.next().await?, changes)) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(id: &str, data: &str, czxid: i64) -> Member {
        Member { id: id.to_owned(), data: data.into(), session: 7, czxid }
    }

    fn members(list: &[Member]) -> Members {
        let mut members = Members::default();
        list.iter().cloned().for_each(|member| members.set(member));
        members
    }

    #[test]
    fn each_difference_is_one_change() {
        let (kept, old, new) = (member("a", "1", 1), member("b", "1", 2), member("b", "1", 5));
        let (gone, fresh) = (member("c", "1", 3), member("d", "1", 4));
        let changed = member("a", "2", 1);
        let before = members(&[kept, old.clone(), gone.clone()]);
        let after = members(&[changed.clone(), new.clone(), fresh.clone()]);
        let expected = [
            MemberChange::Left(old),
            MemberChange::Left(gone),
            MemberChange::DataChanged(changed),
            MemberChange::Joined(new),
            MemberChange::Joined(fresh),
        ];
        assert_eq!(after.changes_since(&before), expected);
        assert_eq!(after.changes_since(&after), []);
    }

    #[tokio::test]
    async fn a_stream_begins_with_the_present_members_and_ends_with_the_group() {
        let (one, two) = (member("a", "1", 1), member("b", "1", 2));
        let states = watch::Sender::new(GroupState::Known(members(std::slice::from_ref(&one))));
        let mut changes = MemberChanges::new(states.subscribe());
        assert_eq!(changes.next().await, Some(MemberChange::Joined(one.clone())));
        states.send_replace(GroupState::Known(members(&[one.clone(), two.clone()])));
        states.send_replace(GroupState::Known(members(std::slice::from_ref(&two))));
        assert_eq!(changes.next().await, Some(MemberChange::Left(one)));
        assert_eq!(changes.next().await, Some(MemberChange::Joined(two)));
        states.send_replace(GroupState::Closed);
        assert_eq!(changes.next().await, None);
    }
}
