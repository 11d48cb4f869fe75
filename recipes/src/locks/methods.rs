//! What every lock is asked in the same words.

/// `acquire`, `acquire_timeout` and `try_acquire`, for a lock that has
/// `acquire_for(Option<LockOwner>, WaitMode) -> Result<Option<Guard>>`.
macro_rules! acquire_methods {
    ($lock:ident => $guard:ty) => {
        impl $lock {
            /// Waits for the lock as long as it takes.
            ///
            /// # Errors
            ///
            /// * `ConnectionLoss` if there was no connection for the connection timeout and the retry policy gave up.
            /// * `SessionExpired` if the session ended while waiting and the retry policy does not allow another try.
            /// * `LockLost` if the owner already holds the lock and has lost it.
            /// * `Upgrade` of a write lock whose owner holds the read lock.
            /// * `NotStarted`, `Closed`, `NoAuth`.
            ///
            /// # Cancel safety
            ///
            /// When the future is dropped, the place in the queue is given up, and a node that was created is deleted in
            /// the background.
            pub async fn acquire(&self) -> $crate::error::Result<$guard> {
                let granted = self.acquire_for(LockOwner::current(), WaitMode::Forever).await?;
                granted.ok_or_else($crate::locks::engine::no_end)
            }

            /// Waits for the lock for at most `budget`, which covers everything: the connection, missing parents, the
            /// queue. `Ok(None)` if it was not granted in that time. With a budget of zero it asks once, as
            /// [`try_acquire`](Self::try_acquire).
            ///
            /// # Errors
            ///
            /// As [`acquire`](Self::acquire).
            ///
            /// # Cancel safety
            ///
            /// As [`acquire`](Self::acquire).
            pub async fn acquire_timeout(&self, budget: std::time::Duration) -> $crate::error::Result<Option<$guard>> {
                self.acquire_for(LockOwner::current(), WaitMode::within(budget)).await
            }

            /// Asks once: `Ok(None)` if somebody else has the lock. Bounded by the connection timeout.
            ///
            /// # Errors
            ///
            /// As [`acquire`](Self::acquire); `ConnectionLoss` also if there was no answer in the connection timeout.
            ///
            /// # Cancel safety
            ///
            /// As [`acquire`](Self::acquire).
            pub async fn try_acquire(&self) -> $crate::error::Result<Option<$guard>> {
                self.acquire_for(LockOwner::current(), WaitMode::Once).await
            }
        }
    };
}

/// `acquire_as` and `acquire_timeout_as`, for a lock that is reentrant.
macro_rules! owner_methods {
    ($lock:ident => $guard:ty) => {
        impl $lock {
            /// As [`acquire`](Self::acquire), for an owner by name.
            ///
            /// # Errors
            ///
            /// As [`acquire`](Self::acquire).
            ///
            /// # Cancel safety
            ///
            /// As [`acquire`](Self::acquire).
            pub async fn acquire_as(&self, owner: &LockOwner) -> $crate::error::Result<$guard> {
                let granted = self.acquire_for(Some(owner.clone()), WaitMode::Forever).await?;
                granted.ok_or_else($crate::locks::engine::no_end)
            }

            /// As [`acquire_timeout`](Self::acquire_timeout), for an owner by name.
            ///
            /// # Errors
            ///
            /// As [`acquire`](Self::acquire).
            ///
            /// # Cancel safety
            ///
            /// As [`acquire`](Self::acquire).
            pub async fn acquire_timeout_as(
                &self,
                owner: &LockOwner,
                budget: std::time::Duration,
            ) -> $crate::error::Result<Option<$guard>> {
                self.acquire_for(Some(owner.clone()), WaitMode::within(budget)).await
            }
        }
    };
}

pub(crate) use {acquire_methods, owner_methods};
