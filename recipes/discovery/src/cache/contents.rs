//! The instances of a service, as the events of its nodes show them. Pure: the caller decodes the data.

use std::collections::{BTreeMap, VecDeque};
use std::error::Error;
use std::mem::take;
use std::sync::Arc;

use curator_framework::Stat;
use curator_recipes::{CacheEvent, ChildData};

use crate::error::DecodeError;
use crate::instance::service_instance::ServiceInstance;
use crate::layout::RESERVED;

/// A change of a service's instances. `node` is the name of the instance's node, and unique in the service: the id, with a
/// number behind it for a [`DynamicSequential`](crate::ServiceType::DynamicSequential) instance.
///
/// The changes replay to the instances: a reader that has applied each change up to one has the instances that the cache
/// had after it.
#[derive(Debug)]
#[non_exhaustive]
pub enum InstanceChange<P> {
    /// An instance was registered, or can be read again after [`Broken`](Self::Broken).
    Added {
        /// The name of the node.
        node: Arc<str>,
        /// The instance.
        instance: Arc<ServiceInstance<P>>,
    },
    /// The data of an instance has changed. States between the two may be skipped. If its node was replaced by one with
    /// other data, as after a new session of its announcer, this is the only change. With the same data there is none.
    Updated {
        /// The name of the node.
        node: Arc<str>,
        /// The last instance that was reported.
        old: Arc<ServiceInstance<P>>,
        /// The present instance.
        new: Arc<ServiceInstance<P>>,
    },
    /// An instance has ended, or its newest data cannot be read.
    Removed {
        /// The name of the node.
        node: Arc<str>,
        /// The last instance that was reported.
        instance: Arc<ServiceInstance<P>>,
    },
    /// A node exists, and is not an instance, or cannot be read. If it was an instance before, [`Removed`](Self::Removed)
    /// precedes this change.
    Broken {
        /// The name of the node.
        node: Arc<str>,
        /// The reason.
        error: DecodeError,
    },
}

impl<P> Clone for InstanceChange<P> {
    fn clone(&self) -> Self {
        match self {
            Self::Added { node, instance } => Self::Added { node: Arc::clone(node), instance: Arc::clone(instance) },
            Self::Updated { node, old, new } => {
                Self::Updated { node: Arc::clone(node), old: Arc::clone(old), new: Arc::clone(new) }
            }
            Self::Removed { node, instance } => {
                Self::Removed { node: Arc::clone(node), instance: Arc::clone(instance) }
            }
            Self::Broken { node, error } => Self::Broken { node: Arc::clone(node), error: error.clone() },
        }
    }
}

/// An instance of a service at one moment.
pub(crate) struct Known<P> {
    pub(crate) node: Arc<str>,
    /// The zxid of the transaction that created the node. If the node has replaced another one with the same data, it is the
    /// zxid of that node: the process is the same in its next session.
    pub(crate) czxid: i64,
    pub(crate) instance: Arc<ServiceInstance<P>>,
}

impl<P> Clone for Known<P> {
    fn clone(&self) -> Self {
        Self { node: Arc::clone(&self.node), czxid: self.czxid, instance: Arc::clone(&self.instance) }
    }
}

/// The result of a decode.
pub(super) type Decoded<P> = Result<Arc<ServiceInstance<P>>, DecodeError>;

/// The state of a node's data. Servers that have lost their data give out the same transactions again, so the times count
/// too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Revision {
    zxids: [i64; 2],
    version: i32,
    times: [i64; 2],
}

impl Revision {
    const fn of(stat: &Stat) -> Self {
        Self { zxids: [stat.czxid, stat.mzxid], version: stat.version, times: [stat.ctime, stat.mtime] }
    }
}

/// An event of a service's nodes.
pub(super) enum NodeEvent<'a> {
    /// A node exists with this data.
    Present {
        path: &'a str,
        revision: Revision,
        data: &'a [u8],
        /// The state before, if it had the same data.
        same_as: Option<Revision>,
    },
    Deleted {
        path: &'a str,
    },
    /// A node exists, and its data cannot be read.
    Unreadable {
        path: &'a str,
        error: Arc<dyn Error + Send + Sync>,
    },
    /// Events were dropped. The present nodes follow.
    Reset,
    /// All present nodes were reported since the last reset.
    Complete,
}

