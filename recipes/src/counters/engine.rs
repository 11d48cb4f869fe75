//! The combination of changes into writes. Pure: no I/O, and time is an argument.
//!
//! The first addition creates a missing node as 0 before it adds. A create that another client's create refuses leaves
//! no marker, so a lost reply to it would prove nothing. A create of 0 may be repeated.
//!
//! A failed comparison is decided by a read that was sent after the call, never by the remembered value alone: another
//! client may have changed it.

use std::collections::VecDeque;
use std::sync::Arc;

use curator_framework::RetryPolicy;
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::content::sealed::Content;
use crate::counters::effect::{Change, Effect, Stored};
use crate::counters::error::CounterError;
use crate::counters::queued::{Failure, Outcome, Queued};
use crate::counters::step::{Condition, Failed, Refusal, Step, Write};

/// The version that ZooKeeper takes for any version.
const ANY_VERSION: i32 = -1;

/// The knowledge about the node.
#[derive(Debug, Clone)]
enum Known<V> {
    Nothing,
    Missing,
    Node { stored: Stored<V>, version: i32 },
}

/// The changes in one write, in order.
#[derive(Debug)]
struct Batch<V> {
    changes: Vec<(Queued<V>, Effect<V>)>,
    value: V,
    write: Write,
    /// All changes with smaller ids were queued before the write was sent.
    mark: u64,
}

/// The changes of all tasks that share a counter.
#[derive(Debug)]
pub(super) struct Engine<V> {
    queue: VecDeque<Queued<V>>,
    flight: Option<Batch<V>>,
    known: Known<V>,
    /// The known state was read, or written, after all changes with smaller ids were queued.
    fresh_before: u64,
    next_id: u64,
}

impl<V> Default for Engine<V> {
    fn default() -> Self {
        Self { queue: VecDeque::new(), flight: None, known: Known::Nothing, fresh_before: 0, next_id: 0 }
    }
}

impl<V: Content> Engine<V> {
    /// Queues a change. Returns its id, and the channel of its outcome.
    pub(super) fn submit(
        &mut self,
        change: Change<V>,
        policy: Arc<dyn RetryPolicy>,
        now: Instant,
    ) -> (u64, oneshot::Receiver<Outcome<V>>) {
        let id = self.next_id;
        self.next_id += 1;
        let (queued, outcome) = Queued::new(id, change, policy, now);
        self.queue.push_back(queued);
        (id, outcome)
    }

    /// Takes a change back when its caller is gone. A change in flight may still be applied.
    pub(super) fn withdraw(&mut self, id: u64) {
        // Both are in the order of ids: a search, because all of many callers may give up at once.
        if let Ok(index) = self.queue.binary_search_by_key(&id, |queued| queued.id) {
            self.queue.remove(index);
        } else if let Some(batch) = &mut self.flight {
            if let Ok(index) = batch.changes.binary_search_by_key(&id, |(queued, _)| queued.id) {
                batch.changes[index].0.caller = None;
            }
        }
    }

    /// Returns the next action. It decides changes that need no write. A change to a value that is not `allowed` gets a
    /// write of its own, which the client refuses.
    pub(super) fn next(&mut self, allowed: impl Fn(&V) -> bool) -> Step {
        if let Some(batch) = &self.flight {
            return Step::Write(batch.write.clone());
        }
        loop {
            let Some(first) = self.queue.front() else { return Step::Idle };
            if let Change::Force(_) = first.change {
                return self.force(&allowed);
            }
            let (stored, condition) = match &self.known {
                Known::Nothing => return Step::Read,
                Known::Missing => (Stored::Missing, Condition::Missing),
                Known::Node { stored, version } => (stored.clone(), Condition::Version(*version)),
            };
            if let Some(step) = self.combine(stored, condition, &allowed) {
                return step;
            }
        }
    }

