//! A broken rule, which is all that a checker returns.

use std::fmt;
use std::time::Duration;

/// A violation of a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// The name of the rule, which says what is wrong.
    pub rule: &'static str,
    /// The time from which the rule was broken.
    pub from: Duration,
    /// The time until which it was, or at which that is certain.
    pub until: Duration,
    /// The clients, nodes and values that have broken it.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rule, from, until, what } = self;
        match from == until {
            true => write!(f, "{until:?}: {rule}: {what}"),
            false => write!(f, "{from:?} to {until:?}: {rule}: {what}"),
        }
    }
}

/// The violations that a checker has found.
#[derive(Debug, Default)]
pub(crate) struct Found(pub(crate) Vec<Violation>);

impl Found {
    /// Adds a rule that is broken at a time.
    pub(crate) fn broken(&mut self, rule: &'static str, at: Duration, what: String) {
        self.broken_from(rule, at, at, what);
    }

    /// Adds a rule that is broken from one time until another.
    pub(crate) fn broken_from(&mut self, rule: &'static str, from: Duration, until: Duration, what: String) {
        self.0.push(Violation { rule, from, until, what });
    }
}
