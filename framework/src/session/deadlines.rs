//! The thread that ends sessions at their deadlines.
//!
//! One thread watches the deadlines of all sessions of the process. It runs no code of the user, and takes no lock that
//! such code can hold. So a loss does not wait for a task that computes, a runtime that no thread drives, or a blocked
//! log. The tasks of a session depend on all of these.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::environment::clock::{BootClock, Clock};
use crate::sync::panics::caught;

/// The longest sleep of the thread: its timer stops while the machine sleeps, the clock does not.
const LONGEST_SLEEP: Duration = Duration::from_secs(1);
/// The deadline of a session that has ended.
const ENDED: u64 = u64::MAX;

/// The thread of this process.
static THREAD: DeadlineThread = DeadlineThread::new();

/// The time that has passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Passed {
    /// The server has been silent for as long as the client's policy tolerates.
    Silence,
    /// The deadline: the server may end the session from now on.
    Deadline,
}

/// The call for a time that has passed. It must not block, nor run code of the user, such as the waker of a task.
type Call = Box<dyn Fn(Passed) + Send + Sync>;

/// The deadline of one session. Dropping it ends the watch.
pub(crate) struct SessionDeadline {
    watched: Arc<Watched>,
    /// The time of the boot clock at the origin of the client's clock; `None` for a clock that a test controls.
    origin: Option<i128>,
}

struct Watched {
    /// The deadline on the boot clock, in nanoseconds.
    deadline: AtomicU64,
    /// The time from silence to the deadline, in nanoseconds; 0 if silence is not an error.
    warning: AtomicU64,
    call: Call,
}

impl Watched {
    /// Returns the time that has passed at `now`, and the next one to watch. The silence before the deadline
    /// `reported` was reported already.
    fn due(&self, now: u64, reported: u64) -> (Option<Passed>, u64) {
        let deadline = self.deadline.load(Ordering::SeqCst);
        let silence = deadline - self.warning.load(Ordering::SeqCst).min(deadline);
        match deadline {
            ENDED => (None, ENDED),
            _ if now >= deadline => (Some(Passed::Deadline), deadline),
            _ if silence == deadline || reported == deadline => (None, deadline),
            _ if now >= silence => (Some(Passed::Silence), deadline),
            _ => (None, silence),
        }
    }
}

impl SessionDeadline {
    /// Watches a deadline that is not set yet. No deadline of a clock that a test controls is watched.
    pub(crate) fn watch(clock: &dyn Clock, call: Call) -> Self {
        let origin = (!clock.is_simulated()).then(|| signed(BootClock.now()) - signed(clock.now()));
        let watched = Arc::new(Watched { deadline: AtomicU64::new(ENDED - 1), warning: AtomicU64::new(0), call });
        if origin.is_some() {
            THREAD.add(Arc::clone(&watched));
        }
        Self { watched, origin }
    }

    /// Moves the deadline to this time of the client's clock. `warning` is the time from silence to the deadline, or zero
    /// if silence is not an error.
    pub(crate) fn set(&self, deadline: Duration, warning: Duration) {
        let Some(origin) = self.origin else { return };
        let deadline = u64::try_from((signed(deadline) + origin).max(0)).unwrap_or(ENDED).min(ENDED - 1);
        let warning = nanoseconds(warning);
        let Watched { deadline: current, warning: current_warning, .. } = &*self.watched;
        current_warning.store(warning, Ordering::SeqCst);
        let moved = current.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |current| {
            // The end is final.
            (current != ENDED).then_some(deadline)
        });
        if moved.is_ok() {
            THREAD.is_watched_until(deadline.saturating_sub(warning));
        }
    }

    /// Ends the watch.
    pub(crate) fn end(&self) {
        self.watched.deadline.store(ENDED, Ordering::SeqCst);
    }
}

impl Drop for SessionDeadline {
    fn drop(&mut self) {
        self.end();
    }
}

impl fmt::Debug for SessionDeadline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionDeadline").field("deadline", &self.watched.deadline).finish_non_exhaustive()
    }
}

/// One deadline that the thread watches.
struct Entry {
    watched: Arc<Watched>,
    /// The deadline before which silence was reported.
    reported: u64,
}

#[derive(Default)]
struct Entries {
    entries: Vec<Entry>,
    is_running: bool,
}

/// The thread runs while a deadline is to be watched.
struct DeadlineThread {
    entries: Mutex<Entries>,
    changed: Condvar,
    /// The time until which the thread sleeps. `ENDED` while it reads the deadlines.
    asleep_until: AtomicU64,
}

impl DeadlineThread {
    const fn new() -> Self {
        Self {
            entries: Mutex::new(Entries { entries: Vec::new(), is_running: false }),
            changed: Condvar::new(),
            asleep_until: AtomicU64::new(ENDED),
        }
    }

