//! The client's own task: connects, monitors the session, and connects again.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tracing::Instrument as _;

use crate::core::config::{Config, DefaultData};
use crate::core::{Shared, Shutdown};
use crate::ensemble::provider::{EnsembleProvider, parse_connect_string};
use crate::ensemble::tracker::track;
use crate::error::ConnectError;
use crate::session::{Session, SessionTimers};
use crate::state::connection_state::{ConnectionState, StateEvent};
use crate::zookeeper::client::hosts::Pause;
use crate::zookeeper::{ConnectConfig, Connection, HandleEvent, ServerList, SessionEnd};

/// The longest sleep while a session lives. Timers stop while the machine sleeps, so the clock must be read often
/// enough.
const LONGEST_LOOK_AWAY: Duration = Duration::from_secs(1);

/// Keeps the client connected until it is stopped.
pub(crate) async fn run(shared: Arc<Shared>) {
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
        tracing::info!(session = number, timeout = ?session.timeout(), "session established");
        shared.publish(Some(session.clone()));
        shared.on_event(if number == 1 { StateEvent::FirstSession } else { StateEvent::SessionEstablished });

        let end = tokio::select! {
            biased;
            end = drive_session(&shared, &session, &mut events) => end,
            never = follow_ensemble(&shared.config, &session) => match never {},
        };

        // Owned nodes are marked as lost first; only then can a next session begin.
        session.finish(end);
        shared.is_closing(&**session.handle());
        tracing::info!(session = number, reason = %end, "session ended");
        shared.publish(None);
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

/// Resolves when the host's address is known, or its time is over, which begins with this call.
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

/// Tries to connect until it succeeds. Returns `None` when the client is stopped.
async fn connect(shared: &Arc<Shared>) -> Option<Connection> {
    let config = &shared.config;
    let servers = ServerList::new({
        // Without the client: its last session may still have to be closed after the client is dropped.
        let (ensemble, chroot) = (Arc::clone(&config.ensemble), config.chroot.clone());
        move || current_servers(&*ensemble, &chroot)
    });
    let config_now = || ConnectConfig {
        servers: servers.clone(),
        session_timeout: config.session_timeout,
        // A little less than a caller waits, so that the caller's error can name the cause.
        connection_timeout: config.connection_timeout * 9 / 10,
        // A little less than `close` waits, so that the session's task has ended when `close` returns.
        close_timeout: config.max_close_wait * 9 / 10,
        closing: shared.closing(),
        max_frame: config.max_frame,
        pacer: Arc::clone(&shared.pacer),
        auth: config.auth.clone(),
        read_only: config.read_only,
        tls: config.tls.clone(),
        sasl: config.sasl.clone(),
        clock: Arc::clone(&config.session.clock),
        randomness: Arc::clone(&config.session.randomness),
    };
    let connecting = async {
        let mut pause = Pause::default();
        loop {
            match config.factory.connect(&config_now()).await {
                Ok(connection) => {
                    shared.connected();
                    return Some(connection);
                }
                Err(error) => {
                    tracing::warn!(%error, "not connected");
                    shared.connect_failed(error);
                }
            }
            // Between two attempts no session exists that would have to be closed.
            tokio::select! {
                biased;
                () = shared.stopped(|stop| stop != Shutdown::Running) => return None,
                () = tokio::time::sleep(pause.next(&*config.session.randomness)) => {}
            }
        }
    };
    let never_connected = async {
        tokio::time::sleep(config.connection_timeout).await;
        shared.on_event(StateEvent::Silent);
        tokio::time::sleep(config.session_timeout.saturating_sub(config.connection_timeout)).await;
        shared.on_event(StateEvent::SessionOver);
        std::future::pending::<Infallible>().await
    };
    let mut connecting = std::pin::pin!(connecting.instrument(tracing::info_span!("connect")));
    tokio::select! {
        biased;
        () = shared.stopped(|stop| stop != Shutdown::Running) => {
            // The attempt may have established a session, which only this attempt can close.
            let attempted = tokio::time::timeout(config.max_close_wait, connecting).await;
            if let Ok(Some(Connection { handle, .. })) = attempted {
                handle.end();
                shared.is_closing(&*handle);
            }
            None
        }
        connection = &mut connecting => connection,
        never = never_connected => match never {},
    }
}

/// Monitors one session until it ends, and returns the reason.
async fn drive_session(
    shared: &Arc<Shared>,
    session: &Session,
    events: &mut mpsc::UnboundedReceiver<HandleEvent>,
) -> SessionEnd {
    let clock = &shared.config.session.clock;
    let mut heartbeat = None;
    let mut next_heartbeat = Duration::ZERO;
    let closing = async {
        shared.stopped(|stop| stop != Shutdown::Running).await;
        let drained = async {
            // Running operations end now, and some of them leave nodes to delete.
            shared.leftovers.settled().await;
            for remains in shared.leftovers.take() {
                session.background().clean(session, remains);
            }
            session.background().deletes_done().await;
        };
        tokio::select! {
            biased;
            () = drained => {}
            () = tokio::time::sleep(shared.config.max_close_wait) => {}
            () = shared.stopped(|stop| stop == Shutdown::Immediate) => {}
        }
    };
    tokio::pin!(closing);
    loop {
        for remains in shared.leftovers.take() {
            session.background().clean(session, remains);
        }
        let now = clock.now();
        session.report_owning();
        let SessionTimers { deadline, suspend_at, heartbeat: beat, held } = session.schedule();
        if now >= deadline {
            return SessionEnd::DeadlinePassed;
        }
        let connected = session.is_connected();
        if connected && now >= suspend_at {
            shared.on_event(StateEvent::Silent);
        } else if connected && shared.state() == Some(ConnectionState::Suspended) {
            shared.on_event(StateEvent::Answered);
        }
        let due = beat.max(next_heartbeat);
        if connected && heartbeat.is_none() && now >= due {
            heartbeat = Some((session.handle().heartbeat(held), held));
            next_heartbeat = now + session.timeout() / 16;
        }
        // An owned node may begin meanwhile: then the first heartbeat is due after an eighth of the timeout.
        let mut wake = now + LONGEST_LOOK_AWAY.min(session.timeout() / 8);
        if deadline > now {
            wake = wake.min(deadline);
        }
        if connected && suspend_at > now {
            wake = wake.min(suspend_at);
        }
        if connected && heartbeat.is_none() {
            wake = wake.min(due);
        }
        tokio::select! {
            biased;
            event = events.recv() => match event {
                Some(HandleEvent::Watched(event)) => session.watches().dispatch(&event, session.epoch()),
                Some(HandleEvent::Disconnected(cause)) => {
                    tracing::info!(session = session.number(), %cause, "disconnected");
                    session.set_disconnected();
                    shared.connect_failed(cause);
                    (heartbeat, next_heartbeat) = (None, Duration::ZERO);
                    shared.session_changed();
                    shared.on_event(StateEvent::Silent);
                }
                Some(HandleEvent::Unreachable(error)) => shared.connect_failed(error),
                Some(HandleEvent::Shortened { sent, timeout }) => session.set_shortened(sent, timeout),
                Some(HandleEvent::Reconnected(reattached)) => {
                    tracing::info!(session = session.number(), timeout = ?reattached.timeout, "reconnected");
                    session.set_reconnected(&reattached);
                    shared.connected();
                    shared.session_changed();
                    shared.on_event(StateEvent::Answered);
                }
                Some(HandleEvent::ReadOnly) => shared.on_event(StateEvent::ReadOnly),
                Some(HandleEvent::Ended(end)) => return end,
                None => return SessionEnd::ClientFailed,
            },
            () = &mut closing => return SessionEnd::Closed,
            beat = async { match &mut heartbeat { Some((beat, _)) => beat.await, None => std::future::pending().await } } => {
                if let Some((_, through_leader)) = heartbeat.take() {
                    session.on_heartbeat(&beat, through_leader);
                }
            }
            () = shared.leftovers.arrived.notified() => {}
            () = tokio::time::sleep(wake.saturating_sub(now)) => {}
        }
    }
}
