//! Attempts, one session after the other, until one is granted.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use curator_framework::{CuratorFramework, Error, RetryLoop, Session};
use tokio::time::Instant;
use tracing::Instrument as _;

use crate::engine::error::LockError;
use crate::engine::label::Label;
use crate::engine::metrics;
use crate::engine::places::{Place, Places};
use crate::engine::wait_mode::{Contention, WaitMode};

/// A lock that can be attempted in one session after another until it is granted.
pub(crate) trait AcquireOnce: Sync {
    /// The result of a grant.
    type Granted: Send;

    /// Returns the label of the lock in spans and metrics.
    fn label(&self) -> &Label;

    /// Returns the places of the acquires that wait, if their number is limited.
    fn places(&self) -> Option<&Arc<Places>>;

    /// Makes one attempt in one session, and records in `contention` whether another contender is ahead. Returns
    /// `Ok(None)` only in the mode `Once`, if another contender has the lock.
    fn acquire_once(
        &self,
        session: &Session,
        retries: &mut RetryLoop,
        mode: WaitMode,
        contention: &Contention,
    ) -> impl Future<Output = Result<Option<Self::Granted>, LockError>> + Send;
}

/// Logs and counts how an acquire ended, even when its future is dropped.
pub(super) struct Log<'a> {
    path: &'a str,
    label: &'a Label,
    began: Instant,
    outcome: &'static str,
}

impl<'a> Log<'a> {
    pub(super) fn new(path: &'a str, label: &'a Label) -> Self {
        Self { path, label, began: Instant::now(), outcome: "cancelled" }
    }

    /// Records the outcome, and returns it with an error about the path.
    pub(super) fn ends<T>(&mut self, outcome: Result<Option<T>, LockError>) -> Result<Option<T>, LockError> {
        self.outcome = match &outcome {
            Ok(Some(_)) => "granted",
            Ok(None) => "timeout",
            Err(_) => "error",
        };
        outcome.map_err(|error| error.about(self.path))
    }
}

impl Drop for Log<'_> {
    fn drop(&mut self) {
        let wait = self.began.elapsed();
        metrics::acquire_ended(self.label, self.outcome, wait);
        tracing::debug!(path = self.path, wait_s = wait.as_secs_f64(), outcome = self.outcome, "lock acquire");
    }
}

/// Returns the span of an acquire.
pub(super) fn span(path: &str, label: &Label) -> tracing::Span {
    tracing::info_span!("acquire", path, recipe = label.recipe, lock = label.as_str())
}

/// Repeats attempts until one is granted or the wait has ended, within a span.
pub(crate) async fn acquire<A: AcquireOnce>(
    client: &CuratorFramework,
    path: &str,
    mode: WaitMode,
    what: &A,
) -> Result<Option<A::Granted>, LockError> {
    // Boxed: the future of an acquire stays small wherever a caller keeps it.
    Box::pin(acquire_in_span(client, path, mode, what).instrument(span(path, what.label()))).await
}

async fn acquire_in_span<A: AcquireOnce>(
    client: &CuratorFramework,
    path: &str,
    mode: WaitMode,
    what: &A,
) -> Result<Option<A::Granted>, LockError> {
    let mut log = Log::new(path, what.label());
    let contention = Contention::default();
    let attempts = std::pin::pin!(attempts(client, mode, &contention, what));
    let outcome = mode.bound(client, path, &contention, attempts).await;
    log.ends(outcome.map(Option::flatten))
}

