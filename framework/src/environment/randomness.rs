//! The source of random numbers: for names, pauses, the order of servers.

use std::fmt;

use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{RngCore, SeedableRng};
use uuid::Uuid;

/// A source of random numbers. A test passes a seeded one, to repeat a run.
pub trait Randomness: Send + Sync + fmt::Debug + 'static {
    /// Returns a random number.
    fn next(&self) -> u64;
}

/// The thread's own generator, seeded by the system: the default.
#[derive(Debug, Clone, Copy, Default)]
pub struct ThreadRandomness;

impl Randomness for ThreadRandomness {
    fn next(&self) -> u64 {
        rand::rng().next_u64()
    }
}

/// The numbers that a seed determines. Not for production: names of nodes must differ between processes.
#[derive(Debug)]
pub struct SeededRandomness {
    generator: Mutex<StdRng>,
}

impl SeededRandomness {
    /// Creates a source. The same seed gives the same numbers.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self { generator: Mutex::new(StdRng::seed_from_u64(seed)) }
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

/// Returns the path of a node that cannot exist, under a parent that does not exist. So only the leader can answer a
/// write to it, whatever the root's access control list says.
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
    fn uuids_are_random_ones_and_units_below_one() {
        let id = uuid(&ThreadRandomness);
        assert_eq!(id.get_version_num(), 4);
        assert!((0..1000).map(|_| unit_interval(&ThreadRandomness)).all(|unit| (0.0..1.0).contains(&unit)));
    }
}
