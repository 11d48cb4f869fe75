//! The only calls of the crate `metrics`: the table in the crate's documentation lists them. Without the cargo feature
//! `metrics` these functions are empty.

#![cfg_attr(not(feature = "metrics"), allow(unused_variables, reason = "without the feature the functions are empty"))]

use std::time::Duration;

use curator_framework::LossReason;

use crate::engine::label::Label;

/// Counts an acquire that has ended.
pub(crate) fn acquire_ended(label: &Label, outcome: &'static str, wait: Duration) {
    #[cfg(feature = "metrics")]
    record(|| {
        metrics::histogram!("curator_lock_wait_seconds", "lock" => lock(label), "outcome" => outcome).record(wait);
        match outcome {
            "timeout" => metrics::counter!("curator_lock_timeouts_total", "lock" => lock(label)).increment(1),
            "cancelled" => metrics::counter!("curator_lock_cancellations_total", "lock" => lock(label)).increment(1),
            "error" => metrics::counter!("curator_lock_errors_total", "lock" => lock(label)).increment(1),
            // `granted` counts these.
            _ => {}
        }
    });
}

/// An acquire that is counted while it waits in the process.
pub(crate) struct Waiting<'a>(&'a Label);

impl<'a> Waiting<'a> {
    pub(crate) fn new(label: &'a Label) -> Self {
        waits(label);
        Self(label)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        waits_no_more(self.0);
    }
}

/// Counts an acquire that waits in a batch.
pub(crate) fn waits(label: &Label) {
    #[cfg(feature = "metrics")]
    record(|| metrics::gauge!("curator_lock_waiting", "lock" => lock(label)).increment(1.0));
}

/// Counts the end of a wait in a batch.
pub(crate) fn waits_no_more(label: &Label) {
    #[cfg(feature = "metrics")]
    record(|| metrics::gauge!("curator_lock_waiting", "lock" => lock(label)).decrement(1.0));
}

/// Counts a hold that starts.
pub(crate) fn granted(label: &Label) {
    #[cfg(feature = "metrics")]
    record(|| {
        metrics::counter!("curator_locks_granted_total", "lock" => lock(label)).increment(1);
        metrics::gauge!("curator_lock_held", "lock" => lock(label)).increment(1.0);
    });
}

/// Counts a hold that ends without a loss.
pub(crate) fn ended(label: &Label) {
    #[cfg(feature = "metrics")]
    record(|| metrics::gauge!("curator_lock_held", "lock" => lock(label)).decrement(1.0));
}

/// Counts a hold that a loss ends. Does not wait for the recorder, because the caller reacts to the loss.
pub(crate) fn lost(label: &Label, reason: LossReason) {
    #[cfg(feature = "metrics")]
    {
        let (lock, reason) = (lock(label), short(reason));
        curator_framework::recipe::report_metric(move || {
            record(|| {
                metrics::gauge!("curator_lock_held", "lock" => lock.clone()).decrement(1.0);
                metrics::counter!("curator_locks_lost_total", "lock" => lock, "reason" => reason).increment(1);
            });
        });
    }
}

#[cfg(feature = "metrics")]
fn lock(label: &Label) -> metrics::SharedString {
    label.name.clone().map_or(label.recipe.into(), Into::into)
}

#[cfg(feature = "metrics")]
fn short(reason: LossReason) -> &'static str {
    use curator_framework::SessionEnd;

    match reason {
        LossReason::NodeDeleted => "node_deleted",
        LossReason::ConnectionError => "connection_error",
        LossReason::Session(SessionEnd::Expired | SessionEnd::DeadlinePassed) => "session_expired",
        LossReason::Session(SessionEnd::Closed) => "client_closed",
        _ => "session_failed",
    }
}

/// Calls the program's recorder. Its panic ends no task.
#[cfg(feature = "metrics")]
fn record(call: impl FnOnce()) {
    // The framework has reported it.
    let _reported = curator_framework::recipe::catch_panic("metrics recorder", call);
}
