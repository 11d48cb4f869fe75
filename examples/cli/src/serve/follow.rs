//! Follows the nodes below the served path, with one watch for all browsers, and publishes the locks.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use curator_cli::contenders::is_of_one_node;
use curator_framework::{
    AddWatchMode, Chain, CuratorFramework, Error, EventType, PersistentEvent, PersistentWatcher, Watch, make_path,
};
use futures_util::future::{BoxFuture, FutureExt as _};
use futures_util::stream::{self, FuturesUnordered, StreamExt as _};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout_at};

use super::Shared;
use super::lock::{Detail, Locks};
use super::names::contender;
use super::tree::{Event, Tree};
use crate::output::tell;

/// Changes within this time are applied together.
pub(super) const BURST: Duration = Duration::from_millis(100);
/// The pause after a failure.
pub(super) const PAUSE: Duration = Duration::from_millis(500);
/// The pause before all is listed again, if the server lets no directory be watched.
const UNWATCHED: Duration = Duration::from_secs(30);
/// The most requests at once.
const REQUESTS: usize = 64;
/// The most events that are applied together.
pub(super) const BATCH: usize = 10_000;
/// The most nodes that are followed.
const MOST_NODES: usize = 100_000;
/// The most bytes of a node's data that are kept.
pub(super) const MOST_DATA: usize = 256;

/// The locks as they were at a time.
#[derive(Debug, Clone, Default)]
pub(crate) struct Snapshot {
    pub(crate) locks: Locks,
    /// The time of the newest complete look, in milliseconds since 1970.
    pub(crate) at: i64,
    /// No change is missing. `problems` tells of the nodes that cannot be read.
    pub(crate) complete: bool,
    /// The reasons for which locks may be missing.
    pub(crate) problems: Vec<String>,
    /// The nodes that could not be read, with the reasons. The locks at and below them are not known.
    pub(crate) left_out: Arc<BTreeMap<String, String>>,
    /// The served path as the servers know it, if it does not exist.
    pub(crate) missing: Option<String>,
}

impl Snapshot {
    /// Returns `true` once the nodes have been read.
    pub(crate) const fn is_known(&self) -> bool {
        self.at != 0
    }

    /// Returns the reason for which it is not known whether a lock is at a path.
    pub(crate) fn unknown(&self, path: &str) -> Option<&str> {
        if !self.is_known() {
            return Some("not known yet");
        }
        self.left_out.iter().find(|(node, _)| is_at_or_below(path, node)).map(|(_, reason)| reason.as_str())
    }
}

