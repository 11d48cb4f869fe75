//! A new connection, from the connect response until the session can use it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use curator_wire::{ConnectResponse, ErrorCode, OpCode, Reader, RequestHeader, XID_AUTH};

use super::connection::{Asked, Connection, Phase, SessionKey, THROTTLED, Violation};
use super::machine::{Event, Protocol};
use crate::model::{AuthInfo, EventType, WatchedEvent};
use crate::sync::report::report;
use crate::zookeeper::client::armed_watches::BEFORE_ALL;
use crate::zookeeper::client::history::{History, Judgement, Question};
use crate::zookeeper::client::records;
use crate::zookeeper::{MIN_SESSION_TIMEOUT, Notification, Reattached, SessionEnd};

/// The lowest bit of a zxid that counts the elections.
const EPOCH: u32 = 32;

const NOT_SENT: &str = "a reply to credentials or watches that were not sent";

impl<T> Protocol<T> {
    pub(super) fn connected(&mut self, response: ConnectResponse, now: Duration) -> Result<(), Violation> {
        if response.timeout_ms <= 0 || response.session_id == 0 {
            if self.session.is_none() {
                return Err(Violation::new("the server refused a new session"));
            }
            self.end(SessionEnd::Expired);
            return Ok(());
        }
        let granted = Duration::from_millis(u64::from(response.timeout_ms.unsigned_abs()));
        if self.session_id() == Some(response.session_id) && granted < self.timeout {
            // Even if this connection fails, the server counts by this timeout from now on.
            self.timeout = granted;
            if let Some(connection) = &self.connection {
                self.events.push_back(Event::Shortened { sent: connection.connect_sent, timeout: granted });
            }
        }
        let read_only = response.read_only == Some(true);
        if read_only && !self.settings.read_only {
            return Err(Violation::new("the server is read-only"));
        }
        if granted < MIN_SESSION_TIMEOUT {
            return Err(Violation(format!(
                "it grants a session timeout of {granted:?}, less than {MIN_SESSION_TIMEOUT:?}"
            )));
        }
        match &mut self.session {
            Some(session) if session.id != response.session_id => {
                self.end(SessionEnd::Inconsistent);
                return Ok(());
            }
            Some(session) => session.password = response.password,
            None => {
                let key = SessionKey { id: response.session_id, password: response.password, local: read_only };
                self.session = Some(key);
                self.timeout = granted;
            }
        }
        self.epoch += 1;
        let Some(connection) = &mut self.connection else { return Ok(()) };
        connection.read_only = read_only;
        if self.settings.sasl {
            connection.phase = Phase::LoggingIn;
            self.events.push_back(Event::LogIn);
        } else {
            self.restore(now);
        }
        Ok(())
    }

    /// Sends credentials, then questions about known writes. The watches follow the replies to these.
    fn restore(&mut self, now: Duration) {
        if let Some(connection) = &mut self.connection {
            connection.phase = Phase::Restoring { questions: 0, parts: VecDeque::new() };
        }
        let auth = std::mem::take(&mut self.settings.auth);
        auth.iter().for_each(|auth| self.send_auth(auth));
        self.settings.auth = auth;
        let is_compared = self.watching.base != Some(BEFORE_ALL) && self.over.is_none();
        let comparison = if is_compared { self.history.compare() } else { None };
        self.comparison = comparison.map(|comparison| (comparison, Judgement::Unknown));
        self.compare(now);
        self.finish_restoring(now);
    }

    /// Adds credentials, on this connection and all later ones.
    pub(crate) fn add_auth(&mut self, auth: &AuthInfo) {
        if self.over.is_some() || self.settings.auth.contains(auth) {
            return;
        }
        self.settings.auth.push(auth.clone());
        let sends = |connection: &Connection<T>| matches!(connection.phase, Phase::Restoring { .. } | Phase::Ready);
        if self.connection.as_ref().is_some_and(sends) {
            self.send_auth(auth);
        }
    }

    fn send_auth(&mut self, AuthInfo { scheme, auth }: &AuthInfo) {
        self.frame(|to| {
            RequestHeader { xid: XID_AUTH, op: OpCode::Auth }.encode(to);
            to.int(0).string(scheme).buffer(auth);
        });
        if let Some(connection) = &mut self.connection {
            connection.credentials += 1;
        }
    }

    /// Handles the reply to credentials.
    pub(super) fn authorized(&mut self, err: i32, now: Duration) -> Result<(), Violation> {
        let left = self.connection.as_ref().map_or(0, |connection| connection.credentials);
        if err != 0 {
            // Replies come in the order of the credentials.
            let refused = self.settings.auth.iter().rev().nth(left.saturating_sub(1));
            self.refuse(refused.map(|auth| SessionEnd::AuthFailed.refusing(&auth.scheme)));
            return Ok(());
        }
        match &mut self.connection {
            Some(connection) if left > 0 => connection.credentials -= 1,
            _ if self.over.is_some() => {}
            _ => return Err(Violation::new(NOT_SENT)),
        }
        self.finish_restoring(now);
        Ok(())
    }

