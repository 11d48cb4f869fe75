//! The adapter to the crate `zookeeper-client`, the only file that names it.
//!
//! The crate matches replies by their number, adds credentials to every connection before anything else, and tells
//! session id and negotiated timeout. What it does not guarantee is added here:
//!
//! * It takes whatever session a server gives it at a reconnect, and goes on in a new one after a read-only one. So
//!   after every reconnect an ephemeral node is created and deleted, in one round trip, whose owner must be this
//!   session; only then is the handle connected. A read-only handle ends when it is disconnected.
//! * A change of its state can be missed, a reply cannot be taken back: the state is looked at before a request is sent
//!   and when its answer is there, and an answer of another connection counts as lost.
//! * What it had not sent when its connection broke, it sends on the next one. Whoever waits for it is told at once that
//!   the connection was lost; and it is sent before the proof.
//! * A reply that never comes, although later ones did, ends the handle.
//! * It forgets persistent watches at a reconnect: they end with the connection, and whoever has one sets it anew. The
//!   others it sets again, although all who wait are woken then, so they are dropped.
//! * Each watch has a channel of its own; in which order several fired is written down as they fire. A watch that fired
//!   before it could be looked at has no place in that order: its read is repeated.
//! * The granted session timeout is taken from the first connect. A later server that grants less is not noticed, so all
//!   servers must have the same limits.
//! * Why a server could not be reached is not told: it is found out beside it.
//! * At most [`PLACES`] requests are inside the crate, so that a heartbeat does not wait behind thousands.
//! * An ended handle lets the crate's client go, which closes the session behind everything that was sent, on a new
//!   connection if it must.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::FutureExt;
use parking_lot::Mutex;
use tokio::sync::{Notify, mpsc, oneshot, watch};
use zookeeper_client as crate_api;
use zookeeper_client::{Client, Error as ZkError, MultiWriteError, MultiWriteResult, OneshotWatcher, SessionState};

use crate::clock::Clock;
use crate::diagnosis::diagnose;
use crate::error::{ConnectError, Error, Result};
use crate::model::{Acl, CreateMode, EventType, Permission, Stat, WatchedEvent};
use crate::path::{make_path, parent_of};
use crate::protected::ProtectedId;
use crate::randomness::{Randomness, nowhere};
use crate::watch::WatchKind;
use crate::zookeeper::zookeeper_async::handshake::MIN_SESSION_TIMEOUT;
use crate::zookeeper::zookeeper_async::places::Places;
use crate::zookeeper::{
    AddedWatch, Capabilities, ConnectConfig, Connection, Done, HandleEvent, Operation, Reply, ReplyFuture, Request,
    Response, SessionEnd, ZooKeeperFactory, ZooKeeperHandle,
};

const CLIENT: &str = "zookeeper-client";
/// Requests inside the crate at once, beside heartbeat and proof.
const PLACES: usize = 128;
/// How often it is looked whether an answer is overdue.
const OVERDUE: Duration = Duration::from_secs(1);
/// How often a read is repeated because its watch fired before it could be looked at.
const MOST_READS: usize = 16;
/// In how many places a proof of the session's id is tried.
const IDENTITY_TRIES: usize = 4;
/// The pause between tries to prove a connection.
const RETRY_PAUSE: Duration = Duration::from_millis(100);

const CAPABILITIES: Capabilities = Capabilities {
    containers: true,
    ttl: true,
    transactions: true,
    sync: true,
    remove_watches: true,
    persistent_watches: true,
    read_only: true,
    bare_numbers: true,
    reconfig: true,
    tls: cfg!(feature = "tls"),
    sasl: cfg!(feature = "sasl"),
};

/// Connects with the crate `zookeeper-client`, which can do more than the default one: containers, nodes with a time to
/// live, transactions, `sync`, persistent watches, watches that are removed, changes of the ensemble, read-only servers,
/// TLS and SASL (the last two with the features `tls` and `sasl`).
#[derive(Debug, Clone, Copy, Default)]
pub struct ZookeeperClientFactory;

#[async_trait]
impl ZooKeeperFactory for ZookeeperClientFactory {
    fn capabilities(&self) -> Capabilities {
        CAPABILITIES
    }

    fn client(&self) -> &'static str {
        CLIENT
    }

    async fn connect(&self, config: &ConnectConfig) -> Result<Connection, ConnectError> {
        let until = tokio::time::Instant::now() + config.connection_timeout;
        let established = config.clock.now();
        let client = open(config, until).await?;
        let failed = |reason: String| ConnectError::new(config.servers.join(","), reason);
        let negotiated = client.session_timeout();
        if negotiated < MIN_SESSION_TIMEOUT {
            let reason = format!("it grants a session timeout of {negotiated:?}, less than {MIN_SESSION_TIMEOUT:?}");
            return Err(failed(reason));
        }
        let (handle, events) = start(client, config);
        match tokio::time::timeout_at(until, handle.shared.first_answer()).await {
            Ok(Ok(sent)) => {
                if handle.is_read_only() {
                    handle.shared.tell(HandleEvent::ReadOnly);
                }
                Ok(Connection { handle: Arc::new(handle), events, sent, established })
            }
            Ok(Err(error)) => Err(failed(error.to_string())),
            Err(_elapsed) => {
                Err(failed(format!("no answer to the first request within {:?}", config.connection_timeout)))
            }
        }
    }
}

