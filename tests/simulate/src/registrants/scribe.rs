//! The notes on nodes that stand.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use curator_checkers::elections::{self, Candidate};
use curator_checkers::groups::{self, Groups, Watcher};
use curator_checkers::partitions::{Partitions, Share};
use curator_checkers::registrations::{Event, Plan, Registration, Registrations, Rules, State};
use curator_framework::{CuratorFramework, Error};
use curator_recipes::{NodeError, OwnedItem, Partition};
use curator_test::nodes::Change;
use curator_test::{ClientId, SimulatedEnsemble};

use crate::contenders::Outcome;
use crate::scribe::{self, Book as _, is_refusal};

/// The nodes of registrants, the views of their group, and the owners of items.
#[derive(Debug)]
pub struct Book {
    registrations: Registrations,
    groups: Groups,
    partitions: Partitions,
    items: Vec<String>,
    /// The path of the group. The nodes of the items are below its child `items`.
    path: String,
    /// The name of each item's node, by its item and `czxid`.
    nodes: BTreeMap<(String, i64), String>,
    /// The work that was not dropped yet.
    works: Vec<(Candidate, OwnedItem)>,
    log: Vec<String>,
    next: u64,
}

/// Writes down the nodes of registrants.
pub type Scribe = scribe::Scribe<Book>;

impl Scribe {
    /// Creates an empty book on the nodes below a path, and on a partition's items. `recovery` is how long clients may take
    /// to be back after a fault.
    pub fn new(ensemble: SimulatedEnsemble, path: &str, items: &[String], recovery: Duration) -> Self {
        let book = Book {
            registrations: Registrations::new(),
            groups: Groups::new(),
            partitions: Partitions::new(items.iter().map(String::as_str)),
            items: items.to_vec(),
            path: path.to_owned(),
            nodes: BTreeMap::new(),
            works: Vec::new(),
            log: Vec::new(),
            next: 0,
        };
        Self::with_book(ensemble, recovery, book)
    }

    /// Notes a fault of the network or of a server. Until it is over and the clients have recovered, messages may be held
    /// up, and nodes may be missing.
    pub fn fault(&self, what: impl fmt::Display, lasting: Duration) {
        self.write(|book, now| {
            book.fault(now, what, lasting + self.recovery);
            book.partitions.slow(now, now + lasting + self.recovery);
        });
    }

    /// Notes the end of a session or a node: nodes may be missing, and no message is held up.
    pub fn end(&self, what: impl fmt::Display) {
        self.write(|book, now| book.fault(now, what, self.recovery));
    }

    /// Notes that the servers are about to delete nodes.
    pub fn revoke(&self, paths: &[String]) {
        self.write(|book, now| {
            for path in paths {
                if let Some((item, node)) = book.item_of(path) {
                    book.item_event(now, &item, elections::Event::Revoked { node });
                }
            }
        });
    }

    /// Returns data that no other node has.
    pub fn data(&self) -> Vec<u8> {
        self.write(|book, _| {
            book.next += 1;
            format!("data {}", book.next).into_bytes()
        })
    }

    /// Notes the sessions of a client, until it is closed.
    pub async fn follow_sessions(self, name: ClientId, client: CuratorFramework) {
        loop {
            let mut states = client.watch_connection_state();
            match client.session().await {
                Ok(session) => {
                    let id = session.id().expect("the client knows its session").get();
                    self.write(|book, now| book.event(now, Event::SessionBegan(name, id)));
                    session.ended().await;
                }
                Err(Error::Closed) => return,
                // A refusal comes at once, also the next time.
                Err(error) if is_refusal(&error) => drop(states.changed().await),
                // It was not connected for the time of an operation.
                Err(_) => {}
            }
        }
    }

    pub fn starts(&self, plan: Plan, data: Vec<u8>) -> Registration {
        self.write(|book, now| {
            book.next += 1;
            let registration = Registration(book.next);
            book.event(now, Event::Started(registration, plan, data));
            registration
        })
    }

    pub fn wants(&self, registration: Registration, data: Vec<u8>) {
        self.write(|book, now| book.event(now, Event::Wants(registration, data)));
    }

    pub fn wrote(&self, registration: Registration, data: Vec<u8>) {
        self.write(|book, now| book.event(now, Event::Wrote(registration, data)));
    }

    pub fn tells(&self, registration: Registration, state: State) {
        self.write(|book, now| book.event(now, Event::Tells(registration, state)));
    }

    pub fn closes(&self, registration: Registration) {
        self.write(|book, now| book.event(now, Event::Closed(registration)));
    }

    /// Returns a number that no other observer has.
    pub fn watcher(&self) -> Watcher {
        self.write(|book, _| {
            book.next += 1;
            Watcher(book.next)
        })
    }

    /// Notes what an observer of the group shows or reports.
    pub fn observes(&self, event: groups::Event) {
        self.write(|book, now| {
            book.note(now, format_args!("{event:?}"));
            book.groups.record(now, event);
        });
    }

    /// Notes a process that is to own some items.
    pub fn wants_items(&self, client: ClientId) -> Candidate {
        self.write(|book, now| {
            book.next += 1;
            let candidate = Candidate(book.next);
            book.note(now, format_args!("{candidate:?} is at {client:?}"));
            book.partitions.record(now, &elections::Event::Joined(candidate));
            candidate
        })
    }

    /// Notes that the process is not to own items any more.
    pub fn wants_no_items(&self, candidate: Candidate) {
        self.write(|book, now| {
            book.note(now, format_args!("{candidate:?} wants no items"));
            book.partitions.record(now, &elections::Event::Left(candidate));
        });
    }

