//! The views that observers have of a group, and the check for violations.
//!
//! A [`Groups`] is a list of events with their times: the changes at the server, the views that observers show, and the
//! changes that they report. [`Groups::check`] finds violations:
//!
//! - a member that never existed
//! - a reported change that does not apply to the changes before it
//! - a view, or the sum of the changes, that differs from the group outside of faults

use std::collections::BTreeMap;
use std::time::Duration;

use curator_test::nodes::{Change, Node};

use crate::Violation;
use crate::nodes::Nodes;
use crate::timeline::{self, Timeline};
use crate::violation::Found;

/// The id of one observer of a group. Never used twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Watcher(pub u64);

/// The members of a group by their ids.
pub type Members = BTreeMap<String, Node>;

/// One event of a group.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Event {
    /// A change at the server.
    Server(Change),
    /// The observer does not know the members: not yet, or not any more.
    Unknown(Watcher),
    /// The observer shows these members.
    Shows(Watcher, Members),
    /// The observer reports a new member.
    Joined(Watcher, String, Node),
    /// The observer reports new data of a member.
    DataChanged(Watcher, String, Node),
    /// The observer reports that a member has left.
    Left(Watcher, String, Node),
    /// The observer was closed.
    Stopped(Watcher),
}

/// The rules that observers must obey.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rules {
    /// The path of the group.
    pub path: String,
    /// The limit of the time in which a view differs from the group outside of faults.
    pub patience: Duration,
}

impl Rules {
    /// Returns the rules of the group at a path.
    #[must_use]
    pub fn new(path: impl Into<String>, patience: Duration) -> Self {
        Self { path: path.into(), patience }
    }
}

/// The source of an observer's knowledge.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Source {
    /// The members that it shows.
    View,
    /// The changes that it has reported.
    Changes,
}

/// The events of one group, in the order of time.
pub type Groups = Timeline<Event>;

impl Timeline<Event> {
    /// Returns all violations, in the order of time.
    #[must_use]
    pub fn check(&self, rules: &Rules) -> Vec<Violation> {
        self.check_by(Checker {
            rules,
            history: self,
            nodes: Nodes::default(),
            watchers: BTreeMap::new(),
            differs: BTreeMap::new(),
            found: Found::default(),
        })
    }
}

/// The knowledge of one observer.
#[derive(Debug, Default)]
struct Knowledge {
    /// `None` while the observer does not know the members.
    view: Option<Members>,
    /// The sum of the changes.
    changes: Members,
}

struct Checker<'a> {
    rules: &'a Rules,
    history: &'a Groups,
    nodes: Nodes,
    watchers: BTreeMap<Watcher, Knowledge>,
    /// The ids that differ, with the time from which they do.
    differs: BTreeMap<(Watcher, Source), (Vec<String>, Duration)>,
    found: Found,
}

impl<'a> timeline::Checker<'a, Event> for Checker<'a> {
    fn apply(&mut self, at: Duration, event: &'a Event) -> bool {
        match event {
            Event::Server(change) => return self.nodes.apply(at, change),
            Event::Unknown(watcher) => self.knowledge(*watcher).view = None,
            Event::Shows(watcher, members) => {
                let before = self.knowledge(*watcher).view.replace(members.clone()).unwrap_or_default();
                for (id, node) in members.iter().filter(|(id, node)| before.get(*id) != Some(*node)) {
                    self.look_for(at, *watcher, id, node);
                }
            }
            Event::Joined(watcher, id, node) | Event::DataChanged(watcher, id, node) => {
                self.look_for(at, *watcher, id, node);
                self.replay(at, *watcher, event);
            }
            Event::Left(watcher, ..) => self.replay(at, *watcher, event),
            Event::Stopped(watcher) => return self.watchers.remove(watcher).is_some(),
        }
        true
    }

    fn at_time(&mut self, now: Duration) {
        for ((watcher, source), (ids, since)) in &mut self.differs {
            if self.history.faults.calm(*since, now) > self.rules.patience {
                let from = std::mem::replace(since, now);
                let what = format!("{source:?} of {watcher:?}: {ids:?}");
                self.found.broken_from("a difference from the group", from, now, what);
            }
        }
    }

    fn note_time(&mut self, at: Duration) {
        let children = self.nodes.children(&self.rules.path);
        let present: BTreeMap<_, _> = children.map(|(id, node)| (id.to_owned(), node.clone())).collect();
        let mut differs = BTreeMap::new();
        for (watcher, knowledge) in &self.watchers {
            let nothing = Members::new();
            let view = knowledge.view.as_ref().unwrap_or(&nothing);
            for (source, members) in [(Source::View, view), (Source::Changes, &knowledge.changes)] {
                let ids = present.keys().chain(members.keys());
                let mut ids: Vec<_> = ids.filter(|id| present.get(*id) != members.get(*id)).cloned().collect();
                ids.sort();
                ids.dedup();
                let is_unknown = source == Source::View && knowledge.view.is_none();
                if !ids.is_empty() || is_unknown {
                    let since = match self.differs.get(&(*watcher, source)) {
                        Some((before, since)) if *before == ids => *since,
                        _ => at,
                    };
                    differs.insert((*watcher, source), (ids, since));
                }
            }
        }
        self.differs = differs;
    }

    fn found(&mut self) -> &mut Found {
        &mut self.found
    }
}

