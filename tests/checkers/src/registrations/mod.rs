//! The events of registrations, and the check for violations.
//!
//! A registration is a node that a client keeps standing over all its sessions. A [`Registrations`] is a list of events
//! with their times: the changes at the server, and the states that the registrations report.
//! [`Registrations::check`] finds violations:
//!
//! - a state that names a node which never stood, or a node of another session
//! - a registration without its node, or with other data than it wants, outside of faults
//! - a node that a registration has left behind
//! - a write that was confirmed and never made
//!
//! Two registrations may want one ephemeral path. Then the node belongs to one of them, and the other one must
//! report the session that has it.
//!
//! # Examples
//!
//! ```
//! use std::time::Duration;
//! use curator_test::ClientId;
//! use curator_test::registrations::{Event, Plan, Registration, Registrations, Rules, State, Violation};
//!
//! let (registration, client) = (Registration(1), ClientId(0));
//! let at = Duration::from_secs;
//! let path = "/services/host-7";
//! let mut registrations = Registrations::new();
//! registrations.record(at(0), Event::SessionBegan(client, 3));
//! registrations.record(at(1), Event::Started(registration, Plan::ephemeral(client, path), b"up".to_vec()));
//! // The server has created no such node.
//! let state = State::Standing { path: path.to_owned(), czxid: 9, session: 3, foreign: None };
//! registrations.record(at(2), Event::Tells(registration, state.clone()));
//! let found = registrations.check(&Rules::new(at(5)));
//! assert_eq!(found, [Violation::UnknownNode { at: at(2), registration, state }]);
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use crate::locks::calm_stretch;
use curator_test::ClientId;
use curator_test::nodes::{Change, Node};

use crate::nodes::Nodes;
use crate::timeline::{self, Timeline};

/// The id of one registration, from its start to its close. Never used twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Registration(pub u64);

/// The node that a registration wants.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Plan {
    /// Its client.
    pub client: ClientId,
    /// The path of the node, or that to which a number and a protection are added.
    pub path: String,
    /// True if the node belongs to a session.
    pub ephemeral: bool,
    /// True if the node has this very path.
    pub exact: bool,
    /// True if foreign data is overwritten.
    pub mends: bool,
}

impl Plan {
    /// Returns the plan of an ephemeral node at this very path, in which foreign data is kept.
    pub fn ephemeral(client: ClientId, path: impl Into<String>) -> Self {
        Self { client, path: path.into(), ephemeral: true, exact: true, mends: false }
    }

    /// Returns `true` if a node of this plan may have this path.
    fn allows(&self, path: &str) -> bool {
        match (self.path.rsplit_once('/'), path.rsplit_once('/')) {
            (Some((parent, name)), Some((above, its))) if !self.exact => parent == above && its.contains(name),
            _ => self.path == path,
        }
    }
}

/// The state that a registration reports.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum State {
    /// The node does not stand, or not yet.
    Absent,
    /// The node stands.
    Standing {
        /// The path of the node at the server.
        path: String,
        /// The transaction that created it.
        czxid: i64,
        /// The session that owns it; 0 if it is not ephemeral.
        session: i64,
        /// The data of another client, which is kept.
        foreign: Option<Vec<u8>>,
    },
    /// A node of another session has the path.
    TakenBy {
        /// The session; 0 if that node is not ephemeral.
        session: i64,
        /// The transaction that created that node.
        czxid: i64,
    },
}

/// One event.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Event {
    /// A change at the server.
    Server(Change),
    /// The client has this session from now on.
    SessionBegan(ClientId, i64),
    /// A node was created that belongs to no registration, and may stay.
    Outsider {
        /// Its path.
        path: String,
        /// The transaction that created it.
        czxid: i64,
    },
    /// The registration wants its node from now on, with this data.
    Started(Registration, Plan, Vec<u8>),
    /// The registration wants this data from now on. No data is wanted twice.
    Wants(Registration, Vec<u8>),
    /// The registration has confirmed that the server has this data.
    Wrote(Registration, Vec<u8>),
    /// The registration reports this state.
    Tells(Registration, State),
    /// The registration does not want its node any more.
    Closed(Registration),
}

/// An event with its time.
pub type Entry = timeline::Entry<Event>;

