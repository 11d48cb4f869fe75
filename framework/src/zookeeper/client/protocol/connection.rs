//! One connection of a session: the requests without a reply, and those that wait.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use curator_wire::{ErrorCode, ReplyHeader};

#[cfg(doc)]
use super::machine::Protocol;
use crate::error::Error;
use crate::model::{AddWatchMode, WatchKind};
use crate::zookeeper::client::armed_watches::Left;
use crate::zookeeper::client::history::Question;
use crate::zookeeper::{Request, Response};

pub(super) const THROTTLED: i32 = ErrorCode::ThrottledOp.code();
/// The pause before watches are set again that a busy server has refused.
pub(super) const THROTTLED_PAUSE: Duration = Duration::from_millis(50);
/// The number of outstanding requests of one session above which others wait. The server queues requests and replies:
/// thousands of listings at once would exhaust its memory.
pub(super) const WINDOW: usize = 512;
/// The bytes of outstanding requests above which others wait. A heartbeat is sent behind no more than these and one
/// request, so a caller's large writes do not end its session.
const WINDOW_BYTES: u64 = 1 << 20;

/// A server's violation of the protocol, or the reason why the server cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Violation(pub(crate) String);

impl Violation {
    pub(super) fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }
}

/// The identity of the session, which a re-attach sends.
#[derive(Debug)]
pub(super) struct SessionKey {
    pub(super) id: i64,
    pub(super) password: Vec<u8>,
    /// The session was created by a read-only server. The other servers do not know it.
    pub(super) local: bool,
}

#[derive(Debug)]
pub(super) struct Connection<T> {
    pub(super) phase: Phase,
    pub(super) connect_sent: Duration,
    /// The moment at which the newest byte arrived.
    pub(super) heard: Duration,
    /// The number of bytes of [`Protocol::output`] that the transport has taken.
    pub(super) written: u64,
    pub(super) outstanding: VecDeque<Outstanding<T>>,
    /// The queue of requests that wait until fewer are outstanding.
    pub(super) waiting: VecDeque<Waiting<T>>,
    pub(super) pings: VecDeque<(T, Duration)>,
    /// The number of credentials without a reply.
    pub(super) credentials: usize,
    /// The bytes of a reply above the limit that have not arrived yet.
    pub(super) skips: usize,
    /// The moment from which watches are set, replaced and removed again, because the server was too busy.
    pub(super) throttled_until: Option<Duration>,
    /// The paths for which it did not remove or replace the persistent watch.
    pub(super) throttled_paths: Vec<String>,
    /// The server has no majority. It may have writes that the ensemble does not keep, so the history leaves them out.
    pub(super) read_only: bool,
}

impl<T> Connection<T> {
    /// Returns `true` if the window has room for a request behind `unwritten` bytes of output.
    pub(super) fn has_room(&self, unwritten: usize) -> bool {
        let Some(oldest) = self.outstanding.front() else { return true };
        let bytes = self.written + unwritten as u64 - oldest.offset;
        self.outstanding.len() < WINDOW && bytes < WINDOW_BYTES
    }

    /// Returns the index of the outstanding request that a reply answers.
    pub(super) fn answered_by(&self, header: &ReplyHeader) -> Result<usize, Violation> {
        // A server replies to an unknown operation at once, ahead of older replies.
        let index = if header.err == ErrorCode::Unimplemented.code() {
            self.outstanding.iter().position(|outstanding| outstanding.xid == header.xid).unwrap_or(0)
        } else {
            0
        };
        let Some(oldest) = self.outstanding.get(index) else {
            return Err(Violation(format!("a reply to request {}, which was not sent", header.xid)));
        };
        if oldest.xid != header.xid {
            return Err(Violation(format!("a reply to request {} before that to {}", header.xid, oldest.xid)));
        }
        if oldest.offset >= self.written {
            return Err(Violation(format!("a reply to request {}, which is not sent yet", header.xid)));
        }
        Ok(index)
    }
}