impl<'a> NodeEvent<'a> {
    /// Returns an event of a cache; `None` for one that shows nothing of a node.
    pub(super) fn of(event: &'a CacheEvent) -> Option<Self> {
        Some(match event {
            CacheEvent::Created(node) => Self::present(node, None),
            CacheEvent::Changed { old, new } => {
                let is_same = old.data == new.data;
                Self::present(new, is_same.then(|| Revision::of(&old.stat)))
            }
            CacheEvent::Deleted(node) => Self::Deleted { path: &node.path },
            CacheEvent::Failed { path, error } => Self::Unreadable { path, error: Arc::new(error.clone()) },
            CacheEvent::Reset => Self::Reset,
            CacheEvent::Initialized => Self::Complete,
            _ => return None,
        })
    }

    fn present(node: &'a ChildData, same_as: Option<Revision>) -> Self {
        Self::Present { path: &node.path, revision: Revision::of(&node.stat), data: &node.data, same_as }
    }
}

/// A state of a node, to be decoded.
#[derive(Debug, Clone, Copy)]
pub(super) struct Undecoded<'a> {
    pub(super) node: &'a str,
    pub(super) revision: Revision,
    pub(super) data: &'a [u8],
}

struct Entry<P> {
    node: Arc<str>,
    /// The number of resets before the newest event of the node.
    round: u64,
    /// `None` if the data could not be read.
    revision: Option<Revision>,
    /// See [`Known::czxid`].
    czxid: i64,
    state: Decoded<P>,
}

/// The instances of a service.
pub(super) struct Contents<P> {
    /// The start of each node's path.
    parent: String,
    entries: BTreeMap<Arc<str>, Entry<P>>,
    round: u64,
}

impl<P> Contents<P> {
    /// Returns no instances, for the service with this path.
    pub(super) fn new(service: &str) -> Self {
        let parent = if service == "/" { service.to_owned() } else { format!("{service}/") };
        Self { parent, entries: BTreeMap::new(), round: 0 }
    }

