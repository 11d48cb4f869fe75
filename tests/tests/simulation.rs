//! The simulated storms of the example `simulate`, fewer of them: fresh seeds at each run, and those that once failed.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on fails")]

#[path = "../examples/simulate/storm.rs"]
mod storm;

use curator_framework::mutants::Mutant;
use storm::{Recipe, run};

/// How many fresh seeds.
const FRESH: u64 = 40;
/// Seeds that found something once.
const KEPT: [u64; 6] = [190, 273, 771, 1208, 1260, 3_885_577_152];

fn assert_well(seed: u64) {
    for recipe in Recipe::ALL {
        let outcome = run(seed, recipe, None);
        assert!(
            outcome.violations.is_empty(),
            "seed {seed}, {recipe}: {:?}; again: cargo run -p curator-test --example simulate -- --seeds 1 --from {seed}",
            outcome.violations
        );
        assert!(outcome.grants > 0, "seed {seed}, {recipe}: nobody got the lock");
    }
}

#[test]
fn fresh_storms_end_well() {
    let from = u64::from(rand::random::<u32>());
    println!("from seed {from}");
    for seed in from..from + FRESH {
        assert_well(seed);
    }
}

#[test]
fn storms_that_failed_once_end_well() {
    for seed in KEPT {
        assert_well(seed);
    }
}

#[test]
fn a_seed_run_twice_gives_the_same_log() {
    let from = u64::from(rand::random::<u32>());
    for seed in from..from + 8 {
        for recipe in Recipe::ALL {
            assert_eq!(run(seed, recipe, None), run(seed, recipe, None), "seed {seed}");
        }
    }
}

/// Each way to break the engine is found within a few seeds in a row, which have all kinds of weather.
#[test]
fn every_mutant_is_found() {
    for mutant in Mutant::ALL {
        let found = (1..=40)
            .find(|seed| Recipe::ALL.iter().any(|recipe| !run(*seed, *recipe, Some(mutant)).violations.is_empty()));
        assert!(found.is_some(), "{} was not found", mutant.name());
    }
}
