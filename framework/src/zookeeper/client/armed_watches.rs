//! The watches of the session, so that they can be set again on the next connection.
//!
//! Before 3.9 a server has one watch for each path and session in each of two tables, of data and of children, and the
//! newest one replaces the others (ZOOKEEPER-4466). A one-shot watch that would replace a persistent one is therefore
//! never sent: the persistent watch of the same path gets the same events and serves it. A recursive watch gets all of
//! its events from the table of data, so a one-shot watch of the children takes nothing from it, and is sent.
//!
//! For subscribers of both modes at one path the server has the recursive watch alone. It sends no
//! `NodeChildrenChanged`, so the creation and deletion of each child replace it.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use curator_wire::{OpCode, Writer};
use foldhash::{HashMap, HashSet};

use crate::model::AddWatchMode::{self, Persistent, PersistentRecursive};
use crate::model::path::parent_of;
use crate::model::{EventType, WatchKind, WatchedEvent};
use crate::sync::user_code::catch_panic;
use crate::zookeeper::{KnownNodes, Resync, SubscriptionEvent, WatchSender};

/// The zxid before the first transaction, which has made the root.
pub(super) const BEFORE_ALL: i64 = -1;
/// The most bytes of watches that one request sets again, as in Java's client.
const PART: usize = 128 * 1024;
/// The room for header, zxid and five counts.
const PART_OVERHEAD: usize = 64;

/// A data watch: the one-shot watches of a path are bits.
const DATA: u8 = 1;
/// A data watch on a missing node.
const EXIST: u8 = 2;
const CHILD: u8 = 4;
/// The list of the watches on children in `setWatches`.
const CHILDREN_LIST: usize = 2;

/// A subscriber of a persistent watch.
struct Subscriber {
    id: u64,
    to: WatchSender,
    resync: Option<Arc<dyn Resync>>,
    /// The event that ends the resync of a new subscriber, until it is sent.
    resyncing: Option<SubscriptionEvent>,
    /// Its known nodes are not known, because its resync has panicked: it must read everything again.
    is_lost: bool,
}

/// Calls the code of a subscriber. `None` if it has panicked.
pub(super) fn known_of(resync: &dyn Resync) -> Option<KnownNodes> {
    catch_panic("resync", || resync.known()).ok()
}

impl fmt::Debug for Subscriber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subscriber").field("id", &self.id).finish_non_exhaustive()
    }
}

