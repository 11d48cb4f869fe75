//! Work that needs one and the same session from its beginning to its end.

use std::future::Future;

use crate::client::CuratorFramework;
use crate::error::{Error, Result};
use crate::session::Session;

/// What is done when the session ends before the work does: Curator's `SessionFailRetryLoop.Mode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SessionFailMode {
    /// The work is begun again in the next session.
    Retry,
    /// `SessionExpired`.
    Fail,
}

impl CuratorFramework {
    /// Does work that needs one session from its beginning to its end: Curator's `SessionFailRetryLoop`. The work is
    /// given the session and is stopped when that ends.
    ///
    /// # Errors
    ///
    /// Those of the work; `SessionExpired` when the session ends and the mode is [`Fail`](SessionFailMode::Fail), or
    /// the retry policy gives up; `ConnectionLoss` if there is no session within the connection timeout; `NotStarted`,
    /// `Closed`.
    ///
    /// # Cancel safety
    ///
    /// As the work.
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
                        _ = session.ended() => Err(session.gone("work within one session")),
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
