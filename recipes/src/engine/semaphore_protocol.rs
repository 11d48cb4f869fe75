//! The choice between the two protocols of a semaphore, which its errors and its options name.

use std::fmt;

/// The choice between the two protocols of a semaphore. All clients of a path must use the same protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum SemaphoreProtocol {
    /// Curator's protocol, the default: a client holds a mutex while it takes a lease. For paths shared with Java.
    #[default]
    Curator,
    /// A protocol without the mutex, for paths that only this crate uses. If no lease is free, it saves requests, and a
    /// hand-off takes one round trip less. The first waiters, as many as there are leases but at most four, list the queue
    /// when a contender joins or leaves. With more than 256 holders and waiters only one does.
    ///
    /// The first client creates the path with a mark. On a path that exists without the mark, an acquire fails with
    /// [`LockError::ProtocolMismatch`](crate::LockError::ProtocolMismatch). So does an acquire by Curator's protocol on a path with the mark. To change the
    /// protocol, delete the path.
    ///
    /// Java's clients do not check the mark. A waiting Java client and a direct client behind it may block each other. An
    /// acquire that is not polled keeps its place, and waiters behind it may wait beside a free lease. Behind a waiter
    /// that got a request to revoke, the next one lists the queue at each change. The limit cannot follow a
    /// [`SharedCount`](crate::SharedCount).
    Direct,
}

impl fmt::Display for SemaphoreProtocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Curator => "curator",
            Self::Direct => "direct",
        })
    }
}
