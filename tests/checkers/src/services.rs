//! The instances that observers of a service show, and the check for violations.
//!
//! A [`Services`] is a list of events with their times: the changes at the server, the instances that observers show, and
//! the changes that they report. [`Services::check`] finds violations:
//!
//! - an instance that never existed
//! - a reported change that does not apply to the changes before it, such as one that is reported twice
//! - a removal of an instance that always existed since its creation: a node that one transaction replaces always exists
//! - instances, or the sum of the changes, that differ from the server's nodes outside of faults
//!
//! An instance is the node of a service with JSON as data. The node of another program has other data.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use curator_test::nodes::{Change, Node};

use crate::Violation;
use crate::nodes::Nodes;
use crate::timeline::{self, Timeline};
use crate::violation::Found;

/// The id of one observer of a service. Never used twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Observer(pub u64);

/// The data of the instances by the names of their nodes.
type Instances = BTreeMap<String, Vec<u8>>;

/// One event of a service.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Event {
    /// A change at the server.
    Server(Change),
    /// The observer shows instances with this data.
    Shows(Observer, BTreeSet<Vec<u8>>),
    /// The observer reports a new instance.
    Added(Observer, String, Vec<u8>),
    /// The observer reports new data of an instance.
    Updated(Observer, String, Vec<u8>),
    /// The observer reports the end of an instance.
    Removed(Observer, String),
    /// The observer reports a node that is not an instance.
    Reports(Observer, String),
    /// The observer was closed.
    Stopped(Observer),
}

/// The rules that observers must obey.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rules {
    /// The path of the service.
    pub path: String,
    /// The limit of the time in which an observer differs from the service outside of faults.
    pub patience: Duration,
    /// True if a removal needs a time without the instance. Not where messages take no time.
    pub removed_in_gaps: bool,
}

impl Rules {
    /// Returns the rules of the service at a path.
    #[must_use]
    pub fn new(path: impl Into<String>, patience: Duration) -> Self {
        Self { path: path.into(), patience, removed_in_gaps: true }
    }
}

/// The source of an observer's knowledge.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Source {
    /// The instances that it shows.
    View,
    /// The changes that it has reported.
    Changes,
}

/// The events of one service, in the order of time.
pub type Services = Timeline<Event>;

impl Timeline<Event> {
    /// Returns the number of instances that observers have reported.
    #[must_use]
    pub fn added(&self) -> usize {
        self.count(|event| matches!(event, Event::Added(..)))
    }

    /// Returns all violations, in the order of time.
    #[must_use]
    pub fn check(&self, rules: &Rules) -> Vec<Violation> {
        self.check_by(Checker {
            rules,
            history: self,
            nodes: Nodes::default(),
            observers: BTreeMap::new(),
            differs: BTreeMap::new(),
            found: Found::default(),
        })
    }
}

/// The knowledge of one observer.
#[derive(Debug, Default)]
struct Knowledge {
    /// `None` before the first look.
    view: Option<BTreeSet<Vec<u8>>>,
    /// The sum of the changes.
    changes: Instances,
}

struct Checker<'a> {
    rules: &'a Rules,
    history: &'a Services,
    nodes: Nodes,
    observers: BTreeMap<Observer, Knowledge>,
    /// The nodes that differ, with the time from which they do.
    differs: BTreeMap<(Observer, Source), (Vec<String>, Duration)>,
    found: Found,
}

