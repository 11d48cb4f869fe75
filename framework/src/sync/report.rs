//! Events of the tasks that keep a session: the log behind them is the user's, and may block.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

use tracing::level_filters::LevelFilter;

use crate::sync::job_queue::JobQueue;
use crate::sync::panics::caught;

/// The most reports that wait for a blocked log.
const MOST_WAITING: usize = 1024;

static REPORTS: LazyLock<JobQueue> = LazyLock::new(|| {
    // A log that panics must not cause a report of its own.
    JobQueue::new(|report| drop(caught(report)))
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

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use tracing::span::{Attributes, Id, Record};
    use tracing::{Dispatch, Event, Metadata, Subscriber};

    use super::*;

    struct Log;

    impl Subscriber for Log {
        fn enabled(&self, _: &Metadata<'_>) -> bool {
            true
        }

        fn new_span(&self, _: &Attributes<'_>) -> Id {
            Id::from_u64(1)
        }

        fn record(&self, _: &Id, _: &Record<'_>) {}

        fn record_follows_from(&self, _: &Id, _: &Id) {}

        fn event(&self, _: &Event<'_>) {
            std::panic::panic_any(Bomb);
        }

        fn enter(&self, _: &Id) {}

        fn exit(&self, _: &Id) {}
    }

    struct Bomb;

    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("in a drop");
        }
    }

    /// The log is the user's, as is what its panic throws.
    #[test]
    fn reports_go_on_behind_a_panic() {
        let (sender, receiver) = mpsc::channel();
        tracing::dispatcher::with_default(&Dispatch::new(Log), || {
            report(|| tracing::info!("on purpose"));
            report(move || sender.send(()).unwrap());
        });
        receiver.recv_timeout(Duration::from_secs(10)).unwrap();
    }
}
