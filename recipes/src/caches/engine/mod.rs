//! The decisions of a cache, without I/O: notifications and replies in, requests and changes out.
//!
//! The caller hands in each notification ahead of the replies that the server has sent behind it. It takes requests up
//! to its limit in flight, and sends them in their order. Paths are relative to the cache's root: empty for the root,
//! otherwise `/a/b`.

mod freshness;
mod scope;
#[cfg(test)]
mod tests;
mod tree;

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

use curator_framework::{EventType, Stat, owning_session};

use self::freshness::Freshness;
pub(super) use self::scope::Scope;
pub(super) use self::tree::{Entry, Tree};

/// The number of requests for which an idle engine keeps memory.
const KEPT: usize = 1024;

/// A request of a cache.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Request {
    /// Reads the data and the stat of a node.
    Read(Arc<str>),
    /// Lists the children of a node.
    List(Arc<str>),
}

impl Request {
    pub(super) const fn path(&self) -> &Arc<str> {
        match self {
            Self::Read(path) | Self::List(path) => path,
        }
    }
}

/// A node of the cache, as a change reports it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Cached {
    pub(super) path: String,
    pub(super) stat: Stat,
    pub(super) data: Vec<u8>,
}

/// A difference between two states of the cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Change {
    Created(Cached),
    Changed { old: Cached, new: Cached },
    Deleted(Cached),
}

/// The stage of a request that is not done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Queued,
    Sent,
    /// Sent, and to be repeated for this batch, because the reply may be older than a notification.
    SentAndRequested(u64),
}

/// A request that is not done.
#[derive(Debug, Clone, Copy)]
struct Pending {
    stage: Stage,
    /// The node was deleted since the request was sent, so the reply may show the deleted one.
    is_void: bool,
    /// The batch of the freshness that waits for the reply.
    batch: u64,
}

impl Pending {
    /// Records that a batch needs the reply to a sending from now on, because an earlier reply may be too old.
    fn request_again(&mut self, batch: u64, freshness: &mut Freshness) {
        let newer = match &mut self.stage {
            Stage::Queued => &mut self.batch,
            Stage::SentAndRequested(again) => again,
            Stage::Sent => {
                freshness.begun(batch);
                self.stage = Stage::SentAndRequested(batch);
                return;
            }
        };
        if batch < *newer {
            freshness.begun(batch);
            freshness.completed(std::mem::replace(newer, batch));
        }
    }

    /// Leaves the request to the newest batch: the deletion of the node is newer than all that the older one waits for.
    /// Otherwise a node that is deleted and created all the time would hold up the older batch.
    fn postpone(&mut self, newest: u64, freshness: &mut Freshness) {
        let again = match &mut self.stage {
            Stage::SentAndRequested(again) => Some(again),
            Stage::Queued | Stage::Sent => None,
        };
        for batch in [Some(&mut self.batch), again].into_iter().flatten() {
            freshness.begun(newest);
            freshness.completed(std::mem::replace(batch, newest));
        }
    }

    /// Queues the request again. `is_answered`: its batch has the reply that it waits for.
    fn queue(&mut self, is_answered: bool, freshness: &mut Freshness) {
        if let Stage::SentAndRequested(again) = self.stage {
            let (done, left) = match is_answered {
                true => (self.batch, again),
                false => (self.batch.max(again), self.batch.min(again)),
            };
            freshness.completed(done);
            self.batch = left;
        }
        self.stage = Stage::Queued;
    }
}

/// The cached nodes, of which a resync reports the changes.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Known {
    pub(super) data: Vec<String>,
    pub(super) missing: Vec<String>,
    pub(super) children: Vec<String>,
}

/// The options of an engine.
#[derive(Clone, Default)]
pub(super) struct EngineOptions {
    pub(super) scope: Scope,
    /// The tree keeps the stats, not the data.
    pub(super) drops_data: bool,
    /// Nodes without children are listed too, because a watch on the list reports the first child.
    pub(super) lists_leaves: bool,
}

