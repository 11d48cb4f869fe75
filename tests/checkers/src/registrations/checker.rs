//! The check of the events of registrations.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use curator_test::ClientId;
use curator_test::nodes::{Change, Node};

use super::{Event, Plan, Registration, Registrations, Rules, State};
use crate::nodes::Nodes;
use crate::timeline;
use crate::violation::Found;

/// The state of one registration.
#[derive(Debug)]
struct Known<'a> {
    plan: &'a Plan,
    /// All wanted data, each with the time from which it is wanted.
    wanted: Vec<(Duration, &'a [u8])>,
    told: &'a State,
    /// The time of the newest state.
    since: Duration,
    /// The path of its node, once it is known.
    path: Option<&'a str>,
    closed: bool,
    /// The difference from the server, with the time from which it lasts.
    differs: Option<(&'static str, Duration)>,
}

impl Known<'_> {
    /// Returns the difference from the server, in the present session of the client.
    fn difference(&self, nodes: &Nodes, own: Option<i64>) -> Option<&'static str> {
        match self.told {
            State::Absent => Some("no node"),
            State::TakenBy { session, czxid } => {
                let is_taken = |node: &Node| (node.session, node.czxid) == (*session, *czxid);
                (!nodes.present(&self.plan.path).is_some_and(is_taken)).then_some("a path that is not taken so")
            }
            State::Standing { path, czxid, session, foreign } => {
                let its = nodes.present(path).filter(|node| (node.session, node.czxid) == (*session, *czxid));
                let wanted = self.wanted.last().map(|(_, data)| *data);
                match its {
                    None => Some("a node that is gone"),
                    Some(_) if self.plan.ephemeral && own != Some(*session) => Some("a node of an earlier session"),
                    Some(node) if wanted == Some(&node.data) => None,
                    Some(node) if !self.plan.mends && foreign.as_ref() == Some(&node.data) => None,
                    Some(_) => Some("other data"),
                }
            }
        }
    }

    /// Returns `true` if it reports this node as its own.
    fn has(&self, node_path: &str, node: &Node) -> bool {
        matches!(self.told, State::Standing { path, czxid, .. } if path == node_path && *czxid == node.czxid)
    }
}

pub(super) struct Checker<'a> {
    rules: &'a Rules,
    history: &'a Registrations,
    nodes: Nodes,
    /// The sessions of each client, with the times of their beginnings.
    sessions: BTreeMap<ClientId, Vec<(Duration, i64)>>,
    registrations: BTreeMap<Registration, Known<'a>>,
    /// The parents of all wanted nodes.
    parents: BTreeSet<&'a str>,
    outsiders: BTreeSet<(&'a str, i64)>,
    /// The nodes without registration, each with the time from which it is so.
    left: BTreeMap<(String, i64), Duration>,
    found: Found,
}

impl<'a> Checker<'a> {
    pub(super) fn new(rules: &'a Rules, history: &'a Registrations) -> Self {
        Self {
            rules,
            history,
            nodes: Nodes::default(),
            sessions: BTreeMap::new(),
            registrations: BTreeMap::new(),
            parents: BTreeSet::new(),
            outsiders: BTreeSet::new(),
            left: BTreeMap::new(),
            found: Found::default(),
        }
    }
}

impl<'a> timeline::Checker<'a, Event> for Checker<'a> {
    fn apply(&mut self, at: Duration, event: &'a Event) -> bool {
        match event {
            Event::Server(change) => {
                self.look_for_losses(at, change);
                self.nodes.apply(at, change)
            }
            Event::SessionBegan(client, session) => {
                self.sessions.entry(*client).or_default().push((at, *session));
                true
            }
            Event::Outsider { path, czxid } => {
                self.outsiders.insert((path, *czxid));
                true
            }
            Event::Started(registration, plan, data) => {
                self.parents.extend(plan.path.rsplit_once('/').map(|(parent, _)| parent));
                let (wanted, told) = (vec![(at, data.as_slice())], &State::Absent);
                let known = Known { plan, wanted, told, since: at, path: None, closed: false, differs: None };
                self.registrations.insert(*registration, known).is_none()
            }
            Event::Wants(registration, data) => {
                let known = self.registrations.get_mut(registration);
                known.map(|known| known.wanted.push((at, data))).is_some()
            }
            Event::Wrote(registration, data) => self.wrote(at, *registration, data),
            Event::Tells(registration, state) => self.tells(at, *registration, state),
            Event::Closed(registration) => {
                let known = self.registrations.get_mut(registration);
                known.is_some_and(|known| !std::mem::replace(&mut known.closed, true))
            }
        }
    }

    fn at_time(&mut self, now: Duration) {
        let is_over = |from: Duration| self.history.faults.calm(from, now) > self.rules.patience;
        for (registration, known) in &mut self.registrations {
            if let Some((difference, from)) = known.differs.filter(|(_, from)| is_over(*from)) {
                let what = format!("{registration:?} has {difference}");
                self.found.broken_from("a difference from the server", from, now, what);
                known.differs = Some((difference, now));
            }
        }
        for ((path, _), since) in self.left.iter_mut().filter(|(_, since)| is_over(**since)) {
            let from = std::mem::replace(since, now);
            self.found.broken_from("a node without registration", from, now, path.clone());
        }
    }

    fn note_time(&mut self, at: Duration) {
        for known in self.registrations.values_mut() {
            let own = self.sessions.get(&known.plan.client).and_then(|its| its.last()).map(|(_, session)| *session);
            let now = if known.closed { None } else { known.difference(&self.nodes, own) };
            known.differs = match (known.differs, now) {
                (Some(before), Some(now)) if before.0 == now => Some(before),
                (_, now) => now.map(|now| (now, at)),
            };
        }
        let without = self.without_registration();
        self.left.retain(|node, _| without.contains(node));
        for node in without {
            self.left.entry(node).or_insert(at);
        }
    }

    fn found(&mut self) -> &mut Found {
        &mut self.found
    }
}

