//! One storm over counters, barriers, latches or a queue.

use std::sync::Arc;
use std::time::Duration;

use curator_checkers::timeline::Timeline;
use curator_checkers::{barriers, counters, latches};
use curator_framework::CuratorFramework;
use curator_test::ClientId;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio::sync::watch;
use tokio::time::sleep;

use super::field::{Field, Subject};
use super::stage::{Salt, Stage};
use super::weather::{PATH, RECOVERY, Weather};
use crate::caching;
use crate::scribe::Outcome;
use crate::together::{
    Counting, Gathering, Kind, Latching, Meeting, QUEUE, Queueing, Recorded, Scribe, Together, Worker,
};

const MOST_CLIENTS: u32 = 4;
const DOUBLE: &str = "/storm/lock/deep/double";
const LATCH: &str = "/storm/lock/deep/latch";
const SALT: Salt = Salt { own: 1000, readers: 1100, faults: 400 };

/// Runs one storm.
pub(super) async fn storm(seed: u64, together: Together) -> Outcome {
    // Sequence numbers are not used. Data that the servers lose cannot be counted.
    let weather = Weather { numbers_end: false, loses_data: false, ..Weather::of(seed) };
    let path = || vec![PATH.to_owned()];
    match together {
        Together::Counters => {
            let stage = Stage::new(seed, SALT, weather, path(), together);
            let rules = |_: &Scribe<_>, _, behind| counters::Rules::new().behind(behind);
            run(stage, |_, client, path| Counting::new(client, path), Worker::count, rules).await
        }
        Together::Barriers => {
            let stage = Stage::new(seed, SALT, weather, path(), together);
            let share = |workers, client: &CuratorFramework, path: &str| {
                let (members, quorum) = members(seed, workers);
                Gathering::new(client, path, members, quorum)
            };
            let rules = |scribe: &Scribe<_>, workers, behind| {
                let (members, quorum) = members(seed, workers);
                scribe.note(format_args!("{members} members, quorum {quorum:?}"));
                barriers::Rules::new(DOUBLE, quorum.map_or(members, |(least, _)| least)).behind(behind)
            };
            run(stage, share, Worker::gather, rules).await
        }
        Together::Latches => {
            let stage = Stage::new(seed, SALT, weather, path(), together);
            let rules = |_: &Scribe<_>, _, behind| latches::Rules::new(LATCH).behind(behind);
            run(stage, |_, client, path| Latching::new(client, path), Worker::latch, rules).await
        }
        Together::Queues => {
            let kind = Kind::of(seed);
            let stage = Stage::new(seed, SALT, weather, path(), format_args!("{kind:?}"));
            let rules = |_: &Scribe<_>, _, behind| kind.rules(behind);
            run(stage, |_, client, path| Queueing::new(client, path, kind), Worker::queue, rules).await
        }
    }
}

/// Returns the number of members of a double barrier, and a smaller number that is enough after a time.
fn members(seed: u64, workers: u32) -> (usize, Option<(usize, Duration)>) {
    let mut random = StdRng::seed_from_u64(seed ^ 1200 << 32);
    let members = random.random_range(2..=workers as usize);
    let quorum = match random.random_range(0..3) {
        0 => Some((random.random_range(1..=members), Duration::from_millis(random.random_range(0..3000)))),
        _ => None,
    };
    (members, quorum)
}

/// Runs a storm of workers. The workers of one client share something.
async fn run<E: Recorded, S: Clone, W>(
    mut stage: Stage<Timeline<E>>,
    share: impl Fn(u32, &CuratorFramework, &str) -> S,
    work: impl Fn(Worker<E>, S) -> W,
    rules: impl FnOnce(&Scribe<E>, u32, Duration) -> E::Rules,
) -> Outcome
where
    W: Future<Output = ()> + Send + 'static,
{
    let field = stage.field.clone();
    let Field { scribe, ensemble, .. } = &field;
    ensemble.record_changes(PATH);
    let clients = stage.random.random_range(2..=MOST_CLIENTS);
    let (calm, is_calm) = watch::channel(false);
    let pause = [300, 1500, 4000][stage.random.random_range(0..3)];
    let meeting = Meeting { arrived: Arc::default(), workers: clients * stage.weather.workers, meetings: 0 };
    stage.start_clients(clients, |stage, id, client, path| {
        let shared = share(meeting.workers, client, path);
        for number in stage.workers_of(id) {
            let worker = Worker {
                scribe: scribe.clone(),
                ensemble: ensemble.clone(),
                client: client.clone(),
                name: ClientId(id),
                number,
                path,
                root: PATH,
                random: stage.random_of(number),
                pause,
                calm: is_calm.clone(),
                meeting: meeting.clone(),
            };
            stage.workers.spawn(work(worker, shared.clone()));
        }
        let ends = move |scribe: &Scribe<E>| scribe.session_ended(format_args!("a session of client {id} has ended"));
        stage.readers.spawn(scribe.clone().follow_sessions(client.clone(), |_, _| (), ends));
    });
    let faults_end = async {
        field.repair(MOST_CLIENTS);
        sleep(RECOVERY).await;
        scribe.note("all is calm");
        calm.send_replace(true);
    };
    stage.run("a worker", faults_end).await;
    // There and back of a read.
    let behind = stage.latency * 2 + Duration::from_millis(1);
    stage.end(&rules(scribe, meeting.workers, behind)).await
}

impl<E: Recorded> Subject for Timeline<E> {
    /// Returns the ephemeral nodes, and the items of a queue. If the marker of a put is deleted by hand, nothing proves
    /// that the put was applied, so markers of queues are not among them.
    fn nodes(field: &Field<Self>) -> Vec<(String, i64)> {
        let nodes = caching::below(&field.ensemble, PATH).into_iter();
        let is_item = |path: &str| path.rsplit_once('/').is_some_and(|(parent, _)| parent == QUEUE);
        let nodes = nodes.filter_map(|path| Some((path.clone(), field.ensemble.owner(&path)?)));
        nodes.filter(|(path, owner)| (*owner != 0 || is_item(path)) && !path.ends_with("-queue-marker")).collect()
    }
}
