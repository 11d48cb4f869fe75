//! The task of one session: opens connections, carries bytes between a socket and [`Protocol`], keeps the one timer.
//!
//! Callers encode their requests into the protocol's output. They also write it, in one system call for all that a task
//! has submitted, so a request costs no switch to another task. The session's task writes what the stream does not take
//! at once.

use std::fmt;
use std::io;
use std::mem::ManuallyDrop;
use std::net::SocketAddr;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::{Buf as _, BytesMut};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf, ReadHalf, WriteHalf};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::time::{Instant, Sleep};
use tokio_util::io::poll_read_buf;

use super::connector::Opener;
use super::hosts::{Hosts, Pause};
use super::protocol::{Event, Protocol, Settings, Violation};
use super::stream::{ByteStream, Stream};
use super::{CAPABILITIES, CLIENT};
use crate::environment::clock::Clock;
use crate::environment::randomness::{Randomness, nonexistent_path};
use crate::error::{Chain, ConnectError, Error};
use crate::model::{AddWatchMode, WatchKind};
use crate::sync::report::report;
use crate::zookeeper::{
    AddedWatch, Capabilities, ConnectConfig, Connection, Evidence, Flush, HandleEvent, NotificationCall, Reattached,
    Reply, ReplyFuture, Request, Resync, SessionEnd, WatchEvents, ZooKeeperHandle,
};

type Token = oneshot::Sender<Reply>;

/// The room for a read. Longer frames make the buffer grow, up to the frame limit.
const READ: usize = 8 * 1024;
/// The capacity above which an empty buffer is freed.
const KEPT: usize = 64 * 1024;
/// The capacity for events that is kept after their delivery.
const KEPT_EVENTS: usize = 64;
/// The longest time for which the drop of the task blocks its thread, to close the session.
const LAST_WRITE: Duration = Duration::from_millis(200);
/// The longest sleep of a connection's timer: the clock advances while the machine sleeps, timers do not.
const LONGEST_SLEEP: Duration = Duration::from_secs(1);

/// The state that handle and driver share.
struct Shared {
    link: Mutex<Link>,
    clock: Arc<dyn Clock>,
    randomness: Arc<dyn Randomness>,
    /// Notifies the driver that the session has ended: the close timeout begins.
    ended: Notify,
    /// The call that makes guards lost when the driver is dropped.
    task_dropped: Mutex<Option<Box<dyn FnOnce() + Send>>>,
    /// The call that wakes waiters.
    notify: OnceLock<NotificationCall>,
}

struct Link {
    /// The process that opened the session. A fork copies the session, but shares its socket.
    process: u32,
    protocol: Protocol<Token>,
    /// The write half of the protocol's connection.
    writer: Option<Writer>,
    read_only: bool,
    driver: Option<Waker>,
    /// The stream did not take all output, and wakes the driver when it can take more.
    is_full: bool,
    /// The error of a caller's write, for the driver.
    broken: Option<Violation>,
    /// The number of callers that are submitting several requests: `flush` writes nothing meanwhile.
    gathering: usize,
}

enum Reader {
    Tcp(OwnedReadHalf),
    Other(ReadHalf<Box<dyn ByteStream>>),
}

enum Writer {
    Tcp(OwnedWriteHalf),
    Other(WriteHalf<Box<dyn ByteStream>>),
}

impl AsyncRead for Reader {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, to: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_read(cx, to),
            Self::Other(stream) => Pin::new(stream).poll_read(cx, to),
        }
    }
}

impl Writer {
    fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self {
            Self::Tcp(stream) => Pin::new(stream).poll_write(cx, bytes),
            Self::Other(stream) => Pin::new(stream).poll_write(cx, bytes),
        }
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Tcp(_) => Poll::Ready(Ok(())),
            Self::Other(stream) => Pin::new(stream).poll_flush(cx),
        }
    }
}

impl Link {
    fn wake_driver(&self) {
        if let Some(driver) = &self.driver {
            driver.wake_by_ref();
        }
    }

    /// Returns `true` in a process that was forked from the one that opened the session.
    fn is_copy(&self) -> bool {
        self.process != std::process::id()
    }

    /// Writes the requests that callers have submitted, and leaves the rest to the driver.
    fn flush(&mut self) {
        if !self.flush_now() {
            self.wake_driver();
        }
    }

