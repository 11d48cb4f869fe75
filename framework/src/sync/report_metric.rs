//! Metrics of the tasks that keep a session: the recorder behind them is the user's, and may block.

use std::sync::LazyLock;

use crate::sync::safe_notify::SafeNotifyExecutor;

static METRICS: LazyLock<SafeNotifyExecutor> = LazyLock::new(SafeNotifyExecutor::new);

/// Runs a call of `metrics` on a thread of its own, in order, apart from the events. It is never dropped, because a gauge
/// that misses a change stays wrong.
pub fn report_metric(call: impl FnOnce() + Send + 'static) {
    // Without a thread the call waits for the next one.
    let _waits = METRICS.try_submit(call);
}
