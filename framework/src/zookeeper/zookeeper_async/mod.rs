//! The adapter to the crate `zookeeper-async`, the only file that uses it.
//!
//! The crate starts a new session after an expiry, and matches replies by their order alone. It does not repeat
//! credentials or watches, cannot say which session it has, and cannot be stopped. So the adapter keeps these rules:
//!
//! * The state callback itself ends the handle at an expiry, before anything else. Every reply is delivered only
//!   after that flag was read.
//! * Each reply belongs to the connection on which its request was submitted. After a reconnect it counts as lost.
//! * A connection counts only when it is proven. First all older requests are answered or dropped. Then the adapter
//!   sends the credentials and two probes, one by one: reads with known, different results. If the session owns
//!   ephemeral nodes, a create shows the session's id.
//! * The reply to every create is compared with its request, and its owner with that of earlier creates.
//! * At most [`PLACES`] requests are inside the crate, because its queue of 64 can block itself. A caller drives its
//!   request until it drops it, or slots run out, or the connection is lost. From then on the monitor does. So a caller
//!   that stops polling neither frees its request's slot nor blocks it.
//! * A panic of the crate over a reply ends the handle.
//! * An ended handle's close is queued last, and repeated until the crate says that it was sent.

mod ephemerals;
pub(crate) mod handshake;
mod in_flight;
pub(crate) mod slots;

use std::convert::Infallible;
use std::fmt;
use std::future::Future;
use std::net::SocketAddr;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::FutureExt;
use futures_util::stream::{FuturesUnordered, StreamExt};
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{Notify, mpsc, watch};
use zookeeper_async as crate_api;
use zookeeper_async::{ZkError, ZkState, ZooKeeper};

use self::ephemerals::Ephemerals;
use self::handshake::probe_ensemble;
use self::slots::SlotQueue;
use crate::environment::clock::Clock;
use crate::environment::randomness::{Randomness, nonexistent_path};
use crate::error::{Chain, ConnectError, Error, PathText, Result};
use crate::model::path::make_path;
use crate::model::protected::ProtectedId;
use crate::model::{Acl, AuthInfo, CreateMode, EventType, Permission, Stat, WatchedEvent};
use crate::sync::report::report;
use crate::zookeeper::{
    Capabilities, ConnectConfig, Connection, DEFAULT_CLIENT, Evidence, HandleEvent, Reattached, Reply, ReplyFuture,
    Request, Response, SessionEnd, ZooKeeperFactory, ZooKeeperHandle,
};

const CLIENT: &str = "zookeeper-async";
/// The most requests inside the crate. Its queue has 64 slots; the rest is for probe, credentials, heartbeat, close
/// and its own ping.
const PLACES: usize = 58;
/// The pause between the crate's tries to reach a server, and between our tries to probe and to close.
const RETRY_PAUSE: Duration = Duration::from_millis(100);
/// The most parents below which a proof of the session's id is tried.
const IDENTITY_TRIES: usize = 8;
/// The most requests of one session. The crate's 32-bit numbers continue into the reserved ones: it would take the
/// reply to request −1 for a notification, that to −2 for a ping's, and each later reply for its predecessor's. The
/// session ends below 2^31, with room for the requests of its close.
const MAX_REQUESTS: u64 = (1 << 31) - (1 << 20);
/// The longest wait for the crate's report of the first connection, which may precede the adapter's listener.
const FIRST_CONNECT: Duration = Duration::from_millis(200);

/// Connects with the crate `zookeeper-async`: `.zookeeper_factory(ZooKeeperAsyncFactory)`.
///
/// The adapter ends the session if the crate cannot continue it safely:
///
/// | case | the session ends with |
/// | --- | --- |
/// | a reply does not match its request, or a reconnect carries another session | [`SessionEnd::Inconsistent`] |
/// | a reconnect cannot be proven: the reply to the session's first ephemeral create was lost, or no node may be created below the root or beside the session's nodes | [`SessionEnd::Inconsistent`] |
/// | 2^31 requests (less a million) were sent: the crate's numbers run out | [`SessionEnd::ClientFailed`] |
///
/// # Logging
///
/// The crate logs the id **and the password** of each session: the `tracing` event `Connected` of the target
/// `zookeeper_async::io`, at the level *info*. A client that knows both can take the session over or close it. The
/// adapter cannot prevent that, because a task of the crate logs it. Keep the crate's target at *warn*:
/// `RUST_LOG=info,zookeeper_async=warn`, or with `tracing-subscriber`
///
/// ```text
/// Targets::new().with_default(LevelFilter::INFO).with_target("zookeeper_async", LevelFilter::WARN)
/// ```
#[derive(Debug, Clone, Copy, Default)]
pub struct ZooKeeperAsyncFactory;

#[async_trait]
impl ZooKeeperFactory for ZooKeeperAsyncFactory {
    fn client(&self) -> &'static str {
        CLIENT
    }

    async fn connect(&self, config: &ConnectConfig) -> Result<Connection, ConnectError> {
        Self::connect_for(MAX_REQUESTS, config).await
    }
}