/// The state of a cache.
#[derive(Default)]
pub(super) struct Engine {
    options: EngineOptions,
    tree: Tree,
    pending: HashMap<Request, Pending>,
    queue: VecDeque<Request>,
    /// The nodes that the server refuses to show.
    refused: BTreeSet<Arc<str>>,
    /// A resync has the cached nodes, and is not complete.
    awaits_resync: bool,
    /// The number of the newest full read. Nodes of an earlier round are read again when a listing shows them.
    round: u32,
    freshness: Freshness,
    /// The changes since they were taken; `None` if nothing takes them.
    changes: Option<VecDeque<Change>>,
}

impl Engine {
    pub(super) fn new(options: EngineOptions) -> Self {
        Self { options, ..Self::default() }
    }

    pub(super) const fn tree(&self) -> &Tree {
        &self.tree
    }

    pub(super) const fn scope(&self) -> &Scope {
        &self.options.scope
    }

    /// Returns `true` if the server refuses to show a node or one above it.
    pub(super) fn is_refused(&self, path: &str) -> bool {
        !self.refused.is_empty() && scope::at_and_above(path).any(|above| self.refused.contains(above))
    }

    /// Sets whether changes are kept for [`take_changes`](Self::take_changes).
    pub(super) fn record_changes(&mut self, wanted: bool) {
        match wanted {
            true => _ = self.changes.get_or_insert_default(),
            false => self.changes = None,
        }
    }

