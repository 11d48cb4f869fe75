//! The failures to connect.

use std::fmt;

#[cfg(doc)]
use crate::error::Error;

/// The failure of each server that was tried.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectError {
    failures: Vec<(String, String)>,
    kind: Kind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    NoSession,
    InSession,
    RefusedCredentials,
    TimeOver,
}

impl ConnectError {
    /// Creates an error about one server.
    #[must_use]
    pub fn new(server: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::from_failures(vec![(server.into(), reason.into())])
    }

    /// Creates an error about several servers, in the order of the attempts.
    #[must_use]
    pub fn from_failures(failures: Vec<(String, String)>) -> Self {
        Self { failures, kind: Kind::NoSession }
    }

    /// Marks the failures as failures of an existing session: it lost its connection, or was not attached again.
    #[must_use]
    pub fn in_session(self) -> Self {
        Self { kind: Kind::InSession, ..self }
    }

    /// Marks the last failure as a refusal of the credentials. Waiting operations then end with [`Error::AuthFailed`],
    /// and the pauses between the attempts become longer.
    #[must_use]
    pub fn refusing_credentials(self) -> Self {
        Self { kind: Kind::RefusedCredentials, ..self }
    }

    /// Returns `true` if a server did not accept the credentials.
    #[must_use]
    pub fn refuses_credentials(&self) -> bool {
        self.kind == Kind::RefusedCredentials
    }

    /// Returns the end of a caller's time, on a connection that is not lost.
    pub(crate) const fn time_over() -> Self {
        Self { failures: Vec::new(), kind: Kind::TimeOver }
    }

    /// Returns `true` if the caller's time ended before the reply, while the client was connected.
    #[must_use]
    pub fn is_time_over(&self) -> bool {
        self.kind == Kind::TimeOver
    }

    /// Returns the servers in the order of the attempts, each with its failure.
    #[must_use]
    pub fn failures(&self) -> &[(String, String)] {
        &self.failures
    }
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let failures: Vec<String> =
            self.failures.iter().map(|(server, reason)| format!("{server}: {reason}")).collect();
        let failures = failures.join("; ");
        match self.kind {
            Kind::TimeOver => f.write_str("no answer in the time allowed, though the client is connected"),
            Kind::InSession if failures.is_empty() => f.write_str("no server could be tried"),
            Kind::InSession => f.write_str(&failures),
            _ if failures.is_empty() => f.write_str("no session could be established"),
            _ => write!(f, "no session could be established: {failures}"),
        }
    }
}

impl std::error::Error for ConnectError {}
