//! The client's own task: connects, monitors the session, and connects again.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{Fuse, FutureExt as _};
use tokio::sync::mpsc;
use tracing::Instrument as _;

use crate::core::config::{Config, DefaultData};
use crate::core::{ClientState, Shutdown};
use crate::ensemble::provider::{EnsembleProvider, parse_connect_string};
use crate::ensemble::tracker::track;
use crate::error::{Chain, ConnectError};
use crate::metrics;
use crate::session::Session;
use crate::session::timers::{Due, SessionTimers};
use crate::state::connection_state::StateEvent;
use crate::sync::report::report;
use crate::zookeeper::client::hosts::Pause;
use crate::zookeeper::{ConnectConfig, Connection, HandleEvent, ReplyFuture, ServerList, SessionEnd};

/// Keeps the client connected until it is stopped.
pub(crate) async fn run(shared: Arc<ClientState>) {
    let mut number = 0;
    let mut address = std::pin::pin!(host_address(&shared.config.default_data));
    while let Some(connection) = connect(&shared).await {
        number += 1;
        if number == 1 {
            address.as_mut().await;
        }
        let Connection { handle, mut events, sent, established, epoch } = connection;
        let connection = Connection { handle, events: mpsc::unbounded_channel().1, sent, established, epoch };
        let session = Session::new(number, &connection, &shared.config.session, Arc::clone(&shared.leftovers));
        let timeout_s = session.timeout().as_secs_f64();
        shared.publish_new(session.clone());
        shared.on_event(if number == 1 { StateEvent::FirstSession } else { StateEvent::SessionEstablished });
        let session_id = session.shown_id();
        report(move || tracing::info!(session = number, session_id, timeout_s, "session established"));

        let end = tokio::select! {
            biased;
            Err(end) = Supervision::new(&shared, &session).run(&mut events) => end,
            never = follow_ensemble(&shared.config, &session) => match never {},
        };

        // Owned nodes are marked as lost first; only then can a next session start.
        session.finish(end);
        // The thread of the deadlines may have ended it first. Then the handle reports that it was closed.
        let end = session.end_reason().unwrap_or(end);
        shared.is_closing(&**session.handle());
        shared.publish(None);
        let session_id = session.shown_id();
        report(move || tracing::info!(session = number, session_id, reason = %end, "session ended"));
        if end == SessionEnd::Closed {
            return;
        }
        shared.on_event(StateEvent::SessionOver);
    }
}

/// Returns the servers of the provider's present connect string.
fn current_servers(ensemble: &dyn EnsembleProvider, chroot: &str) -> Result<Vec<String>, ConnectError> {
    let connect_string = ensemble.connect_string();
    let wrong = |reason: String| Err(ConnectError::new(connect_string.clone(), reason));
    match parse_connect_string(&connect_string) {
        Ok(parsed) if parsed.chroot == chroot => Ok(parsed.servers),
        Ok(parsed) => wrong(format!("its chroot {:?} was {chroot:?} before", parsed.chroot)),
        Err(error) => wrong(error.to_string()),
    }
}

async fn follow_ensemble(config: &Config, session: &Session) -> Infallible {
    match config.ensemble_tracker {
        true => track(&*config.ensemble, &config.chroot, session).await,
        false => std::future::pending().await,
    }
}

/// Resolves when the host's address is known, or the longest wait for it has passed since this call.
fn host_address(data: &DefaultData) -> impl Future<Output = ()> + use<> {
    let waiting = match *data {
        DefaultData::HostAddress(address) => Some(address.wait()),
        DefaultData::Given(_) => None,
    };
    async move {
        if let Some(waiting) = waiting {
            waiting.await;
        }
    }
}

/// Returns the limit of each of the two steps of a close: the deletes or the attempt to connect, and the end of the
/// session.
fn half_of_close(config: &Config) -> Duration {
    config.max_close_wait / 2
}

/// Returns the parameters of the next attempt to connect.
fn connect_config(shared: &ClientState, servers: &ServerList) -> ConnectConfig {
    let config = &shared.config;
    ConnectConfig {
        servers: servers.clone(),
        session_timeout: config.session_timeout,
        // A little less than a caller waits, so that the caller's error can name the cause.
        connection_timeout: config.connection_timeout * 9 / 10,
        // A little less than `close` waits, so that the session's task has ended when `close` returns.
        close_timeout: half_of_close(config) / 10 * 9,
        closing: shared.closing(),
        max_frame: config.max_frame,
        max_reply: config.max_reply,
        pacer: Arc::clone(&shared.pacer),
        auth: config.auth.lock().clone(),
        read_only: config.read_only,
        tls: config.tls.clone(),
        #[cfg(any(feature = "tls", feature = "tls-ring"))]
        provider_turn: Arc::clone(&config.provider_turn),
        sasl: config.sasl.clone(),
        clock: Arc::clone(&config.session.clock),
        randomness: Arc::clone(&config.session.randomness),
    }
}

/// Tries to connect until it succeeds. Returns `None` when the client is stopped between two attempts.
async fn try_to_connect(shared: &ClientState) -> Option<Connection> {
    let config = &shared.config;
    let servers = ServerList::new({
        // Without the client: its last session may still have to be closed after the client is dropped.
        let (ensemble, chroot) = (Arc::clone(&config.ensemble), config.chroot.clone());
        move || current_servers(&*ensemble, &chroot)
    });
    let (mut pauses, mut refusals) = (Pause::default(), Pause::after_refusals());
    loop {
        let pause = match config.factory.connect(&connect_config(shared, &servers)).await {
            Ok(connection) => {
                shared.connected();
                return Some(connection);
            }
            Err(error) => {
                shared.connect_failed(error.clone());
                let pause = if error.refuses_credentials() { &mut refusals } else { &mut pauses };
                report(move || tracing::warn!(error = %Chain(&error), "not connected"));
                pause.next(&*config.session.randomness)
            }
        };
        // Between two attempts no session exists that would have to be closed.
        tokio::select! {
            biased;
            () = shared.stopped(|stop| stop != Shutdown::Running) => return None,
            () = tokio::time::sleep(pause) => {}
        }
    }
}

