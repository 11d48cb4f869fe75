//! Work that is dropped when what protects it is lost.

use std::future::Future;
use std::pin::pin;
use std::task::Poll;

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
