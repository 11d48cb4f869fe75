//! The outcome of a fault, from the terms of the candidates.

use std::time::Duration;

use curator_bench::figures::spread;

/// The time for which a candidate's flag said that it leads.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Term {
    pub(crate) from: Duration,
    /// The last look that found it; `None` while it leads.
    pub(crate) until: Option<Duration>,
}

/// The outcome of one round of one side.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Outcome {
    /// Another candidate leads: the old leader's last moment minus the next one's first, in seconds.
    Next(f64),
    /// Both lead, for so many seconds when the round ended.
    BothAtTheEnd(f64),
    /// The leader led on, apart from so many seconds.
    Kept(f64),
    /// All candidates had stopped, and one of the first ones leads again after so many seconds.
    Again(f64),
    /// None of the candidates leads when the round ends.
    NoLeader,
}

fn seconds(later: Duration, earlier: Duration) -> f64 {
    later.as_secs_f64() - earlier.as_secs_f64()
}

/// A frozen process took its last look a little before the fault.
const LOOK: Duration = Duration::from_millis(100);

/// Judges the terms of the candidates around a fault at `since`, observed until `until`.
pub(crate) fn outcome(terms: &[Vec<Term>], since: Duration, until: Duration) -> Outcome {
    let end = |term: &Term| term.until.unwrap_or(until);
    let mut all: Vec<(usize, Term)> = Vec::new();
    for (candidate, terms) in terms.iter().enumerate() {
        all.extend(terms.iter().filter(|term| end(term) + LOOK >= since).map(|term| (candidate, *term)));
    }
    all.sort_by_key(|(_, term)| term.from);
    let mut worst: Option<Outcome> = None;
    for (index, (other, later)) in all.iter().enumerate() {
        for (_, earlier) in all[..index].iter().filter(|(candidate, _)| candidate != other) {
            let both = seconds(end(earlier).min(end(later)), later.from);
            let value = seconds(end(earlier), later.from);
            let next = match (value > 0.0, earlier.until, later.until) {
                (true, None, None) => Outcome::BothAtTheEnd(both),
                (true, ..) => Outcome::Next(both),
                (false, ..) => Outcome::Next(value),
            };
            worst = Some(worst.map_or(next, |worst| worst.max(next)));
        }
    }
    let leads = all.iter().any(|(_, term)| term.until.is_none());
    match worst {
        Some(worst) => worst,
        None if !leads => Outcome::NoLeader,
        None => {
            let gaps = all.windows(2).map(|pair| seconds(pair[1].1.from, end(&pair[0].1)));
            let gap = gaps.fold(0.0, f64::max);
            // Before the fault the first candidate led.
            match all.first() {
                Some((_, first)) if first.from < since => Outcome::Kept(gap),
                Some((_, first)) => Outcome::Again(seconds(first.from, since)),
                None => Outcome::NoLeader,
            }
        }
    }
}

impl Outcome {
    /// True if two candidates led at one time.
    pub(crate) fn overlaps(self) -> bool {
        self.overlap() >= 0.0
    }

    const fn overlap(self) -> f64 {
        match self {
            Self::Next(seconds) | Self::BothAtTheEnd(seconds) => seconds,
            _ => f64::MIN,
        }
    }

    /// Returns the kind, in the order of a cell, and the seconds.
    const fn kind(self) -> (usize, f64) {
        match self {
            Self::Next(seconds) => (0, seconds),
            Self::BothAtTheEnd(seconds) => (1, seconds),
            Self::Kept(seconds) => (2, seconds),
            Self::Again(seconds) => (3, seconds),
            Self::NoLeader => (4, 0.0),
        }
    }

    fn max(self, other: Self) -> Self {
        match (self, other) {
            (Self::BothAtTheEnd(_), Self::Next(_)) => self,
            (Self::Next(_), Self::BothAtTheEnd(_)) => other,
            _ if self.overlap() >= other.overlap() => self,
            _ => other,
        }
    }
}

/// Describes the outcomes of all rounds in a cell of a table.
pub(crate) fn cell(outcomes: &[Outcome]) -> String {
    let of_kind = |kind: usize| {
        let of_kind = outcomes.iter().map(|outcome| outcome.kind()).filter(|of| of.0 == kind);
        let seconds: Vec<_> = of_kind.map(|(_, seconds)| seconds).collect();
        let range = spread(&seconds, |seconds| format!("{seconds:+.2}"));
        let text = match kind {
            _ if seconds.is_empty() => return None,
            0 => range,
            1 => format!("both lead until the end, {range}"),
            2 if seconds.iter().all(|seconds| *seconds == 0.0) => "leads on".to_owned(),
            2 => format!("leads again after {range}"),
            3 => format!("the same leads again after {range}"),
            _ => "no leader any more".to_owned(),
        };
        let share = if seconds.len() == outcomes.len() { String::new() } else { format!(" ({})", seconds.len()) };
        Some(format!("{text}{share}"))
    };
    (0..5).filter_map(of_kind).collect::<Vec<_>>().join(", ")
}