/// The armed watches of a session.
#[derive(Debug, Default)]
pub(super) struct Armed {
    one_shot: HashMap<Arc<str>, u8>,
    persistent: BTreeMap<(String, AddWatchMode), Vec<Subscriber>>,
    /// The paths at which the server has a recursive watch, as far as its replies say.
    recursive: HashSet<String>,
    /// The paths at which reads may have taken the place of a persistent watch.
    displaced: HashSet<String>,
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
            Some(bits) => *bits |= left.bit(),
            None => _ = self.one_shot.insert(Arc::clone(path), left.bit()),
        }
    }

    /// Removes a watch that the server has removed on request, or that is not set again.
    pub(super) fn disarm(&mut self, path: &str, kind: WatchKind) {
        self.clear(path, bits_of(kind));
    }

    /// Returns `true` if a one-shot watch of this kind is armed.
    pub(super) fn is_armed(&self, path: &str, kind: WatchKind) -> bool {
        self.one_shot.get(path).is_some_and(|armed| armed & bits_of(kind) != 0)
    }

    fn clear(&mut self, path: &str, bits: u8) {
        if let Some(armed) = self.one_shot.get_mut(path) {
            *armed &= !bits;
            if *armed == 0 {
                self.one_shot.remove(path);
            }
        }
    }

    /// Removes the one-shot watches that an event uses up. Returns `true` if one was armed.
    pub(super) fn fired(&mut self, event: &WatchedEvent) -> bool {
        let bits = match event.event_type {
            EventType::NodeDeleted => DATA | EXIST | CHILD,
            EventType::NodeCreated | EventType::NodeDataChanged => DATA | EXIST,
            EventType::NodeChildrenChanged => CHILD,
        };
        let was_armed = self.one_shot.get(&*event.path).is_some_and(|armed| armed & bits != 0);
        self.clear(&event.path, bits);
        was_armed
    }

    /// Notifies the subscribers of an event. While watches are set again, or a new subscriber's watches are set, a
    /// subscriber that resyncs gets the changes of the children below its path too.
    pub(super) fn tell(&self, event: &WatchedEvent, is_restoring: bool) {
        for ((path, mode), subscribers) in &self.persistent {
            let told = event_for(path, *mode, self.recursive.contains(path), event);
            let is_replayed = told.is_none()
                && event.event_type == EventType::NodeChildrenChanged
                && covers(path, *mode, &event.path);
            for Subscriber { to, resync, resyncing, .. } in subscribers {
                let resyncs = is_restoring && resync.is_some() || resyncing.is_some();
                match &told {
                    Some(event) => to.send(SubscriptionEvent::Event(event.clone())),
                    None if is_replayed && resyncs => to.send(SubscriptionEvent::Event(event.clone())),
                    None => {}
                }
            }
        }
    }

    /// Returns the mode that the persistent watch of a path needs on the server.
    pub(super) fn mode_at(&self, path: &str) -> Option<AddWatchMode> {
        [PersistentRecursive, Persistent].into_iter().find(|mode| self.has_persistent(path, *mode))
    }

    /// Records that the server has set a persistent watch, in place of any other of its path, on the connection with
    /// this number. Subscribers of the path that may have missed a change get `Reset`. Returns `true` if a one-shot watch
    /// of the children may have missed one: a recursive watch has taken its place, or did not serve it until now.
    pub(super) fn is_set(&mut self, path: &str, mode: AddWatchMode, epoch: u64) -> bool {
        let was_recursive = self.recursive.remove(path);
        if mode == PersistentRecursive && self.mode_at(path).is_some() {
            self.recursive.insert(path.to_owned());
        }
        let was_displaced = self.displaced.remove(path);
        if was_displaced {
            for Subscriber { to, .. } in self.persistent.get(&(path.to_owned(), Persistent)).into_iter().flatten() {
                to.restored(SubscriptionEvent::Reset, epoch);
            }
        }
        mode == PersistentRecursive || was_recursive || was_displaced
    }

    /// Records that reads may have taken the place of the persistent watch of a path.
    pub(super) fn may_be_displaced(&mut self, path: &str) {
        if self.has_persistent(path, Persistent) {
            self.displaced.insert(path.to_owned());
        }
    }

    /// Returns `true` if the subscribers of a path need a persistent watch, and the server has a recursive one or may
    /// have none.
    pub(super) fn lacks_persistent(&self, path: &str) -> bool {
        self.mode_at(path) == Some(Persistent) && (self.recursive.contains(path) || self.displaced.contains(path))
    }

    fn has_persistent(&self, path: &str, mode: AddWatchMode) -> bool {
        !self.persistent.is_empty() && self.persistent.contains_key(&(path.to_owned(), mode))
    }

    /// Returns the one-shot watches that a persistent watch of the path serves. The recursive one serves no watch of the
    /// children: the server sends no event of a child that the session must not read.
    fn served(&self, path: &str) -> u8 {
        match [Persistent, PersistentRecursive].map(|mode| self.has_persistent(path, mode)) {
            [false, false] => 0,
            [true, false] => DATA | EXIST | CHILD,
            [_, true] => DATA | EXIST,
        }
    }

    /// Returns `true` if a persistent watch of the path serves this one-shot watch, so that a read must not send it.
    pub(super) fn serves(&self, path: &str, kind: WatchKind) -> bool {
        self.served(path) & bits_of(kind) != 0
    }

    /// Returns `true` if the removal of a one-shot watch takes nothing from a persistent one.
    pub(super) fn can_remove(&self, path: &str, kind: WatchKind) -> bool {
        !self.serves(path, kind) && !self.has_persistent(path, Persistent)
    }

    pub(super) fn subscribe(
        &mut self,
        path: &str,
        mode: AddWatchMode,
        resync: Option<Arc<dyn Resync>>,
        to: WatchSender,
    ) -> u64 {
        self.next += 1;
        let subscriber = Subscriber { id: self.next, to, resync, resyncing: None, is_lost: false };
        self.persistent.entry((path.to_owned(), mode)).or_default().push(subscriber);
        self.next
    }

    /// Records that the watches of a new subscriber's known nodes are being set.
    pub(super) fn resyncs(&mut self, id: u64) {
        self.set_resyncing(id, SubscriptionEvent::Resynced);
    }

    /// Records that the server's transactions are older than those that a new subscriber knows. It may be a restored
    /// backup or another ensemble, so the subscriber must read everything again.
    pub(super) fn is_ahead(&mut self, id: u64) {
        self.set_resyncing(id, SubscriptionEvent::Reset);
    }

    fn set_resyncing(&mut self, id: u64, event: SubscriptionEvent) {
        if let Some(subscriber) = self.subscriber(id) {
            subscriber.resyncing = Some(event);
        }
    }

    /// Ends the resync of a new subscriber: all its watches are set on the connection with this number.
    pub(super) fn resynced(&mut self, id: u64, epoch: u64) {
        if let Some(subscriber) = self.subscriber(id) {
            if let Some(event) = subscriber.resyncing.take() {
                subscriber.to.restored(event, epoch);
            }
        }
    }

    fn subscriber(&mut self, id: u64) -> Option<&mut Subscriber> {
        self.persistent.values_mut().flatten().find(|subscriber| subscriber.id == id)
    }

    /// Removes a subscriber. Returns `true` if it was the last one of its path and mode.
    pub(super) fn unsubscribe(&mut self, path: &str, mode: AddWatchMode, id: u64) -> bool {
        let key = (path.to_owned(), mode);
        let Some(subscribers) = self.persistent.get_mut(&key) else { return false };
        subscribers.retain(|subscriber| subscriber.id != id);
        if !subscribers.is_empty() {
            return false;
        }
        self.persistent.remove(&key);
        if self.mode_at(path).is_none() {
            self.recursive.remove(path);
            self.displaced.remove(path);
        }
        true
    }

    /// Sends `Resynced` to the subscribers that resync, and `Reset` to the others: on the connection with this number
    /// all watches are set.
    pub(super) fn restored(&self, epoch: u64) {
        for Subscriber { to, resync, is_lost, .. } in self.persistent.values().flatten() {
            let is_resynced = resync.is_some() && !is_lost;
            let event = if is_resynced { SubscriptionEvent::Resynced } else { SubscriptionEvent::Reset };
            to.restored(event, epoch);
        }
    }

    /// Records that a new connection sets all persistent watches.
    pub(super) fn restoring(&mut self) {
        let recursive = self.persistent.keys().filter(|(_, mode)| *mode == PersistentRecursive);
        self.recursive = recursive.map(|(path, _)| path.clone()).collect();
        self.displaced.clear();
    }

    /// Returns the requests that set all watches again, each at most [`PART`] bytes and below the frame limit. For
    /// one-shot watches the server replays the events since `zxid`, for nodes that subscribers know since the zxid of
    /// each, but not from later than `zxid`. The persistent watches come last: before 3.9 they replace the one-shot watches
    /// of their paths. From before all transactions the server replays everything, and what subscribers know counts for
    /// nothing.
    pub(super) fn parts(&mut self, zxid: i64, max_frame: usize) -> Vec<SetWatches> {
        let longest = PART.min(max_frame).saturating_sub(PART_OVERHEAD);
        let mut parts = Vec::new();
        for ((path, mode), subscriber) in
            self.persistent.iter_mut().flat_map(|(key, all)| all.iter_mut().map(move |one| (key, one)))
        {
            let Some(resync) = &subscriber.resync else { continue };
            let known = known_of(&**resync).filter(|_| zxid != BEFORE_ALL);
            subscriber.is_lost = known.is_none();
            if let Some(known) = known {
                let entries = entries_of(&known).filter(|(_, known)| covers(path, *mode, known));
                put(&mut parts, entries, |_| None, known.since().min(zxid), longest);
            }
        }
        // In an order that a second run repeats: the server replays their events in it.
        let mut armed: Vec<_> = self.one_shot.iter().map(|(path, bits)| (&**path, *bits)).collect();
        armed.sort_unstable();
        let one_shot = armed.into_iter().flat_map(|(path, bits)| lists_of(bits).map(move |list| (list, path)));
        // Before 3.9 the newest watch of a path counts. So each comes ahead of the watch that serves it, and one of the
        // children behind the recursive watch, which would remove it.
        let (behind, ahead): (Vec<_>, Vec<_>) =
            one_shot.partition(|(list, path)| *list == CHILDREN_LIST && self.has_persistent(path, PersistentRecursive));
        let needed = self.persistent.keys().filter(|(path, mode)| self.mode_at(path) == Some(*mode));
        let persistent = needed.map(|(path, mode)| (list_of(*mode), path.as_str()));
        put(&mut parts, ahead.into_iter().chain(persistent), |_| None, zxid, longest);
        put(&mut parts, behind.into_iter(), |_| None, zxid, longest);
        parts
    }
}

