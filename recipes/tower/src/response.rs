//! The future of both services.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::error::BoxError;

/// The future of a response. Its drop cancels the request: it leaves the queue for a lease, or drops the future of the
/// inner service and then releases the lease, without waiting for a reply.
#[must_use = "futures do nothing unless polled"]
pub struct ResponseFuture<T> {
    // Boxed: an acquire is an `async fn` without a name, and sends requests, which cost more.
    response: Pin<Box<dyn Future<Output = Result<T, BoxError>> + Send>>,
}

impl<T> ResponseFuture<T> {
    pub(crate) fn new(response: impl Future<Output = Result<T, BoxError>> + Send + 'static) -> Self {
        Self { response: Box::pin(response) }
    }
}

impl<T> Future for ResponseFuture<T> {
    type Output = Result<T, BoxError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.response.as_mut().poll(cx)
    }
}

impl<T> fmt::Debug for ResponseFuture<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").finish_non_exhaustive()
    }
}