    /// Writes as much as the transport takes now. Returns `false` if the driver has to write the rest.
    fn flush_now(&mut self) -> bool {
        if self.protocol.output().is_empty() || self.gathering > 0 || self.is_copy() {
            return true;
        }
        match (&mut self.writer, &self.driver) {
            (Some(Writer::Tcp(stream)), _) => {
                // The driver gets the same error when it reads.
                if let Ok(written) = stream.try_write(self.protocol.output()) {
                    self.protocol.written(written);
                }
                self.protocol.output().is_empty()
            }
            _ if self.broken.is_some() => false,
            // A failed write loses the output. When the runtime ends, the driver still finishes a half-written request.
            _ if self.is_full => true,
            (Some(writer), Some(driver)) => {
                self.broken = write(&mut self.protocol, writer, &mut Context::from_waker(driver)).err();
                self.is_full = !self.protocol.output().is_empty();
                self.broken.is_none()
            }
            _ => false,
        }
    }

    /// Writes a request that is not urgent. The driver writes the rest at its next poll, within a second. It is not
    /// woken, because tokio would keep it for the caller's thread, and the caller may compute.
    fn flush_some_time(&mut self) {
        let _all_written = self.flush_now();
    }
}

impl Flush for Shared {
    fn flush(&self) {
        self.link.lock().flush();
    }
}

impl Shared {
    /// Passes a request to the protocol with a channel for its reply.
    fn send(
        self: &Arc<Self>,
        submit: impl FnOnce(&mut Protocol<Token>, Token, Duration) -> Result<(), (Token, Error)>,
    ) -> ReplyFuture {
        let (token, reply) = oneshot::channel();
        let now = self.clock.now();
        if let Err((token, error)) = submit(&mut self.link.lock().protocol, token, now) {
            // Never an error: the receiver still exists.
            let _received = token.send(Reply::not_sent(error));
        }
        ReplyFuture::from_channel(reply, Arc::clone(self) as Arc<dyn Flush>)
    }

    fn has_session(&self) -> bool {
        self.link.lock().protocol.session_id().is_some()
    }

    fn end(&self) {
        let mut link = self.link.lock();
        link.protocol.close(self.clock.now());
        link.wake_driver();
        drop(link);
        self.ended.notify_one();
    }
}

/// Holds back submitted requests until it is dropped.
struct Gathering<'a>(&'a Shared);

impl<'a> Gathering<'a> {
    fn new(shared: &'a Shared) -> Self {
        shared.link.lock().gathering += 1;
        Self(shared)
    }
}

impl Drop for Gathering<'_> {
    fn drop(&mut self) {
        let mut link = self.0.link.lock();
        link.gathering -= 1;
        link.flush();
    }
}

/// The caller's end of a session.
struct Handle {
    shared: Arc<Shared>,
    closed: watch::Receiver<bool>,
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let link = self.shared.link.lock();
        f.debug_struct("Handle")
            .field("session", &format_args!("{:#x}", link.protocol.session_id().unwrap_or_default()))
            .field("over", &link.protocol.over())
            .finish_non_exhaustive()
    }
}

impl ZooKeeperHandle for Handle {
    fn submit(&self, request: Request, epoch: u64) -> ReplyFuture {
        self.shared.send(|protocol, token, now| protocol.submit(request, epoch, token, now))
    }

    fn write_together(&self, submit: &mut dyn FnMut()) {
        let _gathering = Gathering::new(&self.shared);
        submit();
    }

    fn heartbeat(&self, evidence: Evidence) -> ReplyFuture {
        self.shared.send(|protocol, token, now| match evidence {
            Evidence::Leader => protocol.heartbeat(nonexistent_path(&*self.shared.randomness).into(), token, now),
            Evidence::AnyServer => protocol.ping(token, now),
        })
    }

    fn negotiated_timeout(&self) -> Duration {
        self.shared.link.lock().protocol.timeout()
    }

    fn session_id(&self) -> Option<i64> {
        self.shared.link.lock().protocol.session_id()
    }

    fn set_owning(&self, owning: bool) {
        self.shared.link.lock().protocol.set_owning(owning, self.shared.clock.now());
    }

    fn capabilities(&self) -> Capabilities {
        CAPABILITIES
    }

    fn add_watch(&self, path: &str, mode: AddWatchMode, resync: Option<Arc<dyn Resync>>) -> AddedWatch {
        let (to, events) = WatchEvents::channel();
        let mut id = 0;
        let reply = self.shared.send(|protocol, token, now| {
            id = protocol.add_watch(path, mode, resync, to, token, now)?;
            Ok(())
        });
        let (shared, path) = (Arc::clone(&self.shared), path.to_owned());
        // The watch is removed also if the future is dropped before the reply.
        let events = events.on_drop(move || {
            let mut link = shared.link.lock();
            link.protocol.unsubscribe(&path, mode, id, shared.clock.now());
            link.flush_some_time();
        });
        Box::pin(async move { reply.await.result.map(|_acknowledged| events) })
    }