/// The rules that registrations must obey.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    /// The limit of the time in which a registration differs from the server outside of faults, and of that in which a
    /// node without registration stands.
    pub patience: Duration,
    /// True if no session may lose its node outside of faults.
    pub kept_in_calm: bool,
}

impl Rules {
    /// Returns the rules of all registrations.
    #[must_use]
    pub const fn new(patience: Duration) -> Self {
        Self { patience, kept_in_calm: false }
    }

    /// Adds that no session may lose its node outside of faults. Not for processes that may be slow.
    #[must_use]
    pub const fn no_loss_in_calm(mut self) -> Self {
        self.kept_in_calm = true;
        self
    }
}

/// The difference between a registration and the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Difference {
    /// The node does not stand, although its path is free or its own.
    NotStanding,
    /// The registration reports a node that does not stand.
    NodeIsGone,
    /// The registration reports a node of an earlier session of its client.
    EarlierSession,
    /// The node has other data than the registration wants or reports.
    OtherData,
    /// The registration reports another session as the owner of its path than the server has.
    NotTaken,
}

/// A violation of the rules.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Violation {
    /// A state names an ephemeral node that did not stand at any moment since the state before, or another node that
    /// never stood.
    UnknownNode {
        /// The time.
        at: Duration,
        /// The registration.
        registration: Registration,
        /// The state.
        state: State,
    },
    /// A state names a node of its own that another session owns: that of another client, or an earlier one.
    OtherSession {
        /// The time.
        at: Duration,
        /// The registration.
        registration: Registration,
        /// The session that the state names.
        session: i64,
        /// The session of the client.
        own: Option<i64>,
    },
    /// A state says that another session has the path, and names the own session, in which no other registration wants it.
    TakenByItself {
        /// The time.
        at: Duration,
        /// The registration.
        registration: Registration,
        /// The session.
        session: i64,
    },
    /// A node has a path that the registration cannot have, or another one than before.
    OtherPath {
        /// The time.
        at: Duration,
        /// The registration.
        registration: Registration,
        /// The path.
        path: String,
    },
    /// A registration differed from the server for too long.
    Differs {
        /// The time from which it did.
        from: Duration,
        /// The time until which it did.
        until: Duration,
        /// The registration.
        registration: Registration,
        /// The difference.
        difference: Difference,
    },
    /// A node without registration stood for too long.
    NodeIsLeft {
        /// The time from which it did.
        from: Duration,
        /// The time until which it did.
        until: Duration,
        /// The path of the node.
        path: String,
    },
    /// A registration lost its node outside of faults.
    LostInCalm {
        /// The time.
        at: Duration,
        /// The registration.
        registration: Registration,
        /// The path of the node.
        path: String,
    },
    /// A write was confirmed that the server has never seen.
    NotWritten {
        /// The time.
        at: Duration,
        /// The registration.
        registration: Registration,
        /// The data.
        data: Vec<u8>,
    },
    /// An event that cannot follow the ones before it.
    OutOfOrder {
        /// The time.
        at: Duration,
        /// The event.
        event: Event,
    },
    /// A node in ZooKeeper or a state in a client was left at the end.
    LeftBehind(String),
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownNode { at, registration, state } => {
                write!(f, "{at:?}: {registration:?} tells {state:?}, a node that did not stand")
            }
            Self::OtherSession { at, registration, session, own } => {
                write!(f, "{at:?}: {registration:?} has a node of session {session}, its client has session {own:?}")
            }
            Self::TakenByItself { at, registration, session } => {
                write!(f, "{at:?}: {registration:?} tells that session {session}, its own, has its path")
            }
            Self::OtherPath { at, registration, path } => write!(f, "{at:?}: {registration:?} has the path {path}"),
            Self::Differs { from, until, registration, difference } => {
                write!(f, "{from:?} to {until:?}: {registration:?} differs from the server: {difference:?}")
            }
            Self::NodeIsLeft { from, until, path } => {
                write!(f, "{from:?} to {until:?}: {path} stands without a registration")
            }
            Self::LostInCalm { at, registration, path } => {
                write!(f, "{at:?}: {registration:?} loses {path} although nothing is wrong")
            }
            Self::NotWritten { at, registration, data } => {
                let data = String::from_utf8_lossy(data);
                write!(f, "{at:?}: {registration:?} has confirmed {data:?}, which the server never had")
            }
            Self::OutOfOrder { at, event } => write!(f, "{at:?}: {event:?} is out of order"),
            Self::LeftBehind(what) => write!(f, "left behind: {what}"),
        }
    }
}

