//! The check of the events of a latch.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::time::Duration;

use curator_test::nodes::Change;

use super::{Call, Event, Latches, Rules};
use crate::timeline;
use crate::violation::Found;

const WRONG_COUNTS: &str = "a wrong number of counts";

/// One round of the latch.
struct Round {
    number: u64,
    needs: u32,
    from: Duration,
    /// `None` while it is the newest one and the latch exists.
    until: Option<Duration>,
    /// The counts, each with its time.
    counts: BTreeMap<String, Duration>,
    opened: Option<Duration>,
    /// A call has said that it has set this count.
    claimed: bool,
}

impl Round {
    fn lasted(&self, from: Duration, until: Duration) -> bool {
        self.from <= until && self.until.is_none_or(|end| end >= from)
    }

    /// Returns the smallest and the largest number of remaining counts in a time. Counts at its start may have
    /// followed it.
    fn remaining(&self, from: Duration, until: Duration) -> RangeInclusive<u32> {
        let remaining = |is_made: &dyn Fn(Duration) -> bool| {
            let counts = self.counts.values().filter(|time| is_made(**time)).count();
            self.needs.saturating_sub(u32::try_from(counts).unwrap_or(u32::MAX))
        };
        remaining(&|time| time <= until)..=remaining(&|time| time < from)
    }
}

pub(super) struct Checker<'a> {
    rules: &'a Rules,
    history: &'a Latches,
    rounds: Vec<Round>,
    /// Each with its start, its operation, and the count that it sets.
    calls: BTreeMap<Call, (Duration, Option<String>, u32)>,
    ids: BTreeSet<String>,
    /// The number of calls without an operation id that may still make a count.
    unnamed: usize,
    /// The rounds that the newest transactions have opened, with their times.
    opened: Vec<(u64, Duration)>,
    found: Found,
}

impl<'a> Checker<'a> {
    pub(super) fn new(rules: &'a Rules, history: &'a Latches) -> Self {
        Self {
            rules,
            history,
            rounds: Vec::new(),
            calls: BTreeMap::new(),
            ids: BTreeSet::new(),
            unnamed: 0,
            opened: Vec::new(),
            found: Found::default(),
        }
    }
}

impl<'a> timeline::Checker<'a, Event> for Checker<'a> {
    fn apply(&mut self, at: Duration, event: &'a Event) -> bool {
        if !matches!(event, Event::Server(_)) {
            self.look_at_opened();
        }
        match event {
            Event::Server(change) => {
                self.look_at_the_nodes(at, change);
                true
            }
            Event::SetsCount(call, count) => self.calls.insert(*call, (at, None, *count)).is_none(),
            Event::Counts(call, id) => {
                match id {
                    Some(id) => drop(self.ids.insert(id.clone())),
                    None => self.unnamed += 1,
                }
                self.calls.insert(*call, (at, id.clone(), 0)).is_none()
            }
            Event::Reads(call) | Event::Waits(call) => self.calls.insert(*call, (at, None, 0)).is_none(),
            Event::SetCount(call, by_this) => self.ends(*call, |its, call| its.set(at, call, *by_this)),
            Event::Counted(call, remaining) => self.ends(*call, |its, mut call| {
                // A count is a write: it belongs to a round of the present.
                call.behind = call.since;
                its.counted(at, &call);
                its.shows(at, &call, *remaining);
            }),
            Event::Shows(call, remaining) => self.ends(*call, |its, call| its.shows(at, &call, *remaining)),
            Event::Waited(call, passed) => self.ends(*call, |its, call| its.waited(at, &call, *passed)),
            Event::Gone(call) => self.calls.remove(call).is_some(),
        }
    }

    fn at_time(&mut self, now: Duration) {
        if self.opened.iter().any(|(_, time)| *time < now) {
            self.look_at_opened();
        }
    }

    fn found(&mut self) -> &mut Found {
        &mut self.found
    }
}