/// Has the crate connect, in a task of its own: what is opened after nobody waits any more is closed again.
async fn open(config: &ConnectConfig, until: tokio::time::Instant) -> Result<Client, ConnectError> {
    let connector = connector(config)?;
    let servers = config.servers.join(",");
    let secure = config.tls.is_some();
    let mut connecting = tokio::spawn(async move {
        let connecting = async {
            #[cfg(feature = "tls")]
            if secure {
                return connector.secure_connect(&servers).await;
            }
            let _only_with_the_feature = secure;
            connector.connect(&servers).await
        };
        tokio::time::timeout_at(until, connecting).await
    });
    // Why a server does not answer takes a while to find out as well.
    let early = tokio::time::timeout_at(until - config.connection_timeout / 2, &mut connecting).await;
    let mut diagnosing = std::pin::pin!(diagnose(config, until));
    let (connected, found) = match early {
        Ok(connected) => (connected, None),
        Err(_elapsed) => tokio::select! {
            biased;
            connected = &mut connecting => (connected, None),
            found = &mut diagnosing => (connecting.await, Some(found)),
        },
    };
    let reason = match connected {
        // Nobody waits for the reasons then.
        Ok(Ok(Ok(client))) => return Ok(client),
        // The servers were reached, and one of them said no.
        Ok(Ok(Err(error @ (ZkError::AuthFailed | ZkError::SessionExpired)))) => {
            return Err(ConnectError::new(config.servers.join(","), error.to_string()));
        }
        Ok(Ok(Err(ZkError::NoHosts))) => "it did not complete the connect".to_owned(),
        Ok(Ok(Err(error))) => error.to_string(),
        Ok(Err(_elapsed)) => format!("not connected within {:?}", config.connection_timeout),
        Err(_panicked) => SessionEnd::ClientFailed.to_string(),
    };
    let found = match found {
        Some(found) => found,
        None => diagnosing.await,
    };
    let failures = config.servers.iter().zip(found);
    Err(ConnectError::from_failures(
        failures.map(|(server, found)| (server.clone(), found.unwrap_or_else(|| reason.clone()))).collect(),
    ))
}

fn connector(config: &ConnectConfig) -> Result<crate_api::Connector, ConnectError> {
    let servers = u32::try_from(config.servers.len()).unwrap_or(u32::MAX).max(1);
    // So long it waits for one server: to be connected, and later for any word of it.
    let patience = (config.session_timeout * 2 / 5).min(config.connection_timeout / servers);
    let mut connector = Client::connector()
        .with_session_timeout(config.session_timeout)
        .with_connection_timeout(patience)
        .with_readonly(config.read_only)
        // Each server once; the framework tries again.
        .with_fail_eagerly();
    for auth in &config.auth {
        connector = connector.with_auth(&auth.scheme, &auth.auth);
    }
    #[cfg(feature = "sasl")]
    if let Some(digest) = &config.sasl {
        connector =
            connector.with_sasl(crate_api::SaslOptions::digest_md5(digest.user.clone(), digest.password.clone()));
    }
    #[cfg(feature = "tls")]
    if let Some(options) = &config.tls {
        // They were looked at when the framework's client was built.
        let failed = |error: ZkError| ConnectError::new(config.servers.join(","), error.to_string());
        let mut tls = crate_api::TlsOptions::new().with_pem_ca(&options.authority).map_err(failed)?;
        if let Some((certificate, key)) = &options.identity {
            tls = tls.with_pem_identity(certificate, key).map_err(failed)?;
        }
        connector = connector.with_tls(tls);
    }
    Ok(connector)
}

/// The crate's connection as it was seen last.
struct Link {
    states: crate_api::StateWatcher,
    /// Counts connections: grows at every loss of the transport.
    epoch: u64,
    up: bool,
    end: Option<SessionEnd>,
}

/// No connection is proven; the first one is the next number.
const NOT_READY: u64 = 0;
/// In place of an epoch: there will be none any more.
const NO_MORE: u64 = u64::MAX;

type Key = (String, WatchKind);
type Fire = Pin<Box<dyn Future<Output = crate_api::WatchedEvent> + Send>>;

/// The watches that reads have left.
#[derive(Default)]
struct Armed {
    next: u64,
    by_key: HashMap<Key, u64>,
    by_id: HashMap<u64, (Key, Fire)>,
}

/// Says which watch fired, in the order in which they did.
struct Bell {
    id: u64,
    rung: mpsc::UnboundedSender<u64>,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        // Without a monitor nobody is to be told.
        let _gone = self.rung.send(self.id);
    }
}

/// What handle and monitor share.
struct Shared {
    /// Taken when the handle ends; the session is closed when the last request has let go of it as well.
    client: Mutex<Option<Arc<Client>>>,
    session_id: i64,
    /// The name of the node that shows the session's id.
    identity: String,
    read_only: bool,
    negotiated: Duration,
    clock: Arc<dyn Clock>,
    randomness: Arc<dyn Randomness>,
    runtime: tokio::runtime::Handle,
    /// Never cleared.
    ended: AtomicBool,
    /// The epoch, or [`NO_MORE`]: whoever waits for an answer of an earlier one waits in vain.
    current: watch::Sender<u64>,
    /// An answer, or its absence, has shown that the handle is of no use any more.
    disproved: Notify,
    link: Mutex<Link>,
    /// The epoch whose connection is proven; requests are sent in that one only.
    ready: AtomicU64,
    places: Places<Asked>,
    /// Requests leave in the order in which they got their places.
    leaving: Mutex<()>,
    /// The newest request, and the newest that was answered: answers come in order.
    asked: AtomicU64,
    answered: AtomicU64,
    armed: Mutex<Armed>,
    rung: mpsc::UnboundedSender<u64>,
    /// Where this session could create ephemeral nodes.
    parents: Mutex<VecDeque<String>>,
    events: mpsc::UnboundedSender<HandleEvent>,
}

/// A request, and where its answer goes.
struct Asked {
    request: Request,
    answer: oneshot::Sender<Reply>,
}

impl Asked {
    /// Answers that the request was not sent.
    fn refuse(self, error: impl FnOnce(String) -> Error) {
        let reply = Reply { sent: None, result: Err(error(self.request.to_string())) };
        // Whoever asked may be gone.
        let _gone = self.answer.send(reply);
    }
}

fn loss(request: String, sent: bool) -> Error {
    Error::ConnectionLoss { request, sent, cause: None }
}