impl ZooKeeperAsyncFactory {
    /// Connects a session that sends at most `max_requests` requests.
    async fn connect_for(max_requests: u64, config: &ConnectConfig) -> Result<Connection, ConnectError> {
        let started = tokio::time::Instant::now();
        let greeting = probe_ensemble(
            &config.servers.current()?,
            config.session_timeout,
            config.connection_timeout,
            &*config.randomness,
        )
        .await?;
        let server = greeting.addresses[0].to_string();
        let failed = |reason: String| ConnectError::new(server.clone(), reason);

        let left = config.connection_timeout.saturating_sub(started.elapsed());
        let until = tokio::time::Instant::now() + left;
        let established = config.clock.now();
        let (events, event_receiver) = mpsc::unbounded_channel();
        let ephemerals = Arc::new(Mutex::new(Ephemerals::default()));
        let (crate_lives, crate_gone) = mpsc::channel(1);
        let (watched, proving) = (events.clone(), Arc::clone(&ephemerals));
        let connect_string = join_addresses(&greeting.addresses);
        let connecting = ZooKeeper::connect_with_retry_time(
            &connect_string,
            greeting.negotiated,
            // The closure only converts and sends: a panic in it would kill the crate's tasks.
            move |event: crate_api::WatchedEvent| {
                let _lives: &mpsc::Sender<Infallible> = &crate_lives;
                let Some(event) = from_crate_event(event) else { return };
                // The monitor reports a new connection under this lock, so its events arrive behind that report.
                let _not_meanwhile = proving.lock();
                // Without a receiver the handle was dropped.
                let _gone = watched.send(HandleEvent::Watched(event));
            },
            RETRY_PAUSE,
        );
        let zookeeper = match tokio::time::timeout_at(until, connecting).await {
            Ok(Ok(zookeeper)) => zookeeper,
            Ok(Err(error)) => return Err(failed(error.to_string())),
            Err(_elapsed) => return Err(failed(format!("not connected within {:?}", config.connection_timeout))),
        };

        let handle =
            start(zookeeper, Seam { events, ephemerals, crate_gone }, config, greeting.negotiated, max_requests);
        let mut events = event_receiver;
        match tokio::time::timeout_at(until, events.recv()).await {
            Ok(Some(HandleEvent::Reconnected(Reattached { sent, epoch, .. }))) => {
                Ok(Connection { handle: Arc::new(handle), events, sent, established, epoch })
            }
            Ok(Some(HandleEvent::Ended(end @ SessionEnd::AuthFailed))) => {
                // The crate does not say which of them.
                let schemes: Vec<&str> = config.auth.iter().map(|auth| &*auth.scheme).collect();
                Err(failed(end.refusing(&schemes.join(" or "))).refusing_credentials())
            }
            Ok(Some(HandleEvent::Ended(end))) => Err(failed(end.to_string())),
            Ok(_) => Err(failed(SessionEnd::ClientFailed.to_string())),
            Err(_elapsed) => {
                Err(failed(format!("no answer to the first request within {:?}", config.connection_timeout)))
            }
        }
    }
}

fn join_addresses(addresses: &[SocketAddr]) -> String {
    addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

/// The reports of the crate's state callback to the monitor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Transport {
    Lost,
    Up,
    Expired,
}

/// The state that handle, callback and monitor share.
struct Shared {
    zookeeper: ZooKeeper,
    clock: Arc<dyn Clock>,
    randomness: Arc<dyn Randomness>,
    negotiated: Duration,
    auth: Vec<AuthInfo>,
    /// Set by the state callback at an expiry, and by every other end of the handle. Never cleared.
    ended: AtomicBool,
    /// The reason of the session's end, set just before `ended`; unset after a wrong reply.
    why: OnceLock<SessionEnd>,
    /// The number of requests that the crate has numbered, or may have. Its own pings have a reserved number.
    requests: AtomicU64,
    max_requests: u64,
    /// Notifies the monitor that a reply, or the last request number, has ended the handle.
    disproved: Notify,
    /// The number of the connection, incremented at every loss of the transport.
    epoch: AtomicU64,
    /// The epoch with a proven connection. Requests are submitted in no other.
    ready: AtomicU64,
    /// The epoch in which the crate has reported a connection.
    up: watch::Sender<u64>,
    slots: SlotQueue<Submission>,
    /// Held during the first poll of a request's future, when the crate takes the request: one by one, none waits for
    /// another there.
    submitting: Mutex<()>,
    /// The requests that their callers drive.
    in_flight: Mutex<Vec<Weak<InFlight>>>,
    /// The requests for the monitor to drive.
    commands: mpsc::UnboundedSender<DriverCommand>,
    /// The name of the node that shows the session's id. A proof that was cut off may leave one.
    identity: String,
    ephemerals: Arc<Mutex<Ephemerals>>,
}

type InFlight = in_flight::InFlight<Option<Slot>>;
type Responder = in_flight::Responder<Option<Slot>>;
type RequestDriver = in_flight::RequestDriver<Option<Slot>>;

/// A request that was not begun. Its data is apart, because the crate takes it by value.
struct Submission {
    data: Vec<u8>,
    /// The only connection on which the request may be sent.
    epoch: u64,
    answer: Responder,
}

impl Submission {
    fn new(mut request: Request, epoch: u64) -> (Self, Arc<InFlight>) {
        let data = match &mut request {
            Request::Create { data, .. } | Request::SetData { data, .. } => std::mem::take(data),
            _ => Vec::new(),
        };
        let (in_flight, answer) = InFlight::new(request);
        (Self { data, epoch, answer }, in_flight)
    }

    /// Replies that the request was not sent.
    fn refuse(self, error: impl FnOnce(PathText) -> Error) {
        let error = error(self.answer.in_flight().request().to_string().into());
        self.answer.send(Reply::not_sent(error));
    }
}

/// A request's slot inside the crate, freed when it is dropped.
struct Slot(Arc<Shared>);

impl Drop for Slot {
    fn drop(&mut self) {
        self.0.leave_slot();
    }
}

/// The requests that the monitor drives from now on.
enum DriverCommand {
    /// A request that its caller has dropped, or that has waited for a slot.
    One(RequestDriver),
    /// All requests that callers drive: another one waits for a slot, or the connection is gone.
    All,
}

/// The future of a reply. Dropping it leaves the request to the monitor.
struct PendingReply {
    shared: Arc<Shared>,
    in_flight: Arc<InFlight>,
}

impl Future for PendingReply {
    type Output = Reply;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Reply> {
        let reply = std::task::ready!(self.in_flight.poll(cx));
        // Without the monitor the request's outcome is unknown.
        Poll::Ready(reply.unwrap_or_else(|| {
            let request = self.in_flight.request().to_string().into();
            Reply::not_sent(Error::ConnectionLoss { request, sent: true, cause: None })
        }))
    }
}

impl Drop for PendingReply {
    fn drop(&mut self) {
        if let Some(driven) = self.in_flight.cancel() {
            self.shared.leave_to_monitor(driven);
        }
    }
}

/// Returns the framework's number of a connection, which counts from 1.
const fn number_of(epoch: u64) -> u64 {
    epoch + 1
}

