//! Connects of a session: the first one, and each one after a loss.

use std::net::SocketAddr;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use super::CLIENT;
use super::connector::Opener;
use super::handle::Handle;
use super::hosts::Pause;
use super::link::split;
use super::socket_task::{SocketTask, Step};
use crate::error::{Chain, ConnectError};
use crate::sync::report::report;
use crate::zookeeper::{ConnectConfig, Connection, HandleEvent, Reattached, SessionEnd};

/// Establishes a session: one round over all servers.
pub(super) async fn connect(opener: Opener, config: &ConnectConfig) -> Result<Connection, ConnectError> {
    let (task, event_receiver) = SocketTask::new(opener, config);
    let shared = Arc::clone(&task.shared);
    let mut first = FirstConnect { task: Some(task) };
    let Established { task, attached } = first.run().await?;
    let (closed_sender, closed) = watch::channel(false);
    tokio::spawn(async move {
        task.run().await;
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
    task: SocketTask,
    attached: Reattached,
}

/// The first connect of a session. If it fails or is dropped, it closes a session that a server has made by then.
struct FirstConnect {
    task: Option<SocketTask>,
}

impl FirstConnect {
    async fn run(&mut self) -> Result<Established, ConnectError> {
        let round = match &mut self.task {
            Some(task) => task.first_round().await,
            None => Err(ConnectError::new(CLIENT, "it was connected before")),
        };
        // From here on, a dropped connect leaves the session to the server's timer.
        match (round, self.task.take()) {
            (Ok(attached), Some(task)) => Ok(Established { task, attached }),
            (Err(error), Some(mut task)) => {
                // Awaited before the error is returned: a program that exits on it leaves no session.
                task.abandon().await;
                Err(error)
            }
            (_, None) => Err(ConnectError::new(CLIENT, "it was connected before")),
        }
    }
}

impl Drop for FirstConnect {
    fn drop(&mut self) {
        let Some(mut task) = self.task.take() else { return };
        // Without a runtime the session is left to the server's timer.
        if let (true, Ok(runtime)) = (task.shared.has_session(), tokio::runtime::Handle::try_current()) {
            runtime.spawn(async move { task.abandon().await });
        }
    }
}

/// The time limit of a round's attempts.
#[derive(Clone, Copy)]
enum Limit {
    /// The first connection of a session: the client's connection timeout.
    First,
    /// The connection was lost at this time of the client's clock.
    LostAt(Duration),
}

impl SocketTask {
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
    pub(super) async fn abandon(&mut self) {
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

    /// Connects again until the session is attached; `None` when the session has ended.
    pub(super) async fn reattach(&mut self, lost_at: Duration) -> Option<Reattached> {
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
    pub(super) async fn attempt(&mut self, server: &str, address: Option<SocketAddr>) -> Result<Reattached, String> {
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
            link.protocol.open(self.shared.clock.now());
            link.writer = Some(writer);
            (link.is_full, link.broken) = (false, None);
        }
        match std::future::poll_fn(|cx| self.poll_link(cx)).await {
            Step::Connected(attached) => Ok(attached),
            Step::Lost(reason) => Err(reason),
            Step::Over => {
                let link = self.shared.link.lock();
                let end = link.protocol.over().unwrap_or(SessionEnd::Closed);
                Err(link.protocol.refusal().map_or_else(|| end.to_string(), ToOwned::to_owned))
            }
        }
    }
}
