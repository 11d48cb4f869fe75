//! The state of the connection, and when it changes: pure functions, without clock or network.

use std::fmt;
use std::time::Duration;

/// What Curator's users know of the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ConnectionState {
    /// The first connection ever.
    Connected,
    /// There is no connection, or no answer for two thirds of the session timeout. The session may be alive.
    Suspended,
    /// Connected again after `Suspended` or `Lost`.
    Reconnected,
    /// The session is over, or may be. Whoever held a lock must stop: somebody else may get it from now on.
    Lost,
    /// Connected to a server that is cut off from the others and serves reads only.
    ReadOnly,
}

impl ConnectionState {
    /// Whether requests can be sent.
    #[must_use]
    pub const fn is_connected(self) -> bool {
        matches!(self, Self::Connected | Self::Reconnected | Self::ReadOnly)
    }
}

impl fmt::Display for ConnectionState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Connected => "connected",
            Self::Suspended => "suspended",
            Self::Reconnected => "reconnected",
            Self::Lost => "lost",
            Self::ReadOnly => "read-only",
        })
    }
}

/// What happened to the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StateEvent {
    /// A new session was established.
    SessionEstablished,
    /// The transport was lost, or nothing was answered for too long.
    Silent,
    /// Something was answered in the session that was silent.
    Answered,
    /// The session is over, or none was established in its time.
    SessionOver,
}

/// The state after an event; `None` is "never connected". The same state again is no transition.
pub(crate) fn next_state(state: Option<ConnectionState>, event: StateEvent) -> Option<ConnectionState> {
    use ConnectionState::{Connected, Lost, ReadOnly, Reconnected, Suspended};
    match (event, state) {
        (StateEvent::SessionEstablished, None) => Some(Connected),
        (StateEvent::SessionEstablished, Some(_)) => Some(Reconnected),
        (StateEvent::Silent, None | Some(Connected | Reconnected | ReadOnly)) => Some(Suspended),
        (StateEvent::Silent, state) => state,
        (StateEvent::Answered, Some(Suspended)) => Some(Reconnected),
        (StateEvent::Answered, state) => state,
        (StateEvent::SessionOver, _) => Some(Lost),
    }
}

/// What is known of a session's life: when the newest answered requests were sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Proofs {
    /// The newest answered request of any kind.
    pub(crate) any: Duration,
    /// The newest answered request that went through the leader.
    pub(crate) leader: Duration,
}

/// When a session is silent, and when it must be taken for lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Schedule {
    timeout: Duration,
}

impl Schedule {
    pub(crate) const fn new(timeout: Duration) -> Self {
        Self { timeout }
    }

    /// What counts: with claims only the leader's answers, because a read proves nothing about the session.
    fn base(proofs: Proofs, claims: bool) -> Duration {
        if claims { proofs.leader } else { proofs.any.max(proofs.leader) }
    }

    /// A heartbeat is due a third of the timeout after the newest answer that counts.
    pub(crate) fn heartbeat(self, proofs: Proofs, claims: bool) -> Duration {
        Self::base(proofs, claims) + self.timeout / 3
    }

    /// The connection is `Suspended` two thirds of the timeout after the newest answer that counts.
    pub(crate) fn silent(self, proofs: Proofs, claims: bool) -> Duration {
        Self::base(proofs, claims) + self.timeout * 2 / 3
    }

    /// The session is `Lost` three quarters of the timeout after the newest answer that counts. The last quarter is the margin:
    /// a follower tells the leader of its clients half a tick late, and the smallest timeout is two ticks.
    pub(crate) fn deadline(self, proofs: Proofs, claims: bool) -> Duration {
        Self::base(proofs, claims) + self.timeout * 3 / 4
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ConnectionState::{Connected, Lost, Reconnected, Suspended};

    #[test]
    fn every_transition_of_the_table() {
        use StateEvent::{Answered, SessionEstablished, SessionOver, Silent};
        for (state, event, next) in [
            (None, SessionEstablished, Some(Connected)),
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
        ] {
            assert_eq!(next_state(state, event), next, "{state:?} {event:?}");
        }
    }

    #[test]
    fn reads_move_the_deadline_only_while_there_is_no_claim() {
        let schedule = Schedule::new(Duration::from_secs(12));
        let proofs = Proofs { any: Duration::from_secs(10), leader: Duration::from_secs(2) };
        assert_eq!(schedule.deadline(proofs, true), Duration::from_secs(11));
        assert_eq!(schedule.deadline(proofs, false), Duration::from_secs(19));
        assert_eq!(schedule.heartbeat(proofs, true), Duration::from_secs(6));
        assert_eq!(schedule.silent(proofs, true), Duration::from_secs(10));
        assert_eq!(schedule.silent(proofs, false), Duration::from_secs(18));
    }
}
