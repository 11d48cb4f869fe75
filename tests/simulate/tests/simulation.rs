//! The simulated storms of `curator-simulate`, fewer of them: fresh seeds at each run, and those that once failed.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on fails")]

use std::time::Duration;

use curator_framework::{CreateMode, CuratorFramework, LossReason, RetryNTimes};
use curator_recipes::{CacheState, CuratorCache, InterProcessMutex};
#[cfg(curator_mutants)]
use curator_simulate::registrants::Presence;
use curator_simulate::storm::{Hard, Storm};
use curator_simulate::together::Together;
use curator_test::nodes::{Change, Node};
use curator_test::{ClientId, SimulatedEnsemble, versions};
use rand::seq::IndexedRandom as _;
use tokio::time::{sleep, timeout};

/// A session's, where the storms' does not matter.
const TIMEOUT: Duration = Duration::from_secs(8);

/// Among them a consumer that claims again and again after the clock has skipped.
const KEPT_QUEUES: [u64; 7] = [10_724, 2129, 2247, 2328, 10_340, 11_272, 50_257];
/// How many fresh seeds.
const FRESH: u64 = 24;
/// Seeds of storms that found something once, with the generator of that time.
const KEPT: [u64; 18] = [
    1051,
    1368,
    2835,
    3093,
    4611,
    2_720_062_432,
    2_925_628_805,
    3_289_024_867,
    1_437_167_897,
    1_437_172_323,
    3_712_030_542,
    706_466,
    728_007,
    743_913,
    3_290_279_204,
    3_290_282_108,
    4_067_300_147,
    1_806_213_987,
];
/// Those with a storm of an election that found something.
const KEPT_ELECTIONS: [u64; 10] = [1049, 1147, 1185, 1626, 1962, 3036, 3332, 1_531_191_909, 708_997, 3_590_144_066];
/// Those with a storm of caches that found something.
const KEPT_CACHES: [u64; 1] = [2_404_384_897];
/// Those with a storm of a double barrier that found something.
const KEPT_BARRIERS: [u64; 6] = [7, 8, 600_703, 720_415, 747_642, 3_807_273_269];
/// Those with a storm of a latch that found something.
const KEPT_LATCHES: [u64; 8] = [5, 7, 24, 20_404, 20_742, 20_846, 21_467, 722_243];
/// Those with a hard storm that found something.
const KEPT_HARD: [u64; 10] = [
    610_434_232,
    720_000_339,
    720_000_649,
    720_001_841,
    720_002_114,
    1_846_335_001,
    4_111_075_979,
    4_111_078_442,
    1_806_212_247,
    1_806_212_408,
];

/// Returns the number of nodes that the caches have shown.
fn assert_well(seed: u64) -> usize {
    let grants = Storm::of(seed).into_iter().map(|storm| (storm, assert_ends_well(seed, storm)));
    grants.filter(|(storm, _)| *storm == Storm::Caches).map(|(_, grants)| grants).sum()
}

/// Returns the number of grants, or of nodes in caches.
fn assert_ends_well(seed: u64, storm: Storm) -> usize {
    let outcome = storm.run(seed);
    assert!(
        outcome.violations.is_empty(),
        "seed {seed}, {storm}: {:?}; again: cargo run -p curator-simulate -- --seeds 1 --from {seed}",
        outcome.violations
    );
    // The node of all caches may be missing from the start to the end.
    assert!(
        outcome.grants > 0 || matches!(storm, Storm::Caches | Storm::Hard(Hard::Caches)),
        "seed {seed}, {storm}: no grant"
    );
    outcome.grants
}

#[test]
fn fresh_storms_end_well() {
    let from = u64::from(rand::random::<u32>());
    println!("from seed {from}");
    let mut nodes_in_caches = 0;
    for seed in from..from + FRESH {
        nodes_in_caches += assert_well(seed);
    }
    assert!(nodes_in_caches as u64 > FRESH, "{nodes_in_caches}");
}

/// Returns all of these seeds in a long run, otherwise one at random.
fn kept(seeds: &[u64]) -> Vec<u64> {
    let one = seeds.choose(&mut rand::rng()).copied().into_iter().collect();
    if std::env::var_os("CURATOR_MODEL").is_some() { seeds.to_vec() } else { one }
}

#[test]
fn storms_that_found_something_end_well() {
    for seed in kept(&KEPT) {
        assert_well(seed);
    }
    for seed in kept(&KEPT_ELECTIONS) {
        assert_ends_well(seed, Storm::election(seed));
    }
    for seed in KEPT_CACHES {
        assert_ends_well(seed, Storm::Caches);
    }
    for seed in kept(&KEPT_BARRIERS) {
        assert_ends_well(seed, Storm::Together(Together::Barriers));
    }
    for seed in kept(&KEPT_LATCHES) {
        assert_ends_well(seed, Storm::Together(Together::Latches));
    }
    for seed in kept(&KEPT_QUEUES) {
        assert_ends_well(seed, Storm::Together(Together::Queues));
    }
    for seed in kept(&KEPT_HARD) {
        assert_ends_well(seed, Storm::hard(seed));
    }
}