    /// Asks for known writes until one of them decides if the server's history contains them, then restores the watches.
    fn compare(&mut self, now: Duration) {
        let comparison = self.comparison.take().filter(|_| self.over.is_none());
        let Some((mut comparison, judgement)) = comparison else { return self.restore_watches() };
        let is_elected = self.watching.base.is_some_and(|base| base >> EPOCH < self.last_seen >> EPOCH);
        let round = comparison.next_round(judgement, is_elected);
        if round.is_empty() {
            match judgement {
                // Newer writes of the session's own history may be missing, so their nodes are read again.
                Judgement::Same { up_to } => {
                    self.watching.base = Some(self.watching.base.unwrap_or(self.last_seen).min(up_to))
                }
                // Nodes that the session has deleted may exist again, and would exist as long as the session.
                Judgement::Other => return self.end(SessionEnd::RolledBack),
                // The client knows deletions alone, and no server can prove these.
                Judgement::Unknown if !comparison.can_prove() => {}
                Judgement::Doubtful | Judgement::Unknown => self.begin_anew(),
            }
            return self.restore_watches();
        }
        self.comparison = Some((comparison, judgement));
        if let Some(Phase::Restoring { questions, .. }) =
            self.connection.as_mut().map(|connection| &mut connection.phase)
        {
            *questions = round.len();
        }
        for question in round {
            self.ask(question, now);
        }
    }

    fn ask(&mut self, question: Question, now: Duration) {
        let path = Arc::clone(&question.path);
        self.numbered(OpCode::Exists, now, Asked::Compare(question), |to| _ = to.string(&path).bool(false));
    }

    /// Handles the reply to a question.
    pub(super) fn compared(
        &mut self,
        question: Question,
        err: i32,
        from: &mut Reader<'_>,
        now: Duration,
    ) -> Result<(), Violation> {
        if err == THROTTLED {
            // The server was too busy to look, so this says nothing of the node.
            self.ask(question, now);
            return Ok(());
        }
        let bad = |error| Violation(format!("a bad reply to exists {}: {error}", question.path));
        let found = if err == 0 { Some(records::decode_only_stat(from).map_err(bad)?) } else { None };
        if err == ErrorCode::NoNode.code() && question.is_of_write() {
            // A parent from a backup has its old pzxid, so no event of its children tells the owner. The server is not one
            // that lags: it has the newest transaction that the client has seen.
            let path = question.path.to_string();
            self.history.is_missing(&path, self.last_seen);
            self.watching.held_back.push(WatchedEvent { event_type: EventType::NodeDeleted, path });
        }
        if let Some((comparison, judgement)) = &mut self.comparison {
            *judgement = comparison.decide(*judgement, question.judge(found.as_ref()));
        }
        let Some(Phase::Restoring { questions, .. }) = self.connection.as_mut().map(|connection| &mut connection.phase)
        else {
            return Ok(());
        };
        *questions = questions.saturating_sub(1);
        if *questions == 0 {
            self.compare(now);
            self.finish_restoring(now);
        }
        Ok(())
    }

    /// Trusts nothing that the session has read. The server replays the events since its first transaction, so watches
    /// fire but for nodes that are still missing.
    fn begin_anew(&mut self) {
        self.history = History::default();
        self.watching.base = Some(BEFORE_ALL);
        let session = self.session_id().unwrap_or_default();
        report(move || tracing::warn!(session, "the servers may have another history, all nodes are read again"));
    }

    pub(super) fn restored(&mut self, now: Duration) -> Result<(), Violation> {
        let counted = match self.connection.as_mut().map(|connection| &mut connection.phase) {
            Some(Phase::Restoring { parts, .. }) => parts.pop_front(),
            _ => None,
        };
        if counted.is_none() && self.over.is_none() {
            return Err(Violation::new(NOT_SENT));
        }
        self.finish_restoring(now);
        Ok(())
    }

    pub(super) fn finish_restoring(&mut self, now: Duration) {
        let Some(connection) = &mut self.connection else { return };
        if connection.credentials > 0 || !connection.phase.has_restored() || connection.throttled_until.is_some() {
            return;
        }
        connection.phase = Phase::Ready;
        if self.over.is_some() {
            if self.may_close {
                // The session has ended without a connection that could carry its close.
                self.append_close(now);
            }
            return;
        }
        self.watching.base = None;
        let reattached =
            Reattached { sent: connection.connect_sent, leader_sent: None, timeout: self.timeout, epoch: self.epoch };
        self.events.push_back(Event::Connected { reattached, read_only: connection.read_only });
        self.events.extend(self.watching.held_back.drain(..).map(Notification::Event).map(Event::Notification));
        self.watching.armed.restored(self.epoch);
        self.send_waiting(now);
    }

    /// Handles the server's token in a login by SASL.
    pub(super) fn challenged(&mut self, err: i32, from: &mut Reader<'_>) -> Result<(), Violation> {
        if err != 0 {
            self.refuse(Some(SessionEnd::AuthFailed.refusing("sasl")));
            return Ok(());
        }
        let token = from.optional_buffer().map_err(|error| Violation(format!("a bad reply to sasl: {error}")))?;
        self.events.push_back(Event::Challenge(token.map(<[u8]>::to_vec)));
        Ok(())
    }

    /// Sends a token of the login by SASL.
    pub(crate) fn send_token(&mut self, token: &[u8], now: Duration) {
        if self.is_logging_in() {
            self.numbered(OpCode::Sasl, now, Asked::Sasl, |to| _ = to.buffer(token));
        }
    }

    /// Records that the login by SASL is complete.
    pub(crate) fn logged_in(&mut self, now: Duration) {
        if self.is_logging_in() {
            self.restore(now);
        }
    }

    fn is_logging_in(&self) -> bool {
        self.connection.as_ref().is_some_and(|connection| matches!(connection.phase, Phase::LoggingIn))
    }

    /// Ends the session because its credentials are of no use. One that has ended is closed without them.
    pub(crate) fn refuse(&mut self, reason: Option<String>) {
        self.refusal = reason;
        if self.over.is_some_and(SessionEnd::needs_close) {
            return self.leave_credentials();
        }
        self.end(SessionEnd::AuthFailed);
    }
}
