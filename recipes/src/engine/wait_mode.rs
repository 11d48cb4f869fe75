//! The budget of an acquire.
//!
//! A budget that ends is `Ok(None)` only if a reply has shown a contender ahead, on a connection that still exists
//! (`Contention`). Any other end is `ConnectionLoss`. So a program that does other work after `None` does not take an
//! outage for contention.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use curator_framework::CuratorFramework;
use curator_framework::recipe::{Budget, RecipeClient as _};
use parking_lot::Mutex;
use tokio::time::{Instant, timeout_at};

use crate::engine::error::LockError;
use crate::engine::places::{Place, Places};

/// The time that a caller is ready to wait, everything included: the connection, missing parents, the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WaitMode {
    Forever,
    Until(Instant),
    /// The caller asks once, and gets a result within the connection timeout.
    Once,
}

impl WaitMode {
    /// Returns a budget that starts now. A budget of zero still asks once, as Curator's does.
    pub(crate) fn within(budget: Duration) -> Self {
        match Budget::of(budget).end() {
            _ if budget.is_zero() => Self::Once,
            Some(end) => Self::Until(end),
            None => Self::Forever,
        }
    }

    /// Carries out a part of an acquire. Returns `Ok(None)` when the budget is used up and another contender is ahead.
    ///
    /// # Errors
    ///
    /// `Error::ConnectionLoss` when the budget is used up and nothing is known of another contender; the same if a
    /// caller that asks once gets no reply in time. The error names `path`.
    pub(crate) async fn bound<T>(
        self,
        client: &CuratorFramework,
        path: &str,
        evidence: &impl Contended,
        part: impl Future<Output = Result<T, LockError>>,
    ) -> Result<Option<T>, LockError> {
        let end = match self {
            Self::Forever => return part.await.map(Some),
            Self::Until(end) => end,
            Self::Once => Instant::now() + client.connection_timeout(),
        };
        // Boxed: a wait without an end needs no room for a timer.
        match Box::pin(timeout_at(end, part)).await {
            Ok(done) => done.map(Some),
            Err(_elapsed) if self != Self::Once && evidence.is_known(client) => Ok(None),
            Err(_elapsed) => Err(client.no_answer(&format!("acquiring {path}")).into()),
        }
    }

    /// Returns whether the budget is used up.
    pub(crate) fn is_over(self) -> bool {
        matches!(self, Self::Until(end) if end <= Instant::now())
    }
}

/// The knowledge of an acquire that another contender is ahead of it.
pub(crate) trait Contended {
    /// Returns whether another contender is ahead, as far as a connected client can know.
    fn is_known(&self, client: &CuratorFramework) -> bool;
}

/// The evidence of one acquire that another contender is ahead of it.
#[derive(Debug, Default)]
pub(crate) struct Contention {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    evidence: Evidence,
    /// The place that the acquire has. Acquires without one rely on the evidence of those that have one.
    place: Option<Place>,
}

#[derive(Debug, Default)]
enum Evidence {
    #[default]
    None,
    /// The newest reply showed another contender ahead.
    Shown,
    /// The awaited contender has left, and the reply that shows the next one is due by this time.
    ShownUntil(Instant),
    /// The acquire waits for a place: the contenders that have one are ahead.
    InLine(Arc<Places>),
}

impl Evidence {
    /// Returns the evidence until the next reply, which is due within `patience`.
    fn until(patience: Duration) -> Self {
        Self::ShownUntil(Instant::now() + patience)
    }
}

impl State {
    fn set(&mut self, evidence: Evidence) {
        if let Some(place) = &mut self.place {
            place.is_known(!matches!(evidence, Evidence::None));
        }
        self.evidence = evidence;
    }
}

impl Contention {
    /// Records a reply that shows another contender ahead.
    pub(crate) fn is_shown(&self) {
        self.state.lock().set(Evidence::Shown);
    }

