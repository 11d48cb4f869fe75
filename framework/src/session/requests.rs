//! The requests of a session, and what their replies prove.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::task::Poll;

use futures_util::TryFutureExt as _;
use parking_lot::Mutex;
use tokio::sync::OnceCell;

use crate::environment::randomness::nonexistent_path;
use crate::error::{Chain, Error, INTERNAL_BARRIER, PathText, Result};
use crate::metrics;
#[cfg(doc)]
use crate::model::acl_provider::AclProvider;
use crate::model::ids::Zxid;
use crate::model::namespace::Namespace;
use crate::model::new_node::{NodeSpec, Parents};
use crate::model::path::parent_of;
use crate::model::{Acl, CreateMode, Stat, WatchKind};
use crate::session::background::{Delete, PendingDelete};
use crate::session::watches::{Found, Watch};
use crate::session::{Session, WatchedData};
use crate::sync::report::report;
use crate::zookeeper::client::history::{History, Judgement};
use crate::zookeeper::{CONFIG_NODE, DEFAULT_CLIENT};
use crate::zookeeper::{Done, Evidence, Operation, Request, Response, SessionEnd};

/// The part of the session timeout from which on a request is slow.
const SLOW: u32 = 10;

/// The creations of parents that are under way, by the lowest parent. Callers that miss the same parent wait for one
/// creation: without it, each of 1,000 new nodes would create the parents of all.
#[derive(Default)]
struct ParentsInProgress(Mutex<HashMap<String, Weak<OnceCell<()>>>>);

impl ParentsInProgress {
    /// Returns the creation of this parent.
    fn of(&self, lowest: &str) -> Arc<OnceCell<()>> {
        let mut all = self.0.lock();
        if let Some(creation) = all.get(lowest).and_then(Weak::upgrade) {
            return creation;
        }
        // Removes those that failed or that have no callers any more.
        all.retain(|_, creation| creation.strong_count() > 0);
        let creation = Arc::default();
        all.insert(lowest.to_owned(), Arc::downgrade(&creation));
        creation
    }
}

impl Session {
    /// Returns the path as the server knows it.
    pub(super) fn to_server_path(&self, path: &str) -> Arc<str> {
        Arc::from(&*self.root.to_server_path(path))
    }

    /// Returns the [server's path](Self::to_server_path) of a node to create. Keeps a final slash, to which a number is
    /// appended.
    fn to_server_path_of_new(&self, path: &str, mode: CreateMode) -> Arc<str> {
        match path.strip_suffix('/') {
            Some("") if mode.is_sequential() && self.root != Namespace::default() => {
                format!("{}/", self.to_server_path("/")).into()
            }
            _ => self.to_server_path(path),
        }
    }

    /// Returns the error of a request in an ended session: `Closed` if the client was closed, else `SessionExpired`.
    #[must_use]
    pub fn closed_error(&self, request: impl Into<PathText>) -> Error {
        match self.end_reason() {
            Some(SessionEnd::Closed) => Error::Closed,
            _ => Error::SessionExpired { request: request.into() },
        }
    }

    /// Submits one request in this session, before the future is polled. No retry.
    fn request(&self, request: Request) -> impl Future<Output = Result<Response>> + Send {
        self.request_with_epoch(request).map_ok(|(response, _)| response)
    }

