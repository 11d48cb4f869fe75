//! A future is dropped, or something happens, behind this many of its polls.

use std::task::Poll;

/// The moment at which a test drops a future.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cut {
    /// Directly behind a poll: what was sent in it is under way.
    Behind(usize),
    /// When it is to be polled once more: an answer is there that it has not seen.
    Before(usize),
}

/// Polls a future to its end, with a call at the cut if it comes to that.
pub async fn poll_until_then<T>(future: impl Future<Output = T>, cut: Cut, call: impl FnOnce()) -> T {
    let (mut future, mut call) = (Box::pin(future), Some(call));
    let mut polls = 0;
    std::future::poll_fn(move |cx| {
        if cut == Cut::Before(polls) {
            if let Some(call) = call.take() {
                call();
            }
        }
        polls += 1;
        let polled = future.as_mut().poll(cx);
        if polled.is_pending() && cut == Cut::Behind(polls) {
            if let Some(call) = call.take() {
                call();
            }
        }
        polled
    })
    .await
}

/// Polls a future until then; `None` if it was dropped.
pub async fn poll_until<T>(future: impl Future<Output = T>, cut: Cut) -> Option<T> {
    let mut future = Box::pin(future);
    let mut polls = 0;
    std::future::poll_fn(move |cx| {
        if cut == Cut::Before(polls) {
            return Poll::Ready(None);
        }
        polls += 1;
        match future.as_mut().poll(cx) {
            Poll::Pending if cut == Cut::Behind(polls) => Poll::Ready(None),
            polled => polled.map(Some),
        }
    })
    .await
}
