//! Events and metrics of the tasks that keep a session: the code behind them is the user's, and may block.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

use tracing::level_filters::LevelFilter;

use crate::sync::safe_notify::SafeNotifyExecutor;

/// The most reports that wait for a blocked log.
const MOST_WAITING: usize = 1024;

static REPORTS: LazyLock<SafeNotifyExecutor> = LazyLock::new(SafeNotifyExecutor::new);
static METRICS: LazyLock<SafeNotifyExecutor> = LazyLock::new(SafeNotifyExecutor::new);
static DROPPED: AtomicU64 = AtomicU64::new(0);

/// Runs a call of `tracing` on a thread of its own, in order. A log blocks when its pipe is full. A task that keeps a
/// session, or that wakes other tasks, must not wait for it.
///
/// The event goes to the subscriber and the span of the caller. While 1,024 reports wait, further ones are dropped, and
/// a later event counts them.
pub fn report(call: impl FnOnce() + Send + 'static) {
    if LevelFilter::current() == LevelFilter::OFF {
        return;
    }
    if REPORTS.waiting() >= MOST_WAITING {
        DROPPED.fetch_add(1, Ordering::Relaxed);
        return;
    }
    let (log, span) = (tracing::dispatcher::get_default(Clone::clone), tracing::Span::current());
    // Without a thread the report waits for the next one. An event about that could block the caller.
    let _waits = REPORTS.try_submit(move || {
        let reported = || {
            let dropped = DROPPED.swap(0, Ordering::Relaxed);
            if dropped > 0 {
                tracing::warn!(dropped, "events were dropped while the log was blocked");
            }
            span.in_scope(call);
        };
        // A log that panics must not cause a report of its own.
        let _panicked = catch_unwind(AssertUnwindSafe(|| tracing::dispatcher::with_default(&log, reported)));
    });
}

/// Runs a call of `metrics` on a thread of its own, in order, apart from the events. It is never dropped, because a gauge
/// that misses a change stays wrong.
pub fn report_metric(call: impl FnOnce() + Send + 'static) {
    // Without a thread the call waits for the next one.
    let _waits = METRICS.try_submit(call);
}
