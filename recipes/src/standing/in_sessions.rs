//! The loop of a standing task: one attempt after the other, each in one session, with pauses after errors.

use std::future::Future;
use std::time::Duration;

use curator_framework::recipe::RecipeError;
use curator_framework::{CuratorFramework, Error, Session};
use tokio::time::sleep;

use crate::standing::{Pauses, catch_up};

/// The work of a task in one session after the other.
pub(crate) trait InSessions {
    type Error: RecipeError;

    /// Works in this session until it ends, or until the work has to start again.
    fn work_in(&mut self, session: &Session) -> impl Future<Output = Result<(), Self::Error>> + Send;

    /// Returns the pauses after failed attempts. The work resets them.
    fn pauses(&mut self) -> &mut Pauses;

    /// Takes the error of an attempt before the pause. `may_pass` is true if waiting can fix it.
    fn failed(&mut self, error: Self::Error, may_pass: bool, pause: Duration);
}

/// Works in one session after the other until the client is closed.
pub(crate) async fn work_in_sessions<W: InSessions>(client: &CuratorFramework, work: &mut W) {
    loop {
        let worked = match client.session().await {
            Ok(session) => work.work_in(&session).await,
            Err(error) => Err(error.into()),
        };
        let Err(error) = worked else { continue };
        let (error, may_pass) = match error.into_framework() {
            Ok(Error::Closed) => return,
            Ok(error) => {
                let may_pass = may_pass(&error);
                (error.into(), may_pass)
            }
            Err(error) => (error, false),
        };
        let pause = work.pauses().after(may_pass);
        work.failed(error, may_pass, pause);
        sleep(pause).await;
    }
}

/// Returns `true` if waiting can fix the error of an attempt. The client may be started later.
pub(crate) fn may_pass(error: &Error) -> bool {
    error.is_retryable() || matches!(error, Error::NotStarted)
}

/// The session in which the task has waited until the server had all that was committed before.
#[derive(Debug, Default)]
pub(crate) struct CaughtUp(Option<u64>);

impl CaughtUp {
    /// Waits, once in each session. Returns `true` if this call has waited.
    pub(crate) async fn catch_up(&mut self, session: &Session, path: &str) -> curator_framework::Result<bool> {
        if self.0 == Some(session.number()) {
            return Ok(false);
        }
        catch_up(session, path).await?;
        self.0 = Some(session.number());
        Ok(true)
    }
}