fn is_at_or_below(path: &str, node: &str) -> bool {
    node == "/" || path.strip_prefix(node).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Returns the milliseconds since 1970.
pub(crate) fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

/// The directories that a listing has found, with the names in each. `None`: the directory does not exist.
type Listings = Vec<(String, Option<Vec<String>>)>;

/// A watch on a directory, which resolves with its path.
type Fired = BoxFuture<'static, String>;

struct Follower {
    client: CuratorFramework,
    root: String,
    shared: Arc<Shared>,
    snapshots: watch::Sender<Arc<Snapshot>>,
    tree: Tree,
    /// The nodes below the root were listed once.
    loaded: bool,
    /// The nodes that the server does not let this client read, with the reasons.
    forbidden: Arc<BTreeMap<String, String>>,
    is_full: bool,
    /// The watches on directories, where the server has no recursive watch.
    watches: Option<FuturesUnordered<Fired>>,
}

/// Follows the nodes below a path until the client is closed. Failures are counted, and repeated without an end.
pub(crate) async fn follow(
    client: CuratorFramework,
    root: String,
    shared: Arc<Shared>,
    snapshots: watch::Sender<Arc<Snapshot>>,
) {
    let mut follower = Follower {
        client,
        root,
        shared,
        snapshots,
        tree: Tree::default(),
        loaded: false,
        forbidden: Arc::default(),
        is_full: false,
        watches: None,
    };
    loop {
        let Err(error) = follower.session_of_watches().await;
        if matches!(error, Error::Closed) {
            return;
        }
        follower.shared.read_errors.fetch_add(1, Ordering::Relaxed);
        follower.publish(Some(&error));
        match follower.client.block_until_connected().await {
            Ok(()) | Err(Error::AuthFailed { .. }) => sleep(PAUSE).await,
            Err(_closed) => return,
        }
    }
}

impl Follower {
    /// Follows the nodes until a request fails.
    async fn session_of_watches(&mut self) -> Result<Infallible, Error> {
        match self.client.add_watch(&self.root, AddWatchMode::PersistentRecursive).await {
            Ok(watcher) => self.follow_events(watcher).await,
            Err(Error::Unsupported { .. }) => self.follow_children().await,
            Err(error) => Err(error),
        }
    }

    /// Follows the events of a recursive watch, each of which names the node that has changed.
    async fn follow_events(&mut self, mut watcher: PersistentWatcher) -> Result<Infallible, Error> {
        self.load().await?;
        loop {
            let mut batch = vec![watcher.recv().await.ok_or(Error::Closed)??];
            let end = Instant::now() + BURST;
            while batch.len() < BATCH {
                match timeout_at(end, watcher.recv()).await {
                    Ok(Some(event)) => batch.push(event?),
                    Ok(None) | Err(_) => break,
                }
            }
            let mut events = Vec::with_capacity(batch.len());
            let mut is_reset = false;
            for event in batch {
                match event {
                    PersistentEvent::Changed(event) => events.extend(match event.event_type {
                        EventType::NodeCreated => Some(Event::Created(event.path)),
                        EventType::NodeDeleted => Some(Event::Deleted(event.path)),
                        EventType::NodeDataChanged => Some(Event::Changed(event.path)),
                        _ => None,
                    }),
                    _ => is_reset = true,
                }
            }
            if is_reset {
                self.outdate();
                self.load().await?;
            } else {
                self.apply(events, false).await?;
            }
        }
    }

    /// Follows the lists of children, each by a watch of its own.
    async fn follow_children(&mut self) -> Result<Infallible, Error> {
        self.watches = Some(FuturesUnordered::new());
        self.load().await?;
        loop {
            let Some(watches) = &mut self.watches else { return Err(Error::Closed) };
            // The client may not read the root, so nothing notifies it of a change.
            if watches.is_empty() {
                sleep(UNWATCHED).await;
                self.load().await?;
                continue;
            }
            let mut changed: HashSet<String> = watches.next().await.into_iter().collect();
            let end = Instant::now() + BURST;
            while let Ok(Some(path)) = timeout_at(end, watches.next()).await {
                changed.insert(path);
            }
            let changed: Vec<String> = changed.into_iter().collect();
            let listings = self.explore(changed, false).await?;
            let events = self.differences(&listings);
            self.apply(events, false).await?;
        }
    }

    /// Lists all nodes and reads all contenders again.
    async fn load(&mut self) -> Result<(), Error> {
        self.forbidden = Arc::default();
        self.is_full = false;
        let listings = self.explore(vec![self.root.clone()], true).await?;
        let events = self.all(&listings);
        self.apply(events, true).await
    }

    /// Returns the differences, and a change of each contender.
    fn all(&self, listings: &Listings) -> Vec<Event> {
        let mut events = self.differences(listings);
        let known = |(directory, names): &(String, Option<Vec<String>>)| -> Vec<Event> {
            let names = names.iter().flatten().filter(|name| contender(name).is_some());
            names.map(|name| Event::Changed(make_path(directory, name))).collect()
        };
        events.extend(listings.iter().flat_map(known));
        events
    }

    fn differences(&self, listings: &Listings) -> Vec<Event> {
        let events = listings.iter().map(|(path, names)| self.tree.differences(path, names.as_deref()));
        events.flatten().collect()
    }

    /// Lists directories, and those below them: all, or only those that are new.
    async fn explore(&mut self, mut frontier: Vec<String>, all: bool) -> Result<Listings, Error> {
        let mut listings = Listings::new();
        let mut found = 0;
        while !frontier.is_empty() {
            let watched = self.watches.is_some();
            let requests = std::mem::take(&mut frontier).into_iter().map(|path| {
                let watch = Want { list: watched, creation: watched && path == self.root };
                list(self.client.clone(), path, watch).boxed()
            });
            let requests: Vec<_> = requests.collect();
            let answers: Vec<_> = stream::iter(requests).buffer_unordered(REQUESTS).collect().await;
            for answer in answers {
                let (path, listed) = answer;
                let (names, watch) = match listed {
                    Err(error) if is_of_one_node(&error) => {
                        self.leave_out(path, &error);
                        continue;
                    }
                    listed => listed?,
                };
                if let (Some(watches), Some(watch)) = (&self.watches, watch) {
                    let path = path.clone();
                    watches.push(watch.map(|_| path).boxed());
                }
                for name in names.iter().flatten().filter(|name| contender(name).is_none()) {
                    let path = make_path(&path, name);
                    // ZooKeeper's own nodes.
                    if path != "/zookeeper" && (all || !self.tree.is_directory(&path)) {
                        frontier.push(path);
                    }
                }
                found += 1 + names.as_ref().map_or(0, Vec::len);
                listings.push((path, names));
            }
            if found > MOST_NODES {
                self.is_full = true;
                break;
            }
        }
        Ok(listings)
    }

    /// Reads the nodes of the events, applies the events, and publishes the locks. Explores the persistent nodes with
    /// the names of contenders': `all`, or those that are new and not covered by a recursive watch.
    async fn apply(&mut self, events: Vec<Event>, all: bool) -> Result<(), Error> {
        let mut events = self.within_the_limit(events, 0);
        let mut details = self.read_all(&events).await?;
        let mut explored = HashSet::new();
        loop {
            let is_new = |path: &String| !explored.contains(path) && (all || !self.tree.is_directory(path));
            let found = details.iter().filter(|(path, detail)| detail.is_persistent() && is_new(path));
            let found: Vec<String> = found.map(|(path, _)| path.clone()).collect();
            if found.is_empty() || !(all || self.watches.is_some()) {
                break;
            }
            explored.extend(found.iter().cloned());
            let listings = self.explore(found, all).await?;
            let inner = if all { self.all(&listings) } else { self.differences(&listings) };
            let inner = self.within_the_limit(inner, events.len());
            details.extend(self.read_all(&inner).await?);
            events.extend(inner);
        }
        let changes = self.tree.apply(&events, &details, now(), !self.loaded);
        self.loaded = true;
        self.shared.history().extend(changes);
        self.publish(None);
        Ok(())
    }

    /// Leaves out ZooKeeper's own nodes, and nodes above the limit, which counts `more` nodes too.
    fn within_the_limit(&mut self, mut events: Vec<Event>, more: usize) -> Vec<Event> {
        events.retain(|event| {
            let (Event::Created(path) | Event::Deleted(path) | Event::Changed(path)) = event;
            path != "/zookeeper" && !path.starts_with("/zookeeper/")
        });
        let mut nodes = self.tree.len() + more;
        let mut is_full = false;
        events.retain(|event| match event {
            Event::Created(_) if nodes >= MOST_NODES => {
                is_full = true;
                false
            }
            Event::Created(_) => {
                nodes += 1;
                true
            }
            Event::Deleted(_) => {
                nodes = nodes.saturating_sub(1);
                true
            }
            Event::Changed(_) => true,
        });
        self.is_full |= is_full;
        self.forget_deleted(&events);
        events
    }

    /// Reads the nodes of events that have the names of contenders'.
    async fn read_all(&mut self, events: &[Event]) -> Result<HashMap<String, Detail>, Error> {
        let is_contender = |path: &str| path.rsplit('/').next().is_some_and(|name| contender(name).is_some());
        let paths: HashSet<&String> = events
            .iter()
            .filter_map(|event| match event {
                Event::Created(path) | Event::Changed(path) if is_contender(path) => Some(path),
                _ => None,
            })
            .collect();
        let requests: Vec<_> = paths.into_iter().map(|path| read(self.client.clone(), path.clone()).boxed()).collect();
        let answers: Vec<_> = stream::iter(requests).buffer_unordered(REQUESTS).collect().await;
        let mut details = HashMap::new();
        for (path, answer) in answers {
            match answer {
                Ok(detail) => drop(details.insert(path, detail)),
                // A deletion event follows, or the next listing lacks it.
                Err(Error::NoNode { .. }) => {}
                Err(error) if is_of_one_node(&error) => self.leave_out(path, &error),
                Err(error) => return Err(error),
            }
        }
        Ok(details)
    }

    /// Leaves out a node that could not be read.
    fn leave_out(&mut self, path: String, error: &Error) {
        self.shared.read_errors.fetch_add(1, Ordering::Relaxed);
        Arc::make_mut(&mut self.forbidden).insert(path, Chain(&error).to_string());
    }

    /// Forgets the unreadable nodes that were deleted.
    fn forget_deleted(&mut self, events: &[Event]) {
        for event in events {
            let Event::Deleted(path) = event else { continue };
            if self.forbidden.keys().any(|node| is_at_or_below(node, path)) {
                Arc::make_mut(&mut self.forbidden).retain(|node, _| !is_at_or_below(node, path));
            }
        }
    }

    /// Returns the served path as the servers know it, if it does not exist.
    fn missing(&self) -> Option<String> {
        let is_missing = self.loaded && !self.tree.is_directory(&self.root) && !self.forbidden.contains_key(&self.root);
        is_missing.then(|| self.shared.full_root.clone())
    }

    /// Marks the snapshot as outdated, until the next one.
    fn outdate(&self) {
        self.snapshots.send_modify(|snapshot| {
            let outdated = Snapshot { complete: false, ..(**snapshot).clone() };
            *snapshot = Arc::new(outdated);
        });
    }

    fn publish(&self, error: Option<&Error>) {
        let at = if error.is_some() { self.snapshots.borrow().at } else { now() };
        let mut problems: Vec<String> = self.forbidden.values().take(3).cloned().collect();
        if self.forbidden.len() > 3 {
            problems.push(format!("{} more paths cannot be read", self.forbidden.len() - 3));
        }
        if self.is_full {
            problems.push(format!("there are more than {MOST_NODES} nodes; serve a path with fewer"));
        }
        // The state of the connection tells of these.
        let other = error.filter(|e| !matches!(e, Error::ConnectionLoss { .. } | Error::SessionExpired { .. }));
        problems.extend(other.map(|error| format!("cannot read the locks: {}", Chain(&error))));
        let (locks, left_out, missing) = (self.tree.locks().clone(), Arc::clone(&self.forbidden), self.missing());
        let snapshot = Snapshot { locks, at, complete: error.is_none(), problems, left_out, missing };
        let before = self.snapshots.send_replace(Arc::new(snapshot));
        if let Some(path) = self.missing().filter(|_| before.missing.is_none()) {
            tell(&format!("{path} does not exist: its locks are shown when it is created"));
        }
    }
}

/// The watches that a listing sets.
#[derive(Debug, Clone, Copy)]
struct Want {
    /// On the list of children.
    list: bool,
    /// On the creation of the directory, if it does not exist.
    creation: bool,
}

/// Lists a directory, with the watches that the caller wants.
async fn list(
    client: CuratorFramework,
    path: String,
    watch: Want,
) -> (String, Result<(Option<Vec<String>>, Option<Watch>), Error>) {
    let listed = async {
        loop {
            let listed = if watch.list {
                client.get_children().watched().for_path(&path).await.map(|(names, watch)| (names, Some(watch)))
            } else {
                client.get_children().for_path(&path).await.map(|names| (names, None))
            };
            match listed {
                Ok((names, watch)) => return Ok((Some(names), watch)),
                Err(Error::NoNode { .. }) if !watch.creation => return Ok((None, None)),
                Err(Error::NoNode { .. }) => {}
                Err(error) => return Err(error),
            }
            let (stat, watch) = client.check_exists().watched().for_path(&path).await?;
            if stat.is_none() {
                return Ok((None, Some(watch)));
            }
        }
    };
    let listed = listed.await;
    (path, listed)
}

/// Reads a contender's node. Servers before 3.8.4 and 3.9.2 tell its stat without a permission.
async fn read(client: CuratorFramework, path: String) -> (String, Result<Detail, Error>) {
    let answer = match client.get_data().undecompressed().for_path(&path).await {
        Err(Error::NoAuth { .. }) => match client.check_exists().for_path(&path).await {
            Ok(Some(stat)) => Ok((Vec::new(), stat)),
            Ok(None) => Err(Error::NoNode { path: path.as_str().into() }),
            Err(error) => Err(error),
        },
        answer => answer,
    };
    let answer = answer.map(|(mut data, stat)| {
        data.truncate(MOST_DATA);
        let length = usize::try_from(stat.data_length).unwrap_or_default();
        Detail { data, length, session: stat.ephemeral_owner, czxid: stat.czxid, created: stat.ctime }
    });
    (path, answer)
}
