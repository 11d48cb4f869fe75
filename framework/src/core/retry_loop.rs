//! The loop that repeats failed operations: asks the retry policy, and sleeps its pauses.
//!
//! The loop waits for a session and sleeps, so it needs the client's shared state. The policies in `retry/` are pure
//! functions, which are tested without a clock.

use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::time::Instant;

use crate::core::ClientCore;
use crate::environment::randomness::unit_interval;
use crate::error::{Chain, Error, INTERNAL_EARLIER, INTERNAL_WAIT, RecipeError, Result};
use crate::retry::RetryAttempt;
use crate::session::Session;

/// Carries one operation through its retries: Curator's `RetryLoop`.
///
/// The loop counts the time and the retries, consults the client's [`RetryPolicy`](crate::RetryPolicy), and sleeps. The
/// connection timeout limits the wait for a connection over the whole operation, not for each try. Nested steps of one
/// operation share one loop, so their budgets do not multiply. A policy that gives up on a step gives up on the
/// operation.
///
/// The loop itself is part of the code of the operation. A method that takes the attempt as an `AsyncFnMut` would make
/// futures that the compiler does not accept as `Send`, here and in the code of users that spawns them.
///
/// ```no_run
/// # async fn run(client: &curator_framework::CuratorFramework, path: &str) -> Result<(), curator_framework::Error> {
/// let mut retries = client.retry_loop();
/// let stat = loop {
///     let session = retries.connected(path).await?;
///     if let Some(stat) = retries.done(session.exists(path).await, path).await? {
///         break stat;
///     }
/// };
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct RetryLoop {
    client: ClientCore,
    started: Instant,
    count: u32,
    wait_left: Duration,
    /// The policy has given up and is not consulted again.
    given_up: bool,
    /// The number of the session of the last try.
    tried_in: Option<u64>,
}

impl ClientCore {
    /// A loop that carries one operation through its retries.
    pub(crate) fn retry_loop(&self) -> RetryLoop {
        RetryLoop::new(self.clone())
    }
}

impl RetryLoop {
    fn new(client: ClientCore) -> Self {
        let wait_left = client.connection_timeout();
        Self { client, started: Instant::now(), count: 0, wait_left, given_up: false, tried_in: None }
    }

    /// Returns the client's session, as soon as it is connected.
    ///
    /// # Errors
    ///
    /// * `Error::ConnectionLoss`, with the failure of each server: the time to wait for a connection has ended.
    /// * `Error::SessionExpired`: the last try was in an earlier session, and the policy does not retry that.
    /// * `Error::NotStarted`, `Error::Closed`.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, its wait does not count.
    #[doc(alias = "callWithRetry")]
    pub async fn session(&mut self) -> Result<Session> {
        let began = Instant::now();
        let session = self.client.session_within(self.wait_left).await;
        self.wait_left = self.wait_left.saturating_sub(began.elapsed());
        let session = session?;
        let earlier = self.tried_in.replace(session.number());
        if earlier.is_some_and(|earlier| earlier != session.number()) {
            let expired = Error::SessionExpired { request: INTERNAL_EARLIER.into() };
            if !self.client.retry_policy().allow_retry(&expired) {
                return Err(expired);
            }
        }
        Ok(session)
    }

    /// Returns the client's session. Waits out a lost connection as the policy allows. Names the path in the error.
    ///
    /// # Errors
    ///
    /// * `Error::ConnectionLoss`, with the failure of each server: the time to wait for a connection has ended, and the
    ///   policy gave up.
    /// * `Error::SessionExpired`: the last try was in an earlier session, and the policy does not retry that.
    /// * `Error::NotStarted`, `Error::Closed`: the client does not run.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, its waits may have been counted.
    pub async fn connected(&mut self, path: &str) -> Result<Session> {
        self.session_with(|error| error.about(path)).await
    }

    /// Like [`connected`](Self::connected). The error names the request too.
    pub(crate) async fn connected_for(&mut self, request: &str, path: &str) -> Result<Session> {
        self.session_with(|error| error.about(&format!("{request} {path}"))).await
    }

    async fn session_with(&mut self, named: impl Fn(Error) -> Error) -> Result<Session> {
        loop {
            match self.session().await {
                Ok(session) => return Ok(session),
                Err(error) => self.failed(named(error)).await?,
            }
        }
    }