    fn forget_watch(&self, path: &str, kind: WatchKind) {
        let mut link = self.shared.link.lock();
        link.protocol.forget(path, kind, self.shared.clock.now());
        link.flush_some_time();
    }

    fn is_read_only(&self) -> bool {
        self.shared.link.lock().read_only
    }

    fn client(&self) -> &'static str {
        CLIENT
    }

    fn end(&self) {
        self.shared.end();
    }

    fn on_task_dropped(&self, call: Box<dyn FnOnce() + Send>) {
        *self.shared.task_dropped.lock() = Some(call);
    }

    fn on_notification(&self, call: NotificationCall) {
        // The session sets it once, before it sends a read.
        let _first = self.shared.notify.set(call);
    }

    fn closed(&self) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        let mut closed = self.closed.clone();
        Box::pin(async move {
            // An error means that the task is gone, and the connection with it.
            let _gone = closed.wait_for(|&closed| closed).await;
        })
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.shared.end();
    }
}

/// Establishes a session: one round over all servers.
pub(super) async fn connect(opener: Opener, config: &ConnectConfig) -> Result<Connection, ConnectError> {
    let (driver, event_receiver) = Driver::new(opener, config);
    let shared = Arc::clone(&driver.shared);
    let mut first = FirstConnect { driver: Some(driver) };
    let Established { driver, attached } = first.run().await?;
    let (closed_sender, closed) = watch::channel(false);
    tokio::spawn(async move {
        driver.run().await;
        closed_sender.send_replace(true);
    });
    Ok(Connection {
        handle: Arc::new(Handle { shared, closed }),
        events: event_receiver,
        sent: attached.sent,
        established: attached.sent,
        epoch: attached.epoch,
    })
}

/// A session with its first connection.
struct Established {
    driver: Driver,
    attached: Reattached,
}

/// The first connect of a session. If it fails or is dropped, it closes a session that a server has made by then.
struct FirstConnect {
    driver: Option<Driver>,
}

impl FirstConnect {
    async fn run(&mut self) -> Result<Established, ConnectError> {
        let round = match &mut self.driver {
            Some(driver) => driver.first_round().await,
            None => Err(ConnectError::new(CLIENT, "it was connected before")),
        };
        // From here on, a dropped connect leaves the session to the server's timer.
        match (round, self.driver.take()) {
            (Ok(attached), Some(driver)) => Ok(Established { driver, attached }),
            (Err(error), Some(mut driver)) => {
                // Awaited before the error is returned: a program that exits on it leaves no session.
                driver.abandon().await;
                Err(error)
            }
            (_, None) => Err(ConnectError::new(CLIENT, "it was connected before")),
        }
    }
}

impl Drop for FirstConnect {
    fn drop(&mut self) {
        let Some(mut driver) = self.driver.take() else { return };
        // Without a runtime the session is left to the server's timer.
        if let (true, Ok(runtime)) = (driver.shared.has_session(), tokio::runtime::Handle::try_current()) {
            runtime.spawn(async move { driver.abandon().await });
        }
    }
}

/// The end of a connection, or its beginning.
enum Step {
    Connected(Reattached),
    Lost(String),
    /// The session is over, and closed on the server as far as that is possible.
    Over,
}

/// The time limit of a round's attempts.
#[derive(Clone, Copy)]
enum Limit {
    /// The first connection of a session: the client's connection timeout.
    First,
    /// The connection was lost at this time of the client's clock.
    LostAt(Duration),
}

struct Driver {
    shared: Arc<Shared>,
    opener: Opener,
    config: ConnectConfig,
    hosts: Hosts,
    events: mpsc::UnboundedSender<HandleEvent>,
    /// Events taken from the protocol, to be delivered without its lock.
    told: Vec<Event<Token>>,
    /// The read half of the protocol's connection.
    reader: Option<Reader>,
    /// The server of the current connection.
    server: String,
    /// The address of this server, if the client has resolved it.
    address: Option<SocketAddr>,
    buffer: BytesMut,
    timer: Pin<Box<Sleep>>,
    /// A violation behind the frame that ended the last step: the next `poll_link` returns it.
    violation: Option<Violation>,
    /// The session has been attached before.
    attached: bool,
    /// The number of the newest connection that was attached.
    epoch: u64,
    /// The server has closed the session.
    closed: bool,
    /// The next attempt does not wait for the pacer.
    at_once: bool,
    /// The task has ended by itself: its drop does not close the session.
    ended: bool,
}