impl<'a> timeline::Checker<'a, Event> for Checker<'a> {
    fn apply(&mut self, at: Duration, event: &'a Event) -> bool {
        match event {
            Event::Server(change) => return self.nodes.apply(at, change),
            Event::Shows(observer, all) => {
                let before = self.knowledge(*observer).view.replace(all.clone()).unwrap_or_default();
                for data in all.difference(&before) {
                    self.look_for(at, *observer, None, data);
                }
                for data in before.difference(all) {
                    self.look_for_a_gap(at, *observer, None, data);
                }
            }
            Event::Added(observer, name, data) => {
                self.look_for(at, *observer, Some(name), data);
                if let Some(before) = self.knowledge(*observer).changes.insert(name.clone(), data.clone()) {
                    self.does_not_apply(at, event, Some(before));
                }
            }
            Event::Updated(observer, name, data) => {
                self.look_for(at, *observer, Some(name), data);
                let before = self.knowledge(*observer).changes.insert(name.clone(), data.clone());
                if before.as_ref().is_none_or(|before| before == data) {
                    self.does_not_apply(at, event, before);
                }
            }
            Event::Removed(observer, name) => match self.knowledge(*observer).changes.remove(name) {
                Some(data) => self.look_for_a_gap(at, *observer, Some(name), &data),
                None => self.does_not_apply(at, event, None),
            },
            Event::Reports(..) => {}
            Event::Stopped(observer) => return self.observers.remove(observer).is_some(),
        }
        true
    }

    fn at_time(&mut self, now: Duration) {
        for ((observer, source), (names, since)) in &mut self.differs {
            if self.history.faults.calm(*since, now) > self.rules.patience {
                let from = std::mem::replace(since, now);
                let what = format!("{source:?} of {observer:?}: {names:?}");
                self.found.broken_from("a difference from the service", from, now, what);
            }
        }
    }

    fn note_time(&mut self, at: Duration) {
        let children = self.nodes.children(&self.rules.path).filter(|(_, node)| is_instance(node));
        let present: Instances = children.map(|(name, node)| (name.to_owned(), node.data.clone())).collect();
        let mut differs = BTreeMap::new();
        let all: BTreeSet<_> = present.values().cloned().collect();
        for (observer, knowledge) in &self.observers {
            let of_view = |view: &BTreeSet<Vec<u8>>| {
                let differing = view.symmetric_difference(&all);
                differing.map(|data| String::from_utf8_lossy(data).into_owned()).collect::<Vec<_>>()
            };
            let names = present.keys().chain(knowledge.changes.keys());
            let of_changes: BTreeSet<_> =
                names.filter(|name| present.get(*name) != knowledge.changes.get(*name)).cloned().collect();
            let sources = [
                (Source::View, knowledge.view.as_ref().map(of_view).unwrap_or_default()),
                (Source::Changes, of_changes.into_iter().collect()),
            ];
            for (source, names) in sources.into_iter().filter(|(_, names)| !names.is_empty()) {
                let since = match self.differs.get(&(*observer, source)) {
                    Some((before, since)) if *before == names => *since,
                    _ => at,
                };
                differs.insert((*observer, source), (names, since));
            }
        }
        self.differs = differs;
    }

    fn found(&mut self) -> &mut Found {
        &mut self.found
    }
}

impl Checker<'_> {
    fn knowledge(&mut self, observer: Observer) -> &mut Knowledge {
        self.observers.entry(observer).or_default()
    }

    /// Returns the paths at which instances with this data have existed: of one node, if it is known.
    fn paths_of(&self, name: Option<&str>, data: &[u8]) -> Vec<String> {
        let parent = format!("{}/", self.rules.path);
        let is_meant =
            |path: &&str| path.strip_prefix(&parent).is_some_and(|child| name.is_none_or(|name| name == child));
        self.nodes.paths_with(|node| node.data == data).filter(is_meant).map(str::to_owned).collect()
    }

    /// Searches for the instance at the server. An observer may be late, so any time before counts.
    fn look_for(&mut self, at: Duration, observer: Observer, name: Option<&str>, data: &[u8]) {
        if self.paths_of(name, data).is_empty() {
            let what = format!("{observer:?} shows {name:?} as {:?}", String::from_utf8_lossy(data));
            self.found.broken("an unknown instance", at, what);
        }
    }

    /// Searches for a time in which the instance did not have this data, since it had it first.
    fn look_for_a_gap(&mut self, at: Duration, observer: Observer, name: Option<&str>, data: &[u8]) {
        let is_shown_data = |node: &Node| if name.is_some() { is_instance(node) } else { node.data == data };
        let has_gap = |path: &String| self.nodes.has_gap(path, at, |node| node.data == data, is_shown_data);
        if self.rules.removed_in_gaps && !self.paths_of(name, data).iter().any(has_gap) {
            let what = format!("{observer:?} removes {:?}, which exists", String::from_utf8_lossy(data));
            self.found.broken("a removal without a reason", at, what);
        }
    }

    fn does_not_apply(&mut self, at: Duration, event: &Event, before: Option<Vec<u8>>) {
        let before = before.map(|data| String::from_utf8_lossy(&data).into_owned());
        self.found.broken("a change that does not apply", at, format!("{event:?} to {before:?}"));
    }
}

