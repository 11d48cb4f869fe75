//! The parents of nodes that are to be deleted when idle, where the client has no containers.

use std::collections::BTreeMap;
use std::time::Duration;

use parking_lot::Mutex;

/// The parents that this client has created in place of containers.
#[derive(Debug, Default)]
pub(crate) struct ContainerReaper {
    /// The idle time before a parent is deleted; `None` if parents stay.
    interval: Option<Duration>,
    parents: Mutex<Parents>,
}

#[derive(Debug, Default)]
struct Parents {
    by_path: BTreeMap<String, Parent>,
    /// The lower bound of all `last_used`: no parent is due until an interval after this.
    earliest: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Parent {
    /// The transaction that created it: a node that was created in its place has another one.
    czxid: i64,
    last_used: Duration,
}

/// A parent that is to be deleted if it is empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct IdleParent {
    pub(crate) path: String,
    pub(crate) czxid: i64,
}

impl ContainerReaper {
    pub(crate) fn new(interval: Option<Duration>) -> Self {
        Self { interval, ..Self::default() }
    }

    /// Records a parent that this client has created.
    pub(crate) fn track(&self, path: &str, czxid: i64, now: Duration) {
        if self.interval.is_some() {
            let mut parents = self.parents.lock();
            if parents.by_path.is_empty() {
                parents.earliest = now;
            }
            parents.by_path.insert(path.to_owned(), Parent { czxid, last_used: now });
        }
    }

    /// Records a use of a parent, if this client has created it.
    pub(crate) fn touch_parent(&self, path: &str, now: Duration) {
        if self.interval.is_some() {
            if let Some(parent) = self.parents.lock().by_path.get_mut(path) {
                parent.last_used = parent.last_used.max(now);
            }
        }
    }

    /// Returns the time from which on a parent may have been idle for long enough.
    pub(crate) fn next_due(&self) -> Option<Duration> {
        let parents = self.parents.lock();
        if parents.by_path.is_empty() {
            return None;
        }
        Some(parents.earliest.saturating_add(self.interval?))
    }

    /// Returns a parent that has been idle for long enough. It is due again an interval later unless it is deleted.
    pub(crate) fn take_due(&self, now: Duration) -> Option<IdleParent> {
        let interval = self.interval?;
        let mut parents = self.parents.lock();
        if parents.earliest.saturating_add(interval) > now {
            return None;
        }
        // In reverse order, children come before their parents, so a parent is empty when its turn comes.
        let mut idle = parents.by_path.iter_mut().rev();
        let due = idle.find(|(_, parent)| parent.last_used.saturating_add(interval) <= now);
        let due = due.map(|(path, parent)| {
            parent.last_used = now;
            IdleParent { path: path.clone(), czxid: parent.czxid }
        });
        if due.is_none() {
            parents.earliest = parents.by_path.values().map(|parent| parent.last_used).min().unwrap_or(now);
        }
        due
    }

    /// Removes a parent that was deleted. If it has been created again since, it stays in the map.
    pub(crate) fn forget(&self, idle: &IdleParent) {
        let mut parents = self.parents.lock();
        if parents.by_path.get(&idle.path).is_some_and(|parent| parent.czxid == idle.czxid) {
            parents.by_path.remove(&idle.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn paths(reaper: &ContainerReaper, now: Duration) -> Vec<String> {
        std::iter::from_fn(|| reaper.take_due(now)).map(|idle| idle.path).collect()
    }

    #[test]
    fn what_is_idle_goes_from_the_bottom_up() {
        let reaper = ContainerReaper::new(Some(seconds(60)));
        for path in ["/locks", "/locks/a", "/locks/b"] {
            reaper.track(path, 1, seconds(1));
        }
        reaper.touch_parent("/locks/b", seconds(30));
        reaper.touch_parent("/somebody/elses", seconds(30));
        assert_eq!(reaper.next_due(), Some(seconds(61)));
        assert_eq!(paths(&reaper, seconds(60)), [""; 0]);
        assert_eq!(paths(&reaper, seconds(61)), ["/locks/a", "/locks"]);
        assert_eq!(reaper.next_due(), Some(seconds(90)), "when the next one may be due");
        assert_eq!(paths(&reaper, seconds(130)), ["/locks/b", "/locks/a", "/locks"]);
    }

    #[test]
    fn what_is_made_again_while_it_is_deleted_stays() {
        let reaper = ContainerReaper::new(Some(seconds(60)));
        reaper.track("/a", 1, seconds(0));
        let idle = reaper.take_due(seconds(60)).unwrap();
        reaper.track("/a", 2, seconds(61));
        reaper.forget(&idle);
        assert_eq!(reaper.take_due(seconds(120)), None);
        assert_eq!(reaper.next_due(), Some(seconds(121)));
        let idle = reaper.take_due(seconds(121)).unwrap();
        reaper.forget(&idle);
        assert_eq!(reaper.next_due(), None);
    }

    #[test]
    fn a_reaper_that_is_turned_off_keeps_no_list() {
        let reaper = ContainerReaper::new(None);
        reaper.track("/a", 1, seconds(0));
        assert_eq!((reaper.next_due(), reaper.take_due(seconds(1000))), (None, None));
    }
}