impl Driver {
    /// Returns the driver of a new session, without a connection, and the receiver of its events.
    fn new(opener: Opener, config: &ConnectConfig) -> (Self, mpsc::UnboundedReceiver<HandleEvent>) {
        let settings = Settings {
            session_timeout: config.session_timeout,
            auth: config.auth.clone(),
            sasl: config.sasl.clone(),
            read_only: config.read_only,
            max_frame: config.max_frame,
            max_reply: config.max_reply,
        };
        let shared = Arc::new(Shared {
            link: Mutex::new(Link {
                process: std::process::id(),
                protocol: Protocol::new(settings),
                writer: None,
                read_only: false,
                driver: None,
                is_full: false,
                broken: None,
                gathering: 0,
            }),
            clock: Arc::clone(&config.clock),
            randomness: Arc::clone(&config.randomness),
            ended: Notify::new(),
            task_dropped: Mutex::new(None),
            notify: OnceLock::new(),
        });
        let (events, event_receiver) = mpsc::unbounded_channel();
        let driver = Self {
            shared,
            opener,
            config: config.clone(),
            hosts: Hosts::default(),
            events,
            told: Vec::new(),
            reader: None,
            server: String::new(),
            address: None,
            buffer: BytesMut::new(),
            timer: Box::pin(tokio::time::sleep(Duration::ZERO)),
            violation: None,
            attached: false,
            epoch: 0,
            closed: false,
            at_once: false,
            ended: false,
        };
        (driver, event_receiver)
    }

    /// Serves the session until it is over and closed on the server, at most for the close timeout after its end.
    async fn run(mut self) {
        let (shared, close_timeout) = (Arc::clone(&self.shared), self.config.close_timeout);
        let closing = async {
            shared.ended.notified().await;
            tokio::time::sleep(close_timeout).await;
        };
        tokio::select! {
            biased;
            () = self.serve() => {}
            () = closing => tracing::debug!("the session is left to the server's timer"),
        }
        self.ended = true;
    }

    /// Tries each server once. Fails if the client closes while a server has made a session but not attached it.
    async fn first_round(&mut self) -> Result<Reattached, ConnectError> {
        let (shared, closing) = (Arc::clone(&self.shared), self.config.closing.clone());
        let mut round = std::pin::pin!(self.round(Limit::First));
        tokio::select! {
            biased;
            round = &mut round => return round,
            () = closing.begun() => {}
        }
        std::future::poll_fn(|cx| match round.as_mut().poll(cx) {
            Poll::Pending if shared.has_session() => {
                Poll::Ready(Err(ConnectError::new(CLIENT, "the client is closed")))
            }
            round => round,
        })
        .await
    }

    /// Closes a session that was made but cannot be used.
    async fn abandon(&mut self) {
        {
            let mut link = self.shared.link.lock();
            link.protocol.lost(None);
            link.protocol.abandon();
        }
        if self.shared.has_session() {
            // The program may exit when the close is done, so it does not wait for the pacer.
            self.at_once = true;
            let (lost_at, limit) = (self.shared.clock.now(), self.config.close_timeout);
            let _in_time = tokio::time::timeout(limit, self.reattach(lost_at)).await;
        }
        self.ended = true;
    }

    async fn serve(&mut self) {
        loop {
            let reason = match std::future::poll_fn(|cx| self.poll_link(cx)).await {
                Step::Over => return,
                Step::Lost(reason) => reason,
                // The attempt that opened the connection has handled it.
                Step::Connected(_) => continue,
            };
            let cause = ConnectError::new(self.server.clone(), reason).in_session();
            let lost = cause.clone();
            report(move || tracing::debug!(cause = %lost, "connection lost"));
            let lost_at = self.shared.clock.now();
            self.lose(Some(cause.clone()));
            if self.is_over() {
                return;
            }
            if self.shared.link.lock().protocol.over().is_none() {
                self.tell(HandleEvent::Disconnected(cause));
            }
            if self.reattach(lost_at).await.is_none() {
                return;
            }
        }
    }

    /// Connects again until the session is attached; `None` when it is over.
    async fn reattach(&mut self, lost_at: Duration) -> Option<Reattached> {
        let mut pause = Pause::default();
        loop {
            tokio::time::sleep(pause.next(&*self.config.randomness)).await;
            match self.round(Limit::LostAt(lost_at)).await {
                Ok(attached) => return Some(attached),
                Err(_) if self.is_over() => return None,
                Err(error) => self.tell(HandleEvent::Unreachable(error.in_session())),
            }
        }
    }

