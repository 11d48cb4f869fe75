//! The notes on nodes that stand.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use curator_framework::{CuratorFramework, Error};
use curator_recipes::NodeError;
use curator_test::groups::{self, Groups, Watcher};
use curator_test::nodes::Change;
use curator_test::registrations::{Event, Plan, Registration, Registrations, Rules, State};
use curator_test::{ClientId, SimulatedEnsemble};
use parking_lot::Mutex;

use crate::contenders::Outcome;

#[derive(Debug)]
struct Book {
    registrations: Registrations,
    groups: Groups,
    log: Vec<String>,
    next: u64,
}

/// Writes down the nodes of registrants.
#[derive(Debug, Clone)]
pub struct Scribe {
    recovery: Duration,
    ensemble: SimulatedEnsemble,
    book: Arc<Mutex<Book>>,
}

impl Scribe {
    /// Creates an empty book on the nodes below a path. `recovery` is how long clients may take to be back after a fault.
    pub fn new(ensemble: SimulatedEnsemble, path: &str, recovery: Duration) -> Self {
        let (registrations, groups) = (Registrations::new(), Groups::new(path));
        let book = Book { registrations, groups, log: Vec::new(), next: 0 };
        Self { recovery, ensemble, book: Arc::new(Mutex::new(book)) }
    }

    fn write<T>(&self, write: impl FnOnce(&mut Book, Duration) -> T) -> T {
        let mut book = self.book.lock();
        for (at, change) in self.ensemble.take_changes() {
            book.change(at, change);
        }
        write(&mut book, self.ensemble.now())
    }

    /// Notes something for the reader.
    pub fn note(&self, what: impl fmt::Display) {
        self.write(|book, now| book.note(now, what));
    }

    /// Notes something that must not be.
    pub fn wrong(&self, what: impl Into<String>) {
        self.write(|book, now| {
            let what = what.into();
            book.note(now, &what);
            book.registrations.left_behind(what);
        });
    }

    /// Notes a fault. Until it is over and the clients have recovered, nodes may be missing.
    pub fn fault(&self, what: impl fmt::Display, lasting: Duration) {
        self.write(|book, now| {
            book.note(now, what);
            book.registrations.fault(now, now + lasting + self.recovery);
            book.groups.fault(now, now + lasting + self.recovery);
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
            match client.session().await {
                Ok(session) => {
                    let id = session.id().expect("the client knows its session");
                    self.write(|book, now| book.event(now, Event::SessionBegan(name, id)));
                    session.ended().await;
                }
                Err(Error::Closed) => return,
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

    /// Notes a node that an administrator has created.
    pub fn outsider(&self, path: String, czxid: i64) {
        self.write(|book, now| book.event(now, Event::Outsider { path, czxid }));
    }

    /// Notes an error: only connections and sessions may fail, and paths be taken.
    pub fn error(&self, error: &NodeError) {
        self.note(format_args!("an error: {error}"));
        if !error.is_retryable() {
            self.wrong(format!("an error: {error}"));
        }
    }

    pub fn may_fail<T>(&self, outcome: Result<T, NodeError>) {
        if let Err(error) = outcome {
            self.error(&error);
        }
    }

    /// Returns the outcome.
    pub fn outcome(&self, rules: &Rules) -> Outcome {
        self.note("the end");
        let mut book = self.book.lock();
        let of_views = book.groups.check(&groups::Rules::new(rules.patience));
        let of_nodes = book.registrations.check(rules);
        let violations = of_nodes.iter().map(ToString::to_string).chain(of_views.iter().map(ToString::to_string));
        let violations = violations.collect();
        Outcome { log: std::mem::take(&mut book.log), violations, grants: book.registrations.standing() }
    }
}

impl Book {
    fn note(&mut self, now: Duration, what: impl fmt::Display) {
        self.log.push(format!("{now:>12?} {what}"));
    }

    fn event(&mut self, now: Duration, event: Event) {
        self.note(now, format_args!("{event:?}"));
        self.registrations.record(now, event);
    }

    fn change(&mut self, at: Duration, change: Change) {
        let unprotected = match &change {
            // Behind a lost reply it stays: its name does not tell the creator.
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
