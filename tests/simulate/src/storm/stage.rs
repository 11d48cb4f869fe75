//! The script of a storm: clients start, workers work while faults come and go, and nothing is left.

use std::fmt;
use std::time::Duration;

use curator_framework::recipe::RecipeClient as _;
use curator_framework::{
    CuratorFramework, CuratorFrameworkBuilder, ExponentialBackoffRetry, RetryNTimes, StandardConnectionStateErrorPolicy,
};
use curator_test::{ClientId, SimulatedEnsemble};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::field::{Field, Subject};
use super::weather::{self, CLIENTS, PATH, RECOVERY, SESSION, SMALL_REPLY, WORKERS, Weather};
use crate::scribe::{Outcome, Scribe};

/// Longer than all workers need.
const THE_END: Duration = Duration::from_secs(1200);
/// Half of the clients know the path by another name.
const NAMESPACE: (&str, &str) = ("storm", "/lock");

/// The parts of a seed that belong to one kind of storm. Each kind makes random choices of its own.
#[derive(Debug, Clone, Copy)]
pub(super) struct Salt {
    /// The storm's own, and the workers' from the next number on.
    pub(super) own: u64,
    pub(super) readers: u64,
    pub(super) faults: u64,
}

/// A running storm.
#[derive(Debug)]
pub(super) struct Stage<B> {
    seed: u64,
    salt: Salt,
    pub(super) weather: Weather,
    pub(super) random: StdRng,
    /// The time of a message on its way.
    pub(super) latency: Duration,
    pub(super) field: Field<B>,
    pub(super) clients: Vec<CuratorFramework>,
    pub(super) workers: JoinSet<()>,
    /// Tasks that end with the storm.
    pub(super) readers: JoinSet<()>,
}

impl<B: Subject> Stage<B> {
    /// Starts the servers.
    pub(super) fn new(seed: u64, salt: Salt, weather: Weather, parts: Vec<String>, kind: impl fmt::Display) -> Self {
        let mut random = StdRng::seed_from_u64(seed ^ salt.own << 32);
        let latency = Duration::from_millis(random.random_range(0..60));
        let ensemble = SimulatedEnsemble::with_tick(seed, latency, weather.tick);
        let scribe = Scribe::of(Some(ensemble.clone()), RECOVERY);
        scribe.note(format_args!("seed {seed}, {kind}, latency {latency:?}, {weather:?}"));
        let field = Field { scribe, ensemble, parts, is_queue: false };
        let (clients, workers, readers) = (Vec::new(), JoinSet::new(), JoinSet::new());
        Self { seed, salt, weather, random, latency, field, clients, workers, readers }
    }

    /// Returns the random choices of a worker.
    pub(super) fn random_of(&self, number: u32) -> StdRng {
        StdRng::seed_from_u64(self.seed ^ (u64::from(number) + self.salt.own + 1) << 32)
    }

