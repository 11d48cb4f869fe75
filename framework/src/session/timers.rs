//! The timers of a session: silence, loss, heartbeats. Pure, with time as an argument.

use std::time::Duration;

use crate::state::connection_state::StateEvent;
use crate::zookeeper::{Evidence, SessionEnd};

/// The longest sleep while a session lives. Timers stop while the machine sleeps, so the clock must be read often
/// enough.
const LONGEST_LOOK_AWAY: Duration = Duration::from_secs(1);

/// The times at which the state of a session changes and a heartbeat is due, by the evidence so far.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SessionTimes {
    pub(crate) timeout: Duration,
    pub(crate) deadline: Duration,
    pub(crate) suspend_at: Duration,
    pub(crate) heartbeat: Duration,
    /// The evidence that counts.
    pub(crate) evidence: Evidence,
    pub(crate) is_connected: bool,
}

/// The work that is due now, and the time of the next look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Due {
    /// `Silent` or `Answered`, while the session is connected.
    pub(crate) event: Option<StateEvent>,
    /// The evidence that a heartbeat is to give.
    pub(crate) heartbeat: Option<Evidence>,
    pub(crate) wake: Duration,
}

/// The timers of one session. At most one heartbeat is outstanding.
#[derive(Debug, Default)]
pub(crate) struct SessionTimers {
    outstanding: Option<Evidence>,
    /// The earliest time of the next heartbeat on this connection.
    next_heartbeat: Duration,
}

impl SessionTimers {
    /// Returns what is due at `now`, and counts a heartbeat among it as sent.
    ///
    /// # Errors
    ///
    /// The deadline has passed.
    pub(crate) fn due(&mut self, now: Duration, times: &SessionTimes) -> Result<Due, SessionEnd> {
        if now >= times.deadline {
            return Err(SessionEnd::DeadlinePassed);
        }
        // An owned node may be added before `wake`: the first heartbeat is then due after an eighth of the timeout.
        let wake = times.deadline.min(now + LONGEST_LOOK_AWAY.min(times.timeout / 8));
        if !times.is_connected {
            return Ok(Due { event: None, heartbeat: None, wake });
        }
        let is_silent = now >= times.suspend_at;
        let due = times.heartbeat.max(self.next_heartbeat);
        let heartbeat = (self.outstanding.is_none() && now >= due).then_some(times.evidence);
        if heartbeat.is_some() {
            self.outstanding = heartbeat;
            self.next_heartbeat = now + times.timeout / 16;
        }
        let timers = [(!is_silent).then_some(times.suspend_at), self.outstanding.is_none().then_some(due)];
        Ok(Due {
            event: Some(if is_silent { StateEvent::Silent } else { StateEvent::Answered }),
            heartbeat,
            wake: timers.into_iter().flatten().fold(wake, Duration::min),
        })
    }

    /// Records the reply to the outstanding heartbeat, and returns the evidence that it gives.
    pub(crate) fn heartbeat_answered(&mut self) -> Option<Evidence> {
        self.outstanding.take()
    }

    /// Forgets the heartbeats of a lost connection.
    pub(crate) fn disconnected(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::connection_state::StateEvent::{Answered, Silent};
    use Evidence::{AnyServer, Leader};

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    /// The times of a session with a timeout of 4 s: a heartbeat at 11 s, `Suspended` at 13 s, `Lost` at 14 s.
    const TIMES: SessionTimes = SessionTimes {
        timeout: ms(4000),
        deadline: ms(14_000),
        suspend_at: ms(13_000),
        heartbeat: ms(11_000),
        evidence: Leader,
        is_connected: true,
    };

    #[test]
    fn what_is_due_and_when_to_look_again() {
        let idle = SessionTimes { evidence: AnyServer, ..TIMES };
        let long = SessionTimes { timeout: ms(40_000), ..TIMES };
        let apart = SessionTimes { is_connected: false, ..TIMES };
        for (story, times, outstanding, next, now, event, heartbeat, wake) in [
            ("nothing is due", TIMES, None, 0, 10_000, Some(Answered), None, 10_500),
            ("the clock is read every second", long, None, 0, 9_000, Some(Answered), None, 10_000),
            ("the heartbeat is next", TIMES, None, 0, 10_900, Some(Answered), None, 11_000),
            ("a heartbeat", TIMES, None, 0, 11_000, Some(Answered), Some(Leader), 11_500),
            ("a heartbeat of an idle session", idle, None, 0, 11_000, Some(Answered), Some(AnyServer), 11_500),
            ("one heartbeat at a time", TIMES, Some(Leader), 0, 11_600, Some(Answered), None, 12_100),
            ("not one directly after the other", TIMES, None, 11_250, 11_100, Some(Answered), None, 11_250),
            ("a heartbeat that moved nothing", TIMES, None, 11_250, 11_250, Some(Answered), Some(Leader), 11_750),
            ("silence is next", TIMES, Some(Leader), 0, 12_900, Some(Answered), None, 13_000),
            ("silence", TIMES, Some(Leader), 0, 13_000, Some(Silent), None, 13_500),
            ("a heartbeat in silence", TIMES, None, 0, 13_200, Some(Silent), Some(Leader), 13_700),
            ("the deadline is next", TIMES, Some(Leader), 0, 13_900, Some(Silent), None, 14_000),
            ("no heartbeat without a connection", apart, None, 0, 13_200, None, None, 13_700),
            ("the deadline without a connection", apart, None, 0, 13_800, None, None, 14_000),
        ] {
            let due = Due { event, heartbeat, wake: ms(wake) };
            let mut timers = SessionTimers { outstanding, next_heartbeat: ms(next) };
            assert_eq!(timers.due(ms(now), &times), Ok(due), "{story}");
            assert_eq!(timers.heartbeat_answered(), heartbeat.or(outstanding), "{story}");
        }
    }

    #[test]
    fn the_deadline_is_the_end_whatever_else_is_due() {
        for times in [TIMES, SessionTimes { is_connected: false, ..TIMES }] {
            for now in [14_000, 60_000] {
                assert_eq!(SessionTimers::default().due(ms(now), &times), Err(SessionEnd::DeadlinePassed), "{now}");
            }
        }
    }

    #[test]
    fn heartbeats_are_a_sixteenth_of_the_timeout_apart_on_one_connection() {
        let mut timers = SessionTimers::default();
        let beat = |timers: &mut SessionTimers, now| timers.due(ms(now), &TIMES).unwrap().heartbeat.is_some();
        assert!(beat(&mut timers, 11_000));
        assert_eq!(timers.heartbeat_answered(), Some(Leader));
        assert!(!beat(&mut timers, 11_249) && beat(&mut timers, 11_250));
        timers.disconnected();
        assert!(beat(&mut timers, 11_251), "the next connection begins anew");
    }
}