/// The epoch that stands for "no connection yet".
const NOT_READY: u64 = u64::MAX;

impl Shared {
    fn has_ended(&self) -> bool {
        self.ended.load(Ordering::SeqCst)
    }

    /// Returns the reason of the session's end; without one, a reply was wrong.
    fn why_ended(&self) -> SessionEnd {
        self.why.get().copied().unwrap_or(SessionEnd::Inconsistent)
    }

    fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::SeqCst)
    }

    fn is_ready(&self, epoch: u64) -> bool {
        self.ready.load(Ordering::SeqCst) == epoch && self.epoch() == epoch
    }

    /// Sends a request without a slot: a probe, which is alone, or a heartbeat, which must not wait.
    async fn send(self: &Arc<Self>, request: Request, epoch: u64) -> Reply {
        let (asked, in_flight) = Submission::new(request, epoch);
        let driven = self.begin(asked, None, &self.submitting.lock());
        self.leave_to_caller(&in_flight, driven, epoch);
        PendingReply { shared: Arc::clone(self), in_flight }.await
    }

    fn leave_to_monitor(&self, driven: RequestDriver) {
        // Without a monitor the handle has ended, and the dropped request notifies its caller.
        let _monitor_gone = self.commands.send(DriverCommand::One(driven));
    }

    fn leave_to_caller(&self, request: &Arc<InFlight>, driven: RequestDriver, epoch: u64) {
        request.hand_to_caller(driven);
        {
            let mut in_flight = self.in_flight.lock();
            if in_flight.len() >= 2 * PLACES {
                in_flight.retain(|request| request.strong_count() > 0);
            }
            in_flight.push(Arc::downgrade(request));
        }
        // The monitor may have taken over all requests just before this one was added.
        if self.epoch() != epoch || self.has_ended() {
            if let Some(driven) = request.take() {
                self.leave_to_monitor(driven);
            }
        }
    }

    /// Takes all requests from their callers.
    fn take_over(&self) -> Vec<RequestDriver> {
        let in_flight = std::mem::take(&mut *self.in_flight.lock());
        in_flight.into_iter().filter_map(|request| request.upgrade()?.take()).collect()
    }

    /// Passes a request to the crate. The result must be driven until the reply arrives.
    ///
    /// The crate takes a request at its future's first poll, unless it is taking another. So the caller holds the lock,
    /// and the poll ignores the task's budget.
    fn begin(self: &Arc<Self>, asked: Submission, place: Option<Slot>, _alone: &MutexGuard<'_, ()>) -> RequestDriver {
        let Submission { data, epoch, answer } = asked;
        let in_flight = Arc::clone(answer.in_flight());
        self.count_request();
        let sent = self.clock.now();
        let shared = Arc::clone(self);
        let mut reply: Pin<Box<dyn Future<Output = Reply> + Send>> = Box::pin(async move {
            // The crate decodes a reply in the request's future, and panics on some replies.
            let answered =
                AssertUnwindSafe(crate_request(&shared.zookeeper, in_flight.request(), data)).catch_unwind().await;
            let answered = answered.unwrap_or(Err(ZkError::MarshallingError));
            let result = shared.judge(answered, epoch, in_flight.request());
            Reply { sent: Some(sent), epoch: number_of(epoch), zxid: 0, result }
        });
        let first = {
            let mut context = Context::from_waker(Waker::noop());
            std::pin::pin!(tokio::task::coop::unconstrained(&mut reply)).poll(&mut context)
        };
        if let Poll::Ready(refused) = first {
            reply = Box::pin(std::future::ready(refused));
        }
        RequestDriver { reply, answer, occupied: place }
    }

    /// Counts a request that the crate numbers, and ends the session before the numbers run out.
    fn count_request(&self) {
        if self.requests.fetch_add(1, Ordering::SeqCst) >= self.max_requests {
            self.end_because(SessionEnd::ClientFailed);
            let requests = self.max_requests;
            report(move || tracing::warn!(requests, "the crate's request numbers run out: the handle ends"));
        }
    }

    /// Checks a reply, and records an ephemeral create without a known outcome.
    fn judge(&self, answer: Result<Response, ZkError>, epoch: u64, request: &Request) -> Result<Response> {
        let result = self.judge_answer(answer, epoch, request);
        if let (Request::Create { path, mode, .. }, Err(error)) = (request, &result) {
            if mode.is_ephemeral() && error.outcome_unknown() {
                self.ephemerals.lock().outcome_unknown(path);
            }
        }
        result
    }

    fn judge_answer(&self, answer: Result<Response, ZkError>, epoch: u64, request: &Request) -> Result<Response> {
        if self.has_ended() {
            return Err(Error::SessionExpired { request: request.to_string().into() });
        }
        if self.epoch() != epoch {
            // Across a reconnect the crate may match a reply with another request.
            return Err(Error::ConnectionLoss { request: request.to_string().into(), sent: true, cause: None });
        }
        match answer {
            Ok(response) if self.is_expected(request, &response) => Ok(response),
            Ok(response) => {
                self.invalidate();
                let (asked, answer) = (request.to_string(), response.kind());
                report(move || tracing::error!(request = asked, answer, "another request's answer: the handle ends"));
                Err(Error::SessionExpired { request: request.to_string().into() })
            }
            Err(ZkError::SessionExpired) => {
                self.end_because(SessionEnd::Expired);
                Err(Error::SessionExpired { request: request.to_string().into() })
            }
            // The reply does not decode as one to this request.
            Err(ZkError::MarshallingError) => {
                self.invalidate();
                Err(Error::SessionExpired { request: request.to_string().into() })
            }
            Err(error) => {
                if error == ZkError::NoNode {
                    self.forget_ephemeral(request);
                }
                Err(translate_error(error, request))
            }
        }
    }

    fn end_because(&self, end: SessionEnd) {
        // The first reason stays.
        let _known = self.why.set(end);
        self.invalidate();
    }

    /// Ends the handle and notifies the monitor.
    fn invalidate(&self) {
        self.ended.store(true, Ordering::SeqCst);
        self.disproved.notify_one();
    }

    /// Begins a request that has a slot; `None` if its caller is gone, or if it is refused.
    fn begin_in_slot(self: &Arc<Self>, asked: Submission, alone: &MutexGuard<'_, ()>) -> Option<(RequestDriver, u64)> {
        let epoch = asked.epoch;
        // Without a monitor the dropped request ends as lost for its caller.
        if asked.answer.in_flight().is_over() || self.commands.is_closed() {
            return None;
        }
        if self.has_ended() {
            asked.refuse(|request| Error::SessionExpired { request });
            return None;
        }
        if !self.is_ready(epoch) {
            asked.refuse(|request| Error::ConnectionLoss { request, sent: false, cause: None });
            return None;
        }
        Some((self.begin(asked, Some(Slot(Arc::clone(self))), alone), epoch))
    }

    /// Passes a slot on to the next request in the queue that can begin.
    fn leave_slot(self: &Arc<Self>) {
        loop {
            let begun = {
                // Under the lock, queued requests begin in their order. A caller's clean-up needs the lock too, so a
                // request that the caller has dropped never begins behind its clean-up.
                let alone = self.submitting.lock();
                let Some(next) = self.slots.leave() else { return };
                self.begin_in_slot(next, &alone)
            };
            if let Some((driven, _)) = begun {
                return self.leave_to_monitor(driven);
            }
        }
    }

    /// Refuses the queued requests: they were not sent, and must not wait for another connection.
    fn refuse_waiting(&self) {
        for asked in self.slots.take_waiting() {
            asked.refuse(|request| Error::ConnectionLoss { request, sent: false, cause: None });
        }
    }

    /// Returns `true` if a reply matches its request. Records the session's ephemeral nodes.
    fn is_expected(&self, request: &Request, response: &Response) -> bool {
        match (request, response) {
            (Request::Create { path: asked, mode, .. }, Response::Created { path, stat }) => {
                let named = if mode.is_sequential() {
                    path.strip_prefix(&**asked).is_some_and(is_sequence)
                } else {
                    path == asked
                };
                if !named || mode.is_ephemeral() != (stat.ephemeral_owner != 0) {
                    return false;
                }
                !mode.is_ephemeral() || self.ephemerals.lock().created(path, stat.ephemeral_owner)
            }
            (Request::Delete { .. }, Response::Deleted) => {
                self.forget_ephemeral(request);
                true
            }
            (Request::Create { .. } | Request::Delete { .. }, _) => false,
            _ => true,
        }
    }

    fn forget_ephemeral(&self, request: &Request) {
        if let Request::Delete { path, .. } = request {
            self.ephemerals.lock().deleted(path);
        }
    }

    /// Waits until the crate reports a connection and every slot is free. Returns the epoch.
    async fn settle(&self, proof: Proof) -> u64 {
        let mut up = self.up.subscribe();
        loop {
            let epoch = self.epoch();
            let connected = up.wait_for(|&up| up == epoch || self.epoch() != epoch);
            if proof == Proof::First && epoch == 0 {
                // The crate may have reported the first connection before the listener was added.
                let _told = tokio::time::timeout(FIRST_CONNECT, connected).await;
            } else if connected.await.is_err() || self.epoch() != epoch {
                continue;
            }
            // The slots become free: no request begins before the connection is proven.
            self.slots.all_free().await;
            if self.epoch() == epoch {
                return epoch;
            }
        }
    }

    /// Returns `true` if the crate's I/O task is gone: its queue then refuses every request at once.
    fn is_dead(&self) -> bool {
        let path = nonexistent_path(&*self.randomness);
        self.count_request();
        let asking = std::pin::pin!(self.zookeeper.exists(&path, false));
        asking.poll(&mut Context::from_waker(Waker::noop())).is_ready()
    }

    /// Waits until a server has accepted the crate's connect. The first wait is short, because the adapter may have
    /// missed that report.
    async fn reached(&self) {
        let mut up = self.up.subscribe();
        let reached = up.wait_for(|&up| up == self.epoch());
        if self.epoch() == 0 {
            let _told = tokio::time::timeout(FIRST_CONNECT, reached).await;
        } else {
            // Never an error: the sender is in `self`.
            let _told = reached.await;
        }
    }

    /// Proves a new connection: see the module's documentation.
    async fn verify_until_ok(self: Arc<Self>, proof: Proof) -> Result<VerifiedConnection, SessionEnd> {
        loop {
            let epoch = self.settle(proof).await;
            match self.verify_session(epoch).await {
                Ok((sent, leader_sent)) if self.epoch() == epoch => {
                    return Ok(VerifiedConnection { epoch, sent, leader_sent });
                }
                Err(ProofFailure::Ended(end)) => return Err(end),
                Ok(_) | Err(ProofFailure::Lost) => tokio::time::sleep(RETRY_PAUSE).await,
            }
        }
    }

    async fn verify_session(self: &Arc<Self>, epoch: u64) -> Result<(Duration, Option<Duration>), ProofFailure> {
        for AuthInfo { scheme, auth } in &self.auth {
            self.count_request();
            let added = self.zookeeper.add_auth(scheme, auth.clone()).await;
            match added {
                Ok(()) if self.epoch() == epoch => {}
                Err(ZkError::AuthFailed) => return Err(ProofFailure::Ended(SessionEnd::AuthFailed)),
                _ => return Err(ProofFailure::Lost),
            }
        }
        // Two reads with known, different results: if the crate's replies are shifted by one, at least one is wrong.
        let missing = Request::Exists { path: nonexistent_path(&*self.randomness).into(), watch: false };
        let reply = self.send(missing, epoch).await;
        match ProofFailure::check(reply.result)? {
            Response::Exists(None) => {}
            _ => return Err(ProofFailure::Ended(SessionEnd::Inconsistent)),
        }
        let reply = self.send(Request::Exists { path: "/".into(), watch: false }, epoch).await;
        let sent = reply.sent.unwrap_or_default();
        match ProofFailure::check(reply.result)? {
            Response::Exists(Some(Stat { czxid: 0, ephemeral_owner: 0, .. })) => {}
            _ => return Err(ProofFailure::Ended(SessionEnd::Inconsistent)),
        }
        let leader_sent = self.prove_identity(epoch).await?;
        Ok((leader_sent.unwrap_or(sent).max(sent), leader_sent))
    }

    /// Proves the session's id. A server may swap the session silently at a reconnect: a lock would then be held
    /// on another session's node. A session that may own ephemeral nodes creates one more, and compares its owner. That
    /// node is below the root or, if this is forbidden, beside one of the others, where its name sorts behind every
    /// contender's. The next proof deletes a node that a lost connection leaves. A session that cannot be proven ends.
    async fn prove_identity(self: &Arc<Self>, epoch: u64) -> Result<Option<Duration>, ProofFailure> {
        let (left, parents) = {
            let ephemerals = self.ephemerals.lock();
            if !ephemerals.may_own() {
                return Ok(None);
            }
            if ephemerals.session_id().is_none() {
                // No create was answered: only the lost reply would have shown the id.
                return Err(ProofFailure::Ended(SessionEnd::Inconsistent));
            }
            (ephemerals.ending_with(&self.identity), ephemerals.parents(&self.identity, IDENTITY_TRIES))
        };
        let delete = |path: String| self.send(Request::Delete { path: path.into(), version: None }, epoch);
        for path in left {
            ProofFailure::unless_answered(delete(path).await.result)?;
        }
        for parent in parents {
            let path = make_path(&parent, &self.identity);
            let acl = Acl::open_unsafe();
            let create =
                Request::Create { path: path.as_str().into(), data: Vec::new(), acl, mode: CreateMode::Ephemeral };
            // Recorded before the create, because its reply may be lost.
            self.ephemerals.lock().may_exist(&path);
            let created = self.send(create, epoch).await;
            match created.result {
                Ok(_) => {
                    ProofFailure::unless_answered(delete(path).await.result)?;
                    return Ok(created.sent);
                }
                Err(error) => {
                    ProofFailure::unless_answered(Err(error))?;
                    self.ephemerals.lock().deleted(&path);
                }
            }
        }
        tracing::error!("no node may be created that would show the session's id: the handle ends");
        Err(ProofFailure::Ended(SessionEnd::Inconsistent))
    }
}

