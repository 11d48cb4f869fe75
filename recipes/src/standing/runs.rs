//! The runs of an object that its callers drive: one at a time, and none after the close.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use curator_framework::CuratorFramework;
use curator_framework::recipe::{Budget, RecipeClient as _};
use parking_lot::Mutex;
use pin_project_lite::pin_project;
use tokio::sync::watch;

use crate::standing::StartError;

#[derive(Debug, Clone, Copy, Default)]
struct Life {
    runs: bool,
    closed: bool,
}

/// The runs of one object.
#[derive(Debug, Default)]
pub(crate) struct Runs(watch::Sender<Life>);

/// One run. Its drop ends the run.
#[derive(Debug)]
pub(crate) struct Run<'a>(&'a Runs);

impl Drop for Run<'_> {
    fn drop(&mut self) {
        self.0.0.send_modify(|life| life.runs = false);
    }
}

impl Runs {
    /// Starts a run, unless one is in progress or the object is closed.
    pub(crate) fn begin(&self) -> Result<Run<'_>, StartError> {
        let mut begun = Ok(());
        self.0.send_if_modified(|life| {
            begun = match life {
                Life { closed: true, .. } => Err(StartError::Closed),
                Life { runs: true, .. } => Err(StartError::AlreadyStarted),
                _ => Ok(()),
            };
            life.runs |= begun.is_ok();
            begun.is_ok()
        });
        begun.map(|()| Run(self))
    }

    /// Orders the run to end, and refuses later ones.
    pub(crate) fn close(&self) {
        self.0.send_modify(|life| life.closed = true);
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.0.borrow().closed
    }

    /// Resolves when the object is closed.
    pub(crate) async fn closed(&self) {
        // Never fails: `self` has the sender.
        drop(self.0.subscribe().wait_for(|life| life.closed).await);
    }

    /// Waits until no run is in progress, at most for `budget`. Returns `false` at its end: the future of the run is
    /// not polled, or its work blocks a thread.
    pub(crate) async fn ended_within(&self, client: &CuratorFramework, budget: Budget) -> bool {
        client.within(budget, self.ended()).await.is_some()
    }

    /// Resolves when no run is in progress.
    async fn ended(&self) {
        // Never fails: `self` has the sender.
        drop(self.0.subscribe().wait_for(|life| !life.runs).await);
    }
}

/// The polls of one future of work. Another task learns from it that the work does nothing now.
#[derive(Debug, Default)]
pub(crate) struct Polls(Mutex<()>);

impl Polls {
    /// Runs work that is polled only while `may_run` is true. Returns `None` as soon as it is false.
    pub(crate) fn of<F: Future>(&self, may_run: impl Fn() -> bool, work: F) -> impl Future<Output = Option<F::Output>> {
        Polled { polls: self, may_run, work }
    }

    /// Calls `end` unless the work is being polled. `end` makes `may_run` false, so the work is not polled again.
    pub(crate) fn unless_running(&self, end: impl FnOnce()) {
        if let Some(_no_poll) = self.0.try_lock() {
            end();
        }
    }
}

pin_project! {
    /// The future of [`Polls::of`]. An async function would have room for its work twice.
    struct Polled<'a, M, F> {
        polls: &'a Polls,
        may_run: M,
        #[pin]
        work: F,
    }
}

impl<M: Fn() -> bool, F: Future> Future for Polled<'_, M, F> {
    type Output = Option<F::Output>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let _poll = this.polls.0.lock();
        if (this.may_run)() { this.work.poll(cx).map(Some) } else { Poll::Ready(None) }
    }
}

/// Drives a run to its end. Calls `close` once `shutdown` resolves.
pub(crate) async fn until<T>(run: impl Future<Output = T>, shutdown: impl Future, close: impl FnOnce()) -> T {
    let shut_down = async {
        shutdown.await;
        close();
        std::future::pending().await
    };
    tokio::select! {
        // The run is polled first: it does not start after the close.
        biased;
        ended = run => ended,
        never = shut_down => never,
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use futures_util::poll;

    use super::*;

    #[tokio::test]
    async fn work_that_is_not_polled_is_ended_and_work_in_a_poll_is_not() {
        let (polls, ended) = (Polls::default(), std::cell::Cell::new(0));
        let end = || ended.set(ended.get() + 1);
        let work = std::future::poll_fn(|_cx| {
            polls.unless_running(end);
            Poll::<()>::Pending
        });
        let mut work = pin!(polls.of(|| ended.get() == 0, work));
        assert!(poll!(&mut work).is_pending());
        assert_eq!(ended.get(), 0, "it was being polled");
        polls.unless_running(end);
        assert_eq!(ended.get(), 1);
        assert_eq!(poll!(&mut work), Poll::Ready(None), "it is not polled again");
        assert_eq!(ended.get(), 1);
    }

    #[tokio::test]
    async fn run_ends_with_its_shutdown() {
        let runs = Runs::default();
        let run = async {
            let _run = runs.begin().unwrap();
            runs.closed().await;
            7
        };
        assert_eq!(until(run, async {}, || runs.close()).await, 7);
        assert_eq!(until(std::future::ready(8), std::future::pending::<()>(), || ()).await, 8);
    }

    #[tokio::test]
    async fn one_run_goes_on_at_a_time_and_none_begins_after_the_close() {
        let runs = Runs::default();
        runs.ended().await;
        let run = runs.begin().unwrap();
        assert_eq!(runs.begin().err(), Some(StartError::AlreadyStarted));
        drop(run);
        let run = runs.begin().unwrap();
        let (mut closed, mut ended) = (pin!(runs.closed()), pin!(runs.ended()));
        assert!(poll!(&mut closed).is_pending() && !runs.is_closed());
        runs.close();
        assert!(poll!(&mut closed).is_ready() && runs.is_closed());
        assert_eq!(runs.begin().err(), Some(StartError::Closed));
        assert!(poll!(&mut ended).is_pending());
        drop(run);
        assert!(poll!(&mut ended).is_ready());
        assert_eq!(runs.begin().err(), Some(StartError::Closed));
    }
}