/// The crate's answer, or its panic.
type Answer = std::thread::Result<Result<Answered, Refused>>;
/// An answer, and the watch that it has left.
type Answered = (Response, Option<(WatchKind, OneshotWatcher)>);

/// What the crate says instead of an answer.
enum Refused {
    Request(ZkError),
    Operation(usize, ZkError),
}

impl Refused {
    /// Whether only a server can have said it: neither the crate nor [`perform`] refuses anything with that, as the
    /// latter does with `NodeExists` what the former has no request for, the creation of `/`.
    fn is_the_servers(&self) -> bool {
        use ZkError::{BadVersion, NoAuth, NoChildrenForEphemerals, NoNode, NotEmpty};
        let (Self::Request(error) | Self::Operation(_, error)) = self;
        matches!(error, NoNode | NotEmpty | BadVersion | NoAuth | NoChildrenForEphemerals)
    }
}

impl From<ZkError> for Refused {
    fn from(error: ZkError) -> Self {
        Self::Request(error)
    }
}

impl From<MultiWriteError> for Refused {
    fn from(error: MultiWriteError) -> Self {
        match error {
            MultiWriteError::OperationFailed { index, source } => Self::Operation(index, source),
            MultiWriteError::RequestFailed { source } => Self::Request(source),
            // The enumeration may grow.
            #[allow(unreachable_patterns, reason = "it may")]
            other => Self::Request(other.into()),
        }
    }
}

impl Shared {
    fn has_ended(&self) -> bool {
        self.ended.load(Ordering::SeqCst)
    }

    fn set_ended(&self) {
        self.ended.store(true, Ordering::SeqCst);
        self.current.send_replace(NO_MORE);
    }

    /// An answer has shown that the handle is of no use any more.
    fn disprove(&self) {
        self.set_ended();
        self.disproved.notify_one();
    }

    fn tell(&self, event: HandleEvent) {
        // Nobody listens any more when the handle was dropped; the end comes by its own way then.
        let _gone = self.events.send(event);
    }

    /// Looks at the crate's state, and returns the epoch that is now.
    fn look(&self) -> u64 {
        let mut link = self.link.lock();
        while let Some(state) = link.states.changed().now_or_never() {
            let was_up = std::mem::replace(
                &mut link.up,
                matches!(state, SessionState::SyncConnected | SessionState::ConnectedReadOnly),
            );
            // Of several changes only the last may have been seen.
            if was_up {
                link.epoch += 1;
                let epoch = link.epoch;
                self.current.send_modify(|current| *current = epoch.max(*current));
            }
            let end = match state {
                SessionState::Expired => Some(SessionEnd::Expired),
                SessionState::AuthFailed => Some(SessionEnd::AuthFailed),
                SessionState::Closed => Some(SessionEnd::ClientFailed),
                // What comes next is another session.
                _ if self.read_only => Some(SessionEnd::Expired),
                _ => None,
            };
            if end.is_some() && link.end.is_none() {
                link.end = end;
                self.set_ended();
            }
        }
        link.epoch
    }

    fn is_ready(&self) -> bool {
        !self.has_ended() && self.ready.load(Ordering::SeqCst) == self.look()
    }

    /// Gives a request a place, or puts it in line.
    fn enter(self: &Arc<Self>, asked: Asked) {
        // Nobody waits in line for a connection.
        if !self.is_ready() && !self.has_ended() {
            return asked.refuse(|request| loss(request, false));
        }
        let _leaving = self.leaving.lock();
        if let Some(asked) = self.places.enter(asked) {
            if self.begin_in_place(asked).is_err() {
                self.begin_next();
            }
        }
    }

    /// Leaves a place to the next request in line that can begin.
    fn leave(self: &Arc<Self>) {
        let _leaving = self.leaving.lock();
        self.begin_next();
    }

    fn begin_next(self: &Arc<Self>) {
        while let Some(next) = self.places.leave() {
            if self.begin_in_place(next).is_ok() {
                return;
            }
        }
    }

    fn begin_in_place(self: &Arc<Self>, asked: Asked) -> Result<(), ()> {
        if asked.answer.is_closed() {
            return Err(());
        }
        let epoch = self.look();
        if self.has_ended() {
            asked.refuse(|request| Error::SessionExpired { request });
            return Err(());
        }
        if self.ready.load(Ordering::SeqCst) != epoch {
            asked.refuse(|request| loss(request, false));
            return Err(());
        }
        self.begin(asked, epoch, true)
    }

    /// Those in line were not sent, and are not to wait for another connection.
    fn refuse_waiting(&self) {
        for asked in self.places.take_waiting() {
            asked.refuse(|request| loss(request, false));
        }
    }

    /// Sends a request beside the places: for what goes alone, or must not wait.
    async fn send(self: &Arc<Self>, request: Request, epoch: u64) -> Reply {
        let name = request.to_string();
        let (answer, answered) = oneshot::channel();
        if self.begin(Asked { request, answer }, epoch, false).is_err() {
            return Reply { sent: None, result: Err(Error::SessionExpired { request: name }) };
        }
        answered.await.unwrap_or_else(|_gone| Reply { sent: None, result: Err(loss(name, true)) })
    }

