//! The decisions of a cache, without I/O: notifications and replies in, requests and changes out.
//!
//! The caller hands in each notification before the replies that the server has sent after it. It takes requests up to
//! its limit in flight, and sends them in their order. Paths are relative to the cache's root: empty for the root,
//! otherwise `/a/b`.
//!
//! A read that is in flight at a notification is repeated, because its reply may be older. A reply to a read that was
//! in flight at a deletion is ignored, because it may show the deleted node.
//!
//! A resync names every cached node, with the transaction up to which its changes are known, and the server notifies of
//! the nodes that have changed since. The engine reads them from the root down, because a node below one that was
//! created again is new too.
//!
//! A test plays the engine against a model of a server at random. At each step it checks contents, changes and
//! freshness.

mod freshness;
mod pending;
mod refusals;
mod scope;
#[cfg(test)]
mod tests;
mod tree;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::mem::discriminant;
use std::sync::Arc;

use curator_framework::recipe::owning_session;
use curator_framework::{Error, EventType, Stat};

use self::freshness::Freshness;
use self::pending::{Pending, Stage};
use self::refusals::Refusals;
pub(super) use self::scope::{Scope, full_path};
use self::tree::{Entry, SHARED};
pub(super) use self::tree::{Tree, Value};
use super::events::CacheEvent;
use super::model::ChildData;
use super::request::Request;

/// The number of requests for which an idle engine keeps memory.
const KEPT: usize = 1024;

/// The cached nodes, of which a resync reports the changes.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Known {
    pub(super) data: Vec<String>,
    pub(super) missing: Vec<String>,
    pub(super) children: Vec<String>,
}

#[derive(Clone, Default)]
pub(super) struct EngineOptions {
    /// The path of the cache, with which the changes have full paths.
    pub(super) root: String,
    pub(super) scope: Scope,
    /// The tree keeps the stats, not the data.
    pub(super) drops_data: bool,
    /// Nodes without children are listed too, because a watch on the list reports the first child.
    pub(super) lists_leaves: bool,
    /// An ephemeral node in the place of an earlier one is a change of it.
    pub(super) merges_replacements: bool,
}

/// The state of a cache.
#[derive(Default)]
pub(super) struct Engine {
    options: EngineOptions,
    tree: Tree,
    pending: HashMap<Request, Pending>,
    queue: VecDeque<Request>,
    refusals: Refusals,
    /// The nodes with a list that could not be read before. What is below them is not complete until the tree is fresh again.
    revealed: BTreeSet<Arc<str>>,
    /// A resync has the cached nodes, and is not complete.
    awaits_resync: bool,
    /// The number of the newest full read. Nodes of an earlier round are read again when a listing shows them.
    round: u32,
    freshness: Freshness,
    /// The changes since they were taken; `None` if nothing takes them.
    changes: Option<VecDeque<CacheEvent>>,
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

    /// Returns `true` if a path that is not in the tree may exist: a node above it cannot be listed, or could not be until now.
    pub(super) fn is_hidden(&self, path: &str) -> bool {
        let is_refused = |above: &str| self.refusals.has(&Request::List(above.into())) || self.revealed.contains(above);
        let lists_all = self.refused().is_empty() && self.revealed.is_empty();
        !lists_all && scope::at_and_above(path).any(|above| above != path && is_refused(above))
    }

    /// Returns the number of nodes that can be shown.
    pub(super) fn present(&self) -> usize {
        self.tree.len() - self.refused().keys().filter(|request| matches!(request, Request::Read(_))).count()
    }

    /// Returns the error without which nothing below the root can be followed: the root cannot be listed or, if no child
    /// belongs to the cache, not be read.
    pub(super) fn failure(&self) -> Option<&Error> {
        let root = Arc::from("");
        let is_parent = self.options.scope.max_depth != Some(0);
        self.refused().get(&if is_parent { Request::List(root) } else { Request::Read(root) })
    }

    /// Sets whether changes are kept for [`take_changes`](Self::take_changes).
    pub(super) fn record_changes(&mut self, wanted: bool) {
        match wanted {
            true => _ = self.changes.get_or_insert_default(),
            false => self.changes = None,
        }
    }

