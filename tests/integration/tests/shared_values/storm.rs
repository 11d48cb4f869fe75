//! Clients that count together while replies get lost.

use std::time::Duration;

use curator_recipes::{SharedCount, SharedError};
use curator_test::{ClientId, SimulatedEnsemble};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::simulated::{LATENCY, client};

const PATH: &str = "/storm/count";
const STEPS: u32 = 30;

/// What one client knows of its steps.
#[derive(Debug, Default, Clone, Copy)]
struct Steps {
    made: i32,
    unknown: i32,
}

async fn count_up(count: SharedCount, mut random: StdRng) -> Steps {
    let mut steps = Steps::default();
    for _ in 0..STEPS {
        loop {
            let before = count.versioned_value().unwrap();
            match count.try_set_count(&before, before.value() + 1).await {
                Ok(true) => {
                    steps.made += 1;
                    break;
                }
                Ok(false) => {}
                Err(error) if error.outcome_unknown() => {
                    steps.unknown += 1;
                    break;
                }
                Err(SharedError::Framework(error)) if error.is_retryable() => {}
                Err(error) => panic!("{error}"),
            }
        }
        tokio::time::sleep(Duration::from_millis(random.random_range(0..40))).await;
    }
    steps
}

/// The sum of it for one seed.
async fn storm(seed: u64) -> (Steps, i32) {
    let ensemble = SimulatedEnsemble::new(seed, LATENCY);
    let mut random = StdRng::seed_from_u64(seed);
    let (mut counting, mut counts) = (Vec::new(), Vec::new());
    for id in 0..2 {
        let client = client(&ensemble, ClientId(id)).await;
        let count = SharedCount::new(client.clone(), PATH, 0).unwrap();
        count.start().unwrap();
        count.initialized().await.unwrap();
        counts.push((client, count.clone()));
        counting.push(tokio::spawn(count_up(count, StdRng::seed_from_u64(random.random()))));
    }
    while counting.iter().any(|counting| !counting.is_finished()) {
        tokio::time::sleep(Duration::from_millis(random.random_range(10..600))).await;
        match random.random_range(0..8) {
            0 => ensemble.restart(),
            1 => ensemble.stale_reads(ClientId(random.random_range(0..2))),
            _ => ensemble.reset(ClientId(random.random_range(0..2))),
        }
    }
    let mut all = Steps::default();
    for counting in counting {
        let steps = counting.await.unwrap();
        all.made += steps.made;
        all.unknown += steps.unknown;
    }
    let stored = client(&ensemble, ClientId(9)).await.get_data().for_path(PATH).await.unwrap().0;
    let stored = i32::from_be_bytes(stored.try_into().unwrap());
    for (client, count) in counts {
        // A server that is behind stays so until it is asked to write.
        client.session().await.unwrap().write_barrier().await.unwrap();
        let mut watch = count.watch();
        let seen =
            tokio::time::timeout(Duration::from_secs(60), watch.wait_for(|count| *count.value() == stored)).await;
        assert!(seen.is_ok(), "seed {seed}: {count:?} does not come to {stored}");
    }
    (all, stored)
}

/// What was reported as made was made, and what was reported as not made was not.
#[test]
fn no_step_is_lost_or_made_in_secret() {
    let from = u64::from(rand::random::<u32>());
    println!("from seed {from}");
    let mut unknown = 0;
    for seed in from..from + 40 {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        let (steps, stored) = runtime.block_on(storm(seed));
        assert!(steps.made <= stored && stored <= steps.made + steps.unknown, "seed {seed}: {steps:?}, {stored}");
        unknown += steps.unknown;
    }
    assert!(unknown > 0, "no reply was ever lost");
}