#[test]
fn a_seed_run_twice_gives_the_same_log() {
    let seed = u64::from(rand::random::<u32>());
    // Nodes and groups have channels with several receivers, which tokio wakes in a random order.
    let is_ordered = |storm: &Storm| !matches!(storm, Storm::Presence(_) | Storm::Hard(Hard::Group));
    for storm in Storm::of(seed).into_iter().filter(is_ordered) {
        assert_eq!(storm.run(seed), storm.run(seed), "seed {seed}, {storm}");
    }
}

async fn connected(ensemble: &SimulatedEnsemble) -> CuratorFramework {
    let options = ensemble.client(ClientId(0)).session_timeout(TIMEOUT).connection_timeout(TIMEOUT / 2);
    let client = options.retry_policy(RetryNTimes::new(1, TIMEOUT)).build().unwrap();
    client.start().unwrap();
    client.block_until_connected().await.unwrap();
    client
}

#[tokio::test(start_paused = true)]
async fn each_change_below_a_node_is_recorded_also_if_the_node_is_gone() {
    let ensemble = SimulatedEnsemble::new(1, Duration::ZERO);
    ensemble.record_changes("/parent");
    let client = connected(&ensemble).await;
    client.create().for_path("/parent").await.unwrap();
    let path = "/parent/first".to_owned();
    client.create().with_mode(CreateMode::Ephemeral).with_data("one").for_path(&path).await.unwrap();
    let stat = client.check_exists().for_path(&path).await.unwrap().unwrap();
    let changed = client.set_data().for_path(&path, "two").await.unwrap().mzxid;
    client.delete().for_path(&path).await.unwrap();
    let deleted = ensemble.zxid();
    let session = ensemble.sessions()[0];
    let node = Node { czxid: stat.czxid, session, data: "one".into() };
    let state = |mzxid, version, data: &str| {
        let node = versions::Node { czxid: stat.czxid, mzxid, version, data: Some(data.into()) };
        Some(node)
    };
    let versions = [(stat.czxid, state(stat.czxid, 0, "one")), (changed, state(changed, 1, "two")), (deleted, None)];
    let versions = versions.map(|(zxid, node)| versions::Change { zxid, path: path.clone(), node });
    let events: Vec<_> = ensemble.take_versions().into_iter().map(|(_, event)| event).collect();
    assert_eq!(events, versions.map(versions::Event::Changed));
    let recorded: Vec<_> = ensemble.take_changes().into_iter().map(|(_, change)| change).collect();
    let expected = [
        Change::Created { path: path.clone(), node },
        Change::DataChanged { path: path.clone(), data: "two".into() },
        Change::Deleted { path, zxid: 5 },
    ];
    assert_eq!(recorded, expected);
    assert_eq!(ensemble.take_changes(), []);
    ensemble.restart_empty();
    assert!(matches!(ensemble.take_versions()[..], [(_, versions::Event::Emptied(0))]));
}

#[tokio::test(start_paused = true)]
async fn a_cache_names_no_transaction_of_servers_that_have_lost_their_data() {
    let ensemble = SimulatedEnsemble::new(1, Duration::ZERO);
    let client = connected(&ensemble).await;
    for path in ["/root", "/root/a", "/root/b"] {
        client.create().for_path(path).await.unwrap();
    }
    let cache = CuratorCache::new(client.clone(), "/root").unwrap();
    cache.start().unwrap();
    cache.initialized().await.unwrap();
    ensemble.restart_empty();
    sleep(TIMEOUT * 2).await;
    let state = cache.state();
    assert!(
        matches!(state, CacheState::Fresh { zxid } if zxid.get() <= ensemble.zxid()),
        "{state:?} at {}",
        ensemble.zxid()
    );
    client.create().for_path("/root").await.unwrap();
    cache.caught_up().await.unwrap();
    assert_eq!(cache.len(), 1);
}