    /// Books an attempt on a path. Returns the value of a success, and `None` if another attempt may follow.
    ///
    /// # Errors
    ///
    /// * The attempt's error, if it is one of the recipe, if it is not retryable, or if the policy gives up.
    /// * `Error::Closed`: the client is closed during the pause.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped in its pause, the retry has been counted.
    pub async fn done<T, E: RecipeError>(&mut self, attempt: Result<T, E>, path: &str) -> Result<Option<T>, E> {
        match attempt {
            Ok(value) => Ok(Some(value)),
            Err(error) => Ok(self.failed(error.into_framework()?.about(path)).await.map(|()| None)?),
        }
    }

    /// Resolves when this session is connected again.
    ///
    /// # Errors
    ///
    /// `Error::SessionExpired` or `Error::Closed` if the session ends; `Error::ConnectionLoss` when the time for a
    /// connection has ended.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, its wait does not count.
    pub async fn reconnected(&mut self, session: &Session) -> Result<()> {
        let began = Instant::now();
        let connected = tokio::time::timeout(self.wait_left, session.connected()).await;
        self.wait_left = self.wait_left.saturating_sub(began.elapsed());
        connected.unwrap_or_else(|_elapsed| Err(self.client.not_connected(INTERNAL_WAIT)))
    }

    /// Records the success of a step: resets the retries, the elapsed time and the wait for a connection. So a long
    /// wait with occasional losses of the connection does not use up its retries.
    #[doc(alias = "markComplete")]
    pub fn progressed(&mut self) {
        self.started = Instant::now();
        self.count = 0;
        self.given_up = false;
        self.wait_left = self.client.connection_timeout();
    }

    /// Records a failed try. Returns after the policy's pause if the policy allows another try, else returns the error.
    ///
    /// # Errors
    ///
    /// The error itself, if it is not retryable or the policy gives up; `Error::Closed` if the client is closed
    /// during the pause.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped in its pause, the retry has been counted.
    #[doc(alias = "takeException")]
    pub async fn failed(&mut self, error: Error) -> Result<()> {
        if self.client.retry_policy().allow_retry(&error) { self.pause_after(error).await } else { Err(error) }
    }

    /// Records a failed request of one session. Returns once it may be repeated there: after the pause of a throttled
    /// request, and as soon as a lost connection is back.
    ///
    /// Boxed: a rare branch must not enlarge every caller's future.
    ///
    /// # Errors
    ///
    /// * The error itself, if the request cannot succeed in this session or the policy gives up.
    /// * `Error::SessionExpired`, `Error::Closed`: the session has ended, or the client was closed.
    /// * `Error::ConnectionLoss`: the time for a connection has ended.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, the retry may have been counted.
    pub fn failed_in<'a>(&'a mut self, session: &'a Session, error: Error) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let mut error = error;
            while error.is_retryable_in_session() {
                self.failed(error).await?;
                match self.reconnected(session).await {
                    Ok(()) => return Ok(()),
                    Err(next) => error = next,
                }
            }
            Err(error)
        })
    }

    /// Records a failed try like [`failed`](Self::failed), for an error that the recipe can repair. The policy decides
    /// only the number of retries and the pause.
    ///
    /// # Errors
    ///
    /// The error itself if the policy gives up; `Error::Closed` if the client is closed during the pause.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped in its pause, the retry has been counted.
    pub async fn pause_after(&mut self, error: Error) -> Result<()> {
        if self.given_up {
            return Err(error);
        }
        let attempt = RetryAttempt {
            count: self.count,
            elapsed: self.started.elapsed(),
            random: unit_interval(self.client.randomness()),
        };
        let Some(pause) = self.client.retry_policy().next_pause(attempt) else {
            self.given_up = true;
            return Err(error);
        };
        tracing::debug!(error = %Chain(&error), retry = self.count.saturating_add(1), pause_s = pause.as_secs_f64(), "retrying");
        self.count = self.count.saturating_add(1);
        tokio::select! {
            biased;
            closed = self.client.not_started() => Err(closed),
            () = tokio::time::sleep(pause) => Ok(()),
        }
    }
}
