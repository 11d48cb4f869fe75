//! The wait for one node, with a budget, over reconnects and sessions.

use std::future::Future;
use std::ops::ControlFlow;
use std::time::Duration;

use curator_framework::recipe::{Budget, RecipeClient as _};
use curator_framework::{CuratorFramework, EventType, RetryLoop, Session, WakeReason, Watch};

use crate::barriers::error::BarrierError;
use crate::standing::catch_up;

/// The result of one read.
#[derive(Debug)]
pub(super) enum Look<T> {
    /// The wait has ended.
    Done(T),
    /// The wait continues until this watch fires.
    Wait(Watch),
}

/// The condition of a wait.
pub(super) trait Awaited: Send {
    /// The result of the wait.
    type Output: Send;

    /// Reads once, and leaves a watch that fires when another read is worthwhile.
    fn look(&mut self, session: &Session) -> impl Future<Output = Result<Look<Self::Output>, BarrierError>> + Send;

    /// Returns the result if an event after the read proves it by itself. Otherwise the wait reads again.
    fn proven_by(&self, _event: EventType) -> Option<Self::Output> {
        None
    }
}

/// Waits at a barrier or latch for at most `budget`; without a budget forever. With a budget of zero it reads once.
/// Returns `None` at the end of the budget.
///
/// # Errors
///
/// * `Error::ConnectionLoss`: no connection within the connection timeout, and the retry policy gave up; or the budget
///   ended before the first reply, or without a connection.
/// * The errors of the reads.
///
/// # Cancel safety
///
/// No watch is left when the future is dropped.
pub(super) async fn wait<A: Awaited>(
    client: &CuratorFramework,
    path: &str,
    budget: Option<Duration>,
    mut awaited: A,
) -> Result<Option<A::Output>, BarrierError> {
    let limit = match budget {
        None => Budget::ENDLESS,
        Some(Duration::ZERO) => Budget::of(client.connection_timeout()),
        Some(budget) => Budget::of(budget),
    };
    let mut wait = Wait { client, path, is_single: budget == Some(Duration::ZERO), answered_in: None };
    match limit.limit(wait.run(&mut awaited)).await {
        Some(ended) => ended,
        None if wait.answered_in.is_some() && client.is_connected() => Ok(None),
        None => Err(client.no_answer(&format!("the wait for {path}")).into()),
    }
}

/// The state of a wait.
struct Wait<'a> {
    client: &'a CuratorFramework,
    /// A server catches up with this path before the first read in a later session.
    path: &'a str,
    /// The first read ends the wait.
    is_single: bool,
    /// The number of the session that has answered the last read.
    answered_in: Option<u64>,
}

impl Wait<'_> {
    async fn run<A: Awaited>(&mut self, awaited: &mut A) -> Result<Option<A::Output>, BarrierError> {
        loop {
            // A new retry loop for each session that has answered: a wait outlives any number of sessions, regardless
            // of the retry policy.
            let mut retries = self.client.retry_loop();
            let looked = loop {
                let session = retries.connected(self.path).await?;
                let looked = self.in_session(&session, &mut retries, awaited).await;
                if let Some(looked) = retries.done(looked, self.path).await? {
                    break looked;
                }
            };
            if let ControlFlow::Break(ended) = looked {
                return Ok(ended);
            }
        }
    }

    /// Reads and waits in turn, until the wait or the session ends.
    async fn in_session<A: Awaited>(
        &mut self,
        session: &Session,
        retries: &mut RetryLoop,
        awaited: &mut A,
    ) -> Result<ControlFlow<Option<A::Output>>, BarrierError> {
        if self.answered_in.is_some_and(|number| number != session.number()) {
            // A server that lags behind may not have yet what an earlier session has seen.
            catch_up(session, self.path).await?;
        }
        loop {
            let mut watch = match awaited.look(session).await? {
                Look::Done(output) => return Ok(ControlFlow::Break(Some(output))),
                Look::Wait(_) if self.is_single => return Ok(ControlFlow::Break(None)),
                Look::Wait(watch) => watch,
            };
            self.answered_in = Some(session.number());
            retries.progressed();
            let proven = match (&mut watch).await {
                WakeReason::SessionEnded(_) => return Ok(ControlFlow::Continue(())),
                WakeReason::Event(event) if follows_its_reply(session, &watch) => awaited.proven_by(event),
                _ => None,
            };
            if proven.is_some() {
                return Ok(ControlFlow::Break(proven));
            }
        }
    }
}

/// Returns `true` if the notification certainly follows the reply that set the watch: it is not about an earlier node
/// at the path. A client that does not report transactions may deliver the two in any order.
fn follows_its_reply(session: &Session, watch: &Watch) -> bool {
    session.zxid().is_some() && watch.found().is_some_and(|found| watch.fired_in() == Some(found.epoch))
}