/// The proof of a connection: of the session's first one, or of a later one.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Proof {
    First,
    Again,
}

/// A proven connection.
struct VerifiedConnection {
    epoch: u64,
    /// The moment at which the newest answered request was sent; below, the newest answered write.
    sent: Duration,
    leader_sent: Option<Duration>,
}

/// The reason why a connection is not proven.
enum ProofFailure {
    /// The connection was lost meanwhile.
    Lost,
    /// The session must end, for this reason.
    Ended(SessionEnd),
}

impl ProofFailure {
    fn check(result: Result<Response>) -> Result<Response, Self> {
        result.map_err(|error| match error {
            Error::ConnectionLoss { .. } => Self::Lost,
            _ => Self::Ended(SessionEnd::Inconsistent),
        })
    }

    /// Accepts every reply of the server, also an error. Fails if the connection or the session ended.
    fn unless_answered(result: Result<Response>) -> Result<(), Self> {
        match result {
            Err(error @ (Error::ConnectionLoss { .. } | Error::SessionExpired { .. })) => {
                Self::check(Err(error)).map(drop)
            }
            _ => Ok(()),
        }
    }
}

/// Returns the error of a request that the crate would refuse by itself: each reply of the crate must be one of the
/// server's. The rules for paths are those of the crate's `validate_path`.
fn refused_here(request: &Request) -> Option<Error> {
    let path = request.path();
    let reason = match request {
        Request::Create {
            mode: CreateMode::Container | CreateMode::PersistentWithTtl(_) | CreateMode::PersistentSequentialWithTtl(_),
            ..
        }
        | Request::Sync { .. }
        | Request::Transaction { .. }
        | Request::Reconfig { .. } => {
            let request = request.to_string().into();
            return Some(Error::Unsupported { request, client: CLIENT, needed: DEFAULT_CLIENT });
        }
        _ if path.is_empty() => "it is empty",
        _ if path.len() > 1 && path.ends_with('/') => "it ends with a slash",
        _ => return None,
    };
    Some(Error::InvalidPath { path: path.into(), reason })
}

