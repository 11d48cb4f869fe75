//! The methods that all locks have.

/// Defines `acquire`, `acquire_timeout` and `try_acquire`, for a lock that has
/// `acquire_for(Option<LockOwner>, WaitMode) -> Result<Option<Guard>>`.
macro_rules! acquire_methods {
    ($lock:ident => $guard:ty) => {
        impl $lock {
            /// Waits for the lock without a limit.
            ///
            /// # Errors
            ///
            /// * `ConnectionLoss`: no connection within the connection timeout, and the retry policy gave up.
            /// * `SessionExpired`: the session ended while waiting, and the retry policy allows no further try.
            /// * `LockLost`: a guard of this owner has lost the lock; drop all guards of the owner first.
            /// * `Upgrade`: the owner of a write lock holds the read lock; release the read lock first.
            /// * `ProtocolMismatch`: other clients use the semaphore's path with the other protocol.
            /// * `NotStarted`, `Closed`: the client does not run. `NoAuth`: the ACL forbids a request.
            ///
            /// # Cancel safety
            ///
            /// When the future is dropped, the contender leaves the queue. Its node is deleted in the background.
            pub async fn acquire(&self) -> $crate::locks::error::Result<$guard> {
                let granted = self.acquire_for(LockOwner::current(), WaitMode::Forever).await?;
                granted.ok_or_else($crate::locks::engine::no_end)
            }

            /// Waits for the lock for at most `budget`, which covers the connection, missing parents and the queue.
            /// Returns `Ok(None)` if another contender is ahead when the budget ends. A budget of zero is a
            /// [`try_acquire`](Self::try_acquire).
            ///
            /// # Errors
            ///
            /// * Those of [`acquire`](Self::acquire).
            /// * `ConnectionLoss`: the budget ended without a connection, or before a reply showed another contender
            ///   ahead. Nothing is left in the queue.
            ///
            /// # Cancel safety
            ///
            /// As [`acquire`](Self::acquire).
            pub async fn acquire_timeout(
                &self,
                budget: std::time::Duration,
            ) -> $crate::locks::error::Result<Option<$guard>> {
                self.acquire_for(LockOwner::current(), WaitMode::within(budget)).await
            }

            /// Tries once, for at most the connection timeout. Returns `Ok(None)` if a reply shows that the lock is
            /// taken.
            ///
            /// # Errors
            ///
            /// As [`acquire`](Self::acquire); `ConnectionLoss` also without a reply in the connection timeout.
            ///
            /// # Cancel safety
            ///
            /// As [`acquire`](Self::acquire).
            pub async fn try_acquire(&self) -> $crate::locks::error::Result<Option<$guard>> {
                self.acquire_for(LockOwner::current(), WaitMode::Once).await
            }
        }
    };
}

/// Defines `acquire_as` and `acquire_timeout_as`, for a reentrant lock.
macro_rules! owner_methods {
    ($lock:ident => $guard:ty) => {
        impl $lock {
            /// Waits for the lock without a limit, for this owner.
            ///
            /// # Errors
            ///
            /// As [`acquire`](Self::acquire).
            ///
            /// # Cancel safety
            ///
            /// As [`acquire`](Self::acquire).
            pub async fn acquire_as(&self, owner: &LockOwner) -> $crate::locks::error::Result<$guard> {
                let granted = self.acquire_for(Some(owner.clone()), WaitMode::Forever).await?;
                granted.ok_or_else($crate::locks::engine::no_end)
            }

            /// Waits for the lock for at most `budget`, for this owner: see [`acquire_timeout`](Self::acquire_timeout).
            ///
            /// # Errors
            ///
            /// As [`acquire_timeout`](Self::acquire_timeout).
            ///
            /// # Cancel safety
            ///
            /// As [`acquire`](Self::acquire).
            pub async fn acquire_timeout_as(
                &self,
                owner: &LockOwner,
                budget: std::time::Duration,
            ) -> $crate::locks::error::Result<Option<$guard>> {
                self.acquire_for(Some(owner.clone()), WaitMode::within(budget)).await
            }
        }
    };
}

pub(crate) use {acquire_methods, owner_methods};