    /// Submits a [`request`](Self::request) and resolves also with the epoch that carried the reply.
    fn request_with_epoch(&self, request: Request) -> impl Future<Output = Result<(Response, u64)>> + Send {
        let evidence = request.evidence();
        let through_leader = evidence == Evidence::Leader;
        let path = request.shared_path();
        let name = request.name();
        let submitted = match self.end_reason() {
            Some(_) => Err(self.closed_error(request.to_string())),
            None => Ok(self.inner.handle.submit(request, self.epoch())),
        };
        let answered = async move {
            let over = |sent: bool| {
                let request = PathText::from(format!("{name} {path}"));
                // `Closed` would mean that the write was not applied.
                if through_leader && sent { Error::SessionExpired { request } } else { self.closed_error(request) }
            };
            let reply = tokio::select! {
                biased;
                reply = submitted? => reply,
                _ = self.ended() => return Err(over(true)),
            };
            // The session may have ended between the arrival of the reply and this poll.
            if self.end_reason().is_some() {
                // A client that does not time its requests tells by the error that this one was sent.
                let was_sent = matches!(reply.result, Err(Error::ConnectionLoss { sent: true, .. }));
                return Err(over(was_sent || reply.sent.is_some()));
            }
            let now = self.inner.clock.now();
            self.reflected(reply.zxid);
            let given = match &reply.result {
                Err(error) if !error.is_answer() => None,
                Err(error) if !error.is_answer_of_leader() => Some(Evidence::AnyServer),
                _ => Some(evidence),
            };
            if let (Some(given), Some(sent)) = (given, reply.sent) {
                self.answered_at(now, sent, reply.epoch, given);
            }
            // Before the caller sees the reply: an owner must know of its loss before another contender can be granted.
            match &reply.result {
                Err(Error::NoNode { .. }) | Ok(Response::Exists(None)) => self.watches().is_missing(&path, reply.zxid),
                Ok(Response::Children(names)) => self.watches().listed(&path, names, reply.zxid),
                _ => {}
            }
            let elapsed = now.saturating_sub(reply.sent.unwrap_or(now));
            let outcome = reply.result.as_ref().err();
            let (session, elapsed_s) = (self.inner.number, elapsed.as_secs_f64());
            tracing::trace!(session, request = name, path = &*path, elapsed_s, error = ?outcome, "request");
            if elapsed > self.timeout() / SLOW {
                let path = Arc::clone(&path);
                report(move || tracing::warn!(session, request = name, path = &*path, elapsed_s, "slow request"));
            }
            if let Err(error @ (Error::ReplyTooLarge { .. } | Error::EndsConnections { .. })) = &reply.result {
                let error = error.clone();
                report(
                    move || tracing::warn!(session, request = name, error = %Chain(&error), "a request of an impossible size"),
                );
            }
            if reply.sent.is_some() {
                metrics::answered(name, elapsed);
            }
            let epoch = reply.epoch;
            reply.result.map(|response| (response, epoch))
        };
        answered.map_err(|error| self.for_caller(error))
    }

    /// Returns the error with the paths as the caller wrote them.
    pub(super) fn for_caller(&self, mut error: Error) -> Error {
        error.shorten(&|path| self.root.to_client_path(path));
        error
    }

    /// Polls a future once and writes all requests that this poll submits together. Requests that do not await each
    /// other's replies leave in one packet.
    ///
    /// # Cancel safety
    ///
    /// That of `requests`.
    pub async fn in_one_write<F: Future>(&self, requests: F) -> F::Output {
        let mut requests = std::pin::pin!(requests);
        let first = std::future::poll_fn(|cx| {
            let mut first = Poll::Pending;
            self.inner.handle.write_together(&mut || first = requests.as_mut().poll(cx));
            Poll::Ready(first)
        });
        match first.await {
            Poll::Ready(output) => output,
            Poll::Pending => requests.await,
        }
    }

    /// Creates a node and returns its path, with the number that the server appended, and its stat.
    ///
    /// # Errors
    ///
    /// `Error::NodeExists`, `Error::NoNode` (no parent), `Error::NoChildrenForEphemerals`, `Error::NoAuth`,
    /// `Error::InvalidAcl`; `Error::Unsupported`; `Error::ConnectionLoss`, `Error::SessionExpired`.
    ///
    /// # Cancel safety
    ///
    /// After the future is dropped the node may still be created. Use [`owned_node`](Self::owned_node) to have it
    /// deleted then.
    pub async fn create(&self, path: &str, data: Vec<u8>, acl: Vec<Acl>, mode: CreateMode) -> Result<(String, Stat)> {
        let (path, stat) = self.create_node(path, data, acl, mode).await?;
        Ok((self.root.to_client_path(&path).to_owned(), stat))
    }

