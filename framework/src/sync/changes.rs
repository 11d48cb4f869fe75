//! The stream of all that happens to one object.

use std::fmt;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use futures_util::Stream;
use parking_lot::Mutex;
use tokio::sync::mpsc::error::TryRecvError;
use tokio::task::coop::unconstrained;

/// A stream of changes. It ends with its source.
///
/// It is a [`Stream`], and has [`recv`](Self::recv) and [`try_recv`](Self::try_recv) as the channels of tokio. A slow
/// reader delays no source and no other reader. The method that opens the stream says where it
/// starts, how much waits for the reader, and how the stream marks the gap above that:
///
/// | stream of | starts with | for a slow reader |
/// | --- | --- | --- |
/// | states, of elections and nodes | the next change | the newest 128, and the number of those that were dropped |
/// | members of a group | a member that has joined, for each | the differences since the last one that was read |
/// | nodes of a cache | a node that was created, for each | a limit of events and bytes, then a reset |
#[must_use = "changes are kept for this stream until it is read or dropped"]
pub struct Changes<T> {
    /// `None` after its end. The lock is never taken: it lets threads share the stream.
    source: Mutex<Option<Pin<Box<dyn Stream<Item = T> + Send>>>>,
}

impl<T> Changes<T> {
    /// Creates a stream of changes from another stream.
    pub fn new(source: impl Stream<Item = T> + Send + 'static) -> Self {
        Self { source: Mutex::new(Some(Box::pin(source))) }
    }

    /// Returns the next change; `None` once the source has ended and all changes were returned.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    pub async fn recv(&mut self) -> Option<T> {
        std::future::poll_fn(|cx| Pin::new(&mut *self).poll_next(cx)).await
    }

    /// Returns the next change, if it has arrived.
    ///
    /// # Errors
    ///
    /// `TryRecvError::Empty`: none has arrived. `TryRecvError::Disconnected`: the source has ended, and all changes were
    /// returned.
    pub fn try_recv(&mut self) -> Result<T, TryRecvError> {
        // The task's budget must not show an arrived change as missing.
        let next = pin!(unconstrained(self.recv()));
        match next.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(Some(change)) => Ok(change),
            Poll::Ready(None) => Err(TryRecvError::Disconnected),
            Poll::Pending => Err(TryRecvError::Empty),
        }
    }
}

impl<T> Stream for Changes<T> {
    type Item = T;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<T>> {
        let open = self.source.get_mut();
        let Some(source) = open else { return Poll::Ready(None) };
        let next = source.as_mut().poll_next(cx);
        if let Poll::Ready(None) = next {
            *open = None;
        }
        next
    }
}

impl<T> fmt::Debug for Changes<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Changes").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use futures_util::stream::{StreamExt as _, unfold};
    use tokio::sync::mpsc;

    use super::*;

    fn of_channel(receiver: mpsc::Receiver<u32>) -> Changes<u32> {
        let next = |mut receiver: mpsc::Receiver<u32>| async move { Some((receiver.recv().await?, receiver)) };
        Changes::new(unfold(receiver, next))
    }

    #[tokio::test]
    async fn stream_says_whether_it_is_empty_or_has_ended() {
        let (to, receiver) = mpsc::channel(8);
        let mut changes = of_channel(receiver);
        assert_eq!(changes.try_recv(), Err(TryRecvError::Empty));
        to.send(1).await.unwrap();
        assert_eq!(changes.try_recv(), Ok(1));
        to.send(2).await.unwrap();
        drop(to);
        assert_eq!(changes.recv().await, Some(2));
        assert_eq!(changes.try_recv(), Err(TryRecvError::Disconnected));
        assert_eq!(changes.next().await, None);
    }

    #[tokio::test]
    async fn reader_is_woken_after_a_try() {
        let (to, receiver) = mpsc::channel(8);
        let mut changes = of_channel(receiver);
        assert_eq!(changes.try_recv(), Err(TryRecvError::Empty));
        let reading = tokio::spawn(async move { changes.recv().await });
        tokio::task::yield_now().await;
        to.send(7).await.unwrap();
        assert_eq!(reading.await.unwrap(), Some(7));
    }

    #[tokio::test]
    async fn arrived_changes_are_seen_by_a_task_without_budget() {
        let (to, receiver) = mpsc::channel(1_000);
        let mut changes = of_channel(receiver);
        for number in 0..1_000 {
            to.try_send(number).unwrap();
            assert_eq!(changes.try_recv(), Ok(number));
        }
    }
}
