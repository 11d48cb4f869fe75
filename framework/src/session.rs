//! One session with the ensemble, from its first answer to its end.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::claim::{NodeClaim, ProtectedId};
use crate::client::Config;
use crate::clock::Clock;
use crate::connection_state::Proofs;
use crate::error::{Error, Result};
use crate::handle::{Connection, Request, Response, SessionEnd, ZooKeeperHandle};
use crate::housekeeping::{Housekeeping, Leftovers};
use crate::mutants::{Mutant, is_broken};
use crate::observed::Observed;
use crate::path::{make_path, parent_of};
use crate::randomness::{Randomness, nowhere};
use crate::watch::{Watch, WatchKind, WatchRegistry};
use crate::zookeeper::{Acl, CreateMode, Stat};

/// One ZooKeeper session. A recipe takes one for each attempt and sends every request of that attempt through it.
///
/// When the session is over, every request fails with [`Error::SessionExpired`]; none is carried over to the next
/// session. So nothing is ever decided on a node of an earlier one (CURATOR-604).
///
/// # Cancel safety
///
/// A request whose future is dropped may still be applied. What must not be left behind belongs in a [`NodeClaim`].
#[derive(Clone)]
pub struct Session {
    inner: Arc<Inner>,
}

struct Inner {
    number: u64,
    handle: Arc<dyn ZooKeeperHandle>,
    clock: Arc<dyn Clock>,
    randomness: Arc<dyn Randomness>,
    timeout: Duration,
    vital: Mutex<Vital>,
    link: Observed<Link>,
    end: OnceLock<SessionEnd>,
    ended: Notify,
    watches: WatchRegistry,
    housekeeping: Housekeeping,
}

/// What is due when.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Schedule {
    pub(crate) deadline: Duration,
    pub(crate) silent: Duration,
    pub(crate) heartbeat: Duration,
    pub(crate) held: bool,
}

/// What the deadline is computed from.
struct Vital {
    proofs: Proofs,
    claims: usize,
}

/// The connection under the session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Link {
    up: bool,
    reconnects: u64,
}

impl Session {
    /// A session that was just established, with its housekeeping task.
    pub(crate) fn new(number: u64, connection: &Connection, config: &Config, leftovers: Arc<Leftovers>) -> Self {
        let (housekeeping, tasks) = Housekeeping::new(leftovers);
        let proofs = Proofs::new(connection.handle.negotiated_timeout(), connection.established, connection.sent);
        let session = Self {
            inner: Arc::new(Inner {
                number,
                handle: Arc::clone(&connection.handle),
                clock: Arc::clone(&config.clock),
                randomness: Arc::clone(&config.randomness),
                timeout: connection.handle.negotiated_timeout(),
                vital: Mutex::new(Vital { proofs, claims: 0 }),
                link: Observed::new(Link { up: true, reconnects: 0 }),
                end: OnceLock::new(),
                ended: Notify::new(),
                watches: WatchRegistry::default(),
                housekeeping,
            }),
        };
        tokio::spawn(tasks.run(session.clone()));
        session
    }

