//! The record of caches.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use curator_checkers::Violation;
use curator_checkers::caches::{Cache, Caches, Event, Node, Nodes, Reported, Rules, Scope, State, Stream};
use curator_checkers::timeline::Timeline;
use curator_recipes::CacheError;
use curator_test::SimulatedEnsemble;
use curator_test::versions::{self, Change};

use crate::scribe::{self, Record, is_refusal};

/// The contents and the events of caches.
#[derive(Debug, Default)]
pub struct Book {
    caches: Caches,
    /// The contents that each cache has shown last.
    shown: BTreeMap<Cache, (State, Nodes)>,
    /// The paths that each cache has hidden last.
    hidden: BTreeMap<Cache, BTreeSet<String>>,
}

/// The recorder of the contents and the events of caches.
pub type Scribe = scribe::Scribe<Book>;

impl Scribe {
    /// Notes a new cache.
    pub fn starts(&self, scope: Scope) -> Cache {
        self.write(|record, now| {
            let cache = Cache(record.number());
            record.happens(now, Event::Started(cache, scope));
            cache
        })
    }

    /// Notes a new stream of a cache.
    pub fn opens(&self, cache: Cache) -> Stream {
        self.write(|record, now| {
            let stream = Stream(record.number());
            record.happens(now, Event::Opened(stream, cache));
            stream
        })
    }

    /// Notes an event of a stream.
    pub fn reports(&self, stream: Stream, reported: Reported) {
        self.write(|record, now| record.happens(now, Event::Reports(stream, reported)));
    }

    /// Notes that a stream has no further event in this moment.
    pub fn drained(&self, stream: Stream) {
        self.write(|record, now| record.happens(now, Event::Drained(stream)));
    }

    /// Notes the paths that a cache can neither show nor call missing.
    pub fn hides(&self, cache: Cache, paths: BTreeSet<String>) {
        self.write(|record, now| {
            if record.book.hidden.get(&cache).map_or(!paths.is_empty(), |hidden| *hidden != paths) {
                record.book.hidden.insert(cache, paths.clone());
                record.happens(now, Event::Hides(cache, paths));
            }
        });
    }

    /// Notes the contents of a cache.
    pub fn shows(&self, cache: Cache, state: State, nodes: Nodes) {
        self.write(|record, now| record.happens(now, Event::Shows(cache, state, nodes)));
    }

    /// Notes that a cache has caught up with a transaction.
    pub fn caught_up(&self, cache: Cache, from: i64, zxid: i64) {
        self.write(|record, now| record.happens(now, Event::CaughtUp { cache, from, zxid }));
    }

    /// Notes an error: connections and sessions may fail, and servers may refuse.
    pub fn error(&self, error: &CacheError) {
        let is_refused = matches!(error, CacheError::Framework(error) if is_refusal(error));
        self.judge(error, error.is_retryable() || is_refused);
    }
}

impl scribe::Book for Book {
    type Event = Event;
    type Rules = Rules;

    fn timeline(&mut self) -> &mut Timeline<Event> {
        &mut self.caches
    }

    fn check(&mut self, rules: &Rules) -> (Vec<Violation>, usize) {
        (self.caches.check(rules), self.caches.shown())
    }

    fn catch_up(record: &mut Record<Self>, ensemble: &SimulatedEnsemble) {
        for (at, event) in ensemble.take_versions() {
            record.happens(at, Event::Server(event));
        }
    }
}

impl Record<Book> {
    /// Records an event, with a short line for the log.
    fn happens(&mut self, now: Duration, event: Event) {
        match &event {
            Event::Server(versions::Event::Changed(Change { zxid, path, node })) => {
                self.note(now, format_args!("{zxid}: {path} is {}", Text(node.as_ref())));
            }
            Event::Shows(cache, state, nodes) => {
                let shown = (*state, nodes.clone());
                if self.book.shown.get(cache) != Some(&shown) {
                    let texts: Vec<_> =
                        nodes.iter().map(|(path, node)| format!("{path} {}", Text(Some(node)))).collect();
                    self.note(now, format_args!("{cache:?} shows {state:?}: {}", texts.join(", ")));
                    self.book.shown.insert(*cache, shown);
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
        self.book.caches.record(now, event);
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
