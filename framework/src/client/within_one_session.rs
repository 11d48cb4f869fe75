//! Work that needs one session from start to end.

use std::future::Future;

use crate::client::CuratorFramework;
use crate::error::{Error, Result};
use crate::session::Session;

/// The reaction to a session that ends before the work does: Curator's `SessionFailRetryLoop.Mode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SessionFailMode {
    /// Starts the work again in the next session.
    Retry,
    /// Fails with `SessionExpired`.
    Fail,
}

impl CuratorFramework {
    /// Runs work that needs one session from start to end: Curator's `SessionFailRetryLoop`. The work gets the session,
    /// and is dropped when that ends.
    ///
    /// # Errors
    ///
    /// * `Error::SessionExpired`: the session ended, and the mode is [`Fail`](SessionFailMode::Fail) or the policy gave
    ///   up.
    /// * `Error::ConnectionLoss`: no session was established within the connection timeout.
    /// * `Error::NotStarted`, `Error::Closed`, and the errors of the work.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, the future of the work is dropped.
    #[doc(alias = "SessionFailRetryLoop")]
    pub async fn within_one_session<T, F>(&self, mode: SessionFailMode, mut work: impl FnMut(Session) -> F) -> Result<T>
    where
        F: Future<Output = Result<T>>,
    {
        let mut retries = self.retry_loop();
        loop {
            let error = match retries.session().await {
                Ok(session) => {
                    let work = work(session.clone());
                    let result = tokio::select! {
                        biased;
                        _ = session.ended() => Err(session.closed_error("work within one session")),
                        result = work => result,
                    };
                    match result {
                        Err(error) if session.end_reason().is_some() && mode == SessionFailMode::Retry => error,
                        result => return result,
                    }
                }
                Err(error) => error,
            };
            match error {
                Error::Closed => return Err(error),
                error => retries.failed(error).await?,
            }
        }
    }
}