#[derive(Debug)]
pub(super) enum Phase {
    /// The connect request is sent.
    Connecting,
    /// The client logs in by SASL: its mechanism works, or a reply is outstanding.
    LoggingIn,
    /// So many replies to questions about known writes are outstanding, and the replies to lists of watches with the
    /// events since these zxids.
    Restoring {
        questions: usize,
        parts: VecDeque<i64>,
    },
    Ready,
    Closing,
}

impl Phase {
    /// Returns `true` if the server has answered all questions and lists of watches of a new connection.
    pub(super) fn has_restored(&self) -> bool {
        matches!(self, Self::Restoring { questions: 0, parts, .. } if parts.is_empty())
    }
}

#[derive(Debug)]
pub(super) enum Waiting<T> {
    Request(Request, T),
    /// The removal of a watch, never sent ahead of a read that sets it.
    Forget(String, WatchKind),
    /// The removal of a persistent watch, or its change to another mode, never sent ahead of the list that sets it again.
    FitWatch(String),
}

/// A request without a reply.
#[derive(Debug)]
pub(super) struct Outstanding<T> {
    pub(super) xid: i32,
    /// The request's first byte, counted from the connection's first one.
    pub(super) offset: u64,
    /// The length of the request in bytes.
    pub(super) size: usize,
    pub(super) sent: Duration,
    pub(super) asked: Asked<T>,
}

#[derive(Debug)]
pub(super) enum Asked<T> {
    Request(Request, T),
    AddWatch {
        path: String,
        mode: AddWatchMode,
        /// The mode of the watch that the server sets.
        sent: AddWatchMode,
        id: u64,
        token: T,
    },
    /// Watches on the nodes that a new subscriber knows, up to this zxid.
    Known {
        id: u64,
        zxid: i64,
        /// The persistent watches of some of these nodes, which the same request sets again.
        persistent: Vec<(String, AddWatchMode)>,
    },
    /// A persistent watch in place of a recursive one without a subscriber, or of the watches of reads.
    Replace(String),
    RemoveWatch {
        path: String,
        kind: Option<WatchKind>,
    },
    /// A write that the client has seen.
    Compare(Question),
    Sasl,
    Close,
    /// The caller got its reply when the session ended.
    Abandoned,
}

/// Returns the request without the data that is in the output already.
pub(super) fn without_data(mut request: Request) -> Request {
    match &mut request {
        Request::Create { data, acl, .. } => {
            *data = Vec::new();
            *acl = Vec::new();
        }
        Request::SetData { data, .. } => *data = Vec::new(),
        Request::SetAcl { acl, .. } => *acl = Vec::new(),
        _ => {}
    }
    request
}

/// Returns the path of a request that changes nothing and asks for data of any length.
pub(super) fn path_of_read(request: &Request) -> Option<&str> {
    match request {
        Request::Exists { path, .. }
        | Request::GetData { path, .. }
        | Request::GetChildren { path, .. }
        | Request::GetAcl { path }
        | Request::GetEphemerals { path } => Some(path),
        Request::MultiRead { .. } => Some(request.path()),
        _ => None,
    }
}

/// Returns path and kind of the one-shot watch that a read can set, and `true` if it sets it.
pub(super) fn watch_of(request: &mut Request) -> Option<(&str, WatchKind, &mut bool)> {
    match request {
        Request::Exists { path, watch } | Request::GetData { path, watch } => Some((path, WatchKind::Data, watch)),
        Request::GetChildren { path, watch } => Some((path, WatchKind::Children, watch)),
        _ => None,
    }
}

/// Returns the watch that a read has left.
pub(super) fn left_by<'a>(request: &'a Request, result: &Result<Response, Error>) -> Option<(&'a Arc<str>, Left)> {
    match (request, result) {
        (Request::Exists { path, watch: true }, Ok(Response::Exists(Some(_)))) => Some((path, Left::Data)),
        (Request::Exists { path, watch: true }, Ok(Response::Exists(None))) => Some((path, Left::Missing)),
        (Request::GetData { path, watch: true }, Ok(_)) => Some((path, Left::Data)),
        (Request::GetChildren { path, watch: true }, Ok(_)) => Some((path, Left::Children)),
        _ => None,
    }
}

pub(super) fn refused_watches(err: i32) -> Result<(), Violation> {
    Err(Violation(format!("the server answered {err} to setWatches")))
}
