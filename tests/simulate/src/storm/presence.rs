//! One storm over nodes that stand.

mod players;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use curator_checkers::elections;
use curator_checkers::registrations::Rules;
use curator_recipes::Group;
use curator_test::{ClientId, SimulatedEnsemble};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio::sync::{Barrier, watch};
use tokio::task::JoinSet;

use super::weather::{self, Field, PATH, RECOVERY, SESSION, WORKERS, Weather};
use crate::contenders::Outcome;
use crate::registrants::{Place, Presence, Registrant, Scribe, observe};

/// The limit of the time in which a node differs from its registration outside of faults. A task that was refused
/// pauses for a second at most.
const PATIENCE: Duration = Duration::from_secs(4);
/// The limit of the time without an owner of an item outside of faults. The members settle for a second at most, then
/// work has two seconds to return.
const PATIENCE_WITH_ITEMS: Duration = Duration::from_secs(8);
const ROUNDS: u32 = 3;
/// The parent of some nodes, which the registrants create.
const DEEP: &str = "/storm/lock/deep";
const MOST_CLIENTS: u32 = 5;

/// Runs one storm.
pub(super) async fn storm(seed: u64, presence: Presence, weather: Weather) -> Outcome {
    let mut random = StdRng::seed_from_u64(seed ^ 600 << 32);
    let latency = Duration::from_millis(random.random_range(0..60));
    // A node of an earlier registration that returns with a backup is not that of the present one.
    // The servers drop the events of a node that clients may not read, with the watches, so a group does not hear of changes.
    let weather = Weather { hardship: weather.hardship.without_backups().without_denials(), ..weather };
    // At the end of the numbers the servers do not count the changes of a parent: a watch that is set again misses them.
    let weather = Weather { numbers_end: weather.numbers_end && presence == Presence::Nodes, ..weather };
    let ensemble = SimulatedEnsemble::with_tick(seed, latency, weather.tick);
    ensemble.record_changes(PATH);
    let items: Vec<_> = (0..random.random_range(3..=8)).map(|item| format!("item-{item}")).collect();
    let scribe = Scribe::new(ensemble.clone(), PATH, &items, RECOVERY);
    let clients = random.random_range(2..=MOST_CLIENTS);
    scribe.note(format_args!("seed {seed}, {presence}, {clients} clients, latency {latency:?}, {weather:?}"));
    let field = Nodes { scribe: scribe.clone(), ensemble, parts: parts(presence, &items) };

    let (calm, is_calm) = watch::channel(false);
    let all = Arc::new(Barrier::new((clients * weather.workers) as usize));
    let (mut readers, mut workers) = (JoinSet::new(), JoinSet::new());
    let mut started = Vec::new();
    let (mut observers, mut watching) = (Vec::new(), JoinSet::new());
    for id in 0..clients {
        let (client, path) = weather::start_client(&field.ensemble, id, weather, &mut random);
        for worker in 0..weather.workers {
            let random = StdRng::seed_from_u64(seed ^ (u64::from(id * WORKERS + worker) + 601) << 32);
            let namespace = PATH.strip_suffix(path).unwrap_or_default();
            let place = Place { path: path.to_owned(), namespace };
            let (scribe, client, items, calm) = (scribe.clone(), client.clone(), items.clone(), is_calm.clone());
            let all = Arc::clone(&all);
            let (name, rounds, stays) = (ClientId(id), ROUNDS, RECOVERY + PATIENCE * 2);
            // At the end of the numbers the server refuses a second node with the same name and number.
            let unprotected = !weather.numbers_end;
            let registrant = Registrant {
                scribe,
                client,
                name,
                worker,
                place,
                random,
                rounds,
                unprotected,
                items,
                calm,
                all,
                stays,
            };
            workers.spawn(registrant.register(presence));
        }
        readers.spawn(scribe.clone().follow_sessions(ClientId(id), client.clone()));
        if let Some(longest) = weather.reads {
            let random = StdRng::seed_from_u64(seed ^ (u64::from(id) + 700) << 32);
            readers.spawn(weather::read(client.clone(), longest, random));
        }
        if presence == Presence::Group && id < 2 {
            let group = Group::new(client.clone(), path).expect("a valid path");
            group.start().expect("a runtime");
            watching.spawn(observe(scribe.clone(), group.watch(), group.changes()));
            observers.push(group);
        }
        started.push(client);
    }
    let mut players = JoinSet::new();
    if !weather.calm {
        started.extend(players::play(seed, &field, &mut players));
    }
    let wrong = |what| scribe.wrong(what);
    let faults = async {
        weather::nemeses(&field, weather, seed ^ 100, &mut random).await;
        while players.join_next().await.is_some() {}
        scribe.fault("all faults end", Duration::ZERO);
        for id in 0..MOST_CLIENTS {
            field.ensemble.repair(ClientId(id));
        }
        calm.send_replace(true);
    };
    if !weather::workers_end(&mut workers, faults, wrong).await {
        wrong("a registrant that waits for ever".to_owned());
    }
    drop(workers);
    drop(readers);
    weather::relieve(&field);
    if !weather::observers_end(observers, Group::close, watching).await {
        wrong("an observer that does not end".to_owned());
    }
    // An unprotected node stays if the reply to its create is lost.
    for (path, _) in field.nodes().into_iter().filter(|(path, _)| path.contains("/unprotected-")) {
        field.delete(&path);
    }
    weather::clean_up(&field, started, wrong).await;
    let mut rules_of_items = elections::Rules::new(PATIENCE_WITH_ITEMS).prompt(SESSION).no_loss_in_calm();
    // There and back of a listing, and of the read behind it.
    rules_of_items = rules_of_items.on_its_way(latency * 4);
    if weather.loses_data {
        rules_of_items = rules_of_items.falling_terms();
    }
    scribe.outcome(&Rules::new(PATIENCE).no_loss_in_calm(), &rules_of_items)
}

/// Returns the parents of the nodes; the first one is that of nodes with an id.
fn parts(presence: Presence, items: &[String]) -> Vec<String> {
    match presence {
        Presence::Nodes | Presence::Group => vec![PATH.to_owned(), DEEP.to_owned()],
        Presence::Partition => {
            let items = items.iter().map(|item| format!("{PATH}/items/{item}"));
            [format!("{PATH}/members")].into_iter().chain(items).collect()
        }
    }
}

/// The nodes of registrants, and the notes on them.
#[derive(Debug, Clone)]
struct Nodes {
    scribe: Scribe,
    ensemble: SimulatedEnsemble,
    /// The parents of the nodes.
    parts: Vec<String>,
}

impl Field for Nodes {
    fn ensemble(&self) -> &SimulatedEnsemble {
        &self.ensemble
    }

    fn parts(&self) -> Vec<String> {
        self.parts.clone()
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

    fn nodes(&self) -> Vec<(String, i64)> {
        let below = |part: String| {
            let paths = self.ensemble.children(&part).into_iter().map(move |node| format!("{part}/{node}"));
            paths.filter_map(|path| Some((path.clone(), self.ensemble.owner(&path)?)))
        };
        self.parts().into_iter().flat_map(below).filter(|(path, _)| path != DEEP).collect()
    }

    fn revoke(&self, nodes: Vec<String>) {
        self.scribe.revoke(&nodes);
    }
}
