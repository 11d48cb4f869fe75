//! The members of a group at one moment, and the differences between two moments.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use curator_framework::{Changes, SessionId, Zxid};
use futures_util::stream::{self, StreamExt as _};
use tokio::sync::watch;

use crate::nodes::error::NodeError;

/// A member of a group or of a double barrier.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Member {
    /// The id: the name of the member's node. In a double barrier the data of that node, if there are any.
    pub id: String,
    /// The member's data; empty if this client may not read it.
    pub data: Vec<u8>,
    /// The session that owns the member's node; `None` if that is not ephemeral, or not known.
    pub session: Option<SessionId>,
    /// The zxid of the transaction that created the member's node. A member that has joined again has another one.
    ///
    /// It is 0 if it is not known: servers from 3.8.4 and 3.9.2 on hide it from a client that may not read the node.
    pub czxid: Zxid,
}

/// The members of a group at one moment. Clones share them.
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

    /// Returns the changes from the earlier members to these: first the members that have left, then the others in the
    /// order of their ids. A member that the server [hides](Member::czxid) may have joined again without a change here.
    #[must_use]
    pub fn changes_since(&self, earlier: &Self) -> Vec<MemberChange> {
        let is_known = |member: &Member| member.czxid.get() != 0;
        let is_same_node =
            |one: &Member, other: &Member| one.czxid == other.czxid || !is_known(one) || !is_known(other);
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
    /// The group object was not started.
    Latent,
    /// The group was not read yet.
    Loading,
    /// The members. They stay during a lost connection: see
    /// [`CuratorFramework::is_connected`](curator_framework::CuratorFramework::is_connected).
    Known(Members),
    /// The last known members, which may have changed since: the server refuses a read. The task tries again, with
    /// growing pauses of up to 30 s.
    Refused {
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
    /// Returns the last known members, even if a read is refused now.
    #[must_use]
    pub const fn members(&self) -> Option<&Members> {
        match self {
            Self::Known(members) | Self::Refused { members, .. } => Some(members),
            Self::Latent | Self::Loading | Self::Failed(_) | Self::Closed => None,
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

/// Returns the changes of a group's members: first a [`Joined`](MemberChange::Joined) for each present member.
///
/// The stream reports all differences between the states that the reader has seen, not each step between them. So it
/// has no gap, and a slow reader needs no more memory than a fast one.
pub(super) fn changes_of(mut states: watch::Receiver<GroupState>) -> Changes<MemberChange> {
    states.mark_changed();
    let begin = (states, Members::default());
    let next = async |(mut states, seen): (watch::Receiver<GroupState>, Members)| loop {
        states.changed().await.ok()?;
        let known = match &*states.borrow_and_update() {
            GroupState::Known(members) => members.clone(),
            GroupState::Latent | GroupState::Loading | GroupState::Refused { .. } | GroupState::Failed(_) => continue,
            GroupState::Closed => return None,
        };
        return Some((stream::iter(known.changes_since(&seen)), (states, known)));
    };
    Changes::new(stream::unfold(begin, next).flatten())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(id: &str, data: &str, czxid: i64) -> Member {
        Member { id: id.to_owned(), data: data.into(), session: SessionId::new(7), czxid: Zxid::new(czxid) }
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

    #[test]
    fn node_that_the_server_hides_may_be_the_same() {
        let (shown, hidden) = (members(&[member("a", "1", 1)]), members(&[member("a", "", 0)]));
        for (before, after) in [(&shown, &hidden), (&hidden, &shown)] {
            let now = after.get("a").unwrap().clone();
            assert_eq!(after.changes_since(before), [MemberChange::DataChanged(now)]);
        }
    }

    #[tokio::test]
    async fn a_stream_begins_with_the_present_members_and_ends_with_the_group() {
        let (one, two) = (member("a", "1", 1), member("b", "1", 2));
        let states = watch::Sender::new(GroupState::Known(members(std::slice::from_ref(&one))));
        let mut changes = changes_of(states.subscribe());
        assert_eq!(changes.recv().await, Some(MemberChange::Joined(one.clone())));
        states.send_replace(GroupState::Known(members(&[one.clone(), two.clone()])));
        states.send_replace(GroupState::Known(members(std::slice::from_ref(&two))));
        assert_eq!(changes.recv().await, Some(MemberChange::Left(one)));
        assert_eq!(changes.recv().await, Some(MemberChange::Joined(two)));
        states.send_replace(GroupState::Closed);
        assert_eq!(changes.recv().await, None);
    }
}