    fn add(&'static self, watched: Arc<Watched>) {
        let mut entries = self.entries.lock();
        entries.entries.push(Entry { watched, reported: ENDED });
        if entries.is_running {
            return;
        }
        let thread = std::thread::Builder::new().name("curator-deadlines".to_owned());
        entries.is_running = thread.spawn(|| self.run()).is_ok();
        let is_running = entries.is_running;
        drop(entries);
        if !is_running {
            tracing::error!("no thread for the deadlines of sessions; a task that computes can delay a loss");
        }
    }

    /// Wakes the thread if it would sleep past `time`.
    fn is_watched_until(&self, time: u64) {
        // The deadline was stored before. So either the thread reads it before it sleeps, or `asleep_until` is later
        // than the deadline, or is being computed.
        if time < self.asleep_until.load(Ordering::SeqCst) {
            // The thread has this lock unless it sleeps.
            drop(self.entries.lock());
            self.changed.notify_one();
        }
    }

    fn run(&self) {
        let mut entries = self.entries.lock();
        loop {
            self.asleep_until.store(ENDED, Ordering::SeqCst);
            let now = nanoseconds(BootClock.now());
            let (mut next, mut passed) = (now.saturating_add(nanoseconds(LONGEST_SLEEP)), Vec::new());
            entries.entries.retain_mut(|entry| {
                let (due, until) = entry.watched.due(now, entry.reported);
                next = next.min(until);
                if let Some(due) = due {
                    passed.push((Arc::clone(&entry.watched), due));
                    entry.reported = until;
                }
                until != ENDED && due != Some(Passed::Deadline)
            });
            if !passed.is_empty() {
                MutexGuard::unlocked(&mut entries, || {
                    for (watched, due) in passed {
                        // A panic must not end the watch of the other deadlines.
                        let _panicked = caught(|| (watched.call)(due));
                    }
                });
                continue;
            }
            if entries.entries.is_empty() {
                entries.is_running = false;
                return;
            }
            self.asleep_until.store(next, Ordering::SeqCst);
            self.changed.wait_for(&mut entries, Duration::from_nanos(next - now));
        }
    }
}

fn signed(time: Duration) -> i128 {
    i128::try_from(time.as_nanos()).unwrap_or(i128::MAX / 4)
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(ENDED - 1)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn silence_is_reported_once_for_each_deadline_and_the_deadline_ends_the_watch() {
        let watched = Watched { deadline: 100.into(), warning: 20.into(), call: Box::new(|_| {}) };
        for (now, reported, expected) in [
            (79, ENDED, (None, 80)),
            (80, ENDED, (Some(Passed::Silence), 100)),
            (99, 100, (None, 100)),
            (99, 60, (Some(Passed::Silence), 100)),
            (100, 100, (Some(Passed::Deadline), 100)),
            (100, ENDED, (Some(Passed::Deadline), 100)),
        ] {
            assert_eq!(watched.due(now, reported), expected, "{now} {reported}");
        }
        watched.warning.store(0, Ordering::SeqCst);
        assert_eq!(watched.due(99, ENDED), (None, 100));
        watched.deadline.store(ENDED, Ordering::SeqCst);
        assert_eq!(watched.due(ENDED - 1, ENDED), (None, ENDED));
    }

    fn watch(call: impl Fn(Passed) + Send + Sync + 'static) -> SessionDeadline {
        SessionDeadline::watch(&BootClock, Box::new(call))
    }

    #[test]
    fn deadline_that_moves_forward_is_noticed_in_time_beside_one_that_panics() {
        let (sender, passed) = mpsc::channel();
        let far = watch(|_| unreachable!("its deadline is an hour away"));
        far.set(BootClock.now() + Duration::from_secs(3600), Duration::ZERO);
        let panics = watch(|_| std::panic::resume_unwind(Box::new("a waker that panics")));
        let near = watch(move |due| sender.send((due, BootClock.now())).unwrap());
        near.set(BootClock.now() + Duration::from_secs(600), Duration::ZERO);
        let deadline = BootClock.now() + ms(40);
        panics.set(deadline, Duration::ZERO);
        near.set(deadline, Duration::ZERO);
        let (due, at) = passed.recv_timeout(Duration::from_secs(10)).unwrap();
        assert_eq!(due, Passed::Deadline);
        assert!(at >= deadline, "{at:?} {deadline:?}");
        drop(near);
        assert_eq!(passed.recv(), Err(mpsc::RecvError), "a deadline passes once");
    }

    #[test]
    fn dropped_deadline_does_not_pass() {
        let (sender, passed) = mpsc::channel();
        let deadline = watch(move |due| sender.send(due).unwrap());
        deadline.set(BootClock.now() + ms(30), Duration::ZERO);
        drop(deadline);
        assert_eq!(passed.recv(), Err(mpsc::RecvError));
    }
}