    /// Combines the changes up to the next forced one into a write. Returns `None` if it has decided some instead.
    fn combine(&mut self, mut stored: Stored<V>, condition: Condition, allowed: impl Fn(&V) -> bool) -> Option<Step> {
        let (mut effects, mut value) = (Vec::new(), None);
        for queued in self.queue.iter().take_while(|queued| !queued.change.is_forced()) {
            let mut effect = stored.changed_by(&queued.change);
            let mut is_last = false;
            if let Effect::Changed { post, .. } = &effect {
                if condition == Condition::Missing && queued.change.is_sum() {
                    return Some(Step::CreateZero);
                }
                is_last = queued.is_alone || !allowed(post);
                if is_last && value.is_some() {
                    break;
                }
                if condition == Condition::Version(ANY_VERSION) {
                    (effect, is_last) = (Effect::VersionsExhausted, false);
                } else {
                    stored = Stored::Value(post.clone());
                    value = Some(post.clone());
                }
            }
            effects.push(effect);
            if is_last {
                break;
            }
        }
        if let Some(value) = value {
            return Some(self.launch(effects, value, condition));
        }
        let fresh = self.queue.iter().zip(&effects).take_while(|(queued, _)| queued.id < self.fresh_before).count();
        for (queued, effect) in self.queue.drain(..fresh).zip(effects) {
            queued.end(Ok(effect));
        }
        (fresh == 0).then_some(Step::Read)
    }

    /// Combines the forced changes at the head of the queue.
    fn force(&mut self, allowed: impl Fn(&V) -> bool) -> Step {
        let (condition, mut stored) = match &self.known {
            Known::Missing => (Condition::Missing, Stored::Missing),
            Known::Nothing => (Condition::Exists, Stored::Foreign(0)),
            Known::Node { stored, .. } => (Condition::Exists, stored.clone()),
        };
        let mut effects = Vec::new();
        let mut value = V::default();
        for queued in &self.queue {
            let Change::Force(new) = &queued.change else { break };
            let is_last = queued.is_alone || !allowed(new);
            if is_last && !effects.is_empty() {
                break;
            }
            effects.push(stored.changed_by(&queued.change));
            (stored, value) = (Stored::Value(new.clone()), new.clone());
            if is_last {
                break;
            }
        }
        self.launch(effects, value, condition)
    }

    fn launch(&mut self, effects: Vec<Effect<V>>, value: V, condition: Condition) -> Step {
        let (queued, fresh_before) = (self.queue.drain(..effects.len()), self.fresh_before);
        let counted = |mut queued: Queued<V>| {
            (queued.tries, queued.is_fresh) = (queued.tries.saturating_add(1), queued.id < fresh_before);
            queued
        };
        let changes = queued.map(counted).zip(effects).collect();
        let write = Write { data: value.to_data(), condition };
        self.flight = Some(Batch { changes, value, write: write.clone(), mark: self.next_id });
        Step::Write(write)
    }

    /// Returns a mark for a read that is about to be sent.
    pub(super) const fn mark(&self) -> u64 {
        self.next_id
    }

    /// Records the reply to a read: the node's content and version, or `None` if it does not exist.
    pub(super) fn was_read(&mut self, mark: u64, found: Option<(Stored<V>, i32)>) {
        self.known = match found {
            Some((stored, version)) => Known::Node { stored, version },
            None => Known::Missing,
        };
        self.fresh_before = mark;
    }

    /// Makes the next change start with a read. Returns the version that was known.
    pub(super) fn forget(&mut self) -> Option<i32> {
        let version = self.version();
        if self.flight.is_none() {
            self.known = Known::Nothing;
        }
        version
    }

    /// Returns the version that is known.
    pub(super) const fn version(&self) -> Option<i32> {
        match self.known {
            Known::Node { version, .. } => Some(version),
            _ => None,
        }
    }

    /// Returns `true` if a caller awaits the write in flight.
    pub(super) fn is_awaited(&self) -> bool {
        let mut in_flight = self.flight.iter().flat_map(|batch| &batch.changes);
        in_flight.any(|(queued, _)| queued.caller.is_some())
    }

    /// Records that the write in flight is applied. `version` is the node's version after it, if it is known.
    pub(super) fn applied(&mut self, version: Option<i32>) {
        let Some(batch) = self.flight.take() else { return };
        self.known = match version {
            Some(version) => Known::Node { stored: Stored::Value(batch.value), version },
            None => Known::Nothing,
        };
        self.fresh_before = batch.mark;
        for (queued, effect) in batch.changes {
            queued.end(Ok(effect));
        }
    }