/// Returns the requests that set watches on the nodes that a new subscriber of `path` knows, as [`Armed::parts`] does.
/// The server replays the events since the subscriber's zxid. `persistent` returns the mode of a
/// persistent watch on the server. Before 3.9 a watch of its path replaces it, so the same request sets it too.
pub(super) fn parts_of_known(
    path: &str,
    mode: AddWatchMode,
    known: &KnownNodes,
    persistent: impl Fn(&str) -> Option<AddWatchMode>,
    max_frame: usize,
) -> Vec<SetWatches> {
    let longest = PART.min(max_frame).saturating_sub(PART_OVERHEAD);
    let mut parts = Vec::new();
    let entries = entries_of(known).filter(|(_, known)| covers(path, mode, known));
    put(&mut parts, entries, |known| persistent(known).map(list_of), known.since(), longest);
    parts
}

/// Returns the event that the subscribers of a path in this mode get. At a path with a recursive watch on the server
/// each creation or deletion of a child becomes a `NodeChildrenChanged` of the path.
fn event_for(path: &str, mode: AddWatchMode, is_recursive: bool, event: &WatchedEvent) -> Option<WatchedEvent> {
    use EventType::{NodeChildrenChanged, NodeCreated, NodeDeleted};
    let concerns = match (mode, event.event_type) {
        (PersistentRecursive, NodeChildrenChanged) => false,
        (Persistent, NodeChildrenChanged) if is_recursive => false,
        (Persistent, NodeCreated | NodeDeleted)
            if is_recursive && event.path != "/" && parent_of(&event.path) == path =>
        {
            return Some(WatchedEvent { event_type: NodeChildrenChanged, path: path.to_owned() });
        }
        _ => covers(path, mode, &event.path),
    };
    concerns.then(|| event.clone())
}