    /// Creates a node as [`create`](Self::create) does, and returns its path as the server knows it.
    pub(crate) async fn create_node(
        &self,
        path: &str,
        data: Vec<u8>,
        acl: Vec<Acl>,
        mode: CreateMode,
    ) -> Result<(Arc<str>, Stat)> {
        let can = self.inner.handle.capabilities();
        let full = self.to_server_path_of_new(path, mode);
        let unsupported = match mode {
            _ if full.len() > 1 && full.ends_with('/') && !can.bare_numbers => Some("create nodes without a name"),
            CreateMode::Container if !can.containers => Some("create containers"),
            CreateMode::PersistentWithTtl(_) | CreateMode::PersistentSequentialWithTtl(_) if !can.ttl => {
                Some("create nodes with a time to live")
            }
            _ => None,
        };
        Acl::check(&acl, path)?;
        mode.check_ttl()?;
        if let Some(request) = unsupported {
            return Err(self.unsupported(request));
        }
        match self.request(Request::Create { path: full, data, acl, mode }).await? {
            Response::Created { path, stat } => {
                self.inner.reaper.touch_parent(parent_of(&path), self.inner.clock.now());
                Ok((path, stat))
            }
            other => Err(unexpected("create", path, &other)),
        }
    }

    /// Creates a node, and its missing parents if [`NodeSpec::with_parents`] asks for them. No retry.
    ///
    /// # Errors
    ///
    /// * Those of [`create`](Self::create). `Error::NoNode` also if another client deletes the parents again and again.
    /// * `Error::SchemaViolation`: a rule of the client's schemas forbids this node; nothing was sent.
    ///
    /// # Cancel safety
    ///
    /// After the future is dropped the node may still be created.
    pub async fn create_with_parents(
        &self,
        path: &str,
        mode: CreateMode,
        node: &NodeSpec<'_>,
    ) -> Result<(String, Stat)> {
        let acl = node.acl.map_or_else(|| self.acl_for(path), <[_]>::to_vec);
        if let Some(schemas) = self.schemas() {
            schemas.check_create(path, mode, node.data, &acl)?;
        }
        let create = || self.create(path, node.data.to_vec(), acl.clone(), mode);
        let mut created = create().await;
        for _ in 0..node.parents.max_create_attempts() {
            let missing = matches!(created, Err(Error::NoNode { .. }));
            // Boxed: a rare branch must not enlarge the future.
            if !missing || !Box::pin(self.create_parents(path, node)).await? {
                break;
            }
            created = create().await;
        }
        created
    }

    /// Deletes a node in the background, if need be in a later session. Never blocks, and works outside of a runtime too.
    ///
    /// With a `czxid` it deletes only the node that this transaction has created. Without one it deletes only a node of
    /// this session in an ephemeral mode, and any node at the path in another mode.
    pub fn delete_in_background(&self, path: &str, mode: CreateMode, czxid: Option<i64>) {
        let path = self.to_server_path(path).to_string();
        let remains = match (czxid, mode.is_ephemeral()) {
            (Some(czxid), ephemeral) => PendingDelete::Created { path, czxid, ephemeral },
            (None, true) => PendingDelete::OwnEphemeral { path },
            (None, false) => PendingDelete::Guaranteed { path, delete: Delete::default() },
        };
        self.background().clean(self, remains);
    }

    /// Returns the access control list for a node that is created without one. The client's
    /// [`AclProvider`](crate::AclProvider) chooses it by the path, which includes the namespace.
    #[must_use]
    pub fn acl_for(&self, path: &str) -> Vec<Acl> {
        self.provided_acl(&self.root.to_server_path(path))
    }

    fn provided_acl(&self, full: &str) -> Vec<Acl> {
        let provider = &self.inner.acl_provider;
        provider.acl_for_path(self.root.without_chroot(full)).unwrap_or_else(|| provider.default_acl())
    }