fn is_instance(node: &Node) -> bool {
    node.data.starts_with(b"{")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_found, rules_of, seconds};

    const ONE: Observer = Observer(1);

    fn created(czxid: i64, data: &str) -> Event {
        let node = Node { czxid, session: 1, data: data.into() };
        Event::Server(Change::Created { path: "/web/a".to_owned(), node })
    }

    fn deleted(zxid: i64) -> Event {
        Event::Server(Change::Deleted { path: "/web/a".to_owned(), zxid })
    }

    fn written(data: &str) -> Event {
        Event::Server(Change::DataChanged { path: "/web/a".to_owned(), data: data.into() })
    }

    fn added(data: &str) -> Event {
        Event::Added(ONE, "a".to_owned(), data.into())
    }

    fn updated(data: &str) -> Event {
        Event::Updated(ONE, "a".to_owned(), data.into())
    }

    fn removed() -> Event {
        Event::Removed(ONE, "a".to_owned())
    }

    fn shows(data: &[&str]) -> Event {
        Event::Shows(ONE, data.iter().map(|data| data.as_bytes().to_vec()).collect())
    }

    fn check(events: impl IntoIterator<Item = (u64, Event)>) -> Vec<Violation> {
        let mut services = Services::new();
        for (at, event) in events {
            services.record(seconds(at), event);
        }
        services.check(&Rules::new("/web", seconds(5)))
    }

    #[test]
    fn proper_observer_has_no_violation() {
        let events = [
            (1, created(1, "{1")),
            (1, added("{1")),
            (1, shows(&["{1"])),
            // Replaced, without a change.
            (2, deleted(2)),
            (2, created(2, "{1")),
            (3, written("{2")),
            (4, updated("{2")),
            (4, shows(&["{2"])),
            (5, written("foreign")),
            (6, removed()),
            (6, shows(&[])),
            (6, written("{3")),
            (7, added("{3")),
            (7, shows(&["{3"])),
            (8, deleted(8)),
            (9, created(3, "{3")),
            (9, removed()),
            (9, added("{3")),
            (60, Event::Stopped(ONE)),
        ];
        assert_eq!(check(events), []);
    }

    #[test]
    fn removal_of_a_replaced_instance_is_found() {
        for removal in [removed(), shows(&[])] {
            let events =
                [(1, created(1, "{1")), (1, added("{1")), (1, shows(&["{1"])), (2, deleted(2)), (2, created(2, "{1"))];
            let found = check(events.into_iter().chain([(3, removal)]));
            assert_found(&found, ["3s: a removal without a reason: Observer(1) removes \"{1\""]);
        }
    }

    /// Its next process is registered at once, in a transaction of its own.
    #[test]
    fn removal_between_two_transactions_has_a_reason() {
        let events = [
            (1, created(1, "{1")),
            (1, added("{1")),
            (2, deleted(2)),
            (2, created(3, "{1")),
            (3, removed()),
            (3, added("{1")),
            (60, Event::Stopped(ONE)),
        ];
        assert_eq!(check(events), []);
    }

    #[test]
    fn changes_that_do_not_apply_are_found() {
        let count = |changes: Vec<Event>| {
            let events = [created(1, "{1"), written("{2")].into_iter().chain(changes).map(|event| (1, event));
            rules_of(&check(events)).into_iter().filter(|rule| *rule == "a change that does not apply").count()
        };
        assert_eq!(count(vec![added("{1"), updated("{2"), updated("{1")]), 0);
        assert_eq!(count(vec![added("{1"), added("{2")]), 1);
        assert_eq!(count(vec![added("{1"), updated("{1")]), 1);
        assert_eq!(count(vec![updated("{1")]), 1);
        assert_eq!(count(vec![removed()]), 1);
    }

    #[test]
    fn unknown_instance_and_lasting_difference_are_found() {
        let found = check([(1, created(1, "{1")), (1, added("{2")), (9, Event::Stopped(ONE))]);
        let expected =
            ["1s: an unknown instance", "1s to 9s: a difference from the service: Changes of Observer(1): [\"a\"]"];
        assert_found(&found, expected);
        let found = check([(1, created(1, "{1")), (1, added("{1")), (1, shows(&[])), (9, Event::Stopped(ONE))]);
        assert_found(&found, ["1s to 9s: a difference from the service: View of Observer(1)"]);
        // A node of another program is not an instance.
        assert_eq!(check([(1, created(1, "other")), (1, shows(&[])), (9, Event::Stopped(ONE))]), []);
    }
}
