//! The wait until the members of a group stay the same: pure, with the time as an argument.

use std::collections::BTreeSet;
use std::time::Duration;

use tokio::time::Instant;

/// The members that one member sees.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct View {
    pub(super) ids: BTreeSet<String>,
    /// One of the members is this one: the node of its id is its own.
    pub(super) is_member: bool,
}

/// The choice of the view that counts: one that has stayed the same for some time.
#[derive(Debug)]
pub(super) struct Settling {
    settle: Duration,
    /// The newest view and the moment when it counts, unless it counts already.
    newest: Option<(View, Instant)>,
    settled: Option<View>,
}

impl Settling {
    pub(super) const fn new(settle: Duration) -> Self {
        Self { settle, newest: None, settled: None }
    }

    /// Records the newest view. A return to the settled view, as behind the restart of one member, moves nothing.
    pub(super) fn see(&mut self, view: View, now: Instant) {
        if self.settled.as_ref() == Some(&view) {
            self.newest = None;
        } else if self.newest.as_ref().is_none_or(|(newest, _)| *newest != view) {
            self.newest = Some((view, now + self.settle));
        }
    }

    /// Returns the moment when the newest view counts, if another one counts now.
    pub(super) fn due(&self) -> Option<Instant> {
        self.newest.as_ref().map(|(_, due)| *due)
    }

    /// Returns the newest view if it counts from now on.
    pub(super) fn settle(&mut self, now: Instant) -> Option<&View> {
        let (view, _) = self.newest.take_if(|(_, due)| *due <= now)?;
        Some(self.settled.insert(view))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SETTLE: Duration = Duration::from_secs(2);
    const SECOND: Duration = Duration::from_secs(1);

    fn view(ids: &str) -> View {
        View { ids: ids.split_whitespace().map(str::to_owned).collect(), is_member: true }
    }

    #[test]
    fn a_view_counts_when_it_has_stayed_the_same() {
        let (mut settling, begin) = (Settling::new(SETTLE), Instant::now());
        assert_eq!((settling.due(), settling.settle(begin)), (None, None));
        settling.see(view("ann"), begin);
        settling.see(view("ann"), begin + SECOND);
        assert_eq!(settling.due(), Some(begin + SETTLE));
        assert_eq!(settling.settle(begin + SECOND), None);
        assert_eq!(settling.settle(begin + SETTLE), Some(&view("ann")));
        assert_eq!((settling.due(), settling.settle(begin + SETTLE)), (None, None));
    }

    #[test]
    fn each_change_begins_the_wait_anew() {
        let (mut settling, begin) = (Settling::new(SETTLE), Instant::now());
        settling.see(view("ann"), begin);
        settling.see(view("ann bob"), begin + SECOND);
        assert_eq!(settling.settle(begin + SETTLE), None);
        let elsewhere = View { is_member: false, ..view("ann bob") };
        settling.see(elsewhere.clone(), begin + SETTLE);
        assert_eq!(settling.settle(begin + SECOND + SETTLE), None);
        assert_eq!(settling.settle(begin + SETTLE + SETTLE), Some(&elsewhere));
    }

    #[test]
    fn a_member_that_returns_in_time_changes_nothing() {
        let (mut settling, begin) = (Settling::new(SETTLE), Instant::now());
        settling.see(view("ann bob"), begin);
        assert!(settling.settle(begin + SETTLE).is_some());
        settling.see(view("ann"), begin + SETTLE);
        assert!(settling.due().is_some());
        settling.see(view("ann bob"), begin + SETTLE + SECOND);
        assert_eq!((settling.due(), settling.settle(begin + SETTLE * 5)), (None, None));
    }
}
