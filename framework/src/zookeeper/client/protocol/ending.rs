//! The end of a connection, and of the session.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use curator_wire::OpCode;

use super::connection::{Asked, Connection, Outstanding, Phase, Waiting};
use super::machine::{Event, Protocol};
use crate::error::{ConnectError, Error};
use crate::zookeeper::client::armed_watches::Armed;
use crate::zookeeper::{Reply, SessionEnd};

/// The losses of a connection in a row during one request after which the request is taken for their cause.
const LOSSES_OF_ONE_REQUEST: u32 = 3;
/// The length of a request that may be above a server's limit. No server has a smaller one.
const SUSPICIOUS: usize = 4096;

impl<T> Protocol<T> {
    /// Ends the session: replies to every caller, and sends closeSession behind the requests that count as sent.
    pub(crate) fn close(&mut self, now: Duration) {
        self.end(SessionEnd::Closed);
        self.may_close = true;
        if self.is_ready() {
            self.append_close(now);
        }
    }

    /// Ends the session because its task is gone: replies to every caller.
    pub(crate) fn fail(&mut self) {
        self.end(SessionEnd::ClientFailed);
    }

    pub(super) fn append_close(&mut self, now: Duration) {
        self.numbered(OpCode::CloseSession, now, Asked::Close, |_| {});
        if let Some(connection) = &mut self.connection {
            connection.phase = Phase::Closing;
        }
    }

    /// Appends closeSession to the output of a session that has ended, unless it is there. It does not wait for the
    /// replies to credentials and lists of watches: a server handles requests in order. Returns `false` if the server
    /// has the session no more, or has not attached it to this connection.
    pub(crate) fn close_at_once(&mut self) -> bool {
        let is_attached = self.connection.is_some() && !self.is_connecting();
        if !is_attached || !self.over.is_some_and(|end| end.needs_close() || end == SessionEnd::ClientFailed) {
            return false;
        }
        if !self.connection.as_ref().is_some_and(|connection| matches!(connection.phase, Phase::Closing)) {
            // The reply is not awaited, so its moment is not needed.
            self.append_close(Duration::ZERO);
        }
        true
    }

    /// Leaves only the close of the session to do. The caller calls it once the owner knows of the end, or for a session
    /// without an owner.
    pub(crate) fn abandon(&mut self) {
        self.may_close = true;
        self.leave_credentials();
    }

    /// Lets the close of the session go out without credentials, because the server may have rejected them.
    pub(super) fn leave_credentials(&mut self) {
        self.settings.auth = Vec::new();
        self.settings.sasl = false;
        self.over = Some(SessionEnd::Closed);
    }

    /// Ends the session: replies to every caller.
    pub(super) fn end(&mut self, end: SessionEnd) {
        if self.over.is_some() {
            if end == SessionEnd::Expired {
                // The server does not have the session any more, so a close is not needed.
                self.events.push_back(Event::Closed);
            }
            return;
        }
        self.over = Some(end);
        let expired = |request: String| Error::SessionExpired { request: request.into() };
        let mut unwritten = self.take_unwritten();
        if let Some(connection) = &mut self.connection {
            for outstanding in connection.outstanding.iter_mut().chain(&mut unwritten) {
                let sent = (outstanding.offset < connection.written).then_some(outstanding.sent);
                let reply = |error| Reply { sent, ..Reply::not_sent(error) };
                if matches!(outstanding.asked, Asked::Sasl | Asked::Compare(_)) {
                    // The close of the session follows the reply.
                    continue;
                }
                match std::mem::replace(&mut outstanding.asked, Asked::Abandoned) {
                    Asked::Request(request, token) => {
                        self.events.push_back(Event::Reply(token, reply(expired(request.to_string()))));
                    }
                    Asked::AddWatch { path, token, .. } => {
                        self.events.push_back(Event::Reply(token, reply(expired(format!("addWatch {path}")))));
                    }
                    _ => {}
                }
            }
            for waiting in connection.waiting.drain(..) {
                let Waiting::Request(request, token) = waiting else { continue };
                let error = expired(request.to_string());
                self.events.push_back(Event::Reply(token, Reply::not_sent(error)));
            }
            for (token, _) in connection.pings.drain(..) {
                self.events.push_back(Event::Reply(token, Reply::not_sent(expired("ping".to_owned()))));
            }
        }
        self.watching.armed = Armed::default();
        self.events.push_back(Event::Ended(end));
    }