pub(crate) async fn attempts<A: AcquireOnce>(
    client: &CuratorFramework,
    mode: WaitMode,
    contention: &Contention,
    what: &A,
) -> Result<Option<A::Granted>, LockError> {
    let mut retries = client.retry_loop();
    let mut line = PlaceInLine { contention, taking: None };
    loop {
        // The result must not be a part of every waiter's future: it ends with this block.
        let error = {
            let attempted = 'attempt: {
                let session = match line.session(what, mode, &mut retries).await {
                    Ok(session) => session,
                    Err(error) => break 'attempt Err(error.into()),
                };
                what.acquire_once(&session, &mut retries, mode, contention).await
            };
            match attempted {
                // This contender's node or the parent was deleted: the next attempt creates a node at the back of the
                // queue. A try needs this too: only a reply that shows another contender ahead refuses it.
                Err(LockError::Framework(error @ Error::NoNode { .. })) => error,
                Err(LockError::Framework(error)) if mode != WaitMode::Once => error,
                outcome => return outcome,
            }
        };
        contention.is_unknown();
        Box::pin(pause(&mut retries, error)).await?;
    }
}

/// Waits until the next attempt.
async fn pause(retries: &mut RetryLoop, error: Error) -> Result<(), Error> {
    match error {
        Error::NoNode { .. } => retries.pause_after(error).await,
        error => retries.failed(error).await,
    }
}

/// The way of one acquire to its place. Dropping it frees the place.
struct PlaceInLine<'a> {
    contention: &'a Contention,
    /// Kept when a session ends, so that the acquire keeps its position among those that wait.
    // Boxed: few acquires wait for a place.
    taking: Option<Pin<Box<dyn Future<Output = Place> + Send + 'a>>>,
}

impl<'a> PlaceInLine<'a> {
    /// Returns a session once the acquire has a place, if it needs one. Fails if the session ends before.
    async fn session<A: AcquireOnce>(
        &mut self,
        what: &'a A,
        mode: WaitMode,
        retries: &mut RetryLoop,
    ) -> Result<Session, Error> {
        let session = retries.session().await?;
        // An acquire that asks once does not wait.
        let Some(places) = what.places().filter(|_| mode != WaitMode::Once && !self.contention.is_placed()) else {
            return Ok(session);
        };
        let free = if self.taking.is_none() { places.try_take() } else { None };
        let place = match free {
            Some(place) => place,
            None => Box::pin(self.wait(places, what.label(), &session, retries)).await?,
        };
        self.taking = None;
        self.contention.has_place(place, session.timeout() / 10);
        Ok(session)
    }

    async fn wait(
        &mut self,
        places: &Arc<Places>,
        label: &'a Label,
        session: &Session,
        retries: &mut RetryLoop,
    ) -> Result<Place, Error> {
        self.contention.is_in_line(places);
        retries.progressed();
        let taking = self.taking.get_or_insert_with(|| {
            let (places, waiting) = (Arc::clone(places), metrics::Waiting::new(label));
            Box::pin(async move {
                let place = places.take().await;
                drop(waiting);
                place
            })
        });
        tokio::select! {
            biased;
            _ = session.ended() => Err(session.closed_error("waiting for a place in a lock's queue")),
            place = taking => Ok(place),
        }
    }
}

impl Drop for PlaceInLine<'_> {
    fn drop(&mut self) {
        self.contention.has_left();
    }
}

/// Returns the error for an acquire without a budget that returned `None`, which cannot happen.
pub(crate) fn no_end() -> LockError {
    Error::Closed.into()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use curator_framework::RetryNTimes;

    use super::*;
    use crate::engine::options::LockOptions;
    use crate::engine::{LockInternals, LockSpec};

    /// Ten thousand waiters may share a process.
    #[tokio::test]
    async fn a_waiter_is_small() {
        let client = CuratorFramework::new_client("nowhere:1", RetryNTimes::new(1, Duration::ZERO)).unwrap();
        let lock =
            LockInternals::new(client.clone(), "/lock".into(), LockSpec::queue("lock-"), LockOptions::new()).unwrap();
        let in_front = size_of_val(&acquire(&client, "/lock", WaitMode::Forever, &lock));
        let boxed = size_of_val(&acquire_in_span(&client, "/lock", WaitMode::Forever, &lock));
        println!("{in_front} bytes, and {boxed} on the heap");
        assert!(in_front < 256, "{in_front} bytes");
        // All of a wait, but for the short steps of the engine.
        assert!(boxed < 1_776, "{boxed} bytes");
    }
}
