//! The state of the connection and its transitions: pure functions, without clock or network.

use std::fmt;

/// The state of the connection: Curator's `ConnectionState`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ConnectionState {
    /// The first connection ever.
    Connected,
    /// The connection is lost, or silent for two thirds of the session timeout; for one third with the default client
    /// while a node is owned. The session may be alive.
    Suspended,
    /// Connected again after `Suspended` or `Lost`.
    Reconnected,
    /// The session has ended, or may have. A holder must stop, because another client may get its lock from now on.
    Lost,
    /// Connected to a server that is cut off from the others and serves reads only.
    ReadOnly,
}

impl ConnectionState {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Connected => "connected",
            Self::Suspended => "suspended",
            Self::Reconnected => "reconnected",
            Self::Lost => "lost",
            Self::ReadOnly => "read-only",
        }
    }

    /// Returns `true` if requests can be sent in this state.
    #[must_use]
    pub const fn is_connected(self) -> bool {
        matches!(self, Self::Connected | Self::Reconnected | Self::ReadOnly)
    }
}

impl fmt::Display for ConnectionState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The choice of connection states in which a held lock is no longer reliable: Curator's `ConnectionStateErrorPolicy`.
pub trait ConnectionStateErrorPolicy: Send + Sync + fmt::Debug + 'static {
    /// Returns `true` if a held lock counts as lost when the connection enters this state. In `Lost` it always does.
    fn is_error_state(&self, state: ConnectionState) -> bool;
}

/// `Suspended` and `Lost`: Curator's `StandardConnectionStateErrorPolicy`. Every short network failure costs the locks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StandardConnectionStateErrorPolicy;

impl ConnectionStateErrorPolicy for StandardConnectionStateErrorPolicy {
    fn is_error_state(&self, state: ConnectionState) -> bool {
        matches!(state, ConnectionState::Suspended | ConnectionState::Lost)
    }
}

/// `Lost` only: Curator's `SessionConnectionStateErrorPolicy`. The default here, because `Lost` comes before the server
/// can grant the lock to another client.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SessionConnectionStateErrorPolicy;

impl ConnectionStateErrorPolicy for SessionConnectionStateErrorPolicy {
    fn is_error_state(&self, state: ConnectionState) -> bool {
        state == ConnectionState::Lost
    }
}

/// The events that change the state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StateEvent {
    /// The client's first session was established.
    FirstSession,
    /// Another session was established.
    SessionEstablished,
    /// The transport was lost, or no reply came for too long.
    Silent,
    /// A reply came in the session that was silent.
    Answered,
    /// The session has ended, or none was established in its time.
    SessionOver,
    /// The server that answers is cut off from the others and serves reads only.
    ReadOnly,
}

/// Returns the state after an event; `None` is "never connected". The same state again is not a transition.
pub(crate) fn next_state(state: Option<ConnectionState>, event: StateEvent) -> Option<ConnectionState> {
    use ConnectionState::{Connected, Lost, ReadOnly, Reconnected, Suspended};
    match (event, state) {
        // Also a late one, after `Suspended` and `Lost`.
        (StateEvent::FirstSession, _) => Some(Connected),
        (StateEvent::SessionEstablished, _) => Some(Reconnected),
        (StateEvent::Silent, None | Some(Connected | Reconnected | ReadOnly)) => Some(Suspended),
        (StateEvent::Silent, state) => state,
        (StateEvent::Answered, Some(Suspended)) => Some(Reconnected),
        (StateEvent::Answered, state) => state,
        (StateEvent::SessionOver, _) => Some(Lost),
        (StateEvent::ReadOnly, _) => Some(ReadOnly),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ConnectionState::{Connected, Lost, Reconnected, Suspended};

    #[test]
    fn every_transition_of_the_table() {
        use StateEvent::{Answered, FirstSession, SessionEstablished, SessionOver, Silent};
        let (read_only, went_read_only) = (Some(ConnectionState::ReadOnly), StateEvent::ReadOnly);
        for (state, event, next) in [
            (None, FirstSession, Some(Connected)),
            (Some(Suspended), FirstSession, Some(Connected)),
            (Some(Lost), FirstSession, Some(Connected)),
            (read_only, FirstSession, Some(Connected)),
            (None, Silent, Some(Suspended)),
            (None, SessionOver, Some(Lost)),
            (None, Answered, None),
            (Some(Connected), Silent, Some(Suspended)),
            (Some(Connected), Answered, Some(Connected)),
            (Some(Connected), SessionOver, Some(Lost)),
            (Some(Reconnected), Silent, Some(Suspended)),
            (Some(Suspended), Silent, Some(Suspended)),
            (Some(Suspended), Answered, Some(Reconnected)),
            (Some(Suspended), SessionOver, Some(Lost)),
            (Some(Suspended), SessionEstablished, Some(Reconnected)),
            (Some(Lost), Silent, Some(Lost)),
            (Some(Lost), Answered, Some(Lost)),
            (Some(Lost), SessionEstablished, Some(Reconnected)),
            (None, went_read_only, read_only),
            (Some(Connected), went_read_only, read_only),
            (Some(Lost), went_read_only, read_only),
            (read_only, SessionEstablished, Some(Reconnected)),
            (read_only, Silent, Some(Suspended)),
            (read_only, Answered, read_only),
            (read_only, SessionOver, Some(Lost)),
        ] {
            assert_eq!(next_state(state, event), next, "{state:?} {event:?}");
        }
    }
}
