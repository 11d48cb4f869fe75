//! The wait for one node, with a budget, over reconnects and sessions.

use std::future::Future;
use std::time::Duration;

use curator_framework::recipe::RecipeClient as _;
use curator_framework::{CuratorFramework, RetryLoop, Session, WakeReason, Watch};
use tokio::time::timeout;

use crate::barriers::error::BarrierError;
use crate::standing::catch_up;

/// The result of one look.
#[derive(Debug)]
pub(super) enum Look<T> {
    /// The wait is over.
    Done(T),
    /// The wait goes on until this watch fires.
    Wait(Watch),
}

/// The condition of a wait.
pub(super) trait Awaited: Send {
    /// The result of the wait.
    type Output: Send;

    /// Returns the path of the barrier or latch. A server catches up with it before the first look in a later session.
    fn path(&self) -> &str;

    /// Looks once, and leaves a watch that fires when it is worth another look.
    fn look(&mut self, session: &Session) -> impl Future<Output = Result<Look<Self::Output>, BarrierError>> + Send;

    /// Returns the result if the notification alone proves it. Otherwise the wait looks again.
    fn notified(&mut self, session: &Session, reason: WakeReason, watch: &Watch) -> Option<Self::Output>;
}

/// Waits for at most `budget`; without one for ever. With a budget of zero it looks once. Returns `None` at the end of
/// the budget.
///
/// # Errors
///
/// * `Error::ConnectionLoss`: no connection within the connection timeout, and the retry policy gave up; or the budget
///   ended before the first reply, or without a connection.
/// * Those of the looks.
///
/// # Cancel safety
///
/// No watch is left when the future is dropped.
pub(super) async fn wait<A: Awaited>(
    client: &CuratorFramework,
    budget: Option<Duration>,
    awaited: &mut A,
) -> Result<Option<A::Output>, BarrierError> {
    let mut wait = Wait { client, is_single: budget.is_some_and(|budget| budget.is_zero()), answered_in: None };
    let limit = match budget {
        None => return wait.run(awaited).await,
        Some(Duration::ZERO) => client.connection_timeout(),
        Some(budget) => budget,
    };
    match timeout(limit, wait.run(awaited)).await {
        Ok(ended) => ended,
        Err(_elapsed) if wait.answered_in.is_some() && client.is_connected() => Ok(None),
        Err(_elapsed) => Err(client.no_answer(&format!("the wait for {}", awaited.path())).into()),
    }
}

/// The state of a wait.
struct Wait<'a> {
    client: &'a CuratorFramework,
    /// The first look ends the wait.
    is_single: bool,
    /// The number of the session that has answered the last look.
    answered_in: Option<u64>,
}

/// The end of the looks in one session.
enum Ended<T> {
    Done(T),
    /// The only look has shown that the wait would go on.
    Refused,
    Session,
}

impl Wait<'_> {
    async fn run<A: Awaited>(&mut self, awaited: &mut A) -> Result<Option<A::Output>, BarrierError> {
        loop {
            // A new one for each session that has answered: a wait outlives any number of sessions, whatever the policy
            // says of their ends.
            let mut retries = self.client.retry_loop();
            loop {
                match self.in_session(&mut retries, awaited).await {
                    Ok(Ended::Done(output)) => return Ok(Some(output)),
                    Ok(Ended::Refused) => return Ok(None),
                    Ok(Ended::Session) => break,
                    Err(BarrierError::Framework(error)) => retries.failed(error.about(awaited.path())).await?,
                    Err(error) => return Err(error),
                }
            }
        }
    }

    /// Looks and waits by turns, in one session.
    async fn in_session<A: Awaited>(
        &mut self,
        retries: &mut RetryLoop,
        awaited: &mut A,
    ) -> Result<Ended<A::Output>, BarrierError> {
        let session = retries.session().await?;
        if self.answered_in.is_some_and(|number| number != session.number()) {
            // A server that lags behind may not have yet what an earlier session has seen.
            catch_up(&session, awaited.path()).await?;
        }
        loop {
            let mut watch = match awaited.look(&session).await? {
                Look::Done(output) => return Ok(Ended::Done(output)),
                Look::Wait(_) if self.is_single => return Ok(Ended::Refused),
                Look::Wait(watch) => watch,
            };
            self.answered_in = Some(session.number());
            retries.progressed();
            let reason = (&mut watch).await;
            if let WakeReason::SessionEnded(_) = reason {
                return Ok(Ended::Session);
            }
            if let Some(output) = awaited.notified(&session, reason, &watch) {
                return Ok(Ended::Done(output));
            }
        }
    }
}

/// Returns `true` if the notification certainly follows the reply that set the watch: it is not that of an earlier node
/// at the path. A client that does not report transactions may deliver the two in any order.
pub(super) fn follows_its_reply(session: &Session, watch: &Watch) -> bool {
    session.zxid().is_some() && watch.found().is_some_and(|found| watch.fired_in() == Some(found.epoch))
}
