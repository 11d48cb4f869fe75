//! The pauses of a counter for other sessions. Pure: time is an argument. `contention.rs` decides how long they are.

use std::time::Duration;

use tokio::time::Instant;

use crate::counters::contention::Contention;

/// The resolution of the runtime's timers.
const SHORTEST_SLEEP: Duration = Duration::from_millis(1);

/// The pauses between the requests of a counter.
#[derive(Debug, Default)]
pub(super) struct Pacing {
    contention: Contention,
    pause: Option<Pause>,
    /// The version before a gap that has ended, until the node is read.
    before_gap: Option<i32>,
}

/// A pause for other sessions.
#[derive(Debug, Clone, Copy)]
struct Pause {
    end: Instant,
    /// A gap in the session's own turn.
    is_gap: bool,
}

impl Pacing {
    /// Returns the end of the pause that precedes the next request.
    pub(super) fn pause_end(&self) -> Option<Instant> {
        self.pause.map(|pause| pause.end)
    }

    /// Records the end of the pause, before which the node had this version.
    pub(super) fn paused(&mut self, version: Option<i32>) {
        self.before_gap = version.filter(|_| self.pause.is_some_and(|pause| pause.is_gap));
        self.pause = None;
    }

    /// Records the first try of a write.
    pub(super) fn begins(&mut self, now: Instant) {
        self.contention.begins(now);
        self.before_gap = None;
    }

    /// Records a write that succeeded, after which this number of sessions have markers. A gap may follow.
    pub(super) fn applied(&mut self, now: Instant, sessions: Option<u32>) {
        let gap = self.contention.applied(now, sessions);
        // The read after a gap is a part of it. Timers cannot measure shorter ones.
        let sleep = if gap < SHORTEST_SLEEP { Duration::ZERO } else { gap };
        self.pause = (!gap.is_zero()).then(|| Pause { end: now + sleep, is_gap: true });
    }

    /// Records that another session has changed the node. A pause may follow.
    pub(super) fn refused(&mut self, now: Instant, random: f64) {
        let pause = self.contention.refused(random);
        self.pause = (!pause.is_zero()).then(|| Pause { end: now + pause, is_gap: false });
    }

    /// Returns `true` if a read of this version shows that another session has used the gap before it.
    pub(super) fn has_lost_the_turn(&mut self, version: Option<i32>) -> bool {
        self.before_gap.take().is_some_and(|before| version != Some(before))
    }

    /// Returns `true` if the newest try was refused, so that the next one should carry a read.
    pub(super) const fn is_contended(&self) -> bool {
        self.contention.is_contended()
    }
}