/// Until when the leader keeps the session of a client if its server is cut off right after a write that ended a rest:
/// counted from that write.
async fn time_left_behind_a_write(seed: u64, rest: Duration) -> Duration {
    let ensemble = SimulatedEnsemble::with_tick(seed, Duration::ZERO, TIMEOUT / 2);
    let client = connected(&ensemble).await;
    sleep(rest).await;
    client.create().for_path("/written").await.unwrap();
    let written = ensemble.now();
    ensemble.cut_off_server(ClientId(0));
    let ended = async {
        while !ensemble.sessions().is_empty() {
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(TIMEOUT * 2, ended).await.expect("the leader hears nothing more of the session");
    ensemble.now() - written
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_cut_off_hears_of_no_event() {
    let ensemble = SimulatedEnsemble::new(1, Duration::ZERO);
    let client = connected(&ensemble).await;
    let guard = InterProcessMutex::new(client, "/lock").unwrap().acquire().await.unwrap();
    // By then it watches its node.
    sleep(TIMEOUT / 5).await;
    ensemble.cut_off_server(ClientId(0));
    ensemble.delete(guard.node_path());
    assert!(timeout(TIMEOUT / 4, guard.lost()).await.is_err());
    ensemble.repair(ClientId(0));
    assert_eq!(timeout(TIMEOUT / 4, guard.lost()).await, Ok(LossReason::NodeDeleted));
}

#[tokio::test(start_paused = true)]
async fn the_leader_does_not_learn_from_a_write_that_its_client_lives() {
    for rest in [TIMEOUT / 10, TIMEOUT / 4, TIMEOUT * 3 / 10] {
        let mut shortest = TIMEOUT;
        for seed in 0..20 {
            let left = time_left_behind_a_write(seed, rest).await;
            // It knows what was sent half a tick before the write, or of the session's start.
            assert!(left + rest + Duration::from_millis(20) > TIMEOUT, "seed {seed}, {rest:?}: {left:?}");
            shortest = shortest.min(left);
        }
        assert!(shortest + rest / 2 < TIMEOUT, "{rest:?}: {shortest:?}");
    }
}

/// Each deliberate break is found by a seed. Most are found by one of a hundred.
#[cfg(curator_mutants)]
#[test]
fn every_mutant_is_found() {
    let mutants = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../mutants")).unwrap();
    let names = mutants.filter_map(|file| Some(file.unwrap().file_name().to_str()?.strip_suffix(".patch")?.to_owned()));
    let mutants: Vec<_> =
        names.filter(|name| name != "switch" && !text_of(name).contains("Found by a test alone")).collect();
    assert!(mutants.len() > 20, "{mutants:?}");
    let next = parking_lot::Mutex::new(mutants.into_iter());
    // A thread is broken in one way at a time.
    let look_for_them = || {
        let mut not_found = Vec::new();
        while let Some(mutant) = { next.lock().next() } {
            match first_seed_that_finds(mutant.clone().leak()) {
                Some(seed) => println!("{mutant}: seed {seed}"),
                None => not_found.push(mutant),
            }
        }
        not_found
    };
    let not_found = std::thread::scope(|threads| {
        let other = threads.spawn(look_for_them);
        [look_for_them(), other.join().unwrap()].concat()
    });
    assert!(not_found.is_empty(), "{not_found:?}");
}

#[cfg(curator_mutants)]
fn text_of(mutant: &str) -> String {
    std::fs::read_to_string(format!("{}/../mutants/{mutant}.patch", env!("CARGO_MANIFEST_DIR"))).unwrap()
}

#[cfg(curator_mutants)]
fn first_seed_that_finds(mutant: &'static str) -> Option<u64> {
    let patch = text_of(mutant);
    let finds = |seed: &u64| storms_of(&patch, *seed).iter().any(|storm| !storm.run(*seed).violations.is_empty());
    // A change of the code may move what happens in a storm: then the noted seed finds nothing, and the search starts.
    let noted = patch.lines().find_map(|line| line.strip_prefix("Found by seed ")?.strip_suffix('.')?.parse().ok());
    curator_framework::mutants::with(mutant, || noted.into_iter().chain(1..=1000).find(finds))
}

#[cfg(curator_mutants)]
const SERVICES: Storm = Storm::Presence(Presence::Services);

/// Returns the storms of a seed that reach the code of a break.
#[cfg(curator_mutants)]
fn storms_of(patch: &str, seed: u64) -> Vec<Storm> {
    let touches = |folder: &str| patch.contains(&format!("+++ b/recipes/src/{folder}/"));
    match () {
        () if touches("counters") => vec![Storm::Together(Together::Counters)],
        // The marker serves counters and queues.
        () if patch.contains("+++ b/recipes/src/marker.rs") => {
            vec![Storm::Together(Together::Counters), Storm::Together(Together::Queues)]
        }
        () if touches("queues") => vec![Storm::Together(Together::Queues)],
        () if touches("barriers/double") => vec![Storm::Together(Together::Barriers)],
        () if touches("barriers/latch") => vec![Storm::Together(Together::Latches)],
        () if touches("engine/batch") => Storm::BATCHES.to_vec(),
        () if patch.contains("+++ b/recipes/discovery/") || touches("typed") => vec![SERVICES],
        () if touches("caches") => vec![Storm::Caches, Storm::Hard(Hard::Caches), SERVICES],
        // The last two serve latches alone.
        () if touches("leader") || touches("engine/candidacy") || patch.contains("engine/run/calls.rs") => {
            vec![Storm::election(seed)]
        }
        () if touches("groups") => vec![Storm::presence(seed), Storm::Hard(Hard::Group)],
        () if touches("nodes") => vec![Storm::presence(seed), SERVICES],
        () => {
            let mut storms = Storm::of(seed);
            storms.retain(|storm| !matches!(storm, Storm::Together(_)));
            storms
        }
    }
}
