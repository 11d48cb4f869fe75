//! The turns of sessions that change one node: the pauses after refused writes. Pure.
//!
//! While several sessions write, each write makes the server refuse the writes of the other sessions. So one session at
//! a time writes, at full speed, and the others pause:
//!
//! * A session that ends its pause insists: it tries again at once, until a write succeeds. That starts its turn.
//! * After some writes in a turn a session leaves a gap of the duration of one write, and reads. A session that insists
//!   gets its write in there. Without the gap its packets could arrive after the turn's packets each time.
//! * A session that is refused in its turn pauses for as long as the turns of all others take.
//!
//! The number of sessions is the number of markers, which are the children of the node. The reply to each write has it.
//!
//! A back-off with full jitter does not replace this. After a refusal it sleeps for a random time in
//! `0..min(cap, base * 2^refusals)`. Measured beside this protocol on one Apache server, on a busy machine, 3 rounds of
//! 0.6 s: increments per second in parts of Curator's without pauses, and the smallest share of a client in any round.
//! 32 clients need a share of 1/64. Turns reach 1/46 on a quiet machine. On the busy one they had 1/98 in another run.
//!
//! | protocol | 8 clients | share | 32 clients | share |
//! | --- | --- | --- | --- | --- |
//! | turns | 2.92 | 1/11 | 4.37 | 1/74 |
//! | base: the round trip, cap 256 ms | 4.99 | 1/3,339 | 5.56 | 1/4,166 |
//! | base 1 ms, cap 256 ms | 2.37 | 1/3,215 | 7.66 | 1/4,533 |
//! | base: the round trip, cap 256 ms, a gap each 8 writes | 1.94 | 1/2,053 | 4.40 | 1/2,094 |
//! | the same, and a success only halves the number of refusals | 2.50 | 1/255 | 3.90 | 1/2,120 |
//! | base 1 ms, cap 32 ms, a gap each 8 writes | 1.72 | 1/23 | 4.53 | 1/321 |
//! | base: the round trip, cap 32 ms, a gap after each write | 0.67 | 1/14 | 1.33 | 1/504 |
//! | base 1 ms, cap 256 ms, a gap after each write, the number halved | 0.38 | 1/108 | 0.97 | 1/468 |
//!
//! The session that has just written needs no read, so it wins each time. Gaps let other sessions in, but cost more of
//! the rate than turns do.

use std::time::Duration;

use tokio::time::Instant;

/// The limits of a pause. A gap has the longer one too.
const SHORTEST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(256);
/// The number of writes before a gap while more than [`FEW`] sessions have markers. With longer turns the pauses reach
/// their limit, and more sessions insist at once.
const TURN: u32 = 8;
/// The same among few sessions, where longer turns make fewer writes collide.
const TURN_AMONG_FEW: u32 = 32;
const FEW: u32 = 8;
/// The number of writes before a gap of a session without others, in which another session can send its first write.
const TURN_ALONE: u32 = 256;
/// The number of refused tries after which a session pauses although it has not written.
const MOST_INSISTED: u32 = 32;
/// The number of sessions where it is not known, as without markers.
const ASSUMED_SESSIONS: u32 = 8;
/// The part of a pause that is random.
const JITTER: f64 = 0.2;

/// One session's part in the contention for a node.
#[derive(Debug, Default)]
pub(super) struct Contention {
    /// The number of writes in this turn.
    written: u32,
    /// The number of writes since the newest gap.
    since_gap: u32,
    /// The number of refused tries since the newest write or pause.
    refused: u32,
    /// The number of sessions that write, if it is known.
    sessions: Option<u32>,
    is_contended: bool,
    /// The start of the newest write, and of the turn's first.
    began: Option<Instant>,
    turn_began: Option<Instant>,
    /// The moment at which the newest write was applied, and its duration.
    ended: Option<(Instant, Duration)>,
    /// The duration of the newest turn.
    turn: Duration,
}

impl Contention {
    /// Records the first try of a write. A session that writes only now and then does not hinder the others, so its
    /// turn has ended.
    pub(super) fn begins(&mut self, now: Instant) {
        self.began = Some(now);
        let is_over = |&(ended, duration): &(Instant, Duration)| now - ended > 2 * duration + SHORTEST_PAUSE;
        if self.ended.as_ref().is_some_and(is_over) {
            (self.written, self.since_gap) = (0, 0);
        }
        if self.written == 0 {
            self.turn_began = Some(now);
        }
    }