    /// Creates the missing parents of a new node that wants them, else only the node of the namespace. The lowest one
    /// gets the parent data. It begins with that one, so it sends nothing for parents of nodes that exist. Call it
    /// after `NoNode`. Returns `Ok(false)` if it may create nothing.
    ///
    /// # Errors
    ///
    /// As [`create`](Self::create); `Error::NoNode` if the chroot is missing, because the framework never creates it.
    ///
    /// # Cancel safety
    ///
    /// After the future is dropped, some of the parents may exist.
    pub async fn create_parents(&self, path: &str, node: &NodeSpec<'_>) -> Result<bool> {
        let lowest = match node.parents {
            Parents::Expected => self.root.namespace_node().map(str::to_owned),
            Parents::Persistent | Parents::Containers => Some(self.root.full_parent(path)),
        };
        let Some(lowest) = lowest else {
            // The parent that does not exist is the chroot itself.
            let parent = self.root.full_parent(path);
            let is_chroot = parent != "/" && self.root.is_given(&parent);
            return if is_chroot { Err(Error::NoNode { path: parent.into() }) } else { Ok(false) };
        };
        let in_progress = self.extension::<ParentsInProgress>();
        let creation = in_progress.of(&lowest);
        creation
            .get_or_try_init(|| async {
                let created = self.create_missing(lowest.clone(), node).await;
                // A parent that is missed from now on was deleted again.
                in_progress.0.lock().remove(&lowest);
                created
            })
            .await?;
        Ok(true)
    }

    /// Creates the lowest parent, and those above it that are missing.
    async fn create_missing(&self, lowest: String, node: &NodeSpec<'_>) -> Result<()> {
        let server = self.in_namespace(Namespace::default());
        let mut missing = vec![lowest];
        while let Some(parent) = missing.last() {
            if self.root.is_given(parent) {
                if parent == "/" {
                    missing.pop();
                    continue;
                }
                return Err(Error::NoNode { path: parent.as_str().into() });
            }
            let of_namespace = self.root.is_of_namespace(parent);
            let acl = match node.acl.filter(|_| node.acl_on_parents && !of_namespace) {
                Some(acl) => acl.to_vec(),
                None => self.provided_acl(parent),
            };
            // Not a container: the node of a namespace must outlive the nodes in it.
            let container = node.parents == Parents::Containers && !of_namespace;
            let mode = match container && self.inner.handle.capabilities().containers {
                true => CreateMode::Container,
                false => CreateMode::Persistent,
            };
            let is_parent = missing.len() == 1 && !of_namespace;
            let data = if is_parent { node.parent_data.to_vec() } else { Vec::new() };
            match server.create(parent, data, acl, mode).await {
                Ok((_, stat)) => {
                    if container && mode != CreateMode::Container {
                        self.inner.reaper.track(parent, stat.czxid, self.inner.clock.now());
                    }
                    missing.pop();
                }
                Err(Error::NodeExists { .. }) => {
                    missing.pop();
                }
                Err(Error::NoNode { .. }) => {
                    let above = parent_of(parent).to_owned();
                    missing.push(above);
                }
                Err(error) => return Err(self.for_caller(error)),
            }
        }
        Ok(())
    }

    /// Deletes a node.
    ///
    /// # Errors
    ///
    /// `Error::NoNode`, `Error::NotEmpty`, `Error::BadVersion`, `Error::NoAuth`; `Error::ConnectionLoss`,
    /// `Error::SessionExpired`.
    ///
    /// # Cancel safety
    ///
    /// After the future is dropped the node may still be deleted.
    pub async fn delete(&self, path: &str, version: Option<i32>) -> Result<()> {
        self.delete_node(self.to_server_path(path), version).await
    }

    /// Deletes the node at a path as the server knows it.
    pub(crate) async fn delete_node(&self, path: Arc<str>, version: Option<i32>) -> Result<()> {
        match self.request(Request::Delete { path, version }).await? {
            Response::Deleted => Ok(()),
            other => Err(unexpected("delete", "", &other)),
        }
    }