    /// Returns `true` if the session is over and does not need a close.
    fn is_over(&self) -> bool {
        self.closed || self.shared.link.lock().protocol.over().is_some_and(|end| !end.needs_close())
    }

    /// Tries each server once, from the one behind the last one tried.
    async fn round(&mut self, limit: Limit) -> Result<Reattached, ConnectError> {
        let mut failures = Vec::new();
        let mut left = usize::MAX;
        // Set after the pacer's first wait, which does not count as the servers' time.
        let mut until = None;
        while left > 0 {
            // Read before each attempt, because the list may change.
            match self.config.servers.current() {
                Ok(servers) => self.hosts.update(servers, &*self.config.randomness),
                Err(error) if self.hosts.len() == 0 => return Err(error),
                Err(error) => report(move || {
                    tracing::warn!(error = %Chain(&error), "the list of servers cannot be read, so the one before it holds");
                }),
            }
            left = left.min(self.hosts.len());
            let Some(server) = self.hosts.next() else { break };
            let wait = self.config.pacer.book(self.shared.clock.now(), &*self.config.randomness);
            if !wait.is_zero() && !std::mem::take(&mut self.at_once) {
                tokio::time::sleep(wait).await;
            }
            let until = *until.get_or_insert_with(|| Instant::now() + self.config.connection_timeout);
            let limit = self.attempt_limit(limit, until, left);
            if limit.is_zero() {
                failures.push((server, "there was no time left to try it".to_owned()));
                break;
            }
            match self.try_server(&server, limit).await {
                Ok(attached) => return Ok(attached),
                Err(reason) => failures.push((server, reason)),
            }
            if self.is_over() {
                break;
            }
            left -= 1;
        }
        let error = ConnectError::from_failures(failures);
        let is_refusal = self.shared.link.lock().protocol.over() == Some(SessionEnd::AuthFailed);
        Err(if is_refusal { error.refusing_credentials() } else { error })
    }

    /// Tries each address of a server, with an equal share of the time left to connect and to attach.
    async fn try_server(&mut self, server: &str, limit: Duration) -> Result<Reattached, String> {
        let until = Instant::now() + limit;
        let resolved = tokio::time::timeout_at(until, self.opener.resolve(server)).await;
        let mut addresses = match resolved {
            Ok(found) => found.map_err(|error| error.to_string())?,
            Err(_elapsed) => return Err(format!("name not resolved within {limit:.1?}")),
        };
        // The address that was used last has failed, so it is tried last.
        addresses.sort_by_key(|address| address.is_some() && *address == self.address);
        let mut failed = "its name has no address".to_owned();
        for (tried, address) in addresses.iter().enumerate() {
            if tried > 0 {
                tokio::time::sleep(self.config.pacer.book(self.shared.clock.now(), &*self.config.randomness)).await;
            }
            let left = until.saturating_duration_since(Instant::now());
            let share = left / u32::try_from(addresses.len() - tried).unwrap_or(u32::MAX);
            let attempt = tokio::time::timeout(share, self.attempt(server, *address)).await;
            match attempt.unwrap_or_else(|_elapsed| Err(format!("no answer within {share:.1?}"))) {
                Ok(attached) => return Ok(attached),
                Err(reason) => {
                    self.lose(None);
                    failed = reason;
                    if self.is_over() {
                        break;
                    }
                }
            }
        }
        Err(failed)
    }

    /// Returns the time limit for one server, if `servers` are left in the round.
    fn attempt_limit(&self, limit: Limit, until: Instant, servers: usize) -> Duration {
        let left = match limit {
            Limit::First => until.saturating_duration_since(Instant::now()),
            Limit::LostAt(lost_at) => {
                let (protocol, now) = (&self.shared.link.lock().protocol, self.shared.clock.now());
                // The session may outlive the limit, so each round gets at least a sixth of the timeout.
                protocol.reattach_limit(lost_at).saturating_sub(now).max(protocol.timeout() / 6)
            }
        };
        left.min(self.config.connection_timeout) / u32::try_from(servers).unwrap_or(u32::MAX)
    }