impl<'a> Checker<'a> {
    /// Finds a registration that loses its node in calm by this change.
    fn look_for_losses(&mut self, at: Duration, change: &Change) {
        let Change::Deleted { path, .. } = change else { return };
        let Some(node) = self.nodes.present(path) else { return };
        if !self.rules.kept_in_calm || node.session == 0 || self.history.faults.has(at) {
            return;
        }
        // A client may start a registration again that it has just closed. Then both have reported this node.
        let have = || self.registrations.iter().filter(|(_, known)| known.has(path, node));
        if let (Some((registration, Known { closed: false, .. })), 1) = (have().next(), have().count()) {
            self.found.broken("a loss in calm", at, format!("{registration:?} loses {path}"));
        }
    }

    fn tells(&mut self, at: Duration, registration: Registration, state: &'a State) -> bool {
        let rivals = self.registrations.iter().filter(|(other, _)| **other != registration);
        let plans: Vec<_> = rivals.map(|(_, rival)| (rival.plan.client, &rival.plan.path)).collect();
        let Some(known) = self.registrations.get_mut(&registration) else { return false };
        // Another registration of the client may have the path, also one that was closed and still deletes its node.
        let has_rival = plans.contains(&(known.plan.client, &known.plan.path));
        let since = std::mem::replace(&mut known.since, at);
        known.told = state;
        let sessions = self.sessions.get(&known.plan.client).map(Vec::as_slice).unwrap_or_default();
        let own = sessions.last().copied();
        let (path, czxid, session) = match state {
            State::Absent => return true,
            State::Standing { path, czxid, session, .. } => {
                if !known.plan.allows(path) || known.path.is_some_and(|before| before != path) {
                    self.found.broken("another path", at, format!("{registration:?} has {path}"));
                }
                known.path = Some(path);
                let is_late = own.is_some_and(|(began, newest)| began < at && newest != *session);
                let is_own = sessions.iter().any(|(_, its)| its == session) && !is_late;
                if if known.plan.ephemeral { !is_own } else { *session != 0 } {
                    let own = own.map(|(_, session)| session);
                    let what = format!("{registration:?} has one of {session}, its client has {own:?}");
                    self.found.broken("a node of another session", at, what);
                }
                (path, czxid, session)
            }
            State::TakenBy { session, czxid } => {
                if own.is_some_and(|(_, own)| own == *session) && !has_rival {
                    let what = format!("{registration:?} names {session}, its own session");
                    self.found.broken("a path taken by itself", at, what);
                }
                (&known.plan.path, czxid, session)
            }
        };
        // In a new session a server that is behind may answer a read. An ephemeral node of that session is newer.
        let since = if known.plan.ephemeral { since } else { Duration::ZERO };
        let such = |node: &Node| (node.czxid, node.session) == (*czxid, *session);
        if !self.nodes.existed(path, since, at, such) {
            self.found.broken("an unknown node", at, format!("{registration:?} tells {state:?}"));
        }
        true
    }

    fn wrote(&mut self, at: Duration, registration: Registration, data: &'a [u8]) -> bool {
        let Some(known) = self.registrations.get(&registration) else { return false };
        let Some(position) = known.wanted.iter().position(|(_, wanted)| *wanted == data) else { return false };
        let (from, _) = known.wanted[position];
        // Later data may have replaced this data before it was written.
        let such = |node: &Node| known.wanted[position..].iter().any(|(_, wanted)| *wanted == node.data);
        if !self.nodes.any_existed(from, at, such) {
            let what = format!("{registration:?} has confirmed {:?}", String::from_utf8_lossy(data));
            self.found.broken("a write that was not made", at, what);
        }
        true
    }

    /// Returns the nodes beside the nodes of registrations, each with its `czxid`.
    fn without_registration(&self) -> BTreeSet<(String, i64)> {
        let open = || self.registrations.values().filter(|known| !known.closed);
        let leads_to = |path: &str| {
            let below =
                |known: &Known<'_>| known.plan.path.strip_prefix(path).is_some_and(|rest| rest.starts_with('/'));
            self.registrations.values().any(below)
        };
        let children = self
            .parents
            .iter()
            .flat_map(|parent| self.nodes.children(parent).map(move |(name, node)| (format!("{parent}/{name}"), node)));
        let is_left = |(path, node): &(String, &Node)| {
            !leads_to(path)
                && !self.outsiders.contains(&(path.as_str(), node.czxid))
                && !open().any(|known| known.has(path, node))
        };
        children.filter(is_left).map(|(path, node)| (path, node.czxid)).collect()
    }
}