    /// Starts the clients that the faults hit. Each has workers, and some read beside them.
    pub(super) fn start_clients(
        &mut self,
        clients: u32,
        mut start_workers: impl FnMut(&mut Self, u32, &CuratorFramework, &'static str),
    ) {
        for id in 0..clients {
            let (client, path) = start_client(&self.field.ensemble, id, self.weather, &mut self.random);
            start_workers(self, id, &client, path);
            if let Some(longest) = self.weather.reads {
                let random = StdRng::seed_from_u64(self.seed ^ (u64::from(id) + self.salt.readers) << 32);
                self.readers.spawn(read(client.clone(), longest, random));
            }
            self.clients.push(client);
        }
    }

    /// Returns the numbers of the workers of a client.
    pub(super) const fn workers_of(&self, client: u32) -> std::ops::Range<u32> {
        client * WORKERS..client * WORKERS + self.weather.workers
    }

    /// Brings the weather until all workers have ended. Awaits `calm` behind the weather.
    pub(super) async fn run(&mut self, worker: &str, calm: impl Future<Output = ()>) {
        let Self { seed, salt, weather, random, field, workers, readers, .. } = self;
        let have_ended = {
            let all = field.scribe.all_end(workers);
            let faults = async {
                weather::nemeses(field, *weather, *seed ^ salt.faults, random).await;
                calm.await;
            };
            tokio::pin!(faults, all);
            // The weather ends by itself. The rest of the storm is calm.
            tokio::select! {
                biased;
                () = &mut all => true,
                () = &mut faults => timeout(THE_END, all).await.is_ok(),
            }
        };
        if !have_ended {
            field.scribe.wrong(format_args!("{worker} that waits for ever"));
        }
        workers.abort_all();
        readers.abort_all();
    }

    /// Closes the observers, the last one by its drop.
    pub(super) async fn observers_end<O>(
        &self,
        mut observers: Vec<O>,
        close: impl AsyncFn(&O),
        mut watching: JoinSet<()>,
    ) {
        drop(observers.pop());
        for observer in observers {
            close(&observer).await;
        }
        while let Ok(Some(_)) = timeout(RECOVERY, watching.join_next()).await {}
        if !watching.is_empty() {
            self.field.scribe.wrong("an observer that does not end");
        }
    }

    /// Closes the clients, and returns the outcome. Everything must be cleaned up before, while their sessions live, and
    /// nothing may be left.
    pub(super) async fn end(self, rules: &B::Rules) -> Outcome {
        let Self { field, clients, .. } = self;
        let Field { ensemble, scribe, .. } = &field;
        for id in 0..CLIENTS {
            ensemble.repair(ClientId(id));
        }
        sleep(RECOVERY).await;
        for (node, _) in field.nodes() {
            scribe.wrong(node);
        }
        for client in &clients {
            if client.watchers() > 0 {
                scribe.wrong(format_args!("watches of {:?}", client.watched_paths()));
            }
            client.close().await;
        }
        drop(clients);
        sleep(RECOVERY).await;
        if !ensemble.sessions().is_empty() {
            scribe.wrong(format_args!("sessions {:?}", ensemble.sessions()));
        }
        // The one that is left carries the ensemble's messages.
        let tasks = tokio::runtime::Handle::current().metrics().num_alive_tasks();
        if tasks > 1 {
            scribe.wrong(format_args!("{} tasks", tasks - 1));
        }
        scribe.outcome(rules)
    }
}

impl<B: Subject> Field<B> {
    /// Ends all faults of these clients.
    pub(super) fn repair(&self, clients: u32) {
        self.scribe.fault("all faults end", Duration::ZERO);
        for id in 0..clients {
            self.ensemble.repair(ClientId(id));
        }
    }
}

fn client_options(ensemble: &SimulatedEnsemble, id: ClientId) -> CuratorFrameworkBuilder {
    let options = ensemble.client(id).session_timeout(SESSION).connection_timeout(Duration::from_secs(5));
    // The host's address would be another one elsewhere.
    options.default_data("").reap_interval(None)
}

/// Reads continue while a server is cut off, and prove nothing.
pub(super) async fn read(client: CuratorFramework, longest: u64, mut random: StdRng) {
    loop {
        let _unanswered = timeout(Duration::from_secs(1), client.check_exists().for_path("/")).await;
        sleep(Duration::from_millis(random.random_range(longest / 10..=longest))).await;
    }
}

/// Starts one of the clients that the faults hit. Returns it with its path.
fn start_client(
    ensemble: &SimulatedEnsemble,
    id: u32,
    weather: Weather,
    random: &mut StdRng,
) -> (CuratorFramework, &'static str) {
    let mut options = client_options(ensemble, ClientId(id)).reap_interval(weather.reaps);
    let mut path = PATH;
    if weather.namespace && id % 2 == 1 {
        options = options.namespace(NAMESPACE.0);
        path = NAMESPACE.1;
    }
    if weather.hardship.large {
        options = options.max_reply(SMALL_REPLY);
    }
    if weather.hardship.refuses {
        options = with_credentials(options);
    }
    if weather.gives_up && id % 2 == 1 {
        options = options.connection_state_error_policy(StandardConnectionStateErrorPolicy);
    }
    if random.random() {
        return (start(options), path);
    }
    let policy = ExponentialBackoffRetry::with_max_pause(Duration::from_millis(50), 20, Duration::from_secs(2));
    (started(options.retry_policy(policy.expect("valid"))), path)
}

/// Starts a client that plays a part of its own.
pub(super) fn start_player(ensemble: &SimulatedEnsemble, id: ClientId) -> CuratorFramework {
    start(client_options(ensemble, id))
}

/// Starts a client of its own, like [`start_player`], with the credentials of the clients of hard storms.
pub(super) fn start_player_with_credentials(ensemble: &SimulatedEnsemble, id: ClientId) -> CuratorFramework {
    start(with_credentials(client_options(ensemble, id)))
}

fn with_credentials(options: CuratorFrameworkBuilder) -> CuratorFrameworkBuilder {
    options.authorization("digest", "user:password")
}

fn start(options: CuratorFrameworkBuilder) -> CuratorFramework {
    started(options.retry_policy(RetryNTimes::new(100, Duration::from_millis(200))))
}

fn started(options: CuratorFrameworkBuilder) -> CuratorFramework {
    let client = options.build().expect("valid options");
    client.start().expect("there is a runtime");
    client
}