impl Checker<'_> {
    fn look_at_the_nodes(&mut self, at: Duration, change: &Change) {
        let (Change::Created { path, .. } | Change::DataChanged { path, .. } | Change::Deleted { path, .. }) = change;
        let Some(below) = path.strip_prefix(&self.rules.path) else { return };
        match (below, change) {
            ("", Change::Created { node, .. }) => self.begins(at, &node.data),
            ("", Change::DataChanged { data, .. }) => self.begins(at, data),
            ("", Change::Deleted { .. }) => self.end_of_round(at),
            (_, Change::Created { .. }) => {
                let parts: Vec<_> = below.split('/').collect();
                let ["", number, name] = parts[..] else { return };
                if let Ok(number) = number.parse() {
                    self.creates(at, (number, name), path);
                }
            }
            _ => {}
        }
    }

    /// Notes the data of the latch's node.
    fn begins(&mut self, at: Duration, data: &[u8]) {
        let text = String::from_utf8_lossy(data);
        if text.is_empty() {
            // The node was created as a parent.
            return;
        }
        let parts: Vec<_> = text.split(' ').collect();
        let (number, needs, is_open) = match parts[..] {
            [number, needs, _] => (number, needs, false),
            [number, needs, _, "open"] => (number, needs, true),
            _ => return self.found.broken("unknown data", at, text.into_owned()),
        };
        let (Ok(number), Ok(needs)) = (number.parse(), needs.parse()) else {
            return self.found.broken("unknown data", at, text.into_owned());
        };
        if let Some(newest) = self.newest().filter(|newest| newest.number == number) {
            if is_open && newest.opened.is_none() {
                newest.opened = Some(at);
                self.opened.push((number, at));
            }
            return;
        }
        self.end_of_round(at);
        let (until, counts, opened, claimed) = (None, BTreeMap::new(), None, false);
        self.rounds.push(Round { number, needs, from: at, until, counts, opened, claimed });
    }

    fn newest(&mut self) -> Option<&mut Round> {
        self.rounds.last_mut().filter(|round| round.until.is_none())
    }

    fn end_of_round(&mut self, at: Duration) {
        let Some(round) = self.newest() else { return };
        round.until = Some(at);
        let Round { number, needs, opened, .. } = *round;
        let counts = round.counts.len();
        if opened.is_none() {
            self.found.broken(WRONG_COUNTS, at, format!("round {number} has {counts} of {needs}"));
        }
    }

    fn creates(&mut self, at: Duration, (number, name): (u64, &str), path: &str) {
        let Some(round) = self.newest().filter(|newest| newest.number == number) else { return };
        round.counts.insert(name.to_owned(), at);
        let (counts, needs) = (round.counts.len(), round.needs);
        if counts > needs as usize {
            self.found.broken(WRONG_COUNTS, at, format!("round {number} has {counts} of {needs}"));
        }
        if !self.ids.contains(name) {
            match self.unnamed.checked_sub(1) {
                Some(unnamed) => self.unnamed = unnamed,
                None => self.found.broken("a count of no call", at, path.to_owned()),
            }
        }
    }

    /// Checks the rounds that were opened: by now all changes of their transactions are known, in any order.
    fn look_at_opened(&mut self) {
        for (number, at) in std::mem::take(&mut self.opened) {
            let Some(round) = self.rounds.iter().rfind(|round| round.number == number) else { continue };
            let (counts, needs) = (round.counts.len(), round.needs);
            if counts < needs as usize {
                self.found.broken(WRONG_COUNTS, at, format!("round {number} has {counts} of {needs}"));
            }
        }
    }

    /// Ends a call. Returns `false` if it has not started.
    fn ends(&mut self, call: Call, look: impl FnOnce(&mut Self, Ended)) -> bool {
        let Some((since, id, count)) = self.calls.remove(&call) else { return false };
        // The server of the client may have been behind when the call started.
        let behind = self.history.faults.seen_from(since, self.rules.behind);
        look(self, Ended { call, since, behind, id, count });
        true
    }

    fn set(&mut self, at: Duration, Ended { call, since, behind, count, .. }: Ended, by_this: bool) {
        if !by_this {
            // It existed until it was opened.
            let stood = |round: &Round| round.lasted(behind, at) && round.opened.is_none_or(|opened| opened >= behind);
            if !self.rounds.iter().any(stood) {
                self.found.broken("a refusal without a round", at, format!("{call:?}"));
            }
            return;
        }
        let is_own = |round: &&mut Round| !round.claimed && round.needs == count && round.from >= since;
        match self.rounds.iter_mut().find(is_own) {
            Some(round) => round.claimed = true,
            None => self.found.broken("a count that was not set", at, format!("{call:?}")),
        }
    }

    fn counted(&mut self, at: Duration, ended: &Ended) {
        let Some(id) = &ended.id else { return };
        let has = |round: &Round| round.counts.contains_key(id) || round.opened.is_some();
        if !self.rounds.iter().any(|round| round.lasted(ended.behind, at) && has(round)) {
            self.found.broken("an operation that did not count", at, format!("{:?}", ended.call));
        }
    }

    fn shows(&mut self, at: Duration, ended: &Ended, remaining: u32) {
        let was_so = |round: &Round| {
            round.remaining(ended.behind.max(round.from), round.until.unwrap_or(at)).contains(&remaining)
        };
        if !self.rounds.iter().any(|round| round.lasted(ended.behind, at) && was_so(round)) {
            let what = format!("{:?} reports {remaining}", ended.call);
            self.found.broken("a wrong number of remaining counts", at, what);
        }
    }

    fn waited(&mut self, at: Duration, ended: &Ended, passed: bool) {
        let call = ended.call;
        let mut rounds = self.rounds.iter().filter(|round| round.lasted(ended.behind, at));
        if passed && !rounds.any(|round| round.opened.is_some()) {
            self.found.broken("a wait that passed early", at, format!("{call:?}"));
        } else if !passed && !rounds.any(|round| round.opened.is_none_or(|opened| opened >= ended.behind)) {
            self.found.broken("a wait that did not pass", at, format!("{call:?}"));
        }
    }
}

/// A call that ends.
struct Ended {
    call: Call,
    since: Duration,
    /// The time from which its client may have seen the server.
    behind: Duration,
    id: Option<String>,
    count: u32,
}
