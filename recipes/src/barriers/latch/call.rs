//! The tries of a call that writes, over lost replies and sessions.

use std::future::Future;

use curator_framework::{Error, Session};

use super::store::Store;
use crate::barriers::error::BarrierError;

/// The result of a try: the end of the call, perhaps with the error of an earlier try that may have been applied.
/// `None`: nothing was changed, and another read is needed.
pub(super) type Tried<T> = Option<Result<T, Error>>;

/// A call that writes.
pub(super) trait Call: Send {
    /// The result of the call.
    type Output: Send;

    /// Makes one try.
    fn attempt(&mut self, session: &Session) -> impl Future<Output = Result<Tried<Self::Output>, BarrierError>> + Send;

    /// Takes the error of a try.
    fn failed(&mut self, _error: &Error) {}

    /// Returns the error of a try that may have been applied.
    fn unknown(&self) -> Option<Error>;
}

/// Makes the tries of a call. If the retry policy gives up, the call fails with the error of the try that may have been
/// applied.
pub(super) async fn run<C: Call>(store: &Store, mut call: C) -> Result<C::Output, BarrierError> {
    store.check_transactions().await?;
    let mut retries = store.client.retry_loop();
    loop {
        let tried = match retries.connected(&store.path).await {
            Ok(session) => call.attempt(&session).await,
            Err(error) => return Err(call.unknown().unwrap_or(error).into()),
        };
        match tried {
            Ok(Some(ended)) => return Ok(ended?),
            // A count or a round was faster, so at most as many tries follow as others succeed.
            Ok(None) => {}
            Err(BarrierError::Framework(error)) => {
                call.failed(&error);
                let failed = retries.failed(error.about(&store.path)).await;
                failed.map_err(|error| call.unknown().unwrap_or(error))?;
            }
            Err(error) => return Err(error),
        }
    }
}
