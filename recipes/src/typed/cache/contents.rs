//! The typed nodes of a cache, as its events show them. Pure: the caller decodes the data.

use std::collections::{BTreeMap, VecDeque};
use std::mem::take;
use std::sync::Arc;

use curator_framework::{Stat, Zxid};

use crate::caches::events::CacheEvent;
use crate::caches::model::ChildData;
use crate::typed::error::ModelError;

/// A node of a [`ModeledCache`](crate::ModeledCache), as it was at one moment.
#[derive(Debug)]
#[non_exhaustive]
pub struct CachedModel<T> {
    /// The key: the name of the node.
    pub key: Arc<str>,
    /// The value. All readers of a cache share it.
    pub value: Arc<T>,
    /// The version in `stat`, for [`ModeledNode::update`](crate::ModeledNode::update).
    pub version: i32,
    /// The stat of the node.
    pub stat: Stat,
    /// The transaction that created the node. A process in its next session replaces its node by one with the same
    /// data: then it is the transaction that created the first node.
    pub since: Zxid,
}

impl<T> Clone for CachedModel<T> {
    fn clone(&self) -> Self {
        Self { key: Arc::clone(&self.key), value: Arc::clone(&self.value), ..*self }
    }
}

/// A change of the nodes in a [`ModeledCache`](crate::ModeledCache).
///
/// The changes replay to the contents: a reader that has applied each change up to one has the values that the cache
/// had after it.
#[derive(Debug)]
#[non_exhaustive]
pub enum ModelChange<T> {
    /// A node was created, or can be decoded again after [`Broken`](Self::Broken).
    #[doc(alias = "NODE_ADDED")]
    Added(CachedModel<T>),
    /// The data of a node has changed. States between the two may be skipped. If the node was replaced by one with other
    /// data, as by a process in its next session, this is the only change. With the same data none follows.
    #[doc(alias = "NODE_UPDATED")]
    Updated {
        /// The last state that was reported.
        old: CachedModel<T>,
        /// The present state.
        new: CachedModel<T>,
    },
    /// A node was deleted, or its newest data cannot be decoded. This is the last state that was reported.
    #[doc(alias = "NODE_REMOVED")]
    Removed(CachedModel<T>),
    /// A node exists, and cannot be read or decoded. If it had a value before, [`Removed`](Self::Removed) precedes this
    /// change. The deletion of such a node causes none.
    #[doc(alias = "handleException")]
    Broken {
        /// The key.
        key: Arc<str>,
        /// `ModelError::Decode`, or `ModelError::Cache` if the data cannot be read.
        error: ModelError,
    },
}

impl<T> Clone for ModelChange<T> {
    fn clone(&self) -> Self {
        match self {
            Self::Added(model) => Self::Added(model.clone()),
            Self::Updated { old, new } => Self::Updated { old: old.clone(), new: new.clone() },
            Self::Removed(model) => Self::Removed(model.clone()),
            Self::Broken { key, error } => Self::Broken { key: Arc::clone(key), error: error.clone() },
        }
    }
}

/// The result of a decode.
pub(super) type Decoded<T> = Result<Arc<T>, ModelError>;

/// The result of a decode, and the node's [`CachedModel::since`].
pub(super) type State<T> = (Decoded<T>, i64);

/// A state of a node, to be decoded.
#[derive(Debug, Clone, Copy)]
pub(super) struct Undecoded<'a> {
    pub(super) key: &'a str,
    pub(super) stat: &'a Stat,
    pub(super) data: &'a [u8],
}

/// Returns the fields that differ between two states of a node's data. Servers that have lost their data give out the
/// same transactions again, so the times count too.
fn revision(stat: &Stat) -> (i32, [i64; 4]) {
    (stat.version, [stat.czxid, stat.mzxid, stat.ctime, stat.mtime])
}

struct Entry<T> {
    /// The number of resets before the newest event of the node.
    round: u64,
    stat: Stat,
    /// See [`CachedModel::since`].
    since: i64,
    state: Decoded<T>,
}

impl<T> Entry<T> {
    fn has(&self, stat: &Stat) -> bool {
        revision(&self.stat) == revision(stat)
    }

    fn model(&self, key: &Arc<str>) -> Result<CachedModel<T>, ModelError> {
        let (value, stat) = (self.state.clone()?, self.stat);
        Ok(CachedModel { key: Arc::clone(key), value, version: stat.version, stat, since: Zxid::new(self.since) })
    }
}

/// The nodes of a cache with data that can be read.
pub(super) struct Contents<T> {
    /// The start of each node's path.
    parent: String,
    entries: BTreeMap<Arc<str>, Entry<T>>,
    round: u64,
}

