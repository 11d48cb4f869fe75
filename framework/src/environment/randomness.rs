//! The source of random numbers: for names, pauses, the order of servers.
//!
//! The default generator of `rand` is a cipher. It needs four more packages and a second `getrandom`, so this module
//! uses the small generator.

use std::cell::RefCell;
use std::fmt;
use std::hash::{BuildHasher as _, RandomState};

use parking_lot::Mutex;
use rand::rngs::SmallRng;
use rand::seq::SliceRandom as _;
use rand::{RngCore as _, SeedableRng as _};
use uuid::Uuid;

/// A source of random numbers. A test passes a seeded one, to repeat a run.
pub trait Randomness: Send + Sync + fmt::Debug + 'static {
    /// Returns a random number.
    fn next(&self) -> u64;
}

/// The thread's own generator, seeded by the system: the default.
#[derive(Debug, Clone, Copy, Default)]
pub struct ThreadRandomness;

thread_local! {
    /// A generator with a state of 256 bits: names of nodes must differ between millions of processes. They are not
    /// secrets, so the generator need not be a cipher.
    static GENERATOR: RefCell<SmallRng> = RefCell::new(SmallRng::from_seed(seed_of_system()));
}

/// Returns a seed out of the 128 random bits that the system gives to each thread for its hash maps.
fn seed_of_system() -> [u8; 32] {
    let key = RandomState::new();
    let mut seed = [0; 32];
    for (number, bytes) in seed.chunks_exact_mut(8).enumerate() {
        bytes.copy_from_slice(&key.hash_one(number).to_ne_bytes());
    }
    seed
}

impl Randomness for ThreadRandomness {
    fn next(&self) -> u64 {
        GENERATOR.with_borrow_mut(rand::RngCore::next_u64)
    }
}

/// The numbers that a seed determines. Not for production: names of nodes must differ between processes.
#[derive(Debug)]
pub struct SeededRandomness {
    generator: Mutex<SmallRng>,
}

impl SeededRandomness {
    /// Creates a source. The same seed gives the same numbers.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self { generator: Mutex::new(SmallRng::seed_from_u64(seed)) }
    }
}

impl Randomness for SeededRandomness {
    fn next(&self) -> u64 {
        self.generator.lock().next_u64()
    }
}

/// Returns a random (version 4) UUID.
pub(crate) fn uuid(source: &dyn Randomness) -> Uuid {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&source.next().to_be_bytes());
    bytes[8..].copy_from_slice(&source.next().to_be_bytes());
    uuid::Builder::from_random_bytes(bytes).into_uuid()
}

/// Returns a number in `[0, 1)`.
pub(crate) fn unit_interval(source: &dyn Randomness) -> f64 {
    // 53 bits, as many as the mantissa holds.
    #[expect(clippy::cast_precision_loss, reason = "both numbers are below 2^53 and exact")]
    let unit = (source.next() >> 11) as f64 / (1_u64 << 53) as f64;
    unit
}

/// Puts the items into a random order.
pub(crate) fn shuffle<T>(items: &mut [T], source: &dyn Randomness) {
    items.shuffle(&mut SmallRng::seed_from_u64(source.next()));
}

/// Returns the path of a node that cannot exist, under a parent that does not exist. So only the leader can answer a
/// write to it, regardless of the root's access control list.
pub(crate) fn nonexistent_path(source: &dyn Randomness) -> String {
    format!("/{}/none", uuid(source))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_determines_everything() {
        let numbers = |seed| {
            let source = SeededRandomness::new(seed);
            (uuid(&source), unit_interval(&source).to_bits(), source.next())
        };
        assert_eq!(numbers(7), numbers(7));
        assert_ne!(numbers(7), numbers(8));
    }

    #[test]
    fn threads_have_numbers_of_their_own() {
        let numbers = || (0..1000).map(|_| ThreadRandomness.next()).collect::<Vec<_>>();
        let mut all = numbers();
        all.extend(std::thread::spawn(numbers).join().unwrap());
        let distinct: std::collections::HashSet<_> = all.iter().collect();
        assert_eq!(distinct.len(), all.len());
        let ones: u32 = all.iter().map(|number| number.count_ones()).sum();
        // 128,000 bits: the deviation is 179, so this is a thousand bits beyond any chance.
        assert!(ones.abs_diff(64_000) < 2_000, "{ones}");
    }

    #[test]
    fn uuids_are_random_ones_and_units_below_one() {
        let id = uuid(&ThreadRandomness);
        assert_eq!(id.get_version_num(), 4);
        assert!((0..1000).map(|_| unit_interval(&ThreadRandomness)).all(|unit| (0.0..1.0).contains(&unit)));
    }
}