const fn bits_of(kind: WatchKind) -> u8 {
    match kind {
        WatchKind::Data => DATA | EXIST,
        WatchKind::Children => CHILD,
    }
}

/// Returns the lists of `setWatches` that contain these one-shot watches.
fn lists_of(bits: u8) -> impl Iterator<Item = usize> {
    let lists = [(DATA, 0), (EXIST, 1), (CHILD, CHILDREN_LIST)];
    lists.into_iter().filter(move |(bit, _)| bits & bit != 0).map(|(_, list)| list)
}

/// Returns the list of `setWatches2` that contains a persistent watch of this mode.
const fn list_of(mode: AddWatchMode) -> usize {
    match mode {
        Persistent => 3,
        PersistentRecursive => 4,
    }
}

/// Returns `true` if a path is `above` or below it.
fn is_at_or_below(path: &str, above: &str) -> bool {
    path.strip_prefix(above).is_some_and(|rest| rest.is_empty() || rest.starts_with('/') || above == "/")
}

/// Returns `true` if a persistent watch of `path` covers the node at `other`.
fn covers(path: &str, mode: AddWatchMode, other: &str) -> bool {
    match mode {
        PersistentRecursive => is_at_or_below(other, path),
        Persistent => other == path,
    }
}

/// Returns the entries of `setWatches` for nodes that a subscriber knows.
fn entries_of(known: &KnownNodes) -> impl Iterator<Item = (usize, &str)> {
    let lists = [&known.data, &known.missing, &known.children].into_iter().enumerate();
    lists.flat_map(|(list, paths)| paths.iter().map(move |path| (list, path.as_str())))
}