    /// Gives a request to the crate at once, and what comes of it to a task.
    fn begin(self: &Arc<Self>, asked: Asked, epoch: u64, place: bool) -> Result<(), ()> {
        let Asked { request, answer } = asked;
        let client = self.client.lock().clone();
        let Some(client) = client else {
            Asked { request, answer }.refuse(|request| Error::SessionExpired { request });
            return Err(());
        };
        let sent = self.clock.now();
        let number = self.asked.fetch_add(1, Ordering::SeqCst) + 1;
        // The crate decodes a reply where it is waited for, and panics on some.
        let mut future = Box::pin(AssertUnwindSafe(perform(Arc::clone(&client), request.clone())).catch_unwind());
        // The crate takes a request at its future's first poll.
        let first = {
            let mut context = Context::from_waker(Waker::noop());
            std::pin::pin!(tokio::task::coop::unconstrained(&mut future)).poll(&mut context)
        };
        // What the crate refuses by itself was not sent, and is no answer of the server's, which may be here by now.
        let was_sent = match &first {
            Poll::Pending | Poll::Ready(Ok(Ok(_))) => true,
            Poll::Ready(Ok(Err(refused))) => refused.is_the_servers(),
            Poll::Ready(Err(_panicked)) => false,
        };
        let sent = was_sent.then_some(sent);
        let shared = Arc::clone(self);
        self.runtime.spawn(async move {
            let place = Place { shared: &shared, has: place };
            let answered = match first {
                Poll::Ready(answered) => Some(answered),
                Poll::Pending => shared.wait_for(number, epoch, future).await,
            };
            let result = shared.settle(&client, &request, epoch, answered, || answer.is_closed()).await;
            drop(client);
            // Whoever asked may be gone.
            let _gone = answer.send(Reply { sent, result });
            drop(place);
        });
        Ok(())
    }

    /// Waits for an answer; `None` if it will not come. What the crate had not yet sent when its connection broke, it keeps
    /// for the next one.
    async fn wait_for(
        &self,
        number: u64,
        epoch: u64,
        mut answer: impl Future<Output = Answer> + Unpin,
    ) -> Option<Answer> {
        let mut current = self.current.subscribe();
        let mut overtaken = false;
        loop {
            tokio::select! {
                biased;
                answer = &mut answer => {
                    self.answered.fetch_max(number, Ordering::SeqCst);
                    return Some(answer);
                }
                _ = current.wait_for(|&current| current != epoch) => return None,
                () = tokio::time::sleep(OVERDUE) => {
                    if overtaken {
                        return None;
                    }
                    overtaken = self.answered.load(Ordering::SeqCst) > number;
                }
            }
        }
    }

    /// What an answer is worth.
    async fn settle(
        self: &Arc<Self>,
        client: &Arc<Client>,
        request: &Request,
        epoch: u64,
        mut answered: Option<Answer>,
        nobody_waits: impl Fn() -> bool,
    ) -> Result<Response> {
        for _read in 0..MOST_READS {
            let now = self.look();
            if self.has_ended() {
                return Err(Error::SessionExpired { request: request.to_string() });
            }
            if now != epoch {
                // It may be an answer of another session.
                return Err(loss(request.to_string(), true));
            }
            let Some(answer) = answered.take() else {
                tracing::error!(%request, "no answer, although later requests were answered: the handle ends");
                self.disprove();
                return Err(Error::SessionExpired { request: request.to_string() });
            };
            let (response, watch) = match answer {
                Ok(Ok(answer)) => answer,
                Ok(Err(refused)) => return Err(self.translate(refused, request)),
                // The answer could not be understood.
                Err(_panic) => {
                    self.disprove();
                    return Err(Error::SessionExpired { request: request.to_string() });
                }
            };
            if !self.is_expected(request, &response) {
                tracing::error!(%request, "the answer of another session: the handle ends");
                self.disprove();
                return Err(Error::SessionExpired { request: request.to_string() });
            }
            match watch {
                Some((kind, watcher)) if !nobody_waits() => {
                    if self.arm((request.path().to_owned(), kind), watcher, epoch) {
                        return Ok(response);
                    }
                }
                // The crate takes a watch back that is dropped.
                _ => return Ok(response),
            }
            // It fired before it could be looked at, and nobody knows whether before or after others.
            let number = self.asked.fetch_add(1, Ordering::SeqCst) + 1;
            let again = Box::pin(AssertUnwindSafe(perform(Arc::clone(client), request.clone())).catch_unwind());
            answered = self.wait_for(number, epoch, again).await;
        }
        Err(loss(request.to_string(), true))
    }

    /// Keeps a watch until it fires. `false` if it has fired.
    fn arm(&self, key: Key, watcher: OneshotWatcher, epoch: u64) -> bool {
        let mut fire: Fire = Box::pin(watcher.changed());
        let mut armed = self.armed.lock();
        armed.next += 1;
        let id = armed.next;
        let bell = Waker::from(Arc::new(Bell { id, rung: self.rung.clone() }));
        match look_at(&mut fire, &bell) {
            Some(Poll::Pending) => {}
            Some(Poll::Ready(_)) => return false,
            None => {
                drop(armed);
                self.disprove();
                return true;
            }
        }
        // One for each path and kind, as on the server. The older one has its place in the order already.
        if self.look() == epoch && !self.has_ended() && !armed.by_key.contains_key(&key) {
            armed.by_key.insert(key.clone(), id);
            armed.by_id.insert(id, (key, fire));
            return true;
        }
        drop(armed);
        drop(fire);
        true
    }

    /// The event of a watch that fired.
    fn fired(&self, id: u64) -> Option<WatchedEvent> {
        let (_, mut fire) = {
            let mut armed = self.armed.lock();
            let (key, fire) = armed.by_id.remove(&id)?;
            armed.by_key.remove(&key);
            (key, fire)
        };
        match look_at(&mut fire, Waker::noop()) {
            Some(Poll::Ready(event)) => from_crate_event(event),
            Some(Poll::Pending) => None,
            None => {
                self.disprove();
                None
            }
        }
    }

    /// All who wait are woken at the end of a connection, and read again.
    fn disarm(&self) {
        let mut armed = self.armed.lock();
        let watches = std::mem::take(&mut armed.by_id);
        armed.by_key.clear();
        drop(armed);
        drop(watches);
    }

    /// Compares an answer with its request.
    fn is_expected(&self, request: &Request, response: &Response) -> bool {
        let Request::Create { path, mode, .. } = request else { return true };
        let Response::Created { stat, .. } = response else { return false };
        if !mode.is_ephemeral() {
            return true;
        }
        let mut parents = self.parents.lock();
        if !parents.iter().any(|known| known == parent_of(path)) {
            parents.push_back(parent_of(path).to_owned());
            if parents.len() > IDENTITY_TRIES - 1 {
                parents.pop_front();
            }
        }
        stat.ephemeral_owner == self.session_id
    }