/// Reports the states of a client that does not connect.
async fn report_no_session(shared: &ClientState) -> Infallible {
    let config = &shared.config;
    tokio::time::sleep(config.connection_timeout).await;
    shared.on_event(StateEvent::Silent);
    tokio::time::sleep(config.session_timeout.saturating_sub(config.connection_timeout)).await;
    shared.on_event(StateEvent::SessionOver);
    std::future::pending().await
}

/// Connects. Returns `None` when the client is stopped.
async fn connect(shared: &ClientState) -> Option<Connection> {
    let mut connecting = std::pin::pin!(try_to_connect(shared).instrument(tracing::info_span!("connect")));
    tokio::select! {
        biased;
        () = shared.stopped(|stop| stop != Shutdown::Running) => {
            // The attempt may have established a session, which only this attempt can close.
            let attempted = tokio::time::timeout(half_of_close(&shared.config), connecting).await;
            if let Ok(Some(Connection { handle, .. })) = attempted {
                handle.end();
                shared.is_closing(&*handle);
            }
            None
        }
        connection = &mut connecting => connection,
        never = report_no_session(shared) => match never {},
    }
}

/// Passes the nodes that outlived their session to this one.
fn clean_leftovers(shared: &ClientState, session: &Session) {
    for remains in shared.leftovers.take() {
        session.background().clean(session, remains);
    }
}

/// Resolves when the client is stopped and the session may close: after the pending deletes, or when their time is
/// over.
async fn closing(shared: &ClientState, session: &Session) {
    shared.stopped(|stop| stop != Shutdown::Running).await;
    let drained = async {
        // Running operations end now, and some of them leave nodes to delete.
        shared.leftovers.settled().await;
        clean_leftovers(shared, session);
        session.background().deletes_done().await;
    };
    tokio::select! {
        biased;
        () = drained => {}
        () = tokio::time::sleep(half_of_close(&shared.config)) => {}
        () = shared.stopped(|stop| stop == Shutdown::Immediate) => {}
    }
}

/// The supervision of one session.
struct Supervision<'a> {
    shared: &'a ClientState,
    session: &'a Session,
    timers: SessionTimers,
    /// The reply to the outstanding heartbeat.
    heartbeat: Fuse<ReplyFuture>,
}

impl<'a> Supervision<'a> {
    fn new(shared: &'a ClientState, session: &'a Session) -> Self {
        Self { shared, session, timers: SessionTimers::default(), heartbeat: Fuse::terminated() }
    }

    /// Monitors the session until it ends. Returns the reason as the error.
    async fn run(mut self, events: &mut mpsc::UnboundedReceiver<HandleEvent>) -> Result<Infallible, SessionEnd> {
        let mut closing = std::pin::pin!(closing(self.shared, self.session));
        loop {
            let pause = self.look_at_the_clock()?;
            tokio::select! {
                biased;
                event = events.recv() => self.on_event(event.ok_or(SessionEnd::ClientFailed)?)?,
                end = self.session.ended() => return Err(end),
                () = &mut closing => return Err(SessionEnd::Closed),
                reply = &mut self.heartbeat => {
                    if let Some(evidence) = self.timers.heartbeat_answered() {
                        self.session.on_heartbeat(&reply, evidence);
                    }
                }
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    /// Does what is due. Returns the pause before the next look.
    fn look_at_the_clock(&mut self) -> Result<Duration, SessionEnd> {
        clean_leftovers(self.shared, self.session);
        let now = self.session.clock().now();
        self.session.report_owning();
        let Due { event, heartbeat, wake } = self.timers.due(now, &self.session.times())?;
        if let Some(evidence) = heartbeat {
            self.heartbeat = self.session.handle().heartbeat(evidence).fuse();
        }
        if let Some(event) = event {
            self.shared.on_event(event);
        }
        Ok(wake.saturating_sub(now))
    }

    fn on_event(&mut self, event: HandleEvent) -> Result<(), SessionEnd> {
        let Self { shared, session, .. } = *self;
        match event {
            HandleEvent::Watched(event) => session.watches().dispatch(event, session.epoch()),
            HandleEvent::Disconnected(cause) => {
                session.set_disconnected();
                shared.connect_failed(cause.clone());
                self.timers.disconnected();
                self.heartbeat = Fuse::terminated();
                shared.session_changed();
                shared.on_event(StateEvent::Silent);
                let (number, session_id) = (session.number(), session.shown_id());
                report(move || tracing::info!(session = number, session_id, %cause, "disconnected"));
            }
            HandleEvent::Unreachable(error) => shared.connect_failed(error),
            HandleEvent::Shortened { sent, timeout } => session.set_shortened(sent, timeout),
            HandleEvent::Reconnected(reattached) => {
                session.set_reconnected(&reattached);
                shared.connected();
                shared.session_changed();
                shared.on_event(StateEvent::Answered);
                let (number, session_id) = (session.number(), session.shown_id());
                let timeout_s = reattached.timeout.as_secs_f64();
                metrics::reconnected();
                report(move || tracing::info!(session = number, session_id, timeout_s, "reconnected"));
            }
            HandleEvent::ReadOnly => shared.on_event(StateEvent::ReadOnly),
            HandleEvent::Ended(end) => return Err(end),
        }
        Ok(())
    }
}
