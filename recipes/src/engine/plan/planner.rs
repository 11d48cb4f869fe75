//! The planner, its actions, and the proof behind each grant.

use std::sync::Arc;

use crate::engine::driver::Predicate;
use crate::engine::plan::messages::{Ahead, Arm, Armed, DeletedBy, Epoch, Input, Listing, Rules, WaitSet, Watched};
use crate::engine::plan::two_ahead;

/// After so many uses of an earlier listing that have led to a deleted node, a listing costs less time.
const MOST_GONE: u8 = 2;

/// The reason that makes a grant right.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Proof(Reason);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Reason {
    /// A listing contains this contender's node, and the driver grants it the lock there.
    Listed { epoch: Epoch },
    /// The only node ahead was deleted, and this contender's node was not.
    HandOff { epoch: Epoch, by: DeletedBy },
}

impl Proof {
    fn listed(listing: &Listing<'_>, decided: &Predicate) -> Option<Self> {
        let has_own = listing.queue.position(listing.own).is_some();
        (has_own && *decided == Predicate::Acquired).then_some(Self(Reason::Listed { epoch: listing.epoch }))
    }

    /// Proves a hand-off if one connection set both watches and notified the deletion. Its events come in the order of
    /// transactions, so the contender's node existed then, unless one transaction deleted both. The same connection has
    /// shown that no other node blocks: after a restore from a backup, deleted nodes may be back.
    fn hand_off(
        rules: &Rules<'_>,
        blocker: &Blocker,
        own: Option<Epoch>,
        deleted: Option<Epoch>,
        by: DeletedBy,
    ) -> Option<Self> {
        let epoch = deleted?;
        let in_order = blocker.armed_in == Some(epoch) && own == Some(epoch);
        let is_alone = blocker.alone_in == Some(epoch) && blocker.listed_in == Some(epoch);
        let proven = rules.limit_is_fixed && is_alone && in_order && by != DeletedBy::Unknown;
        proven.then_some(Self(Reason::HandOff { epoch, by }))
    }

    /// Returns the connection that has shown the reason.
    pub(crate) const fn epoch(self) -> Epoch {
        match self.0 {
            Reason::Listed { epoch } | Reason::HandOff { epoch, .. } => epoch,
        }
    }
}

/// The next action of a contender.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Action {
    /// Create this contender's node.
    Create,
    /// Send a write that changes nothing. A later listing on its connection reflects every earlier write.
    Barrier,
    /// Send such a write, keep one of the nodes that lost replies have left, and delete the others.
    Adopt,
    List {
        watched: bool,
    },
    /// Find the next contender ahead: one that the session knows, or one in an earlier listing of the session without
    /// the contenders that have left since. If all have left, confirm that. Without such a listing, list.
    Next,
    /// Watch a node and this contender's own, and list after that, all at once.
    Arm(Arm),
    /// Wait for the first event of a set.
    Wait(WaitSet),
    /// The contender has the lock.
    Grant {
        proof: Proof,
        signals: bool,
    },
    /// Refuse: another contender has the lock, and this one does not wait.
    Refuse,
    /// This contender's node is deleted: create another one, at the back of the queue.
    Rejoin,
}

/// The decisions of one contender, in one session.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(crate) struct Plan {
    /// The connection that carried the reply to this contender's newest write: a listing on it is not older than that
    /// write.
    ordered_in: Option<Epoch>,
    /// The contender may have several nodes, or another one than it knows.
    is_uncertain: bool,
    /// The children are watched: any deletion may grant the lock.
    watches_children: bool,
    /// The last node ahead that has signalled, or cannot signal.
    signalled_by: Option<Arc<str>>,
    /// The number of contenders ahead at first, or 1 for a contender that joined without a listing.
    pub(crate) queue_position: Option<usize>,
    waits_for: Target,
    /// The number of uses of an earlier listing since the last notification of a deletion.
    gone: u8,
    /// The connection on which the watch on this contender's node was set, as long as it has not fired.
    own_armed_in: Option<Epoch>,
}

/// The target that a contender waits for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
enum Target {
    #[default]
    Nothing,
    /// The deletion of a node.
    Node(Blocker),
    /// The deletion of the node ahead of the predecessor. After it the predecessor is probably the holder.
    TwoAhead { second: Arc<str>, predecessor: Arc<str> },
    /// The signal or the deletion of a contender ahead.
    Signal { node: Arc<str> },
    /// Any change of the children.
    Children,
}