    pub(super) fn take_changes(&mut self) -> VecDeque<Change> {
        self.changes.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Records that all notifications of the transactions up to `zxid` were handed in. Returns the newest transaction
    /// that the tree shows with all before it, if a full read is complete.
    pub(super) fn mark(&mut self, zxid: i64) -> Option<i64> {
        if self.pending.is_empty() && self.pending.capacity() > KEPT {
            // Frees the memory of a load, which had an entry for each node.
            (self.pending, self.queue) = (HashMap::new(), VecDeque::new());
        }
        self.freshness.mark(zxid)
    }

    /// Returns the newest transaction that the tree shows with all before it, if a full read is complete.
    pub(super) const fn fresh(&self) -> Option<i64> {
        self.freshness.reached()
    }

    /// Lists nodes without children too: see [`EngineOptions::lists_leaves`].
    pub(super) const fn list_leaves(&mut self) {
        self.options.lists_leaves = true;
    }

    /// Returns the paths that the server refuses to show.
    pub(super) fn refused(&self) -> impl Iterator<Item = &str> {
        self.refused.iter().map(|path| &**path)
    }

    /// Fills an empty tree with nodes of an earlier cache, parents first, and with the paths that it was refused.
    pub(super) fn resume(
        &mut self,
        nodes: impl IntoIterator<Item = Cached>,
        refused: impl IntoIterator<Item = String>,
    ) {
        self.refused = refused.into_iter().filter(|path| self.options.scope.has(path)).map(Arc::from).collect();
        for Cached { path, stat, data } in nodes {
            if self.options.scope.has(&path) {
                self.tree.set(&path, self.round, &stat, if self.options.drops_data { &[] } else { &data });
            }
        }
    }

    /// Removes all nodes, without a change for each.
    pub(super) fn clear(&mut self) {
        *self = Self::new(std::mem::take(&mut self.options));
    }

    /// Returns the cached nodes for a resync. Queues the sent requests again and ignores their replies, which may be older
    /// than the changes that the resync reports. No request is sent until the resync is complete.
    pub(super) fn known(&mut self) -> Known {
        self.awaits_resync = true;
        self.requeue_sent();
        let mut known = Known::default();
        let scope = &self.options.scope;
        self.tree.for_each(|path, entry| {
            if scope.has_children_of(path) && may_have_children(entry.stat) {
                known.children.push(path.to_owned());
            }
            known.data.push(path.to_owned());
        });
        if known.data.is_empty() {
            known.missing.push(String::new());
        }
        known.data.extend(self.refused.iter().map(|path| path.to_string()));
        known
    }

    /// Returns `true` while a resync has the cached nodes, and not all of its notifications have arrived.
    pub(super) const fn awaits_resync(&self) -> bool {
        self.awaits_resync
    }

    /// Begins to read all nodes, because notifications were missed. Replies to sent requests are ignored.
    pub(super) fn restart(&mut self) {
        self.awaits_resync = false;
        self.requeue_sent();
        self.read_all();
    }

    /// Queues all sent requests again. Their replies do not arrive, or are ignored.
    fn requeue_sent(&mut self) {
        let mut sent = Vec::new();
        for (request, pending) in &mut self.pending {
            if pending.stage != Stage::Queued {
                pending.queue(false, &mut self.freshness);
                sent.push(request.clone());
            }
        }
        // The map has another order in each process.
        sent.sort_unstable();
        self.queue.extend(sent);
    }

    /// Records that the notifications of a resync were handed in. Nothing is fresh before the nodes that they name are
    /// read. The server sends them in no order of paths. A node that was created again must be read before those below
    /// it, which are new too.
    pub(super) fn resynced(&mut self) {
        self.awaits_resync = false;
        self.freshness.restart();
        // The caller ignores the replies to requests that are sent.
        self.requeue_sent();
        if self.tree.get("").is_none() {
            // It may have been created again between its part of the resync and the watch. The parent's list
            // reports that for each other node.
            self.check_root();
        }
        self.queue.make_contiguous().sort_by_key(|request| scope::depth(request.path()));
    }

    /// Returns the next request to send.
    pub(super) fn next_request(&mut self) -> Option<Request> {
        let request = if self.awaits_resync { None } else { self.queue.pop_front() }?;
        if let Some(pending) = self.pending.get_mut(&request) {
            (pending.stage, pending.is_void) = (Stage::Sent, false);
        }
        Some(request)
    }

    /// Begins to read all nodes, from the root down. Nothing is fresh before they are read. These reads replace the
    /// queued ones. During a resync they begin at its end.
    pub(super) fn read_all(&mut self) {
        self.round += 1;
        self.freshness.restart();
        for request in std::mem::take(&mut self.queue) {
            self.complete(&request);
        }
        let newest = self.freshness.newest();
        for pending in self.pending.values_mut() {
            pending.request_again(newest, &mut self.freshness);
            pending.is_void = true;
        }
        self.check_root();
    }

    /// Begins to read one node again. Nothing is fresh before it is read.
    pub(super) fn read_one(&mut self, path: &str) {
        self.freshness.restart();
        if self.options.scope.has(path) {
            self.request(Request::Read(path.into()), self.freshness.newest());
        }
    }

    /// Removes all nodes below the root, without a change for each.
    pub(super) fn forget_below_root(&mut self) {
        for name in self.tree.children("").unwrap_or_default() {
            self.tree.remove(&format!("/{name}"), &mut |_, _, _| {});
        }
    }

    /// Drops the data of a node, without a change. Returns `false` if the tree does not have it in this version.
    pub(super) fn forget_data(&mut self, path: &str, version: Option<i32>) -> bool {
        let found = self.tree.get(path).filter(|entry| version.is_none_or(|version| entry.stat.version == version));
        let Some((round, stat)) = found.map(|entry| (entry.round, *entry.stat)) else { return false };
        self.tree.set(path, round, &stat, &[])
    }

    /// Reads the root again. If it was created again since the tree was read, all nodes below it are new too.
    pub(super) fn check_root(&mut self) {
        self.request(Request::Read("".into()), self.freshness.oldest());
    }

    /// Queues a request again that was lost with its connection.
    pub(super) fn was_lost(&mut self, request: Request) {
        let sent = self.pending.get_mut(&request).filter(|pending| pending.stage != Stage::Queued);
        if let Some(pending) = sent {
            pending.queue(false, &mut self.freshness);
            self.queue.push_back(request);
        }
    }

    /// Handles the notification of a change.
    pub(super) fn notified(&mut self, event: EventType, path: &str) {
        let (scope, newest) = (&self.options.scope, self.freshness.newest());
        match event {
            EventType::NodeDeleted => {
                self.deleted(path);
                if let Some(read) = self.pending.get_mut(&Request::Read(path.into())) {
                    if read.stage != Stage::Queued {
                        read.request_again(newest, &mut self.freshness);
                        read.is_void = true;
                    }
                    read.postpone(newest, &mut self.freshness);
                }
            }
            EventType::NodeChildrenChanged if scope.has(path) && scope.has_children_of(path) => {
                self.request(Request::List(path.into()), newest);
            }
            EventType::NodeCreated | EventType::NodeDataChanged if scope.has(path) => {
                self.request(Request::Read(path.into()), newest);
            }
            _ => {}
        }
    }

    /// Handles the reply to a read; `None` if the node does not exist.
    pub(super) fn was_read(&mut self, path: &Arc<str>, found: Option<(Stat, Vec<u8>)>) {
        let request = Request::Read(Arc::clone(path));
        let Some(Pending { is_void, batch, .. }) = self.sent(&request) else { return };
        self.refused.remove(path);
        match found {
            Some(_) if is_void => {}
            Some((stat, data)) => self.found(path, &stat, &data, batch),
            None => self.deleted(path),
        }
        self.answered(request);
    }

    /// Handles the reply to a listing; `None` if the node does not exist.
    pub(super) fn was_listed(&mut self, path: &Arc<str>, names: Option<Vec<String>>) {
        let request = Request::List(Arc::clone(path));
        let Some(Pending { batch, .. }) = self.sent(&request) else { return };
        if let (Some(mut names), Some(mut cached)) = (names, self.tree.children(path)) {
            names.sort_unstable();
            cached.extend(self.refused_children(path));
            // An unlisted child may be deleted, or created behind the listing.
            let unlisted: Vec<_> = cached.into_iter().filter(|name| names.binary_search(name).is_err()).collect();
            for (names, is_listed) in [(names, true), (unlisted, false)] {
                for name in names {
                    let child = format!("{path}/{name}");
                    let is_read = self.tree.get(&child).is_some_and(|entry| entry.round == self.round);
                    if !(is_listed && is_read) && self.options.scope.has(&child) {
                        self.request(Request::Read(child.into()), batch);
                    }
                }
            }
        }
        self.answered(request);
    }

    /// Handles a reply by which the server refuses to show a node, or which shows data that cannot be decoded.
    pub(super) fn was_refused(&mut self, request: Request) {
        if self.sent(&request).is_none() {
            return;
        }
        self.deleted(request.path());
        self.refused.insert(Arc::clone(request.path()));
        self.answered(request);
    }

    /// Returns the request of a reply that has arrived; `None` if the reply is to be ignored.
    fn sent(&self, request: &Request) -> Option<Pending> {
        self.pending.get(request).filter(|pending| pending.stage != Stage::Queued).copied()
    }

    /// Records a reply, behind its effects: the batch also waits for the requests that the reply has caused.
    fn answered(&mut self, request: Request) {
        let Some(pending) = self.pending.get_mut(&request) else { return };
        if let Stage::SentAndRequested(_) = pending.stage {
            pending.queue(!pending.is_void, &mut self.freshness);
            self.queue.push_back(request);
        } else {
            self.complete(&request);
        }
    }

    fn complete(&mut self, request: &Request) {
        if let Some(pending) = self.pending.remove(request) {
            self.freshness.completed(pending.batch);
        }
    }

    fn request(&mut self, request: Request, batch: u64) {
        match self.pending.get_mut(&request) {
            Some(pending) => pending.request_again(batch, &mut self.freshness),
            None => {
                self.freshness.begun(batch);
                self.pending.insert(request.clone(), Pending { stage: Stage::Queued, is_void: false, batch });
                self.queue.push_back(request);
            }
        }
    }

    /// Returns the refused paths below a path, relative to it.
    fn refused_below(&self, path: &str) -> Vec<String> {
        let below = format!("{path}/");
        let from = self.refused.range::<str, _>((Bound::Included(&*below), Bound::Unbounded));
        from.map_while(|refused| refused.strip_prefix(&*below)).map(str::to_owned).collect()
    }

    /// Returns the names of the children of a path that the server refuses to show.
    fn refused_children(&self, path: &str) -> Vec<String> {
        self.refused_below(path).into_iter().filter(|rest| !rest.contains('/')).collect()
    }

    fn deleted(&mut self, path: &str) {
        if !self.refused.is_empty() {
            self.refused.remove(path);
            for below in self.refused_below(path) {
                self.refused.remove(&*format!("{path}/{below}"));
            }
        }
        let changes = &mut self.changes;
        self.tree.remove(path, &mut |path, stat, data| {
            if let Some(changes) = changes {
                changes.push_back(Change::Deleted(cached(path, stat, data)));
            }
        });
    }

    /// Handles a node that a read of this batch has found.
    fn found(&mut self, path: &str, stat: &Stat, data: &[u8], batch: u64) {
        // The parent may have been created again, and then this node is another one too. The full read returns to this
        // path behind its parent.
        if !self.is_parent_read(path) {
            return;
        }
        let old = self.tree.get(path).map(|old| (old.stat.czxid, old.stat.mzxid, old.round));
        let mut was_read_before = false;
        match old {
            // The reply of a server that lags. In a full read it counts: the servers may have lost their data.
            Some((_, mzxid, round)) if mzxid > stat.mzxid && round == self.round => return,
            Some((czxid, mzxid, round)) if czxid == stat.czxid && mzxid <= stat.mzxid => {
                was_read_before = round == self.round;
                match mzxid == stat.mzxid {
                    true => self.tree.confirm(path, self.round, stat),
                    false => self.set(path, stat, data),
                }
            }
            Some(_) => {
                self.deleted(path);
                self.set(path, stat, data);
            }
            None => self.set(path, stat, data),
        }
        if !was_read_before {
            self.look_below(path, stat, batch);
        }
    }

    /// Sets a node in the tree, and records the change.
    fn set(&mut self, path: &str, stat: &Stat, data: &[u8]) {
        if let Some(changes) = &mut self.changes {
            let new = cached(path, stat, data);
            changes.push_back(match self.tree.get(path) {
                Some(old) => Change::Changed { old: cached(path, old.stat, old.data), new },
                None => Change::Created(new),
            });
        }
        self.tree.set(path, self.round, stat, if self.options.drops_data { &[] } else { data });
    }

    /// Returns `true` if the parent is cached, and was read since the last full read began.
    fn is_parent_read(&self, path: &str) -> bool {
        let parent = path.rsplit_once('/').map(|(parent, _)| parent);
        parent.is_none_or(|parent| self.tree.get(parent).is_some_and(|entry| entry.round == self.round))
    }

    /// Queues the requests for the children of a node that was read for the first time in this round, by a read of this
    /// batch. The older batch waits for them too: it may otherwise end before the read from the root down has reached
    /// these nodes. It does not wait for those of a new node, because a tree may grow all the time.
    fn look_below(&mut self, path: &str, stat: &Stat, batch: u64) {
        let batch = if self.freshness.is_news(stat.czxid) { batch } else { self.freshness.oldest() };
        if !self.options.scope.has_children_of(path) || !may_have_children(stat) {
            return;
        }
        if stat.num_children > 0 || self.options.lists_leaves {
            self.request(Request::List(path.into()), batch);
        } else {
            let refused = self.refused_children(path);
            for name in self.tree.children(path).into_iter().flatten().chain(refused) {
                self.request(Request::Read(format!("{path}/{name}").into()), batch);
            }
        }
    }
}

/// Returns `false` for ephemeral nodes.
const fn may_have_children(stat: &Stat) -> bool {
    owning_session(stat.ephemeral_owner).is_none()
}

fn cached(path: &str, stat: &Stat, data: &[u8]) -> Cached {
    Cached { path: path.to_owned(), stat: *stat, data: data.to_vec() }
}