    /// Records that a newer reply is awaited, for at most `patience`. A healthy server replies within that time. Without
    /// it, a budget that ends in the middle of that round trip would report an outage.
    pub(crate) fn is_outdated(&self, patience: Duration) {
        let mut state = self.state.lock();
        if matches!(state.evidence, Evidence::Shown) {
            state.set(Evidence::until(patience));
        }
    }

    /// Records that nothing is known, because the connection or this contender's node is lost.
    pub(crate) fn is_unknown(&self) {
        self.state.lock().set(Evidence::None);
    }

    /// Records that the acquire waits for a place.
    pub(super) fn is_in_line(&self, places: &Arc<Places>) {
        self.state.lock().set(Evidence::InLine(Arc::clone(places)));
    }

    /// Records that the acquire has a place. If others with a place are ahead, a reply shows them within `patience`.
    pub(super) fn has_place(&self, place: Place, patience: Duration) {
        let mut state = self.state.lock();
        let is_behind = matches!(&state.evidence, Evidence::InLine(places) if places.was_taken());
        state.place = Some(place);
        state.set(if is_behind { Evidence::until(patience) } else { Evidence::None });
    }

    /// Returns whether the acquire has a place.
    pub(super) fn is_placed(&self) -> bool {
        self.state.lock().place.is_some()
    }

    /// Frees the place of the acquire, if it has one.
    pub(super) fn has_left(&self) {
        // Dropped after the unlock: it wakes the next acquire.
        let _place = self.state.lock().place.take();
    }

    fn is_valid(&self) -> bool {
        match &self.state.lock().evidence {
            Evidence::None => false,
            Evidence::Shown => true,
            Evidence::ShownUntil(end) => Instant::now() < *end,
            Evidence::InLine(places) => places.is_taken(),
        }
    }
}

impl Contended for Contention {
    fn is_known(&self, client: &CuratorFramework) -> bool {
        self.is_valid() && client.is_connected()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(1);

    /// Returns the evidence of a contender with the only place, and of an acquire that waits for it.
    fn one_place() -> (Arc<Places>, Contention, Contention) {
        let places = Arc::new(Places::new(1));
        let (has_place, waits) = (Contention::default(), Contention::default());
        has_place.has_place(places.try_take().unwrap(), PATIENCE);
        assert!(places.try_take().is_none());
        waits.is_in_line(&places);
        (places, has_place, waits)
    }

    #[test]
    fn acquire_without_a_place_knows_what_one_with_a_place_knows() {
        let (_places, has_place, waits) = one_place();
        assert!(!has_place.is_valid() && !waits.is_valid(), "no reply has come");
        has_place.is_shown();
        assert!(has_place.is_valid() && waits.is_valid());
        has_place.is_outdated(PATIENCE);
        assert!(waits.is_valid());
        has_place.is_unknown();
        assert!(!waits.is_valid());
        has_place.is_shown();
        has_place.has_left();
        assert!(!waits.is_valid(), "the node may be deleted");
    }

    #[tokio::test(start_paused = true)]
    async fn next_reply_is_due_after_a_place_is_taken_over_from_a_contender() {
        for is_known in [true, false] {
            let (places, has_place, waits) = one_place();
            if is_known {
                has_place.is_shown();
            }
            has_place.has_left();
            waits.has_place(places.try_take().unwrap(), PATIENCE);
            assert_eq!(waits.is_valid(), is_known);
            tokio::time::advance(PATIENCE).await;
            assert!(!waits.is_valid());
        }
    }

    #[test]
    fn place_that_was_free_shows_no_contender() {
        let places = Arc::new(Places::new(2));
        let [first, second] = [(); 2].map(|()| Contention::default());
        first.has_place(places.try_take().unwrap(), PATIENCE);
        first.is_shown();
        second.has_place(places.try_take().unwrap(), PATIENCE);
        assert!(!second.is_valid());
    }
}