    /// Opens a connection to one server and attaches the session.
    async fn attempt(&mut self, server: &str, address: Option<SocketAddr>) -> Result<Reattached, String> {
        if self.give_up_copy() {
            return Err("the session belongs to another process".to_owned());
        }
        self.address = address;
        let stream = self.opener.open(server, address).await.map_err(|error| error.to_string())?;
        server.clone_into(&mut self.server);
        self.buffer.clear();
        self.violation = None;
        let (reader, writer) = split(stream);
        self.reader = Some(reader);
        {
            let mut link = self.shared.link.lock();
            link.protocol.open(self.shared.clock.now(), self.shared.randomness.next());
            link.writer = Some(writer);
            (link.is_full, link.broken) = (false, None);
        }
        match std::future::poll_fn(|cx| self.poll_link(cx)).await {
            Step::Connected(attached) => Ok(attached),
            Step::Lost(reason) => Err(reason),
            Step::Over => {
                let link = self.shared.link.lock();
                let end = link.protocol.over().unwrap_or(SessionEnd::Closed);
                Err(link.protocol.refused_scheme().map_or_else(|| end.to_string(), |scheme| end.refusing(scheme)))
            }
        }
    }

    /// Drops the connection, and ends its requests.
    fn lose(&mut self, cause: Option<ConnectError>) {
        self.reader = None;
        {
            let mut link = self.shared.link.lock();
            link.protocol.lost(cause);
            link.writer = None;
            self.told.extend(std::iter::from_fn(|| link.protocol.next_event()));
        }
        drop(self.deliver());
    }

    fn tell(&self, event: HandleEvent) {
        // Without a receiver the handle was dropped, and its drop ends the session.
        let _gone = self.events.send(event);
    }

    /// Delivers the events taken from the protocol. Returns the step that they mean.
    fn deliver(&mut self) -> Option<Step> {
        let mut step = None;
        let mut told = std::mem::take(&mut self.told);
        for event in told.drain(..) {
            let event = match event {
                Event::Reply(token, reply) => {
                    // Without a receiver the caller is gone, and its reply is ignored.
                    let _gone = token.send(reply);
                    continue;
                }
                Event::Notification(event) => match self.shared.notify.get() {
                    Some(notify) => {
                        notify(event, self.epoch);
                        continue;
                    }
                    None => HandleEvent::Watched(event),
                },
                Event::Shortened { sent, timeout } => HandleEvent::Shortened { sent, timeout },
                Event::Connected { reattached, read_only } => {
                    step = Some(Step::Connected(reattached));
                    self.epoch = reattached.epoch;
                    self.shared.link.lock().read_only = read_only;
                    // The factory reports the first connection.
                    if std::mem::replace(&mut self.attached, true) {
                        let _gone = self.events.send(HandleEvent::Reconnected(reattached));
                    }
                    if !read_only {
                        continue;
                    }
                    HandleEvent::ReadOnly
                }
                Event::Ended(end) => {
                    if !end.needs_close() {
                        step = Some(Step::Over);
                    }
                    HandleEvent::Ended(end)
                }
                Event::Closed => {
                    self.closed = true;
                    step = Some(Step::Over);
                    continue;
                }
            };
            let _gone = self.events.send(event);
        }
        if told.capacity() <= KEPT_EVENTS {
            self.told = told;
        }
        step
    }

    /// Carries bytes until the connection is attached or lost, or the session is over.
    fn poll_link(&mut self, cx: &mut Context<'_>) -> Poll<Step> {
        // Once a poll is enough: nothing in a poll forks the process.
        if self.give_up_copy() {
            return Poll::Ready(Step::Over);
        }
        loop {
            if let Some(Violation(reason)) = self.violation.take() {
                return Poll::Ready(Step::Lost(reason));
            }
            let Some(reader) = &mut self.reader else {
                return Poll::Ready(self.stopped("there is no connection"));
            };
            let received = match poll_read_buf(Pin::new(reader), cx, room(&mut self.buffer)) {
                Poll::Ready(Ok(0)) => return Poll::Ready(self.stopped("the server closed the connection")),
                Poll::Ready(Ok(bytes)) => bytes,
                Poll::Ready(Err(error)) => return Poll::Ready(self.stopped(&reason(&error))),
                Poll::Pending => 0,
            };
            let carried = self.carry(received, cx);
            if let Some(step) = self.deliver() {
                self.violation = carried.err();
                return Poll::Ready(step);
            }
            match carried {
                Err(Violation(reason)) => return Poll::Ready(Step::Lost(reason)),
                Ok(limit) if received == 0 && !self.wait_until(limit, cx) => return Poll::Pending,
                Ok(_) => {}
            }
        }
    }