/// The events of registrations, in the order of time.
pub type Registrations = Timeline<Event>;

impl Timeline<Event> {
    /// Returns the number of reported states with a node that stands.
    #[must_use]
    pub fn standing(&self) -> usize {
        let stands = |entry: &&Entry| matches!(entry.event, Event::Tells(_, State::Standing { .. }));
        self.entries.iter().filter(stands).count()
    }

    /// Returns all violations, in the order of time.
    #[must_use]
    pub fn check(&self, rules: &Rules) -> Vec<Violation> {
        let mut checker = Checker::new(rules, self);
        for entry in &self.entries {
            checker.look_at_the_time(entry.at);
            checker.apply(entry);
            checker.note_the_time(entry.at);
        }
        if let Some(end) = self.entries.last().map(|entry| entry.at) {
            checker.look_at_the_time(end + Duration::from_nanos(1));
        }
        checker.found.extend(self.left_behind.iter().cloned().map(Violation::LeftBehind));
        checker.found
    }
}

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
    differs: Option<(Difference, Duration)>,
}

impl Known<'_> {
    /// Returns the difference from the server, in the present session of the client.
    fn difference(&self, nodes: &Nodes, own: Option<i64>) -> Option<Difference> {
        match self.told {
            State::Absent => Some(Difference::NotStanding),
            State::TakenBy { session, czxid } => {
                let is_taken = |node: &Node| (node.session, node.czxid) == (*session, *czxid);
                (!nodes.present(&self.plan.path).is_some_and(is_taken)).then_some(Difference::NotTaken)
            }
            State::Standing { path, czxid, session, foreign } => {
                let its = nodes.present(path).filter(|node| (node.session, node.czxid) == (*session, *czxid));
                let wanted = self.wanted.last().map(|(_, data)| *data);
                match its {
                    None => Some(Difference::NodeIsGone),
                    Some(_) if self.plan.ephemeral && own != Some(*session) => Some(Difference::EarlierSession),
                    Some(node) if wanted == Some(&node.data) => None,
                    Some(node) if !self.plan.mends && foreign.as_ref() == Some(&node.data) => None,
                    Some(_) => Some(Difference::OtherData),
                }
            }
        }
    }

    /// Returns `true` if it reports this node as its own.
    fn has(&self, node_path: &str, node: &Node) -> bool {
        matches!(self.told, State::Standing { path, czxid, .. } if path == node_path && *czxid == node.czxid)
    }
}

struct Checker<'a> {
    rules: &'a Rules,
    history: &'a Registrations,
    nodes: Nodes,
    /// The sessions of each client, with the times of their beginnings.
    sessions: BTreeMap<ClientId, Vec<(Duration, i64)>>,
    registrations: BTreeMap<Registration, Known<'a>>,
    /// The parents of all wanted nodes.
    parents: BTreeSet<&'a str>,
    outsiders: BTreeSet<(&'a str, i64)>,
    /// The nodes without registration, each with the time from which it stands so.
    left: BTreeMap<(String, i64), Duration>,
    found: Vec<Violation>,
}

impl<'a> Checker<'a> {
    fn new(rules: &'a Rules, history: &'a Registrations) -> Self {
        Self {
            rules,
            history,
            nodes: Nodes::default(),
            sessions: BTreeMap::new(),
            registrations: BTreeMap::new(),
            parents: BTreeSet::new(),
            outsiders: BTreeSet::new(),
            left: BTreeMap::new(),
            found: Vec::new(),
        }
    }

    fn apply(&mut self, entry: &'a Entry) {
        let at = entry.at;
        let in_order = match &entry.event {
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
        };
        if !in_order {
            self.found.push(Violation::OutOfOrder { at, event: entry.event.clone() });
        }
    }

