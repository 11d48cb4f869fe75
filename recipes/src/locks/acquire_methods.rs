//! The methods that all locks have.

/// Defines `acquire`, `acquire_timeout` and `try_acquire`, for a lock that has
/// `acquire_for(Caller, WaitMode) -> Result<Option<Guard>>`. They are not `async fn`, which do not know their callers.
macro_rules! acquire_methods {
    ($lock:ident => $guard:ty) => {
        impl $lock {
            /// Waits for the lock: for other contenders without a limit, for a connection [as long as the retry policy
            /// allows](crate::choosing#how-long-each-call-can-take).
            ///
            /// # Errors
            ///
            /// * `Error::ConnectionLoss`: no connection within the connection timeout, and the retry policy gave up.
            /// * `Error::SessionExpired`: the session ended while waiting, and the retry policy allows no further try.
            /// * `LockError::LockLost`: a guard of this owner has lost the lock; drop all guards of the owner first.
            /// * `LockError::Upgrade`: the owner of a write lock holds the read lock; release the read lock first.
            /// * `LockError::ProtocolMismatch`: other clients use the semaphore's path with the other protocol.
            /// * `LockError::InvalidArgument`: the ACL makes the leases of the semaphore's direct protocol read-only.
            /// * `Error::NoNode`: other clients delete the contender's node again and again, and the retry policy gave up.
            /// * `Error::TooManyEphemeralNodes`: the session cannot have another node, at once. Release other locks, or
            ///   acquire with another client.
            /// * `Error::NotStarted`, `Error::Closed`: the client does not run. `Error::NoAuth`: the ACL forbids a
            ///   request.
            ///
            /// # Cancel safety
            ///
            /// When the future is dropped, the contender leaves the queue. Its node is deleted in the background. See
            /// [cancelling an acquire](crate::InterProcessMutex#cancelling-an-acquire).
            #[track_caller]
            pub fn acquire(&self) -> impl Future<Output = Result<$guard, $crate::engine::error::LockError>> + Send {
                let at = std::panic::Location::caller();
                async move {
                    let granted = self.acquire_for(Caller::in_scope(at), WaitMode::Forever).await?;
                    granted.ok_or_else($crate::engine::no_end)
                }
            }

            /// Waits for the lock for at most `budget`. [Bind the guard](crate#bind-the-guard):
            /// `if let Some(guard) = …` holds the lock in its block, and `if ….is_some()` releases it before its block
            /// starts.
            ///
            /// The budget covers the connection, missing parents and the queue. Returns `Ok(None)` if another contender
            /// is ahead when the budget ends. A budget of zero is a [`try_acquire`](Self::try_acquire).
            ///
            /// # Errors
            ///
            /// * `Error::ConnectionLoss`: the budget ended without a connection, or before a reply showed another
            ///   contender ahead. Nothing is left in the queue.
            /// * `Error::ConnectionLoss`, `Error::SessionExpired`: the connection or the session was lost, and the
            ///   retry policy gave up.
            /// * `LockError::LockLost`: a guard of this owner has lost the lock; drop all guards of the owner first.
            /// * `LockError::Upgrade`: the owner of a write lock holds the read lock; release the read lock first.
            /// * `LockError::ProtocolMismatch`: other clients use the semaphore's path with the other protocol.
            /// * `LockError::InvalidArgument`: the ACL makes the leases of the semaphore's direct protocol read-only.
            /// * `Error::NoNode`: other clients delete the contender's node again and again, and the retry policy gave
            ///   up.
            /// * `Error::TooManyEphemeralNodes`: the session cannot have another node, at once. Release other locks, or
            ///   acquire with another client.
            /// * `Error::NotStarted`, `Error::Closed`: the client does not run. `Error::NoAuth`: the ACL forbids a
            ///   request.
            ///
            /// # Cancel safety
            ///
            /// When the future is dropped, the contender leaves the queue. Its node is deleted in the background. See
            /// [cancelling an acquire](crate::InterProcessMutex#cancelling-an-acquire).
            #[track_caller]
            pub fn acquire_timeout(
                &self,
                budget: std::time::Duration,
            ) -> impl Future<Output = Result<Option<$guard>, $crate::engine::error::LockError>> + Send {
                let at = std::panic::Location::caller();
                async move { self.acquire_for(Caller::in_scope(at), WaitMode::within(budget)).await }
            }

            /// Tries once, for at most the connection timeout. [Bind the guard](crate#bind-the-guard):
            /// `if let Some(guard) = …` holds the lock in its block, and `if ….is_some()` releases it before its block
            /// starts.
            ///
            /// Returns `Ok(None)` if a reply shows that the lock is taken.
            ///
            /// # Errors
            ///
            /// * `Error::ConnectionLoss`: no reply in the connection timeout, or the connection was lost during the
            ///   call.
            /// * `Error::SessionExpired`: the session ended during the call.
            /// * `LockError::LockLost`: a guard of this owner has lost the lock; drop all guards of the owner first.
            /// * `LockError::Upgrade`: the owner of a write lock holds the read lock; release the read lock first.
            /// * `LockError::ProtocolMismatch`: other clients use the semaphore's path with the other protocol.
            /// * `LockError::InvalidArgument`: the ACL makes the leases of the semaphore's direct protocol read-only.
            /// * `Error::NoNode`: other clients delete the contender's node again and again, and the retry policy gave
            ///   up.
            /// * `Error::TooManyEphemeralNodes`: the session cannot have another node, at once. Release other locks, or
            ///   acquire with another client.
            /// * `Error::NotStarted`, `Error::Closed`: the client does not run. `Error::NoAuth`: the ACL forbids a
            ///   request.
            ///
            /// # Cancel safety
            ///
            /// When the future is dropped, the contender leaves the queue. Its node is deleted in the background. See
            /// [cancelling an acquire](crate::InterProcessMutex#cancelling-an-acquire).
            #[track_caller]
            pub fn try_acquire(
                &self,
            ) -> impl Future<Output = Result<Option<$guard>, $crate::engine::error::LockError>> + Send {
                let at = std::panic::Location::caller();
                async move { self.acquire_for(Caller::in_scope(at), WaitMode::Once).await }
            }
        }
    };
}

