//! Events of the tasks that keep a session: the log behind them is the user's, and may block.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

use tracing::level_filters::LevelFilter;

use crate::sync::job_queue::JobQueue;

/// The most reports that wait for a blocked log.
const MOST_WAITING: usize = 1024;

static REPORTS: LazyLock<JobQueue> = LazyLock::new(|| {
    // A log that panics must not cause a report of its own.
    JobQueue::new(|report| drop(catch_unwind(AssertUnwindSafe(report))))
});
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
    let _waits = REPORTS.submit(move || {
        let reported = || {
            let dropped = DROPPED.swap(0, Ordering::Relaxed);
            if dropped > 0 {
                tracing::warn!(dropped, "events were dropped while the log was blocked");
            }
            span.in_scope(call);
        };
        tracing::dispatcher::with_default(&log, reported);
    });
}