/// A node ahead that blocks a contender.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Blocker {
    node: Arc<str>,
    /// The connection that has shown no other node between this one and the contender's.
    listed_in: Option<Epoch>,
    /// The connection that has shown that no node ahead of this one blocks the contender, and none ever will unless the
    /// contender is told that it [may be overtaken](Rules::may_be_overtaken).
    alone_in: Option<Epoch>,
    /// The connection on which its watch was set.
    armed_in: Option<Epoch>,
}

impl Plan {
    /// Creates the plan of a contender, and its first action.
    pub(crate) fn new() -> (Self, Action) {
        (Self::default(), Action::Create)
    }

    /// Returns the action that follows an input.
    pub(crate) fn next(&mut self, input: Input<'_>, rules: &Rules<'_>) -> Action {
        match input {
            Input::Created { epoch, certain, ahead } => {
                (self.ordered_in, self.is_uncertain) = (Some(epoch), !certain);
                self.join(ahead, epoch, rules)
            }
            Input::Ordered { epoch } => {
                self.ordered_in = Some(epoch);
                self.list()
            }
            Input::Adopted { epoch, ahead } => {
                (self.ordered_in, self.is_uncertain) = (Some(epoch), false);
                self.join(ahead, epoch, rules)
            }
            Input::Behind { epoch, ahead } => self.join(Some(ahead), epoch, rules),
            Input::Listed(listing) => self.decide(&listing, None, rules),
            Input::Armed(armed) => self.armed(&armed, rules),
            Input::Deleted { epoch, by } => self.deleted(epoch, by, rules),
            Input::Written if matches!(self.waits_for, Target::Signal { .. }) => self.has_signalled(),
            Input::Written | Input::Unwatched => self.arm_again(rules),
            Input::HolderIsFirst { epoch } => self.holder_is_first(epoch, rules),
            Input::OwnChanged | Input::WaitsLong => {
                self.own_armed_in = None;
                Action::Arm(Arm { node: None, own: true, list: false })
            }
            Input::OwnDeleted => {
                self.own_armed_in = None;
                self.list()
            }
            // Repeats the read that has failed. A watch that was set before is valid on the new connection too.
            Input::Reconnected => {
                self.own_armed_in = None;
                self.arm_again(rules)
            }
            Input::QueueChanged => match &self.waits_for {
                // The watches are still set.
                Target::Node(Blocker { node, .. }) if rules.may_be_overtaken => {
                    Action::Arm(Arm { node: Some(node.clone()), own: self.own_armed_in.is_none(), list: true })
                }
                _ => self.list(),
            },
        }
    }

    /// Waits for a contender ahead, if one is known, without a listing. If that contender has left, it does not grant.
    /// No other one is between two numbers that follow each other, as long as both nodes exist. Numbers are given again
    /// only after the deletion of all nodes.
    fn join(&mut self, ahead: Option<Ahead>, epoch: Epoch, rules: &Rules<'_>) -> Action {
        let Some(ahead) = ahead.filter(|_| !self.is_uncertain && !rules.asks_once) else { return self.list() };
        // At least.
        self.queue_position = self.queue_position.or(Some(1));
        let listed_in = ahead.is_next.then_some(epoch);
        self.waits_for = Target::Node(Blocker { node: ahead.node, listed_in, alone_in: None, armed_in: None });
        self.arm_again(rules)
    }

    fn list(&mut self) -> Action {
        self.waits_for = Target::Nothing;
        self.look()
    }

    fn look(&self) -> Action {
        if self.is_uncertain { Action::Adopt } else { Action::List { watched: self.watches_children } }
    }

    /// Finds the next node to wait for, behind the deleted one.
    fn next_ahead(&mut self) -> Action {
        match std::mem::take(&mut self.waits_for) {
            Target::Node(_) if self.gone < MOST_GONE => {
                self.gone += 1;
                Action::Next
            }
            _ => self.list(),
        }
    }

