//! The record of caches.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use curator_checkers::caches::{Cache, Caches, Event, Node, Nodes, Reported, Rules, Scope, State, Stream};
use curator_recipes::CacheError;
use curator_test::SimulatedEnsemble;
use curator_test::versions::{self, Change};

use crate::contenders::Outcome;
use crate::scribe::{self, Book as _};

/// The contents and the events of caches.
#[derive(Debug, Default)]
pub struct Book {
    caches: Caches,
    /// The contents that each cache has shown last.
    shown: BTreeMap<Cache, (State, Nodes)>,
    /// The paths that each cache has hidden last.
    hidden: BTreeMap<Cache, BTreeSet<String>>,
    log: Vec<String>,
    next: u64,
}

/// The recorder of the contents and the events of caches.
pub type Scribe = scribe::Scribe<Book>;

impl Scribe {
    /// Creates an empty record. Clients may take the time `recovery` to be connected after a fault.
    pub fn new(ensemble: SimulatedEnsemble, recovery: Duration) -> Self {
        Self::with_book(ensemble, recovery, Book::default())
    }

    /// Notes a fault. Until it is over and the clients have recovered, caches may be late.
    pub fn fault(&self, what: impl fmt::Display, lasting: Duration) {
        self.write(|book, now| {
            book.note(now, what);
            book.caches.fault(now, now + lasting + self.recovery);
        });
    }

    /// Returns data that no other write has.
    pub fn data(&self) -> Vec<u8> {
        let mut book = self.book.lock();
        book.next += 1;
        format!("data {}", book.next).into_bytes()
    }

    /// Notes a new cache.
    pub fn starts(&self, scope: Scope) -> Cache {
        self.write(|book, now| {
            book.next += 1;
            let cache = Cache(book.next);
            book.event(now, Event::Started(cache, scope));
            cache
        })
    }

    /// Notes a new stream of a cache.
    pub fn opens(&self, cache: Cache) -> Stream {
        self.write(|book, now| {
            book.next += 1;
            let stream = Stream(book.next);
            book.event(now, Event::Opened(stream, cache));
            stream
        })
    }

    /// Notes an event of a stream.
    pub fn reports(&self, stream: Stream, reported: Reported) {
        self.write(|book, now| book.event(now, Event::Reports(stream, reported)));
    }

    /// Notes that a stream has no further event in this moment.
    pub fn drained(&self, stream: Stream) {
        self.write(|book, now| book.event(now, Event::Drained(stream)));
    }

    /// Notes the paths that a cache can neither show nor call missing.
    pub fn hides(&self, cache: Cache, paths: BTreeSet<String>) {
        self.write(|book, now| {
            if book.hidden.get(&cache).map_or(!paths.is_empty(), |hidden| *hidden != paths) {
                book.hidden.insert(cache, paths.clone());
                book.event(now, Event::Hides(cache, paths));
            }
        });
    }

    /// Notes the contents of a cache.
    pub fn shows(&self, cache: Cache, state: State, nodes: Nodes) {
        self.write(|book, now| book.event(now, Event::Shows(cache, state, nodes)));
    }

    /// Notes that a cache has caught up with a transaction.
    pub fn caught_up(&self, cache: Cache, from: i64, zxid: i64) {
        self.write(|book, now| book.event(now, Event::CaughtUp { cache, from, zxid }));
    }

    /// Notes an error: connections and sessions may fail, and servers may refuse.
    pub fn error(&self, error: &CacheError) {
        self.note(format_args!("an error: {error}"));
        if !error.is_retryable() && !matches!(error, CacheError::Framework(error) if scribe::is_refusal(error)) {
            self.wrong(format!("an error: {error}"));
        }
    }

    /// Returns the outcome.
    pub fn outcome(&self, rules: &Rules) -> Outcome {
        self.note("the end");
        let mut book = self.book.lock();
        let violations = book.caches.check(rules);
        Outcome { log: std::mem::take(&mut book.log), violations, grants: book.caches.shown() }
    }
}

impl scribe::Book for Book {
    fn catch_up(&mut self, ensemble: &SimulatedEnsemble) {
        for (at, event) in ensemble.take_versions() {
            self.event(at, Event::Server(event));
        }
    }

    fn note(&mut self, now: Duration, what: impl fmt::Display) {
        self.log.push(format!("{now:>12?} {what}"));
    }

    fn left_behind(&mut self, now: Duration, what: String) {
        self.caches.left_behind(format!("{now:?}: {what}"));
    }
}

impl Book {
    fn event(&mut self, now: Duration, event: Event) {
        match &event {
            Event::Server(versions::Event::Changed(Change { zxid, path, node })) => {
                self.note(now, format_args!("{zxid}: {path} is {}", Text(node.as_ref())));
            }
            Event::Shows(cache, state, nodes) => {
                let shown = (*state, nodes.clone());
                if self.shown.get(cache) != Some(&shown) {
                    let texts: Vec<_> =
                        nodes.iter().map(|(path, node)| format!("{path} {}", Text(Some(node)))).collect();
                    self.note(now, format_args!("{cache:?} shows {state:?}: {}", texts.join(", ")));
                    self.shown.insert(*cache, shown);
                }
            }
            Event::Reports(stream, Reported::Created(path, node)) => {
                self.note(now, format_args!("{stream:?} reports the creation of {path}: {}", Text(Some(node))));
            }
            Event::Reports(stream, Reported::Changed { path, old, new }) => {
                let (old, new) = (Text(Some(old)), Text(Some(new)));
                self.note(now, format_args!("{stream:?} reports the change of {path}: {old} to {new}"));
            }
            Event::Reports(stream, Reported::Deleted(path, node)) => {
                self.note(now, format_args!("{stream:?} reports the deletion of {path}: {}", Text(Some(node))));
            }
            Event::Drained(_) => {}
            _ => self.note(now, format_args!("{event:?}")),
        }
        self.caches.record(now, event);
    }
}

/// A short form of a node.
struct Text<'a>(Option<&'a Node>);

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(node) => write!(f, "[{} {}]", node.czxid, node.mzxid),
            None => f.write_str("gone"),
        }
    }
}