async fn crate_request(zookeeper: &ZooKeeper, request: &Request, data: Vec<u8>) -> Result<Response, ZkError> {
    match request {
        Request::Create { path, acl, mode, .. } => {
            let mode = match mode {
                CreateMode::Persistent => crate_api::CreateMode::Persistent,
                CreateMode::PersistentSequential => crate_api::CreateMode::PersistentSequential,
                CreateMode::Ephemeral => crate_api::CreateMode::Ephemeral,
                CreateMode::EphemeralSequential => crate_api::CreateMode::EphemeralSequential,
                // `refused_here` has refused these.
                CreateMode::Container
                | CreateMode::PersistentWithTtl(_)
                | CreateMode::PersistentSequentialWithTtl(_) => return Err(crate_api::ZkError::Unimplemented),
            };
            let acl = acl.iter().map(to_crate_acl).collect();
            let (path, stat) = zookeeper.create2(path, data, acl, mode).await?;
            Ok(Response::Created { path: path.into(), stat: from_crate_stat(&stat) })
        }
        Request::Delete { path, version } => {
            zookeeper.delete(path, *version).await?;
            Ok(Response::Deleted)
        }
        Request::Exists { path, watch } => {
            let stat = zookeeper.exists(path, *watch).await?;
            Ok(Response::Exists(stat.as_ref().map(from_crate_stat)))
        }
        Request::GetData { path, watch } => {
            let (data, stat) = zookeeper.get_data(path, *watch).await?;
            Ok(Response::Data(data, from_crate_stat(&stat)))
        }
        Request::SetData { path, version, .. } => {
            let stat = zookeeper.set_data(path, data, *version).await?;
            Ok(Response::Stat(from_crate_stat(&stat)))
        }
        Request::GetChildren { path, watch } => Ok(Response::Children(zookeeper.get_children(path, *watch).await?)),
        Request::GetAcl { path } => {
            let (acl, stat) = zookeeper.get_acl(path).await?;
            Ok(Response::Acl(acl.into_iter().map(from_crate_acl).collect(), from_crate_stat(&stat)))
        }
        Request::SetAcl { path, acl, version } => {
            let acl = acl.iter().map(to_crate_acl).collect();
            let stat = zookeeper.set_acl(path, acl, *version).await?;
            Ok(Response::Stat(from_crate_stat(&stat)))
        }
        // `refused_here` has refused these.
        Request::Sync { .. } | Request::Transaction { .. } | Request::Reconfig { .. } => Err(ZkError::Unimplemented),
    }
}

