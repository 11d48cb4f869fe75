//! The one loop that tries again.

use std::time::Duration;

use tokio::time::Instant;

use crate::client::CuratorFramework;
use crate::error::{Error, Result};
use crate::randomness::unit;
use crate::retry::RetryAttempt;
use crate::session::Session;

/// Carries one operation through its retries: Curator's `RetryLoop`.
///
/// It knows the time spent and the retries made, asks the client's [`RetryPolicy`](crate::RetryPolicy), and does the
/// sleeping. Waiting for a connection is bounded by the connection timeout over the whole operation, not for each
/// try. Nested steps of one operation share one loop, so their budgets do not multiply, and where the policy gives up on
/// a step it has given up on the operation.
#[derive(Debug)]
pub struct RetryLoop {
    client: CuratorFramework,
    started: Instant,
    count: u32,
    wait_left: Duration,
    /// The policy has said no, and is not asked again.
    given_up: bool,
    /// The number of the session in which the operation was tried last.
    tried_in: Option<u64>,
}

impl RetryLoop {
    pub(crate) fn new(client: CuratorFramework) -> Self {
        let wait_left = client.connection_timeout();
        Self { client, started: Instant::now(), count: 0, wait_left, given_up: false, tried_in: None }
    }

    /// The client's session, as soon as it is connected.
    ///
    /// # Errors
    ///
    /// `ConnectionLoss` when the time to wait for a connection is over, with what was wrong with each server;
    /// `SessionExpired` if the operation was tried in an earlier session and the policy does not retry that;
    /// `NotStarted`, `Closed`.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, the time that it has waited does not count.
    pub async fn session(&mut self) -> Result<Session> {
        let began = Instant::now();
        let session = self.client.session_within(self.wait_left).await;
        self.wait_left = self.wait_left.saturating_sub(began.elapsed());
        let session = session?;
        let earlier = self.tried_in.replace(session.number());
        if earlier.is_some_and(|earlier| earlier != session.number()) {
            let expired = Error::SessionExpired { request: "an operation that was begun in it".to_owned() };
            if !self.client.retry_policy().allow_retry(&expired) {
                return Err(expired);
            }
        }
        Ok(session)
    }

    /// Waits until this session is connected again.
    ///
    /// # Errors
    ///
    /// `SessionExpired` when it ends instead; `ConnectionLoss` when the time to wait for a connection is over.
    ///
    /// # Cancel safety
    ///
    /// As [`session`](Self::session).
    pub async fn reconnected(&mut self, session: &Session) -> Result<()> {
        let began = Instant::now();
        let connected = tokio::time::timeout(self.wait_left, session.connected()).await;
        self.wait_left = self.wait_left.saturating_sub(began.elapsed());
        connected.unwrap_or_else(|_elapsed| Err(self.client.not_connected("waiting for the connection")))
    }

    /// Says that a step succeeded: retries, time and the wait for a connection are counted anew from here. A long
    /// wait in which the connection is lost now and then does not use up its retries.
    pub fn progressed(&mut self) {
        self.started = Instant::now();
        self.count = 0;
        self.given_up = false;
        self.wait_left = self.client.connection_timeout();
    }

    /// Says that a try failed. Returns after the policy's pause if there is to be another one, else gives the error
    /// back.
    ///
    /// # Errors
    ///
    /// The error itself when it is none to be retried, or the policy gives up.
    ///
    /// # Cancel safety
    ///
    /// As [`pause_after`](Self::pause_after).
    pub async fn failed(&mut self, error: Error) -> Result<()> {
        if self.client.retry_policy().allow_retry(&error) { self.pause_after(error).await } else { Err(error) }
    }

    /// As [`failed`](Self::failed) for an error that the recipe knows how to mend, so that the policy decides about
    /// number and pause only.
    ///
    /// # Errors
    ///
    /// The error itself when the policy gives up; `Closed` when the client is closed meanwhile.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped in its pause, the retry has been counted.
    pub async fn pause_after(&mut self, error: Error) -> Result<()> {
        if self.given_up {
            return Err(error);
        }
        let attempt =
            RetryAttempt { count: self.count, elapsed: self.started.elapsed(), random: unit(self.client.randomness()) };
        let Some(pause) = self.client.retry_policy().next_pause(attempt) else {
            self.given_up = true;
            return Err(error);
        };
        tracing::debug!(%error, retry = self.count.saturating_add(1), ?pause, "retrying");
        self.count = self.count.saturating_add(1);
        tokio::select! {
            biased;
            closed = self.client.not_started() => Err(closed),
            () = tokio::time::sleep(pause) => Ok(()),
        }
    }
}