    /// Returns the stat of a node, or `None` if it does not exist.
    ///
    /// # Errors
    ///
    /// `Error::ConnectionLoss`, `Error::SessionExpired`.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    pub async fn exists(&self, path: &str) -> Result<Option<Stat>> {
        match self.request(Request::Exists { path: self.to_server_path(path), watch: false }).await? {
            Response::Exists(stat) => Ok(stat),
            other => Err(unexpected("exists", path, &other)),
        }
    }

    /// Compares the server's history with nodes as they were read before, perhaps in another session. Returns the newest
    /// transaction up to which the server has all writes that the client may have seen. Returns `None` after a restore
    /// from a backup or a loss of data, or if that cannot be excluded: then all nodes must be read again.
    ///
    /// Costs one `exists` if the newest of the nodes is unchanged, and one for each parent with a newer change of its
    /// children. If these do not decide, it costs one for each of up to 64 nodes. A new session must call
    /// [`sync`](Self::sync) before, because its server may lag.
    ///
    /// # Errors
    ///
    /// `Error::ConnectionLoss`, `Error::SessionExpired`, `Error::Closed`: call again.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    pub async fn continues(&self, nodes: impl IntoIterator<Item = (String, Stat)>) -> Result<Option<Zxid>> {
        let Some(mut comparison) = History::of(nodes).compare() else { return Ok(None) };
        let mut judgement = Judgement::Unknown;
        loop {
            // An earlier session may have ended with an election.
            let round = comparison.next_round(judgement, true);
            if round.is_empty() {
                let Judgement::Same { up_to } = judgement else { return Ok(None) };
                return Ok(Some(Zxid::new(up_to)));
            }
            let mut asked = Vec::new();
            for question in &round {
                asked.push(self.exists(&question.path));
            }
            let found = self.in_one_write(futures_util::future::join_all(asked)).await;
            for (question, found) in round.iter().zip(found) {
                judgement = comparison.decide(judgement, question.judge(found?.as_ref()));
            }
        }
    }

    /// Reads as [`exists`](Self::exists) does, and sets a watch for the creation, change or deletion of the node.
    ///
    /// # Errors
    ///
    /// As [`exists`](Self::exists).
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped. A watch that was set wakes no task then.
    pub async fn exists_watched(&self, path: &str) -> Result<(Option<Stat>, Watch)> {
        let full = self.to_server_path(path);
        let mut watch = self.inner.watches.register(&full, WatchKind::Data);
        let (response, epoch) = self.request_with_epoch(Request::Exists { path: full, watch: true }).await?;
        match response {
            Response::Exists(stat) => {
                watch.answered();
                if let Some(stat) = &stat {
                    watch.confirm(Found::new(epoch, stat));
                }
                Ok((stat, watch))
            }
            other => Err(unexpected("exists", path, &other)),
        }
    }

    /// Returns a node's data and stat.
    ///
    /// # Errors
    ///
    /// `Error::NoNode`, `Error::NoAuth`; `Error::ConnectionLoss`, `Error::SessionExpired`.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    pub async fn get_data(&self, path: &str) -> Result<(Vec<u8>, Stat)> {
        match self.request(Request::GetData { path: self.to_server_path(path), watch: false }).await? {
            Response::Data(data, stat) => Ok((data, stat)),
            other => Err(unexpected("getData", path, &other)),
        }
    }

    /// Reads as [`get_data`](Self::get_data) does, and sets a watch for the change or deletion of the node. A missing
    /// node leaves no watch on the server.
    ///
    /// # Errors
    ///
    /// As [`get_data`](Self::get_data).
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped. A watch that was set wakes no task then.
    pub async fn get_data_watched(&self, path: &str) -> Result<WatchedData> {
        let full = self.to_server_path(path);
        let mut watch = self.inner.watches.register(&full, WatchKind::Data);
        let (response, epoch) = self.request_with_epoch(Request::GetData { path: full, watch: true }).await?;
        match response {
            Response::Data(data, stat) => {
                watch.answered();
                watch.confirm(Found::new(epoch, &stat));
                Ok(WatchedData { data, stat, watch })
            }
            other => Err(unexpected("getData", path, &other)),
        }
    }

    /// Shares a watch that this session has already on a node, without a request. Returns `None` unless a read found
    /// the node and its watch has not fired. As far as the session knows, the node is unchanged since that read. The
    /// shared watch fires in order with all other events.
    #[must_use]
    pub fn share_watch(&self, path: &str) -> Option<Watch> {
        self.inner.watches.join(&self.to_server_path(path))
    }

    /// Changes a node's data and returns its new stat.
    ///
    /// # Errors
    ///
    /// `Error::NoNode`, `Error::BadVersion`, `Error::NoAuth`; `Error::ConnectionLoss`, `Error::SessionExpired`.
    ///
    /// # Cancel safety
    ///
    /// After the future is dropped the data may still be changed.
    pub async fn set_data(&self, path: &str, data: Vec<u8>, version: Option<i32>) -> Result<Stat> {
        match self.request(Request::SetData { path: self.to_server_path(path), data, version }).await? {
            Response::Stat(stat) => Ok(stat),
            other => Err(unexpected("setData", path, &other)),
        }
    }

    /// Returns the names of a node's children, in no particular order.
    ///
    /// # Errors
    ///
    /// `Error::NoNode`, `Error::NoAuth`; `Error::ConnectionLoss`, `Error::SessionExpired`.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    pub async fn get_children(&self, path: &str) -> Result<Vec<String>> {
        match self.request(Request::GetChildren { path: self.to_server_path(path), watch: false }).await? {
            Response::Children(children) => Ok(children),
            other => Err(unexpected("getChildren", path, &other)),
        }
    }

    /// Reads as [`get_children`](Self::get_children) does, and sets a watch for the creation or deletion of a child.
    ///
    /// # Errors
    ///
    /// As [`get_children`](Self::get_children).
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped. A watch that was set wakes no task then.
    pub async fn get_children_watched(&self, path: &str) -> Result<(Vec<String>, Watch)> {
        let full = self.to_server_path(path);
        let mut watch = self.inner.watches.register(&full, WatchKind::Children);
        match self.request(Request::GetChildren { path: full, watch: true }).await? {
            Response::Children(children) => {
                watch.answered();
                Ok((children, watch))
            }
            other => Err(unexpected("getChildren", path, &other)),
        }
    }

    /// Returns a node's access control list and stat.
    ///
    /// # Errors
    ///
    /// `Error::NoNode`, `Error::NoAuth`; `Error::ConnectionLoss`, `Error::SessionExpired`.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    pub async fn get_acl(&self, path: &str) -> Result<(Vec<Acl>, Stat)> {
        match self.request(Request::GetAcl { path: self.to_server_path(path) }).await? {
            Response::Acl(acl, stat) => Ok((acl, stat)),
            other => Err(unexpected("getACL", path, &other)),
        }
    }

    /// Changes a node's access control list and returns its new stat.
    ///
    /// # Errors
    ///
    /// `Error::NoNode`, `Error::BadVersion`, `Error::NoAuth`, `Error::InvalidAcl`; `Error::ConnectionLoss`,
    /// `Error::SessionExpired`.
    ///
    /// # Cancel safety
    ///
    /// After the future is dropped the list may still be changed.
    pub async fn set_acl(&self, path: &str, acl: Vec<Acl>, version: Option<i32>) -> Result<Stat> {
        Acl::check(&acl, path)?;
        match self.request(Request::SetAcl { path: self.to_server_path(path), acl, version }).await? {
            Response::Stat(stat) => Ok(stat),
            other => Err(unexpected("setACL", path, &other)),
        }
    }

    pub(super) fn unsupported(&self, request: &str) -> Error {
        let client = self.inner.handle.client();
        Error::Unsupported { request: request.into(), client, needed: DEFAULT_CLIENT }
    }

    /// Resolves when the connected server has applied what the leader had committed, so that later reads are not older
    /// than that: Curator's `sync()`.
    ///
    /// # Errors
    ///
    /// `Error::Unsupported`; `Error::ConnectionLoss`, `Error::SessionExpired`.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    pub async fn sync(&self, path: &str) -> Result<()> {
        if !self.inner.handle.capabilities().sync {
            return Err(self.unsupported("sync"));
        }
        match self.request(Request::Sync { path: self.to_server_path(path) }).await? {
            Response::Synced => Ok(()),
            other => Err(unexpected("sync", path, &other)),
        }
    }

    /// Changes the servers of the ensemble and returns the new configuration. No retry.
    pub(crate) async fn reconfig(
        &self,
        joining: &[String],
        leaving: &[String],
        members: &[String],
        version: Option<i64>,
    ) -> Result<(Vec<u8>, Stat)> {
        if !self.inner.handle.capabilities().reconfig {
            return Err(self.unsupported("reconfig"));
        }
        let [joining, leaving, members] = [joining, leaving, members].map(<[String]>::to_vec);
        match self.request(Request::Reconfig { joining, leaving, members, version }).await? {
            Response::Data(data, stat) => Ok((data, stat)),
            other => Err(unexpected("reconfig", CONFIG_NODE, &other)),
        }
    }

    /// Applies all of the operations or none, and returns the result of each. No retry.
    ///
    /// # Errors
    ///
    /// * `Error::Transaction` (of the first operation that fails), `Error::Unsupported`, `Error::Closed`: nothing was
    ///   applied.
    /// * `Error::ConnectionLoss`, `Error::SessionExpired`: the outcome may be unknown, also if the client is closed
    ///   before the reply.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, the changes may be made.
    pub async fn transaction(&self, operations: Vec<Operation>) -> Result<Vec<Done>> {
        if !self.has_transactions() {
            return Err(self.unsupported("send transactions"));
        }
        if operations.is_empty() {
            return Ok(Vec::new());
        }
        for operation in &operations {
            if let Operation::Create { path, acl, mode, .. } = operation {
                Acl::check(acl, path)?;
                mode.check_ttl()?;
            }
        }
        let operations: Vec<_> = operations.into_iter().map(|operation| self.full_operation(operation)).collect();
        let count = operations.len();
        match self.request(Request::Transaction { operations }).await? {
            Response::Done(done) if done.len() == count => {
                Ok(done.into_iter().map(|done| self.to_client_path(done)).collect())
            }
            other => Err(unexpected("multi", "", &other)),
        }
    }

    fn full_operation(&self, operation: Operation) -> Operation {
        match operation {
            Operation::Create { path, data, acl, mode } => {
                Operation::Create { path: self.to_server_path_of_new(&path, mode).to_string(), data, acl, mode }
            }
            Operation::Delete { path, version } => {
                Operation::Delete { path: self.to_server_path(&path).to_string(), version }
            }
            Operation::SetData { path, data, version } => {
                Operation::SetData { path: self.to_server_path(&path).to_string(), data, version }
            }
            Operation::Check { path, version } => {
                Operation::Check { path: self.to_server_path(&path).to_string(), version }
            }
        }
    }

    fn to_client_path(&self, done: Done) -> Done {
        match done {
            Done::Created { path, stat } => {
                self.inner.reaper.touch_parent(parent_of(&path), self.inner.clock.now());
                Done::Created { path: self.root.to_client_path(&path).to_owned(), stat }
            }
            other => other,
        }
    }

    /// Sends a write that changes nothing, as a barrier. After its reply, every earlier write of this session is
    /// applied or never will be, and reads are not older than that.
    ///
    /// # Errors
    ///
    /// `Error::ConnectionLoss`, `Error::SessionExpired`.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    pub async fn write_barrier(&self) -> Result<()> {
        match self.in_namespace(Namespace::default()).delete(&nonexistent_path(&*self.inner.randomness), None).await {
            Ok(()) | Err(Error::NoNode { .. }) => Ok(()),
            Err(error) => Err(error.renamed(INTERNAL_BARRIER)),
        }
    }
}

fn unexpected(request: &str, path: &str, response: &Response) -> Error {
    tracing::error!(request, path, answer = response.kind(), "a handle answered a request with another one's response");
    Error::SessionExpired { request: format!("{request} {path}").into() }
}