/// Returns `true` if a server may have appended this to a sequential name: ten digits, or a minus sign and nine or
/// ten digits after the counter's overflow.
fn is_sequence(suffix: &str) -> bool {
    let (digits, fewest) = suffix.strip_prefix('-').map_or((suffix, 10), |digits| (digits, 9));
    (fewest..=10).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit())
}

/// One session of the crate.
struct Handle {
    shared: Arc<Shared>,
    /// Ends the monitor when it is set or dropped.
    end: watch::Sender<bool>,
    closed: watch::Receiver<bool>,
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ZookeeperAsyncHandle")
            .field("ended", &self.shared.has_ended())
            .field("epoch", &self.shared.epoch())
            .finish_non_exhaustive()
    }
}

impl ZooKeeperHandle for Handle {
    fn submit(&self, request: Request, epoch: u64) -> ReplyFuture {
        if let Some(error) = refused_here(&request) {
            return ReplyFuture::new(std::future::ready(Reply::not_sent(error)));
        }
        let shared = Arc::clone(&self.shared);
        let current = shared.epoch();
        let (asked, in_flight) = Submission::new(request, current);
        // A request does not wait in the queue for a connection.
        let is_current = number_of(current) == epoch && shared.is_ready(current);
        if !is_current && !shared.has_ended() {
            asked.refuse(|request| Error::ConnectionLoss { request, sent: false, cause: None });
        } else if let Some(asked) = shared.slots.enter(asked) {
            let begun = shared.begin_in_slot(asked, &shared.submitting.lock());
            match begun {
                Some((driven, epoch)) => shared.leave_to_caller(&in_flight, driven, epoch),
                None => shared.leave_slot(),
            }
        } else {
            // A caller that has a slot may not poll: from now on the monitor drives its request.
            let _monitor_gone = shared.commands.send(DriverCommand::All);
        }
        ReplyFuture::new(PendingReply { shared, in_flight })
    }

    fn heartbeat(&self, evidence: Evidence) -> ReplyFuture {
        let shared = Arc::clone(&self.shared);
        ReplyFuture::new(async move {
            let path = nonexistent_path(&*shared.randomness);
            let request = match evidence {
                Evidence::Leader => Request::Delete { path: path.into(), version: None },
                Evidence::AnyServer => Request::Exists { path: path.into(), watch: false },
            };
            let epoch = shared.epoch();
            if !shared.is_ready(epoch) {
                let request = request.to_string().into();
                return Reply::not_sent(Error::ConnectionLoss { request, sent: false, cause: None });
            }
            shared.send(request, epoch).await
        })
    }

    fn negotiated_timeout(&self) -> Duration {
        self.shared.negotiated
    }

    fn session_id(&self) -> Option<i64> {
        self.shared.ephemerals.lock().session_id()
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::default()
    }

    fn client(&self) -> &'static str {
        CLIENT
    }

    fn end(&self) {
        self.shared.ended.store(true, Ordering::SeqCst);
        self.end.send_replace(true);
    }

    fn closed(&self) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        let mut closed = self.closed.clone();
        Box::pin(async move {
            // An error means that the monitor is gone, and the session with it.
            let _gone = closed.wait_for(|&closed| closed).await;
        })
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.end();
    }
}

/// The state that the crate's event closure shares with the handle's task.
struct Seam {
    events: mpsc::UnboundedSender<HandleEvent>,
    ephemerals: Arc<Mutex<Ephemerals>>,
    /// Ends when the crate's tasks drop the event closure.
    crate_gone: mpsc::Receiver<Infallible>,
}

/// Adds the listener to the crate, and spawns the monitor that owns the session until it is closed.
fn start(
    zookeeper: ZooKeeper,
    Seam { events, ephemerals, crate_gone }: Seam,
    config: &ConnectConfig,
    negotiated: Duration,
    max_requests: u64,
) -> Handle {
    let (commands, driven) = mpsc::unbounded_channel();
    let shared = Arc::new(Shared {
        zookeeper,
        clock: Arc::clone(&config.clock),
        randomness: Arc::clone(&config.randomness),
        negotiated,
        auth: config.auth.clone(),
        ended: AtomicBool::new(false),
        why: OnceLock::new(),
        requests: AtomicU64::new(0),
        max_requests,
        disproved: Notify::new(),
        epoch: AtomicU64::new(0),
        ready: AtomicU64::new(NOT_READY),
        up: watch::Sender::new(NOT_READY),
        slots: SlotQueue::new(PLACES),
        submitting: Mutex::new(()),
        in_flight: Mutex::default(),
        commands,
        identity: format!("{}session", ProtectedId::new(&*config.randomness).prefix()),
        ephemerals,
    });
    let (transport_sender, transport) = mpsc::unbounded_channel();
    let listening = Arc::downgrade(&shared);
    // Runs inside the crate's I/O task: sets flags, then notifies the monitor, nothing else.
    shared.zookeeper.add_listener(move |state| {
        let Some(shared) = listening.upgrade() else { return };
        let told = match state {
            ZkState::Connected | ZkState::ConnectedReadOnly => {
                shared.up.send_replace(shared.epoch());
                Transport::Up
            }
            ZkState::Connecting => {
                shared.epoch.fetch_add(1, Ordering::SeqCst);
                Transport::Lost
            }
            // The adapter itself closes. Each of the crate's other states says that the session is over.
            ZkState::Closed => return,
            _ => {
                let _known = shared.why.set(SessionEnd::Expired);
                shared.ended.store(true, Ordering::SeqCst);
                Transport::Expired
            }
        };
        let _gone = transport_sender.send(told);
    });
    let (end, ending) = watch::channel(false);
    let (closed_sender, closed) = watch::channel(false);
    let monitor = Monitor { shared: Arc::clone(&shared), events, running: FuturesUnordered::new(), driven, crate_gone };
    tokio::spawn(async move {
        monitor.run(transport, ending).await;
        closed_sender.send_replace(true);
    });
    Handle { shared, end, closed }
}