    fn translate(&self, refused: Refused, request: &Request) -> Error {
        let (index, error) = match refused {
            Refused::Request(error) => (None, error),
            Refused::Operation(index, error) => (Some(index), error),
        };
        let operation = match (index, request) {
            (Some(index), Request::Transaction { operations }) => operations.get(index).map(|op| (index, op)),
            _ => None,
        };
        let path = operation.map_or_else(|| request.path(), |(_, operation)| operation.path()).to_owned();
        let name = request.to_string();
        let translated = match error {
            ZkError::NoNode => Error::NoNode { path },
            ZkError::NodeExists => Error::NodeExists { path },
            ZkError::NotEmpty => Error::NotEmpty { path },
            ZkError::BadVersion => Error::BadVersion { path },
            ZkError::NoAuth => Error::NoAuth { path },
            ZkError::InvalidAcl => Error::InvalidAcl { path },
            ZkError::NoChildrenForEphemerals => Error::NoChildrenForEphemerals { path },
            ZkError::SessionExpired => {
                self.disprove();
                return Error::SessionExpired { request: name };
            }
            ZkError::MarshallingError => Error::ZooKeeper { code: -5, request: name },
            ZkError::Unimplemented => Error::ZooKeeper { code: -6, request: name },
            ZkError::BadArguments(_) => Error::ZooKeeper { code: -8, request: name },
            ZkError::AuthFailed => Error::ZooKeeper { code: -115, request: name },
            ZkError::SessionMoved => Error::ZooKeeper { code: -118, request: name },
            ZkError::NotReadOnly => Error::ZooKeeper { code: -119, request: name },
            ZkError::NoWatcher => Error::ZooKeeper { code: -121, request: name },
            ZkError::ReconfigDisabled => Error::ZooKeeper { code: -123, request: name },
            ZkError::QuotaExceeded => Error::ZooKeeper { code: -125, request: name },
            ZkError::Throttled => Error::ZooKeeper { code: -127, request: name },
            ZkError::UnexpectedErrorCode(code) => Error::ZooKeeper { code, request: name },
            // Its connection broke, for whatever reason; before it says so, it changes its state. If it has not, then
            // its task is gone.
            _ => {
                tracing::error!(%request, %error, "the client crate stopped working");
                self.disprove();
                return Error::SessionExpired { request: name };
            }
        };
        match operation {
            Some((index, operation)) => {
                Error::Transaction { index, operation: operation.to_string(), source: Box::new(translated) }
            }
            None => translated,
        }
    }

    async fn add_watch(&self, path: &str, recursive: bool) -> Result<mpsc::UnboundedReceiver<WatchedEvent>> {
        let request = format!("addWatch {path}");
        let epoch = self.look();
        if !self.is_ready() {
            return Err(loss(request, false));
        }
        let Some(client) = self.client.lock().clone() else { return Err(Error::SessionExpired { request }) };
        let mode =
            if recursive { crate_api::AddWatchMode::PersistentRecursive } else { crate_api::AddWatchMode::Persistent };
        let mut current = self.current.subscribe();
        let added = tokio::select! {
            biased;
            added = client.watch(path, mode) => added,
            // It is kept for the next connection; what comes of it is dropped, and so taken back.
            _ = current.wait_for(|&current| current != epoch) => return Err(loss(request, true)),
        };
        if self.look() != epoch {
            return Err(loss(request, true));
        }
        let asked = Request::Exists { path: path.to_owned(), watch: true };
        let mut watcher = added.map_err(|error| self.translate(error.into(), &asked))?;
        let (events, receiver) = mpsc::unbounded_channel();
        self.runtime.spawn(async move {
            loop {
                let event = tokio::select! {
                    biased;
                    () = events.closed() => return,
                    event = watcher.changed() => event,
                };
                // The connection is lost, and the crate does not set the watch again.
                if event.event_type == crate_api::EventType::Session {
                    return;
                }
                if let Some(event) = from_crate_event(event) {
                    let _gone = events.send(event);
                }
            }
        });
        Ok(receiver)
    }

    /// Proves the first connection. Returns when the request was sent.
    async fn first_answer(self: &Arc<Self>) -> Result<Duration> {
        let epoch = self.look();
        let request = if self.read_only {
            Request::Exists { path: "/".to_owned(), watch: false }
        } else {
            Request::Sync { path: "/".to_owned() }
        };
        let reply = self.send(request, epoch).await;
        reply.result?;
        self.ready.fetch_max(epoch, Ordering::SeqCst);
        Ok(reply.sent.unwrap_or_default())
    }

    /// Proves that a new connection is the session's: see the module's documentation. Returns when the request was sent.
    async fn prove(self: &Arc<Self>, epoch: u64) -> Result<Duration> {
        // Below the root it uses up no number of a lock's sequence. Where that is forbidden, it goes where it could be
        // done before.
        let mut parents = vec!["/".to_owned()];
        parents.extend(self.parents.lock().iter().rev().filter(|parent| *parent != "/").cloned());
        for parent in parents {
            let path = make_path(&parent, &self.identity);
            // What a lost connection may have left there is deleted by the first try.
            for _try in 0..2 {
                let (acl, mode) = (Acl::open_unsafe(), CreateMode::Ephemeral);
                let create = Request::Create { path: path.clone(), data: Vec::new(), acl, mode };
                let delete = Request::Delete { path: path.clone(), version: None };
                // In one round trip: the second one does not wait for the first one's answer.
                let (created, deleted) = tokio::join!(biased; self.send(create, epoch), self.send(delete, epoch));
                match (created.result, deleted.result) {
                    (Ok(_), Ok(_)) => return Ok(created.sent.unwrap_or_default()),
                    // It may not be deleted there, and goes with the session.
                    (Ok(_), Err(error)) if !error.is_retryable() => return Ok(created.sent.unwrap_or_default()),
                    (Err(Error::NodeExists { .. }), _) => {}
                    (Err(error), _) | (_, Err(error)) if error.is_retryable() => return Err(error),
                    // It may not be created there.
                    _ => break,
                }
            }
        }
        // Nowhere may it be created. What is held is then known only by its own nodes' watches.
        self.ask_leader(nowhere(&*self.randomness), epoch).await
    }