    /// Records a write that succeeded, after which this number of sessions have markers. Returns the gap before the
    /// next write.
    pub(super) fn applied(&mut self, now: Instant, sessions: Option<u32>) -> Duration {
        let duration = self.began.map_or(Duration::ZERO, |began| now - began);
        self.ended = Some((now, duration));
        self.turn = self.turn_began.map_or(duration, |began| now - began);
        self.written = self.written.saturating_add(1);
        self.since_gap += 1;
        (self.refused, self.is_contended, self.sessions) = (0, false, sessions);
        let turn = match sessions.unwrap_or(ASSUMED_SESSIONS) {
            0 | 1 => TURN_ALONE,
            2..=FEW => TURN_AMONG_FEW,
            _ => TURN,
        };
        if self.since_gap < turn {
            return Duration::ZERO;
        }
        self.since_gap = 0;
        duration.min(LONGEST_PAUSE)
    }

    /// Records that another session has changed the node: a write was refused, or the read after a gap shows it.
    /// Returns the pause before the next try. `random` is in `[0, 1)`.
    pub(super) fn refused(&mut self, random: f64) -> Duration {
        self.is_contended = true;
        if self.written == 0 && self.refused < MOST_INSISTED {
            self.refused += 1;
            return Duration::ZERO;
        }
        (self.written, self.since_gap, self.refused) = (0, 0, 0);
        let others = self.sessions.unwrap_or(ASSUMED_SESSIONS).max(2) - 1;
        let pause = self.turn.saturating_mul(others).clamp(SHORTEST_PAUSE, LONGEST_PAUSE);
        pause.mul_f64(1.0 + JITTER * (random - 0.5))
    }

    /// Returns `true` if the newest try was refused, so that the next one should carry a read.
    pub(super) const fn is_contended(&self) -> bool {
        self.is_contended
    }
}

