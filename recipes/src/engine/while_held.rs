//! Work that is dropped when what protects it is lost, and the first of several losses.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use curator_framework::recipe::LossSignal;
use curator_framework::{LossReason, PathText};
use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use pin_project_lite::pin_project;

/// Runs `work` until it is done or `lost` resolves. Returns `Err(None)` if `is_held` is false before `lost` resolves:
/// the timer of `lost` may be late, so `is_held` is called before each poll of the work.
pub(crate) fn while_held<R, F: Future>(
    is_held: impl Fn() -> bool,
    lost: impl Future<Output = R>,
    work: F,
) -> impl Future<Output = Result<F::Output, Option<R>>> {
    WhileHeld { is_held, lost, work }
}

pin_project! {
    /// The future of [`while_held`]. An async function would have room for its work twice.
    struct WhileHeld<H, L, F> {
        is_held: H,
        #[pin]
        lost: L,
        #[pin]
        work: F,
    }
}

impl<H: Fn() -> bool, L: Future, F: Future> Future for WhileHeld<H, L, F> {
    type Output = Result<F::Output, Option<L::Output>>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        if let Poll::Ready(reason) = this.lost.poll(cx) {
            return Poll::Ready(Err(Some(reason)));
        }
        if (this.is_held)() { this.work.poll(cx).map(Ok) } else { Poll::Ready(Err(None)) }
    }
}

/// The losses of several nodes that are held together, each with the path to name.
#[derive(Default)]
pub(crate) struct Losses(FuturesUnordered<BoxFuture<'static, (LossReason, PathText)>>);

impl Losses {
    pub(crate) fn add(&mut self, signal: LossSignal, path: PathText) {
        self.0.push(Box::pin(async move { (signal.lost().await, path) }));
    }

    /// Runs `step` while all nodes are held. Fails with the first loss. Polls only losses that are new or were woken, so
    /// a set that grows with each grant costs one poll a grant.
    pub(crate) async fn keep<F: Future>(&mut self, step: F) -> Result<F::Output, (LossReason, PathText)> {
        tokio::select! {
            biased;
            Some(first) = self.0.next() => Err(first),
            done = step => Ok(done),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures_util::FutureExt as _;

    use super::*;

    #[test]
    fn set_that_grows_by_one_polls_each_future_once() {
        let polls = Arc::new(AtomicUsize::new(0));
        let mut losses = Losses::default();
        for _grant in 0..1000 {
            assert!(losses.keep(async {}).now_or_never().is_some_and(|kept| kept.is_ok()));
            let polls = Arc::clone(&polls);
            losses.0.push(Box::pin(std::future::poll_fn(move |_| {
                polls.fetch_add(1, Ordering::Relaxed);
                Poll::Pending
            })));
        }
        assert!(losses.keep(std::future::pending::<()>()).now_or_never().is_none());
        assert_eq!(polls.load(Ordering::Relaxed), 1000);
        let loss = (LossReason::NodeDeleted, PathText::from("/lost"));
        losses.0.push(Box::pin(std::future::ready(loss.clone())));
        assert_eq!(losses.keep(async {}).now_or_never(), Some(Err(loss)));
    }
}
