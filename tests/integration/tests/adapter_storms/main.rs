//! Storms in real time, through either client and over TCP: what the simulated ones leave out.
//!
//! Clients contend for each recipe's lock, each behind a proxy that misbehaves on command, while sessions are killed,
//! nodes deleted and servers restarted. Then the history is checked as in the simulation. A seed decides what happens
//! when, and is printed; but real time is not reproducible: a seed run again gives a similar storm, not the same.
//!
//! | variable | meaning |
//! | --- | --- |
//! | `CURATOR_STORM_SECONDS` | storms start again until so many seconds have passed; one time without it |
//! | `CURATOR_STORM_SEED` | the first seed; a fresh one without it |
//! | `CURATOR_TEST_CLIENT` | `zookeeper-async` for that crate |
//! | `CURATOR_STORM_LOG` | the logs of storms that went well are printed too |

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on fails")]

mod ground;
mod nemesis;
mod storm;

use std::time::{Duration, Instant};

use curator_simulate::contenders::Recipe;
use curator_simulate::scribe::Outcome;

use ground::Kind;

fn variable<T>(name: &str, read: impl Fn(&str) -> Option<T>) -> Option<T> {
    let value = std::env::var(name).ok()?;
    Some(read(&value).unwrap_or_else(|| panic!("{name} cannot be {value:?}")))
}

/// Storms of all recipes at once, again and again until the time has ended.
fn storms(kind: &Kind) {
    let until = Instant::now()
        + variable("CURATOR_STORM_SECONDS", |value| value.parse().ok()).map_or(Duration::ZERO, Duration::from_secs);
    let mut seed =
        variable("CURATOR_STORM_SEED", |value| value.parse().ok()).unwrap_or_else(|| u64::from(rand::random::<u32>()));
    loop {
        println!("storms from seed {seed}");
        let storms = Recipe::ALL.map(|recipe| (seed, recipe));
        let outcomes = std::thread::scope(|scope| {
            let running: Vec<_> =
                storms.iter().map(|&(seed, recipe)| scope.spawn(move || storm::run(seed, recipe, kind))).collect();
            running.into_iter().map(|storm| storm.join().expect("a storm ends without a panic")).collect::<Vec<_>>()
        });
        let log = std::env::var("CURATOR_STORM_LOG").is_ok();
        let mut bad = 0;
        for ((seed, recipe), Outcome { log: lines, violations, grants }) in storms.into_iter().zip(outcomes) {
            if log || !violations.is_empty() {
                println!("{}", lines.join("\n"));
            }
            println!("seed {seed}, {recipe}: {grants} grants");
            for violation in &violations {
                println!("seed {seed}, {recipe}: {violation}");
            }
            assert!(grants > 0 || !violations.is_empty(), "seed {seed}, {recipe}: nobody got the lock");
            bad += violations.len();
        }
        assert_eq!(bad, 0, "violations; see above");
        if Instant::now() >= until {
            return;
        }
        seed += 1;
    }
}

#[test]
fn storms_before_the_in_process_server_end_well() {
    storms(&Kind::InProcess);
}

#[test]
fn storms_before_apache_zookeeper_end_well() {
    storms(&Kind::apache());
}