impl<T> Contents<T> {
    /// Returns no nodes, for the children of this path.
    pub(super) fn new(directory: &str) -> Self {
        let parent = if directory == "/" { directory.to_owned() } else { format!("{directory}/") };
        Self { parent, entries: BTreeMap::new(), round: 0 }
    }

    /// Takes the next event of the nodes. `decode` is called once for new data of a node. Returns `true` if
    /// [`models`](Self::models) may differ.
    pub(super) fn apply(
        &mut self,
        event: &CacheEvent,
        decode: impl FnOnce(Undecoded<'_>) -> State<T>,
        changes: &mut VecDeque<ModelChange<T>>,
    ) -> bool {
        match event {
            CacheEvent::Created(node) => return self.present(node, None, decode, changes),
            CacheEvent::Changed { old, new } => {
                let same = (old.data == new.data).then_some(&old.stat);
                return self.present(new, same, decode, changes);
            }
            CacheEvent::Deleted(node) => {
                let Some(key) = self.key_of(&node.path) else { return false };
                changes.extend(self.entries.remove(&key).and_then(|entry| removed(&key, &entry)));
            }
            CacheEvent::Failed { path, error } => {
                let Some(key) = self.key_of(path) else { return false };
                // Without an entry: no event tells of the end of a node that could never be read.
                changes.extend(self.entries.remove(&key).and_then(|entry| removed(&key, &entry)));
                changes.push_back(ModelChange::Broken { key, error: error.clone().into() });
            }
            // Until all present nodes have followed, the entries of earlier rounds stay.
            CacheEvent::Reset => self.round += 1,
            CacheEvent::Initialized => {
                let (present, ended): (BTreeMap<_, _>, BTreeMap<_, _>) =
                    take(&mut self.entries).into_iter().partition(|(_, entry)| entry.round == self.round);
                self.entries = present;
                changes.extend(ended.iter().filter_map(|(key, entry)| removed(key, entry)));
            }
        }
        true
    }

    /// Takes the state of a node. `same` is the state before, if it had the same data.
    fn present(
        &mut self,
        node: &ChildData,
        same: Option<&Stat>,
        decode: impl FnOnce(Undecoded<'_>) -> State<T>,
        changes: &mut VecDeque<ModelChange<T>>,
    ) -> bool {
        let Some(key) = self.key_of(&node.path) else { return false };
        let (round, stat) = (self.round, &node.stat);
        if let Some(entry) = self.entries.get_mut(&key) {
            let is_known = entry.has(stat);
            if is_known || same.is_some_and(|same| entry.has(same)) {
                (entry.round, entry.stat) = (round, *stat);
                return !is_known;
            }
        }
        let state = decode(Undecoded { key: &key, stat, data: &node.data });
        self.put(key, *stat, state, changes);
        true
    }

    /// Returns the key of a node by its path.
    pub(super) fn key_of(&self, path: &str) -> Option<Arc<str>> {
        let name = path.strip_prefix(&self.parent)?;
        (!name.is_empty() && !name.contains('/')).then(|| name.into())
    }

    fn put(&mut self, key: Arc<str>, stat: Stat, state: State<T>, changes: &mut VecDeque<ModelChange<T>>) {
        let (before, (state, since)) = (self.entries.remove(&key), state);
        let same_node = before.as_ref().filter(|entry| entry.stat.czxid == stat.czxid);
        let since = same_node.map_or(since, |entry| entry.since);
        let entry = Entry { round: self.round, stat, since, state };
        let old = before.and_then(|before| before.model(&key).ok());
        match (old, entry.model(&key)) {
            (Some(old), Ok(new)) => changes.push_back(ModelChange::Updated { old, new }),
            (None, Ok(new)) => changes.push_back(ModelChange::Added(new)),
            (old, Err(error)) => {
                changes.extend(old.map(ModelChange::Removed));
                changes.push_back(ModelChange::Broken { key: Arc::clone(&key), error });
            }
        }
        self.entries.insert(key, entry);
    }

    /// Returns the value that was decoded from this state of a node.
    pub(super) fn decoded(&self, state: Undecoded<'_>) -> Option<State<T>> {
        let entry = self.entries.get(state.key)?;
        entry.has(state.stat).then(|| (entry.state.clone(), entry.since))
    }

    /// Returns the nodes with values in the order of their keys.
    pub(super) fn models(&self) -> impl Iterator<Item = CachedModel<T>> {
        self.entries.iter().filter_map(|(key, entry)| entry.model(key).ok())
    }

    pub(super) fn broken(&self) -> impl Iterator<Item = (String, ModelError)> {
        self.entries.iter().filter_map(|(key, entry)| Some((key.to_string(), entry.state.as_ref().err()?.clone())))
    }

    /// Returns the node of a key, or why it cannot be decoded.
    pub(super) fn get(&self, key: &str) -> Option<Result<CachedModel<T>, ModelError>> {
        self.entries.get_key_value(key).map(|(key, entry)| entry.model(key))
    }
}

/// Returns the change at the end of a node.
fn removed<T>(key: &Arc<str>, entry: &Entry<T>) -> Option<ModelChange<T>> {
    entry.model(key).ok().map(ModelChange::Removed)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use curator_framework::Error;

    use super::*;

    /// A follower of the nodes below `/s`, and the number of its decodes.
    struct Follower {
        contents: Contents<String>,
        decodes: Cell<usize>,
    }

    const fn stat(czxid: i64, mzxid: i64) -> Stat {
        Stat { czxid, mzxid, ..ZERO }
    }

    const ZERO: Stat = Stat {
        czxid: 0,
        mzxid: 0,
        ctime: 0,
        mtime: 0,
        version: 0,
        cversion: 0,
        aversion: 0,
        ephemeral_owner: 0,
        data_length: 0,
        num_children: 0,
        pzxid: 0,
    };

    fn node(path: &str, stat: Stat, data: &str) -> Arc<ChildData> {
        Arc::new(ChildData { path: path.to_owned(), stat, data: data.as_bytes().to_vec() })
    }

    fn unreadable(path: &str) -> CacheEvent {
        CacheEvent::Failed { path: path.to_owned(), error: Error::Closed.into() }
    }

    impl Follower {
        fn new() -> Self {
            Self { contents: Contents::new("/s"), decodes: Cell::new(0) }
        }

        /// Applies an event, and returns the changes as texts. The data `bad` is not a value's.
        fn apply(&mut self, event: &CacheEvent) -> Vec<String> {
            let (mut changes, decodes) = (VecDeque::new(), &self.decodes);
            let decode = |state: Undecoded<'_>| {
                decodes.set(decodes.get() + 1);
                let decoded = match String::from_utf8(state.data.to_vec()).unwrap() {
                    bad if bad == "bad" => Err(ModelError::decode(state.key.into(), "bad".into())),
                    value => Ok(Arc::new(value)),
                };
                (decoded, state.stat.czxid)
            };
            self.contents.apply(event, decode, &mut changes);
            changes.iter().map(text).collect()
        }

        fn present(&mut self, path: &str, at: Stat, data: &str) -> Vec<String> {
            self.apply(&CacheEvent::Created(node(path, at, data)))
        }

        /// Replaces a node by one with the same data.
        fn replaced(&mut self, path: &str, before: Stat, at: Stat) -> Vec<String> {
            self.apply(&CacheEvent::Changed { old: node(path, before, ""), new: node(path, at, "") })
        }

        fn deleted(&mut self, path: &str) -> Vec<String> {
            self.apply(&CacheEvent::Deleted(node(path, ZERO, "")))
        }

        fn values(&self) -> String {
            self.contents.models().map(|model| format!("{}={} ", model.key, model.value)).collect()
        }

        fn since(&self) -> i64 {
            self.contents.models().next().unwrap().since.get()
        }
    }

    fn text(change: &ModelChange<String>) -> String {
        match change {
            ModelChange::Added(model) => format!("+{}={}", model.key, model.value),
            ModelChange::Updated { old, new } => format!("~{}={}>{}", new.key, old.value, new.value),
            ModelChange::Removed(model) => format!("-{}={}", model.key, model.value),
            ModelChange::Broken { key, .. } => format!("!{key}"),
        }
    }

    #[test]
    fn changes_name_the_key_and_replay_to_the_contents() {
        let mut all = Follower::new();
        assert!(all.present("/s", stat(1, 1), "").is_empty());
        assert!(all.present("/s/a/below", stat(1, 1), "").is_empty());
        assert!(all.present("/saint", stat(1, 1), "").is_empty());
        assert_eq!(all.present("/s/b", stat(2, 2), "1"), ["+b=1"]);
        assert_eq!(all.present("/s/a", stat(3, 3), "1"), ["+a=1"]);
        assert_eq!(all.present("/s/b", stat(2, 4), "2"), ["~b=1>2"]);
        assert_eq!(all.values(), "a=1 b=2 ");
        assert_eq!(all.deleted("/s/a"), ["-a=1"]);
        assert!(all.deleted("/s/a").is_empty());
        assert_eq!((all.values().as_str(), all.decodes.get()), ("b=2 ", 3));
        let mut root = Follower { contents: Contents::new("/"), decodes: Cell::new(0) };
        assert!(root.present("/", stat(1, 1), "").is_empty());
        assert_eq!(root.present("/a", stat(1, 1), "1"), ["+a=1"]);
    }

    #[test]
    fn broken_node_takes_its_value_out() {
        let mut all = Follower::new();
        assert_eq!(all.present("/s/a", stat(1, 1), "bad"), ["!a"]);
        assert!(matches!(all.contents.get("a"), Some(Err(ModelError::Decode { .. }))));
        assert_eq!(all.present("/s/a", stat(1, 2), "1"), ["+a=1"]);
        assert_eq!(all.present("/s/a", stat(1, 3), "bad"), ["-a=1", "!a"]);
        assert_eq!((all.values(), all.contents.broken().count()), (String::new(), 1));
        assert!(all.deleted("/s/a").is_empty());
        assert_eq!(all.contents.broken().count(), 0);
        all.present("/s/b", stat(4, 4), "1");
        assert_eq!(all.apply(&unreadable("/s/b")), ["-b=1", "!b"]);
        assert!(all.contents.get("b").is_none(), "the cache has its error, and learns of its end");
        // The same data is read again.
        assert_eq!(all.present("/s/b", stat(4, 4), "1"), ["+b=1"]);
        // A directory that cannot be listed keeps its nodes.
        assert!(all.apply(&unreadable("/s")).is_empty());
        assert_eq!(all.values(), "b=1 ");
    }

    #[test]
    fn reset_reports_the_differences_alone_and_shows_no_gap() {
        let mut all = Follower::new();
        for (number, node) in [(1, "a"), (2, "b"), (3, "c")] {
            all.present(&format!("/s/{node}"), stat(number, number), "1");
        }
        assert!(all.apply(&CacheEvent::Initialized).is_empty());
        assert!(all.apply(&CacheEvent::Reset).is_empty());
        assert_eq!(all.values(), "a=1 b=1 c=1 ");
        assert!(all.present("/s/a", stat(1, 1), "1").is_empty());
        assert_eq!(all.present("/s/b", stat(2, 9), "2"), ["~b=1>2"]);
        assert_eq!(all.values(), "a=1 b=2 c=1 ");
        assert_eq!(all.apply(&CacheEvent::Initialized), ["-c=1"]);
        assert_eq!((all.values().as_str(), all.decodes.get()), ("a=1 b=2 ", 4));
    }

    /// A process has a new session.
    #[test]
    fn replaced_node_with_the_same_data_is_not_a_change() {
        let mut all = Follower::new();
        all.present("/s/a", stat(1, 1), "1");
        all.present("/s/b", stat(2, 2), "bad");
        assert!(all.replaced("/s/a", stat(1, 1), stat(9, 9)).is_empty());
        assert!(all.replaced("/s/b", stat(2, 2), stat(9, 9)).is_empty());
        assert_eq!((all.values().as_str(), all.decodes.get()), ("a=1 ", 2));
        // What counts for the first one counts on. With other data it is another process.
        assert_eq!(all.since(), 1);
        assert_eq!(all.present("/s/a", stat(9, 11), "2"), ["~a=1>2"]);
        assert_eq!(all.since(), 1);
        assert_eq!(all.present("/s/a", stat(12, 12), "3"), ["~a=2>3"]);
        assert_eq!(all.since(), 12);
        assert!(all.present("/s/a", stat(12, 12), "").is_empty());
        // A reader that has another state decodes the data.
        assert_eq!(all.apply(&unreadable("/s/a")), ["-a=3", "!a"]);
        assert_eq!(all.replaced("/s/a", stat(1, 1), stat(9, 9)), ["+a="]);
    }

    /// A write of the same data has no change, and the next write needs its version.
    #[test]
    fn version_is_that_of_the_newest_write() {
        let mut all = Follower::new();
        all.present("/s/a", stat(1, 1), "");
        assert!(all.replaced("/s/a", stat(1, 1), Stat { version: 1, ..stat(1, 5) }).is_empty());
        let model = all.contents.get("a").unwrap().unwrap();
        assert_eq!((model.version, model.stat.mzxid, all.decodes.get()), (1, 5, 1));
    }

    /// Servers that have lost their data give out the same transactions again.
    #[test]
    fn same_transaction_at_another_time_is_another_state() {
        let mut all = Follower::new();
        all.present("/s/a", stat(1, 1), "1");
        let later = Stat { ctime: 7, mtime: 7, ..stat(1, 1) };
        assert_eq!(all.present("/s/a", later, "2"), ["~a=1>2"]);
    }
}
