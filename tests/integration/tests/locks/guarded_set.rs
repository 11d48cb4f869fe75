//! Jepsen's set, in ZooKeeper itself: writers read it under a mutex, pause without a check of their lock, and write
//! it back with one element more, while nodes are deleted, sessions are killed and clients are cut off for longer than
//! their sessions live. Writes that are guarded lose no element; plain ones do.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use curator_framework::{CuratorFramework, RetryNTimes, make_path};
use curator_integration::lock_stage::play;
use curator_recipes::{InterProcessMutex, LockError};
use curator_test::{ClientId, SimulatedEnsemble};
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio::time::{Instant, sleep, timeout};

const LOCK: &str = "/lock";
const SET: &str = "/set";
const WRITERS: u32 = 4;
const SEEDS: u64 = 5;
const SESSION: Duration = Duration::from_secs(4);
const STORM: Duration = Duration::from_secs(90);

/// What came of a storm.
#[derive(Debug, Clone, Copy, Default)]
struct Tally {
    /// Elements that were reported to their writers as written.
    written: usize,
    lost: usize,
    /// Writes that were refused because the lock was lost, as the server said and not the holder's own clock.
    refused: usize,
}

async fn connected(ensemble: &SimulatedEnsemble, client: u32) -> CuratorFramework {
    let options = ensemble.client(ClientId(client)).session_timeout(SESSION).reap_interval(None);
    let options = options.connection_timeout(Duration::from_secs(3));
    let client = options.retry_policy(RetryNTimes::new(200, Duration::from_millis(50))).build().unwrap();
    client.start().unwrap();
    client.block_until_connected().await.unwrap();
    client
}

async fn write_elements(
    client: CuratorFramework,
    writer: u32,
    guarded: bool,
    mut random: StdRng,
    tally: &Mutex<(BTreeSet<String>, usize)>,
) {
    let mutex = InterProcessMutex::new(client.clone(), LOCK).unwrap();
    let until = Instant::now() + STORM;
    let mut number = 0;
    while Instant::now() < until {
        let Ok(Some(guard)) = mutex.acquire_timeout(STORM).await else { continue };
        let Ok((data, _)) = client.get_data().for_path(SET).await else { continue };
        let still = if random.random_ratio(1, 4) { SESSION * 3 / 2 } else { Duration::from_millis(20) };
        sleep(random.random_range(Duration::from_millis(1)..still)).await;
        number += 1;
        let element = format!("{writer}-{number}");
        let data = format!("{} {element}", String::from_utf8(data).unwrap());
        let held = guard.is_held();
        let written = if guarded {
            guard.transaction().set_data(SET, data).commit().await.map(drop)
        } else {
            client.set_data().for_path(SET, data).await.map(drop).map_err(LockError::from)
        };
        match written {
            Ok(()) => drop(tally.lock().0.insert(element)),
            Err(LockError::LockLost { .. }) if held => tally.lock().1 += 1,
            // It may be in the set or not: no writer got a confirmation.
            Err(_) => {}
        }
        drop(timeout(SESSION, guard.release()).await);
    }
}

async fn nemesis(ensemble: &SimulatedEnsemble, mut random: StdRng) {
    let until = Instant::now() + STORM;
    while Instant::now() < until {
        sleep(random.random_range(Duration::from_millis(50)..Duration::from_millis(800))).await;
        match random.random_range(0..4) {
            0 => {
                let sessions = ensemble.sessions();
                // The first one is the administrator's.
                let other = random.random_range(0..sessions.len().max(2)).max(1);
                sessions.get(other).into_iter().for_each(|session| ensemble.kill_session(*session));
            }
            1 => {
                let client = ClientId(random.random_range(1..=WRITERS));
                ensemble.partition(client);
                sleep(SESSION * 5 / 4).await;
                ensemble.repair(client);
            }
            _ => {
                let holder = ensemble.children(LOCK).into_iter().min_by_key(|name| name[name.len() - 10..].to_owned());
                holder.into_iter().for_each(|name| ensemble.delete(&make_path(LOCK, &name)));
            }
        }
    }
}

fn storm(seed: u64, guarded: bool) -> Tally {
    play(async move {
        let ensemble = SimulatedEnsemble::new(seed, Duration::from_millis(5));
        let administrator = connected(&ensemble, 0).await;
        administrator.create().with_data("").for_path(SET).await.unwrap();
        let tally = Arc::new(Mutex::new((BTreeSet::new(), 0)));
        let mut writers = tokio::task::JoinSet::new();
        for writer in 1..=WRITERS {
            let client = connected(&ensemble, writer).await;
            let (tally, random) = (Arc::clone(&tally), StdRng::seed_from_u64(seed * 100 + u64::from(writer)));
            writers.spawn(async move { write_elements(client, writer, guarded, random, &tally).await });
        }
        nemesis(&ensemble, StdRng::seed_from_u64(seed)).await;
        while let Some(ended) = writers.join_next().await {
            ended.unwrap();
        }
        let (data, _) = administrator.get_data().for_path(SET).await.unwrap();
        let data = String::from_utf8(data).unwrap();
        let set: BTreeSet<_> = data.split_whitespace().map(str::to_owned).collect();
        let (written, refused) = tally.lock().clone();
        Tally { written: written.len(), lost: written.difference(&set).count(), refused }
    })
}

#[test]
fn guarded_writes_lose_nothing_where_plain_ones_do() {
    let [mut plain, mut guarded] = [Tally::default(); 2];
    for seed in 0..SEEDS {
        for (sum, is_guarded) in [(&mut plain, false), (&mut guarded, true)] {
            let tally = storm(seed, is_guarded);
            assert!(!is_guarded || tally.lost == 0, "seed {seed}: {tally:?}");
            sum.written += tally.written;
            sum.lost += tally.lost;
            sum.refused += tally.refused;
        }
    }
    println!("plain {plain:?}; guarded {guarded:?}");
    assert!(plain.lost > 0, "the storms are too mild to show anything: {plain:?}");
    assert!(guarded.refused > 0, "no loss was known to the server first: {guarded:?}");
    assert!(guarded.written > 100 * usize::try_from(SEEDS).unwrap() / 4, "hardly anything was written: {guarded:?}");
}