    /// Takes the next event of the service's nodes. `decode` is called once for new data of a node. Returns `true` if
    /// [`known`](Self::known) may differ.
    pub(super) fn apply(
        &mut self,
        event: NodeEvent<'_>,
        decode: impl FnOnce(Undecoded<'_>) -> Decoded<P>,
        changes: &mut VecDeque<InstanceChange<P>>,
    ) -> bool {
        match event {
            NodeEvent::Present { path, revision, data, same_as } => {
                let Some(node) = self.name_of(path) else { return false };
                match self.entries.get_mut(&*node).filter(|entry| entry.revision.is_some()) {
                    Some(entry) if entry.revision == Some(revision) => {
                        entry.round = self.round;
                        return false;
                    }
                    Some(entry) if entry.revision == same_as => {
                        (entry.round, entry.revision) = (self.round, Some(revision));
                        return false;
                    }
                    _ => {
                        let state = decode(Undecoded { node: &node, revision, data });
                        self.put(node, Some(revision), state, changes);
                    }
                }
            }
            NodeEvent::Deleted { path } => {
                let Some(node) = self.name_of(path) else { return false };
                changes.extend(self.entries.remove(&*node).and_then(removed));
            }
            NodeEvent::Unreadable { path, error } => {
                let Some(node) = self.name_of(path) else { return false };
                self.put(node, None, Err(DecodeError::Unreadable(error)), changes);
            }
            // Until all present nodes have followed, the entries of earlier rounds stay.
            NodeEvent::Reset => self.round += 1,
            NodeEvent::Complete => {
                let (present, ended): (BTreeMap<_, _>, BTreeMap<_, _>) =
                    take(&mut self.entries).into_iter().partition(|(_, entry)| entry.round == self.round);
                self.entries = present;
                changes.extend(ended.into_values().filter_map(removed));
            }
        }
        true
    }

    /// Returns the name of an instance's node by its path.
    fn name_of(&self, path: &str) -> Option<Arc<str>> {
        let name = path.strip_prefix(&self.parent)?;
        (!name.is_empty() && !name.contains('/') && name != RESERVED).then(|| name.into())
    }

    fn put(
        &mut self,
        node: Arc<str>,
        revision: Option<Revision>,
        state: Decoded<P>,
        changes: &mut VecDeque<InstanceChange<P>>,
    ) {
        let same_node = |entry: &&Entry<P>| {
            let created = |revision: Option<Revision>| revision.map(|revision| revision.zxids[0]);
            created(entry.revision) == created(revision)
        };
        let earlier = self.entries.get(&node).filter(same_node).map(|entry| entry.czxid);
        let czxid = earlier.or_else(|| revision.map(|revision| revision.zxids[0])).unwrap_or_default();
        let entry = Entry { node: Arc::clone(&node), round: self.round, revision, czxid, state: state.clone() };
        let before = self.entries.insert(Arc::clone(&node), entry);
        match (before.map(|entry| entry.state), state) {
            (Some(Ok(old)), Ok(new)) => changes.push_back(InstanceChange::Updated { node, old, new }),
            (_, Ok(instance)) => changes.push_back(InstanceChange::Added { node, instance }),
            (before, Err(error)) => {
                if let Some(Ok(instance)) = before {
                    changes.push_back(InstanceChange::Removed { node: Arc::clone(&node), instance });
                }
                changes.push_back(InstanceChange::Broken { node, error });
            }
        }
    }

    /// Returns the instance that was decoded from this state of a node.
    pub(super) fn decoded(&self, state: Undecoded<'_>) -> Option<Decoded<P>> {
        let entry = self.entries.get(state.node)?;
        (entry.revision == Some(state.revision)).then(|| entry.state.clone())
    }

    /// Returns the instances in the order of their nodes' names.
    pub(super) fn known(&self) -> Vec<Known<P>> {
        let known = |entry: &Entry<P>| {
            let instance = entry.state.as_ref().ok()?;
            Some(Known { node: Arc::clone(&entry.node), czxid: entry.czxid, instance: Arc::clone(instance) })
        };
        self.entries.values().filter_map(known).collect()
    }

    pub(super) fn broken(&self) -> Vec<(String, DecodeError)> {
        let broken = |entry: &Entry<P>| Some((entry.node.to_string(), entry.state.as_ref().err()?.clone()));
        self.entries.values().filter_map(broken).collect()
    }

    /// Returns the instance of a node; an error for a node that is not an instance.
    pub(super) fn get(&self, name: &str) -> Option<Decoded<P>> {
        self.entries.get(name).map(|entry| entry.state.clone())
    }
}

/// Returns the change at the end of a node.
fn removed<P>(entry: Entry<P>) -> Option<InstanceChange<P>> {
    let Entry { node, state, .. } = entry;
    state.ok().map(|instance| InstanceChange::Removed { node, instance })
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// A follower of the service `/s`, and the number of its decodes.
    struct Follower {
        contents: Contents<String>,
        decodes: Cell<usize>,
    }

    const fn revision(czxid: i64, mzxid: i64) -> Revision {
        Revision { zxids: [czxid, mzxid], version: 0, times: [0; 2] }
    }

    impl Follower {
        fn new() -> Self {
            Self { contents: Contents::new("/s"), decodes: Cell::new(0) }
        }

        /// Applies an event, and returns the changes as texts. The data `bad` is not an instance.
        fn apply(&mut self, event: NodeEvent<'_>) -> Vec<String> {
            let (mut changes, decodes) = (VecDeque::new(), &self.decodes);
            let decode = |state: Undecoded<'_>| {
                decodes.set(decodes.get() + 1);
                let payload = String::from_utf8(state.data.to_vec()).unwrap();
                let instance = ServiceInstance::builder("s").id(state.node).payload(payload).build().unwrap();
                if instance.payload == "bad" { Err(DecodeError::Empty) } else { Ok(Arc::new(instance)) }
            };
            self.contents.apply(event, decode, &mut changes);
            changes.iter().map(text).collect()
        }

        fn present(&mut self, path: &str, at: Revision, data: &str) -> Vec<String> {
            self.apply(NodeEvent::Present { path, revision: at, data: data.as_bytes(), same_as: None })
        }

        fn known(&self) -> String {
            let known = self.contents.known();
            known.iter().map(|known| format!("{}={} ", known.node, known.instance.payload)).collect()
        }
    }

    fn text(change: &InstanceChange<String>) -> String {
        match change {
            InstanceChange::Added { node, instance } => format!("+{node}={}", instance.payload),
            InstanceChange::Updated { node, old, new } => format!("~{node}={}>{}", old.payload, new.payload),
            InstanceChange::Removed { node, instance } => format!("-{node}={}", instance.payload),
            InstanceChange::Broken { node, .. } => format!("!{node}"),
        }
    }

    #[test]
    fn changes_name_the_instance_and_replay_to_the_contents() {
        let mut all = Follower::new();
        assert!(all.present("/s", revision(1, 1), "").is_empty());
        assert!(all.present("/s/a/below", revision(1, 1), "").is_empty());
        assert!(all.present("/saint", revision(1, 1), "").is_empty());
        assert_eq!(all.present("/s/b", revision(2, 2), "1"), ["+b=1"]);
        assert_eq!(all.present("/s/a", revision(3, 3), "1"), ["+a=1"]);
        assert_eq!(all.present("/s/b", revision(2, 4), "2"), ["~b=1>2"]);
        assert_eq!(all.known(), "a=1 b=2 ");
        assert_eq!(all.apply(NodeEvent::Deleted { path: "/s/a" }), ["-a=1"]);
        assert!(all.apply(NodeEvent::Deleted { path: "/s/a" }).is_empty());
        assert_eq!((all.known().as_str(), all.decodes.get()), ("b=2 ", 3));
    }