    /// Returns the step that the end of the stream means.
    fn stopped(&self, reason: &str) -> Step {
        let link = self.shared.link.lock();
        match link.protocol.over() {
            // A close without a reply is repeated on the next connection.
            Some(end) if !end.needs_close() => Step::Over,
            _ if link.protocol.is_connecting() => Step::Lost(format!("{reason} without an answer")),
            _ => Step::Lost(reason.to_owned()),
        }
    }

    /// Passes read bytes to the protocol, and its output to the transport. Returns the pause until the next check.
    fn carry(&mut self, received: usize, cx: &mut Context<'_>) -> Result<Option<Duration>, Violation> {
        let now = self.shared.clock.now();
        let mut link = self.shared.link.lock();
        let Link { protocol, writer, driver, is_full, broken, .. } = &mut *link;
        match driver {
            Some(waker) => waker.clone_from(cx.waker()),
            None => *driver = Some(cx.waker().clone()),
        }
        let mut carried = Ok(());
        if received > 0 {
            match protocol.receive(&self.buffer, now) {
                Ok(consumed) => self.buffer.advance(consumed),
                Err(violation) => carried = Err(violation),
            }
        }
        if let (Ok(()), Some(violation)) = (&carried, broken.take()) {
            carried = Err(violation);
        }
        protocol.set_throttled_watches(now);
        if let (Ok(()), Some(writer)) = (&carried, writer) {
            carried = write(protocol, writer, cx);
            *is_full = !protocol.output().is_empty();
        }
        self.told.extend(std::iter::from_fn(|| protocol.next_event()));
        carried?;
        let limit = protocol.silence_limit();
        match limit {
            Some(limit) if now >= limit => {
                Err(Violation(format!("no byte from the server for {:.1?}", protocol.silence(now))))
            }
            Some(limit) => Ok(Some((limit - now).min(LONGEST_SLEEP).min(protocol.timeout() / 8))),
            None => Ok(protocol.watches_again_at().map(|at| at.saturating_sub(now))),
        }
    }

    /// Sets the timer to wake the task after `pause`. Returns `true` if that is now.
    fn wait_until(&mut self, pause: Option<Duration>, cx: &mut Context<'_>) -> bool {
        let Some(pause) = pause else { return false };
        if self.timer.is_elapsed() {
            self.timer.as_mut().reset(Instant::now() + pause);
        }
        self.timer.as_mut().poll(cx).is_ready()
    }
}

impl Driver {
    /// Ends the session of another process here alone, without a byte. Returns `false` for a session of this process.
    fn give_up_copy(&mut self) -> bool {
        let mut link = self.shared.link.lock();
        if !link.is_copy() {
            return false;
        }
        link.protocol.fail();
        link.protocol.lost(None);
        self.told.extend(std::iter::from_fn(|| link.protocol.next_event()));
        // Leaked: their drop would shut down the socket, and remove it from the epoll set, which the processes share.
        let _leaked = ManuallyDrop::new((self.reader.take(), link.writer.take()));
        drop(link);
        drop(self.deliver());
        true
    }

    /// Ends the connection. Returns it with the bytes that close the session, if the task did not end by itself.
    fn take_connection(&mut self) -> Option<(Box<dyn ByteStream>, Vec<u8>)> {
        let mut link = self.shared.link.lock();
        let is_open = !self.ended && !self.closed && link.protocol.close_at_once();
        let last = link.protocol.output().to_vec();
        link.protocol.lost(None);
        link.driver = None;
        self.told.extend(std::iter::from_fn(|| link.protocol.next_event()));
        let halves = (self.reader.take(), link.writer.take());
        drop(link);
        let (Some(reader), Some(writer), true) = (halves.0, halves.1, is_open) else { return None };
        Some((join(reader, writer)?, last))
    }
}

impl Drop for Driver {
    /// Replies to every caller, also when the runtime ends: no caller waits for a reply that cannot come. Closes the
    /// session if the task did not end by itself.
    fn drop(&mut self) {
        self.shared.link.lock().protocol.fail();
        // First of all: guards must be lost before the server can delete their nodes.
        let task_dropped = self.shared.task_dropped.lock().take();
        if let (Some(task_dropped), false) = (task_dropped, self.ended) {
            // A second panic during an unwinding would abort the process.
            let _panicked = std::panic::catch_unwind(AssertUnwindSafe(task_dropped));
        }
        if self.give_up_copy() {
            return;
        }
        let connection = self.take_connection();
        drop(self.deliver());
        if let Some((stream, last)) = connection {
            if let Err(error) = stream.close_blocking(&last, LAST_WRITE) {
                tracing::debug!(error = %Chain(&error), "the session is left to the server's timer");
            }
        }
    }
}