/// The handle's task.
struct Monitor {
    shared: Arc<Shared>,
    events: mpsc::UnboundedSender<HandleEvent>,
    running: FuturesUnordered<Pin<Box<dyn Future<Output = ()> + Send>>>,
    driven: mpsc::UnboundedReceiver<DriverCommand>,
    /// Ends when the crate's tasks drop the event closure.
    crate_gone: mpsc::Receiver<Infallible>,
}

impl Monitor {
    async fn run(mut self, mut transport: mpsc::UnboundedReceiver<Transport>, mut ending: watch::Receiver<bool>) {
        let end = self.watch_over(&mut transport, &mut ending).await;
        self.shared.ended.store(true, Ordering::SeqCst);
        self.shared.refuse_waiting();
        self.drive(DriverCommand::All);
        self.tell(HandleEvent::Ended(end));
        self.close().await;
    }

    fn drive(&mut self, what: DriverCommand) {
        match what {
            DriverCommand::One(request) => self.running.push(Box::pin(request.finish())),
            DriverCommand::All => {
                let requests = self.shared.take_over().into_iter();
                self.running.extend(requests.map(|request| Box::pin(request.finish()) as _));
            }
        }
    }

    fn tell(&self, event: HandleEvent) {
        // Without a receiver the handle was dropped, and its drop ends the monitor.
        let _gone = self.events.send(event);
    }

    fn tell_connected(&self, VerifiedConnection { epoch, sent, leader_sent }: VerifiedConnection) {
        // Under this lock no watch of this connection delivers an event before the report.
        let _no_event = self.shared.ephemerals.lock();
        self.shared.ready.store(epoch, Ordering::SeqCst);
        let (timeout, epoch) = (self.shared.negotiated, number_of(epoch));
        self.tell(HandleEvent::Reconnected(Reattached { sent, leader_sent, timeout, epoch }));
    }

    fn on_lost(&mut self, told_connected: &mut bool) {
        self.shared.refuse_waiting();
        self.drive(DriverCommand::All);
        if std::mem::take(told_connected) {
            self.tell(HandleEvent::Disconnected(ConnectError::new(CLIENT, "the connection was lost").in_session()));
        }
    }

    async fn watch_over(
        &mut self,
        transport: &mut mpsc::UnboundedReceiver<Transport>,
        ending: &mut watch::Receiver<bool>,
    ) -> SessionEnd {
        let mut told_connected = false;
        let mut establishing: Option<Pin<Box<dyn Future<Output = _> + Send>>> =
            Some(Box::pin(Arc::clone(&self.shared).verify_until_ok(Proof::First)));
        loop {
            tokio::select! {
                biased;
                _ = ending.wait_for(|&end| end) => return SessionEnd::Closed,
                told = transport.recv() => match told {
                    Some(Transport::Lost) => {
                        self.on_lost(&mut told_connected);
                        establishing
                            .get_or_insert_with(|| Box::pin(Arc::clone(&self.shared).verify_until_ok(Proof::Again)));
                    }
                    Some(Transport::Up) => {}
                    Some(Transport::Expired) => return SessionEnd::Expired,
                    None => return SessionEnd::ClientFailed,
                },
                _ = self.crate_gone.recv() => return SessionEnd::ClientFailed,
                () = self.shared.disproved.notified() => return self.shared.why_ended(),
                Some(what) = self.driven.recv() => self.drive(what),
                Some(()) = self.running.next() => {}
                proof = async { match &mut establishing { Some(future) => future.await, None => std::future::pending().await } } => {
                    establishing = None;
                    match proof {
                        // The transport reports a loss in between next.
                        Ok(verified) => self.tell_connected(verified),
                        Err(SessionEnd::Inconsistent) => return self.shared.why_ended(),
                        Err(end) => return end,
                    }
                    told_connected = true;
                }
            }
        }
    }

    /// Closes the session behind all requests in the crate's queue, and repeats that until it is sent: a reconnect
    /// discards the queue. The crate cannot be stopped otherwise, and would keep an abandoned session alive.
    async fn close(mut self) {
        loop {
            let shared = Arc::clone(&self.shared);
            let closing = async move {
                // The crate drops the connection as soon as the close is written. So the close needs a connection that
                // has just carried a reply: not a broken one, and not one that still waits for its connect response.
                shared.reached().await;
                shared.count_request();
                match shared.zookeeper.exists(&nonexistent_path(&*shared.randomness), false).await {
                    Err(ZkError::ConnectionLoss) => Err(ZkError::ConnectionLoss),
                    _answered => shared.zookeeper.close().await,
                }
            };
            tokio::pin!(closing);
            let closed = loop {
                tokio::select! {
                    biased;
                    closed = &mut closing => break closed,
                    Some(what) = self.driven.recv() => self.drive(what),
                    Some(()) = self.running.next() => {}
                }
            };
            match closed {
                Ok(()) => return,
                // Without its tasks the crate refuses at once, and its connection is gone too.
                Err(_) if self.crate_gone.is_closed() && self.shared.is_dead() => return,
                Err(error) => tracing::debug!(error = %Chain(&error), "the session is not closed yet"),
            }
            tokio::time::sleep(RETRY_PAUSE).await;
        }
    }
}

fn translate_error(error: ZkError, request: &Request) -> Error {
    match error {
        ZkError::ConnectionLoss => {
            Error::ConnectionLoss { request: request.to_string().into(), sent: true, cause: None }
        }
        other => Error::of_code(request.path(), other as i32, request.needed(), || request.to_string()),
    }
}

