//! The run of a partition: it follows the members, and drives the items.

use std::collections::BTreeMap;
use std::future::Future;

use curator_framework::Error;
use futures_util::StreamExt as _;
use futures_util::future::join;
use futures_util::stream::FuturesUnordered;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::inner::Inner;
use super::item::{End, OwnedItem, Wish, pursue};
use super::settling::{Claim, Effect, Settling, View};
use crate::groups::member::GroupMember;
use crate::groups::members::GroupState;
use crate::nodes::error::NodeError;
use crate::nodes::state::NodeState;

/// Runs until the partition is closed, or until an error that waiting cannot fix. Then the work has its grace.
pub(super) async fn drive<W, F>(inner: &Inner, member: &GroupMember, work: &Mutex<W>) -> Result<(), NodeError>
where
    W: FnMut(OwnedItem) -> F,
    F: Future<Output = ()>,
{
    let mut items = Items::new(|name, wish| async move { (name, pursue(inner, name, wish, work).await) });
    let outcome = follow(inner, member, &mut items).await;
    inner.share.send_modify(|share| share.wanted.clear());
    items.want(BTreeMap::new());
    // The others learn at once that the member leaves, and wait in the queues of its items.
    join(member.close(), items.end()).await;
    outcome
}

/// Wants the items that the members' views give to this one.
async fn follow<'a, P, F>(inner: &'a Inner, member: &GroupMember, items: &mut Items<'a, P, F>) -> Result<(), NodeError>
where
    P: Fn(&'a str, Wish) -> F,
    F: Future<Output = (&'a str, Result<End, NodeError>)>,
{
    let (mut members, mut node) = (member.watch(), member.node().watch());
    let mut settling = Settling::new(inner.settle);
    loop {
        let view = look(&inner.id, &members.borrow_and_update(), &node.borrow_and_update())?;
        let effect = settling.next(view, Instant::now());
        if effect != Effect::Nothing {
            let mut wanted = settling.claims(&inner.id, &inner.items);
            if effect == Effect::Claims {
                for (item, claim) in items.wanted().filter(|(item, _)| inner.is_owned(item)) {
                    wanted.entry(item).or_insert(claim);
                }
            }
            inner.wants(settling.view(), &wanted, effect == Effect::Settled);
            items.want(wanted);
        }
        tokio::select! {
            biased;
            () = inner.runs.closed() => return Ok(()),
            // Both fail only without a sender, which `member` keeps.
            _ = members.changed() => {}
            _ = node.changed() => {}
            () = passed(settling.due()) => {}
            ended = items.next() => ended?,
        }
    }
}

/// Returns what this member sees; `None` before the first read of its group.
fn look(id: &str, members: &GroupState, node: &NodeState) -> Result<Option<View>, NodeError> {
    let own = match node {
        NodeState::Standing(node) | NodeState::Refused { node, .. } => Some(node.czxid),
        // The member tries again: it can create its node once other nodes of its session are deleted.
        NodeState::Failed(NodeError::Framework(Error::TooManyEphemeralNodes { .. })) => None,
        NodeState::Failed(error) => return Err(error.clone()),
        NodeState::Closed => return Err(Error::Closed.into()),
        _ => None,
    };
    let members = match members {
        GroupState::Known(members) | GroupState::Refused { members, .. } => members,
        GroupState::Failed(error) => return Err(error.clone()),
        GroupState::Closed => return Err(Error::Closed.into()),
        _ => return Ok(None),
    };
    // Another process may have the id.
    let is_member = own.is_some() && members.get(id).map(|member| member.czxid) == own;
    Ok(Some(View::new(members.ids().map(str::to_owned), is_member)))
}

async fn passed(moment: Option<Instant>) {
    match moment {
        Some(moment) => sleep_until(moment).await,
        None => std::future::pending().await,
    }
}

/// The items that are wanted, or owned and about to move. Their futures run while the run is polled.
struct Items<'a, P, F> {
    pursue: P,
    wishes: BTreeMap<&'a str, watch::Sender<Option<Claim>>>,
    pursuits: FuturesUnordered<F>,
}

impl<'a, P, F> Items<'a, P, F>
where
    P: Fn(&'a str, Wish) -> F,
    F: Future<Output = (&'a str, Result<End, NodeError>)>,
{
    fn new(pursue: P) -> Self {
        Self { pursue, wishes: BTreeMap::new(), pursuits: FuturesUnordered::new() }
    }

    /// Returns the items that are wanted, with their claims.
    fn wanted(&self) -> impl Iterator<Item = (&'a str, Claim)> {
        self.wishes.iter().filter_map(|(item, wish)| Some((*item, (*wish.borrow())?)))
    }

    /// Wants these items, and no others.
    fn want(&mut self, wanted: BTreeMap<&'a str, Claim>) {
        for (item, wish) in &self.wishes {
            let claim = wanted.get(item).copied();
            wish.send_if_modified(|before| std::mem::replace(before, claim) != claim);
        }
        for (item, claim) in wanted {
            if !self.wishes.contains_key(item) {
                self.begin(item, claim);
            }
        }
    }

    fn begin(&mut self, item: &'a str, claim: Claim) {
        let (sender, wish) = Wish::new(claim);
        self.wishes.insert(item, sender);
        self.pursuits.push((self.pursue)(item, wish));
    }

    /// Resolves when the pursuit of an item has ended. Starts it again if the item is wanted again, but an item that is
    /// not free only with the next claim.
    async fn next(&mut self) -> Result<(), NodeError> {
        let Some((item, outcome)) = self.pursuits.next().await else { return std::future::pending().await };
        let wish = self.wishes.remove(item);
        match (outcome?, wish.and_then(|wish| *wish.borrow())) {
            (_, None) | (End::NotFree, Some(Claim::IfFree)) => {}
            (_, Some(claim)) => self.begin(item, claim),
        }
        Ok(())
    }

    /// Resolves when no item is owned.
    async fn end(mut self) {
        // An error of an item that is given up changes nothing.
        while self.pursuits.next().await.is_some() {}
    }
}
