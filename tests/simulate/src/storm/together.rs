//! One storm over counters, barriers or latches.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::time::Duration;

use curator_checkers::timeline::Timeline;
use curator_checkers::{barriers, counters, latches};
use curator_framework::{CuratorFramework, Error};
use curator_test::{ClientId, SimulatedEnsemble};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::weather::{self, Field, PATH, RECOVERY, WORKERS, Weather};
use crate::caching;
use crate::contenders::Outcome;
use crate::together::{Counting, Gathering, Latching, Meeting, Recorded, Scribe, Together, Worker};

const MOST_CLIENTS: u32 = 4;
const DOUBLE: &str = "/storm/lock/deep/double";
const LATCH: &str = "/storm/lock/deep/latch";

/// Runs one storm.
pub(super) async fn storm(seed: u64, together: Together) -> Outcome {
    let storm = Stage::new(seed, together);
    // There and back of a read.
    let behind = storm.latency * 2 + Duration::from_millis(1);
    match together {
        Together::Counters => {
            let scribe = storm.run(Counting::new, Worker::count).await;
            let rules = counters::Rules::new().behind(behind);
            scribe.outcome(|counters: &Timeline<_>| (counters.check(&rules), counters.counted()))
        }
        Together::Barriers => {
            let mut random = StdRng::seed_from_u64(seed ^ 1200 << 32);
            let members = random.random_range(2..=storm.workers() as usize);
            let quorum = match random.random_range(0..3) {
                0 => Some((random.random_range(1..=members), Duration::from_millis(random.random_range(0..3000)))),
                _ => None,
            };
            let least = quorum.map_or(members, |(least, _)| least);
            let gathering = |client: &CuratorFramework, path: &str| Gathering::new(client, path, members, quorum);
            let scribe = storm.run(gathering, Worker::gather).await;
            scribe.note(format_args!("{members} members, quorum {quorum:?}"));
            let rules = barriers::Rules::new(DOUBLE, least).behind(behind);
            scribe.outcome(|barriers: &Timeline<_>| (barriers.check(&rules), barriers.passed()))
        }
        Together::Latches => {
            let scribe = storm.run(Latching::new, Worker::latch).await;
            let rules = latches::Rules::new(LATCH).behind(behind);
            scribe.outcome(|latches: &Timeline<_>| (latches.check(&rules), latches.passed()))
        }
    }
}

/// The parameters of a storm.
struct Stage {
    seed: u64,
    together: Together,
    random: StdRng,
    weather: Weather,
    latency: Duration,
    clients: u32,
}

impl Stage {
    fn new(seed: u64, together: Together) -> Self {
        let mut random = StdRng::seed_from_u64(seed ^ 1000 << 32);
        let latency = Duration::from_millis(random.random_range(0..60));
        // Sequence numbers are not used. Data that the servers lose cannot be counted.
        let weather = Weather { numbers_end: false, loses_data: false, ..Weather::of(seed) };
        let clients = random.random_range(2..=MOST_CLIENTS);
        Self { seed, together, random, weather, latency, clients }
    }

    const fn workers(&self) -> u32 {
        self.clients * self.weather.workers
    }

    /// Runs the storm, and returns the record.
    async fn run<E: Recorded, S: Clone, W>(
        mut self,
        share: impl Fn(&CuratorFramework, &str) -> S,
        work: impl Fn(Worker<E>, S) -> W,
    ) -> Scribe<E>
    where
        W: Future<Output = ()> + Send + 'static,
    {
        let Self { seed, together, weather, latency, clients, .. } = self;
        let ensemble = SimulatedEnsemble::with_tick(seed, latency, weather.tick);
        ensemble.record_changes(PATH);
        let scribe = Scribe::new(ensemble.clone(), RECOVERY);
        scribe.note(format_args!("seed {seed}, {together}, {clients} clients, latency {latency:?}, {weather:?}"));
        let field = Nodes { scribe: scribe.clone(), ensemble };

        let (calm, is_calm) = watch::channel(false);
        let (mut readers, mut workers, mut started) = (JoinSet::new(), JoinSet::new(), Vec::new());
        let pause = [300, 1500, 4000][self.random.random_range(0..3)];
        let arrived = Arc::new(AtomicU32::new(0));
        for id in 0..clients {
            let (client, path) = weather::start_client(&field.ensemble, id, weather, &mut self.random);
            let shared = share(&client, path);
            for worker in 0..weather.workers {
                let number = id * WORKERS + worker;
                let worker = Worker {
                    scribe: scribe.clone(),
                    ensemble: field.ensemble.clone(),
                    client: client.clone(),
                    name: ClientId(id),
                    number,
                    path,
                    root: PATH,
                    random: StdRng::seed_from_u64(seed ^ (u64::from(number) + 1001) << 32),
                    pause,
                    calm: is_calm.clone(),
                    meeting: Meeting { arrived: Arc::clone(&arrived), workers: self.workers(), meetings: 0 },
                };
                workers.spawn(work(worker, shared.clone()));
            }
            readers.spawn(follow_sessions(scribe.clone(), id, client.clone()));
            if let Some(longest) = weather.reads {
                let random = StdRng::seed_from_u64(seed ^ (u64::from(id) + 1100) << 32);
                readers.spawn(weather::read(client.clone(), longest, random));
            }
            started.push(client);
        }
        let wrong = |what| scribe.wrong(what);
        let faults = async {
            weather::nemeses(&field, weather, seed ^ 400, &mut self.random).await;
            scribe.stale("all faults end", Duration::ZERO);
            for id in 0..MOST_CLIENTS {
                field.ensemble.repair(ClientId(id));
            }
            tokio::time::sleep(RECOVERY).await;
            scribe.note("all is calm");
            calm.send_replace(true);
        };
        if !weather::workers_end(&mut workers, faults, wrong).await {
            wrong("a worker that waits for ever".to_owned());
        }
        drop((workers, readers));
        weather::clean_up(&field, started, wrong).await;
        scribe
    }
}

/// Notes the ends of a client's sessions until it is closed.
async fn follow_sessions<E: Recorded>(scribe: Scribe<E>, id: u32, client: CuratorFramework) {
    loop {
        match client.session().await {
            Ok(session) => {
                session.ended().await;
                scribe.session_ended(format_args!("a session of client {id} has ended"));
            }
            Err(Error::Closed) => return,
            // It was not connected for the time of an operation.
            Err(_) => {}
        }
    }
}

/// The nodes of the recipes, and the notes on them.
struct Nodes<E> {
    scribe: Scribe<E>,
    ensemble: SimulatedEnsemble,
}

impl<E: Recorded> Field for Nodes<E> {
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
        self.scribe.stale(what, lasting);
    }

    fn end(&self, what: impl fmt::Display) {
        self.scribe.fault(what, Duration::ZERO);
    }

    fn revoke(&self, _nodes: Vec<String>) {}

    /// Returns the ephemeral nodes.
    fn nodes(&self) -> Vec<(String, i64)> {
        let nodes = caching::below(&self.ensemble, PATH).into_iter();
        nodes.filter_map(|path| Some((path.clone(), self.ensemble.owner(&path).filter(|owner| *owner != 0)?))).collect()
    }
}
