//! The notes on persistent nodes.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use curator_checkers::Violation;
use curator_checkers::elections::{self, Candidate};
use curator_checkers::groups::{self, Groups, Watcher};
use curator_checkers::partitions::{Partitions, Share};
use curator_checkers::registrations::{Event, Plan, Registration, Registrations, Rules, State};
use curator_checkers::services::{self, Observer, Services};
use curator_checkers::timeline::Timeline;
use curator_recipes::{NodeError, OwnedItem, Partition};
use curator_test::nodes::Change;
use curator_test::{ClientId, SimulatedEnsemble};

use super::service::SERVICE;
use crate::scribe::{self, Record, is_refusal};
use crate::storm::PATH;

/// The nodes of registrants, the views of their group, and the owners of items.
#[derive(Debug, Default)]
pub struct Book {
    registrations: Registrations,
    groups: Groups,
    services: Services,
    /// True if messages take time: then an instance that is replaced in two transactions is missing in between.
    has_gaps: bool,
    partitions: Partitions,
    items: Vec<String>,
    /// The name of each item's node, by its item and `czxid`.
    nodes: BTreeMap<(String, i64), String>,
    /// The work that was not dropped yet.
    works: Vec<(Candidate, OwnedItem)>,
}

/// Writes down the nodes of registrants.
pub type Scribe = scribe::Scribe<Book>;

impl Scribe {
    /// Records the items of the partition.
    pub fn partitions(&self, items: &[String]) {
        self.read(|book| {
            book.partitions = Partitions::new(items.iter().map(String::as_str));
            book.items = items.to_vec();
        });
    }

    pub fn starts(&self, plan: Plan, data: Vec<u8>) -> Registration {
        Registration(self.begins(|number| Event::Started(Registration(number), plan, data)))
    }

    pub fn wants(&self, registration: Registration, data: Vec<u8>) {
        self.event(Event::Wants(registration, data));
    }

    pub fn wrote(&self, registration: Registration, data: Vec<u8>) {
        self.event(Event::Wrote(registration, data));
    }

    pub fn tells(&self, registration: Registration, state: State) {
        self.event(Event::Tells(registration, state));
    }

    pub fn closes(&self, registration: Registration) {
        self.event(Event::Closed(registration));
    }

    /// Returns a number that no other observer has.
    pub fn observer(&self) -> Observer {
        Observer(self.write(|record, _| record.number()))
    }

    /// Notes what an observer of the service shows or reports.
    pub fn observes_service(&self, event: services::Event) {
        self.write(|record, now| {
            record.note(now, format_args!("{event:?}"));
            record.book.services.record(now, event);
        });
    }

    /// Notes that messages take time.
    pub fn takes_time(&self) {
        self.read(|book| book.has_gaps = true);
    }

    /// Returns a number that no other observer has.
    pub fn watcher(&self) -> Watcher {
        Watcher(self.write(|record, _| record.number()))
    }

    /// Notes what an observer of the group shows or reports.
    pub fn observes(&self, event: groups::Event) {
        self.write(|record, now| {
            record.note(now, format_args!("{event:?}"));
            record.book.groups.record(now, event);
        });
    }

    /// Notes a process that is to own some items.
    pub fn wants_items(&self, client: ClientId) -> Candidate {
        self.write(|record, now| {
            let candidate = Candidate(record.number());
            record.note(now, format_args!("{candidate:?} is at {client:?}"));
            record.book.partitions.record(now, &elections::Event::Joined(candidate));
            candidate
        })
    }

    /// Notes that the process is not to own items any more.
    pub fn wants_no_items(&self, candidate: Candidate) {
        self.write(|record, now| {
            record.note(now, format_args!("{candidate:?} wants no items"));
            record.book.partitions.record(now, &elections::Event::Left(candidate));
        });
    }

    /// Notes that a process owns an item, and all others that work on it.
    pub fn owns(&self, candidate: Candidate, item: &OwnedItem) {
        self.write(|record, now| {
            let (name, term) = (item.name().to_owned(), item.token().czxid().get());
            let node = record.book.nodes.get(&(name.clone(), term)).cloned().unwrap_or_default();
            record.item_event(now, &name, elections::Event::Leads { candidate, term, node });
            let works = |work: &&(Candidate, OwnedItem)| work.1.name() == name;
            let seen = |(candidate, item): &(Candidate, OwnedItem)| (*candidate, item.token().czxid().get());
            for (candidate, term) in record.book.works.iter().filter(works).map(seen).collect::<Vec<_>>() {
                record.item_event(now, &name, elections::Event::SeenLeading { candidate, term });
            }
            record.book.works.push((candidate, item.clone()));
        });
    }