    /// Records that the condition of the write in flight did not hold, so it is not applied. Its changes are combined
    /// again, unless their retry policies give up.
    pub(super) fn refused(&mut self, refusal: Refusal, now: Instant, random: f64) {
        let Some(batch) = self.flight.take() else { return };
        self.known = match refusal {
            Refusal::Missing => Known::Missing,
            Refusal::Changed | Refusal::Outdated => Known::Nothing,
        };
        if refusal == Refusal::Missing {
            self.fresh_before = batch.mark;
        }
        for (mut queued, _) in batch.changes.into_iter().rev() {
            // A forced change is refused only when the node was just created or deleted.
            let is_forced = queued.change.is_forced();
            let is_free = is_forced || !queued.is_fresh || refusal == Refusal::Outdated;
            let goes_on = is_free || queued.patience.allows(now, random);
            if refusal == Refusal::Outdated {
                queued.tries = queued.tries.saturating_sub(1);
            }
            match (queued.caller.is_some(), goes_on) {
                (false, _) => {}
                (true, true) => self.queue.push_front(queued),
                (true, false) => queued.end(Err(Failure::Contended)),
            }
        }
    }

    /// Ends the changes of the write in flight with an error.
    pub(super) fn flight_failed(&mut self, error: &CounterError) {
        let Some(batch) = self.flight.take() else { return };
        self.known = Known::Nothing;
        for (queued, _) in batch.changes {
            queued.end(Err(Failure::Error(error.clone())));
        }
    }

    /// Gives each change of the write in flight a write of its own. Returns `false` if it has only one.
    pub(super) fn part_flight(&mut self) -> bool {
        let Some(batch) = self.flight.take_if(|batch| batch.changes.len() > 1) else { return false };
        for (mut queued, _) in batch.changes.into_iter().rev() {
            (queued.is_alone, queued.tries) = (true, queued.tries.saturating_sub(1));
            if queued.caller.is_some() {
                self.queue.push_front(queued);
            }
        }
        true
    }