#[cfg(test)]
mod tests {
    use std::cmp::Reverse;
    use std::collections::BinaryHeap;

    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};

    use super::*;

    /// The time of a packet from a session to the server, or back, without its jitter.
    const WAY: Duration = Duration::from_micros(80);
    /// The time of the server for a write or a read.
    const WORK: Duration = Duration::from_micros(40);

    /// The next event of a session: a packet of it arrives at the server.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
    enum Packet {
        Read,
        /// Reads in the gap of a turn.
        Look {
            version: u64,
        },
        Write {
            version: u64,
        },
    }

    /// Lets sessions increment one number for this time. Returns their numbers of changes.
    fn play(sessions: u32, time: Duration, random: &mut SmallRng, jitter: f64) -> Vec<u32> {
        let begin = Instant::now();
        let way = |random: &mut SmallRng| WAY.mul_f64(1.0 + jitter * (random.random::<f64>() - 0.5));
        let mut sides: Vec<_> = (0..sessions).map(|_| (Contention::default(), 0)).collect();
        let first = |side| Reverse((begin + way(random), side, Packet::Read));
        let mut packets: BinaryHeap<_> = (0..sides.len()).map(first).collect();
        let (mut version, mut idle_from) = (0, begin);
        while let Some(Reverse((now, index, packet))) = packets.pop() {
            if now > begin + time {
                break;
            }
            let (turns, changes) = &mut sides[index];
            let works = if matches!(packet, Packet::Write { .. }) && turns.is_contended() { 2 } else { 1 };
            idle_from = idle_from.max(now) + works * WORK;
            let answered = idle_from + way(random);
            let (pause, next) = match packet {
                Packet::Read => {
                    turns.begins(answered);
                    (Duration::ZERO, Packet::Write { version })
                }
                Packet::Write { version: expected } if expected == version => {
                    (version, *changes) = (version + 1, *changes + 1);
                    let gap = turns.applied(answered, Some(sessions));
                    turns.begins(answered);
                    (Duration::ZERO, if gap.is_zero() { Packet::Write { version } } else { Packet::Look { version } })
                }
                Packet::Look { version: expected } if expected == version => {
                    turns.begins(answered);
                    (Duration::ZERO, Packet::Write { version })
                }
                // The reply of the read, which travels with the write, has the version.
                Packet::Write { .. } | Packet::Look { .. } => match turns.refused(random.random()) {
                    Duration::ZERO => (Duration::ZERO, Packet::Write { version }),
                    pause => (pause, Packet::Read),
                },
            };
            packets.push(Reverse((answered + pause + way(random), index, next)));
        }
        sides.into_iter().map(|(_, changes)| changes).collect()
    }

    #[test]
    fn sessions_in_contention_write_nearly_as_fast_as_one_and_get_fair_shares() {
        const TIME: Duration = Duration::from_secs(5);
        for seed in 0..4 {
            let mut random = SmallRng::seed_from_u64(seed);
            let alone: u32 = play(1, TIME, &mut random, 0.0).iter().sum();
            for sessions in [2, 8, 32] {
                for jitter in [0.0, 0.5] {
                    let changes = play(sessions, TIME, &mut random, jitter);
                    let (all, least) = (changes.iter().sum::<u32>(), *changes.iter().min().unwrap());
                    let what =
                        format!("seed {seed}, {sessions} sessions, jitter {jitter}: {all} of {alone}, {changes:?}");
                    assert!(f64::from(all) > 0.75 * f64::from(alone), "{what}");
                    assert!(5 * least * sessions > 3 * all, "{what}");
                }
            }
        }
    }

    /// The cost table of `DistributedAtomicNumber` has these numbers.
    #[test]
    fn gap_follows_each_turn_of_256_writes_or_of_32_or_of_8() {
        for (sessions, turn) in [(Some(1), 256), (Some(2), 32), (None, 32), (Some(8), 32), (Some(9), 8)] {
            let (mut turns, mut now) = (Contention::default(), Instant::now());
            for written in 1..=2 * turn {
                turns.begins(now);
                now += SHORTEST_PAUSE;
                let has_gap = !turns.applied(now, sessions).is_zero();
                assert_eq!(has_gap, written % turn == 0, "write {written}, sessions: {sessions:?}");
            }
        }
    }

    #[test]
    fn session_that_writes_now_and_then_does_not_pause() {
        let (mut turns, mut now) = (Contention::default(), Instant::now());
        for _ in 0..100 {
            turns.begins(now);
            assert_eq!(turns.refused(0.5), Duration::ZERO);
            assert!(turns.is_contended());
            now += Duration::from_millis(1);
            assert_eq!(turns.applied(now, Some(50)), Duration::ZERO);
            assert!(!turns.is_contended());
            now += Duration::from_millis(10);
        }
    }

    #[test]
    fn pauses_have_limits_and_jitter() {
        let pause_of = |turn, sessions, random| {
            let (mut turns, now) = (Contention::default(), Instant::now());
            turns.begins(now);
            turns.applied(now + turn, sessions);
            turns.begins(now + turn);
            turns.refused(random)
        };
        let second = Duration::from_secs(1);
        assert_eq!(pause_of(second, Some(2), 0.5), LONGEST_PAUSE);
        assert!(pause_of(second, Some(2), 1.0) < second * 3 / 10);
        assert_eq!(pause_of(Duration::ZERO, Some(1), 0.5), SHORTEST_PAUSE);
        assert_eq!(pause_of(second / 100, Some(11), 0.5), second / 10);
        assert_eq!(pause_of(second / 100, None, 0.5), second * 7 / 100);
        assert_eq!(pause_of(second / 100, Some(11), 0.0), second * 9 / 100);
    }

    #[test]
    fn gap_behind_an_outage_is_no_longer_than_a_pause() {
        let (mut turns, now, outage) = (Contention::default(), Instant::now(), Duration::from_secs(20));
        for _ in 1..TURN_ALONE {
            turns.begins(now);
            assert_eq!(turns.applied(now, Some(1)), Duration::ZERO);
        }
        turns.begins(now);
        assert_eq!(turns.applied(now + outage, Some(1)), LONGEST_PAUSE);
    }

    #[test]
    fn session_that_insists_in_vain_pauses_too() {
        let mut turns = Contention::default();
        turns.begins(Instant::now());
        let pauses: Vec<_> = (0..=MOST_INSISTED).map(|_| turns.refused(0.5)).collect();
        assert_eq!(pauses.iter().filter(|pause| !pause.is_zero()).count(), 1);
        assert_eq!(pauses.last(), Some(&SHORTEST_PAUSE));
    }
}