/// Appends requests with these entries. A path for which `also` returns a list is put into that list of the same
/// request too. A server sets the persistent watches of a request last.
fn put<'a>(
    parts: &mut Vec<SetWatches>,
    entries: impl Iterator<Item = (usize, &'a str)>,
    also: impl Fn(&str) -> Option<usize>,
    zxid: i64,
    longest: usize,
) {
    let mut part = Part::default();
    for (list, path) in entries {
        let also = also(path);
        if part.length + (1 + also.iter().len()) * (path.len() + 4) > longest {
            parts.extend(std::mem::take(&mut part).body(zxid));
        }
        [list].into_iter().chain(also).for_each(|list| part.push(list, path));
    }
    parts.extend(part.body(zxid));
}

/// A request that sets watches.
pub(super) struct SetWatches {
    pub(super) body: Vec<u8>,
    /// The paths of its persistent watches. With one it is `setWatches2`.
    pub(super) persistent: Vec<(String, AddWatchMode)>,
}

impl SetWatches {
    pub(super) fn op(&self) -> OpCode {
        if self.persistent.is_empty() { OpCode::SetWatches } else { OpCode::SetWatches2 }
    }
}

#[derive(Default)]
struct Part<'a> {
    length: usize,
    lists: [Vec<&'a str>; 5],
}

impl<'a> Part<'a> {
    fn push(&mut self, list: usize, path: &'a str) {
        self.length += path.len() + 4;
        self.lists[list].push(path);
    }

    fn body(self, zxid: i64) -> Option<SetWatches> {
        if self.length == 0 {
            return None;
        }
        let [.., persistent, recursive] = &self.lists;
        let set = [(persistent, Persistent), (recursive, PersistentRecursive)];
        let set = set.into_iter().flat_map(|(paths, mode)| paths.iter().map(move |path| ((*path).to_owned(), mode)));
        let persistent: Vec<_> = set.collect();
        let mut to = Writer::append_to(Vec::with_capacity(self.length + PART_OVERHEAD));
        to.long(zxid);
        for list in &self.lists[..if persistent.is_empty() { 3 } else { 5 }] {
            to.vector(list, |to, path| _ = to.string(path));
        }
        Some(SetWatches { body: to.into_bytes(), persistent })
    }
}

#[cfg(test)]
mod tests {
    use curator_wire::Reader;

    use super::*;
    use crate::zookeeper::WatchEvents;

    fn lists(request: &SetWatches) -> (i64, Vec<Vec<String>>) {
        let mut from = Reader::new(&request.body);
        let zxid = from.long().unwrap();
        let lists = (0..if request.persistent.is_empty() { 3 } else { 5 })
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
        assert!(parts.iter().all(|part| part.persistent.is_empty() && part.body.len() <= PART));
        let paths: usize = parts.iter().map(|part| lists(part).1[0].len()).sum();
        assert_eq!(paths, 10_000);
    }

    #[test]
    fn a_recursive_watch_hears_of_everything_below_it_but_of_child_changes() {
        let mut armed = Armed::default();
        let (to, mut events) = WatchEvents::channel();
        let id = armed.subscribe("/a", PersistentRecursive, None, to);
        for (event_type, path) in [
            (EventType::NodeCreated, "/a/b"),
            (EventType::NodeChildrenChanged, "/a"),
            (EventType::NodeCreated, "/ab"),
            (EventType::NodeDeleted, "/a"),
        ] {
            armed.tell(&WatchedEvent { event_type, path: path.to_owned() }, false);
        }
        let mut paths = Vec::new();
        while let Ok(SubscriptionEvent::Event(event)) = events.try_recv() {
            paths.push(event.path);
        }
        assert_eq!(paths, ["/a/b", "/a"]);
        let part = &armed.parts(3, PART)[0];
        assert_eq!(part.persistent, [("/a".to_owned(), PersistentRecursive)], "setWatches2");
        assert_eq!(lists(part).1[4], ["/a"]);
        assert!(armed.unsubscribe("/a", PersistentRecursive, id));
        assert!(armed.parts(3, PART).is_empty());
    }
}
