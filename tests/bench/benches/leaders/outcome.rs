//! The outcome of a fault, from the terms of the candidates.

use std::time::Duration;

use crate::process::Term;

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
    let mut parts = Vec::new();
    let mut add = |pick: &dyn Fn(&Outcome) -> Option<f64>, text: &dyn Fn(&[f64]) -> String| {
        let mut values: Vec<_> = outcomes.iter().filter_map(pick).collect();
        values.sort_by(f64::total_cmp);
        if !values.is_empty() {
            let share = if values.len() == outcomes.len() { String::new() } else { format!(" ({})", values.len()) };
            parts.push(format!("{}{share}", text(&values)));
        }
    };
    let range = |values: &[f64]| match (values[0], values[values.len() / 2], values[values.len() - 1]) {
        (least, _, most) if values.len() == 1 || format!("{least:+.2}") == format!("{most:+.2}") => {
            format!("{most:+.2}")
        }
        (least, median, most) => format!("{median:+.2} [{least:+.2} to {most:+.2}]"),
    };
    add(&|outcome| if let Outcome::Next(seconds) = outcome { Some(*seconds) } else { None }, &|values| range(values));
    add(&|outcome| if let Outcome::BothAtTheEnd(seconds) = outcome { Some(*seconds) } else { None }, &|values| {
        format!("both lead until the end, {}", range(values))
    });
    add(&|outcome| if let Outcome::Kept(seconds) = outcome { Some(*seconds) } else { None }, &|values| match values
        [values.len() - 1]
    {
        0.0 => "leads on".to_owned(),
        _ => format!("leads again after {}", range(values)),
    });
    add(&|outcome| if let Outcome::Again(seconds) = outcome { Some(*seconds) } else { None }, &|values| {
        format!("the same leads again after {}", range(values))
    });
    add(&|outcome| (*outcome == Outcome::NoLeader).then_some(0.0), &|_| "no leader any more".to_owned());
    parts.join(", ")
}
