//! One session with the ensemble, from its first reply to its end.

pub(crate) mod background;
pub(crate) mod container_reaper;
pub(crate) mod delete_tree;
pub(crate) mod liveness;
pub(crate) mod owned_node;
pub(crate) mod timers;
pub(crate) mod watches;

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use futures_util::TryFutureExt as _;
use parking_lot::Mutex;
use tokio::sync::SetOnce;

use crate::environment::clock::Clock;
use crate::environment::randomness::{Randomness, nonexistent_path};
use crate::error::{Error, Result};
use crate::model::acl_provider::AclProvider;
use crate::model::namespace::Namespace;
use crate::model::new_node::{NodeSpec, Parents};
use crate::model::path::parent_of;
use crate::model::protected::{ProtectedId, to_protected_path};
use crate::model::schema::SchemaSet;
use crate::model::{Acl, AddWatchMode, CreateMode, Stat, WatchKind};
use crate::session::background::{Background, DeleteBacklog};
use crate::session::container_reaper::ContainerReaper;
use crate::session::liveness::SessionLiveness;
use crate::session::owned_node::OwnedNode;
use crate::session::timers::SessionTimes;
use crate::session::watches::{Found, Watch, WatchRegistry};
use crate::state::connection_state::{ConnectionState, ConnectionStateErrorPolicy};
use crate::sync::watch_cell::WatchCell;
use crate::zookeeper::CONFIG_NODE;
use crate::zookeeper::{
    Connection, Done, Evidence, Operation, Reattached, Reply, Request, Response, SessionEnd, WatchEvents,
    ZooKeeperHandle,
};

/// The part of the session timeout from which on a request is slow.
const SLOW: u32 = 10;

/// The client's options that concern its sessions.
#[derive(Debug)]
pub(crate) struct SessionConfig {
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) randomness: Arc<dyn Randomness>,
    pub(crate) acl_provider: Arc<dyn AclProvider>,
    pub(crate) error_policy: Arc<dyn ConnectionStateErrorPolicy>,
    pub(crate) reaper: Arc<ContainerReaper>,
    pub(crate) schemas: Option<Arc<SchemaSet>>,
}

/// One ZooKeeper session. A recipe takes one for each attempt and sends every request of that attempt through it.
///
/// After its end every request fails with [`Error::SessionExpired`], or with `Closed` if the client was closed. No
/// request moves to the next session, so no decision rests on a node of an earlier session (CURATOR-604).
///
/// # Cancel safety
///
/// If the future of a request is dropped, the request may still be applied. An [`OwnedNode`] deletes its node then.
#[derive(Clone)]
pub struct Session {
    inner: Arc<Inner>,
    /// The prefix of all paths that this handle sends.
    root: Namespace,
    /// The epoch to which the requests are bound.
    pinned: Option<u64>,
}

struct Inner {
    number: u64,
    handle: Arc<dyn ZooKeeperHandle>,
    clock: Arc<dyn Clock>,
    randomness: Arc<dyn Randomness>,
    liveness_state: Mutex<LivenessState>,
    link: WatchCell<ConnectionInfo>,
    end: SetOnce<SessionEnd>,
    watches: WatchRegistry,
    background: Background,
    acl_provider: Arc<dyn AclProvider>,
    error_policy: Arc<dyn ConnectionStateErrorPolicy>,
    reaper: Arc<ContainerReaper>,
    schemas: Option<Arc<SchemaSet>>,
    extensions: Mutex<HashMap<TypeId, Arc<dyn Any + Send + Sync>>>,
}

/// A node's data and stat, with a watch for its change or deletion.
#[derive(Debug)]
pub struct WatchedData {
    /// The data.
    pub data: Vec<u8>,
    /// The stat.
    pub stat: Stat,
    /// The watch.
    pub watch: Watch,
}

/// The inputs of the deadline.
struct LivenessState {
    liveness: SessionLiveness,
    owned_nodes: usize,
    /// The handle knows that the session owns nodes. `report_owning` takes that back later, because locks come and go.
    reported_owning: bool,
}

impl LivenessState {
    /// Returns the evidence that counts: only the leader's while an owned node exists.
    fn evidence(&self) -> Evidence {
        if self.owned_nodes > 0 { Evidence::Leader } else { Evidence::AnyServer }
    }
}

/// The state of the session's connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ConnectionInfo {
    up: bool,
    /// The connection's number within the session.
    epoch: u64,
    /// The number of changes to a state that the client's policy takes for an error.
    errors: u64,
}

