//! The error of the layers.

use curator_framework::PathText;
use curator_recipes::{LeaderError, LockError};

/// The error of a service in this crate, as tower has it: `tower::BoxError` is the same type.
///
/// The box contains a [`LayerError`], or the error of the inner service.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The reason why a layer did not return the response of the inner service.
///
/// `error.downcast_ref::<LayerError>()` finds it in a [`BoxError`]. Most programs reply to each variant with the status
/// 503 of HTTP. The inner service has not seen the request, unless the variant says so.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum LayerError {
    /// No lease was free within the [time of the layer](crate::ClusterConcurrencyLimitLayer::acquire_timeout). The
    /// client may try again later.
    #[error("no lease of {path} is free")]
    Overloaded {
        /// The semaphore's path.
        path: PathText,
    },
    /// No lease could be acquired. [`LockError::is_retryable`] is true for an outage of ZooKeeper.
    #[error(transparent)]
    Acquire(LockError),
    /// The lease was lost before the response: [`LockError::LockLost`] has the reason. The layer has dropped the future
    /// of the inner service, which may have carried out a part of the request.
    #[error(transparent)]
    LeaseLost(LockError),
    /// This process does not lead. Send the request to the leader.
    #[error("the election {path} is led by {}", leader.as_deref().unwrap_or("another process, or by none"))]
    NotLeader {
        /// The election's path.
        path: PathText,
        /// The id of the leader, as the layer's [observer](crate::LeaderOnlyLayer::observer) knows it. It may be the id
        /// of this process for a moment at the start or the end of its term.
        leader: Option<String>,
    },
    /// The term ended before the response: [`LeaderError::LeadershipLost`] has the reason. The layer has dropped the
    /// future of the inner service, which may have carried out a part of the request.
    #[error(transparent)]
    LeadershipLost(LeaderError),
}
