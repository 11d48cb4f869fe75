//! The errors of operations.

use std::sync::Arc;

use curator_wire::ErrorCode;

#[cfg(doc)]
use super::Chain;
use super::{ConnectError, PathText, Result};

/// An error of the framework.
///
/// Most callers need only [`is_retryable`](Self::is_retryable) and [`outcome_unknown`](Self::outcome_unknown). Every
/// operation can also fail with `NotStarted` and `Closed`. The text is a fragment that fits after "failed to …: ". The
/// cause has a text of its own, which [`Chain`] adds: see [`source`](std::error::Error::source).
///
/// Paths are those that the caller wrote, without the namespace; `Debug` has the server's paths: [`PathText`].
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
#[doc(alias = "KeeperException")]
pub enum Error {
    /// The connection was lost before the reply came, or was not established in time. Or the caller's time ended before
    /// the reply, on a connection that is not lost: see [`ConnectError::is_time_over`]. It is retryable.
    #[error("{}", loss(request, cause.as_deref()))]
    ConnectionLoss {
        /// The request, with its path.
        request: PathText,
        /// `true` if the request had left for the server, which may have applied it.
        sent: bool,
        /// The failures of the last attempt to connect, if known, or the end of the caller's time.
        #[source]
        cause: Option<Arc<ConnectError>>,
    },
    /// A server did not accept the client's [credentials](crate::CuratorFrameworkBuilder::authorization), or its
    /// [login](crate::CuratorFrameworkBuilder::sasl). The client keeps trying, with pauses of up to 30 s, but does not
    /// wait for that: correct the credentials. The request was not sent.
    #[error("the credentials were refused")]
    AuthFailed {
        /// The servers that were tried, and the scheme that one of them refused. It never has the credentials.
        #[source]
        cause: Arc<ConnectError>,
    },
    /// The session of the request has ended. Its ephemeral nodes are deleted, or about to be.
    #[error("session expired during {request}")]
    SessionExpired {
        /// The request, with its path.
        request: PathText,
    },
    /// The node does not exist.
    #[error("no node {path}")]
    NoNode {
        /// The node.
        path: PathText,
    },
    /// The node exists already.
    #[error("node {path} exists already")]
    NodeExists {
        /// The node.
        path: PathText,
    },
    /// The node still has children.
    #[error("node {path} has children")]
    NotEmpty {
        /// The node.
        path: PathText,
    },
    /// The node has another version than the request demands: read it again.
    #[error("node {path} has another version")]
    BadVersion {
        /// The node.
        path: PathText,
    },
    /// The parent is ephemeral, so it cannot have children.
    #[error("the parent of {path} is ephemeral and cannot have children")]
    NoChildrenForEphemerals {
        /// The node that was to be created.
        path: PathText,
    },
    /// The node's access control list forbids the request: change the list or the credentials.
    #[error("not authorized for {path}")]
    NoAuth {
        /// The node.
        path: PathText,
    },
    /// The given access control list is not valid.
    #[error("invalid access control list for {path}{}", match reason { Some(reason) => format!(": {reason}"), None => String::new() })]
    InvalidAcl {
        /// The node.
        path: PathText,
        /// The rule that the list breaks, if the client refused it. The server does not name the rule.
        reason: Option<&'static str>,
    },
    /// The request is longer than a server accepts, so it was not sent. Set servers and clients to the same limit
    /// (`jute.maxbuffer`, [`max_frame`](crate::CuratorFrameworkBuilder::max_frame)).
    #[error("{request} takes {size} bytes, more than the limit of {limit}")]
    RequestTooLarge {
        /// The request, with its path.
        request: PathText,
        /// The length of its frame in bytes.
        size: usize,
        /// The longest frame allowed, in bytes.
        limit: usize,
    },
    /// The server's reply is longer than the client accepts, so its bytes were skipped. The connection stays open, and
    /// the same read gets the same reply: read another node, or raise
    /// [`max_reply`](crate::CuratorFrameworkBuilder::max_reply).
    #[error("the reply about {path} takes {size} bytes, more than the limit of {limit}")]
    ReplyTooLarge {
        /// The node that was read, or the node of the listing.
        path: PathText,
        /// The length of the reply in bytes.
        size: usize,
        /// The longest reply allowed, in bytes.
        limit: usize,
    },
    /// The connection was lost several times in a row while this request was the oldest one without a reply. A server
    /// closes the connection at a request above its limit (`jute.maxbuffer`), which this one probably is. It may have
    /// been applied.
    #[error(
        "the connection was lost {losses} times in a row during {request}, of {size} bytes: the limit of the server \
         (jute.maxbuffer) may be smaller"
    )]
    EndsConnections {
        /// The request, with its path.
        request: PathText,
        /// The length of its frame in bytes.
        size: usize,
        /// The number of the losses.
        losses: u32,
    },
    /// The session's ephemeral nodes would take more bytes than
    /// [`max_ephemeral_bytes`](crate::CuratorFrameworkBuilder::max_ephemeral_bytes), so the request was not sent. It is not
    /// retryable, because a wait could be a deadlock: the tasks that wait may hold the other nodes. It may succeed when
    /// some of them are deleted. Use another client for more nodes, or one node for many tasks.
    #[error("the ephemeral nodes of the session would take {bytes} bytes, more than the limit of {limit}")]
    TooManyEphemeralNodes {
        /// The bytes that the paths would take, including the new nodes of the request.
        bytes: usize,
        /// The most bytes allowed.
        limit: usize,
    },
    /// The server replied with another error code.
    #[error("the server answered {} to {request}", named(*code))]
    ZooKeeper {
        /// ZooKeeper's error code.
        code: i32,
        /// The request, with its path.
        request: PathText,
    },
    /// One operation of a transaction failed, so the server applied none of them.
    #[error("operation {index} of the transaction, {operation}, failed")]
    Transaction {
        /// The operation's index, from 0.
        index: usize,
        /// The operation, with its path.
        operation: PathText,
        /// The operation's error.
        #[source]
        cause: Box<Self>,
    },
    /// The ZooKeeper client does not support the request, or the server does not know it.
    #[error("{client} cannot {request}; needed: {needed}")]
    Unsupported {
        /// The request.
        request: PathText,
        /// The client's name, or "the server".
        client: &'static str,
        /// The client, the cargo feature or the server's version and setting that it takes.
        needed: &'static str,
    },
    /// ZooKeeper does not accept the path.
    #[error("invalid path {:?}: {reason}", path.as_str())]
    InvalidPath {
        /// The path as it was given.
        path: PathText,
        /// The rule that the path breaks.
        reason: &'static str,
    },
    /// An option of the client has a value that cannot work.
    #[error("invalid {option}: {reason}")]
    InvalidConfig {
        /// The option's name.
        option: &'static str,
        /// The reason why it cannot work.
        reason: String,
    },
    /// The client's `SchemaSet` refuses the request.
    #[error("{path} violates schema {schema}: {reason}")]
    SchemaViolation {
        /// The node.
        path: PathText,
        /// The schema's name.
        schema: String,
        /// The rule that the request breaks.
        reason: String,
    },
    /// The data could not be compressed, or the data that was read could not be decompressed.
    #[error("the data of {path} cannot be (de)compressed: {reason}")]
    Compression {
        /// The node.
        path: PathText,
        /// The provider's error.
        reason: String,
    },
    /// The client is not started: call [`CuratorFramework::start`](crate::CuratorFramework::start).
    #[error("the client is not started")]
    NotStarted,
    /// The client was started before.
    #[error("the client cannot be started more than once")]
    AlreadyStarted,
    /// The client was closed: build another one.
    #[error("the client is closed")]
    Closed,
    /// [`CuratorFramework::start`](crate::CuratorFramework::start) was called outside of a tokio runtime.
    #[error("there is no tokio runtime here")]
    NoRuntime,
    /// [`CuratorFramework::start`](crate::CuratorFramework::start) was called in a tokio runtime that was built without
    /// timers or I/O. Build it with `enable_all`.
    #[error("the tokio runtime was built without {missing}: build it with `enable_all`")]
    IncompleteRuntime {
        /// The part that the runtime lacks.
        missing: &'static str,
    },
    /// [`CuratorFramework::start`](crate::CuratorFramework::start) was called in a tokio runtime with a paused clock,
    /// as by `#[tokio::test(start_paused = true)]`. Such a clock jumps to the next timer whenever all tasks wait, so
    /// every time limit ends before a server can answer. Start the client while the clock runs, or use the simulation
    /// of the crate `curator-test`, `SimulatedEnsemble`.
    #[error(
        "the tokio runtime's clock is paused, so time limits end before a server can answer: test without \
         `start_paused`, or with `curator_test::SimulatedEnsemble`"
    )]
    PausedClock,
    /// A signal has ended the work of [`CuratorFramework::run`](crate::CuratorFramework::run).
    #[error("stopped by {signal}")]
    Interrupted {
        /// The signal's name, such as `SIGINT`.
        signal: &'static str,
    },
}

