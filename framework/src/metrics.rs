//! The only calls of the crate `metrics`: the table in the crate's documentation lists them. Without the cargo feature
//! `metrics` these functions are empty.

#![cfg_attr(not(feature = "metrics"), allow(unused_variables, reason = "without the feature the functions are empty"))]

use std::time::Duration;

use crate::state::connection_state::ConnectionState;

/// Counts a client that changes its state: from `None` when it starts, to `None` when it ends. Does not wait for the
/// recorder, because the caller keeps the session.
pub(crate) fn state_changed(before: Option<ConnectionState>, after: Option<ConnectionState>) {
    #[cfg(feature = "metrics")]
    record_apart(move || {
        for (state, change) in [(before, -1.0), (after, 1.0)] {
            if let Some(state) = state {
                metrics::gauge!("curator_connection_state", "state" => state.as_str()).increment(change);
            }
        }
    });
}

/// Counts a session that has a new connection, and does not wait for the recorder.
pub(crate) fn reconnected() {
    #[cfg(feature = "metrics")]
    record_apart(|| metrics::counter!("curator_reconnects_total").increment(1));
}

/// Records the time from the send of a request to its reply.
pub(crate) fn answered(request: &'static str, elapsed: Duration) {
    #[cfg(feature = "metrics")]
    record(|| metrics::histogram!("curator_request_seconds", "request" => request).record(elapsed));
}

/// Calls the program's recorder on a thread of its own.
#[cfg(feature = "metrics")]
fn record_apart(call: impl FnOnce() + Send + 'static) {
    crate::sync::report_metric::report_metric(move || record(call));
}

/// Calls the program's recorder. Its panic ends no task.
#[cfg(feature = "metrics")]
fn record(call: impl FnOnce()) {
    let _reported = crate::sync::user_code::catch_panic("metrics recorder", call);
}
