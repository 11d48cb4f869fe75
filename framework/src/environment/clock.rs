//! The clock of deadlines.

use std::fmt;
use std::time::Duration;

/// A clock that never goes back. Its origin is arbitrary.
///
/// A lock's deadline counts while the machine sleeps, so the default is [`BootClock`]. Never use a wall clock.
pub trait Clock: Send + Sync + fmt::Debug + 'static {
    /// Returns the time since the clock's origin.
    fn now(&self) -> Duration;

    /// Returns `true` if the clock passes apart from the machine's time, such as the paused clock of a test. By default
    /// it does not.
    ///
    /// A thread of the framework ends each session at its deadline. It reads [`BootClock`] and never this clock, because
    /// a clock of the user may block. For a simulated clock only the client's own task ends the session.
    fn is_simulated(&self) -> bool {
        false
    }
}

/// A clock that counts while the machine sleeps, where the system has one.
///
/// | system | clock | time asleep |
/// | --- | --- | --- |
/// | Linux, Android | `CLOCK_BOOTTIME` | counts |
/// | macOS, iOS | `CLOCK_MONOTONIC`, the continuous clock | counts |
/// | Windows | [`Instant`](std::time::Instant), the performance counter | counts |
/// | others | [`Instant`](std::time::Instant) | may not count |
///
/// `Instant` stops while a Mac sleeps: it reads `CLOCK_UPTIME_RAW`.
#[derive(Debug, Clone, Copy, Default)]
pub struct BootClock;

#[cfg(any(target_os = "linux", target_os = "android", target_vendor = "apple"))]
impl Clock for BootClock {
    fn now(&self) -> Duration {
        #[cfg(target_vendor = "apple")]
        const CLOCK: rustix::time::ClockId = rustix::time::ClockId::Monotonic;
        #[cfg(not(target_vendor = "apple"))]
        const CLOCK: rustix::time::ClockId = rustix::time::ClockId::Boottime;
        let time = rustix::time::clock_gettime(CLOCK);
        Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
    }
}

#[cfg(not(any(target_os = "linux", target_os = "android", target_vendor = "apple")))]
impl Clock for BootClock {
    fn now(&self) -> Duration {
        static ORIGIN: std::sync::OnceLock<std::time::Instant> = std::sync::OnceLock::new();
        ORIGIN.get_or_init(std::time::Instant::now).elapsed()
    }
}

/// Tokio's clock, which a test can pause.
#[derive(Debug, Clone, Copy)]
pub struct TokioClock {
    origin: tokio::time::Instant,
}

impl TokioClock {
    /// Creates a clock with its origin at this call.
    #[must_use]
    pub fn new() -> Self {
        Self { origin: tokio::time::Instant::now() }
    }
}

impl Default for TokioClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for TokioClock {
    fn now(&self) -> Duration {
        self.origin.elapsed()
    }

    fn is_simulated(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boot_clock_does_not_go_back() {
        let first = BootClock.now();
        assert!(first > Duration::ZERO && BootClock.now() >= first);
    }

    #[tokio::test(start_paused = true)]
    async fn tokio_clock_follows_paused_time() {
        let clock = TokioClock::new();
        tokio::time::advance(Duration::from_secs(7)).await;
        assert_eq!(clock.now(), Duration::from_secs(7));
    }
}
