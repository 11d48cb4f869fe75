//! Attempts at jobs, and the pauses between them.

use std::sync::Arc;
use std::time::Duration;

use super::delete::try_clean;
use super::due_queue::HeldTask;
use super::held_node::{touch, watch_held_node};
use super::jobs::{Attempt, DueJob, OpenDeletes};
use super::pending::PendingDelete;
use crate::error::{Chain, Error};
use crate::session::Session;
use crate::sync::report::report;

/// The pause before a job is tried again for the first time. Each further pause is twice as long.
pub(super) const RETRY_PAUSE: Duration = Duration::from_millis(50);
/// The longest pause is this part of the session timeout.
const LONGEST_PAUSE: u32 = 8;

/// Makes an attempt at a job. Returns it for another attempt after every error that does not show the job to be done. A
/// permission may be given back, and an unknown code may mean a temporary state.
pub(super) async fn attempt_once(session: Session, attempt: Attempt, cleaning: Arc<OpenDeletes>) -> Option<Attempt> {
    let Attempt { job, failures, .. } = attempt;
    // Before the attempt: one that fails for want of a connection is repeated at once on the next connection.
    let epoch = session.epoch();
    let outcome = match &job {
        DueJob::Delete(remains) => try_clean(&session, remains).await,
        DueJob::Held(node, HeldTask::Touch(data)) => touch(&session, node, data).await,
        DueJob::Held(node, _) => watch_held_node(&session, node).await,
    };
    let is_delete = matches!(job, DueJob::Delete(_));
    let error = match outcome {
        Err(error) if is_delete || session.end_reason().is_none() => error,
        _ => {
            if is_delete {
                cleaning.done();
            }
            return None;
        }
    };
    // The first refusal is reported, and not the repetitions.
    let is_refused = !error.is_retryable() && session.end_reason().is_none();
    match &job {
        DueJob::Delete(remains) if is_refused && remains.is_over(&error, failures) => {
            cleaning.done();
            cannot_delete(&session, error, remains, false);
            return None;
        }
        _ if !is_refused || failures > 0 => {}
        // The node blocks every contender behind it until it is deleted.
        DueJob::Delete(remains) => cannot_delete(&session, error, remains, true),
        DueJob::Held(node, how) => {
            let path = node.upgrade()?.path.clone();
            let is_touch = matches!(how, HeldTask::Touch(_));
            let what = if is_touch { "a waiter cannot be signalled" } else { "the node of a guard cannot be watched" };
            unhandled(&session, what, &error);
            report(move || match is_touch {
                true => tracing::warn!(error = %Chain(&error), path = &*path, "a waiter cannot be signalled"),
                false => {
                    tracing::warn!(error = %Chain(&error), path = &*path, "the node of a guard cannot be watched")
                }
            });
        }
    }
    Some(Attempt { job, failures: failures.saturating_add(1), epoch })
}

/// Tells the program of an error that no caller gets.
fn unhandled(session: &Session, what: &'static str, error: &Error) {
    let error = error.clone();
    session.inner.unhandled_errors.notify(move |listener| listener(what, &error));
}

fn cannot_delete(session: &Session, error: Error, remains: &PendingDelete, tried_again: bool) {
    unhandled(session, "a node cannot be deleted", &error);
    let remains = remains.clone();
    report(move || tracing::warn!(error = %Chain(&error), ?remains, tried_again, "a node cannot be deleted"));
}

/// Returns the pause behind this number of failed attempts.
fn pause_behind(failures: u32, session_timeout: Duration) -> Duration {
    let doubled = RETRY_PAUSE.saturating_mul(1 << failures.saturating_sub(1).min(20));
    doubled.min(session_timeout / LONGEST_PAUSE)
}

/// Waits before the next attempt at a job, no longer than until the next connection or the end of the session.
pub(super) async fn pause(session: Session, attempt: Attempt) -> Attempt {
    tokio::select! {
        _ = session.ended() => {}
        () = session.epoch_above(attempt.epoch) => {}
        () = tokio::time::sleep(pause_behind(attempt.failures, session.timeout())) => {
            // The end of the session ends the wait too, and then the attempt fails.
            let _connected = session.connected().await;
        }
    }
    attempt
}
