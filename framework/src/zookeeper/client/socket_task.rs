//! The task of one session: opens connections, carries bytes between a socket and [`Protocol`], keeps the one timer.
//!
//! Callers encode their requests into the protocol's output. They also write it, in one system call for all that a task
//! has submitted, so a request costs no switch to another task. The session's task writes what the stream does not take
//! at once.

use std::mem::ManuallyDrop;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf as _, BytesMut};
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio::time::{Instant, Sleep};
use tokio_util::io::poll_read_buf;
use tokio_util::sync::CancellationToken;

use super::connector::Opener;
use super::hosts::Hosts;
use super::link::{Link, Reader, SessionIo, Token, join, reason, write};
use super::login::{Failed, Login};
use super::protocol::{Event, Protocol, Settings, Violation};
use super::stream::ByteStream;
use crate::error::{Chain, ConnectError};
use crate::sync::panics::caught;
use crate::sync::report::report;
use crate::zookeeper::sasl::SaslServer;
use crate::zookeeper::{ConnectConfig, HandleEvent, Reattached, SessionEnd};

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

/// The end of a connection, or its start.
pub(super) enum Step {
    Connected(Reattached),
    Lost(String),
    /// The session has ended, and is closed on the server as far as that is possible.
    Over,
}

pub(super) struct SocketTask {
    pub(super) shared: Arc<SessionIo>,
    pub(super) opener: Opener,
    pub(super) config: ConnectConfig,
    pub(super) hosts: Hosts,
    pub(super) events: mpsc::UnboundedSender<HandleEvent>,
    /// Events taken from the protocol, to be delivered without its lock.
    pub(super) told: Vec<Event<Token>>,
    /// The read half of the protocol's connection.
    pub(super) reader: Option<Reader>,
    /// The server of the current connection.
    pub(super) server: String,
    /// The address of this server, if the client has resolved it.
    pub(super) address: Option<SocketAddr>,
    /// The login of the current connection, until it is complete.
    login: Option<Login>,
    pub(super) buffer: BytesMut,
    timer: Pin<Box<Sleep>>,
    /// A violation behind the frame that ended the last step: the next `poll_link` returns it.
    pub(super) violation: Option<Violation>,
    /// The session has been attached before.
    pub(super) attached: bool,
    /// The number of the newest connection that was attached.
    pub(super) epoch: u64,
    /// The server has closed the session.
    pub(super) closed: bool,
    /// The next attempt does not wait for the pacer.
    pub(super) at_once: bool,
    /// The task has ended by itself: its drop does not close the session.
    pub(super) ended: bool,
}

impl SocketTask {
    /// Returns the socket task of a new session, without a connection, and the receiver of its events.
    pub(super) fn new(opener: Opener, config: &ConnectConfig) -> (Self, mpsc::UnboundedReceiver<HandleEvent>) {
        let settings = Settings {
            session_timeout: config.session_timeout,
            auth: config.auth.clone(),
            sasl: config.sasl.is_some(),
            read_only: config.read_only,
            max_frame: config.max_frame,
            max_reply: config.max_reply,
        };
        let shared = Arc::new(SessionIo {
            link: Mutex::new(Link {
                process: std::process::id(),
                protocol: Protocol::new(settings),
                writer: None,
                read_only: false,
                task: None,
                is_full: false,
                broken: None,
                gathering: 0,
            }),
            clock: Arc::clone(&config.clock),
            randomness: Arc::clone(&config.randomness),
            ended: CancellationToken::new(),
            task_dropped: Mutex::new(None),
            notify: OnceLock::new(),
        });
        let (events, event_receiver) = mpsc::unbounded_channel();
        let task = Self {
            shared,
            opener,
            config: config.clone(),
            hosts: Hosts::default(),
            events,
            told: Vec::new(),
            reader: None,
            server: String::new(),
            address: None,
            login: None,
            buffer: BytesMut::new(),
            timer: Box::pin(tokio::time::sleep(Duration::ZERO)),
            violation: None,
            attached: false,
            epoch: 0,
            closed: false,
            at_once: false,
            ended: false,
        };
        (task, event_receiver)
    }

