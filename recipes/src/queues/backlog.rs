//! The known items of a queue, in the order of their delivery. Pure.

use std::collections::btree_set::BTreeSet;
use std::collections::{HashMap, HashSet, VecDeque};

use crate::queues::names::{Kind, Ordered, RETURNED};

/// The names at a queue's path. An item is ready, or apart for a reason.
#[derive(Debug)]
pub(super) struct Backlog {
    kind: Kind,
    ready: BTreeSet<Ordered>,
    apart: HashMap<Box<str>, Apart>,
    /// The number of items that wait for the lock of another consumer.
    locked: usize,
    /// The foreign names, which the owner has not taken yet.
    foreign: VecDeque<Box<str>>,
}

/// The reason why an item is not ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Apart {
    /// The owner of the backlog works on it.
    Taken,
    /// Another consumer has its lock.
    Locked,
    /// It is not an item, or cannot be decoded. The owner has reported it, or will.
    Reported,
}

impl Backlog {
    pub(super) fn new(kind: Kind) -> Self {
        Self { kind, ready: BTreeSet::new(), apart: HashMap::new(), locked: 0, foreign: VecDeque::new() }
    }

    pub(super) const fn is_in_order_of_puts(&self) -> bool {
        self.kind.is_in_order_of_puts()
    }

    /// Returns the number of ready items.
    pub(super) fn ready(&self) -> usize {
        self.ready.len()
    }

    /// Returns whether an item waits for the lock of another consumer.
    pub(super) const fn has_locked(&self) -> bool {
        self.locked > 0
    }

    /// Takes a listing of the queue's path, in place of all that was known. What is apart stays so.
    pub(super) fn listed(&mut self, names: Vec<String>) {
        let present: HashSet<&str> = names.iter().map(String::as_str).collect();
        self.apart.retain(|name, _| present.contains(&**name));
        self.locked = self.apart.values().filter(|apart| **apart == Apart::Locked).count();
        self.foreign.retain(|name| present.contains(&**name));
        drop(present);
        self.ready.clear();
        for name in names {
            self.created(&name);
        }
    }

    /// Takes the name of a node that was created.
    pub(super) fn created(&mut self, name: &str) {
        if name == RETURNED || self.apart.contains_key(name) {
            return;
        }
        if self.kind.is_item(name) {
            self.ready.insert(Ordered::new(self.kind, name));
        } else {
            self.apart.insert(name.into(), Apart::Reported);
            self.foreign.push_back(name.into());
        }
    }

    /// Takes the name of a node that was deleted.
    pub(super) fn deleted(&mut self, name: &str) {
        self.ready.remove(&Ordered::new(self.kind, name));
        if let Some(reason) = self.apart.remove(name) {
            self.locked -= usize::from(reason == Apart::Locked);
            self.foreign.retain(|foreign| &**foreign != name);
        }
    }

    /// Forgets the ready items, so that the owner lists again.
    pub(super) fn clear_ready(&mut self) {
        self.ready.clear();
    }

    /// Forgets all names: the path was deleted.
    pub(super) fn clear(&mut self) {
        *self = Self::new(self.kind);
    }

    /// Returns a foreign name, once for each.
    pub(super) fn next_foreign(&mut self) -> Option<Box<str>> {
        self.foreign.pop_front()
    }

    /// Returns the ready items that are due at this time, in order. The time is in milliseconds after 1970.
    pub(super) fn due(&self, now: i64) -> impl Iterator<Item = &str> {
        self.ready.iter().take_while(move |item| item.due() <= now).map(Ordered::name)
    }

    /// Returns the time of the first ready item, in milliseconds after 1970.
    pub(super) fn first_due(&self) -> Option<i64> {
        self.ready.first().map(Ordered::due)
    }

    /// Sets a ready item apart. Returns `false` if it is not ready.
    pub(super) fn set_apart(&mut self, name: &str, reason: Apart) -> bool {
        let was_ready = self.ready.remove(&Ordered::new(self.kind, name));
        if was_ready {
            self.apart.insert(name.into(), reason);
            self.locked += usize::from(reason == Apart::Locked);
        }
        was_ready
    }

    /// Makes an item ready again that is apart for this reason.
    pub(super) fn set_ready(&mut self, name: &str, reason: Apart) {
        if self.apart.get(name) == Some(&reason) {
            self.apart.remove(name);
            self.locked -= usize::from(reason == Apart::Locked);
            self.ready.insert(Ordered::new(self.kind, name));
        }
    }

    /// Makes each item ready again that waits for a lock which is not among these.
    pub(super) fn unlock_all_but(&mut self, locks: &HashSet<String>) {
        let is_free = |name: &str, apart: Apart| apart == Apart::Locked && !locks.contains(name);
        let free: Vec<_> = self.apart.iter().filter(|(name, apart)| is_free(name, **apart)).collect();
        let free: Vec<_> = free.into_iter().map(|(name, _)| name.clone()).collect();
        for name in free {
            self.set_ready(&name, Apart::Locked);
        }
    }
}

#[cfg(test)]
mod tests {
    use rand::rngs::SmallRng;
    use rand::seq::IndexedRandom as _;
    use rand::{Rng as _, SeedableRng as _};

    use super::*;