    /// Ends changes in the queue with the error of a step.
    pub(super) fn queue_failed(&mut self, failed: Failed, error: &CounterError) {
        let reading = |queued: &&Queued<V>| match failed {
            Failed::Before(mark) => queued.id < mark,
            Failed::Reading | Failed::Sums => !queued.change.is_forced(),
        };
        let reached = self.queue.iter().take_while(reading).count();
        let mut others = VecDeque::new();
        for queued in self.queue.drain(..reached) {
            match failed == Failed::Sums && !queued.change.is_sum() {
                true => others.push_back(queued),
                false => queued.end(Err(Failure::Error(error.clone()))),
            }
        }
        others.append(&mut self.queue);
        self.queue = others;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use curator_framework::{RetryForever, RetryNTimes};

    use super::*;

    type Outcomes = Vec<oneshot::Receiver<Outcome<i64>>>;

    fn engine() -> Engine<i64> {
        Engine::default()
    }

    fn patient() -> Arc<dyn RetryPolicy> {
        Arc::new(RetryForever::new(Duration::from_millis(1)).unwrap())
    }

    fn submit(engine: &mut Engine<i64>, changes: impl IntoIterator<Item = Change<i64>>) -> Outcomes {
        let submit = |change| engine.submit(change, patient(), Instant::now()).1;
        changes.into_iter().map(submit).collect()
    }

    fn write(value: i64, condition: Condition) -> Step {
        Step::Write(Write { data: value.to_data(), condition })
    }

    fn read(engine: &mut Engine<i64>, value: i64, version: i32) {
        engine.was_read(engine.mark(), Some((Stored::Value(value), version)));
    }

    /// The effects of the changes that are decided.
    fn effects(outcomes: &mut Outcomes) -> Vec<Effect<i64>> {
        outcomes
            .iter_mut()
            .filter_map(|outcome| outcome.try_recv().ok())
            .map(|outcome| outcome.result.unwrap())
            .collect()
    }

    fn set(pre: i64, post: i64) -> Effect<i64> {
        Effect::Changed { pre, post }
    }

    #[test]
    fn changes_are_combined_in_order_with_their_own_values() {
        let mut engine = engine();
        let cas = |expected, new| Change::CompareAndSet { expected, new };
        let changes =
            [Change::Add(2), cas(7, 9), cas(7, 8), Change::Add(i64::MAX), Change::Subtract(1), Change::Set(3)];
        let mut outcomes = submit(&mut engine, changes);
        assert_eq!(engine.next(|_| true), Step::Read);
        read(&mut engine, 5, 4);
        assert_eq!(engine.next(|_| true), write(3, Condition::Version(4)));
        assert_eq!(engine.next(|_| true), write(3, Condition::Version(4)), "the same until it is settled");
        let mut later = submit(&mut engine, [Change::Add(1)]);
        assert!(effects(&mut outcomes).is_empty());
        engine.applied(Some(5));
        let overflow = Effect::Overflow { value: 9, delta: i64::MAX.into() };
        assert_eq!(effects(&mut outcomes), [set(5, 7), set(7, 9), Effect::Differs(9), overflow, set(9, 8), set(8, 3)]);
        assert_eq!(engine.next(|_| true), write(4, Condition::Version(5)), "without a read");
        engine.applied(Some(6));
        assert_eq!(effects(&mut later), [set(3, 4)]);
        assert_eq!(engine.next(|_| true), Step::Idle);
    }

    #[test]
    fn change_without_a_write_is_decided_by_a_read_after_its_call() {
        let mut engine = engine();
        read(&mut engine, 5, 4);
        let mut first = submit(&mut engine, [Change::CompareAndSet { expected: 1, new: 2 }]);
        assert_eq!(engine.next(|_| true), Step::Read, "the known value may be too old");
        let mark = engine.mark();
        let mut second = submit(&mut engine, [Change::Initialize(3)]);
        engine.was_read(mark, Some((Stored::Value(6), 5)));
        assert_eq!(engine.next(|_| true), Step::Read);
        assert_eq!((effects(&mut first), effects(&mut second)), (vec![Effect::Differs(6)], Vec::new()));
        engine.was_read(engine.mark(), None);
        assert_eq!(engine.next(|_| true), write(3, Condition::Missing));
        engine.applied(Some(0));
        assert_eq!(effects(&mut second), [set(0, 3)]);
    }

    #[test]
    fn missing_node_compares_with_nothing_until_a_change_creates_it() {
        let mut engine = engine();
        let cas = || Change::CompareAndSet { expected: 0, new: 2 };
        let mut outcomes = submit(&mut engine, [cas(), Change::Set(0), cas(), Change::Initialize(7)]);
        engine.was_read(engine.mark(), None);
        assert_eq!(engine.next(|_| true), write(2, Condition::Missing));
        engine.applied(Some(0));
        assert_eq!(effects(&mut outcomes), [Effect::Missing, set(0, 0), set(0, 2), Effect::Exists]);
    }

    #[test]
    fn missing_node_is_created_as_0_before_a_sum_is_written() {
        for sum in [Change::Add(5), Change::Subtract(-5)] {
            let mut engine = engine();
            let mut outcomes = submit(&mut engine, [Change::Initialize(7), sum, Change::Force(1)]);
            engine.was_read(engine.mark(), None);
            assert_eq!(engine.next(|_| true), Step::CreateZero);
            engine.was_read(engine.mark(), Some((Stored::Value(0), 0)));
            assert_eq!(engine.next(|_| true), write(5, Condition::Version(0)));
            engine.applied(Some(1));
            assert_eq!(effects(&mut outcomes), [Effect::Exists, set(0, 5)]);
        }
    }

    #[test]
    fn other_data_and_the_last_version_refuse_all_but_a_forced_value() {
        for (stored, version) in [(Stored::Foreign(3), 4), (Stored::Value(5), -1)] {
            let mut engine = engine();
            let mut outcomes = submit(&mut engine, [Change::Add(1), Change::Force(8), Change::Force(9)]);
            engine.was_read(engine.mark(), Some((stored.clone(), version)));
            assert_eq!(engine.next(|_| true), write(9, Condition::Exists));
            let refused = if version == -1 { Effect::VersionsExhausted } else { Effect::NotANumber { length: 3 } };
            assert_eq!(effects(&mut outcomes), [refused]);
            engine.applied(Some(version.wrapping_add(1)));
            assert_eq!(effects(&mut outcomes).len(), 2);
        }
    }

    #[test]
    fn forced_value_needs_no_read_and_creates_a_missing_node() {
        let mut engine = engine();
        let mut outcomes = submit(&mut engine, [Change::Force(8), Change::Add(1)]);
        assert_eq!(engine.next(|_| true), write(8, Condition::Exists));
        engine.refused(Refusal::Missing, Instant::now(), 0.0);
        assert_eq!(engine.next(|_| true), write(8, Condition::Missing));
        engine.applied(None);
        assert_eq!(effects(&mut outcomes).len(), 1);
        assert_eq!(engine.next(|_| true), Step::Read);
    }

    #[test]
    fn refused_changes_are_combined_anew_until_their_policies_give_up() {
        let (mut engine, now) = (engine(), Instant::now());
        let policy = |retries, pause| Arc::new(RetryNTimes::new(retries, Duration::from_millis(pause)));
        read(&mut engine, 5, 4);
        let mut short = engine.submit(Change::Add(1), policy(1, 0), now).1;
        let mut long = engine.submit(Change::Add(10), policy(1, 50), now).1;
        let mut values = Vec::new();
        for (version, at) in [(4, 0), (5, 0), (6, 10), (7, 49), (8, 51)] {
            if version > 4 {
                assert_eq!(engine.next(|_| true), Step::Read);
                read(&mut engine, 100, version);
            }
            let Step::Write(write) = engine.next(|_| true) else { panic!("a write") };
            assert_eq!(write.condition, Condition::Version(version));
            values.push(i64::from_data(&write.data).unwrap());
            engine.refused(Refusal::Changed, now + Duration::from_millis(at), 0.0);
        }
        // The first try rests on a state of before the calls, and is not counted. In its pause a policy does not count.
        assert_eq!(values, [16, 111, 111, 110, 110]);
        let ends = [short.try_recv().unwrap(), long.try_recv().unwrap()];
        assert!(ends.iter().all(|end| matches!(end.result, Err(Failure::Contended))), "{ends:?}");
        assert_eq!(ends.map(|end| end.tries), [3, 5]);
        assert_eq!(engine.next(|_| true), Step::Idle);
    }

    #[test]
    fn withdrawn_change_is_not_sent_unless_it_is_in_flight() {
        let mut engine = engine();
        read(&mut engine, 0, 0);
        let now = Instant::now();
        let (first, _first) = engine.submit(Change::Add(1), patient(), now);
        let (second, mut outcome) = engine.submit(Change::Add(10), patient(), now);
        engine.withdraw(first);
        assert_eq!(engine.next(|_| true), write(10, Condition::Version(0)));
        let (third, _third) = engine.submit(Change::Add(100), patient(), now);
        engine.withdraw(third);
        assert!(engine.is_awaited());
        engine.withdraw(second);
        assert!(!engine.is_awaited());
        assert_eq!(engine.next(|_| true), write(10, Condition::Version(0)));
        engine.refused(Refusal::Changed, now, 0.0);
        assert_eq!(engine.next(|_| true), Step::Idle);
        assert!(outcome.try_recv().is_err());
    }

    #[test]
    fn failure_of_the_driver_ends_what_has_waited_as_long() {
        let mut engine = engine();
        let mut first = submit(&mut engine, [Change::Add(1)]);
        let began = engine.mark();
        let mut second = submit(&mut engine, [Change::Add(2)]);
        let error = CounterError::Framework(curator_framework::Error::Closed);
        engine.queue_failed(Failed::Before(began), &error);
        assert!(matches!(first[0].try_recv().unwrap().result, Err(Failure::Error(_))));
        assert!(second[0].try_recv().is_err());
        read(&mut engine, 0, 0);
        assert_eq!(engine.next(|_| true), write(2, Condition::Version(0)));
        engine.flight_failed(&error);
        assert!(matches!(second[0].try_recv().unwrap().result, Err(Failure::Error(_))));
        assert_eq!(engine.next(|_| true), Step::Idle);
    }
}