impl Checker<'_> {
    fn knowledge(&mut self, watcher: Watcher) -> &mut Knowledge {
        self.watchers.entry(watcher).or_default()
    }

    /// Searches for the member at the server. A view may be late, so any time before counts.
    fn look_for(&mut self, at: Duration, watcher: Watcher, id: &str, node: &Node) {
        let path = format!("{}/{id}", self.rules.path);
        if !self.nodes.existed(&path, Duration::ZERO, at, |stood| stood == node) {
            self.found.broken("an unknown member", at, format!("{watcher:?} shows {id} as {node:?}"));
        }
    }

    /// Applies a reported change to the changes before it.
    fn replay(&mut self, at: Duration, watcher: Watcher, event: &Event) {
        let members = &mut self.knowledge(watcher).changes;
        let (before, applies) = match event {
            Event::Joined(_, id, node) => {
                let before = members.insert(id.clone(), node.clone());
                (before.clone(), before.is_none())
            }
            Event::DataChanged(_, id, node) => {
                let before = members.insert(id.clone(), node.clone());
                let is_new = |before: &Node| before.czxid == node.czxid && before != node;
                (before.clone(), before.as_ref().is_some_and(is_new))
            }
            Event::Left(_, id, node) => {
                let before = members.remove(id);
                (before.clone(), before.is_some_and(|before| before == *node))
            }
            _ => return,
        };
        if !applies {
            self.found.broken("a change that does not apply", at, format!("{event:?} to {before:?}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_found, rules_of, seconds};

    const WATCHER: Watcher = Watcher(1);

    fn rules() -> Rules {
        Rules::new("/group", seconds(5))
    }

    fn node(czxid: i64, data: &str) -> Node {
        Node { czxid, session: 1, data: data.into() }
    }

    fn groups(events: impl IntoIterator<Item = (u64, Event)>) -> Groups {
        let mut groups = Groups::new();
        for (at, event) in events {
            groups.record(seconds(at), event);
        }
        groups
    }

    fn created(id: &str, node: Node) -> Event {
        Event::Server(Change::Created { path: format!("/group/{id}"), node })
    }

    fn deleted(id: &str) -> Event {
        Event::Server(Change::Deleted { path: format!("/group/{id}"), zxid: 9 })
    }

    fn changed(id: &str, data: &str) -> Event {
        Event::Server(Change::DataChanged { path: format!("/group/{id}"), data: data.into() })
    }

    fn shows(members: &[(&str, Node)]) -> Event {
        Event::Shows(WATCHER, members.iter().map(|(id, node)| ((*id).to_owned(), node.clone())).collect())
    }

    fn joined(id: &str, node: Node) -> Event {
        Event::Joined(WATCHER, id.to_owned(), node)
    }

    fn left(id: &str, node: Node) -> Event {
        Event::Left(WATCHER, id.to_owned(), node)
    }

    fn data_changed(id: &str, node: Node) -> Event {
        Event::DataChanged(WATCHER, id.to_owned(), node)
    }

    #[test]
    fn a_proper_view_has_no_violation() {
        let proper = groups([
            (0, Event::Unknown(WATCHER)),
            (1, created("a", node(1, "first"))),
            (2, shows(&[("a", node(1, "first"))])),
            (2, joined("a", node(1, "first"))),
            (3, changed("a", "second")),
            (3, created("b", node(2, ""))),
            (4, shows(&[("a", node(1, "second")), ("b", node(2, ""))])),
            (4, data_changed("a", node(1, "second"))),
            (4, joined("b", node(2, ""))),
            (5, deleted("a")),
            (5, created("a", node(3, ""))),
            (6, shows(&[("a", node(3, "")), ("b", node(2, ""))])),
            (6, left("a", node(1, "second"))),
            (6, joined("a", node(3, ""))),
            (60, Event::Stopped(WATCHER)),
            (99, deleted("a")),
        ]);
        assert_eq!(proper.check(&rules()), []);
    }

    #[test]
    fn a_member_that_never_stood_is_found() {
        let shown = |told: Event| {
            let history = groups([(1, created("a", node(1, "first"))), (2, changed("a", "second")), (3, told)]);
            rules_of(&history.check(&rules())).contains(&"an unknown member")
        };
        for stood in [node(1, "first"), node(1, "second")] {
            assert!(!shown(shows(&[("a", stood.clone())])));
            assert!(!shown(joined("a", stood)));
        }
        for other in [node(2, "first"), node(1, "third"), Node { session: 2, ..node(1, "first") }] {
            assert!(shown(shows(&[("a", other.clone())])));
            assert!(shown(joined("a", other.clone())));
            assert!(shown(data_changed("a", other)));
        }
        assert!(shown(shows(&[("b", node(1, "first"))])));
    }

    #[test]
    fn changes_that_do_not_apply_are_found() {
        let applied = |changes: Vec<Event>| {
            let stood =
                [created("a", node(1, "first")), changed("a", "second"), deleted("a"), created("a", node(2, "first"))];
            let events = stood.into_iter().chain(changes).map(|event| (1, event));
            let found = groups(events).check(&rules());
            rules_of(&found).into_iter().filter(|rule| *rule == "a change that does not apply").count()
        };
        let (first, second, again) = (|| node(1, "first"), || node(1, "second"), || node(2, "first"));
        assert_eq!(applied(vec![joined("a", first()), data_changed("a", second()), left("a", second())]), 0);
        assert_eq!(applied(vec![joined("a", first()), left("a", first()), joined("a", again())]), 0);
        assert_eq!(applied(vec![joined("a", first()), joined("a", again())]), 1);
        assert_eq!(applied(vec![joined("a", first()), data_changed("a", again())]), 1);
        assert_eq!(applied(vec![joined("a", first()), data_changed("a", first())]), 1);
        assert_eq!(applied(vec![joined("a", first()), left("a", again())]), 1);
        assert_eq!(applied(vec![data_changed("a", second())]), 1);
        assert_eq!(applied(vec![left("a", first())]), 1);
    }

    #[test]
    fn a_view_that_differs_from_the_group_is_found_but_not_in_a_fault() {
        let differs = |events: Vec<(u64, Event)>, source: Source| {
            let created = vec![(1, created("a", node(1, "first"))), (1, created("b", node(2, "")))];
            let mut history = groups([created, events, vec![(20, deleted("b"))]].concat());
            let what = format!("{source:?} of Watcher(1): [\"a\"]");
            let is_such = |found: &Violation| found.rule == "a difference from the group" && found.what == what;
            let is_found = history.check(&rules()).iter().any(is_such);
            history.fault(seconds(0), seconds(16));
            assert!(!rules_of(&history.check(&rules())).contains(&"a difference from the group"));
            is_found
        };
        let (a, b) = (|| node(1, "first"), || ("b", node(2, "")));
        let full = || (1, shows(&[("a", a()), b()]));
        assert!(!differs(vec![full()], Source::View));
        assert!(differs(vec![full(), (2, deleted("a"))], Source::View));
        assert!(differs(vec![full(), (2, changed("a", "second"))], Source::View));
        assert!(differs(vec![(1, shows(&[b()]))], Source::View));
        let both = || vec![(1, joined("a", a())), (1, joined("b", b().1))];
        assert!(!differs(both(), Source::Changes));
        assert!(differs([both(), vec![(2, deleted("a"))]].concat(), Source::Changes));
        assert!(!differs([both(), vec![(2, Event::Stopped(WATCHER)), (2, deleted("a"))]].concat(), Source::Changes));
    }

    #[test]
    fn an_observer_that_never_learns_of_an_empty_group_is_found() {
        let empty = |event: Event| groups([(0, event), (9, created("a", node(1, "")))]).check(&rules());
        let unknown = ["0ns to 9s: a difference from the group: View of Watcher(1): []"];
        assert_found(&empty(Event::Unknown(WATCHER)), unknown);
        assert_eq!(empty(shows(&[])), []);
    }

    #[test]
    fn events_out_of_order_are_found() {
        for event in [Event::Stopped(WATCHER), deleted("a"), changed("a", "")] {
            let found = groups([(1, event.clone())]).check(&rules());
            assert_found(&found, [format!("1s: an event out of order: {event:?}")]);
        }
    }
}
