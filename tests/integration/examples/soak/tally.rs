//! The actions of the players, and the faults that they have seen.

use std::collections::BTreeMap;
use std::fmt;

use parking_lot::Mutex;

/// The counts of a leg, and all violations.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    counts: Mutex<BTreeMap<&'static str, usize>>,
    violations: Mutex<usize>,
}

impl Tally {
    pub(crate) fn add(&self, what: &'static str, count: usize) {
        *self.counts.lock().entry(what).or_default() += count;
    }

    pub(crate) fn wrong(&self, what: impl fmt::Display) {
        println!("VIOLATION: {what}");
        *self.violations.lock() += 1;
    }

    pub(crate) fn is_bad(&self) -> bool {
        *self.violations.lock() > 0
    }

    /// Counts a result. Returns its value; an error has to be one that an outage causes.
    pub(crate) fn take<T, E: fmt::Display>(
        &self,
        what: &'static str,
        result: Result<T, E>,
        is_fair: impl FnOnce(&E) -> bool,
    ) -> Option<T> {
        match result {
            Ok(value) => {
                self.add(what, 1);
                Some(value)
            }
            Err(error) => {
                self.add("errors", 1);
                if !is_fair(&error) {
                    self.wrong(format!("{what}: {error}"));
                }
                None
            }
        }
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts = std::mem::take(&mut *self.counts.lock());
        let counts: Vec<_> = counts.iter().map(|(what, count)| format!("{count} {what}")).collect();
        f.write_str(&counts.join(", "))
    }
}

/// The present holder of something that one client has at a time.
#[derive(Default)]
pub(crate) struct Slot(Mutex<Option<Box<dyn Fn() -> bool + Send>>>);

impl Slot {
    /// Records a new holder. `holds` says whether it still is the holder.
    pub(crate) fn enter(&self, what: &'static str, tally: &Tally, holds: impl Fn() -> bool + Send + 'static) {
        let mut slot = self.0.lock();
        if slot.as_ref().is_some_and(|other| other()) && holds() {
            tally.wrong(format!("{what}: two at once"));
        }
        *slot = Some(Box::new(holds));
        tally.add(what, 1);
    }
}