    /// The session's number in its client, from 1. It is not ZooKeeper's session id, which is
    /// [`Stat::ephemeral_owner`] of its nodes.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.inner.number
    }

    /// The session timeout that the server granted.
    #[must_use]
    pub fn timeout(&self) -> Duration {
        self.inner.timeout
    }

    /// Until when the session certainly lives, on the client's clock. While a claim exists only what the leader knows
    /// counts.
    pub(crate) fn deadline(&self) -> Duration {
        let vital = self.inner.vital.lock();
        vital.proofs.deadline(vital.claims > 0)
    }

    /// When the session is lost, when it is silent, and when a heartbeat is due; and whether something is held.
    pub(crate) fn schedule(&self) -> Schedule {
        let vital = self.inner.vital.lock();
        let held = vital.claims > 0;
        let proofs = &vital.proofs;
        Schedule {
            deadline: proofs.deadline(held),
            silent: proofs.silent(held),
            heartbeat: proofs.heartbeat(held),
            held,
        }
    }

    /// How long the session certainly lives from now on if nothing more is heard. Local, no request.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        if self.end_reason().is_some() {
            return Duration::ZERO;
        }
        if is_broken(Mutant::IgnoreTheDeadline) {
            return self.inner.timeout;
        }
        self.deadline().saturating_sub(self.inner.clock.now())
    }

    /// Whether the session certainly lives. It compares the clock with the deadline and depends on no timer, so it is
    /// right also at the first look after the process or the machine slept.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        !self.remaining().is_zero()
    }

    /// Why the session is over, if it is.
    #[must_use]
    pub fn end_reason(&self) -> Option<SessionEnd> {
        self.inner.end.get().copied()
    }

    /// Resolves when the session is over.
    pub async fn ended(&self) -> SessionEnd {
        loop {
            let notified = self.inner.ended.notified();
            if let Some(end) = self.end_reason() {
                return end;
            }
            notified.await;
        }
    }

    /// Whether the session has a connection that is proven.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.end_reason().is_none() && self.inner.link.get().up
    }

    /// How often the session was connected again. Watches that were set before the newest time are gone.
    #[must_use]
    pub fn reconnects(&self) -> u64 {
        self.inner.link.get().reconnects
    }

    /// Resolves when the session has a connection.
    ///
    /// # Errors
    ///
    /// `SessionExpired` when it ends instead, which it does at its deadline at the latest.
    pub async fn connected(&self) -> Result<()> {
        tokio::select! {
            biased;
            _ = self.ended() => Err(Error::SessionExpired { request: "waiting for the connection".to_owned() }),
            _ = self.inner.link.wait_for(|link| link.up) => Ok(()),
        }
    }

    /// Ends the session: nobody is told anything else about it from now on.
    pub(crate) fn finish(&self, end: SessionEnd) {
        if self.inner.end.set(end).is_err() {
            return;
        }
        self.inner.ended.notify_waiters();
        self.inner.handle.end();
        self.inner.watches.session_ended(end);
    }

    pub(crate) fn set_disconnected(&self) {
        self.inner.link.modify(|link| link.up = false);
    }

    pub(crate) fn set_reconnected(&self) {
        self.inner.link.modify(|link| {
            link.up = true;
            link.reconnects += 1;
        });
        if !is_broken(Mutant::SleepThroughReconnects) {
            self.inner.watches.reconnected();
        }
    }

    /// Books an answer: `sent` is when its request left.
    pub(crate) fn answered(&self, sent: Duration, through_leader: bool) {
        let through_leader = through_leader || is_broken(Mutant::ReadsMoveTheDeadline);
        let now = self.inner.clock.now();
        self.inner.vital.lock().proofs.answered(sent, now, through_leader);
    }

    pub(crate) fn claim_begins(&self) {
        let mut vital = self.inner.vital.lock();
        if vital.claims == 0 {
            vital.proofs.holding_begins();
        }
        vital.claims += 1;
    }

    pub(crate) fn claim_ends(&self) {
        self.inner.vital.lock().claims -= 1;
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

    pub(crate) fn housekeeping(&self) -> &Housekeeping {
        &self.inner.housekeeping
    }

    /// Sends one request in this session. No retry.
    async fn request(&self, request: Request) -> Result<Response> {
        let expired = |name: String| Err(Error::SessionExpired { request: name });
        let through_leader = request.goes_through_leader();
        if self.end_reason().is_some() {
            return expired(request.to_string());
        }
        let path = request.path().to_owned();
        let name = request.name();
        let reply = self.inner.handle.submit(request);
        let reply = tokio::select! {
            biased;
            reply = reply => reply,
            _ = self.ended() => return expired(format!("{name} {path}")),
        };
        // The end may have come in while the reply waited to be looked at.
        if self.end_reason().is_some() {
            return expired(format!("{name} {path}"));
        }
        let (answered, by_leader) = match &reply.result {
            Ok(_) => (true, through_leader),
            Err(error) => (error.is_answer(), through_leader && error.is_answer_of_leader()),
        };
        if let (true, Some(sent)) = (answered, reply.sent) {
            self.answered(sent, by_leader);
        }
        reply.result
    }

    /// Creates a node and returns its path, with the number that the server appended, and its stat.
    ///
    /// # Errors
    ///
    /// `NodeExists`, `NoNode` (no parent), `NoChildrenForEphemerals`, `NoAuth`, `InvalidAcl`; `ConnectionLoss`,
    /// `SessionExpired`.
    pub async fn create(&self, path: &str, data: Vec<u8>, acl: Vec<Acl>, mode: CreateMode) -> Result<(String, Stat)> {
        match self.request(Request::Create { path: path.to_owned(), data, acl, mode }).await? {
            Response::Created { path, stat } => Ok((path, stat)),
            other => Err(unexpected("create", path, &other)),
        }
    }

    /// Creates the parents of a node, persistent and empty, as far as they are missing.
    ///
    /// # Errors
    ///
    /// As [`create`](Self::create).
    pub async fn create_parents(&self, path: &str, acl: &[Acl]) -> Result<()> {
        let mut missing = vec![parent_of(path).to_owned()];
        while let Some(parent) = missing.last() {
            if parent == "/" {
                missing.pop();
                continue;
            }
            match self.create(parent, Vec::new(), acl.to_vec(), CreateMode::Persistent).await {
                Ok(_) | Err(Error::NodeExists { .. }) => {
                    missing.pop();
                }
                Err(Error::NoNode { .. }) => {
                    let above = parent_of(parent).to_owned();
                    missing.push(above);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Deletes a node.
    ///
    /// # Errors
    ///
    /// `NoNode`, `NotEmpty`, `BadVersion`, `NoAuth`; `ConnectionLoss`, `SessionExpired`.
    pub async fn delete(&self, path: &str, version: Option<i32>) -> Result<()> {
        match self.request(Request::Delete { path: path.to_owned(), version }).await? {
            Response::Deleted => Ok(()),
            other => Err(unexpected("delete", path, &other)),
        }
    }

    /// The stat of a node, or `None` if it does not exist.
    ///
    /// # Errors
    ///
    /// `ConnectionLoss`, `SessionExpired`.
    pub async fn exists(&self, path: &str) -> Result<Option<Stat>> {
        match self.request(Request::Exists { path: path.to_owned(), watch: false }).await? {
            Response::Exists(stat) => Ok(stat),
            other => Err(unexpected("exists", path, &other)),
        }
    }

    /// As [`exists`](Self::exists), and a watch for the creation, change or deletion of the node.
    ///
    /// # Errors
    ///
    /// As [`exists`](Self::exists).
    pub async fn exists_watched(&self, path: &str) -> Result<(Option<Stat>, Watch)> {
        let watch = self.inner.watches.register(path, WatchKind::Data);
        match self.request(Request::Exists { path: path.to_owned(), watch: true }).await? {
            Response::Exists(stat) => Ok((stat, watch)),
            other => Err(unexpected("exists", path, &other)),
        }
    }

    /// A node's data and stat.
    ///
    /// # Errors
    ///
    /// `NoNode`, `NoAuth`; `ConnectionLoss`, `SessionExpired`.
    pub async fn get_data(&self, path: &str) -> Result<(Vec<u8>, Stat)> {
        match self.request(Request::GetData { path: path.to_owned(), watch: false }).await? {
            Response::Data(data, stat) => Ok((data, stat)),
            other => Err(unexpected("getData", path, &other)),
        }
    }

    /// As [`get_data`](Self::get_data), and a watch for the change or deletion of the node. A missing node leaves no
    /// watch on the server.
    ///
    /// # Errors
    ///
    /// As [`get_data`](Self::get_data).
    pub async fn get_data_watched(&self, path: &str) -> Result<(Vec<u8>, Stat, Watch)> {
        let watch = self.inner.watches.register(path, WatchKind::Data);
        match self.request(Request::GetData { path: path.to_owned(), watch: true }).await? {
            Response::Data(data, stat) => Ok((data, stat, watch)),
            other => Err(unexpected("getData", path, &other)),
        }
    }

    /// Changes a node's data and returns its new stat.
    ///
    /// # Errors
    ///
    /// `NoNode`, `BadVersion`, `NoAuth`; `ConnectionLoss`, `SessionExpired`.
    pub async fn set_data(&self, path: &str, data: Vec<u8>, version: Option<i32>) -> Result<Stat> {
        match self.request(Request::SetData { path: path.to_owned(), data, version }).await? {
            Response::Stat(stat) => Ok(stat),
            other => Err(unexpected("setData", path, &other)),
        }
    }

    /// The names of a node's children, in no order.
    ///
    /// # Errors
    ///
    /// `NoNode`, `NoAuth`; `ConnectionLoss`, `SessionExpired`.
    pub async fn get_children(&self, path: &str) -> Result<Vec<String>> {
        match self.request(Request::GetChildren { path: path.to_owned(), watch: false }).await? {
            Response::Children(children) => Ok(children),
            other => Err(unexpected("getChildren", path, &other)),
        }
    }

    /// As [`get_children`](Self::get_children), and a watch for the creation or deletion of a child.
    ///
    /// # Errors
    ///
    /// As [`get_children`](Self::get_children).
    pub async fn get_children_watched(&self, path: &str) -> Result<(Vec<String>, Watch)> {
        let watch = self.inner.watches.register(path, WatchKind::Children);
        match self.request(Request::GetChildren { path: path.to_owned(), watch: true }).await? {
            Response::Children(children) => Ok((children, watch)),
            other => Err(unexpected("getChildren", path, &other)),
        }
    }

    /// A node's access control list and stat.
    ///
    /// # Errors
    ///
    /// `NoNode`, `NoAuth`; `ConnectionLoss`, `SessionExpired`.
    pub async fn get_acl(&self, path: &str) -> Result<(Vec<Acl>, Stat)> {
        match self.request(Request::GetAcl { path: path.to_owned() }).await? {
            Response::Acl(acl, stat) => Ok((acl, stat)),
            other => Err(unexpected("getACL", path, &other)),
        }
    }

    /// Changes a node's access control list and returns its new stat.
    ///
    /// # Errors
    ///
    /// `NoNode`, `BadVersion`, `NoAuth`, `InvalidAcl`; `ConnectionLoss`, `SessionExpired`.
    pub async fn set_acl(&self, path: &str, acl: Vec<Acl>, version: Option<i32>) -> Result<Stat> {
        match self.request(Request::SetAcl { path: path.to_owned(), acl, version }).await? {
            Response::Stat(stat) => Ok(stat),
            other => Err(unexpected("setACL", path, &other)),
        }
    }

    /// A write that changes nothing. When it is answered, every earlier write of this session is either applied or
    /// never will be, and what is read next is not older than that.
    ///
    /// # Errors
    ///
    /// `ConnectionLoss`, `SessionExpired`.
    pub async fn order(&self) -> Result<()> {
        match self.delete(&nowhere(&*self.inner.randomness), None).await {
            Ok(()) | Err(Error::NoNode { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// A claim on a node under `parent` whose name will be `_c_<uuid>-<name>`, before anything is sent.
    #[must_use]
    pub fn claim(&self, parent: &str, name: &str, mode: CreateMode) -> NodeClaim {
        NodeClaim::new(self.clone(), parent, self.new_id(), name, mode)
    }

    pub(crate) fn new_id(&self) -> ProtectedId {
        ProtectedId::new(&*self.inner.randomness)
    }

    /// The path of a node under a claim, without its number.
    pub(crate) fn protected_path(parent: &str, id: ProtectedId, name: &str) -> String {
        make_path(parent, &format!("{}{name}", id.prefix()))
    }
}

fn unexpected(request: &str, path: &str, response: &Response) -> Error {
    tracing::error!(request, path, ?response, "a handle answered a request with another one's response");
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
