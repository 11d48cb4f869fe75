//! One storm over caches.

use std::fmt;
use std::time::Duration;

use curator_checkers::caches::Rules;
use curator_test::ClientId;
use rand::Rng as _;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::field::{Field, Subject};
use super::stage::{Salt, Stage, start_player};
use super::weather::{self, CLIENTS, PATH, RECOVERY, Weather, is_long_child};
use crate::caching::{self, Book, Place, Reader, Writer};
use crate::scribe::Outcome;

/// The limit of the time in which a cache differs from the server outside of faults.
const PATIENCE: Duration = Duration::from_secs(3);
const ROUNDS: u32 = 4;
/// The parent of the root.
const ABOVE: &str = "/storm";
/// A client that no fault hits.
const HEALTHY: ClientId = ClientId(140);
const SALT: Salt = Salt { own: 900, readers: 980, faults: 300 };
/// The number of the first writer. The readers have the numbers before it.
const WRITERS: u32 = 49;

/// Runs one storm.
pub(super) async fn storm(seed: u64, weather: Weather) -> Outcome {
    // At the end of the numbers the servers do not count the changes of a parent: a watch that is set again misses them.
    let hardship = weather.hardship.without_denials_beside_backups();
    let weather = Weather { numbers_end: false, hardship, ..weather };
    let mut stage = Stage::<Book>::new(seed, SALT, weather, vec![PATH.to_owned()], "caches");
    let field = stage.field.clone();
    Book::lose_data(&field);
    field.ensemble.record_changes_for(ABOVE, hardship.max_reply());

    let (calm, is_calm) = watch::channel(false);
    let mut writers = JoinSet::new();
    let pause = [400, 3000, 12_000][stage.random.random_range(0..3)];
    let writer = |random, client, namespace| Writer {
        scribe: field.scribe.clone(),
        ensemble: field.ensemble.clone(),
        client,
        place: Place { root: PATH, namespace },
        random,
        pause,
    };
    stage.start_clients(CLIENTS, |stage, id, client, path| {
        let namespace = PATH.strip_suffix(path).unwrap_or_default();
        for worker in stage.workers_of(id) {
            let reader = Reader {
                scribe: field.scribe.clone(),
                ensemble: field.ensemble.clone(),
                client: client.clone(),
                place: Place { root: PATH, namespace },
                random: stage.random_of(worker),
                rounds: ROUNDS,
                calm: is_calm.clone(),
                stays: RECOVERY + PATIENCE * 2 + hardship.longest_pause(),
                hides: hardship.hides(),
            };
            stage.workers.spawn(reader.read());
        }
        writers.spawn(writer(stage.random_of(WRITERS + id), client.clone(), namespace).write(is_calm.clone()));
    });
    let healthy = start_player(&field.ensemble, HEALTHY);
    let above = healthy.create().creating_parents_if_needed().for_path(PATH).await;
    field.scribe.note(format_args!("the root is created: {above:?}"));
    writers.spawn(writer(stage.random_of(WRITERS + CLIENTS), healthy.clone(), "").write(is_calm.clone()));
    stage.clients.push(healthy);
    let faults_end = async {
        field.repair(CLIENTS);
        weather::relieve(&field);
        calm.send_replace(true);
        while writers.join_next().await.is_some() {}
    };
    stage.run("a reader", faults_end).await;
    drop(writers);
    for node in caching::below(&field.ensemble, ABOVE).iter().rev() {
        field.ensemble.delete(node);
    }
    stage.end(&Rules::new(PATIENCE)).await
}

/// Returns the transaction before the first one of servers that start at this time without data. No two starts have
/// transactions with the same number: a cache cannot tell apart nodes with the same history of transactions.
fn first_zxid(now: Duration) -> i64 {
    let million = (now.as_millis() + 1) * 577 % 1009;
    i64::try_from(million).unwrap_or_default() * 1_000_000
}

impl Subject for Book {
    fn nodes(field: &Field<Self>) -> Vec<(String, i64)> {
        let nodes = caching::below(&field.ensemble, PATH).into_iter();
        nodes.filter_map(|path| Some((path.clone(), field.ensemble.owner(&path)?))).collect()
    }

    fn hard_nodes(field: &Field<Self>) -> Vec<String> {
        let root = field.ensemble.owner(PATH).map(|_| PATH.to_owned());
        // What is below a long child has no path that the readers ask for.
        root.into_iter().chain(caching::below(&field.ensemble, PATH)).filter(|path| !is_long_child(path)).collect()
    }

    fn hide(field: &Field<Self>, what: impl fmt::Display, _lasting: Duration) {
        field.scribe.note(what);
    }

    fn lose_data(field: &Field<Self>) {
        field.ensemble.restart_empty_at(first_zxid(field.ensemble.now()));
    }
}