impl Session {
    /// Creates the session of a new connection and spawns its background task.
    pub(crate) fn new(
        number: u64,
        connection: &Connection,
        config: &SessionConfig,
        leftovers: Arc<DeleteBacklog>,
    ) -> Self {
        let (background, tasks) = Background::new(leftovers, Arc::clone(&config.reaper));
        let liveness =
            SessionLiveness::new(connection.handle.negotiated_timeout(), connection.established, connection.sent);
        let session = Self {
            inner: Arc::new(Inner {
                number,
                handle: Arc::clone(&connection.handle),
                clock: Arc::clone(&config.clock),
                randomness: Arc::clone(&config.randomness),
                liveness_state: Mutex::new(LivenessState { liveness, owned_nodes: 0, reported_owning: false }),
                link: WatchCell::new(ConnectionInfo { up: true, epoch: connection.epoch, errors: 0 }),
                end: SetOnce::new(),
                watches: watches_of(&connection.handle),
                background,
                acl_provider: Arc::clone(&config.acl_provider),
                error_policy: Arc::clone(&config.error_policy),
                reaper: Arc::clone(&config.reaper),
                schemas: config.schemas.clone(),
                extensions: Mutex::default(),
            }),
            root: Namespace::default(),
            pinned: None,
        };
        tokio::spawn(tasks.run(session.clone()));
        session
    }

    /// Returns the same session for paths below this root.
    pub(crate) fn in_namespace(&self, root: Namespace) -> Self {
        Self { inner: Arc::clone(&self.inner), root, pinned: self.pinned }
    }

    pub(crate) fn root(&self) -> &Namespace {
        &self.root
    }

