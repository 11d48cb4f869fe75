//! The errors of the nodes that tasks keep, and of groups.

use curator_framework::{PathText, SessionId};

use crate::standing::StartError;

/// An error of a [`PersistentNode`](crate::PersistentNode), a [`PersistentTtlNode`](crate::PersistentTtlNode) or a
/// group.
///
/// The text is without the cause: [`Chain`](curator_framework::Chain) adds it.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum NodeError {
    /// An error of the framework: no connection, no permission, a closed client …
    #[error(transparent)]
    Framework(#[from] curator_framework::Error),
    /// The object was not started.
    #[error("{path} is not started")]
    NotStarted {
        /// The path.
        path: PathText,
    },
    /// The object was started before, or runs.
    #[error("{path} is started already")]
    AlreadyStarted {
        /// The path.
        path: PathText,
    },
    /// The object or its client was closed.
    #[error("{path} is closed, or its client")]
    Closed {
        /// The path.
        path: PathText,
    },
    /// Another session, or another object of this client, has a node at the path. This node is created when that node
    /// is deleted.
    #[error("{path} is {}", owned_by(*session))]
    TakenBy {
        /// The path.
        path: PathText,
        /// The session; `None` for a node that is not ephemeral.
        session: Option<SessionId>,
    },
    /// Another session has a member with this id, perhaps the session of an earlier process that has crashed: its node
    /// exists until the session expires.
    #[error("the group {group} has a member {id:?}, {}", owned_by(*session))]
    DuplicateMember {
        /// The group's path.
        group: PathText,
        /// The id.
        id: String,
        /// The session of the other member; `None` for a node that is not ephemeral.
        session: Option<SessionId>,
    },
    /// An argument that cannot work.
    #[error("invalid {argument}: {reason}")]
    InvalidArgument {
        /// The argument's name.
        argument: &'static str,
        /// The rule that it breaks.
        reason: String,
    },
}

/// Describes a node by its owner.
fn owned_by(session: Option<SessionId>) -> String {
    match session {
        None => "a node that is not ephemeral".to_owned(),
        Some(session) => format!("the node of session {session}"),
    }
}

impl NodeError {
    /// Returns `true` if the same call may succeed later: see
    /// [`Error::is_retryable`](curator_framework::Error::is_retryable). `true` for `TakenBy` and `DuplicateMember`.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Framework(error) => error.is_retryable(),
            other => matches!(other, Self::TakenBy { .. } | Self::DuplicateMember { .. }),
        }
    }

    /// Returns `true` if a write may have been applied although it failed with this error.
    #[must_use]
    pub fn outcome_unknown(&self) -> bool {
        matches!(self, Self::Framework(error) if error.outcome_unknown())
    }

    pub(crate) fn of_start(error: StartError, path: PathText) -> Self {
        match error {
            StartError::AlreadyStarted => Self::AlreadyStarted { path },
            StartError::Closed => Self::Closed { path },
            StartError::NoRuntime => curator_framework::Error::NoRuntime.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_name_the_owner_of_a_taken_path() {
        let taken = |session| NodeError::TakenBy { path: "/a".into(), session }.to_string();
        assert_eq!(taken(SessionId::new(0x1f)), "/a is the node of session 0x1f");
        assert_eq!(taken(None), "/a is a node that is not ephemeral");
        let duplicate =
            NodeError::DuplicateMember { group: "/g".into(), id: "ann".to_owned(), session: SessionId::new(0x1f) };
        assert_eq!(duplicate.to_string(), "the group /g has a member \"ann\", the node of session 0x1f");
    }
}
