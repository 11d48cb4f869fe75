//! What is measured.

use std::time::Duration;

/// What the peers do, one after the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Workload {
    Alone,
    Contended,
    Drain,
    Semaphore,
    DirectSemaphore,
    ReadWrite,
    HandOff,
    /// With a network that takes time.
    AloneFar,
    ContendedFar,
    /// One client, so a lease is always free.
    FreeLease,
    FreeLeaseFar,
    SemaphoreFar,
    DirectSemaphoreFar,
}

/// How a workload's figures are read.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Target {
    /// At least so many times Curator's cycles.
    AtLeast(f64),
    /// At most so many times Curator's time.
    AtMost(f64),
}

/// What one run of a workload came to.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Outcome {
    Cycles(u64, Duration),
    Times(Vec<Duration>),
}

impl Outcome {
    /// Cycles in a second; or the median of the times, in milliseconds.
    pub(crate) fn figure(&self) -> f64 {
        match self {
            #[allow(clippy::cast_precision_loss, reason = "cycles are few")]
            Self::Cycles(cycles, elapsed) => *cycles as f64 / elapsed.as_secs_f64(),
            Self::Times(times) => {
                let times: Vec<_> = times.iter().map(|time| time.as_secs_f64() * 1e3).collect();
                median(&times)
            }
        }
    }
}

impl Workload {
    pub(crate) const ALL: [Self; 13] = [
        Self::Alone,
        Self::Contended,
        Self::Drain,
        Self::Semaphore,
        Self::DirectSemaphore,
        Self::ReadWrite,
        Self::HandOff,
        Self::AloneFar,
        Self::ContendedFar,
        Self::FreeLease,
        Self::FreeLeaseFar,
        Self::SemaphoreFar,
        Self::DirectSemaphoreFar,
    ];

    /// What each session does, however many there are and however far the server is.
    pub(crate) const fn recipe(self) -> Self {
        match self {
            Self::AloneFar | Self::ContendedFar | Self::Contended => Self::Alone,
            Self::FreeLease | Self::FreeLeaseFar | Self::SemaphoreFar => Self::Semaphore,
            Self::DirectSemaphoreFar => Self::DirectSemaphore,
            other => other,
        }
    }

    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Alone => "mutex, one client, no contention",
            Self::Contended => "mutex, 16 sessions, one path",
            Self::Drain => "300 waiters queued on one path in one session, drained",
            Self::Semaphore => "semaphore, 4 leases, 16 sessions, Curator protocol",
            Self::DirectSemaphore => "semaphore, 4 leases, 16 sessions, direct protocol",
            Self::ReadWrite => "read-write lock, 90 % reads, 16 sessions",
            Self::HandOff => "two contenders, 5 ms each way: release to next grant",
            Self::AloneFar => "mutex, one client, no contention, 5 ms each way",
            Self::ContendedFar => "mutex, 16 sessions, one path, 5 ms each way",
            Self::FreeLease => "semaphore, 4 leases, one client, so one is free",
            Self::FreeLeaseFar => "semaphore, 4 leases, one client, 5 ms each way",
            Self::SemaphoreFar => "semaphore, 4 leases, 16 sessions, Curator protocol, 5 ms each way",
            Self::DirectSemaphoreFar => "semaphore, 4 leases, 16 sessions, direct protocol, 5 ms each way",
        }
    }

    /// The word that the peers in processes of their own know it by.
    pub(crate) fn word(self) -> &'static str {
        match self.recipe() {
            Self::Drain => "drain",
            Self::Semaphore | Self::DirectSemaphore => "semaphore",
            Self::ReadWrite => "read-write",
            Self::HandOff => "hand-off",
            _ => "mutex",
        }
    }

    /// How many sessions, waiters or hand-offs.
    pub(crate) fn size(self) -> usize {
        match self {
            Self::Alone | Self::AloneFar | Self::FreeLease | Self::FreeLeaseFar => 1,
            Self::Drain => 300,
            Self::HandOff => 12,
            _ => 16,
        }
    }

    /// Whether each byte takes 5 ms to the server, and 5 ms back.
    pub(crate) const fn is_far(self) -> bool {
        matches!(
            self,
            Self::HandOff
                | Self::AloneFar
                | Self::ContendedFar
                | Self::FreeLeaseFar
                | Self::SemaphoreFar
                | Self::DirectSemaphoreFar
        )
    }

    pub(crate) fn unit(self) -> &'static str {
        if self == Self::HandOff { "ms" } else { "cycles/s" }
    }

    /// Compared with Curator's own in the same run; the direct protocol with Curator's semaphore.
    pub(crate) fn target(self) -> Target {
        match self {
            Self::Alone => Target::AtLeast(1.7),
            Self::AloneFar => Target::AtLeast(1.43),
            Self::Contended => Target::AtLeast(1.85),
            Self::ContendedFar => Target::AtLeast(1.82),
            Self::FreeLease => Target::AtLeast(2.0),
            Self::FreeLeaseFar => Target::AtLeast(2.86),
            Self::SemaphoreFar => Target::AtLeast(1.67),
            Self::DirectSemaphoreFar => Target::AtLeast(2.5),
            Self::Semaphore | Self::ReadWrite => Target::AtLeast(1.5),
            Self::Drain => Target::AtLeast(2.0),
            Self::DirectSemaphore => Target::AtLeast(3.0),
            Self::HandOff => Target::AtMost(0.45),
        }
    }
}

impl Target {
    pub(crate) fn is_met(self, ratio: f64) -> bool {
        match self {
            Self::AtLeast(least) => ratio >= least,
            Self::AtMost(most) => ratio <= most,
        }
    }

    pub(crate) fn text(self) -> String {
        match self {
            Self::AtLeast(least) => format!("at least {least}"),
            Self::AtMost(most) => format!("at most {most}"),
        }
    }
}

/// The middle one; 0 of none.
pub(crate) fn median(figures: &[f64]) -> f64 {
    quantile(figures, 0.5)
}

/// The figure that a part of them does not exceed; 0 of none.
pub(crate) fn quantile(figures: &[f64], part: f64) -> f64 {
    let mut sorted = figures.to_vec();
    sorted.sort_by(f64::total_cmp);
    #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "an index")]
    let index = ((sorted.len().max(1) - 1) as f64 * part).round() as usize;
    sorted.get(index).copied().unwrap_or_default()
}