    /// Notes that a process owns an item, and all others that work on it.
    pub fn owns(&self, candidate: Candidate, item: &OwnedItem) {
        self.write(|book, now| {
            let (name, term) = (item.name().to_owned(), item.token().czxid().get());
            let node = book.nodes.get(&(name.clone(), term)).cloned().unwrap_or_default();
            book.item_event(now, &name, elections::Event::Leads { candidate, term, node });
            let works = |work: &&(Candidate, OwnedItem)| work.1.name() == name;
            let seen = |(candidate, item): &(Candidate, OwnedItem)| (*candidate, item.token().czxid().get());
            for (candidate, term) in book.works.iter().filter(works).map(seen).collect::<Vec<_>>() {
                book.item_event(now, &name, elections::Event::SeenLeading { candidate, term });
            }
            book.works.push((candidate, item.clone()));
        });
    }

    /// Notes that the work on an item has ended.
    pub fn gives_up(&self, candidate: Candidate, item: &OwnedItem) {
        self.write(|book, now| {
            let token = item.token();
            let term = token.czxid().get();
            book.works.retain(|work| (work.0, work.1.name(), work.1.token()) != (candidate, item.name(), token));
            let event = match item.is_held() {
                true => elections::Event::Resigned { candidate, term },
                false => elections::Event::Lost { candidate, term },
            };
            book.item_event(now, item.name(), event);
        });
    }

    /// Notes the share of a process. All processes report at one time, when nothing has changed for some time.
    pub fn reports(&self, partition: &Partition) {
        let curator_recipes::Share { members, is_member, wanted, owned, .. } = partition.share();
        let share = Share { id: partition.id().to_owned(), is_member, members, wanted, owned };
        self.write(|book, now| {
            book.note(now, format_args!("{share:?}"));
            book.partitions.reports(share);
        });
    }

    /// Notes a node that an administrator has created.
    pub fn outsider(&self, path: String, czxid: i64) {
        self.write(|book, now| book.event(now, Event::Outsider { path, czxid }));
    }

    /// Notes an error: connections and sessions may fail, paths be taken, and servers refuse.
    pub fn error(&self, error: &NodeError) {
        self.note(format_args!("an error: {error}"));
        if !error.is_retryable() && !matches!(error, NodeError::Framework(error) if is_refusal(error)) {
            self.wrong(format!("an error: {error}"));
        }
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

    /// Returns the outcome.
    pub fn outcome(&self, rules: &Rules, rules_of_items: &elections::Rules) -> Outcome {
        self.note("the end");
        let mut book = self.book.lock();
        let (ids, items): (Vec<_>, _) =
            (book.partitions.ids().into_iter().map(str::to_owned).collect(), book.items.clone());
        let allocation = Partition::allocation(ids.iter().map(String::as_str), items.iter().map(String::as_str));
        book.partitions.allocates(allocation);
        let of_views = book.groups.check(&groups::Rules::new(&book.path, rules.patience));
        let of_nodes = book.registrations.check(rules);
        let of_items = book.partitions.check(rules_of_items);
        let violations = [of_nodes, of_views, of_items].concat();
        let grants = book.registrations.standing() + book.partitions.ownerships();
        Outcome { log: std::mem::take(&mut book.log), violations, grants }
    }
}

impl scribe::Book for Book {
    fn catch_up(&mut self, ensemble: &SimulatedEnsemble) {
        for (at, change) in ensemble.take_changes() {
            self.change(at, change);
        }
    }

    fn note(&mut self, now: Duration, what: impl fmt::Display) {
        self.log.push(format!("{now:>12?} {what}"));
    }

    fn left_behind(&mut self, _now: Duration, what: String) {
        self.registrations.left_behind(what);
    }
}

impl Book {
    fn fault(&mut self, now: Duration, what: impl fmt::Display, lasting: Duration) {
        self.note(now, what);
        self.registrations.fault(now, now + lasting);
        self.groups.fault(now, now + lasting);
        self.partitions.fault(now, now + lasting);
    }

    /// Returns the item of a node, and the node's name.
    fn item_of(&self, path: &str) -> Option<(String, String)> {
        let (item, node) = path.strip_prefix(&*self.path)?.strip_prefix("/items/")?.split_once('/')?;
        Some((item.to_owned(), node.to_owned()))
    }

    fn item_event(&mut self, now: Duration, item: &str, event: elections::Event) {
        self.note(now, format_args!("{item}: {event:?}"));
        self.partitions.record_of(item, now, event);
    }

    fn event(&mut self, now: Duration, event: Event) {
        self.note(now, format_args!("{event:?}"));
        self.registrations.record(now, event);
    }

    fn change(&mut self, at: Duration, change: Change) {
        if let Change::Created { path, node } = &change {
            if let Some((item, name)) = self.item_of(path) {
                self.nodes.insert((item.clone(), node.czxid), name.clone());
                self.item_event(at, &item, elections::Event::Created { node: name, czxid: node.czxid });
            }
        }
        let unprotected = match &change {
            // Behind a lost reply it stays: its name does not identify its creator.
            Change::Created { path, node } if path.contains("/unprotected-") => Some((path.clone(), node.czxid)),
            _ => None,
        };
        self.groups.record(at, groups::Event::Server(change.clone()));
        self.event(at, Event::Server(change));
        if let Some((path, czxid)) = unprotected {
            self.event(at, Event::Outsider { path, czxid });
        }
    }
}