/// An error of a recipe, for [`RetryLoop::done`](crate::RetryLoop::done).
pub trait RecipeError: From<Error> {
    /// Returns the error of the framework that this one is, or itself.
    ///
    /// # Errors
    ///
    /// The error itself, if it is one of the recipe. It is not retried.
    fn into_framework(self) -> Result<Error, Self>;
}

impl RecipeError for Error {
    fn into_framework(self) -> Result<Error, Self> {
        Ok(self)
    }
}

impl Error {
    /// Returns `true` if the same request may succeed later: after `ConnectionLoss` and `SessionExpired`, as in
    /// Curator's `RetryPolicy.allowRetry`. It may also succeed after ZooKeeper's operation timeout, moved session and
    /// throttled request.
    /// A server that throttles has not carried out the request.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::ConnectionLoss { .. } | Self::SessionExpired { .. } => true,
            Self::ZooKeeper { code, .. } => matches!(*code, OPERATION_TIMEOUT | SESSION_MOVED | THROTTLED),
            _ => false,
        }
    }

    /// Returns `true` if the same request may succeed later in the same session.
    #[must_use]
    pub fn is_retryable_in_session(&self) -> bool {
        self.is_retryable() && !matches!(self, Self::SessionExpired { .. })
    }

    /// Returns `true` if a write may have been applied although it failed with this error.
    #[must_use]
    pub fn outcome_unknown(&self) -> bool {
        match self {
            Self::ConnectionLoss { sent, .. } => *sent,
            Self::SessionExpired { .. } | Self::EndsConnections { .. } => true,
            Self::ZooKeeper { code, .. } => matches!(*code, OPERATION_TIMEOUT | SESSION_MOVED),
            _ => false,
        }
    }

    /// Returns `true` if the server itself sent this error, which proves that it received the request.
    pub(crate) fn is_answer(&self) -> bool {
        match self {
            Self::Transaction { cause, .. } => cause.is_answer(),
            Self::NoAuth { .. } | Self::InvalidAcl { .. } => true,
            Self::ZooKeeper { code, .. } => !matches!(*code, OPERATION_TIMEOUT | SESSION_MOVED),
            _ => self.is_answer_of_leader(),
        }
    }

    /// Returns `true` if the leader itself sent this error. A follower, even one that is cut off, may refuse a
    /// forbidden or malformed request by itself.
    pub(crate) fn is_answer_of_leader(&self) -> bool {
        match self {
            Self::Transaction { cause, .. } => cause.is_answer_of_leader(),
            Self::NoNode { .. }
            | Self::NodeExists { .. }
            | Self::NotEmpty { .. }
            | Self::BadVersion { .. }
            | Self::NoChildrenForEphemerals { .. } => true,
            _ => false,
        }
    }

    /// Names the path in the error of a wait for a connection, and of a request that a recipe sends for itself. Other
    /// errors name their request and path already.
    #[must_use]
    pub fn about(mut self, path: &str) -> Self {
        if let Self::ConnectionLoss { request, .. } | Self::SessionExpired { request } = &mut self {
            if INTERNAL.contains(&request.as_str()) {
                *request = format!("{request} for {path}").into();
            }
        }
        self
    }

    /// Replaces the text of the request.
    pub(crate) fn renamed(mut self, text: &str) -> Self {
        if let Self::ConnectionLoss { request, .. }
        | Self::SessionExpired { request }
        | Self::ZooKeeper { request, .. } = &mut self
        {
            *request = text.into();
        }
        self
    }

    /// Shortens the server's paths to those that the caller wrote.
    pub(crate) fn shorten(&mut self, shorten: &impl Fn(&str) -> &str) {
        match self {
            Self::ConnectionLoss { request: text, .. }
            | Self::SessionExpired { request: text }
            | Self::RequestTooLarge { request: text, .. }
            | Self::EndsConnections { request: text, .. }
            | Self::ReplyTooLarge { path: text, .. }
            | Self::ZooKeeper { request: text, .. }
            | Self::Unsupported { request: text, .. }
            | Self::NoNode { path: text }
            | Self::NodeExists { path: text }
            | Self::NotEmpty { path: text }
            | Self::BadVersion { path: text }
            | Self::NoChildrenForEphemerals { path: text }
            | Self::NoAuth { path: text }
            | Self::InvalidAcl { path: text, .. }
            | Self::InvalidPath { path: text, .. }
            | Self::SchemaViolation { path: text, .. }
            | Self::Compression { path: text, .. } => text.shorten(shorten),
            Self::Transaction { operation, cause, .. } => {
                operation.shorten(shorten);
                cause.shorten(shorten);
            }
            Self::AuthFailed { .. }
            | Self::TooManyEphemeralNodes { .. }
            | Self::InvalidConfig { .. }
            | Self::NotStarted
            | Self::AlreadyStarted
            | Self::Closed
            | Self::NoRuntime
            | Self::IncompleteRuntime { .. }
            | Self::PausedClock
            | Self::Interrupted { .. } => {}
        }
    }

    /// Returns the error of a server's code for a request about `path`. `needed` is what the request takes of a server.
    pub(crate) fn of_code(path: &str, code: i32, needed: &'static str, request: impl FnOnce() -> String) -> Self {
        let path = path.into();
        let request = || request().into();
        match ErrorCode::from_code(code) {
            Some(ErrorCode::NoNode) => Self::NoNode { path },
            Some(ErrorCode::NodeExists) => Self::NodeExists { path },
            Some(ErrorCode::NotEmpty) => Self::NotEmpty { path },
            Some(ErrorCode::BadVersion) => Self::BadVersion { path },
            Some(ErrorCode::NoAuth) => Self::NoAuth { path },
            Some(ErrorCode::InvalidAcl) => Self::InvalidAcl { path, reason: None },
            Some(ErrorCode::NoChildrenForEphemerals) => Self::NoChildrenForEphemerals { path },
            Some(ErrorCode::Unimplemented) => Self::Unsupported { request: request(), client: "the server", needed },
            Some(ErrorCode::SessionExpired) => Self::SessionExpired { request: request() },
            _ => Self::ZooKeeper { code, request: request() },
        }
    }

    pub(crate) fn invalid_config(option: &'static str, reason: impl Into<String>) -> Self {
        Self::InvalidConfig { option, reason: reason.into() }
    }
}

