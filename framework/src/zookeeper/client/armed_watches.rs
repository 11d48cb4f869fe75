//! The watches that the server keeps for the session, so that they can be set again on the next connection.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use curator_wire::Writer;
use tokio::sync::mpsc;

use crate::model::AddWatchMode::{self, Persistent, PersistentRecursive};
use crate::model::{EventType, PersistentEvent, WatchKind, WatchedEvent};

/// The most bytes of watches that one request sets again, as in Java's client.
const PART: usize = 128 * 1024;
/// The room for header, zxid and five counts.
const PART_OVERHEAD: usize = 64;

/// The one-shot watches of a path, as bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct OneShot(u8);

const DATA: u8 = 1;
/// A data watch on a missing node.
const EXIST: u8 = 2;
const CHILD: u8 = 4;

type Subscriber = mpsc::UnboundedSender<PersistentEvent>;
/// The subscribers of a persistent watch: their numbers and the senders of their events.
type Subscribers = Vec<(u64, Subscriber)>;

/// The armed watches of a session.
#[derive(Debug, Default)]
pub(super) struct Armed {
    one_shot: HashMap<Arc<str>, OneShot>,
    persistent: BTreeMap<(String, AddWatchMode), Subscribers>,
    next: u64,
}

/// The kind of one-shot watch that a read has left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Left {
    Data,
    Missing,
    Children,
}

impl Left {
    const fn bit(self) -> u8 {
        match self {
            Self::Data => DATA,
            Self::Missing => EXIST,
            Self::Children => CHILD,
        }
    }
}

impl Armed {
    /// Adds a watch that the reply to a read confirms.
    pub(super) fn arm(&mut self, path: &Arc<str>, left: Left) {
        match self.one_shot.get_mut(path) {
            Some(bits) => bits.0 |= left.bit(),
            None => _ = self.one_shot.insert(Arc::clone(path), OneShot(left.bit())),
        }
    }

    /// Removes a watch that the server has removed on request, or that is not set again.
    pub(super) fn disarm(&mut self, path: &str, kind: WatchKind) {
        self.clear(
            path,
            match kind {
                WatchKind::Data => DATA | EXIST,
                WatchKind::Children => CHILD,
            },
        );
    }

    fn clear(&mut self, path: &str, bits: u8) {
        if let Some(armed) = self.one_shot.get_mut(path) {
            armed.0 &= !bits;
            if armed.0 == 0 {
                self.one_shot.remove(path);
            }
        }
    }

    /// Removes the one-shot watches that an event uses up, and notifies subscribers. Returns `true` if one was armed.
    pub(super) fn fired(&mut self, event: &WatchedEvent) -> bool {
        let bits = match event.event_type {
            EventType::NodeDeleted => DATA | EXIST | CHILD,
            EventType::NodeCreated | EventType::NodeDataChanged => DATA | EXIST,
            EventType::NodeChildrenChanged => CHILD,
        };
        let was_armed = self.one_shot.get(&*event.path).is_some_and(|armed| armed.0 & bits != 0);
        self.clear(&event.path, bits);
        for ((path, mode), subscribers) in &mut self.persistent {
            let concerns = match mode {
                PersistentRecursive => {
                    event.event_type != EventType::NodeChildrenChanged && is_at_or_below(&event.path, path)
                }
                Persistent => event.path == *path,
            };
            if concerns {
                // Without a receiver the subscriber is gone: its drop removes the watch.
                subscribers.iter().for_each(|(_, to)| drop(to.send(PersistentEvent::Changed(event.clone()))));
            }
        }
        was_armed
    }

    /// Returns `true` if the path has no persistent watch: before 3.9 a server that removes a one-shot watch would
    /// remove a persistent one too.
    pub(super) fn can_remove(&self, path: &str) -> bool {
        ![Persistent, PersistentRecursive]
            .into_iter()
            .any(|mode| self.persistent.contains_key(&(path.to_owned(), mode)))
    }

    /// Returns `true` if a read has left a watch at the path.
    pub(super) fn has_one_shot(&self, path: &str) -> bool {
        self.one_shot.contains_key(path)
    }

    pub(super) fn subscribe(&mut self, path: &str, mode: AddWatchMode, to: Subscriber) -> u64 {
        self.next += 1;
        self.persistent.entry((path.to_owned(), mode)).or_default().push((self.next, to));
        self.next
    }

    /// Removes a subscriber. Returns `true` if it was the last one of its watch.
    pub(super) fn unsubscribe(&mut self, path: &str, mode: AddWatchMode, id: u64) -> bool {
        let key = (path.to_owned(), mode);
        let Some(subscribers) = self.persistent.get_mut(&key) else { return false };
        subscribers.retain(|(other, _)| *other != id);
        let was_last = subscribers.is_empty();
        if was_last {
            self.persistent.remove(&key);
        }
        was_last
    }

    /// Sends `Reset` to all subscribers: a persistent watch that is set again has missed the events in between.
    pub(super) fn restored(&self) {
        for (_, to) in self.persistent.values().flatten() {
            drop(to.send(PersistentEvent::Reset));
        }
    }