    #[test]
    fn broken_node_takes_its_instance_out() {
        let mut all = Follower::new();
        assert_eq!(all.present("/s/a", revision(1, 1), "bad"), ["!a"]);
        assert!(matches!(all.contents.get("a"), Some(Err(DecodeError::Empty))));
        assert_eq!(all.present("/s/a", revision(1, 2), "1"), ["+a=1"]);
        assert_eq!(all.present("/s/a", revision(1, 3), "bad"), ["-a=1", "!a"]);
        assert_eq!((all.known(), all.contents.broken().len()), (String::new(), 1));
        assert!(all.apply(NodeEvent::Deleted { path: "/s/a" }).is_empty());
        assert!(all.contents.broken().is_empty());
        all.present("/s/b", revision(4, 4), "1");
        let unreadable = NodeEvent::Unreadable { path: "/s/b", error: Arc::new(std::fmt::Error) };
        assert_eq!(all.apply(unreadable), ["-b=1", "!b"]);
        // Without a revision: the same data is read again.
        assert_eq!(all.present("/s/b", revision(4, 4), "1"), ["+b=1"]);
        // A service that cannot be listed keeps its instances.
        assert!(all.apply(NodeEvent::Unreadable { path: "/s", error: Arc::new(std::fmt::Error) }).is_empty());
        assert_eq!(all.known(), "b=1 ");
    }

    #[test]
    fn reset_reports_the_differences_alone_and_shows_no_gap() {
        let mut all = Follower::new();
        for (number, node) in [(1, "a"), (2, "b"), (3, "c")] {
            all.present(&format!("/s/{node}"), revision(number, number), "1");
        }
        assert!(all.apply(NodeEvent::Complete).is_empty());
        assert!(all.apply(NodeEvent::Reset).is_empty());
        assert_eq!(all.known(), "a=1 b=1 c=1 ");
        assert!(all.present("/s/a", revision(1, 1), "1").is_empty());
        assert_eq!(all.present("/s/b", revision(2, 9), "2"), ["~b=1>2"]);
        assert_eq!(all.known(), "a=1 b=2 c=1 ");
        assert_eq!(all.apply(NodeEvent::Complete), ["-c=1"]);
        assert_eq!((all.known().as_str(), all.decodes.get()), ("a=1 b=2 ", 4));
    }

    /// The announcer has a new session.
    #[test]
    fn replaced_node_with_the_same_data_is_not_a_change() {
        let mut all = Follower::new();
        all.present("/s/a", revision(1, 1), "1");
        all.present("/s/b", revision(2, 2), "bad");
        let same =
            |path, before| NodeEvent::Present { path, revision: revision(9, 9), data: b"", same_as: Some(before) };
        assert!(all.apply(same("/s/a", revision(1, 1))).is_empty());
        assert!(all.apply(same("/s/b", revision(2, 2))).is_empty());
        assert_eq!((all.known().as_str(), all.decodes.get()), ("a=1 ", 2));
        // Its failures, and the requests to it, count on. With other data it is another process.
        assert_eq!(all.contents.known()[0].czxid, 1);
        assert_eq!(all.present("/s/a", revision(9, 11), "2"), ["~a=1>2"]);
        assert_eq!(all.contents.known()[0].czxid, 1);
        assert_eq!(all.present("/s/a", revision(12, 12), "3"), ["~a=2>3"]);
        assert_eq!(all.contents.known()[0].czxid, 12);
        assert!(all.present("/s/a", revision(12, 12), "").is_empty());
        // A reader that has another state decodes the data.
        let unreadable = NodeEvent::Unreadable { path: "/s/a", error: Arc::new(std::fmt::Error) };
        assert_eq!(all.apply(unreadable), ["-a=3", "!a"]);
        assert_eq!(all.apply(same("/s/a", revision(1, 1))), ["+a="]);
    }

    /// Servers that have lost their data give out the same transactions again.
    #[test]
    fn same_transaction_at_another_time_is_another_state() {
        let mut all = Follower::new();
        all.present("/s/a", revision(1, 1), "1");
        let later = Revision { times: [7, 7], ..revision(1, 1) };
        assert_eq!(all.present("/s/a", later, "2"), ["~a=1>2"]);
    }
}