/// The texts of requests that no caller has made. [`Error::about`] adds the path.
pub(crate) const INTERNAL_WAIT: &str = "the wait for a connection";
pub(crate) const INTERNAL_BARRIER: &str = "a write barrier";
pub(crate) const INTERNAL_EARLIER: &str = "an operation that was begun in it";
const INTERNAL: [&str; 3] = [INTERNAL_WAIT, INTERNAL_BARRIER, INTERNAL_EARLIER];

/// Returns the text of a `ConnectionLoss`.
fn loss(request: &PathText, cause: Option<&ConnectError>) -> String {
    match (request.as_str().strip_prefix(INTERNAL_WAIT), cause) {
        (_, Some(cause)) if cause.is_time_over() => format!("{request} was given up"),
        (Some(about), _) => format!("no connection in time{about}"),
        (None, _) => format!("connection lost during {request}"),
    }
}

/// Returns the code with its name, if it has one.
fn named(code: i32) -> String {
    ErrorCode::from_code(code).map_or_else(|| code.to_string(), |known| format!("{} ({code})", known.name()))
}

/// ZooKeeper's code for a request that took too long on the server.
const OPERATION_TIMEOUT: i32 = -7;
/// ZooKeeper's code for a session that has moved to another server.
const SESSION_MOVED: i32 = -118;
/// ZooKeeper's code for a request that the server did not carry out, because it has too many.
const THROTTLED: i32 = ErrorCode::ThrottledOp.code();

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Chain;

    fn loss(sent: bool) -> Error {
        Error::ConnectionLoss { request: "create /a".into(), sent, cause: None }
    }

    #[test]
    fn only_connection_and_session_errors_are_retried() {
        assert!(loss(true).is_retryable());
        assert!(Error::SessionExpired { request: "create /a".into() }.is_retryable());
        assert!(Error::ZooKeeper { code: SESSION_MOVED, request: "create /a".into() }.is_retryable());
        assert!(!Error::NoNode { path: "/a".into() }.is_retryable());
        assert!(!Error::ZooKeeper { code: -6, request: "multi".into() }.is_retryable());
        assert!(!Error::Closed.is_retryable());
    }

    #[test]
    fn throttled_request_is_retried_and_was_not_applied() {
        let error = Error::of_code("/a", -127, "", || "create /a".into());
        assert!(error.is_retryable() && !error.outcome_unknown() && error.is_answer() && !error.is_answer_of_leader());
        assert_eq!(error.to_string(), "the server answered ThrottledOp (-127) to create /a");
    }

    #[test]
    fn a_request_that_never_left_has_a_known_outcome() {
        assert!(!loss(false).outcome_unknown());
        assert!(loss(true).outcome_unknown());
    }

    /// One error of each variant, with a cause where it has one.
    fn all() -> Vec<Error> {
        let (path, request) = (|| PathText::from("/a"), || PathText::from("create /a"));
        let cause = Some(Arc::new(ConnectError::new("a:1", "connection refused")));
        let reason = || "a reason".to_owned();
        vec![
            Error::ConnectionLoss { request: request(), sent: true, cause },
            Error::AuthFailed { cause: Arc::new(ConnectError::new("a:1", "refused").refusing_credentials()) },
            Error::SessionExpired { request: request() },
            Error::NoNode { path: path() },
            Error::NodeExists { path: path() },
            Error::NotEmpty { path: path() },
            Error::BadVersion { path: path() },
            Error::NoChildrenForEphemerals { path: path() },
            Error::NoAuth { path: path() },
            Error::InvalidAcl { path: path(), reason: Some("a reason") },
            Error::RequestTooLarge { request: request(), size: 2, limit: 1 },
            Error::ReplyTooLarge { path: path(), size: 2, limit: 1 },
            Error::EndsConnections { request: request(), size: 2, losses: 3 },
            Error::TooManyEphemeralNodes { bytes: 2, limit: 1 },
            Error::ZooKeeper { code: -7, request: request() },
            Error::Transaction { index: 1, operation: request(), cause: Box::new(Error::NoNode { path: path() }) },
            Error::Unsupported { request: request(), client: "this client", needed: "another one" },
            Error::InvalidPath { path: path(), reason: "a reason" },
            Error::InvalidConfig { option: "option", reason: reason() },
            Error::SchemaViolation { path: path(), schema: reason(), reason: reason() },
            Error::Compression { path: path(), reason: reason() },
            Error::NotStarted,
            Error::AlreadyStarted,
            Error::Closed,
            Error::NoRuntime,
            Error::IncompleteRuntime { missing: "timers" },
            Error::PausedClock,
            Error::Interrupted { signal: "SIGINT" },
        ]
    }

    #[test]
    fn causes_are_sources_and_no_text_is_printed_twice() {
        for error in all() {
            let chain = std::iter::successors(Some(&error as &dyn std::error::Error), |error| error.source());
            let texts: Vec<String> = chain.map(ToString::to_string).collect();
            assert_eq!(Chain(&error).to_string(), texts.join(": "));
            let has_cause =
                matches!(error, Error::ConnectionLoss { .. } | Error::AuthFailed { .. } | Error::Transaction { .. });
            assert_eq!(texts.len() == 2, has_cause, "{texts:?}");
            assert!(texts.iter().all(|text| Chain(&error).to_string().matches(text).count() == 1), "{texts:?}");
        }
        let kinds: std::collections::HashSet<_> = all().iter().map(std::mem::discriminant).collect();
        let variants = include_str!("kinds.rs").matches("#[error(").count() - 1;
        assert_eq!(kinds.len(), variants, "each variant is here");
    }

    #[test]
    fn text_names_the_code_of_the_server() {
        let text = |code| Error::ZooKeeper { code, request: "exists /".into() }.to_string();
        assert_eq!(text(-124), "the server answered SessionClosedRequireSaslAuth (-124) to exists /");
        assert_eq!(text(-999), "the server answered -999 to exists /");
    }

    #[test]
    fn the_text_names_each_server_and_why() {
        let cause = ConnectError::from_failures(vec![
            ("a:1".into(), "connection refused".into()),
            ("b:2".into(), "no answer within 5s".into()),
        ]);
        let error = Error::ConnectionLoss { request: "create /a".into(), sent: false, cause: Some(Arc::new(cause)) };
        assert_eq!(
            Chain(&error).to_string(),
            "connection lost during create /a: no session could be established: a:1: connection refused; b:2: no answer within 5s"
        );
        let cause = ConnectError::new("a:1", "the server closed the connection").in_session();
        let error = Error::ConnectionLoss { request: "create /a".into(), sent: true, cause: Some(Arc::new(cause)) };
        assert_eq!(
            Chain(&error).to_string(),
            "connection lost during create /a: a:1: the server closed the connection"
        );
        let cause = Some(Arc::new(ConnectError::time_over()));
        let error = Error::ConnectionLoss { request: "create /a".into(), sent: true, cause };
        assert_eq!(
            Chain(&error).to_string(),
            "create /a was given up: no answer in the time allowed, though the client is connected"
        );
    }

    #[test]
    fn errors_of_internal_requests_name_the_path() {
        let lost = |request: &str| Error::ConnectionLoss { request: request.into(), sent: false, cause: None };
        assert_eq!(lost(INTERNAL_WAIT).to_string(), "no connection in time");
        assert_eq!(lost(INTERNAL_WAIT).about("/a").to_string(), "no connection in time for /a");
        assert_eq!(lost(INTERNAL_WAIT).about("getData /a").to_string(), "no connection in time for getData /a");
        assert_eq!(lost("create /a").about("/b").to_string(), "connection lost during create /a");
        let barrier = lost("delete /1f/none").renamed(INTERNAL_BARRIER).about("/a").to_string();
        assert_eq!(barrier, "connection lost during a write barrier for /a");
    }
}
