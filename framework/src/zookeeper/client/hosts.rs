//! The order of the servers that are tried, and the pauses between attempts.

use std::collections::VecDeque;
use std::time::Duration;

use parking_lot::Mutex;

use crate::environment::randomness::{Randomness, shuffle, unit_interval};

/// The most attempts of one client in any second.
const ATTEMPTS: usize = 5;
/// The span over which attempts are counted.
const SPAN: Duration = Duration::from_secs(1);
/// The longest random delay of an attempt that had to wait.
const JITTER: Duration = Duration::from_millis(250);
/// The pause after the first round in which no server could be used; it doubles up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// The same pauses after refused credentials, which seldom become right by themselves.
const FIRST_REFUSAL_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_REFUSAL_PAUSE: Duration = Duration::from_secs(30);

/// The limit on one framework client's attempts to connect: at most five in any second, over all of its sessions,
/// regardless of the servers' replies.
#[derive(Debug, Default)]
pub struct Pacer {
    booked: Mutex<Booked>,
}

#[derive(Debug, Default)]
struct Booked {
    starts: VecDeque<Duration>,
    /// The clock's time at the newest booking.
    at: Duration,
}

impl Pacer {
    /// Books an attempt and returns the time that it must wait, on the clock that gives `now`.
    pub(crate) fn book(&self, now: Duration, randomness: &dyn Randomness) -> Duration {
        let mut booked = self.booked.lock();
        // A restored machine may set the clock back, and the bookings with it.
        let back = std::mem::replace(&mut booked.at, now).saturating_sub(now);
        let starts = &mut booked.starts;
        starts.iter_mut().for_each(|start| *start = start.saturating_sub(back));
        if starts.len() == ATTEMPTS {
            starts.pop_front();
        }
        let newest = starts.back().copied().unwrap_or_default();
        let earliest =
            if starts.len() + 1 == ATTEMPTS { starts.front().map_or(now, |first| *first + SPAN) } else { now };
        let mut start = now.max(newest);
        if earliest > start {
            start = earliest + JITTER.mul_f64(unit_interval(randomness));
        }
        starts.push_back(start);
        start - now
    }
}

/// The pause after a failed round over all servers. It doubles, and half of it is random, so that clients that lost
/// the same server do not reconnect together.
#[derive(Debug)]
pub(crate) struct Pause {
    rounds: u32,
    first: Duration,
    longest: Duration,
}

impl Default for Pause {
    fn default() -> Self {
        Self { rounds: 0, first: FIRST_PAUSE, longest: LONGEST_PAUSE }
    }
}

impl Pause {
    /// Returns the pauses after rounds in which a server refused the credentials.
    pub(crate) const fn after_refusals() -> Self {
        Self { rounds: 0, first: FIRST_REFUSAL_PAUSE, longest: LONGEST_REFUSAL_PAUSE }
    }

    pub(crate) fn next(&mut self, randomness: &dyn Randomness) -> Duration {
        let pause = self.first.saturating_mul(1 << self.rounds.min(10)).min(self.longest);
        self.rounds = self.rounds.saturating_add(1);
        pause / 2 + (pause / 2).mul_f64(unit_interval(randomness))
    }
}

/// The servers in the order in which one client tries them.
#[derive(Debug, Default)]
pub(crate) struct Hosts {
    order: Vec<String>,
    next: usize,
}

impl Hosts {
    /// Sets the current servers. Draws a new order only if they have changed.
    pub(crate) fn update(&mut self, servers: Vec<String>, randomness: &dyn Randomness) {
        let is_known = |server: &String| self.order.contains(server);
        if servers.len() == self.order.len() && servers.iter().all(is_known) {
            return;
        }
        self.order = servers;
        shuffle(&mut self.order, randomness);
        self.next = 0;
    }

    pub(crate) fn len(&self) -> usize {
        self.order.len()
    }

    /// Returns the next server; after the last one, the first.
    pub(crate) fn next(&mut self) -> Option<String> {
        let server = self.order.get(self.next % self.order.len().max(1)).cloned();
        self.next = (self.next + 1) % self.order.len().max(1);
        server
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::environment::randomness::SeededRandomness;

    #[test]
    fn any_second_has_at_most_five_attempts() {
        let (pacer, randomness) = (Pacer::default(), SeededRandomness::new(7));
        let mut starts = Vec::new();
        let mut now = Duration::ZERO;
        for _ in 0..100 {
            now += pacer.book(now, &randomness);
            starts.push(now);
        }
        assert_eq!(starts[3], Duration::ZERO, "a few servers are tried at once");
        for window in starts.windows(ATTEMPTS + 1) {
            assert!(window[ATTEMPTS] - window[0] >= SPAN, "{window:?}");
        }
        assert!(now < Duration::from_secs(40), "{now:?}");
    }

    #[test]
    fn attempts_that_are_booked_together_are_spread_too() {
        let (pacer, randomness) = (Pacer::default(), SeededRandomness::new(7));
        let mut starts: Vec<_> = (0..30).map(|_| pacer.book(Duration::from_secs(9), &randomness)).collect();
        starts.sort_unstable();
        for window in starts.windows(ATTEMPTS + 1) {
            assert!(window[ATTEMPTS] - window[0] >= SPAN, "{window:?}");
        }
    }

    #[test]
    fn clock_that_jumps_back_delays_no_attempt() {
        let (pacer, randomness) = (Pacer::default(), SeededRandomness::new(7));
        for _ in 0..ATTEMPTS {
            pacer.book(Duration::from_secs(3600), &randomness);
        }
        let wait = pacer.book(Duration::from_secs(60), &randomness);
        assert!(wait > Duration::ZERO && wait <= (SPAN + JITTER) * 2, "{wait:?}");
    }

    #[test]
    fn pauses_grow_and_differ() {
        let randomness = SeededRandomness::new(3);
        let (mut one, mut other) = (Pause::default(), Pause::default());
        let pauses: Vec<_> = (0..8).map(|_| one.next(&randomness)).collect();
        assert!(pauses[0] < FIRST_PAUSE && pauses[7] >= LONGEST_PAUSE / 2 && pauses[7] <= LONGEST_PAUSE);
        assert_ne!(other.next(&randomness), pauses[0]);
        let mut refusals = Pause::after_refusals();
        let pauses: Vec<_> = (0..8).map(|_| refusals.next(&randomness)).collect();
        assert!(pauses[0] >= FIRST_REFUSAL_PAUSE / 2 && pauses[7] >= LONGEST_REFUSAL_PAUSE / 2, "{pauses:?}");
        assert!(pauses.iter().all(|pause| *pause <= LONGEST_REFUSAL_PAUSE), "{pauses:?}");
    }

    #[test]
    fn every_server_has_its_turn() {
        let randomness = SeededRandomness::new(1);
        let mut hosts = Hosts::default();
        let servers = ["a:1", "b:1", "c:1"].map(str::to_owned).to_vec();
        hosts.update(servers.clone(), &randomness);
        let mut first: Vec<_> = (0..3).filter_map(|_| hosts.next()).collect();
        hosts.update(servers.iter().rev().cloned().collect(), &randomness);
        let second: Vec<_> = (0..3).filter_map(|_| hosts.next()).collect();
        assert_eq!(first, second, "the same servers keep their order");
        first.sort();
        assert_eq!(first, servers);
        hosts.update(vec!["d:1".to_owned()], &randomness);
        assert_eq!(hosts.next().as_deref(), Some("d:1"));
        assert_eq!(hosts.next().as_deref(), Some("d:1"));
    }
}