    /// Decides on a listing. The watch on the node of `armed` was set before it.
    fn decide(&mut self, listing: &Listing<'_>, armed: Option<Blocker>, rules: &Rules<'_>) -> Action {
        let is_ordered = self.ordered_in == Some(listing.epoch);
        let decided = rules.driver.gets_the_lock(listing.queue, listing.own, listing.max_leases);
        if let Some(proof) = Proof::listed(listing, &decided) {
            self.note_position(listing);
            return Action::Grant { proof, signals: self.signals(listing, rules) };
        }
        match decided {
            // A lagging server may list a state from before our newest write, but not on the connection of that write.
            Predicate::Missing | Predicate::Acquired if !is_ordered => return Action::Barrier,
            Predicate::Missing | Predicate::Acquired => return Action::Rejoin,
            _ => self.note_position(listing),
        }
        if rules.asks_once {
            return Action::Refuse;
        }
        match decided {
            Predicate::WatchNode { node, is_last_blocker } => {
                self.wait_for_node(node.into(), is_last_blocker, armed, listing, rules)
            }
            Predicate::WatchSignal { node } if self.signalled_by.as_deref() != Some(&*node) => {
                // The queue may have grown since the contender was a first waiter.
                self.watches_children = false;
                self.waits_for = Target::Signal { node: node.into() };
                self.arm_again(rules)
            }
            // The contender ahead has signalled before: it holds a lease under a limit that was lowered since, another
            // client wrote its node, or no session owns it.
            Predicate::WatchSignal { .. } | Predicate::WatchChildren if self.watches_children => {
                self.waits_for = Target::Children;
                self.wait(rules)
            }
            _ => {
                self.watches_children = true;
                self.list()
            }
        }
    }

    fn note_position(&mut self, listing: &Listing<'_>) {
        self.queue_position = self.queue_position.or_else(|| listing.queue.position(listing.own));
    }

    fn signals(&self, listing: &Listing<'_>, rules: &Rules<'_>) -> bool {
        let position = listing.queue.position(listing.own);
        let is_followed = position.is_some_and(|position| position + 1 < listing.queue.len());
        rules.signals_grant && (is_followed || listing.may_be_followed)
    }

    fn wait_for_node(
        &mut self,
        node: Arc<str>,
        is_alone: bool,
        armed: Option<Blocker>,
        listing: &Listing<'_>,
        rules: &Rules<'_>,
    ) -> Action {
        let listed_in = Some(listing.epoch);
        let alone_in = listed_in.filter(|_| is_alone);
        self.waits_for = match (two_ahead::second_ahead(listing, rules), armed) {
            (Some(second), _) => Target::TwoAhead { second: second.into(), predecessor: node },
            (None, Some(armed)) if armed.node == node => Target::Node(Blocker { listed_in, alone_in, ..armed }),
            (None, _) => Target::Node(Blocker { node, listed_in, alone_in, armed_in: None }),
        };
        match &self.waits_for {
            Target::Node(Blocker { armed_in: Some(_), .. }) => self.wait(rules),
            _ => self.arm_again(rules),
        }
    }

    /// Sets the watch that the contender waits for. Also watches this contender's node if a hand-off may follow, and lists
    /// again if another contender may have moved ahead unseen.
    fn arm_again(&self, rules: &Rules<'_>) -> Action {
        let (node, own) = match &self.waits_for {
            Target::Node(Blocker { node, alone_in, .. }) => (node, alone_in.is_some() && self.own_armed_in.is_none()),
            Target::TwoAhead { second: node, .. } | Target::Signal { node } => (node, false),
            Target::Nothing | Target::Children => return self.look(),
        };
        Action::Arm(Arm { node: Some(node.clone()), own, list: own && rules.may_be_overtaken })
    }

    fn wait(&self, rules: &Rules<'_>) -> Action {
        let (node, hears_holder) = match &self.waits_for {
            Target::Node(Blocker { node, alone_in, .. }) => (node, rules.hears_holders && alone_in.is_none()),
            Target::TwoAhead { second: node, .. } | Target::Signal { node } => (node, false),
            Target::Nothing | Target::Children => return Action::Wait(WaitSet { node: None, hears_holder: false }),
        };
        Action::Wait(WaitSet { node: Some(node.clone()), hears_holder })
    }