/// Defines `acquire_as`, `acquire_as_timeout` and `try_acquire_as`, for a reentrant lock.
macro_rules! owner_methods {
    ($lock:ident => $guard:ty) => {
        impl $lock {
            /// Waits for the lock without a limit, for this owner.
            ///
            /// # Errors
            ///
            /// * `Error::ConnectionLoss`: no connection within the connection timeout, and the retry policy gave up.
            /// * `Error::SessionExpired`: the session ended while waiting, and the retry policy allows no further try.
            /// * `LockError::LockLost`: a guard of this owner has lost the lock; drop all guards of the owner first.
            /// * `LockError::Upgrade`: the owner of a write lock holds the read lock; release the read lock first.
            /// * `Error::NoNode`: other clients delete the contender's node again and again, and the retry policy gave
            ///   up.
            /// * `Error::TooManyEphemeralNodes`: the session cannot have another node, at once. Release other locks, or
            ///   acquire with another client.
            /// * `Error::NotStarted`, `Error::Closed`: the client does not run. `Error::NoAuth`: the ACL forbids a
            ///   request.
            ///
            /// # Cancel safety
            ///
            /// When the future is dropped, the contender leaves the queue. Its node is deleted in the background. See
            /// [cancelling an acquire](crate::InterProcessMutex#cancelling-an-acquire).
            #[track_caller]
            pub fn acquire_as(
                &self,
                owner: &LockOwner,
            ) -> impl Future<Output = Result<$guard, $crate::engine::error::LockError>> + Send {
                let at = std::panic::Location::caller();
                async move {
                    let granted = self.acquire_for(Caller::with_owner(owner, at), WaitMode::Forever).await?;
                    granted.ok_or_else($crate::engine::no_end)
                }
            }

            /// Waits for the lock for at most `budget`, for this owner: see [`acquire_timeout`](Self::acquire_timeout).
            /// [Bind the guard](crate#bind-the-guard): `if ….is_some()` releases the lock before its block starts.
            ///
            /// # Errors
            ///
            /// * `Error::ConnectionLoss`: the budget ended without a connection, or before a reply showed another
            ///   contender ahead. Nothing is left in the queue.
            /// * `Error::ConnectionLoss`, `Error::SessionExpired`: the connection or the session was lost, and the
            ///   retry policy gave up.
            /// * `LockError::LockLost`: a guard of this owner has lost the lock; drop all guards of the owner first.
            /// * `LockError::Upgrade`: the owner of a write lock holds the read lock; release the read lock first.
            /// * `Error::NoNode`: other clients delete the contender's node again and again, and the retry policy gave
            ///   up.
            /// * `Error::TooManyEphemeralNodes`: the session cannot have another node, at once. Release other locks, or
            ///   acquire with another client.
            /// * `Error::NotStarted`, `Error::Closed`: the client does not run. `Error::NoAuth`: the ACL forbids a
            ///   request.
            ///
            /// # Cancel safety
            ///
            /// When the future is dropped, the contender leaves the queue. Its node is deleted in the background. See
            /// [cancelling an acquire](crate::InterProcessMutex#cancelling-an-acquire).
            #[track_caller]
            pub fn acquire_as_timeout(
                &self,
                owner: &LockOwner,
                budget: std::time::Duration,
            ) -> impl Future<Output = Result<Option<$guard>, $crate::engine::error::LockError>> + Send {
                let at = std::panic::Location::caller();
                async move { self.acquire_for(Caller::with_owner(owner, at), WaitMode::within(budget)).await }
            }

            /// Tries once, for this owner: see [`try_acquire`](Self::try_acquire).
            /// [Bind the guard](crate#bind-the-guard): `if ….is_some()` releases the lock before its block starts.
            ///
            /// # Errors
            ///
            /// * `Error::ConnectionLoss`: no reply in the connection timeout, or the connection was lost during the
            ///   call.
            /// * `Error::SessionExpired`: the session ended during the call.
            /// * `LockError::LockLost`: a guard of this owner has lost the lock; drop all guards of the owner first.
            /// * `LockError::Upgrade`: the owner of a write lock holds the read lock; release the read lock first.
            /// * `Error::NoNode`: other clients delete the contender's node again and again, and the retry policy gave
            ///   up.
            /// * `Error::TooManyEphemeralNodes`: the session cannot have another node, at once. Release other locks, or
            ///   acquire with another client.
            /// * `Error::NotStarted`, `Error::Closed`: the client does not run. `Error::NoAuth`: the ACL forbids a
            ///   request.
            ///
            /// # Cancel safety
            ///
            /// When the future is dropped, the contender leaves the queue. Its node is deleted in the background. See
            /// [cancelling an acquire](crate::InterProcessMutex#cancelling-an-acquire).
            #[track_caller]
            pub fn try_acquire_as(
                &self,
                owner: &LockOwner,
            ) -> impl Future<Output = Result<Option<$guard>, $crate::engine::error::LockError>> + Send {
                let at = std::panic::Location::caller();
                async move { self.acquire_for(Caller::with_owner(owner, at), WaitMode::Once).await }
            }
        }
    };
}

pub(crate) use {acquire_methods, owner_methods};
