//! One storm over persistent nodes.

mod players;

use std::sync::Arc;
use std::time::Duration;

use curator_checkers::elections;
use curator_checkers::registrations::{Event, Rules};
use curator_discovery::{ServiceCache, ServiceDiscovery};
use curator_recipes::Group;
use curator_test::ClientId;
use rand::Rng as _;
use tokio::sync::{Barrier, watch};
use tokio::task::JoinSet;

use super::field::Subject;
use super::stage::{Salt, Stage};
use super::weather::{self, PATH, RECOVERY, SESSION, WORKERS, Weather};
use crate::registrants::{Book, Place, Presence, Registrant, SERVICE, observe, observe_service};
use crate::scribe::Outcome;

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
const SALT: Salt = Salt { own: 600, readers: 700, faults: 100 };

impl Subject for Book {}

/// Runs one storm.
pub(super) async fn storm(seed: u64, presence: Presence, weather: Weather) -> Outcome {
    // A node of an earlier registration that returns with a backup is not the node of the present one.
    // The servers drop the events of a node that clients may not read, with the watches, so a group does not hear of changes.
    let weather = Weather { hardship: weather.hardship.without_backups().without_denials(), ..weather };
    // At the end of the numbers the servers do not count the changes of a parent: a watch that is set again misses them.
    let weather = Weather { numbers_end: weather.numbers_end && presence == Presence::Nodes, ..weather };
    let mut stage = Stage::<Book>::new(seed, SALT, weather, Vec::new(), presence);
    stage.field.ensemble.record_changes(PATH);
    let items: Vec<_> = (0..stage.random.random_range(3..=8)).map(|item| format!("item-{item}")).collect();
    stage.field.parts = parts(presence, &items);
    stage.field.scribe.partitions(&items);
    let clients = stage.random.random_range(2..=MOST_CLIENTS);

    let (calm, is_calm) = watch::channel(false);
    let all = Arc::new(Barrier::new((clients * weather.workers) as usize));
    if !stage.latency.is_zero() {
        stage.field.scribe.takes_time();
    }
    let (mut observers, mut watching) = (Vec::new(), JoinSet::new());
    let (mut caches, mut following) = (Vec::new(), JoinSet::new());
    stage.start_clients(clients, |stage, id, client, path| {
        for number in stage.workers_of(id) {
            let namespace = PATH.strip_suffix(path).unwrap_or_default();
            let registrant = Registrant {
                scribe: stage.field.scribe.clone(),
                client: client.clone(),
                name: ClientId(id),
                worker: number % WORKERS,
                place: Place { path: path.to_owned(), namespace },
                random: stage.random_of(number),
                rounds: ROUNDS,
                // At the end of the numbers the server refuses a second node with the same name and number.
                unprotected: !weather.numbers_end,
                items: items.clone(),
                calm: is_calm.clone(),
                all: Arc::clone(&all),
                stays: RECOVERY + PATIENCE * 2,
            };
            stage.workers.spawn(registrant.register(presence));
        }
        let scribe = stage.field.scribe.clone();
        let begins = move |scribe: &crate::registrants::Scribe, session| {
            scribe.event(Event::SessionBegan(ClientId(id), session));
        };
        stage.readers.spawn(scribe.clone().follow_sessions(client.clone(), begins, |_| ()));
        if presence == Presence::Services && id < 2 {
            let discovery = ServiceDiscovery::<String>::new(client.clone(), path).expect("a valid path");
            let cache = Arc::new(ServiceCache::new(&discovery, SERVICE).expect("a valid name"));
            cache.start().expect("a runtime");
            following.spawn(observe_service(scribe.clone(), Arc::downgrade(&cache)));
            caches.push(cache);
        }
        if presence == Presence::Group && id < 2 {
            let group = Group::new(client.clone(), path).expect("a valid path");
            group.start().expect("a runtime");
            watching.spawn(observe(scribe, group.watch(), group.changes()));
            observers.push(group);
        }
    });
    let mut players = JoinSet::new();
    if !weather.calm {
        stage.clients.extend(players::play(seed, &stage.field, &mut players));
    }
    let field = stage.field.clone();
    let faults_end = async {
        while players.join_next().await.is_some() {}
        field.repair(MOST_CLIENTS);
        calm.send_replace(true);
    };
    stage.run("a registrant", faults_end).await;
    weather::relieve(&field);
    stage.observers_end(observers, Group::close, watching).await;
    stage.observers_end(caches, async |cache: &Arc<ServiceCache<String>>| cache.close().await, following).await;
    let mut rules_of_items = elections::Rules::new(PATIENCE_WITH_ITEMS).prompt(SESSION).no_loss_in_calm();
    // There and back of a listing, and of the read behind it.
    rules_of_items = rules_of_items.on_its_way(stage.latency * 4);
    if weather.loses_data {
        rules_of_items = rules_of_items.falling_terms();
    }
    stage.end(&(Rules::new(PATIENCE).no_loss_in_calm(), rules_of_items)).await
}

/// Returns the parents of the nodes; the first one is the parent of nodes with an id.
fn parts(presence: Presence, items: &[String]) -> Vec<String> {
    match presence {
        Presence::Nodes | Presence::Group => vec![PATH.to_owned(), DEEP.to_owned()],
        Presence::Services => vec![format!("{PATH}/{SERVICE}")],
        Presence::Partition => {
            let items = items.iter().map(|item| format!("{PATH}/items/{item}"));
            [format!("{PATH}/members")].into_iter().chain(items).collect()
        }
    }
}