    /// Returns the bodies of the requests that set all watches again, each at most [`PART`] bytes and below the frame
    /// limit; `true` if one needs `setWatches2`. For one-shot watches the server replays the events since `zxid`.
    pub(super) fn parts(&self, zxid: i64, max_frame: usize) -> Vec<(bool, Vec<u8>)> {
        let longest = PART.min(max_frame).saturating_sub(PART_OVERHEAD);
        let mut parts = Vec::new();
        let mut part = Part::default();
        let one_shot = self.one_shot.iter().flat_map(|(path, bits)| {
            [(DATA, 0), (EXIST, 1), (CHILD, 2)]
                .into_iter()
                .filter(|(bit, _)| bits.0 & bit != 0)
                .map(move |(_, list)| (list, &**path))
        });
        // Persistent watches are last: before 3.9 a one-shot watch that is set later would replace one.
        let list_of = |mode: &AddWatchMode| if *mode == Persistent { 3 } else { 4 };
        let persistent = self.persistent.keys().map(|(path, mode)| (list_of(mode), path.as_str()));
        for (list, path) in one_shot.chain(persistent) {
            if part.length + path.len() + 4 > longest {
                parts.extend(std::mem::take(&mut part).body(zxid));
            }
            part.length += path.len() + 4;
            part.lists[list].push(path);
        }
        parts.extend(part.body(zxid));
        parts
    }
}

/// Returns `true` if a path is `above` or below it.
fn is_at_or_below(path: &str, above: &str) -> bool {
    path.strip_prefix(above).is_some_and(|rest| rest.is_empty() || rest.starts_with('/') || above == "/")
}

#[derive(Default)]
struct Part<'a> {
    length: usize,
    lists: [Vec<&'a str>; 5],
}

impl Part<'_> {
    fn body(self, zxid: i64) -> Option<(bool, Vec<u8>)> {
        if self.length == 0 {
            return None;
        }
        let persistent = self.lists[3..].iter().any(|list| !list.is_empty());
        let mut to = Writer::append_to(Vec::with_capacity(self.length + PART_OVERHEAD));
        to.long(zxid);
        for list in &self.lists[..if persistent { 5 } else { 3 }] {
            to.vector(list, |to, path| _ = to.string(path));
        }
        Some((persistent, to.into_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use curator_wire::Reader;

    use super::*;

    fn lists(body: &(bool, Vec<u8>)) -> (i64, Vec<Vec<String>>) {
        let mut from = Reader::new(&body.1);
        let zxid = from.long().unwrap();
        let lists = (0..if body.0 { 5 } else { 3 })
            .map(|_| from.vector(|from| from.string().map(str::to_owned)).unwrap())
            .collect();
        assert!(from.is_empty());
        (zxid, lists)
    }

    #[test]
    fn an_event_uses_up_the_watches_that_it_fires() {
        let mut armed = Armed::default();
        for left in [Left::Data, Left::Missing, Left::Children] {
            armed.arm(&"/a".into(), left);
        }
        armed.fired(&WatchedEvent { event_type: EventType::NodeDataChanged, path: "/a".to_owned() });
        assert_eq!(lists(&armed.parts(7, PART)[0]), (7, vec![vec![], vec![], vec!["/a".to_owned()]]));
        armed.fired(&WatchedEvent { event_type: EventType::NodeDeleted, path: "/a".to_owned() });
        assert!(armed.parts(7, PART).is_empty());
    }

    #[test]
    fn many_watches_are_set_again_in_parts_below_the_limit() {
        let mut armed = Armed::default();
        for number in 0..10_000 {
            armed.arm(&format!("/locks/a-lock-with-a-long-name/_c_{number:036}-lock-0000000001").into(), Left::Data);
        }
        let parts = armed.parts(1, PART);
        assert!(parts.len() > 5);
        assert!(parts.iter().all(|(persistent, body)| !persistent && body.len() <= PART));
        let paths: usize = parts.iter().map(|part| lists(part).1[0].len()).sum();
        assert_eq!(paths, 10_000);
    }

    #[test]
    fn a_recursive_watch_hears_of_everything_below_it_but_of_child_changes() {
        let mut armed = Armed::default();
        let (to, mut events) = mpsc::unbounded_channel();
        let id = armed.subscribe("/a", PersistentRecursive, to);
        for (event_type, path) in [
            (EventType::NodeCreated, "/a/b"),
            (EventType::NodeChildrenChanged, "/a"),
            (EventType::NodeCreated, "/ab"),
            (EventType::NodeDeleted, "/a"),
        ] {
            armed.fired(&WatchedEvent { event_type, path: path.to_owned() });
        }
        let mut paths = Vec::new();
        while let Ok(PersistentEvent::Changed(event)) = events.try_recv() {
            paths.push(event.path);
        }
        assert_eq!(paths, ["/a/b", "/a"]);
        let part = &armed.parts(3, PART)[0];
        assert!(part.0, "setWatches2");
        assert_eq!(lists(part).1[4], ["/a"]);
        assert!(armed.unsubscribe("/a", PersistentRecursive, id));
        assert!(armed.parts(3, PART).is_empty());
    }
}