fn split(stream: Stream) -> (Reader, Writer) {
    match stream {
        Stream::Tcp(stream) => {
            let (reader, writer) = stream.into_split();
            (Reader::Tcp(reader), Writer::Tcp(writer))
        }
        Stream::Other(stream) => {
            let (reader, writer) = tokio::io::split(stream);
            (Reader::Other(reader), Writer::Other(writer))
        }
    }
}

/// Reverses [`split`]. Returns `None` for halves of different streams.
fn join(reader: Reader, writer: Writer) -> Option<Box<dyn ByteStream>> {
    match (reader, writer) {
        (Reader::Tcp(reader), Writer::Tcp(writer)) => Some(Box::new(reader.reunite(writer).ok()?)),
        (Reader::Other(reader), Writer::Other(writer)) if reader.is_pair_of(&writer) => Some(reader.unsplit(writer)),
        _ => None,
    }
}

/// Returns the buffer with room for a read.
fn room(buffer: &mut BytesMut) -> &mut BytesMut {
    if buffer.is_empty() && buffer.capacity() > KEPT {
        *buffer = BytesMut::new();
    }
    buffer.reserve(READ);
    buffer
}

/// Writes the output as far as the transport takes it.
fn write(protocol: &mut Protocol<Token>, writer: &mut Writer, cx: &mut Context<'_>) -> Result<(), Violation> {
    let failed = |error: io::Error| Violation(reason(&error));
    while !protocol.output().is_empty() {
        match writer.poll_write(cx, protocol.output()) {
            Poll::Ready(Ok(0)) => return Err(Violation("the connection takes no more bytes".to_owned())),
            Poll::Ready(Ok(written)) => protocol.written(written),
            Poll::Ready(Err(error)) => {
                // TLS may have written a part in several records before the one that failed.
                if matches!(writer, Writer::Other(_)) {
                    protocol.written(protocol.output().len());
                }
                return Err(failed(error));
            }
            Poll::Pending => return Ok(()),
        }
    }
    match writer.poll_flush(cx) {
        Poll::Ready(Err(error)) => Err(failed(error)),
        _ => Ok(()),
    }
}

/// Describes a stream's error. TLS reports a certificate that it rejects only when it reads.
fn reason(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::InvalidData => format!("TLS: {error}"),
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::net::{TcpListener, TcpStream};

    use super::*;

    /// Returns what the server can read after a flush and the drop of the driver.
    async fn read_by_server(is_copy: bool) -> io::Result<usize> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let stream = TcpStream::connect(listener.local_addr()?)?;
        stream.set_nonblocking(true)?;
        let (mut server, _) = listener.accept()?;
        server.set_nonblocking(is_copy)?;
        let config = ConnectConfig::for_tests(Vec::new());
        let opener = Opener::new(None, &config).map_err(io::Error::other)?;
        let (mut driver, _events) = Driver::new(opener, &config);
        let stream = tokio::net::TcpStream::from_std(stream)?;
        stream.writable().await?;
        let (reader, writer) = split(Stream::Tcp(stream));
        driver.reader = Some(reader);
        {
            let mut link = driver.shared.link.lock();
            link.protocol.open(Duration::ZERO, 0);
            link.writer = Some(writer);
            link.process = std::process::id() + u32::from(is_copy);
            link.flush();
        }
        drop(driver);
        server.read(&mut [0; 64])
    }

    #[tokio::test]
    async fn forked_process_sends_nothing_and_leaves_the_socket_open() {
        assert!(read_by_server(false).await.is_ok_and(|read| read > 0), "the process of the session sends its request");
        let nothing = read_by_server(true).await.map_err(|error| error.kind());
        assert_eq!(nothing, Err(io::ErrorKind::WouldBlock), "neither a byte nor the end of the stream");
    }

    #[tokio::test]
    async fn forked_process_ends_the_session_and_opens_no_connection() {
        let config = ConnectConfig::for_tests(Vec::new());
        let opener = Opener::new(None, &config).unwrap();
        let (mut driver, mut events) = Driver::new(opener, &config);
        driver.shared.link.lock().process += 1;
        let refused = driver.attempt("127.0.0.1:1", None).await.err();
        assert_eq!(refused.as_deref(), Some("the session belongs to another process"));
        assert!(matches!(events.try_recv(), Ok(HandleEvent::Ended(SessionEnd::ClientFailed))));
    }
}