    /// Has the leader answer a write that changes nothing, and returns when it was sent. A `sync` would not do: a leader
    /// that the others have left answers it by itself.
    async fn ask_leader(self: &Arc<Self>, nowhere: String, epoch: u64) -> Result<Duration> {
        let reply = self.send(Request::Delete { path: nowhere, version: None }, epoch).await;
        match reply.result {
            // Of a write only these come from the leader.
            Ok(_) | Err(Error::NoNode { .. }) => Ok(reply.sent.unwrap_or_default()),
            Err(error) => Err(error),
        }
    }

    /// Proves a connection until one is proven. Returns when the proof was sent; `None` if the handle has ended.
    async fn establish(self: Arc<Self>, epoch: u64) -> Option<Duration> {
        while self.look() == epoch && !self.has_ended() {
            if let Ok(sent) = self.prove(epoch).await {
                self.ready.fetch_max(epoch, Ordering::SeqCst);
                return Some(sent);
            }
            tokio::time::sleep(RETRY_PAUSE).await;
        }
        None
    }
}

/// Looks at a watch. `None` if the crate's task is gone: it panics then.
fn look_at(fire: &mut Fire, waker: &Waker) -> Option<Poll<crate_api::WatchedEvent>> {
    let look = || fire.as_mut().poll(&mut Context::from_waker(waker));
    std::panic::catch_unwind(AssertUnwindSafe(look)).ok()
}

/// A request's place; it is left however the request ends.
struct Place<'a> {
    shared: &'a Arc<Shared>,
    has: bool,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        if self.has {
            self.shared.leave();
        }
    }
}

async fn perform(client: Arc<Client>, request: Request) -> Result<Answered, Refused> {
    let data = |watcher| Some((WatchKind::Data, watcher));
    Ok(match request {
        Request::Create { path, data, acl, mode } => {
            let acl: Vec<_> = acl.into_iter().map(to_crate_acl).collect();
            if path == "/" {
                // The crate does not ask.
                return Err(ZkError::NodeExists.into());
            }
            let (stat, sequence) = client.create(&path, &data, &options(mode, &acl)).await?;
            let path = if mode.is_sequential() { format!("{path}{sequence}") } else { path };
            (Response::Created { path, stat: from_crate_stat(&stat) }, None)
        }
        Request::Delete { path, version } => {
            client.delete(&path, version).await?;
            (Response::Deleted, None)
        }
        Request::Exists { path, watch: false } => {
            (Response::Exists(client.check_stat(&path).await?.as_ref().map(from_crate_stat)), None)
        }
        Request::Exists { path, watch: true } => {
            let (stat, watcher) = client.check_and_watch_stat(&path).await?;
            (Response::Exists(stat.as_ref().map(from_crate_stat)), data(watcher))
        }
        Request::GetData { path, watch: false } => {
            let (data, stat) = client.get_data(&path).await?;
            (Response::Data(data, from_crate_stat(&stat)), None)
        }
        Request::GetData { path, watch: true } => {
            let (bytes, stat, watcher) = client.get_and_watch_data(&path).await?;
            (Response::Data(bytes, from_crate_stat(&stat)), data(watcher))
        }
        Request::SetData { path, data, version } => {
            (Response::Stat(from_crate_stat(&client.set_data(&path, &data, version).await?)), None)
        }
        Request::GetChildren { path, watch: false } => (Response::Children(client.list_children(&path).await?), None),
        Request::GetChildren { path, watch: true } => {
            let (children, watcher) = client.list_and_watch_children(&path).await?;
            (Response::Children(children), Some((WatchKind::Children, watcher)))
        }
        Request::GetAcl { path } => {
            let (acl, stat) = client.get_acl(&path).await?;
            (Response::Acl(acl.iter().map(from_crate_acl).collect(), from_crate_stat(&stat)), None)
        }
        Request::SetAcl { path, acl, version } => {
            let acl: Vec<_> = acl.into_iter().map(to_crate_acl).collect();
            if acl.is_empty() {
                return Err(ZkError::InvalidAcl.into());
            }
            (Response::Stat(from_crate_stat(&client.set_acl(&path, &acl, version).await?)), None)
        }
        Request::Sync { path } => {
            client.sync(&path).await?;
            (Response::Synced, None)
        }
        Request::Transaction { operations } => {
            let mut writer = client.new_multi_writer();
            for (index, operation) in operations.iter().enumerate() {
                let added = match operation {
                    Operation::Create { path, data, acl, mode } => {
                        let acl: Vec<_> = acl.iter().cloned().map(to_crate_acl).collect();
                        writer.add_create(path, data, &options(*mode, &acl))
                    }
                    Operation::Delete { path, version } => writer.add_delete(path, *version),
                    Operation::SetData { path, data, version } => writer.add_set_data(path, data, *version),
                    Operation::Check { path, version } => writer.add_check_version(path, version.unwrap_or(-1)),
                };
                added.map_err(|error| Refused::Operation(index, error))?;
            }
            let done = writer.commit().await?;
            (Response::Done(done.into_iter().map(from_crate_result).collect()), None)
        }
        Request::Reconfig { joining, leaving, members, version } => {
            let [joinings, leavings, ensemble] =
                [&joining, &leaving, &members].map(|servers| servers.iter().map(String::as_str));
            let update = if members.is_empty() {
                crate_api::EnsembleUpdate::Incremental { joinings, leavings }
            } else {
                crate_api::EnsembleUpdate::New { ensemble }
            };
            let (data, stat) = client.update_ensemble(update, version).await?;
            (Response::Data(data, from_crate_stat(&stat)), None)
        }
    })
}