    /// Serves the session until it has ended and is closed on the server, at most for the close timeout after its end.
    pub(super) async fn run(mut self) {
        let (shared, close_timeout) = (Arc::clone(&self.shared), self.config.close_timeout);
        let closing = async {
            shared.ended.cancelled().await;
            tokio::time::sleep(close_timeout).await;
        };
        tokio::select! {
            biased;
            () = self.serve_and_close() => {}
            () = closing => tracing::debug!("the session is left to the server's timer"),
        }
        self.ended = true;
    }

    async fn serve_and_close(&mut self) {
        self.serve().await;
        if self.shared.link.lock().protocol.over() == Some(SessionEnd::AuthFailed) {
            self.lose(None);
            // The server has the session still, and its nodes must not go before its guards are lost.
            self.shared.ended.cancelled().await;
            self.abandon().await;
        }
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

    /// Returns `true` if the session is closed, or has ended and does not need a close.
    pub(super) fn is_over(&self) -> bool {
        self.closed || self.shared.link.lock().protocol.over().is_some_and(|end| !end.needs_close())
    }

    /// Drops the connection, and ends its requests.
    pub(super) fn lose(&mut self, cause: Option<ConnectError>) {
        (self.reader, self.login) = (None, None);
        {
            let mut link = self.shared.link.lock();
            link.protocol.lost(cause);
            link.writer = None;
            self.told.extend(std::iter::from_fn(|| link.protocol.next_event()));
        }
        drop(self.deliver());
    }

    pub(super) fn tell(&self, event: HandleEvent) {
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
                Event::Notification(notification) => match self.shared.notify.get() {
                    Some(notify) => {
                        notify(notification, self.epoch);
                        continue;
                    }
                    None => HandleEvent::Watched(notification),
                },
                Event::LogIn => {
                    let server = SaslServer::new(&self.server, self.address, self.shared.randomness.next());
                    self.login = self.config.sasl.clone().map(|mechanism| Login::new(mechanism, server));
                    continue;
                }
                Event::Challenge(token) => {
                    if let Some(login) = &self.login {
                        login.replied(token);
                    }
                    continue;
                }
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

    /// Carries bytes until the connection is attached or lost, or the session has ended.
    pub(super) fn poll_link(&mut self, cx: &mut Context<'_>) -> Poll<Step> {
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
                Ok(limit) => {
                    let is_idle = match self.poll_login(cx) {
                        Ok(has_sent) => !has_sent && received == 0 && !self.wait_until(limit, cx),
                        Err(reason) => return Poll::Ready(Step::Lost(reason)),
                    };
                    if is_idle {
                        return Poll::Pending;
                    }
                }
            }
        }
    }

    /// Continues a login. Returns `true` if there is something to write or to deliver.
    ///
    /// # Errors
    ///
    /// A text that says why the connection cannot be used.
    fn poll_login(&mut self, cx: &mut Context<'_>) -> Result<bool, String> {
        let Some(Poll::Ready(next)) = self.login.as_mut().map(|login| login.poll(cx)) else { return Ok(false) };
        let now = self.shared.clock.now();
        let protocol = &mut self.shared.link.lock().protocol;
        match next {
            Ok(Some(token)) => protocol.send_token(&token, now),
            Ok(None) => {
                self.login = None;
                protocol.logged_in(now);
            }
            Err(Failed { reason, is_final }) => {
                self.login = None;
                if !is_final {
                    return Err(reason);
                }
                let is_over = protocol.over().is_some();
                protocol.refuse(Some(reason.clone()));
                if is_over {
                    // Its close is left, on a connection without a login.
                    return Err(reason);
                }
            }
        }
        Ok(true)
    }

