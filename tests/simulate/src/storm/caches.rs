//! One storm over caches.

use std::fmt;
use std::time::Duration;

use curator_checkers::caches::Rules;
use curator_test::{ClientId, SimulatedEnsemble};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::weather::{self, CLIENTS, Field, PATH, RECOVERY, WORKERS, Weather, is_long_child};
use crate::caching::{self, Place, Reader, Scribe, Writer};
use crate::contenders::Outcome;

/// The limit of the time in which a cache differs from the server outside of faults.
const PATIENCE: Duration = Duration::from_secs(3);
const ROUNDS: u32 = 4;
/// The parent of the root.
const ABOVE: &str = "/storm";
/// A client that no fault hits.
const HEALTHY: ClientId = ClientId(140);

/// Runs one storm.
pub(super) async fn storm(seed: u64, weather: Weather) -> Outcome {
    let mut random = StdRng::seed_from_u64(seed ^ 900 << 32);
    let latency = Duration::from_millis(random.random_range(0..60));
    // At the end of the numbers the servers do not count the changes of a parent: a watch that is set again misses them.
    let hardship = weather.hardship.without_denials_beside_backups();
    let weather = Weather { numbers_end: false, hardship, ..weather };
    let ensemble = SimulatedEnsemble::with_tick(seed, latency, weather.tick);
    ensemble.restart_empty_at(first_zxid(ensemble.now()));
    ensemble.record_changes_for(ABOVE, weather.hardship.max_reply());
    let scribe = Scribe::new(ensemble.clone(), RECOVERY);
    scribe.note(format_args!("seed {seed}, caches, latency {latency:?}, {weather:?}"));
    let field = Trees { scribe: scribe.clone(), ensemble };

    let (calm, is_calm) = watch::channel(false);
    let (mut readers, mut workers, mut writers) = (JoinSet::new(), JoinSet::new(), JoinSet::new());
    let mut started = Vec::new();
    let pause = [400, 3000, 12_000][random.random_range(0..3)];
    let writer = |client, namespace, number: u32| Writer {
        scribe: scribe.clone(),
        ensemble: field.ensemble.clone(),
        client,
        place: Place { root: PATH, namespace },
        random: StdRng::seed_from_u64(seed ^ (u64::from(number) + 950) << 32),
        pause,
    };
    for id in 0..CLIENTS {
        let (client, path) = weather::start_client(&field.ensemble, id, weather, &mut random);
        let namespace = PATH.strip_suffix(path).unwrap_or_default();
        for worker in 0..weather.workers {
            let reader = Reader {
                scribe: scribe.clone(),
                ensemble: field.ensemble.clone(),
                client: client.clone(),
                place: Place { root: PATH, namespace },
                random: StdRng::seed_from_u64(seed ^ (u64::from(id * WORKERS + worker) + 901) << 32),
                rounds: ROUNDS,
                calm: is_calm.clone(),
                stays: RECOVERY + PATIENCE * 2 + weather.hardship.longest_pause(),
                hides: weather.hardship.hides(),
            };
            workers.spawn(reader.read());
        }
        writers.spawn(writer(client.clone(), namespace, id).write(is_calm.clone()));
        if let Some(longest) = weather.reads {
            let random = StdRng::seed_from_u64(seed ^ (u64::from(id) + 980) << 32);
            readers.spawn(weather::read(client.clone(), longest, random));
        }
        started.push(client);
    }
    let healthy = weather::start_player(&field.ensemble, HEALTHY);
    let above = healthy.create().creating_parents_if_needed().for_path(PATH).await;
    scribe.note(format_args!("the root is created: {above:?}"));
    writers.spawn(writer(healthy.clone(), "", CLIENTS).write(is_calm.clone()));
    started.push(healthy);
    let wrong = |what| scribe.wrong(what);
    let faults = async {
        weather::nemeses(&field, weather, seed ^ 300, &mut random).await;
        scribe.fault("all faults end", Duration::ZERO);
        for id in 0..CLIENTS {
            field.ensemble.repair(ClientId(id));
        }
        weather::relieve(&field);
        calm.send_replace(true);
        while writers.join_next().await.is_some() {}
    };
    if !weather::workers_end(&mut workers, faults, wrong).await {
        wrong("a reader that waits for ever".to_owned());
    }
    drop((workers, writers, readers));
    for node in caching::below(&field.ensemble, ABOVE).iter().rev() {
        field.ensemble.delete(node);
    }
    weather::clean_up(&field, started, wrong).await;
    scribe.outcome(&Rules::new(PATIENCE))
}

/// The cached nodes, and the notes on the caches.
#[derive(Debug, Clone)]
struct Trees {
    scribe: Scribe,
    ensemble: SimulatedEnsemble,
}

/// Returns the transaction before the first one of servers that start at this time without data. No two starts have
/// transactions with the same number: a cache cannot tell apart nodes with the same history of transactions.
fn first_zxid(now: Duration) -> i64 {
    let million = (now.as_millis() + 1) * 577 % 1009;
    i64::try_from(million).unwrap_or_default() * 1_000_000
}

impl Field for Trees {
    fn ensemble(&self) -> &SimulatedEnsemble {
        &self.ensemble
    }

    fn parts(&self) -> Vec<String> {
        vec![PATH.to_owned()]
    }

    fn note(&self, what: impl fmt::Display) {
        self.scribe.note(what);
    }

    fn fault(&self, what: impl fmt::Display, lasting: Duration) {
        self.scribe.fault(what, lasting);
    }

    fn end(&self, what: impl fmt::Display) {
        self.scribe.fault(what, Duration::ZERO);
    }

    fn hide(&self, what: impl fmt::Display, _lasting: Duration) {
        self.scribe.note(what);
    }

    fn hard_nodes(&self) -> Vec<String> {
        let root = self.ensemble.owner(PATH).map(|_| PATH.to_owned());
        // What is below a long child has no path that the readers ask for.
        root.into_iter().chain(caching::below(&self.ensemble, PATH)).filter(|path| !is_long_child(path)).collect()
    }

    fn revoke(&self, _nodes: Vec<String>) {}

    fn lose_data(&self) {
        self.ensemble.restart_empty_at(first_zxid(self.ensemble.now()));
    }

    fn nodes(&self) -> Vec<(String, i64)> {
        let nodes = caching::below(&self.ensemble, PATH).into_iter();
        nodes.filter_map(|path| Some((path.clone(), self.ensemble.owner(&path)?))).collect()
    }
}
