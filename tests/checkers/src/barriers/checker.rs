//! The check of the events of barriers.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use curator_test::nodes::{Change, Node};

use super::{Barriers, Call, Event, Member, Rules};
use crate::nodes::Nodes;
use crate::timeline;
use crate::violation::Found;

/// One member.
struct Known {
    id: String,
    since: Duration,
    /// The rounds that may be its own, once it has entered.
    rounds: Option<Vec<i64>>,
    entered: Duration,
    /// The time of its leave's end.
    left: Option<Duration>,
    /// It has started to leave, or is gone.
    leaves: bool,
}

/// One round of the double barrier.
struct Round {
    from: Duration,
    /// `None` while its `ready` exists.
    until: Option<Duration>,
    opened_by: Option<Member>,
    /// The names of the nodes of its members, as `ready` has named them.
    names: BTreeSet<String>,
}

/// The deletion of a member's node.
struct Departure {
    at: Duration,
    /// The member had started to leave, or was gone.
    leaves: bool,
}

pub(super) struct Checker<'a> {
    rules: &'a Rules,
    history: &'a Barriers,
    nodes: Nodes,
    members: BTreeMap<Member, Known>,
    /// By the transactions that opened them.
    rounds: BTreeMap<i64, Round>,
    departures: Vec<Departure>,
    calls: BTreeMap<Call, (String, Duration)>,
    found: Found,
}

impl<'a> Checker<'a> {
    pub(super) fn new(rules: &'a Rules, history: &'a Barriers) -> Self {
        Self {
            rules,
            history,
            nodes: Nodes::default(),
            members: BTreeMap::new(),
            rounds: BTreeMap::new(),
            departures: Vec::new(),
            calls: BTreeMap::new(),
            found: Found::default(),
        }
    }
}

impl<'a> timeline::Checker<'a, Event> for Checker<'a> {
    fn apply(&mut self, at: Duration, event: &'a Event) -> bool {
        match event {
            Event::Server(change) => {
                self.look_at_the_nodes(at, change);
                self.nodes.apply(at, change)
            }
            Event::Enters(member, id) => {
                let known = Known { id: id.clone(), since: at, rounds: None, entered: at, left: None, leaves: false };
                self.members.insert(*member, known).is_none()
            }
            Event::Entered { member, opened } => self.entered(at, *member, *opened),
            Event::Names(member, round) => self.names(at, *member, *round),
            Event::Leaves(member) | Event::Gone(member) => {
                self.members.get_mut(member).map(|known| known.leaves = true).is_some()
            }
            Event::Left { member, died } => self.left(at, *member, *died),
            Event::Calls(call, path) => self.calls.insert(*call, (path.clone(), at)).is_none(),
            Event::Saw(call, is_set) => self.saw(at, *call, *is_set),
        }
    }

    fn found(&mut self) -> &mut Found {
        &mut self.found
    }
}