    /// Finds a registration that loses its node in calm by this change.
    fn look_for_losses(&mut self, at: Duration, change: &Change) {
        let Change::Deleted { path } = change else { return };
        let faulty = |(from, until): &(Duration, Duration)| *from <= at && at <= *until;
        let Some(node) = self.nodes.present(path) else { return };
        if !self.rules.kept_in_calm || node.session == 0 || self.history.faults.iter().any(faulty) {
            return;
        }
        // A client may start a registration anew that it has just closed. Then both have reported this node.
        let have = || self.registrations.iter().filter(|(_, known)| known.has(path, node));
        if let (Some((registration, Known { closed: false, .. })), 1) = (have().next(), have().count()) {
            let registration = *registration;
            self.found.push(Violation::LostInCalm { at, registration, path: path.clone() });
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
                    self.found.push(Violation::OtherPath { at, registration, path: path.clone() });
                }
                known.path = Some(path);
                let is_late = own.is_some_and(|(began, newest)| began < at && newest != *session);
                let is_own = sessions.iter().any(|(_, its)| its == session) && !is_late;
                if if known.plan.ephemeral { !is_own } else { *session != 0 } {
                    let own = own.map(|(_, session)| session);
                    self.found.push(Violation::OtherSession { at, registration, session: *session, own });
                }
                (path, czxid, session)
            }
            State::TakenBy { session, czxid } => {
                if own.is_some_and(|(_, own)| own == *session) && !has_rival {
                    self.found.push(Violation::TakenByItself { at, registration, session: *session });
                }
                (&known.plan.path, czxid, session)
            }
        };
        // In a new session a server that is behind may answer a read. An ephemeral node of that session is newer.
        let since = if known.plan.ephemeral { since } else { Duration::ZERO };
        let such = |node: &Node| (node.czxid, node.session) == (*czxid, *session);
        if !self.nodes.existed(path, since, at, such) {
            self.found.push(Violation::UnknownNode { at, registration, state: state.clone() });
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
            self.found.push(Violation::NotWritten { at, registration, data: data.to_vec() });
        }
        true
    }

    /// Returns the nodes beside those of registrations, each with its `czxid`.
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

    fn note_the_time(&mut self, at: Duration) {
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

    /// Finds the rules that are broken by the time that has passed without an event.
    fn look_at_the_time(&mut self, now: Duration) {
        let is_over = |from: Duration| calm_stretch(&self.history.faults, from, now) > self.rules.patience;
        for (registration, known) in &mut self.registrations {
            if let Some((difference, from)) = known.differs.filter(|(_, from)| is_over(*from)) {
                let registration = *registration;
                self.found.push(Violation::Differs { from, until: now, registration, difference });
                known.differs = Some((difference, now));
            }
        }
        for ((path, _), since) in self.left.iter_mut().filter(|(_, since)| is_over(**since)) {
            let from = std::mem::replace(since, now);
            self.found.push(Violation::NodeIsLeft { from, until: now, path: path.clone() });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: Registration = Registration(1);
    const SECOND: Registration = Registration(2);
    const CLIENT: ClientId = ClientId(1);
    const OTHER: ClientId = ClientId(2);
    const PATH: &str = "/services/host";

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn rules() -> Rules {
        Rules::new(seconds(5))
    }

    fn began(client: ClientId, session: i64) -> Event {
        Event::SessionBegan(client, session)
    }

    /// Two clients with the sessions 1 and 2, the first one with a registration, and these events.
    fn registrations(events: impl IntoIterator<Item = (u64, Event)>) -> Registrations {
        planned(Plan::ephemeral(CLIENT, PATH), events)
    }

    fn planned(plan: Plan, events: impl IntoIterator<Item = (u64, Event)>) -> Registrations {
        let mut registrations = Registrations::new();
        registrations.record(seconds(0), began(CLIENT, 1));
        registrations.record(seconds(0), began(OTHER, 2));
        registrations.record(seconds(0), Event::Started(FIRST, plan, b"up".to_vec()));
        for (at, event) in events {
            registrations.record(seconds(at), event);
        }
        registrations
    }

    fn created_at(path: &str, czxid: i64, session: i64, data: &str) -> Event {
        let node = Node { czxid, session, data: data.into() };
        Event::Server(Change::Created { path: path.to_owned(), node })
    }

    fn created(czxid: i64, session: i64) -> Event {
        created_at(PATH, czxid, session, "up")
    }

    fn deleted() -> Event {
        Event::Server(Change::Deleted { path: PATH.to_owned() })
    }

    fn changed(data: &str) -> Event {
        Event::Server(Change::DataChanged { path: PATH.to_owned(), data: data.into() })
    }

    fn standing(path: &str, czxid: i64, session: i64) -> State {
        State::Standing { path: path.to_owned(), czxid, session, foreign: None }
    }

    fn stands(czxid: i64, session: i64) -> Event {
        Event::Tells(FIRST, standing(PATH, czxid, session))
    }

    fn taken(registration: Registration, session: i64, czxid: i64) -> Event {
        Event::Tells(registration, State::TakenBy { session, czxid })
    }

    #[test]
    fn a_proper_registration_has_no_violation() {
        let proper = registrations([
            (1, created(10, 1)),
            (1, stands(10, 1)),
            (2, Event::Wants(FIRST, "busy".into())),
            (3, changed("busy")),
            (3, Event::Wrote(FIRST, "busy".into())),
            (4, deleted()),
            (4, Event::Tells(FIRST, State::Absent)),
            (5, began(CLIENT, 3)),
            (6, created_at(PATH, 11, 3, "busy")),
            (6, stands(11, 3)),
            (60, Event::Closed(FIRST)),
            (60, deleted()),
            (60, Event::Tells(FIRST, State::Absent)),
            (99, began(CLIENT, 4)),
        ]);
        assert_eq!(proper.check(&rules()), []);
        assert_eq!((proper.standing(), proper.entries().len()), (2, 17));
    }

    #[test]
    fn a_node_that_did_not_stand_since_the_state_before_is_found() {
        let told = |events: Vec<(u64, Event)>, state: State| {
            let found = registrations([events, vec![(3, Event::Tells(FIRST, state.clone()))]].concat()).check(&rules());
            found == [Violation::UnknownNode { at: seconds(3), registration: FIRST, state }]
        };
        let own = || standing(PATH, 10, 1);
        assert!(told(vec![], own()));
        assert!(told(vec![(1, created(11, 1))], own()));
        assert!(told(vec![(1, created(10, 2))], own()));
        let gone = vec![(1, created(10, 1)), (1, deleted()), (2, Event::Tells(FIRST, State::Absent))];
        assert!(told(gone, own()));
        assert!(!told(vec![(1, created(10, 1)), (1, deleted())], own()));
        let taken = || State::TakenBy { session: 2, czxid: 10 };
        assert!(told(vec![(1, created(11, 2))], taken()));
        assert!(!told(vec![(1, created(10, 2))], taken()));
    }

    #[test]
    fn a_node_of_another_session_is_found() {
        let of = |session, events: Vec<(u64, Event)>| {
            let events = [vec![(1, created(10, session))], events, vec![(3, stands(10, session))]].concat();
            registrations(events).check(&rules())
        };
        let found = |session, own| [Violation::OtherSession { at: seconds(3), registration: FIRST, session, own }];
        assert_eq!(of(1, vec![]), []);
        assert_eq!(of(2, vec![]), found(2, Some(1)));
        // The earlier session of the client: its server has not ended it yet.
        assert_eq!(of(1, vec![(2, began(CLIENT, 3))]), found(1, Some(3)));
        assert_eq!(of(1, vec![(2, began(OTHER, 3))]), []);
        let persistent = Plan { ephemeral: false, ..Plan::ephemeral(CLIENT, PATH) };
        let told = |session| planned(persistent.clone(), [(1, created(10, session)), (3, stands(10, session))]);
        assert_eq!(told(0).check(&rules()), []);
        assert_eq!(told(1).check(&rules()), found(1, Some(1)));
    }

    #[test]
    fn a_registration_that_is_taken_by_itself_is_found() {
        let told = |second: ClientId| {
            let second = Event::Started(SECOND, Plan::ephemeral(second, PATH), Vec::new());
            registrations([(1, second), (1, created(10, 1)), (3, taken(FIRST, 1, 10))]).check(&rules())
        };
        let found = [Violation::TakenByItself { at: seconds(3), registration: FIRST, session: 1 }];
        assert_eq!(told(OTHER), found);
        assert_eq!(told(CLIENT), []);
    }

    #[test]
    fn of_two_registrations_at_one_path_one_stands_and_the_other_tells_its_session() {
        let both = |second: Event| {
            registrations([
                (0, Event::Started(SECOND, Plan::ephemeral(OTHER, PATH), b"two".to_vec())),
                (1, created(10, 1)),
                (1, stands(10, 1)),
                (1, second),
                (30, began(ClientId(3), 4)),
            ])
            .check(&rules())
        };
        assert_eq!(both(taken(SECOND, 1, 10)), []);
        for (second, difference) in [
            (Event::Tells(SECOND, State::Absent), Difference::NotStanding),
            (Event::Tells(SECOND, standing(PATH, 10, 1)), Difference::EarlierSession),
        ] {
            assert!(both(second).iter().any(|found| matches!(found,
                Violation::Differs { registration: SECOND, difference: other, .. } if *other == difference)));
        }
        let free = registrations([(1, created(10, 2)), (1, taken(FIRST, 2, 10)), (2, deleted()), (9, began(OTHER, 9))]);
        let (from, until) = (seconds(2), seconds(9));
        let found = Violation::Differs { from, until, registration: FIRST, difference: Difference::NotTaken };
        assert_eq!(free.check(&rules()), [found]);
    }

    #[test]
    fn a_registration_that_differs_from_the_server_is_found_but_not_in_a_fault() {
        let up = || vec![(1, created(10, 1)), (1, stands(10, 1))];
        let differs = |events: Vec<(u64, Event)>, difference| {
            let mut history = registrations([events, vec![(20, began(OTHER, 9))]].concat());
            let is_found = history.check(&rules()).iter().any(|found| {
                matches!(found,
                Violation::Differs { registration: FIRST, difference: other, .. } if *other == difference)
            });
            history.fault(seconds(0), seconds(16));
            assert!(history.check(&rules()).iter().all(|found| !matches!(found, Violation::Differs { .. })));
            is_found
        };
        assert!(differs(vec![], Difference::NotStanding));
        assert!(differs([up(), vec![(2, deleted())]].concat(), Difference::NodeIsGone));
        assert!(differs([up(), vec![(2, deleted()), (2, created(11, 1))]].concat(), Difference::NodeIsGone));
        assert!(differs([up(), vec![(2, began(CLIENT, 3))]].concat(), Difference::EarlierSession));
        assert!(differs([up(), vec![(2, changed("foreign"))]].concat(), Difference::OtherData));
        let wants = Event::Wants(FIRST, "busy".into());
        assert!(differs([up(), vec![(2, wants)]].concat(), Difference::OtherData));
        assert!(!differs(up(), Difference::OtherData));
    }

    #[test]
    fn foreign_data_is_told_or_mended() {
        let told = |mends| {
            let told =
                State::Standing { path: PATH.to_owned(), czxid: 10, session: 1, foreign: Some("foreign".into()) };
            let plan = Plan { mends, ..Plan::ephemeral(CLIENT, PATH) };
            let up = [(1, created(10, 1)), (1, stands(10, 1)), (2, changed("foreign")), (2, Event::Tells(FIRST, told))];
            let later = (20, began(OTHER, 9));
            planned(plan, up.into_iter().chain([later])).check(&rules())
        };
        assert_eq!(told(false), []);
        assert!(matches!(told(true)[..], [Violation::Differs { difference: Difference::OtherData, .. }]));
    }

    #[test]
    fn a_node_without_registration_is_found() {
        let second = "/services/host0000000001";
        let left = |events: Vec<(u64, Event)>| {
            let events = [vec![(1, created(10, 1)), (1, stands(10, 1))], events, vec![(20, began(OTHER, 9))]].concat();
            registrations(events).check(&rules())
        };
        let extra = || (2, created_at(second, 11, 1, "up"));
        let found = [Violation::NodeIsLeft { from: seconds(2), until: seconds(20), path: second.to_owned() }];
        assert_eq!(left(vec![extra()]), found);
        assert_eq!(left(vec![extra(), (2, Event::Outsider { path: second.to_owned(), czxid: 11 })]), []);
        let closed = |then: Vec<(u64, Event)>| left([vec![(3, Event::Closed(FIRST))], then].concat());
        let found = [Violation::NodeIsLeft { from: seconds(3), until: seconds(20), path: PATH.to_owned() }];
        assert_eq!(closed(vec![]), found);
        assert_eq!(closed(vec![(7, deleted())]), []);
        // The parent of another registration's node.
        let deep = Event::Started(SECOND, Plan::ephemeral(OTHER, "/services/deep/node"), Vec::new());
        let parent = created_at("/services/deep", 12, 0, "");
        assert!(!left(vec![(2, deep), (2, parent)]).iter().any(|found| matches!(found, Violation::NodeIsLeft { .. })));
    }

    #[test]
    fn a_path_that_a_registration_cannot_have_is_found() {
        let sequential = || Plan { exact: false, ..Plan::ephemeral(CLIENT, PATH) };
        let at_paths = |plan: Plan, paths: &[&str]| {
            let tells = |(index, path): (usize, &&str)| {
                let czxid = 10 + index as i64;
                [(1, created_at(path, czxid, 1, "up")), (1, Event::Tells(FIRST, standing(path, czxid, 1)))]
            };
            planned(plan, paths.iter().enumerate().flat_map(tells)).check(&rules())
        };
        let found = |path: &str| [Violation::OtherPath { at: seconds(1), registration: FIRST, path: path.to_owned() }];
        assert_eq!(at_paths(Plan::ephemeral(CLIENT, PATH), &[PATH]), []);
        assert_eq!(at_paths(sequential(), &["/services/_c_1-host0000000001"]), []);
        assert_eq!(at_paths(Plan::ephemeral(CLIENT, PATH), &["/services/host0"]), found("/services/host0"));
        assert_eq!(at_paths(sequential(), &["/other/host0000000001"]), found("/other/host0000000001"));
        let renamed = at_paths(sequential(), &["/services/host0000000001", "/services/host0000000002"]);
        assert_eq!(renamed, found("/services/host0000000002"));
    }

    #[test]
    fn a_loss_without_a_fault_is_found() {
        let up = || vec![(1, created(10, 1)), (1, stands(10, 1))];
        let lost = |events: Vec<(u64, Event)>| {
            let mut history = registrations([up(), events].concat());
            assert_eq!(history.check(&rules()), []);
            let found = history.check(&rules().no_loss_in_calm());
            history.fault(seconds(3), seconds(9));
            assert_eq!(history.check(&rules().no_loss_in_calm()), []);
            found
        };
        let found = [Violation::LostInCalm { at: seconds(4), registration: FIRST, path: PATH.to_owned() }];
        assert_eq!(lost(vec![(4, deleted())]), found);
        assert_eq!(lost(vec![(4, Event::Closed(FIRST)), (4, deleted())]), []);
        let again = Event::Started(SECOND, Plan::ephemeral(CLIENT, PATH), b"up".to_vec());
        let adopts = Event::Tells(SECOND, standing(PATH, 10, 1));
        assert_eq!(lost(vec![(2, Event::Closed(FIRST)), (2, again), (2, adopts), (4, deleted())]), []);
    }

    #[test]
    fn a_confirmed_write_that_was_never_made_is_found() {
        let wrote = |events: Vec<(u64, Event)>| {
            let wants = |data: &str| (2, Event::Wants(FIRST, data.into()));
            let up = vec![(1, created(10, 1)), (1, stands(10, 1)), wants("one"), wants("two")];
            let last = (3, Event::Wrote(FIRST, "one".into()));
            registrations([up, events, vec![last]].concat()).check(&rules())
        };
        let found = [Violation::NotWritten { at: seconds(3), registration: FIRST, data: "one".into() }];
        assert_eq!(wrote(vec![]), found);
        assert_eq!(wrote(vec![(3, changed("one"))]), []);
        assert_eq!(wrote(vec![(3, changed("two"))]), []);
        assert_eq!(wrote(vec![(3, changed("three"))]), found);
    }

    #[test]
    fn events_out_of_order_are_found() {
        for event in [
            stands(1, 1),
            Event::Closed(FIRST),
            Event::Wants(FIRST, Vec::new()),
            Event::Wrote(FIRST, Vec::new()),
            deleted(),
            changed(""),
        ] {
            let mut history = Registrations::new();
            history.record(seconds(1), event.clone());
            assert_eq!(history.check(&rules()), [Violation::OutOfOrder { at: seconds(1), event }]);
        }
    }

    #[test]
    fn what_is_left_behind_is_found() {
        let mut history = Registrations::new();
        history.left_behind("a watch of /services/host");
        assert!(matches!(&history.check(&rules())[..], [Violation::LeftBehind(what)] if what.contains("host")));
    }
}