    /// Returns `true` if both are the same session, for paths in the same namespace.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner) && self.root == other.root
    }

    /// Returns the session's number in its client, from 1. It is not ZooKeeper's session id, which is
    /// [`Stat::ephemeral_owner`] of its nodes.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.inner.number
    }

    /// Returns ZooKeeper's id of the session, as soon as the client knows it.
    #[must_use]
    pub fn id(&self) -> Option<i64> {
        self.inner.handle.session_id()
    }

    /// Returns the session timeout in effect: the smallest one that a server has granted to this session.
    #[must_use]
    pub fn timeout(&self) -> Duration {
        self.inner.liveness_state.lock().liveness.timeout()
    }

    /// Returns the deadline: until when the session is certainly alive, on the client's clock. While an owned node
    /// exists, only what the leader knows counts.
    pub(crate) fn deadline(&self) -> Duration {
        let liveness_state = self.inner.liveness_state.lock();
        liveness_state.liveness.deadline(liveness_state.evidence())
    }

    /// Returns the times of loss, of silence and of the next heartbeat.
    pub(crate) fn times(&self) -> SessionTimes {
        let is_connected = self.is_connected();
        let liveness_state = self.inner.liveness_state.lock();
        let (liveness, evidence) = (&liveness_state.liveness, liveness_state.evidence());
        SessionTimes {
            timeout: liveness.timeout(),
            deadline: liveness.deadline(evidence),
            suspend_at: liveness.suspend_at(evidence),
            heartbeat: liveness.heartbeat(evidence),
            evidence,
            is_connected,
        }
    }

    /// Returns how long the session is certainly alive if no further reply comes. Local, no request.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        if self.end_reason().is_some() {
            return Duration::ZERO;
        }
        self.deadline().saturating_sub(self.inner.clock.now())
    }

    /// Returns `true` while the session is certainly alive. It compares the clock with the deadline and depends on no
    /// timer, so it is right also at the first call after the process or the machine slept.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        !self.remaining().is_zero()
    }

    /// Returns the reason of the session's end, or `None` while it lasts.
    #[must_use]
    pub fn end_reason(&self) -> Option<SessionEnd> {
        self.inner.end.get().copied()
    }

    /// Resolves with the reason when the session ends, at once if it has ended.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    pub async fn ended(&self) -> SessionEnd {
        *self.inner.end.wait().await
    }

    /// Returns `true` while the session has a connection on which a server has accepted it.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.end_reason().is_none() && self.inner.link.get().up
    }

    /// Returns the epoch: the number of the session's connection, which grows with each connection. A request runs on
    /// the connection that is current when it is submitted, or fails. A [pinned](Self::pinned) session keeps its epoch.
    #[must_use]
    pub fn epoch(&self) -> u64 {
        self.pinned.unwrap_or_else(|| self.inner.link.get().epoch)
    }

    /// Returns the same session, pinned to its present connection. When that connection is lost, its requests fail with
    /// `ConnectionLoss`. The replies to its reads reflect the server's transactions in order.
    #[must_use]
    pub fn pinned(&self) -> Self {
        Self { inner: Arc::clone(&self.inner), root: self.root.clone(), pinned: Some(self.epoch()) }
    }

    pub(crate) fn unpinned(&self) -> Self {
        Self { pinned: None, ..self.clone() }
    }

    /// Returns the session's value of this type, for a recipe's state in it. The first call creates it.
    #[must_use]
    pub fn extension<T: Default + Send + Sync + 'static>(&self) -> Arc<T> {
        let mut extensions = self.inner.extensions.lock();
        let kept = extensions.entry(TypeId::of::<T>()).or_insert_with(|| Arc::new(T::default()));
        // The key is the value's type, so the downcast succeeds.
        Arc::clone(kept).downcast().unwrap_or_default()
    }

    /// Resolves when the session has a connection newer than `epoch`.
    pub(crate) async fn epoch_above(&self, epoch: u64) {
        self.inner.link.wait_for(|link| link.up && link.epoch > epoch).await;
    }

    /// Resolves when the session has a connection.
    ///
    /// # Errors
    ///
    /// `SessionExpired`: the session ended first, at its deadline at the latest. `Closed`: the client was closed.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    pub async fn connected(&self) -> Result<()> {
        tokio::select! {
            biased;
            _ = self.ended() => Err(self.closed_error("waiting for the connection")),
            _ = self.inner.link.wait_for(|link| link.up) => Ok(()),
        }
    }

    /// Ends the session, once: resolves [`ended`](Self::ended), ends the handle and wakes all watches.
    pub(crate) fn finish(&self, end: SessionEnd) {
        if self.inner.end.set(end).is_err() {
            return;
        }
        self.inner.handle.end();
        self.inner.watches.session_ended(end);
    }

    /// Records a state of the connection. If the client's policy takes it for an error, all owned nodes count as lost.
    pub(crate) fn on_state_change(&self, state: ConnectionState) {
        if self.inner.error_policy.is_error_state(state) {
            self.inner.link.modify(|link| link.errors += 1);
        }
    }

    /// Returns how often the connection was in an error state. If silence is one, it compares the clock with the time
    /// of silence too, so that the first call after a sleep is right.
    pub(crate) fn errors(&self) -> u64 {
        let errors = self.inner.link.get().errors;
        let silence_is_error = self.inner.error_policy.is_error_state(ConnectionState::Suspended);
        if silence_is_error && self.inner.clock.now() >= self.times().suspend_at {
            return self.inner.link.modify(|link| {
                link.errors += 1;
                link.errors
            });
        }
        errors
    }

    /// Resolves when the connection has been in an error state more often than `errors`.
    pub(crate) async fn errors_above(&self, errors: u64) {
        self.inner.link.wait_for(|link| link.errors > errors).await;
    }

    pub(crate) fn set_disconnected(&self) {
        self.inner.link.modify(|link| link.up = false);
    }

    pub(crate) fn set_shortened(&self, sent: Duration, timeout: Duration) {
        self.inner.liveness_state.lock().liveness.shortened(sent, timeout);
    }

    pub(crate) fn set_reconnected(&self, reattached: &Reattached) {
        let now = self.inner.clock.now();
        let Reattached { sent, leader_sent, timeout, epoch } = *reattached;
        self.inner.liveness_state.lock().liveness.reattached(sent, now, timeout, epoch);
        if let Some(sent) = leader_sent {
            self.answered_at(now, sent, epoch, Evidence::Leader);
        }
        self.inner.link.modify(|link| {
            link.up = true;
            link.epoch = epoch;
        });
        if !self.inner.handle.capabilities().restores_watches {
            self.inner.watches.reconnected();
        }
    }

    /// Records the reply to a heartbeat, which gives this evidence.
    pub(crate) fn on_heartbeat(&self, reply: &Reply, evidence: Evidence) {
        let alive = matches!(reply.result, Ok(_) | Err(Error::NoNode { .. }));
        if let (true, Some(sent)) = (alive, reply.sent) {
            self.answered_at(self.inner.clock.now(), sent, reply.epoch, evidence);
        }
    }

    fn answered_at(&self, now: Duration, sent: Duration, epoch: u64, evidence: Evidence) {
        self.inner.liveness_state.lock().liveness.answered(sent, now, epoch, evidence);
    }

    pub(crate) fn add_owned_node(&self) {
        let mut liveness_state = self.inner.liveness_state.lock();
        liveness_state.owned_nodes += 1;
        if liveness_state.owned_nodes == 1 {
            liveness_state.liveness.on_first_owned_node();
            if !std::mem::replace(&mut liveness_state.reported_owning, true) {
                self.inner.handle.set_owning(true);
            }
        }
    }

    pub(crate) fn remove_owned_node(&self) {
        let mut liveness_state = self.inner.liveness_state.lock();
        liveness_state.owned_nodes -= 1;
    }

    /// Notifies the handle if the session no longer owns a node.
    pub(crate) fn report_owning(&self) {
        let mut liveness_state = self.inner.liveness_state.lock();
        if liveness_state.owned_nodes == 0 && std::mem::take(&mut liveness_state.reported_owning) {
            self.inner.handle.set_owning(false);
        }
    }

    pub(crate) fn clock(&self) -> &Arc<dyn Clock> {
        &self.inner.clock
    }

    pub(crate) fn handle(&self) -> &Arc<dyn ZooKeeperHandle> {
        &self.inner.handle
    }

    pub(crate) fn watches(&self) -> &WatchRegistry {
        &self.inner.watches
    }

    pub(crate) fn background(&self) -> &Background {
        &self.inner.background
    }

    pub(crate) fn reaper(&self) -> &ContainerReaper {
        &self.inner.reaper
    }

    pub(crate) fn schemas(&self) -> Option<&SchemaSet> {
        self.inner.schemas.as_deref()
    }

    /// Returns the path as the server knows it.
    fn to_server_path(&self, path: &str) -> Arc<str> {
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
    pub fn closed_error(&self, request: impl Into<String>) -> Error {
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
        async move {
            let over = |sent: bool| {
                let request = format!("{name} {path}");
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
                return Err(over(reply.sent.is_some()));
            }
            let now = self.inner.clock.now();
            let elapsed = now.saturating_sub(reply.sent.unwrap_or(now));
            let outcome = reply.result.as_ref().err();
            tracing::trace!(session = self.inner.number, request = name, path = &*path, ?elapsed, error = ?outcome, "request");
            if elapsed > self.timeout() / SLOW {
                tracing::warn!(session = self.inner.number, request = name, path = &*path, ?elapsed, "slow request");
            }
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
            let epoch = reply.epoch;
            reply.result.map(|response| (response, epoch))
        }
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
    /// `NodeExists`, `NoNode` (no parent), `NoChildrenForEphemerals`, `NoAuth`, `InvalidAcl`; `Unsupported`;
    /// `ConnectionLoss`, `SessionExpired`.
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
        if let Some(request) = unsupported {
            return Err(Error::Unsupported { request: request.to_owned(), client: self.inner.handle.client() });
        }
        match self.request(Request::Create { path: full, data, acl, mode }).await? {
            Response::Created { path, stat } => {
                self.inner.reaper.touch_parent(parent_of(&path), self.inner.clock.now());
                Ok((path, stat))
            }
            other => Err(unexpected("create", path, &other)),
        }
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
    /// As [`create`](Self::create); `NoNode` if the chroot is missing, because the framework never creates it.
    ///
    /// # Cancel safety
    ///
    /// After the future is dropped, some of the parents may exist.
    pub async fn create_parents(&self, path: &str, node: &NodeSpec<'_>) -> Result<bool> {
        let lowest = match node.parents {
            Parents::Expected => self.root.namespace_node().map(str::to_owned),
            Parents::Persistent | Parents::Containers => Some(self.root.full_parent(path)),
        };
        let server = self.in_namespace(Namespace::default());
        let Some(lowest) = lowest else { return Ok(false) };
        let mut missing = vec![lowest];
        while let Some(parent) = missing.last() {
            if self.root.is_given(parent) {
                if parent == "/" {
                    missing.pop();
                    continue;
                }
                return Err(Error::NoNode { path: parent.clone() });
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
            let data = if missing.len() == 1 { node.parent_data.to_vec() } else { Vec::new() };
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
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// Deletes a node.
    ///
    /// # Errors
    ///
    /// `NoNode`, `NotEmpty`, `BadVersion`, `NoAuth`; `ConnectionLoss`, `SessionExpired`.
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
    /// `ConnectionLoss`, `SessionExpired`.
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
    /// `NoNode`, `NoAuth`; `ConnectionLoss`, `SessionExpired`.
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
    /// `NoNode`, `BadVersion`, `NoAuth`; `ConnectionLoss`, `SessionExpired`.
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
    /// `NoNode`, `NoAuth`; `ConnectionLoss`, `SessionExpired`.
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
        let watch = self.inner.watches.register(&full, WatchKind::Children);
        match self.request(Request::GetChildren { path: full, watch: true }).await? {
            Response::Children(children) => Ok((children, watch)),
            other => Err(unexpected("getChildren", path, &other)),
        }
    }

    /// Returns a node's access control list and stat.
    ///
    /// # Errors
    ///
    /// `NoNode`, `NoAuth`; `ConnectionLoss`, `SessionExpired`.
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
    /// `NoNode`, `BadVersion`, `NoAuth`, `InvalidAcl`; `ConnectionLoss`, `SessionExpired`.
    ///
    /// # Cancel safety
    ///
    /// After the future is dropped the list may still be changed.
    pub async fn set_acl(&self, path: &str, acl: Vec<Acl>, version: Option<i32>) -> Result<Stat> {
        match self.request(Request::SetAcl { path: self.to_server_path(path), acl, version }).await? {
            Response::Stat(stat) => Ok(stat),
            other => Err(unexpected("setACL", path, &other)),
        }
    }

    fn unsupported(&self, request: &str) -> Error {
        Error::Unsupported { request: request.to_owned(), client: self.inner.handle.client() }
    }

    /// Resolves when the connected server has applied what the leader had committed, so that later reads are not older
    /// than that: Curator's `sync()`.
    ///
    /// # Errors
    ///
    /// `Unsupported`; `ConnectionLoss`, `SessionExpired`.
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

    /// Sets a persistent watch. Its events carry paths as the server knows them. Dropping the events removes the watch.
    pub(crate) async fn add_watch(&self, path: &str, mode: AddWatchMode) -> Result<WatchEvents> {
        if !self.inner.handle.capabilities().persistent_watches {
            return Err(self.unsupported("add persistent watches"));
        }
        tokio::select! {
            biased;
            _ = self.ended() => Err(self.closed_error(format!("addWatch {path}"))),
            added = self.inner.handle.add_watch(&self.to_server_path(path), mode) => added,
        }
    }

    /// Applies all of the operations or none, and returns the result of each. No retry.
    ///
    /// # Errors
    ///
    /// * `Transaction` (of the first operation that fails), `Unsupported`, `Closed`: nothing was applied.
    /// * `ConnectionLoss`, `SessionExpired`: the outcome may be unknown, also if the client is closed before the reply.
    pub async fn transaction(&self, operations: Vec<Operation>) -> Result<Vec<Done>> {
        let can = self.inner.handle.capabilities();
        if !can.transactions {
            return Err(self.unsupported("send transactions"));
        }
        if operations.is_empty() {
            return Ok(Vec::new());
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
    /// `ConnectionLoss`, `SessionExpired`.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    pub async fn write_barrier(&self) -> Result<()> {
        match self.in_namespace(Namespace::default()).delete(&nonexistent_path(&*self.inner.randomness), None).await {
            Ok(()) | Err(Error::NoNode { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Returns an owned node under `parent`, to be named `_c_<uuid>-<name>`. Sends no request.
    #[must_use]
    pub fn owned_node(&self, parent: &str, name: &str, mode: CreateMode) -> OwnedNode {
        OwnedNode::new(self.clone(), parent, self.new_id(), name, mode)
    }

    pub(crate) fn new_id(&self) -> ProtectedId {
        ProtectedId::new(&*self.inner.randomness)
    }

    /// Returns the path of an owned node, without its number.
    pub(crate) fn protected_path(parent: &str, id: ProtectedId, name: &str) -> String {
        to_protected_path(parent, name, id)
    }
}

fn watches_of(handle: &Arc<dyn ZooKeeperHandle>) -> WatchRegistry {
    if !handle.capabilities().remove_watches {
        return WatchRegistry::default();
    }
    let handle = Arc::clone(handle);
    WatchRegistry::forgetting(move |path, kind| handle.forget_watch(path, kind))
}

fn unexpected(request: &str, path: &str, response: &Response) -> Error {
    tracing::error!(request, path, answer = response.kind(), "a handle answered a request with another one's response");
    Error::SessionExpired { request: format!("{request} {path}") }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("number", &self.inner.number)
            .field("link", &self.inner.link)
            .field("end", &self.inner.end.get())
            .finish_non_exhaustive()
    }
}