impl Checker<'_> {
    /// Checks a change that the nodes do not have yet.
    fn look_at_the_nodes(&mut self, at: Duration, change: &Change) {
        let (Change::Created { path, .. } | Change::DataChanged { path, .. } | Change::Deleted { path, .. }) = change;
        let Some(name) = path.strip_prefix(&self.rules.path).and_then(|below| below.strip_prefix('/')) else { return };
        match (name, change) {
            ("ready", Change::Created { node, .. }) => {
                let round = node.czxid;
                let names = names(&node.data);
                self.rounds.insert(round, Round { from: at, until: None, opened_by: None, names });
                let members: BTreeSet<_> = self.standing().map(|node| text(&node.data)).collect();
                if members.len() < self.rules.least {
                    self.found.broken("too few members", at, format!("round {round} opened with {members:?}"));
                }
            }
            ("ready", Change::DataChanged { data, .. }) => {
                if let Some(round) = self.rounds.values_mut().next_back() {
                    round.names.extend(names(data));
                }
            }
            ("ready", Change::Deleted { .. }) => {
                if let Some(round) = self.rounds.values_mut().next_back() {
                    round.until = Some(at);
                }
            }
            (_, Change::Deleted { .. }) => {
                let node = self.nodes.present(path).filter(|node| node.session != 0);
                if let Some(id) = node.map(|node| text(&node.data)) {
                    // One that has not entered may give up just now.
                    let leaves = |known: &Known| (known.leaves || known.rounds.is_none()) && known.id == id;
                    let leaves = self.members.values().any(leaves);
                    self.departures.push(Departure { at, leaves });
                }
            }
            _ => {}
        }
    }

    /// Returns the nodes of all members at present.
    fn standing(&self) -> impl Iterator<Item = &Node> {
        self.nodes.children(&self.rules.path).map(|(_, node)| node).filter(|node| node.session != 0)
    }

    fn entered(&mut self, at: Duration, member: Member, opened: bool) -> bool {
        let Some(known) = self.members.get(&member).filter(|known| known.rounds.is_none()) else { return false };
        let open: Vec<_> = self.rounds.keys().copied().filter(|round| self.is_open(at, known, *round)).collect();
        if open.is_empty() {
            self.found.broken("no open round", at, format!("{member:?} has entered"));
        }
        let left = self.members.iter().filter(|(_, other)| other.rounds.as_ref() == Some(&open));
        let left: Vec<_> = left.filter_map(|(other, known)| Some((*other, known.left?))).collect();
        if let [round] = open[..] {
            for (other, left) in left {
                // It existed then, so it has not started to leave.
                if self.nodes.any_existed(left, left, |node| node.data == known.id.as_bytes()) {
                    self.found.broken("a leave before another", left, format!("{other:?} before {member:?}"));
                }
            }
            let opened_by = self.rounds.get_mut(&round).filter(|_| opened).map(|round| &mut round.opened_by);
            if opened_by.and_then(|opened_by| opened_by.replace(member)).is_some() {
                self.found.broken("a round opened twice", at, format!("{member:?} has opened {round} too"));
            }
        }
        if let Some(known) = self.members.get_mut(&member) {
            (known.rounds, known.entered) = (Some(open), at);
        }
        true
    }

    /// Returns `true` if a member that enters now may have entered this round.
    fn is_open(&self, at: Duration, known: &Known, round: i64) -> bool {
        let Some(Round { from, until, names, .. }) = self.rounds.get(&round) else { return false };
        let (from, until) = (*from, until.unwrap_or(at));
        let is_own = |node: &Node| node.data == known.id.as_bytes();
        let counted = |node: &Node| is_own(node) && node.czxid < round;
        let of_the_round = |name: &str, node: &Node| {
            node.session != 0 && !is_own(node) && (node.czxid < round || names.contains(name))
        };
        let late = known.since.max(from);
        until >= known.since
            && (self.nodes.any_existed(from, from, counted)
                || self.nodes.any_child_existed(&self.rules.path, late, until, of_the_round))
    }

    fn names(&mut self, at: Duration, member: Member, round: i64) -> bool {
        let Some(rounds) = self.members.get(&member).and_then(|known| known.rounds.as_ref()) else { return false };
        if !rounds.contains(&round) {
            self.found.broken("another round", at, format!("{member:?} names {round}"));
        }
        true
    }

    fn left(&mut self, at: Duration, member: Member, died: u32) -> bool {
        let Some(known) = self.members.get_mut(&member).filter(|known| known.leaves && known.left.is_none()) else {
            return false;
        };
        known.left = Some(at);
        let (id, rounds, entered) = (known.id.clone(), known.rounds.clone(), known.entered);
        if !self.nodes.any_existed(entered, entered, |node| node.data == id.as_bytes()) {
            // Another client has deleted its node before it entered, so it is not of the round.
            return true;
        }
        let stands = |known: &Known| self.standing().any(|node| node.data == known.id.as_bytes());
        let others = self.members.iter().filter(|(_, other)| other.rounds == rounds && !other.leaves && stands(other));
        let others: Vec<_> = others.map(|(other, _)| *other).collect();
        for other in others {
            self.found.broken("a leave before another", at, format!("{member:?} before {other:?}"));
        }
        if let Some((from, until)) = self.nodes.last_span(&self.rules.path, |node| node.data == id.as_bytes()) {
            let until = until.unwrap_or(at);
            let count = |such: &dyn Fn(&Departure) -> bool| {
                u32::try_from(self.departures.iter().filter(|departure| such(departure)).count()).unwrap_or(u32::MAX)
            };
            // After a lost reply it learns the number of its arrival later.
            let least = count(&|departure| entered < departure.at && departure.at < until && !departure.leaves);
            // Its own is one of them, unless another client has deleted its node: a lost reply may hide that. Behind a
            // lost reply it learns the number of its departure later too.
            let is_death = |departure: &Departure| departure.at == until && !departure.leaves;
            let own = u32::from(!self.departures.iter().any(is_death));
            let most = count(&|departure| from <= departure.at).saturating_sub(own);
            if !(least..=most).contains(&died) {
                let what = format!("{member:?} reports {died} of {least} to {most}");
                self.found.broken("a wrong number of deaths", at, what);
            }
        }
        true
    }

    fn saw(&mut self, at: Duration, call: Call, is_set: bool) -> bool {
        let Some((path, since)) = self.calls.remove(&call) else { return false };
        // The server of the client may have been behind when the call started.
        let since = self.history.faults.seen_from(since, self.rules.behind);
        let was_so = match is_set {
            true => self.nodes.existed(&path, since, at, |_| true),
            false => self.nodes.present(&path).is_none_or(|node| {
                // It was created in the meantime.
                !self.nodes.existed(&path, Duration::ZERO, since, |earlier| earlier.czxid == node.czxid)
            }),
        };
        if !was_so {
            let state = if is_set { "set" } else { "removed" };
            self.found.broken("a wrong state", at, format!("{call:?} ends by a barrier that is {state}"));
        }
        true
    }
}

/// Returns the names of members that `ready` has as its data, one a line.
fn names(data: &[u8]) -> BTreeSet<String> {
    text(data).lines().map(str::to_owned).collect()
}

fn text(data: &[u8]) -> String {
    String::from_utf8_lossy(data).into_owned()
}
