//! The instances that have failed. Pure: the time is an argument.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use curator_framework::Zxid;
use tokio::time::Instant;

/// The instances that a provider offers while all of them are down.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum WhenAllDown {
    /// None, as in Curator.
    #[default]
    UseNone,
    /// All: it is more likely that the caller's network is at fault than each of them.
    UseAll,
}

/// Defines which instances are down: Curator's `DownInstancePolicy`.
///
/// An instance that has failed `threshold` times is down until `timeout` after the first of these failures. Then its
/// failures are forgotten. An instance that was registered again has none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "a policy does nothing by itself"]
pub struct DownInstancePolicy {
    threshold: u32,
    timeout: Duration,
    when_all_down: WhenAllDown,
}

impl Default for DownInstancePolicy {
    fn default() -> Self {
        Self { threshold: 2, timeout: Duration::from_secs(30), when_all_down: WhenAllDown::default() }
    }
}

impl DownInstancePolicy {
    /// Returns Curator's defaults: two failures, 30 s.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the number of failures from which on an instance is down. Default: 2. With 0 no failure counts.
    #[doc(alias = "errorThreshold")]
    pub fn threshold(mut self, failures: u32) -> Self {
        self.threshold = failures;
        self
    }

    /// Sets the time from the first failure until it is forgotten. Default: 30 s.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Sets the instances that are offered while all of them are down. Default: [`UseNone`](WhenAllDown::UseNone).
    pub fn when_all_down(mut self, choice: WhenAllDown) -> Self {
        self.when_all_down = choice;
        self
    }

    pub(super) const fn uses_all(&self) -> bool {
        matches!(self.when_all_down, WhenAllDown::UseAll)
    }
}

/// A node of an instance: its name, and the zxid of the transaction that created it.
pub(super) type Key = (Arc<str>, Zxid);

struct Failures {
    first: Instant,
    count: u32,
}

/// The failures of instances.
pub(super) struct DownInstances {
    policy: DownInstancePolicy,
    failures: HashMap<Key, Failures>,
}

impl DownInstances {
    pub(super) fn new(policy: DownInstancePolicy) -> Self {
        Self { policy, failures: HashMap::new() }
    }

    pub(super) const fn policy(&self) -> &DownInstancePolicy {
        &self.policy
    }

    /// Records a failure, and forgets the old ones.
    pub(super) fn failed(&mut self, key: Key, now: Instant) {
        let timeout = self.policy.timeout;
        self.failures.retain(|_, failures| now.saturating_duration_since(failures.first) < timeout);
        let failures = self.failures.entry(key).or_insert(Failures { first: now, count: 0 });
        failures.count = failures.count.saturating_add(1);
    }

    fn counts(&self, failures: &Failures, now: Instant) -> bool {
        let is_recent = now.saturating_duration_since(failures.first) < self.policy.timeout;
        is_recent && self.policy.threshold > 0 && failures.count >= self.policy.threshold
    }

    pub(super) fn is_down(&self, key: &Key, now: Instant) -> bool {
        self.failures.get(key).is_some_and(|failures| self.counts(failures, now))
    }

    /// Returns the time at which the next instance is up again; `None` if none is down, or the time is out of range.
    pub(super) fn next_up(&self, now: Instant) -> Option<Instant> {
        let down = self.failures.values().filter(|failures| self.counts(failures, now));
        down.filter_map(|failures| failures.first.checked_add(self.policy.timeout)).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn key(node: &str) -> Key {
        (node.into(), Zxid::new(1))
    }

    /// Curator's `TestDownInstanceManager.testBasic` and `testThreshold`.
    #[test]
    fn instance_is_down_from_the_threshold_on() {
        for threshold in 1..=3 {
            let now = Instant::now();
            let mut down = DownInstances::new(DownInstancePolicy::new().threshold(threshold));
            for failure in 1..=threshold {
                assert!(!down.is_down(&key("a"), now));
                down.failed(key("a"), now);
                assert_eq!(down.is_down(&key("a"), now), failure == threshold);
            }
            assert!(!down.is_down(&key("b"), now) && !down.is_down(&("a".into(), Zxid::new(2)), now));
        }
    }

    /// Curator's `TestDownInstanceManager.testExpiration`. There an instance stays down for up to half of the time longer.
    #[test]
    fn failures_are_forgotten_at_the_time_after_the_first() {
        let (start, mut down) = (Instant::now(), DownInstances::new(DownInstancePolicy::new().timeout(SECOND * 30)));
        assert_eq!(down.next_up(start), None);
        down.failed(key("a"), start);
        down.failed(key("a"), start + SECOND * 20);
        let end = start + SECOND * 30;
        assert_eq!(down.next_up(start + SECOND * 20), Some(end));
        assert!(down.is_down(&key("a"), end - Duration::from_nanos(1)) && !down.is_down(&key("a"), end));
        // The failure is the first one again.
        down.failed(key("a"), end);
        assert!(!down.is_down(&key("a"), end));
        down.failed(key("b"), end + SECOND * 40);
        assert_eq!(down.failures.len(), 1);
    }

    #[test]
    fn no_failure_counts_with_a_threshold_of_zero() {
        let (now, mut down) = (Instant::now(), DownInstances::new(DownInstancePolicy::new().threshold(0)));
        down.failed(key("a"), now);
        assert!(!down.is_down(&key("a"), now));
        let mut endless = DownInstances::new(DownInstancePolicy::new().threshold(1).timeout(Duration::MAX));
        endless.failed(key("a"), now);
        assert_eq!((endless.is_down(&key("a"), now), endless.next_up(now)), (true, None));
    }
}