    pub(super) fn take_changes(&mut self) -> VecDeque<CacheEvent> {
        self.changes.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Records that all notifications of the transactions up to `zxid` were handed in. Returns the newest transaction
    /// that the tree shows with all before it, if a full read is complete.
    pub(super) fn mark(&mut self, zxid: i64) -> Option<i64> {
        if self.pending.is_empty() && self.pending.capacity() > KEPT {
            // Frees the memory of a load, which had an entry for each node.
            (self.pending, self.queue) = (HashMap::new(), VecDeque::new());
        }
        let reached = self.freshness.mark(zxid);
        if reached.is_some() {
            self.revealed.clear();
        }
        reached
    }

    /// Returns the newest transaction that the tree shows with all before it, if a full read is complete.
    pub(super) const fn fresh(&self) -> Option<i64> {
        self.freshness.reached()
    }

    /// Lists nodes without children too: see [`EngineOptions::lists_leaves`].
    pub(super) const fn list_leaves(&mut self) {
        self.options.lists_leaves = true;
    }

    /// Returns the refused requests with their errors.
    pub(super) const fn refused(&self) -> &BTreeMap<Request, Error> {
        self.refusals.errors()
    }

    /// Fills an empty tree with nodes of an earlier cache, parents first, with its refused requests, and with its parents
    /// that had lost a child.
    pub(super) fn resume<'a>(
        &mut self,
        nodes: impl IntoIterator<Item = (&'a str, &'a ChildData)>,
        refused: &BTreeMap<Request, Error>,
        old_stats: &[String],
    ) {
        let is_in_scope = |path: &str| self.options.scope.has(path);
        let nodes = nodes.into_iter().map(|(path, node)| (path, Some(node)));
        let hidden = refused.keys().filter(|request| matches!(request, Request::Read(_)));
        let hidden = hidden.map(|request| (&**request.path(), None));
        let mut nodes: Vec<_> = nodes.chain(hidden).filter(|(path, _)| is_in_scope(path)).collect();
        // A node that cannot be shown has its place among the others: parents first.
        nodes.sort_by_key(|(path, _)| *path);
        for (path, node) in nodes {
            match node {
                Some(ChildData { stat, data, .. }) => {
                    self.tree.set(path, self.round, stat, if self.options.drops_data { &[] } else { data })
                }
                None => self.tree.hide(path, self.round, None),
            };
        }
        for (request, error) in refused {
            if self.tree.get(request.path()).is_some() {
                self.refuse(request.clone(), error.clone(), true);
            }
        }
        old_stats.iter().for_each(|path| self.tree.has_old_stat(path));
    }

    /// Removes all nodes, without a change for each.
    pub(super) fn clear(&mut self) {
        *self = Self::new(std::mem::take(&mut self.options));
    }

