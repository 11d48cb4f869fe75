//! Helpers for the tests of the checkers.

use std::time::Duration;

use crate::Violation;

pub(crate) const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Asserts that these violations are found. Each is expected by the start of its text: its times, its rule, and as
/// much as matters of what has broken it.
#[track_caller]
pub(crate) fn assert_found<T: AsRef<str>>(found: &[Violation], expected: impl IntoIterator<Item = T>) {
    let texts: Vec<_> = found.iter().map(ToString::to_string).collect();
    let expected: Vec<_> = expected.into_iter().map(|text| text.as_ref().to_owned()).collect();
    let are_all = texts.len() == expected.len() && texts.iter().zip(&expected).all(|(text, its)| text.starts_with(its));
    assert!(are_all, "found: {texts:#?}\nexpected: {expected:#?}");
}

/// Returns the names of the broken rules.
pub(crate) fn rules_of(found: &[Violation]) -> Vec<&'static str> {
    found.iter().map(|violation| violation.rule).collect()
}
