//! Deletes the parents of nodes that nobody uses, where the client has no containers.

use std::collections::BTreeMap;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;

/// The parents that this client has made in place of containers, and when each was last used.
#[derive(Debug, Default)]
pub(crate) struct Reaper {
    /// `None` if parents stay.
    interval: Option<Duration>,
    parents: Mutex<BTreeMap<String, Duration>>,
    pub(crate) first_made: Notify,
}

/// A parent that is to be deleted if it is empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Idle {
    pub(crate) path: String,
    last_used: Duration,
}

impl Reaper {
    pub(crate) fn new(interval: Option<Duration>) -> Self {
        Self { interval, ..Self::default() }
    }

    /// A parent was made.
    pub(crate) fn made(&self, path: &str, now: Duration) {
        if self.interval.is_some() {
            let first = {
                let mut parents = self.parents.lock();
                parents.insert(path.to_owned(), now);
                parents.len() == 1
            };
            // With others there the next one to go is not this.
            if first {
                self.first_made.notify_one();
            }
        }
    }

    /// Something was done below a parent, which may be one of ours.
    pub(crate) fn used(&self, path: &str, now: Duration) {
        if self.interval.is_some() {
            if let Some(last_used) = self.parents.lock().get_mut(path) {
                *last_used = (*last_used).max(now);
            }
        }
    }

    /// When the next parent has been idle for long enough.
    pub(crate) fn next_due(&self) -> Option<Duration> {
        let oldest = self.parents.lock().values().min().copied()?;
        Some(oldest + self.interval?)
    }

    /// A parent that has been idle for long enough; it is looked at again an interval later unless it is gone.
    pub(crate) fn take_due(&self, now: Duration) -> Option<Idle> {
        let interval = self.interval?;
        let mut parents = self.parents.lock();
        // The deepest first, so that what is above it is empty when its turn comes.
        let (path, last_used) = parents.iter_mut().rev().find(|(_, last_used)| **last_used + interval <= now)?;
        *last_used = now;
        Some(Idle { path: path.clone(), last_used: now })
    }

    /// The parent is gone. If it was made again meanwhile it stays in the list.
    pub(crate) fn gone(&self, idle: &Idle) {
        let mut parents = self.parents.lock();
        if parents.get(&idle.path) == Some(&idle.last_used) {
            parents.remove(&idle.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn paths(reaper: &Reaper, now: Duration) -> Vec<String> {
        std::iter::from_fn(|| reaper.take_due(now)).map(|idle| idle.path).collect()
    }

    #[test]
    fn what_is_idle_goes_from_the_bottom_up() {
        let reaper = Reaper::new(Some(seconds(60)));
        for path in ["/locks", "/locks/a", "/locks/b"] {
            reaper.made(path, seconds(1));
        }
        reaper.used("/locks/b", seconds(30));
        reaper.used("/somebody/elses", seconds(30));
        assert_eq!(reaper.next_due(), Some(seconds(61)));
        assert_eq!(paths(&reaper, seconds(60)), [""; 0]);
        assert_eq!(paths(&reaper, seconds(61)), ["/locks/a", "/locks"]);
        assert_eq!(reaper.next_due(), Some(seconds(90)));
        assert_eq!(paths(&reaper, seconds(130)), ["/locks/b", "/locks/a", "/locks"]);
    }

    #[test]
    fn what_is_made_again_while_it_is_deleted_stays() {
        let reaper = Reaper::new(Some(seconds(60)));
        reaper.made("/a", seconds(0));
        let idle = reaper.take_due(seconds(60)).unwrap();
        reaper.made("/a", seconds(61));
        reaper.gone(&idle);
        assert_eq!(reaper.next_due(), Some(seconds(121)));
        let idle = reaper.take_due(seconds(121)).unwrap();
        reaper.gone(&idle);
        assert_eq!(reaper.next_due(), None);
    }

    #[test]
    fn a_reaper_that_is_turned_off_keeps_no_list() {
        let reaper = Reaper::new(None);
        reaper.made("/a", seconds(0));
        assert_eq!((reaper.next_due(), reaper.take_due(seconds(1000))), (None, None));
    }
}