    const KINDS: [Kind; 4] = [Kind::Plain, Kind::Id, Kind::Priority, Kind::Delay];
    const NAMES: [&str; 9] = [
        "queue-0000000001",
        "queue-0000000002",
        "queue--2147483648",
        "queue-|b|0000000003",
        "queue-|a|0000000004",
        "queue-|00000005|0000000005",
        "queue-|00000005|0000000006",
        "queue-1000000010000000007",
        "foreign",
    ];

    /// The same as a backlog, by a list of names with their states that is sorted at each read.
    #[derive(Default)]
    struct Naive {
        names: Vec<(&'static str, Option<Apart>)>,
        unreported: Vec<&'static str>,
    }

    impl Naive {
        fn created(&mut self, kind: Kind, name: &'static str) {
            if self.names.iter().all(|(other, _)| *other != name) {
                let is_item = kind.is_item(name);
                self.names.push((name, (!is_item).then_some(Apart::Reported)));
                if !is_item {
                    self.unreported.push(name);
                }
            }
        }

        fn deleted(&mut self, name: &str) {
            self.names.retain(|(other, _)| *other != name);
            self.unreported.retain(|other| *other != name);
        }

        fn turn(&mut self, name: &str, from: Option<Apart>, to: Option<Apart>) {
            self.names.iter_mut().filter(|state| **state == (name_of(state), from)).for_each(|state| {
                if state.0 == name {
                    state.1 = to;
                }
            });
        }

        fn due(&self, kind: Kind, now: i64) -> Vec<&'static str> {
            let mut ready: Vec<_> = self
                .names
                .iter()
                .filter(|(_, apart)| apart.is_none())
                .map(|(name, _)| Ordered::new(kind, name))
                .collect();
            ready.sort();
            let due = ready.iter().filter(|item| item.due() <= now);
            due.filter_map(|item| NAMES.into_iter().find(|name| *name == item.name())).collect()
        }
    }

    fn name_of(state: &(&'static str, Option<Apart>)) -> &'static str {
        state.0
    }

    fn step(rng: &mut SmallRng, kind: Kind, backlog: &mut Backlog, naive: &mut Naive) {
        let name = *NAMES.choose(rng).unwrap();
        let reason = *[Apart::Taken, Apart::Locked, Apart::Reported].choose(rng).unwrap();
        match rng.random_range(0..9) {
            0 | 1 => {
                backlog.created(name);
                naive.created(kind, name);
            }
            2 => {
                backlog.deleted(name);
                naive.deleted(name);
            }
            3 => {
                let listed: Vec<_> = NAMES.into_iter().filter(|_| rng.random_bool(0.6)).collect();
                backlog.listed(listed.iter().map(|name| (*name).to_owned()).collect());
                NAMES.into_iter().filter(|name| !listed.contains(name)).for_each(|name| naive.deleted(name));
                listed.into_iter().for_each(|name| naive.created(kind, name));
            }
            4 | 5 => {
                let was_ready = naive.names.contains(&(name, None));
                assert_eq!(backlog.set_apart(name, reason), was_ready);
                naive.turn(name, None, Some(reason));
            }
            6 => {
                // The foreign names are never made ready.
                if kind.is_item(name) {
                    backlog.set_ready(name, reason);
                    naive.turn(name, Some(reason), None);
                }
            }
            7 if rng.random_ratio(1, 8) => {
                backlog.clear();
                *naive = Naive::default();
            }
            _ => {
                let locks: HashSet<_> = NAMES.into_iter().filter(|_| rng.random_bool(0.5)).map(str::to_owned).collect();
                backlog.unlock_all_but(&locks);
                for name in NAMES.into_iter().filter(|name| !locks.contains(*name)) {
                    naive.turn(name, Some(Apart::Locked), None);
                }
            }
        }
        if rng.random_ratio(1, 9) {
            let foreign = backlog.next_foreign();
            assert_eq!(foreign.as_deref(), naive.unreported.first().copied());
            naive.unreported.drain(..usize::from(foreign.is_some()));
        }
    }

    #[test]
    fn backlog_is_the_naive_one_after_any_steps() {
        for seed in 0..400 {
            let (mut rng, kind) = (SmallRng::seed_from_u64(seed), KINDS[usize::try_from(seed % 4).unwrap()]);
            let (mut backlog, mut naive) = (Backlog::new(kind), Naive::default());
            for _ in 0..60 {
                step(&mut rng, kind, &mut backlog, &mut naive);
                for now in [0, 4, 5, i64::MAX] {
                    assert_eq!(backlog.due(now).collect::<Vec<_>>(), naive.due(kind, now), "seed {seed}");
                }
                let ready = naive.due(kind, i64::MAX);
                assert_eq!(backlog.ready(), ready.len());
                assert_eq!(backlog.first_due(), ready.first().map(|name| Ordered::new(kind, name).due()));
                assert_eq!(backlog.has_locked(), naive.names.iter().any(|(_, apart)| *apart == Some(Apart::Locked)));
            }
        }
    }

    #[test]
    fn foreign_names_are_reported_once() {
        let mut backlog = Backlog::new(Kind::Plain);
        backlog.listed(vec!["x".to_owned(), "queue-0000000000".to_owned()]);
        backlog.listed(vec!["x".to_owned()]);
        backlog.created("x");
        assert_eq!(backlog.next_foreign().as_deref(), Some("x"));
        backlog.listed(vec!["x".to_owned()]);
        assert_eq!(backlog.next_foreign(), None);
        backlog.deleted("x");
        backlog.created("x");
        assert_eq!(backlog.next_foreign().as_deref(), Some("x"), "another node of that name");
    }
}