    fn armed(&mut self, armed: &Armed<'_>, rules: &Rules<'_>) -> Action {
        match armed.own {
            Watched::NotAsked => {}
            Watched::Gone => return self.list(),
            Watched::Set { epoch, .. } => self.own_armed_in = Some(epoch),
        }
        match (armed.node, &mut self.waits_for) {
            (Watched::Gone, Target::TwoAhead { .. }) => return self.confirm_predecessor(),
            (Watched::Gone, _) if armed.listing.is_none() => return self.next_ahead(),
            (Watched::Set { has_signalled: true, .. }, Target::Signal { .. }) => return self.has_signalled(),
            (Watched::Set { epoch, .. }, Target::Node(blocker)) => blocker.armed_in = Some(epoch),
            _ => {}
        }
        let Some(listing) = &armed.listing else { return self.wait(rules) };
        let watched = match (armed.node, std::mem::take(&mut self.waits_for)) {
            (Watched::Set { .. }, Target::Node(blocker)) => Some(blocker),
            _ => None,
        };
        self.decide(listing, watched, rules)
    }

    /// Watches the children: the node ahead has a lease or cannot signal, so any deletion may free one for this contender.
    fn has_signalled(&mut self) -> Action {
        if let Target::Signal { node } = &self.waits_for {
            self.signalled_by = Some(Arc::clone(node));
        }
        self.watches_children = true;
        self.list()
    }

    fn deleted(&mut self, epoch: Option<Epoch>, by: DeletedBy, rules: &Rules<'_>) -> Action {
        self.gone = 0;
        match &self.waits_for {
            Target::Node(blocker) => match Proof::hand_off(rules, blocker, self.own_armed_in, epoch, by) {
                Some(proof) => Action::Grant { proof, signals: rules.signals_grant },
                None => self.next_ahead(),
            },
            Target::TwoAhead { .. } => self.confirm_predecessor(),
            _ => self.list(),
        }
    }

    /// Checks that the predecessor is the holder, while its node still exists.
    fn confirm_predecessor(&mut self) -> Action {
        let Target::TwoAhead { predecessor, .. } = std::mem::take(&mut self.waits_for) else { return self.list() };
        let blocker = Blocker { node: predecessor.clone(), listed_in: None, alone_in: None, armed_in: None };
        self.waits_for = Target::Node(blocker);
        Action::Arm(Arm { node: Some(predecessor), own: self.own_armed_in.is_none(), list: true })
    }

