//! One storm over an election.

mod players;

use std::fmt;
use std::time::Duration;

use curator_checkers::elections::Rules;
use curator_recipes::LeaderObserver;
use curator_test::{ClientId, SimulatedEnsemble};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio::task::JoinSet;

use super::weather::{self, CLIENTS, Field, PATH, RECOVERY, SESSION, WORKERS, Weather};
use crate::candidates::{Campaigner, Election, Scribe, observe};
use crate::contenders::Outcome;

/// The limit of the time without a leader outside of faults. A candidate may wait for a second before it leads.
const PATIENCE: Duration = Duration::from_secs(4);
const ROUNDS: u32 = 3;
const OBSERVER: ClientId = ClientId(110);

/// Runs one storm.
pub(super) async fn storm(seed: u64, election: Election) -> Outcome {
    let mut random = StdRng::seed_from_u64(seed ^ 300 << 32);
    let latency = Duration::from_millis(random.random_range(0..60));
    let weather = Weather { gives_up: seed % 8 == 5, ..Weather::of(seed) };
    let hands_over = seed % 8 > 5;
    let ensemble = SimulatedEnsemble::with_tick(seed, latency, weather.tick);
    ensemble.record_changes(PATH);
    let scribe = Scribe::new(ensemble.clone(), RECOVERY);
    scribe.note(format_args!("seed {seed}, {election}, latency {latency:?}, {weather:?}"));
    let field = Elections { scribe: scribe.clone(), ensemble };

    let mut clients = Vec::new();
    let (mut readers, mut workers) = (JoinSet::new(), JoinSet::new());
    for id in 0..CLIENTS {
        let (client, path) = weather::start_client(&field.ensemble, id, weather, &mut random);
        for worker in 0..weather.workers {
            let random = StdRng::seed_from_u64(seed ^ (u64::from(id * WORKERS + worker) + 301) << 32);
            let (scribe, client, path) = (scribe.clone(), client.clone(), path.to_owned());
            let campaigner =
                Campaigner { scribe, client, name: ClientId(id), path, random, rounds: ROUNDS, hands_over };
            workers.spawn(campaigner.campaign(election));
        }
        if let Some(longest) = weather.reads {
            let random = StdRng::seed_from_u64(seed ^ (u64::from(id) + 400) << 32);
            readers.spawn(weather::read(client.clone(), longest, random));
        }
        clients.push((client, path));
    }
    // One observes with the client of candidates.
    let apart = weather::start_player(&field.ensemble, OBSERVER);
    clients.push((apart, PATH));
    let mut observers = Vec::new();
    let mut watching = JoinSet::new();
    for (client, path) in [&clients[0], &clients[clients.len() - 1]] {
        let observer = LeaderObserver::new(client.clone(), *path).expect("a valid path");
        observer.start().expect("a runtime");
        watching.spawn(observe(scribe.clone(), observer.watch()));
        observers.push(observer);
    }
    let mut clients: Vec<_> = clients.into_iter().map(|(client, _)| client).collect();
    if !weather.calm {
        clients.extend(players::play(seed, election, &field, &mut workers));
    }
    let wrong = |what| scribe.wrong(what);
    let nemeses = weather::nemeses(&field, weather, seed ^ 100, &mut random);
    if !weather::workers_end(&mut workers, nemeses, wrong).await {
        wrong("a candidate that waits for ever".to_owned());
    }
    drop(workers);
    drop(readers);
    if !weather::observers_end(observers, LeaderObserver::close, watching).await {
        wrong("an observer that does not end".to_owned());
    }
    scribe.close();
    weather::clean_up(&field, clients, wrong).await;
    let mut rules = Rules::new(PATIENCE).prompt(SESSION).no_loss_in_calm();
    // There and back of a listing, and of the read of the path's data, and of a node that is not a candidate's.
    let persistent = if !weather.calm && players::is_impersonated(seed) { latency * 2 } else { Duration::ZERO };
    rules = rules.on_its_way(latency * 4 + persistent);
    if weather.loses_data {
        rules = rules.falling_terms();
    }
    scribe.outcome(&rules)
}

/// The nodes of an election, and the notes on them.
#[derive(Debug, Clone)]
struct Elections {
    scribe: Scribe,
    ensemble: SimulatedEnsemble,
}

impl Field for Elections {
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
        self.scribe.end(what);
    }

    fn revoke(&self, nodes: Vec<String>) {
        self.scribe.revoke(nodes);
    }
}
