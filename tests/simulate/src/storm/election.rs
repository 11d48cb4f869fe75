//! One storm over an election.

mod players;

use std::time::Duration;

use curator_checkers::elections::Rules;
use curator_recipes::LeaderObserver;
use curator_test::ClientId;
use tokio::task::JoinSet;

use super::field::Subject;
use super::stage::{Salt, Stage, start_player};
use super::weather::{CLIENTS, PATH, SESSION, Weather};
use crate::candidates::{Book, Campaigner, Election, observe};
use crate::scribe::Outcome;

/// The limit of the time without a leader outside of faults. A candidate may wait for a second before it leads.
const PATIENCE: Duration = Duration::from_secs(4);
const ROUNDS: u32 = 3;
const OBSERVER: ClientId = ClientId(110);
const SALT: Salt = Salt { own: 300, readers: 400, faults: 100 };

impl Subject for Book {}

/// Runs one storm.
pub(super) async fn storm(seed: u64, election: Election) -> Outcome {
    let weather = Weather { gives_up: seed % 8 == 5, ..Weather::of(seed) };
    let hands_over = seed % 8 > 5;
    let mut stage = Stage::<Book>::new(seed, SALT, weather, vec![PATH.to_owned()], election);
    stage.field.ensemble.record_changes(PATH);
    stage.start_clients(CLIENTS, |stage, id, client, path| {
        for worker in stage.workers_of(id) {
            let (scribe, random) = (stage.field.scribe.clone(), stage.random_of(worker));
            let (client, path, name) = (client.clone(), path.to_owned(), ClientId(id));
            let campaigner = Campaigner { scribe, client, name, path, random, rounds: ROUNDS, hands_over };
            stage.workers.spawn(campaigner.campaign(election));
        }
    });
    // One observes with the client of candidates.
    stage.clients.push(start_player(&stage.field.ensemble, OBSERVER));
    let mut observers = Vec::new();
    let mut watching = JoinSet::new();
    for client in [&stage.clients[0], &stage.clients[stage.clients.len() - 1]] {
        let observer = LeaderObserver::new(client.clone(), PATH).expect("a valid path");
        observer.start().expect("a runtime");
        watching.spawn(observe(stage.field.scribe.clone(), observer.watch()));
        observers.push(observer);
    }
    if !weather.calm {
        stage.clients.extend(players::play(seed, election, &stage.field, &mut stage.workers));
    }
    stage.run("a candidate", async {}).await;
    stage.observers_end(observers, LeaderObserver::close, watching).await;
    stage.field.scribe.close();
    // There and back of a listing, and of the read of the path's data, and of a node that is not a candidate's.
    let persistent = if !weather.calm && players::is_impersonated(seed) { stage.latency * 2 } else { Duration::ZERO };
    let on_its_way = stage.latency * 4 + persistent;
    let mut rules = Rules::new(PATIENCE).prompt(SESSION).no_loss_in_calm().on_its_way(on_its_way);
    if weather.loses_data {
        rules = rules.falling_terms();
    }
    stage.end(&rules).await
}
