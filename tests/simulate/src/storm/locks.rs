//! One storm over a lock.

pub(super) mod holder;
mod players;

use std::fmt;
use std::time::Duration;

use super::field::{Field, Subject};
use super::stage::{Salt, Stage};
use super::weather::{self, CLIENTS, PATH, SESSION, Weather};
use crate::contenders::{Book, Lock, Pace, Recipe, work};
use crate::scribe::Outcome;

/// The limit of the time in which a place stays free outside of faults.
const PATIENCE: Duration = Duration::from_secs(3);
const PACE: Pace = Pace { speed: 1, rounds: 4, long: 8, uneven: false, looks: true };
const SALT: Salt = Salt { own: 0, readers: 100, faults: 0 };

/// Runs one storm.
pub(super) async fn storm(seed: u64, recipe: Recipe, weather: Weather) -> Outcome {
    // The servers do not notify of the children of a node that clients may not read. A holder that watches its siblings then
    // does not learn that its node is deleted.
    let weather = Weather { hardship: weather.hardship.without_denials(), ..weather };
    let mut stage = Stage::<Book>::new(seed, SALT, weather, recipe.parts(PATH), recipe);
    stage.field.is_queue = matches!(recipe, Recipe::Mutex | Recipe::Multi);
    stage.start_clients(CLIENTS, |stage, id, client, path| {
        for worker in stage.workers_of(id) {
            let lock = Lock::new(client.clone(), recipe.of_client(id), path).expect("a valid path");
            let pace = Pace { uneven: weather.uneven, ..PACE };
            let (scribe, random) = (stage.field.scribe.clone(), stage.random_of(worker));
            stage.workers.spawn(work(scribe, lock, random, pace, worker == 0));
        }
    });
    if !weather.calm {
        stage.clients.extend(players::play(seed, recipe, &stage.field, &mut stage.workers));
    }
    stage.run("a worker", async {}).await;
    weather::relieve(&stage.field);
    let mut rules = recipe.rules(PATIENCE, SESSION).no_loss_in_calm();
    if recipe != Recipe::Multi {
        // There and back of a listing. The parts of a multi lock that are held check their nodes later.
        rules = rules.on_its_way(stage.latency * 2);
    }
    // Tokens are transactions.
    rules.growing_tokens &= !weather.loses_data;
    stage.end(&rules).await
}

impl Subject for Book {
    fn hard_nodes(field: &Field<Self>) -> Vec<String> {
        // All children of the leases are leases. Beside them a node may have the mark of the protocol as its data.
        let is_hard = |part: &&String| {
            !part.ends_with("/leases") && !part.ends_with("/locks") && field.ensemble.owner(part).is_some()
        };
        field.parts.iter().filter(is_hard).cloned().collect()
    }

    fn hide(field: &Field<Self>, what: impl fmt::Display, lasting: Duration) {
        field.scribe.fault(what, lasting);
    }
}