fn from_crate_event(event: crate_api::WatchedEvent) -> Option<WatchedEvent> {
    let event_type = match event.event_type {
        crate_api::WatchedEventType::NodeCreated => EventType::NodeCreated,
        crate_api::WatchedEventType::NodeDeleted => EventType::NodeDeleted,
        crate_api::WatchedEventType::NodeDataChanged => EventType::NodeDataChanged,
        crate_api::WatchedEventType::NodeChildrenChanged => EventType::NodeChildrenChanged,
        _ => return None,
    };
    Some(WatchedEvent { event_type, path: event.path? })
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

fn to_crate_acl(acl: &Acl) -> crate_api::Acl {
    let permissions = PERMISSIONS
        .iter()
        .filter(|(ours, _)| acl.permissions.contains(*ours))
        .fold(crate_api::Permission::NONE, |all, (_, theirs)| all | *theirs);
    crate_api::Acl::new(permissions, &*acl.scheme, &*acl.id)
}

fn from_crate_acl(acl: crate_api::Acl) -> Acl {
    let permissions = PERMISSIONS
        .iter()
        .filter(|(_, theirs)| acl.perms.can(*theirs))
        .fold(Permission::NONE, |all, (ours, _)| all | *ours);
    Acl::new(permissions, acl.scheme, acl.id)
}

#[cfg(test)]
mod tests {
    use curator_wire::{ConnectResponse, ErrorCode, OpCode, ReplyHeader, RequestHeader, Writer};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};

    use super::*;

    fn frame(record: impl FnOnce(&mut Writer)) -> Vec<u8> {
        let mut writer = Writer::new();
        record(&mut writer);
        let bytes = writer.into_bytes();
        [&u32::try_from(bytes.len()).unwrap().to_be_bytes()[..], &bytes].concat()
    }

    async fn read_frame(stream: &mut TcpStream) -> std::io::Result<Vec<u8>> {
        let mut bytes = vec![0; stream.read_u32().await? as usize];
        stream.read_exact(&mut bytes).await?;
        Ok(bytes)
    }

    /// Serves one connection with the root as the only node, and sends the number of each request to `xids`.
    async fn serve(mut stream: TcpStream, xids: mpsc::UnboundedSender<i32>) -> std::io::Result<()> {
        read_frame(&mut stream).await?;
        let granted = ConnectResponse {
            timeout_ms: 4000,
            session_id: 7,
            password: vec![0; 16],
            read_only: Some(false),
            ..Default::default()
        };
        stream.write_all(&frame(|to| granted.encode(to))).await?;
        loop {
            let request = read_frame(&mut stream).await?;
            let header = RequestHeader::decode(&mut curator_wire::Reader::new(&request)).unwrap();
            let is_root = request.windows(5).any(|bytes| bytes == [0, 0, 0, 1, b'/']);
            let err = match header.op {
                OpCode::CloseSession => return Ok(()),
                OpCode::Exists if !is_root => ErrorCode::NoNode.code(),
                _ => 0,
            };
            if header.xid > 0 {
                xids.send(header.xid).unwrap();
            }
            let reply = frame(|to| {
                ReplyHeader { xid: header.xid, zxid: 1, err }.encode(to);
                if header.op == OpCode::Exists && err == 0 {
                    curator_wire::Stat::default().encode(to);
                }
            });
            stream.write_all(&reply).await?;
        }
    }

    #[tokio::test]
    async fn session_ends_before_the_numbers_of_the_requests_run_out() {
        const MAX: u64 = 10;
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let config = ConnectConfig::for_tests(vec![listener.local_addr().unwrap().to_string()]);
        let (xids, mut numbers) = mpsc::unbounded_channel();
        let server = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                tokio::spawn(serve(stream, xids.clone()));
            }
        });
        let Connection { handle, mut events, epoch, .. } =
            ZooKeeperAsyncFactory::connect_for(MAX, &config).await.unwrap();
        let exists = || handle.submit(Request::Exists { path: "/".into(), watch: false }, epoch);
        let mut answered = 0;
        let refused = loop {
            match exists().await.result {
                Ok(_) => answered += 1,
                Err(error) => break error,
            }
            assert!(answered <= MAX, "the session goes on");
        };
        assert!(matches!(refused, Error::SessionExpired { .. }), "{refused}");
        // The other two were the probes of the connection.
        assert_eq!(answered, MAX - 2);
        assert_eq!(events.recv().await, Some(HandleEvent::Ended(SessionEnd::ClientFailed)));
        handle.closed().await;
        server.abort();
        // The request that ended the session, and the read before its close.
        let last = std::iter::from_fn(|| numbers.try_recv().ok()).max().unwrap();
        assert!(i64::from(last) <= MAX as i64 + 2, "{last} requests");
    }

    #[test]
    fn requests_that_the_crate_answers_by_itself_are_refused_before() {
        let exists = |path: &str| refused_here(&Request::Exists { path: path.into(), watch: false });
        for path in ["", "/a/", "a/", "//"] {
            assert!(matches!(exists(path), Some(Error::InvalidPath { .. })), "{path:?}");
        }
        for path in ["/", "/a", "a", "/a//b"] {
            assert!(exists(path).is_none(), "{path:?}");
        }
        let sync = refused_here(&Request::Sync { path: "/".into() });
        assert!(matches!(sync, Some(Error::Unsupported { client: CLIENT, .. })), "{sync:?}");
    }

    #[test]
    fn what_a_server_appends_to_a_sequential_name() {
        for suffix in ["0000000000", "2147483647", "-2147483648", "-2147483638", "-000000001"] {
            assert!(is_sequence(suffix), "{suffix}");
        }
        for suffix in ["", "1", "000000001", "lock-0000000001", "00000000001", "x000000001"] {
            assert!(!is_sequence(suffix), "{suffix}");
        }
    }

    #[test]
    fn permissions_survive_the_way_there_and_back() {
        for permissions in [Permission::NONE, Permission::ALL, Permission::READ | Permission::ADMIN] {
            let acl = Acl::new(permissions, "world", "anyone");
            assert_eq!(from_crate_acl(to_crate_acl(&acl)), acl);
        }
    }
}
