//! A follower's reports to its leader about the clients.

use std::collections::BTreeSet;
use std::time::Duration;

use rand::Rng;
use rand::rngs::StdRng;

/// The sessions that sent a request to a follower since the leader's last ping, as in Apache ZooKeeper
/// (`LearnerSessionTracker`, `Learner.ping`, `LearnerHandler`). The leader pings its followers every half tick. A
/// follower's reply names all sessions that have sent it anything since the ping before, and only then does the leader
/// renew their timeouts. A write that the follower passes on renews nothing. The leader itself sees only a session's
/// start and its move to another connection (`revalidateSession`).
///
/// A session ends as soon as it may: Apache's leader rounds the time up to a tick.
#[derive(Debug, Default)]
pub(super) struct TouchTable {
    heard: BTreeSet<i64>,
    /// The time of the ping within each half tick.
    phase: Option<Duration>,
    due: Option<Duration>,
}

impl TouchTable {
    /// Records that the follower has received a request of a session.
    pub(super) fn note(&mut self, session: i64, now: Duration, half_tick: Duration, random: &mut StdRng) {
        self.heard.insert(session);
        if self.due.is_none() {
            let phase = *self.phase.get_or_insert_with(|| half_tick.mul_f64(random.random()));
            let asked = now.saturating_sub(phase).as_nanos() / half_tick.as_nanos().max(1);
            let next = half_tick * u32::try_from(asked).unwrap_or(u32::MAX).saturating_add(1) + phase;
            // The first ping comes at `phase` itself.
            self.due = Some(if now < phase { phase } else { next });
        }
    }

    /// Returns the time of the next ping, if it has a session to report.
    pub(super) const fn due(&self) -> Option<Duration> {
        self.due
    }

    /// Returns and clears the sessions: for the leader's ping, or when the follower loses its state.
    pub(super) fn take(&mut self) -> BTreeSet<i64> {
        self.due = None;
        std::mem::take(&mut self.heard)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;

    #[test]
    fn what_was_heard_is_told_at_the_next_half_tick_and_once() {
        let mut random = StdRng::seed_from_u64(1);
        let half_tick = Duration::from_secs(1);
        let mut table = TouchTable { phase: Some(Duration::from_millis(300)), ..TouchTable::default() };
        assert_eq!(table.due(), None);
        for (now, due) in [(0, 300), (299, 300), (300, 1300), (1299, 1300), (1300, 2300), (5000, 5300)] {
            table.note(7, Duration::from_millis(now), half_tick, &mut random);
            table.note(8, Duration::from_millis(now), half_tick, &mut random);
            assert_eq!(table.due(), Some(Duration::from_millis(due)), "{now}");
            assert_eq!(table.take(), BTreeSet::from([7, 8]));
            assert_eq!((table.take(), table.due()), (BTreeSet::new(), None));
        }
    }
}