/// One session of the crate.
struct Handle {
    shared: Arc<Shared>,
    /// Ends the monitor when it is dropped or told.
    end: watch::Sender<bool>,
    closed: watch::Receiver<bool>,
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ZookeeperClientHandle")
            .field("session", &format_args!("{:#x}", self.shared.session_id))
            .field("ended", &self.shared.has_ended())
            .finish_non_exhaustive()
    }
}

impl ZooKeeperHandle for Handle {
    fn submit(&self, request: Request) -> ReplyFuture {
        let shared = Arc::clone(&self.shared);
        Box::pin(async move {
            let name = request.to_string();
            let (answer, answered) = oneshot::channel();
            shared.enter(Asked { request, answer });
            answered.await.unwrap_or_else(|_gone| Reply { sent: None, result: Err(loss(name, true)) })
        })
    }

    fn heartbeat(&self, through_leader: bool) -> Pin<Box<dyn Future<Output = Result<Duration>> + Send>> {
        let shared = Arc::clone(&self.shared);
        Box::pin(async move {
            let path = nowhere(&*shared.randomness);
            let epoch = shared.look();
            if shared.has_ended() || shared.ready.load(Ordering::SeqCst) != epoch {
                return Err(loss(format!("heartbeat {path}"), false));
            }
            if through_leader {
                return shared.ask_leader(path, epoch).await;
            }
            let reply = shared.send(Request::Exists { path, watch: false }, epoch).await;
            reply.result.map(|_| reply.sent.unwrap_or_default())
        })
    }

    fn negotiated_timeout(&self) -> Duration {
        self.shared.negotiated
    }

    fn capabilities(&self) -> Capabilities {
        CAPABILITIES
    }

    fn add_watch(&self, path: &str, recursive: bool) -> AddedWatch {
        let shared = Arc::clone(&self.shared);
        let path = path.to_owned();
        Box::pin(async move {
            let request = format!("addWatch {path}");
            let (answer, answered) = oneshot::channel();
            let adding = Arc::clone(&shared);
            // In a task: who asks need not look, and would keep the session open.
            shared.runtime.spawn(async move {
                // With the receiver goes the watch.
                let _gone = answer.send(adding.add_watch(&path, recursive).await);
            });
            answered.await.unwrap_or_else(|_gone| Err(loss(request, true)))
        })
    }

    fn forget_watch(&self, path: &str, kind: WatchKind) {
        let mut armed = self.shared.armed.lock();
        let forgotten = armed.by_key.remove(&(path.to_owned(), kind)).and_then(|id| armed.by_id.remove(&id));
        drop(armed);
        // The crate tells the server.
        drop(forgotten);
    }

    fn is_read_only(&self) -> bool {
        self.shared.read_only
    }

    fn client(&self) -> &'static str {
        CLIENT
    }

    fn end(&self) {
        self.shared.set_ended();
        self.end.send_replace(true);
    }

    fn closed(&self) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        let mut closed = self.closed.clone();
        Box::pin(async move {
            // An error means that the monitor is gone, and with it the session.
            let _gone = closed.wait_for(|&closed| closed).await;
        })
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.end();
    }
}

/// Sets up the monitor that owns the session until it is closed.
fn start(client: Client, config: &ConnectConfig) -> (Handle, mpsc::UnboundedReceiver<HandleEvent>) {
    let (rung, bells) = mpsc::unbounded_channel();
    let (events, event_receiver) = mpsc::unbounded_channel();
    let states = client.state_watcher();
    let link = Link { states: client.state_watcher(), epoch: NOT_READY + 1, up: true, end: None };
    let shared = Arc::new(Shared {
        session_id: client.session_id().0,
        identity: format!("{}session", ProtectedId::new(&*config.randomness).prefix()),
        read_only: client.session().is_readonly(),
        negotiated: client.session_timeout(),
        client: Mutex::new(Some(Arc::new(client))),
        clock: Arc::clone(&config.clock),
        randomness: Arc::clone(&config.randomness),
        runtime: tokio::runtime::Handle::current(),
        ended: AtomicBool::new(false),
        current: watch::Sender::new(NOT_READY + 1),
        disproved: Notify::new(),
        link: Mutex::new(link),
        ready: AtomicU64::new(NOT_READY),
        places: Places::new(PLACES),
        leaving: Mutex::new(()),
        asked: AtomicU64::new(0),
        answered: AtomicU64::new(0),
        armed: Mutex::new(Armed::default()),
        rung,
        parents: Mutex::new(VecDeque::new()),
        events,
    });
    let (end, ending) = watch::channel(false);
    let (closed_sender, closed) = watch::channel(false);
    let monitor = Monitor { shared: Arc::clone(&shared), states, bells };
    tokio::spawn(async move {
        monitor.run(ending).await;
        closed_sender.send_replace(true);
    });
    (Handle { shared, end, closed }, event_receiver)
}

/// The handle's own task.
struct Monitor {
    shared: Arc<Shared>,
    states: crate_api::StateWatcher,
    bells: mpsc::UnboundedReceiver<u64>,
}

impl Monitor {
    async fn run(mut self, mut ending: watch::Receiver<bool>) {
        let end = self.watch_over(&mut ending).await;
        self.shared.set_ended();
        self.shared.refuse_waiting();
        self.shared.tell(HandleEvent::Ended(end));
        self.shared.disarm();
        drop(self.shared.client.lock().take());
        // The crate gives up by itself when the server must have forgotten the session.
        if !self.states.peek_state().is_terminated() {
            let closing = async { while !self.states.changed().await.is_terminated() {} };
            let _in_time = tokio::time::timeout(self.shared.negotiated * 2, closing).await;
        }
    }

