//! Services that only the leader runs.

use std::task::{Context, Poll};

use curator_framework::PathText;
use curator_recipes::{LeaderLatch, LeaderObserver};
use tower_layer::Layer;
use tower_service::Service;

use crate::error::{BoxError, LayerError};
use crate::response::ResponseFuture;

/// Passes requests to the inner service only while this process leads, by a [`LeaderLatch`].
///
/// A `call` compares the clock with the deadline of the term, without a request to ZooKeeper. A process that does not
/// lead ends each request with [`LayerError::NotLeader`]. So does a latch that was not started, cannot join the
/// election, or was closed: [`LeaderLatch::state`] has the reason. `poll_ready` polls the inner service.
///
/// The layer and its services keep the latch, and do not start it. At the end of the program,
/// [close](LeaderLatch::close) the latch after the server.
///
/// # The end of a term
///
/// After a term another process may lead. So by default its end drops the future of the inner service, and the request
/// ends with [`LayerError::LeadershipLost`]. A latch that [resigns](LeaderLatch::resign) waits for that before it lets
/// another one lead. [`finish_requests`](Self::finish_requests) lets requests run to their end.
///
/// A process that was paused after the check may still write beside the next leader: see
/// [losing the leadership](LeaderLatch#losing-the-leadership). A handler that writes uses the fencing token of
/// [`LeaderLatch::leadership`].
#[derive(Debug, Clone)]
#[must_use = "a layer does nothing until it wraps a service"]
pub struct LeaderOnlyLayer {
    latch: LeaderLatch,
    observer: Option<LeaderObserver>,
    finishes: bool,
}

impl LeaderOnlyLayer {
    /// Creates a layer, without a request. Its requests are cancelled when the term ends.
    pub const fn new(latch: LeaderLatch) -> Self {
        Self { latch, observer: None, finishes: false }
    }

    /// Names the leader in [`LayerError::NotLeader`], as this observer knows it: see [`LeaderLatch::observe`]. Without
    /// it the error has no name, because a latch knows only its own term.
    pub fn observer(mut self, observer: LeaderObserver) -> Self {
        self.observer = Some(observer);
        self
    }

    /// Lets a request run to its end when the term ends, and returns its response. Another process may lead by then.
    pub const fn finish_requests(mut self) -> Self {
        self.finishes = true;
        self
    }

    fn not_leader(&self) -> LayerError {
        let leader = self.observer.as_ref().and_then(LeaderObserver::leader);
        LayerError::NotLeader { path: PathText::from(self.latch.path()), leader: leader.map(|leader| leader.id) }
    }
}

impl<S> Layer<S> for LeaderOnlyLayer {
    type Service = LeaderOnly<S>;

    fn layer(&self, inner: S) -> Self::Service {
        LeaderOnly { inner, layer: self.clone() }
    }
}

/// The service of a [`LeaderOnlyLayer`].
///
/// # Errors
///
/// The errors of the inner service, and these variants of [`LayerError`]:
///
/// * `NotLeader`: this process does not lead.
/// * `LeadershipLost`: the term ended before the response.
#[derive(Debug, Clone)]
pub struct LeaderOnly<S> {
    inner: S,
    layer: LeaderOnlyLayer,
}

impl<S, R> Service<R> for LeaderOnly<S>
where
    S: Service<R, Error: Into<BoxError>, Future: Send + 'static>,
{
    type Response = S::Response;
    type Error = BoxError;
    type Future = ResponseFuture<S::Response>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, request: R) -> Self::Future {
        let Some(leadership) = self.layer.latch.leadership() else {
            // The inner service stays ready, for the next request.
            let error: BoxError = self.layer.not_leader().into();
            return ResponseFuture::new(async { Err(error) });
        };
        let response = self.inner.call(request);
        let finishes = self.layer.finishes;
        ResponseFuture::new(async move {
            let response = if finishes {
                response.await
            } else {
                leadership.protect(response).await.map_err(LayerError::LeadershipLost)?
            };
            response.map_err(Into::into)
        })
    }
}