    /// Returns the cached nodes for a resync. Queues the sent requests again and ignores their replies, which may be older
    /// than the changes that the resync reports. No request is sent until the resync is complete.
    ///
    /// Parents that have lost a child since their stat was read are read again. If a backup has the child, a resync reports
    /// nothing, because nothing of what the cache knows differs from the backup.
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
        for path in self.tree.old_stats() {
            self.notified(EventType::NodeDataChanged, &path);
            self.notified(EventType::NodeChildrenChanged, &path);
        }
        known
    }

    /// Returns `true` while a resync has the cached nodes, and not all of its notifications have arrived.
    pub(super) const fn awaits_resync(&self) -> bool {
        self.awaits_resync
    }

    /// Starts to read all nodes, because notifications were missed. Replies to sent requests are ignored.
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
            (pending.stage, pending.is_void, pending.has_old_stat) = (Stage::Sent, false, false);
        }
        Some(request)
    }

    /// Returns the next requests to send together, at most so many. A refused one is sent alone, because its reply may be
    /// too large.
    pub(super) fn next_requests(&mut self, most: usize) -> Vec<Request> {
        let mut requests = Vec::new();
        while requests.len() < most {
            let is_refused = self.queue.front().is_some_and(|next| self.refusals.has(next));
            if is_refused && !requests.is_empty() {
                break;
            }
            let Some(request) = self.next_request() else { break };
            requests.push(request);
            if is_refused {
                break;
            }
        }
        requests
    }

    /// Starts to read all nodes, from the root down. Nothing is fresh before they are read. These reads replace the
    /// queued ones. During a resync they start at its end.
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

    /// Starts to read one node again. Nothing is fresh before it is read.
    pub(super) fn read_one(&mut self, path: &str) {
        self.freshness.restart();
        if self.options.scope.has(path) {
            self.request(Request::Read(path.into()), self.freshness.newest());
        }
    }

    /// Removes all nodes below the root, without a change for each.
    pub(super) fn forget_below_root(&mut self) {
        for name in self.tree.children("").unwrap_or_default() {
            self.remove(&format!("/{name}"), false);
        }
    }

    /// Drops the data of a node, without a change. Returns `false` if the tree does not have it in this version.
    pub(super) fn forget_data(&mut self, path: &str, version: Option<i32>) -> bool {
        let is_meant = |stat: &Stat| version.is_none_or(|version| stat.version == version);
        let found = self.tree.get(path).filter(|entry| entry.is_present() && is_meant(entry.stat));
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

    /// Queues requests again, ahead of the others, because they were not answered together.
    pub(super) fn was_not_read(&mut self, requests: Vec<Request>) {
        for request in requests.into_iter().rev() {
            let sent = self.pending.get_mut(&request).filter(|pending| pending.stage != Stage::Queued);
            if let Some(pending) = sent {
                pending.queue(false, &mut self.freshness);
                self.queue.push_front(request);
            }
        }
    }

    /// Handles the notification of a change.
    pub(super) fn notified(&mut self, event: EventType, path: &str) {
        let (scope, newest) = (&self.options.scope, self.freshness.newest());
        match event {
            // One transaction may have deleted the node and created the next one. The notification of the second is perhaps
            // not here yet, so a read decides.
            EventType::NodeDeleted if self.may_be_replaced(path) => self.read(path.into(), true, newest),
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
        let Some(Pending { is_void, has_old_stat, batch, .. }) = self.sent(&request) else { return };
        match found {
            Some(_) if is_void => {}
            Some((stat, data)) => self.found(path, &stat, data, batch),
            None => self.deleted(path),
        }
        if has_old_stat {
            self.tree.has_old_stat(path);
        }
        self.answered(request);
    }

    /// Handles the reply to a listing; `None` if the node does not exist.
    pub(super) fn was_listed(&mut self, path: &Arc<str>, names: Option<Vec<String>>) {
        let request = Request::List(Arc::clone(path));
        let Some(Pending { batch, .. }) = self.sent(&request) else { return };
        let is_gone = names.is_none();
        if let (Some(mut names), Some(cached)) = (names, self.tree.children(path)) {
            if self.refusals.remove(&request) {
                // The children that it shows may be older than the transaction that the contents were fresh at.
                self.freshness.restart();
                self.revealed.insert(Arc::clone(path));
            }
            // A child was deleted or created between the read of the stat and this listing.
            let is_newer = |stat: &Stat| usize::try_from(stat.num_children) != Ok(names.len());
            if self.tree.get(path).is_some_and(|entry| is_newer(entry.stat)) {
                self.tree.has_old_stat(path);
            }
            names.sort_unstable();
            // An unlisted child may be deleted, or created after the listing.
            let unlisted: Vec<_> = cached.into_iter().filter(|name| names.binary_search(name).is_err()).collect();
            for (names, is_listed) in [(names, true), (unlisted, false)] {
                for name in names {
                    let child = format!("{path}/{name}");
                    let is_read = self.tree.get(&child).is_some_and(|entry| entry.round == self.round);
                    if !(is_listed && is_read) && self.options.scope.has(&child) {
                        self.read(child.into(), !is_listed, batch);
                    }
                }
            }
        }
        if is_gone && self.refusals.is_repeated(&Request::Read(Arc::clone(path))) {
            // No read has shown yet that it does not exist.
            self.read(Arc::clone(path), true, batch);
        }
        self.answered(request);
    }

    /// Handles a reply that does not show a node or its children. The server refuses it, it is too large, or its data cannot
    /// be decoded; only then it has shown the `stat`. The node exists, and keeps its children. Returns `false` if the reply
    /// is to be ignored.
    pub(super) fn was_refused(&mut self, request: &Request, stat: Option<&Stat>, error: &Error) -> bool {
        let Some(Pending { stage, is_void, batch, .. }) = self.sent(request) else { return false };
        let is_news = match request {
            Request::Read(path) => !is_void && self.is_parent_read(path) && !self.is_outdated(path, stat),
            Request::List(path) => !is_void && self.tree.get(path).is_some(),
        };
        if !is_news {
            self.answered(request.clone());
            return false;
        }
        // A read that a notification has asked for may find what another one has found already.
        let is_same = stat.is_some_and(|stat| self.refusals.has_version(request, stat.mzxid));
        let is_known = (self.refusals.is_repeated(request) || is_same)
            && self.refused().get(request).is_some_and(|known| discriminant(known) == discriminant(error));
        if let Some(changes) = self.changes.as_mut().filter(|_| !is_known) {
            let path = full_path(&self.options.root, request.path());
            changes.push_back(CacheEvent::Failed { path, error: error.clone().into() });
        }
        self.refuse(request.clone(), error.clone(), matches!(stage, Stage::SentAndRequested(_)));
        if let Some(stat) = stat {
            self.refusals.add_version(request, stat.mzxid);
        }
        match request {
            Request::Read(path) => self.pass_hidden(path, stat, error, batch),
            Request::List(path) => self.read_children(path, false, batch),
        }
        if self.refusals.is_repeated(request) {
            if let Some(pending) = self.pending.get_mut(request) {
                // A notification does not repeat it at once.
                pending.queue(true, &mut self.freshness);
            }
            self.complete(request);
        } else {
            self.answered(request.clone());
        }
        true
    }

    /// Returns `true` for a stat that is older than the cached one. Otherwise removes a cached node of an earlier creation.
    fn is_outdated(&mut self, path: &str, stat: Option<&Stat>) -> bool {
        let (Some(stat), Some(entry)) = (stat, self.tree.get(path)) else { return false };
        let (is_newer, is_another) = (entry.stat.mzxid > stat.mzxid, entry.stat.czxid != stat.czxid);
        // The reply of a server that lags. In a full read it counts: the servers may have lost their data.
        if is_newer && entry.round == self.round {
            return true;
        }
        match entry.value {
            _ if !is_newer && !is_another => {}
            Value::Present => self.deleted(path),
            // Its children were followed while it could not be read, and do not belong to the earlier node.
            Value::Earlier => {
                let earlier = entry.to_node(|| full_path(&self.options.root, path));
                if let Some(changes) = &mut self.changes {
                    changes.push_back(CacheEvent::Deleted(earlier));
                }
                self.tree.forget(path);
            }
            Value::Unknown => {}
        }
        false
    }

    fn refuse(&mut self, request: Request, error: Error, is_wanted: bool) {
        self.refusals.add(request, error, is_wanted, self.options.lists_leaves);
    }

    /// Returns `true` if a request is repeated after pauses.
    pub(super) fn has_repeated(&self) -> bool {
        self.refusals.has_repeated()
    }

    /// Returns `true` if a request waits for the end of the pause.
    pub(super) fn awaits_pause(&self) -> bool {
        self.refusals.awaits_pause()
    }

    /// Takes a node that cannot be read for one that was read in this round.
    fn pass_hidden(&mut self, path: &Arc<str>, stat: Option<&Stat>, error: &Error, batch: u64) {
        let was_read_before = self.tree.get(path).is_some_and(|entry| entry.round == self.round);
        if !self.tree.hide(path, self.round, stat) || was_read_before {
            return;
        }
        let cached = self.tree.get(path).map(|entry| *entry.stat).unwrap_or_default();
        match (stat, error) {
            (Some(stat), _) => self.look_below(path, stat, batch),
            // It may have children by now.
            (None, Error::ReplyTooLarge { .. }) => self.look_below(path, &Stat { num_children: 1, ..cached }, batch),
            // The server refuses to list them too.
            (None, _) => {
                if self.options.scope.has_children_of(path) {
                    self.refuse(Request::List(Arc::clone(path)), error.clone(), true);
                    self.read_children(path, false, batch);
                }
            }
        }
    }

    /// Queues the requests that waited for the end of the pause.
    pub(super) fn pause_ended(&mut self) {
        let newest = self.freshness.newest();
        for request in self.refusals.pause_ended() {
            self.request(request, newest);
        }
    }

    /// Returns the request of a reply that has arrived; `None` if the reply is to be ignored.
    fn sent(&self, request: &Request) -> Option<Pending> {
        self.pending.get(request).filter(|pending| pending.stage != Stage::Queued).copied()
    }

    /// Records a reply, after its effects: the batch also waits for the requests that the reply has caused.
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
        if self.refusals.puts_off(&request) {
            return match &request {
                Request::Read(path) if self.is_parent_read(path) => {
                    if let Some(error) = self.refused().get(&request).cloned() {
                        self.pass_hidden(path, None, &error, batch);
                    }
                }
                Request::Read(_) => {}
                Request::List(path) => self.read_children(path, false, batch),
            };
        }
        match self.pending.get_mut(&request) {
            Some(pending) => pending.request_again(batch, &mut self.freshness),
            None => {
                self.freshness.begun(batch);
                self.pending.insert(
                    request.clone(),
                    Pending { stage: Stage::Queued, is_void: false, has_old_stat: false, batch },
                );
                self.queue.push_back(request);
            }
        }
    }

    fn deleted(&mut self, path: &str) {
        self.remove(path, true);
    }

    /// Removes a node and all nodes below it.
    fn remove(&mut self, path: &str, is_reported: bool) {
        // Even if the tree does not have it yet: a read after a listing may be on its way.
        self.parent_has_old_stat(path);
        let Self { changes, refusals, options, .. } = self;
        self.tree.remove(path, &mut |path, entry| {
            if !refusals.errors().is_empty() {
                for request in [Request::Read(path.into()), Request::List(path.into())] {
                    refusals.remove(&request);
                }
            }
            if let Some(changes) = changes.as_mut().filter(|_| is_reported && entry.value != Value::Unknown) {
                changes.push_back(CacheEvent::Deleted(entry.to_node(|| full_path(&options.root, path))));
            }
        });
    }

    /// Records that a child was deleted since the stat of its parent was read.
    fn parent_has_old_stat(&mut self, path: &str) {
        if let Some((parent, _)) = path.rsplit_once('/').filter(|_| self.options.scope.has(path)) {
            self.tree.has_old_stat(parent);
            if let Some(read) = self.pending.get_mut(&Request::Read(parent.into())) {
                read.has_old_stat = true;
            }
        }
    }

    /// Returns `true` if another node in the place of this one is a change of it. Neither of them has children.
    fn may_be_replaced(&self, path: &str) -> bool {
        let is_ephemeral = |entry: Entry<'_>| entry.is_present() && !may_have_children(entry.stat);
        self.options.merges_replacements && self.tree.get(path).is_some_and(is_ephemeral)
    }

    /// Returns `true` if this is the stat of a node in the place of the cached one, and a change of it.
    fn replaces(&self, path: &str, stat: &Stat) -> bool {
        let is_newer =
            |old: Entry<'_>| old.stat.czxid != stat.czxid && (old.stat.mzxid < stat.mzxid || old.round != self.round);
        self.may_be_replaced(path) && !may_have_children(stat) && self.tree.get(path).is_some_and(is_newer)
    }

    /// Handles a node that a read of this batch has found.
    fn found(&mut self, path: &Arc<str>, stat: &Stat, data: Vec<u8>, batch: u64) {
        // The parent may have been created again, and then this node is another one too. The full read returns to this
        // path after its parent.
        if !self.is_parent_read(path) {
            return;
        }
        if self.replaces(path, stat) {
            self.parent_has_old_stat(path);
        } else if self.is_outdated(path, Some(stat)) {
            return;
        }
        let is_listed = !self.refusals.has(&Request::List(Arc::clone(path)));
        let old = self.tree.get(path);
        let was_read_before = is_listed && old.is_some_and(|old| old.round == self.round);
        match old {
            Some(old) if old.is_present() && (old.stat.czxid, old.stat.mzxid) == (stat.czxid, stat.mzxid) => {
                self.tree.confirm(path, self.round, stat);
            }
            _ => self.set(path, stat, data),
        }
        self.refusals.remove(&Request::Read(Arc::clone(path)));
        if !was_read_before {
            self.look_below(path, stat, batch);
        }
    }

    /// Sets a node in the tree, and records the change.
    fn set(&mut self, path: &str, stat: &Stat, mut data: Vec<u8>) {
        let EngineOptions { root, drops_data, .. } = &self.options;
        let is_large = data.len() >= SHARED && !drops_data;
        if self.changes.is_none() && !is_large {
            if *drops_data {
                data.clear();
            }
            self.tree.set(path, self.round, stat, &data);
            return;
        }
        let new = Arc::new(ChildData { path: full_path(root, path), stat: *stat, data });
        if let Some(changes) = &mut self.changes {
            let new = Arc::clone(&new);
            changes.push_back(match self.tree.get(path).filter(|old| old.value != Value::Unknown) {
                Some(old) => CacheEvent::Changed { old: old.to_node(|| new.path.clone()), new },
                None => CacheEvent::Created(new),
            });
        }
        match is_large {
            true => self.tree.set_shared(path, self.round, new),
            false => self.tree.set(path, self.round, stat, if *drops_data { &[] } else { &new.data }),
        };
    }

    /// Returns `true` if the parent is cached, and was read since the last full read started.
    fn is_parent_read(&self, path: &str) -> bool {
        let parent = path.rsplit_once('/').map(|(parent, _)| parent);
        parent.is_none_or(|parent| self.tree.get(parent).is_some_and(|entry| entry.round == self.round))
    }

    /// Queues the requests for the children of a node that was read for the first time in this round, by a read of this
    /// batch. The older batch waits for them too: it may otherwise end before the read from the root down has reached
    /// these nodes. It does not wait for the children of a new node, because a tree may grow all the time.
    fn look_below(&mut self, path: &str, stat: &Stat, batch: u64) {
        let batch = if self.freshness.is_news(stat.czxid) { batch } else { self.freshness.oldest() };
        let may_have_children = self.options.scope.has_children_of(path) && may_have_children(stat);
        if may_have_children && (stat.num_children > 0 || self.options.lists_leaves) {
            self.request(Request::List(path.into()), batch);
        } else {
            self.refusals.remove(&Request::List(path.into()));
            self.read_children(path, true, batch);
        }
    }

    /// Requests a read. A node that is probably gone is read without a pause, because the reply is small: otherwise one that
    /// was too large would be taken for one that exists.
    fn read(&mut self, path: Arc<str>, is_probably_gone: bool, batch: u64) {
        let request = Request::Read(path);
        if is_probably_gone {
            self.refusals.begin(&request);
        }
        self.request(request, batch);
    }

    /// Reads the cached children of a node that were not read in this round.
    fn read_children(&mut self, path: &str, are_probably_gone: bool, batch: u64) {
        for name in self.tree.children(path).into_iter().flatten() {
            let child = format!("{path}/{name}");
            let is_read = self.tree.get(&child).is_some_and(|entry| entry.round == self.round);
            if !is_read && self.options.scope.has(&child) {
                self.read(child.into(), are_probably_gone, batch);
            }
        }
    }
}

/// Returns `false` for ephemeral nodes.
const fn may_have_children(stat: &Stat) -> bool {
    owning_session(stat.ephemeral_owner).is_none()
}