    fn holder_is_first(&mut self, epoch: Epoch, rules: &Rules<'_>) -> Action {
        if let Target::Node(blocker) = &mut self.waits_for {
            blocker.alone_in = Some(epoch);
        }
        match self.own_armed_in {
            Some(_) => self.wait(rules),
            None => Action::Arm(Arm { node: None, own: true, list: false }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::driver::{SortedChildren, StandardLockInternalsDriver};

    const RULES: Rules<'static> = Rules {
        driver: &StandardLockInternalsDriver,
        is_queue: true,
        may_be_overtaken: false,
        limit_is_fixed: true,
        signals_grant: false,
        hears_holders: true,
        asks_once: false,
    };

    /// Returns the plan of a contender that waits behind one other, as connection 1 has shown.
    fn waits_behind_one() -> Plan {
        let queue = ["lock-1", "lock-2"].map(ToOwned::to_owned);
        let queue = SortedChildren::new(queue, "lock-", &StandardLockInternalsDriver);
        let (own, max_leases, may_be_followed, predecessor_is_ours) = ("lock-2", 1, false, false);
        let listing = Listing { epoch: 1, queue: &queue, own, max_leases, may_be_followed, predecessor_is_ours };
        let (mut plan, _) = Plan::new();
        plan.next(Input::Created { epoch: 1, certain: true, ahead: None }, &RULES);
        let action = plan.next(Input::Listed(listing), &RULES);
        assert_eq!(action, Action::Arm(Arm { node: Some("lock-1".into()), own: true, list: false }));
        watches(&mut plan, Some(1), Some(1));
        plan
    }

    /// Sets watches on the node ahead and on the contender's, by a connection.
    fn watches(plan: &mut Plan, node: Option<Epoch>, own: Option<Epoch>) {
        let set = |epoch| Watched::Set { epoch, has_signalled: false };
        let [node, own] = [node, own].map(|epoch| epoch.map_or(Watched::NotAsked, set));
        assert!(matches!(plan.next(Input::Armed(Armed { node, own, listing: None }), &RULES), Action::Wait(_)));
    }

    fn is_granted(plan: &mut Plan, epoch: Epoch) -> bool {
        let deleted = Input::Deleted { epoch: Some(epoch), by: DeletedBy::OtherSession };
        match plan.next(deleted, &RULES) {
            Action::Grant { .. } => true,
            Action::Next => false,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn only_the_connection_that_has_shown_the_blocker_alone_proves_a_hand_off() {
        assert!(is_granted(&mut waits_behind_one(), 1));
        // After a reconnect deleted nodes may be back, between the two.
        let mut plan = waits_behind_one();
        plan.next(Input::Unwatched, &RULES);
        watches(&mut plan, Some(2), None);
        plan.next(Input::OwnChanged, &RULES);
        watches(&mut plan, None, Some(2));
        assert!(!is_granted(&mut plan, 2));
    }

    #[test]
    fn a_holder_proves_a_hand_off_only_on_the_connection_that_has_listed_and_watched() {
        for (first_in, watched_in, expected) in [(1, 1, true), (1, 2, false), (2, 2, false)] {
            let mut plan = waits_behind_one();
            // Behind a holder that has not reported yet.
            let Target::Node(blocker) = &mut plan.waits_for else { panic!("{plan:?}") };
            blocker.alone_in = None;
            plan.next(Input::Unwatched, &RULES);
            watches(&mut plan, Some(watched_in), Some(watched_in));
            plan.next(Input::HolderIsFirst { epoch: first_in }, &RULES);
            assert_eq!(is_granted(&mut plan, watched_in), expected, "{first_in}, {watched_in}");
        }
    }

    const SIGNAL_RULES: Rules<'static> = Rules { is_queue: false, signals_grant: true, hears_holders: false, ..RULES };

    /// Shows a contender for two leases, `lock-6`, these nodes.
    fn shows(plan: &mut Plan, names: &[&str]) -> Action {
        let queue = SortedChildren::new(names.iter().map(|name| (*name).into()), "lock-", &StandardLockInternalsDriver);
        let (own, max_leases, may_be_followed, predecessor_is_ours) = ("lock-6", 2, false, false);
        let listing = Listing { epoch: 1, queue: &queue, own, max_leases, may_be_followed, predecessor_is_ours };
        plan.next(Input::Listed(listing), &SIGNAL_RULES)
    }

    fn arms(node: &str) -> Action {
        Action::Arm(Arm { node: Some(node.into()), own: false, list: false })
    }

    fn is_armed(plan: &mut Plan, has_signalled: bool) -> Action {
        let node = Watched::Set { epoch: 1, has_signalled };
        plan.next(Input::Armed(Armed { node, own: Watched::NotAsked, listing: None }), &SIGNAL_RULES)
    }

    const SIX: [&str; 6] = ["lock-1", "lock-2", "lock-3", "lock-4", "lock-5", "lock-6"];
    const LISTS: Action = Action::List { watched: true };
    const WATCHES: Action = Action::Wait(WaitSet { node: None, hears_holder: false });

    /// Returns the plan of the last of six contenders for two leases, which arms a watch on the fourth one.
    fn behind_a_waiter() -> Plan {
        let (mut plan, _) = Plan::new();
        plan.next(Input::Created { epoch: 1, certain: true, ahead: None }, &SIGNAL_RULES);
        assert_eq!(shows(&mut plan, &SIX), arms("lock-4"));
        plan
    }

    #[test]
    fn signal_before_the_watch_and_after_it_are_followed_by_one_watched_listing() {
        let mut plan = behind_a_waiter();
        assert_eq!(is_armed(&mut plan, true), LISTS);
        let mut plan = behind_a_waiter();
        assert_eq!(
            is_armed(&mut plan, false),
            Action::Wait(WaitSet { node: Some("lock-4".into()), hears_holder: false })
        );
        assert_eq!(plan.next(Input::Written, &SIGNAL_RULES), LISTS);
    }

    #[test]
    fn node_that_has_signalled_is_not_watched_again_and_another_one_is() {
        for is_before in [true, false] {
            let mut plan = behind_a_waiter();
            let action = is_armed(&mut plan, is_before);
            let action = if is_before { action } else { plan.next(Input::Written, &SIGNAL_RULES) };
            assert_eq!(action, LISTS);
            for _ in 0..3 {
                assert_eq!(shows(&mut plan, &SIX), WATCHES);
                assert_eq!(plan.next(Input::QueueChanged, &SIGNAL_RULES), LISTS);
            }
            assert_eq!(shows(&mut plan, &["lock-1", "lock-2", "lock-3", "lock-5", "lock-6"]), arms("lock-3"));
        }
    }
}
