//! The limit of concurrency over all processes.

use std::mem;
use std::task::{Context, Poll};
use std::time::Duration;

use curator_framework::PathText;
use curator_recipes::{InterProcessSemaphoreV2, Lease};
use tower_layer::Layer;
use tower_service::Service;

use crate::error::{BoxError, LayerError};
use crate::response::ResponseFuture;

/// Limits the requests that run at once in all processes together, by the leases of an [`InterProcessSemaphoreV2`].
///
/// tower's `ConcurrencyLimitLayer` limits the requests of one service in one process. Its `GlobalConcurrencyLimitLayer`
/// limits all services of a process that share it. Clones of this layer share one limit, and so do all layers over the
/// same path, in all processes.
///
/// # The life of a request
///
/// | step | what happens |
/// | --- | --- |
/// | `poll_ready` | polls the inner service alone, so a service that is ready and idle holds no lease |
/// | `call` | takes the inner service that is ready, and leaves a clone in its place |
/// | the response future | acquires a lease, calls the inner service, and waits for its response |
/// | the response | the lease is dropped, which sends its release; the response does not wait for the reply |
/// | the response future is dropped | the request leaves the queue, or its lease is released |
///
/// The lease is held until the response is there. The body of an HTTP response may follow later, without a lease. An
/// inner service that reserves something in `poll_ready`, such as a permit, keeps it while the request waits for a
/// lease.
///
/// # Losing the lease
///
/// A [lost lease](InterProcessSemaphoreV2#losing-the-lock) is granted to another request at once. So by default the
/// layer drops the future of the inner service, and the request ends with [`LayerError::LeaseLost`]. Otherwise more
/// requests than the limit would run during each outage of ZooKeeper. Tasks that the inner service has spawned
/// continue: see [`LockGuard::protect`](curator_recipes::LockGuard::protect).
/// [`finish_requests`](Self::finish_requests) lets requests run to their end, for work that must not stop half way.
///
/// # Waiting
///
/// By default a request waits for a lease without a limit, and in order with the requests of all processes. Each
/// waiting request has nodes in ZooKeeper. Put tower's `LoadShedLayer` and `ConcurrencyLimitLayer` above this layer to
/// limit their number in a process, or use [`acquire_timeout`](Self::acquire_timeout) or
/// [`load_shed`](Self::load_shed).
///
/// A request that calls a service of the same limit needs a second lease. If all leases belong to such requests, all of
/// them wait forever.
///
/// # Cost
///
/// A request costs one [acquire and release](InterProcessSemaphoreV2#cost): with a free lease 4 requests to ZooKeeper,
/// and 1 round trip before the inner service is called. So use it for requests that take many times as long.
#[derive(Debug, Clone)]
#[must_use = "a layer does nothing until it wraps a service"]
pub struct ClusterConcurrencyLimitLayer {
    semaphore: InterProcessSemaphoreV2,
    /// The longest wait for a lease.
    budget: Option<Duration>,
    finishes: bool,
}

impl ClusterConcurrencyLimitLayer {
    /// Creates a layer, without a request. Its requests wait without a limit, and are cancelled when their lease is
    /// lost.
    pub const fn new(semaphore: InterProcessSemaphoreV2) -> Self {
        Self { semaphore, budget: None, finishes: false }
    }

    /// Limits the wait for a lease: see [`InterProcessSemaphoreV2::acquire_timeout`]. After that a request ends with
    /// [`LayerError::Overloaded`], or with [`LayerError::Acquire`] if ZooKeeper did not reply. A budget of zero is
    /// [`load_shed`](Self::load_shed). The response of the inner service may take longer: use tower's `TimeoutLayer`
    /// for a limit of both.
    pub const fn acquire_timeout(mut self, budget: Duration) -> Self {
        self.budget = Some(budget);
        self
    }

    /// Ends a request with [`LayerError::Overloaded`] if no lease is free, after one try: see
    /// [`InterProcessSemaphoreV2::try_acquire`]. If ZooKeeper does not reply within the client's connection timeout,
    /// the request ends with [`LayerError::Acquire`].
    ///
    /// tower's `LoadShedLayer` directly above this layer sheds nothing, because this layer is ready without a lease.
    pub const fn load_shed(self) -> Self {
        self.acquire_timeout(Duration::ZERO)
    }

    /// Lets a request run to its end when its lease is lost, and returns its response. Until then more requests than
    /// the limit may run.
    pub const fn finish_requests(mut self) -> Self {
        self.finishes = true;
        self
    }

    async fn lease(&self) -> Result<Lease, LayerError> {
        let lease = match self.budget {
            Some(budget) => self.semaphore.acquire_timeout(budget).await,
            None => self.semaphore.acquire().await.map(Some),
        };
        let overloaded = || LayerError::Overloaded { path: PathText::from(self.semaphore.path()) };
        lease.map_err(LayerError::Acquire)?.ok_or_else(overloaded)
    }
}

impl<S> Layer<S> for ClusterConcurrencyLimitLayer {
    type Service = ClusterConcurrencyLimit<S>;

    fn layer(&self, inner: S) -> Self::Service {
        ClusterConcurrencyLimit { inner, layer: self.clone() }
    }
}

/// The service of a [`ClusterConcurrencyLimitLayer`].
///
/// # Errors
///
/// The errors of the inner service, and these variants of [`LayerError`]:
///
/// * `Overloaded`: no lease was free in time.
/// * `Acquire`: no lease could be acquired.
/// * `LeaseLost`: the lease was lost before the response.
#[derive(Debug, Clone)]
pub struct ClusterConcurrencyLimit<S> {
    inner: S,
    layer: ClusterConcurrencyLimitLayer,
}

impl<S, R> Service<R> for ClusterConcurrencyLimit<S>
where
    S: Service<R, Error: Into<BoxError>, Future: Send> + Clone + Send + 'static,
    R: Send + 'static,
{
    type Response = S::Response;
    type Error = BoxError;
    type Future = ResponseFuture<S::Response>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, request: R) -> Self::Future {
        // Readiness belongs to the service that was polled, and not to its clones.
        let clone = self.inner.clone();
        let mut inner = mem::replace(&mut self.inner, clone);
        let layer = self.layer.clone();
        ResponseFuture::new(async move {
            // Dropped at the end, after the future of the inner service.
            let lease = layer.lease().await?;
            let response = inner.call(request);
            let response = if layer.finishes {
                response.await
            } else {
                lease.protect(response).await.map_err(LayerError::LeaseLost)?
            };
            response.map_err(Into::into)
        })
    }
}
