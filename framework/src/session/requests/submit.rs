//! The way of one request to the server, and what its reply proves.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use curator_wire::OpCode;
use futures_util::TryFutureExt as _;
use pin_project_lite::pin_project;

use crate::error::{Chain, Error, PathText, Result};
use crate::metrics;
use crate::model::CreateMode;
use crate::model::namespace::Namespace;
use crate::session::Session;
use crate::session::ephemeral_nodes::NodeChanges;
use crate::sync::report::report;
use crate::zookeeper::{DEFAULT_CLIENT, Evidence, Request, Response, SessionEnd};

/// The part of the session timeout from which on a request is slow.
const SLOW: u32 = 10;

impl Session {
    /// Returns the path as the server knows it.
    pub(in crate::session) fn to_server_path(&self, path: &str) -> Arc<str> {
        Arc::from(&*self.root.to_server_path(path))
    }

    /// Returns the [server's path](Self::to_server_path) of a node to create. Keeps a final slash, to which a number is
    /// appended.
    pub(super) fn to_server_path_of_new(&self, path: &str, mode: CreateMode) -> Arc<str> {
        match path.strip_suffix('/') {
            Some("") if mode.is_sequential() && self.root != Namespace::default() => {
                format!("{}/", self.to_server_path("/")).into()
            }
            _ => self.to_server_path(path),
        }
    }

    /// Returns the error of a request in an ended session: `Closed` if the client was closed, else `SessionExpired`.
    #[must_use]
    pub fn closed_error(&self, request: impl Into<PathText>) -> Error {
        match self.end_reason() {
            Some(SessionEnd::Closed) => Error::Closed,
            _ => Error::SessionExpired { request: request.into() },
        }
    }

    /// Submits one request in this session, before the future is polled. No retry.
    pub(super) fn request(&self, request: Request) -> impl Future<Output = Result<Response>> + Send {
        self.request_with_epoch(request).map_ok(|(response, _)| response)
    }

    /// Submits a [`request`](Self::request) and resolves with the response and the epoch that carried it.
    pub(super) fn request_with_epoch(&self, request: Request) -> impl Future<Output = Result<(Response, u64)>> + Send {
        let evidence = request.evidence();
        let through_leader = evidence == Evidence::Leader;
        let path = request.shared_path();
        let name = request.name();
        let mut changes = NodeChanges::of(&request);
        let submitted = self.submit_if_it_fits(request, &mut changes);
        let answered = async move {
            let over = |sent: bool| {
                let request = PathText::from(format!("{name} {path}"));
                // `Closed` would mean that the write was not applied.
                if through_leader && sent { Error::SessionExpired { request } } else { self.closed_error(request) }
            };
            let submitted = match submitted? {
                Ok(submitted) => submitted,
                Err(request) => self.submit_after_recount(request, &mut changes).await?,
            };
            let reply = tokio::select! {
                biased;
                reply = submitted => reply,
                _ = self.ended() => return Err(over(true)),
            };
            // The session may have ended between the arrival of the reply and this poll.
            if self.end_reason().is_some() {
                // A client that does not time its requests tells by the error that this one was sent.
                let was_sent = matches!(reply.result, Err(Error::ConnectionLoss { sent: true, .. }));
                return Err(over(was_sent || reply.sent.is_some()));
            }
            let now = self.inner.clock.now();
            self.reflected(reply.zxid);
            let given = match &reply.result {
                Err(error) if !error.is_answer() => None,
                Err(error) if !error.is_answer_of_leader() => Some(Evidence::AnyServer),
                _ => Some(evidence),
            };
            if let (Some(given), Some(sent)) = (given, reply.sent) {
                self.answered_at(now, sent, reply.epoch, given);
            }
            // Before the caller sees the reply: an owner must know of its loss before another contender can be granted.
            self.is_shown(&path, &changes, reply.zxid, &reply.result);
            let elapsed = now.saturating_sub(reply.sent.unwrap_or(now));
            let outcome = reply.result.as_ref().err();
            let (session, elapsed_s) = (self.inner.number, elapsed.as_secs_f64());
            tracing::trace!(session, request = name, path = &*path, elapsed_s, error = ?outcome, "request");
            if elapsed > self.timeout() / SLOW {
                let path = Arc::clone(&path);
                report(move || tracing::warn!(session, request = name, path = &*path, elapsed_s, "slow request"));
            }
            // Too many reads for one reply are repeated in other requests.
            let is_split = name == OpCode::MultiRead.name() && matches!(reply.result, Err(Error::ReplyTooLarge { .. }));
            if let (Err(error @ (Error::ReplyTooLarge { .. } | Error::EndsConnections { .. })), false) =
                (&reply.result, is_split)
            {
                let error = error.clone();
                report(
                    move || tracing::warn!(session, request = name, error = %Chain(&error), "a reply is too large, or a request ends connections"),
                );
            }
            if reply.sent.is_some() {
                metrics::answered(name, elapsed);
            }
            let epoch = reply.epoch;
            reply.result.map(|response| (response, epoch))
        };
        answered.map_err(|error| self.for_caller(error))
    }

    /// Records what a reply shows of the nodes.
    fn is_shown(&self, path: &str, changes: &NodeChanges, zxid: i64, reply: &Result<Response>) {
        if !changes.is_empty() {
            self.inner.ephemeral_nodes.lock().answered(changes, zxid, reply);
        }
        match reply {
            Err(Error::NoNode { .. }) | Ok(Response::Exists(None)) => {
                self.watches().is_missing(path, zxid);
                self.inner.ephemeral_nodes.lock().is_gone(path, zxid);
            }
            Ok(
                Response::Exists(Some(stat)) | Response::Data(_, stat) | Response::Stat(stat) | Response::Acl(_, stat),
            ) => self.has_owner(path, zxid, stat.ephemeral_owner),
            Ok(Response::Children(names)) => self.watches().listed(path, names, zxid),
            Ok(Response::Ephemerals(paths)) => self.inner.ephemeral_nodes.lock().recount(zxid, paths),
            _ => {}
        }
    }

    /// Returns the error with the paths as the caller wrote them.
    pub(in crate::session) fn for_caller(&self, mut error: Error) -> Error {
        error.shorten(&|path| self.root.to_client_path(path));
        error
    }

    /// Polls a future once and writes all requests that this poll submits together. Requests that do not await each
    /// other's replies leave in one packet.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, `requests` is dropped.
    pub fn in_one_write<F: Future>(&self, requests: F) -> impl Future<Output = F::Output> {
        InOneWrite { session: self, is_sent: false, requests }
    }

    pub(in crate::session) fn unsupported(&self, request: &str) -> Error {
        let client = self.inner.handle.client();
        Error::Unsupported { request: request.into(), client, needed: DEFAULT_CLIENT }
    }
}

pin_project! {
    /// The future of [`Session::in_one_write`]. An async function would have room for its requests twice.
    struct InOneWrite<'a, F> {
        session: &'a Session,
        is_sent: bool,
        #[pin]
        requests: F,
    }
}

impl<F: Future> Future for InOneWrite<'_, F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let mut this = self.project();
        if std::mem::replace(this.is_sent, true) {
            return this.requests.poll(cx);
        }
        let mut first = Poll::Pending;
        this.session.inner.handle.write_together(&mut || first = this.requests.as_mut().poll(cx));
        first
    }
}

pub(super) fn unexpected(request: &str, path: &str, response: &Response) -> Error {
    tracing::error!(request, path, answer = response.kind(), "a handle answered a request with another one's response");
    Error::SessionExpired { request: format!("{request} {path}").into() }
}