    /// Notes that the work on an item has ended.
    pub fn gives_up(&self, candidate: Candidate, item: &OwnedItem) {
        self.write(|record, now| {
            let token = item.token();
            let term = token.czxid().get();
            record.book.works.retain(|work| (work.0, work.1.name(), work.1.token()) != (candidate, item.name(), token));
            let event = match item.is_held() {
                true => elections::Event::Resigned { candidate, term },
                false => elections::Event::Lost { candidate, term },
            };
            record.item_event(now, item.name(), event);
        });
    }

    /// Notes the share of a process. All processes report at one time, when nothing has changed for some time.
    pub fn reports(&self, partition: &Partition) {
        let curator_recipes::Share { members, is_member, wanted, owned, .. } = partition.share();
        let share = Share { id: partition.id().to_owned(), is_member, members, wanted, owned };
        self.write(|record, now| {
            record.note(now, format_args!("{share:?}"));
            record.book.partitions.reports(share);
        });
    }

    /// Notes a node that an administrator has created.
    pub fn outsider(&self, path: String, czxid: i64) {
        self.event(Event::Outsider { path, czxid });
    }

    /// Notes an error: connections and sessions may fail, paths be taken, and servers refuse.
    pub fn error(&self, error: &NodeError) {
        let is_refused = matches!(error, NodeError::Framework(error) if is_refusal(error));
        self.judge(error, error.is_retryable() || is_refused);
    }

    /// Notes that a node or a view has failed: only servers that refuse are a reason.
    pub fn fails(&self, what: impl fmt::Display, error: &NodeError) {
        let what = format!("{what} fails: {error}");
        match error {
            NodeError::Framework(error) if is_refusal(error) => self.note(what),
            _ => self.wrong(what),
        }
    }

    pub fn may_fail<T>(&self, outcome: Result<T, NodeError>) {
        if let Err(error) = outcome {
            self.error(&error);
        }
    }
}

impl scribe::Book for Book {
    type Event = Event;
    /// The rules of nodes, and of the items.
    type Rules = (Rules, elections::Rules);

    fn timeline(&mut self) -> &mut Timeline<Event> {
        &mut self.registrations
    }

    fn check(&mut self, (rules, rules_of_items): &Self::Rules) -> (Vec<Violation>, usize) {
        let (ids, items): (Vec<_>, _) =
            (self.partitions.ids().into_iter().map(str::to_owned).collect(), self.items.clone());
        let allocation = Partition::allocation(ids.iter().map(String::as_str), items.iter().map(String::as_str));
        self.partitions.allocates(allocation);
        let of_views = self.groups.check(&groups::Rules::new(PATH, rules.patience));
        let mut rules_of_services = services::Rules::new(format!("{PATH}/{SERVICE}"), rules.patience);
        rules_of_services.removed_in_gaps = self.has_gaps;
        let of_services = self.services.check(&rules_of_services);
        let of_nodes = self.registrations.check(rules);
        let of_items = self.partitions.check(rules_of_items);
        let grants = self.registrations.standing() + self.partitions.ownerships();
        ([of_nodes, of_views, of_services, of_items].concat(), grants)
    }

    fn catch_up(record: &mut Record<Self>, ensemble: &SimulatedEnsemble) {
        for (at, change) in ensemble.take_changes() {
            record.change(at, change);
        }
    }

    fn fault(&mut self, from: Duration, until: Duration) {
        self.registrations.fault(from, until);
        self.groups.fault(from, until);
        self.services.fault(from, until);
        self.partitions.fault(from, until);
    }

    fn slow(&mut self, from: Duration, until: Duration) {
        self.partitions.slow(from, until);
    }

    fn revoke(record: &mut Record<Self>, now: Duration, paths: Vec<String>) {
        for (item, node) in paths.iter().filter_map(|path| item_of(path)) {
            record.item_event(now, &item, elections::Event::Revoked { node });
        }
    }
}

/// Returns the item of a node, and the node's name.
fn item_of(path: &str) -> Option<(String, String)> {
    let (item, node) = path.strip_prefix(PATH)?.strip_prefix("/items/")?.split_once('/')?;
    Some((item.to_owned(), node.to_owned()))
}

impl Record<Book> {
    fn item_event(&mut self, now: Duration, item: &str, event: elections::Event) {
        self.note(now, format_args!("{item}: {event:?}"));
        self.book.partitions.record_of(item, now, event);
    }

    fn change(&mut self, at: Duration, change: Change) {
        if let Change::Created { path, node } = &change {
            if let Some((item, name)) = item_of(path) {
                self.book.nodes.insert((item.clone(), node.czxid), name.clone());
                self.item_event(at, &item, elections::Event::Created { node: name, czxid: node.czxid });
            }
        }
        self.book.groups.record(at, groups::Event::Server(change.clone()));
        self.book.services.record(at, services::Event::Server(change.clone()));
        self.event(at, Event::Server(change));
    }
}