    /// Removes the requests of which the transport has taken no byte, with their frames and all frames behind them. Their
    /// replies say that they were not sent, and that stays true.
    fn take_unwritten(&mut self) -> VecDeque<Outstanding<T>> {
        let Some(connection) = &mut self.connection else { return VecDeque::new() };
        if !matches!(connection.phase, Phase::Ready) {
            // Only a login is outstanding, and the close of the session needs it.
            return VecDeque::new();
        }
        let written = connection.written;
        let begun = connection.outstanding.partition_point(|outstanding| outstanding.offset < written);
        if let Some(first) = connection.outstanding.get(begun) {
            self.output.truncate(usize::try_from(first.offset - written).unwrap_or(usize::MAX));
        }
        connection.outstanding.split_off(begun)
    }

    /// Ends the outstanding requests of a lost connection as `ConnectionLoss`, with `sent: false` if never written.
    pub(crate) fn lost(&mut self, cause: Option<ConnectError>) {
        let Some(connection) = self.connection.take() else { return };
        let cause = cause.map(Arc::new);
        let was_ready = matches!(connection.phase, Phase::Ready);
        let mut blamed = was_ready && self.blames_the_oldest(&connection);
        for Outstanding { offset, size, sent, asked, .. } in connection.outstanding {
            let left = offset < connection.written;
            let losses = std::mem::take(&mut blamed).then_some(LOSSES_OF_ONE_REQUEST);
            let lost = |request: String| {
                let request = request.into();
                let error = match losses {
                    Some(losses) => Error::EndsConnections { request, size, losses },
                    None => Error::ConnectionLoss { request, sent: left, cause: cause.clone() },
                };
                Reply { sent: left.then_some(sent), ..Reply::not_sent(error) }
            };
            match asked {
                Asked::Request(request, token) => {
                    self.events.push_back(Event::Reply(token, lost(request.to_string())));
                }
                Asked::AddWatch { path, mode, id, token, .. } => {
                    self.watching.armed.unsubscribe(&path, mode, id);
                    self.events.push_back(Event::Reply(token, lost(format!("addWatch {path}"))));
                }
                Asked::RemoveWatch { path, kind: Some(kind) } => self.watching.armed.disarm(&path, kind),
                Asked::RemoveWatch { kind: None, .. }
                | Asked::Known { .. }
                | Asked::Replace(_)
                | Asked::Compare(_)
                | Asked::Sasl
                | Asked::Close
                | Asked::Abandoned => {}
            }
        }
        for waiting in connection.waiting {
            let (request, token) = match waiting {
                Waiting::Request(request, token) => (request, token),
                Waiting::Forget(path, kind) => {
                    self.watching.armed.disarm(&path, kind);
                    continue;
                }
                Waiting::FitWatch(_) => continue,
            };
            let error =
                Error::ConnectionLoss { request: request.to_string().into(), sent: false, cause: cause.clone() };
            self.events.push_back(Event::Reply(token, Reply::not_sent(error)));
        }
        for (token, _) in connection.pings {
            let error = Error::ConnectionLoss { request: "ping".into(), sent: true, cause: cause.clone() };
            self.events.push_back(Event::Reply(token, Reply::not_sent(error)));
        }
        self.output.clear();
        self.watching.base.get_or_insert(self.last_seen);
        // Only the read-only server knows this session.
        if was_ready && self.session.as_ref().is_some_and(|session| session.local) {
            self.end(SessionEnd::Expired);
        }
    }

    /// Counts a loss of the connection with this oldest request. Returns `true` at the third loss in a row with the same
    /// one: its length is the likely cause. A server closes the connection at a request above its limit.
    fn blames_the_oldest(&mut self, connection: &Connection<T>) -> bool {
        let oldest = match connection.outstanding.front() {
            Some(Outstanding { offset, size, asked: Asked::Request(request, _), .. })
                if *size >= SUSPICIOUS && *offset < connection.written =>
            {
                (request.to_string(), *size)
            }
            _ => {
                self.suspect = None;
                return false;
            }
        };
        let losses = match self.suspect.take() {
            Some((request, size, losses)) if (&request, size) == (&oldest.0, oldest.1) => losses + 1,
            _ => 1,
        };
        if losses == LOSSES_OF_ONE_REQUEST {
            return true;
        }
        self.suspect = Some((oldest.0, oldest.1, losses));
        false
    }
}