    async fn watch_over(&mut self, ending: &mut watch::Receiver<bool>) -> SessionEnd {
        let mut seen = NOT_READY + 1;
        let mut establishing: Option<Pin<Box<dyn Future<Output = Option<Duration>> + Send>>> = None;
        // Told when it is connected again, so not before it is told that it is not.
        let mut lost = false;
        loop {
            let epoch = self.shared.look();
            let (up, end) = {
                let link = self.shared.link.lock();
                (link.up, link.end)
            };
            if let Some(end) = end {
                return end;
            }
            if epoch != seen {
                seen = epoch;
                establishing = None;
                self.shared.refuse_waiting();
                self.shared.disarm();
                if !std::mem::replace(&mut lost, true) {
                    self.shared.tell(HandleEvent::Disconnected);
                }
            }
            if lost && up && establishing.is_none() {
                establishing = Some(Box::pin(Arc::clone(&self.shared).establish(epoch)));
            }
            tokio::select! {
                biased;
                _ = ending.wait_for(|&end| end) => return SessionEnd::Closed,
                _state = self.states.changed() => {}
                () = self.shared.disproved.notified() => return self.why_ended(),
                Some(id) = self.bells.recv() => {
                    if let Some(event) = self.shared.fired(id) {
                        self.shared.tell(HandleEvent::Watched(event));
                    }
                }
                proof = async { match &mut establishing { Some(future) => future.await, None => std::future::pending().await } } => {
                    establishing = None;
                    if let Some(sent) = proof {
                        lost = false;
                        self.shared.tell(HandleEvent::Reconnected { sent, leader_sent: Some(sent) });
                    }
                }
            }
        }
    }

    /// Why, after an answer was wrong: the crate's own word, else the answer.
    fn why_ended(&self) -> SessionEnd {
        self.shared.look();
        self.shared.link.lock().end.unwrap_or(SessionEnd::Inconsistent)
    }
}

fn options(mode: CreateMode, acl: &[crate_api::Acl]) -> crate_api::CreateOptions<'_> {
    let (mode, ttl) = match mode {
        CreateMode::Persistent => (crate_api::CreateMode::Persistent, None),
        CreateMode::PersistentSequential => (crate_api::CreateMode::PersistentSequential, None),
        CreateMode::Ephemeral => (crate_api::CreateMode::Ephemeral, None),
        CreateMode::EphemeralSequential => (crate_api::CreateMode::EphemeralSequential, None),
        CreateMode::Container => (crate_api::CreateMode::Container, None),
        CreateMode::PersistentWithTtl(ttl) => (crate_api::CreateMode::Persistent, Some(ttl)),
        CreateMode::PersistentSequentialWithTtl(ttl) => (crate_api::CreateMode::PersistentSequential, Some(ttl)),
    };
    let options = mode.with_acls(crate_api::Acls::new(acl));
    match ttl {
        Some(ttl) => options.with_ttl(ttl),
        None => options,
    }
}

fn from_crate_result(result: MultiWriteResult) -> Done {
    match result {
        MultiWriteResult::Create { path, stat } => Done::Created { path, stat: from_crate_stat(&stat) },
        MultiWriteResult::Delete => Done::Deleted,
        MultiWriteResult::SetData { stat } => Done::Set(from_crate_stat(&stat)),
        _ => Done::Checked,
    }
}

fn from_crate_event(event: crate_api::WatchedEvent) -> Option<WatchedEvent> {
    let event_type = match event.event_type {
        crate_api::EventType::NodeCreated => EventType::NodeCreated,
        crate_api::EventType::NodeDeleted => EventType::NodeDeleted,
        crate_api::EventType::NodeDataChanged => EventType::NodeDataChanged,
        crate_api::EventType::NodeChildrenChanged => EventType::NodeChildrenChanged,
        crate_api::EventType::Session => return None,
    };
    Some(WatchedEvent { event_type, path: event.path })
}

fn from_crate_stat(stat: &crate_api::Stat) -> Stat {
    Stat {
        czxid: stat.czxid,
        mzxid: stat.mzxid,
        ctime: stat.ctime,
        mtime: stat.mtime,
        version: stat.version,
        cversion: stat.cversion,
        aversion: stat.aversion,
        ephemeral_owner: stat.ephemeral_owner,
        data_length: stat.data_length,
        num_children: stat.num_children,
        pzxid: stat.pzxid,
    }
}

const PERMISSIONS: [(Permission, crate_api::Permission); 5] = [
    (Permission::READ, crate_api::Permission::READ),
    (Permission::WRITE, crate_api::Permission::WRITE),
    (Permission::CREATE, crate_api::Permission::CREATE),
    (Permission::DELETE, crate_api::Permission::DELETE),
    (Permission::ADMIN, crate_api::Permission::ADMIN),
];

fn to_crate_acl(acl: Acl) -> crate_api::Acl {
    let permissions = PERMISSIONS
        .iter()
        .filter(|(ours, _)| acl.permissions.contains(*ours))
        .fold(crate_api::Permission::NONE, |all, (_, theirs)| all | *theirs);
    crate_api::Acl::new(permissions, crate_api::AuthId::new(&acl.scheme, &acl.id))
}

fn from_crate_acl(acl: &crate_api::Acl) -> Acl {
    let permissions = PERMISSIONS
        .iter()
        .filter(|(_, theirs)| acl.permission().has(*theirs))
        .fold(Permission::NONE, |all, (ours, _)| all | *ours);
    Acl::new(permissions, acl.scheme(), acl.id())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permissions_survive_the_way_there_and_back() {
        for permissions in [Permission::NONE, Permission::ALL, Permission::READ | Permission::ADMIN] {
            let acl = Acl::new(permissions, "world", "anyone");
            assert_eq!(from_crate_acl(&to_crate_acl(acl.clone())), acl);
        }
    }
}
