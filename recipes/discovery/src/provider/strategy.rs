//! The strategies that choose an instance.

use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use curator_framework::{Randomness, ThreadRandomness};
use parking_lot::Mutex;

use crate::instance::service_instance::ServiceInstance;

/// An instance that a strategy may choose.
#[derive(Debug)]
#[non_exhaustive]
pub struct Candidate<'a, P> {
    /// The name of the instance's node, unique in the service.
    pub node: &'a str,
    /// The instance.
    pub instance: &'a ServiceInstance<P>,
    /// The number of [picks](crate::Pick) of this instance by the same provider that have not been dropped.
    pub in_use: usize,
}

impl<P> Clone for Candidate<'_, P> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<P> Copy for Candidate<'_, P> {}

/// Chooses an instance for a request: Curator's `ProviderStrategy`.
pub trait ProviderStrategy<P>: Send + Sync + 'static {
    /// Returns the index of the chosen candidate; `None` if it chooses none of them. The candidates are in the order of
    /// their nodes' names. There is at least one.
    fn choose(&self, candidates: &[Candidate<'_, P>]) -> Option<usize>;
}

/// Chooses the instances one after the other: Curator's `RoundRobinStrategy`, the default.
#[derive(Debug, Default)]
#[doc(alias = "RoundRobinStrategy")]
pub struct RoundRobin {
    next: AtomicUsize,
}

impl RoundRobin {
    /// Returns the strategy.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }
}

impl<P> ProviderStrategy<P> for RoundRobin {
    fn choose(&self, candidates: &[Candidate<'_, P>]) -> Option<usize> {
        self.next.fetch_add(1, Ordering::Relaxed).checked_rem(candidates.len())
    }
}

/// A source of random numbers.
struct Dice(Box<dyn Randomness>);

impl Default for Dice {
    fn default() -> Self {
        Self(Box::new(ThreadRandomness))
    }
}

impl Dice {
    /// Returns a number below `end`; `None` if that is 0.
    fn below(&self, end: u64) -> Option<u64> {
        // The upper half of the product is below `end`, and each number as likely as the others but for one in 2^64 / end.
        let product = u128::from(self.0.next()) * u128::from(end);
        (end > 0).then(|| u64::try_from(product >> 64).unwrap_or_default())
    }
}

/// Chooses each instance with the same probability: Curator's `RandomStrategy`.
#[derive(Default)]
#[doc(alias = "RandomStrategy")]
pub struct Random {
    dice: Dice,
}

impl Random {
    /// Returns the strategy.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the strategy with another source of random numbers, for tests.
    pub fn with_randomness(randomness: impl Randomness) -> Self {
        Self { dice: Dice(Box::new(randomness)) }
    }
}

impl<P> ProviderStrategy<P> for Random {
    fn choose(&self, candidates: &[Candidate<'_, P>]) -> Option<usize> {
        let number = self.dice.below(candidates.len().try_into().unwrap_or(u64::MAX))?;
        usize::try_from(number).ok()
    }
}

impl fmt::Debug for Random {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Random").finish_non_exhaustive()
    }
}

/// Stays with one instance as long as it is a candidate, even if its data changes: Curator's `StickyStrategy`. Another
/// strategy chooses the next one.
#[derive(Debug)]
#[doc(alias = "StickyStrategy")]
pub struct Sticky<S> {
    inner: S,
    chosen: Mutex<Option<Box<str>>>,
    number: AtomicU64,
}

impl<S> Sticky<S> {
    /// Returns the strategy over another one.
    #[must_use]
    pub const fn new(inner: S) -> Self {
        Self { inner, chosen: Mutex::new(None), number: AtomicU64::new(0) }
    }

    /// Returns the number of changes of the chosen instance, the first choice among them: Curator's
    /// `getInstanceNumber`.
    pub fn instance_number(&self) -> u64 {
        self.number.load(Ordering::Relaxed)
    }
}

impl<P, S: ProviderStrategy<P>> ProviderStrategy<P> for Sticky<S> {
    fn choose(&self, candidates: &[Candidate<'_, P>]) -> Option<usize> {
        let mut chosen = self.chosen.lock();
        let kept = chosen.as_deref().and_then(|node| candidates.iter().position(|candidate| candidate.node == node));
        if kept.is_some() {
            return kept;
        }
        let index = self.inner.choose(candidates)?;
        *chosen = Some(candidates.get(index)?.node.into());
        self.number.fetch_add(1, Ordering::Relaxed);
        Some(index)
    }
}

/// The weight of an instance.
type Weight<P> = Box<dyn Fn(&ServiceInstance<P>) -> u32 + Send + Sync>;

/// Chooses an instance with a probability in proportion to its weight.
///
/// # Examples
///
/// ```
/// use curator_discovery::Weighted;
///
/// #[derive(serde::Serialize, serde::Deserialize)]
/// struct Meta {
///     weight: u32,
/// }
/// let strategy = Weighted::by(|instance: &curator_discovery::ServiceInstance<Meta>| instance.payload.weight);
/// # drop(strategy);
/// ```
pub struct Weighted<P> {
    weight: Weight<P>,
    dice: Dice,
}

impl<P> Weighted<P> {
    /// Returns the strategy with the weight of each instance. An instance with the weight 0 is not chosen. If all weights
    /// are 0, none is.
    pub fn by(weight: impl Fn(&ServiceInstance<P>) -> u32 + Send + Sync + 'static) -> Self {
        Self { weight: Box::new(weight), dice: Dice::default() }
    }

    /// Sets another source of random numbers, for tests.
    #[must_use]
    pub fn with_randomness(self, randomness: impl Randomness) -> Self {
        Self { dice: Dice(Box::new(randomness)), ..self }
    }
}

impl<P: 'static> ProviderStrategy<P> for Weighted<P> {
    fn choose(&self, candidates: &[Candidate<'_, P>]) -> Option<usize> {
        let weights: Vec<u64> = candidates.iter().map(|candidate| (self.weight)(candidate.instance).into()).collect();
        let mut number = self.dice.below(weights.iter().sum())?;
        weights.iter().position(|weight| {
            let is_chosen = number < *weight;
            number = number.saturating_sub(*weight);
            is_chosen
        })
    }
}

impl<P> fmt::Debug for Weighted<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Weighted").finish_non_exhaustive()
    }
}

/// Chooses the instance with the fewest [picks](crate::Pick) in use, and takes turns among equal ones.
#[derive(Debug, Default)]
pub struct LeastLoaded {
    next: AtomicUsize,
}

impl LeastLoaded {
    /// Returns the strategy.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }
}

impl<P> ProviderStrategy<P> for LeastLoaded {
    fn choose(&self, candidates: &[Candidate<'_, P>]) -> Option<usize> {
        let least = candidates.iter().map(|candidate| candidate.in_use).min()?;
        let equal: Vec<_> = (0..candidates.len()).filter(|index| candidates[*index].in_use == least).collect();
        let turn = self.next.fetch_add(1, Ordering::Relaxed).checked_rem(equal.len())?;
        equal.get(turn).copied()
    }
}

#[cfg(test)]
mod tests {
    use curator_framework::SeededRandomness;

    use super::*;

    fn instances(weights: &[u32]) -> Vec<(String, ServiceInstance<u32>)> {
        let instance = |(number, weight): (usize, &u32)| {
            let id = format!("i{number}");
            (id.clone(), ServiceInstance::builder("web").id(id).payload(*weight).build().unwrap())
        };
        weights.iter().enumerate().map(instance).collect()
    }

    fn candidates(instances: &[(String, ServiceInstance<u32>)]) -> Vec<Candidate<'_, u32>> {
        instances.iter().map(|(node, instance)| Candidate { node, instance, in_use: 0 }).collect()
    }

    fn chosen<S: ProviderStrategy<u32>>(strategy: &S, candidates: &[Candidate<'_, u32>], times: usize) -> Vec<usize> {
        (0..times).map(|_| strategy.choose(candidates).unwrap()).collect()
    }

    fn counts(chosen: &[usize], len: usize) -> Vec<usize> {
        (0..len).map(|index| chosen.iter().filter(|chosen| **chosen == index).count()).collect()
    }

    /// Curator's `TestStrategies.testRoundRobin`.
    #[test]
    fn round_robin_takes_turns_after_changes_and_an_overflow_too() {
        let (three, strategy) = (instances(&[1; 3]), RoundRobin::new());
        assert_eq!(chosen(&strategy, &candidates(&three), 6), [0, 1, 2, 0, 1, 2]);
        assert_eq!(chosen(&strategy, &candidates(&three)[..2], 4), [0, 1, 0, 1]);
        let strategy = RoundRobin { next: AtomicUsize::new(usize::MAX) };
        let three = chosen(&strategy, &candidates(&three), 4);
        assert_eq!(three[1..], [0, 1, 2]);
    }

    /// Curator's `TestStrategies.testRandom`, with a seed.
    #[test]
    fn random_chooses_each_equally_often() {
        let (four, strategy) = (instances(&[1; 4]), Random::with_randomness(SeededRandomness::new(7)));
        let counts = counts(&chosen(&strategy, &candidates(&four), 10_000), 4);
        // The deviation is 43.
        assert!(counts.iter().all(|count| count.abs_diff(2_500) < 200), "{counts:?}");
    }

    #[test]
    fn weights_are_the_probabilities() {
        let weighted = instances(&[1, 0, 3]);
        let strategy = Weighted::by(|instance: &ServiceInstance<u32>| instance.payload);
        let strategy = strategy.with_randomness(SeededRandomness::new(7));
        let counts = counts(&chosen(&strategy, &candidates(&weighted), 10_000), 3);
        assert!(counts[0].abs_diff(2_500) < 200 && counts[1] == 0, "{counts:?}");
        assert_eq!(strategy.choose(&candidates(&instances(&[0, 0]))), None);
    }

    /// Curator's `TestStrategies.testSticky`. Curator's drops an instance as soon as its data changes.
    #[test]
    fn sticky_stays_with_an_instance_that_changes() {
        let (mut three, strategy) = (instances(&[1; 3]), Sticky::new(RoundRobin::new()));
        assert_eq!(chosen(&strategy, &candidates(&three), 3), [0, 0, 0]);
        three[0].1.payload = 2;
        assert_eq!(chosen(&strategy, &candidates(&three), 3), [0, 0, 0]);
        assert_eq!(strategy.instance_number(), 1);
        // The instance `i0` has ended.
        assert_eq!(chosen(&strategy, &candidates(&three)[1..], 3), [1, 1, 1]);
        assert_eq!(chosen(&strategy, &candidates(&three), 3), [2, 2, 2]);
        assert_eq!(strategy.instance_number(), 2);
    }

    #[test]
    fn least_loaded_takes_turns_among_equal_ones() {
        let (three, strategy) = (instances(&[1; 3]), LeastLoaded::new());
        let mut candidates = candidates(&three);
        assert_eq!(chosen(&strategy, &candidates, 3), [0, 1, 2]);
        candidates[0].in_use = 2;
        candidates[1].in_use = 1;
        assert_eq!(chosen(&strategy, &candidates, 2), [2, 2]);
    }

    #[test]
    fn no_strategy_chooses_among_none() {
        let none: [Candidate<'_, u32>; 0] = [];
        assert_eq!(RoundRobin::new().choose(&none), None);
        assert_eq!(Random::new().choose(&none), None);
        assert_eq!(Sticky::new(RoundRobin::new()).choose(&none), None);
        assert_eq!(LeastLoaded::new().choose(&none), None);
        assert_eq!(Weighted::by(|_: &ServiceInstance<u32>| 1).choose(&none), None);
    }
}