    /// Returns the step that the end of the stream means.
    fn stopped(&self, reason: &str) -> Step {
        let link = self.shared.link.lock();
        match link.protocol.over() {
            // A close without a reply is repeated on the next connection.
            Some(end) if !end.needs_close() => Step::Over,
            _ if link.protocol.is_connecting() => {
                let hint = if self.config.tls.is_none() {
                    " (it may expect TLS, have no quorum yet, or have too many connections from this address)"
                } else {
                    ""
                };
                Step::Lost(format!("{reason} without an answer{hint}"))
            }
            _ => Step::Lost(reason.to_owned()),
        }
    }

    /// Passes read bytes to the protocol, and its output to the transport. Returns the pause until the next check.
    fn carry(&mut self, received: usize, cx: &mut Context<'_>) -> Result<Option<Duration>, Violation> {
        let now = self.shared.clock.now();
        let mut link = self.shared.link.lock();
        let Link { protocol, writer, task, is_full, broken, .. } = &mut *link;
        match task {
            Some(waker) => waker.clone_from(cx.waker()),
            None => *task = Some(cx.waker().clone()),
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

impl SocketTask {
    /// Ends the session of another process here alone, without a byte. Returns `false` for a session of this process.
    pub(super) fn give_up_copy(&mut self) -> bool {
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
        link.task = None;
        self.told.extend(std::iter::from_fn(|| link.protocol.next_event()));
        let halves = (self.reader.take(), link.writer.take());
        drop(link);
        let (Some(reader), Some(writer), true) = (halves.0, halves.1, is_open) else { return None };
        Some((join(reader, writer)?, last))
    }
}

impl Drop for SocketTask {
    /// Replies to every caller, even when the runtime ends: no caller waits for a reply that cannot come. Closes the
    /// session if the task did not end by itself.
    fn drop(&mut self) {
        self.shared.link.lock().protocol.fail();
        // First of all: guards must be lost before the server can delete their nodes.
        let task_dropped = self.shared.task_dropped.lock().take();
        if let (Some(task_dropped), false) = (task_dropped, self.ended) {
            // A second panic during an unwinding would abort the process.
            let _panicked = caught(task_dropped);
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

/// Returns the buffer with room for a read.
fn room(buffer: &mut BytesMut) -> &mut BytesMut {
    if buffer.is_empty() && buffer.capacity() > KEPT {
        *buffer = BytesMut::new();
    }
    buffer.reserve(READ);
    buffer
}

#[cfg(test)]
mod tests {
    use std::io::{self, Read as _};
    use std::net::{TcpListener, TcpStream};

    use super::super::link::split;
    use super::super::stream::Stream;
    use super::*;

    /// Returns what the server can read after a flush and the drop of the socket task.
    async fn read_by_server(is_copy: bool) -> io::Result<usize> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let stream = TcpStream::connect(listener.local_addr()?)?;
        stream.set_nonblocking(true)?;
        let (mut server, _) = listener.accept()?;
        server.set_nonblocking(is_copy)?;
        let config = ConnectConfig::for_tests(Vec::new());
        let opener = Opener::new(None, &config);
        let (mut task, _events) = SocketTask::new(opener, &config);
        let stream = tokio::net::TcpStream::from_std(stream)?;
        stream.writable().await?;
        let (reader, writer) = split(Stream::Tcp(stream));
        task.reader = Some(reader);
        {
            let mut link = task.shared.link.lock();
            link.protocol.open(Duration::ZERO);
            link.writer = Some(writer);
            link.process = std::process::id() + u32::from(is_copy);
            link.flush();
        }
        drop(task);
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
        let opener = Opener::new(None, &config);
        let (mut task, mut events) = SocketTask::new(opener, &config);
        task.shared.link.lock().process += 1;
        let refused = task.attempt("127.0.0.1:1", None).await.err();
        assert_eq!(refused.as_deref(), Some("the session belongs to another process"));
        assert!(matches!(events.try_recv(), Ok(HandleEvent::Ended(SessionEnd::ClientFailed))));
    }
}
