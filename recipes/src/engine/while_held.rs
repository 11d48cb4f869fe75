//! Work that is dropped when what protects it is lost, and the first of several losses.

use std::future::Future;
use std::pin::pin;
use std::task::Poll;

use futures_util::stream::{FuturesUnordered, StreamExt as _};

/// Runs `work` until it is done or `lost` resolves. Returns `Err(None)` if `is_held` is false before `lost` resolves:
/// the timer behind `lost` may be late, so `is_held` is called before each poll of the work.
pub(crate) async fn while_held<R, F: Future>(
    is_held: impl Fn() -> bool,
    lost: impl Future<Output = R>,
    work: F,
) -> Result<F::Output, Option<R>> {
    let mut work = pin!(work);
    let looked_after =
        std::future::poll_fn(|cx| if is_held() { work.as_mut().poll(cx).map(Some) } else { Poll::Ready(None) });
    tokio::select! {
        biased;
        reason = lost => Err(Some(reason)),
        done = looked_after => done.ok_or(None),
    }
}

/// Resolves with the first output, or never without futures. Polls only futures that are new or were woken, so one set that
/// grows with each grant costs one poll a grant.
///
/// # Cancel safety
///
/// A dropped call leaves all futures in the set.
pub(crate) async fn first_of<F: Future>(futures: &mut FuturesUnordered<F>) -> F::Output {
    match futures.next().await {
        Some(first) => first,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use futures_util::FutureExt as _;

    use super::*;

    #[test]
    fn set_that_grows_by_one_polls_each_future_once() {
        let polls = Cell::new(0);
        let mut losses = FuturesUnordered::new();
        for _grant in 0..1000 {
            assert!(first_of(&mut losses).now_or_never().is_none());
            losses.push(std::future::poll_fn(|_| {
                polls.set(polls.get() + 1);
                Poll::<()>::Pending
            }));
        }
        assert!(first_of(&mut losses).now_or_never().is_none());
        assert_eq!(polls.get(), 1000);
    }
}
