//! The part that all storms share: the weather, and the faults that it brings.

use std::fmt;
use std::time::Duration;

use curator_framework::recipe::RecipeClient as _;
use curator_framework::{
    CuratorFramework, CuratorFrameworkBuilder, ExponentialBackoffRetry, RetryNTimes, StandardConnectionStateErrorPolicy,
};
use curator_test::{Backup, ClientId, SimulatedEnsemble};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

pub(super) const SESSION: Duration = Duration::from_secs(6);
/// The longest time from a fault until its client is back.
pub(super) const RECOVERY: Duration = Duration::from_secs(14);
/// Longer than all workers need.
pub(super) const THE_END: Duration = Duration::from_secs(1200);
pub(super) const CLIENTS: u32 = 3;
pub(super) const WORKERS: u32 = 2;
/// Half of the clients know the lock by another path.
const NAMESPACE: (&str, &str) = ("storm", "/lock");
pub(super) const PATH: &str = "/storm/lock";
/// The smallest limit of replies that a client can have.
const SMALL_REPLY: usize = 4096;
/// The longest pause of a client or a cache after a refusal.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// Returns the paths of two children with names that make the list of a node longer than the clients accept. A
/// notification about one of them is shorter: one above the limit would end the connection.
pub(crate) fn long_children(parent: &str) -> [String; 2] {
    ["a", "b"].map(|last| format!("{parent}/{}{last}", "long".repeat(SMALL_REPLY / 7)))
}

/// Returns `true` if a path is that of a long child.
pub(crate) fn is_long_child(path: &str) -> bool {
    path.rsplit_once('/').is_some_and(|(parent, _)| long_children(parent).iter().any(|long| long == path))
}

/// The kind of a storm. Seeds in a row have all kinds.
#[derive(Debug, Clone, Copy)]
pub(super) struct Weather {
    /// The number of workers at each client.
    pub(super) workers: u32,
    /// Without any fault.
    pub(super) calm: bool,
    /// Faults come from two sides at once.
    pub(super) doubled: bool,
    /// Longest time between two reads of a client, in milliseconds; none if it does not read beside its work.
    pub(super) reads: Option<u64>,
    /// The sequence numbers come to their end.
    pub(super) numbers_end: bool,
    /// The servers may lose all data, and their transactions begin anew.
    pub(super) loses_data: bool,
    /// One holds for very long, and the others for a moment.
    pub(super) uneven: bool,
    /// After what time clients delete empty parents.
    pub(super) reaps: Option<Duration>,
    /// Some clients have a namespace.
    pub(super) namespace: bool,
    /// Some clients give up what they hold with each lost connection.
    pub(super) gives_up: bool,
    /// Servers have too many requests now and then, and throttle them.
    pub(super) throttles: bool,
    /// The smallest session timeout is two ticks.
    pub(super) tick: Duration,
    /// The faults of hard storms.
    pub(super) hardship: Hardship,
}

/// The faults that only hard storms have: other seeds keep their stories.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Hardship {
    /// Some nodes have more data, or children with longer names, than the clients accept in one reply.
    large: bool,
    /// Clients may not read some nodes.
    denies: bool,
    /// The servers do not accept the clients' credentials now and then.
    refuses: bool,
    /// The servers return to a backup.
    restores: bool,
}

impl Hardship {
    /// Returns the faults of a hard storm: each in every second one, and none in few.
    fn of(seed: u64) -> Self {
        let mut random = StdRng::seed_from_u64(seed ^ 404 << 32);
        let [large, denies, refuses, restores] = [(); 4].map(|()| random.random());
        Self { large, denies, refuses, restores }
    }

    pub(super) const fn without_backups(self) -> Self {
        Self { restores: false, ..self }
    }

    pub(super) const fn without_denials(self) -> Self {
        Self { denies: false, ..self }
    }

    /// Takes out the denials if the servers return to a backup. Servers do not notify of changes of a node that clients may
    /// not read, so nothing of what a client knows of that time can be compared with a backup.
    pub(super) const fn without_denials_beside_backups(self) -> Self {
        Self { denies: self.denies && !self.restores, ..self }
    }

    /// Returns `true` if the clients cannot read some nodes.
    pub(super) const fn hides(self) -> bool {
        self.large || self.denies
    }

    /// Returns the longest time until a cache shows the nodes that the servers do not refuse any more.
    pub(super) const fn longest_pause(self) -> Duration {
        if self.hides() { LONGEST_PAUSE } else { Duration::ZERO }
    }

    /// Returns the longest reply that the clients accept.
    pub(super) const fn max_reply(self) -> usize {
        if self.large { SMALL_REPLY } else { usize::MAX }
    }
}

impl Weather {
    pub(super) fn of(seed: u64) -> Self {
        Self {
            workers: if seed % 4 == 1 { 1 } else { WORKERS },
            calm: seed % 10 == 0,
            doubled: seed % 5 == 2,
            reads: [Some(1400), Some(200), None][(seed % 3) as usize],
            numbers_end: seed % 7 == 3,
            loses_data: seed % 11 == 5,
            uneven: seed % 6 == 4,
            reaps: (seed % 17 < 5).then_some(Duration::from_secs(2 + seed % 3)),
            namespace: seed % 19 < 4,
            gives_up: false,
            throttles: seed % 4 == 3,
            tick: if seed % 13 == 0 { SESSION / 6 } else { SESSION / 2 },
            hardship: Hardship::default(),
        }
    }

    /// Returns the weather of a hard storm.
    pub(super) fn hard(seed: u64) -> Self {
        // The servers return to a backup instead.
        Self { loses_data: false, hardship: Hardship::of(seed), ..Self::of(seed) }
    }
}

/// The nodes that a storm hits, and the notes on it.
pub(super) trait Field {
    fn ensemble(&self) -> &SimulatedEnsemble;

    /// Returns the parents of the nodes.
    fn parts(&self) -> Vec<String>;

    /// Notes something for the reader.
    fn note(&self, what: impl fmt::Display);

    /// Notes a fault of the network or of a server.
    fn fault(&self, what: impl fmt::Display, lasting: Duration);

    /// Notes the end of a session or a node.
    fn end(&self, what: impl fmt::Display);

    /// Notes that the servers are about to take nodes away.
    fn revoke(&self, nodes: Vec<String>);

    /// Returns the nodes that wait behind another contender now.
    fn waiting(&self, _nodes: &[String]) -> Vec<String> {
        Vec::new()
    }

    /// Notes nodes of which no grant can be right.
    fn rule_out(&self, _nodes: Vec<String>) {}

    /// Notes that the servers are about to take nodes away, with those that wait.
    fn take_away(&self, nodes: Vec<String>) {
        self.rule_out(self.waiting(&nodes));
        self.revoke(nodes);
    }

    /// Returns the nodes, each with its owner.
    fn nodes(&self) -> Vec<(String, i64)> {
        let below = |part: &String| {
            let children = self.ensemble().children(part);
            let paths = children.into_iter().map(|node| format!("{part}/{node}")).collect::<Vec<_>>();
            paths.into_iter().filter_map(|path| Some((path.clone(), self.ensemble().owner(&path)?)))
        };
        self.parts().iter().flat_map(below).collect()
    }

    /// Restarts all servers without their data.
    fn lose_data(&self) {
        self.ensemble().restart_empty();
    }

    /// Returns the nodes that clients cannot read now and then.
    fn hard_nodes(&self) -> Vec<String> {
        self.parts().into_iter().filter(|part| self.ensemble().owner(part).is_some()).collect()
    }

    /// Notes that a node cannot be read for a time.
    fn hide(&self, what: impl fmt::Display, lasting: Duration) {
        self.fault(what, lasting + LONGEST_PAUSE);
    }

    /// Notes the nodes of a backup: those that were deleted since can be granted again.
    fn exist_again<'a>(&self, _nodes: impl Iterator<Item = &'a String>) {}

    /// Restarts all servers with the nodes and sessions of a backup.
    fn restore(&self, backup: &Backup) {
        let before = self.nodes();
        // In the queues of the backup others may be ahead.
        let waiting = self.waiting(&before.iter().map(|(path, _)| path.clone()).collect::<Vec<_>>());
        self.ensemble().restore(backup);
        let left = self.nodes();
        self.exist_again(left.iter().map(|(path, _)| path));
        let gone: Vec<_> = before.into_iter().filter(|node| !left.contains(node)).map(|(path, _)| path).collect();
        self.rule_out(waiting.into_iter().filter(|path| gone.contains(path)).collect());
        self.revoke(gone);
    }

    /// Deletes a node as an administrator would.
    fn delete(&self, node: &str) {
        self.take_away(vec![node.to_owned()]);
        self.ensemble().delete(node);
    }

    /// Ends a session on the servers.
    fn kill(&self, session: i64) {
        let its = self.nodes().into_iter().filter(|(_, owner)| *owner == session);
        self.take_away(its.map(|(path, _)| path).collect());
        self.ensemble().kill_session(session);
    }
}

fn client_options(ensemble: &SimulatedEnsemble, id: ClientId) -> CuratorFrameworkBuilder {
    let options = ensemble.client(id).session_timeout(SESSION).connection_timeout(Duration::from_secs(5));
    // The host's address would be another one elsewhere.
    options.default_data("").reap_interval(None)
}

/// Reads go on while a server is cut off, and prove nothing.
pub(super) async fn read(client: CuratorFramework, longest: u64, mut random: StdRng) {
    loop {
        let _unanswered = timeout(Duration::from_secs(1), client.check_exists().for_path("/")).await;
        sleep(Duration::from_millis(random.random_range(longest / 10..=longest))).await;
    }
}

/// Starts one of the clients that the faults hit. Returns it with its path.
pub(super) fn start_client(
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
        options = options.authorization("digest", "user:password");
    }
    if weather.gives_up && id % 2 == 1 {
        options = options.connection_state_error_policy(StandardConnectionStateErrorPolicy);
    }
    let client = if random.random() {
        options.retry_policy(RetryNTimes::new(100, Duration::from_millis(200))).build()
    } else {
        let policy = ExponentialBackoffRetry::with_max_pause(Duration::from_millis(50), 20, Duration::from_secs(2));
        options.retry_policy(policy.expect("valid")).build()
    };
    let client = client.expect("valid options");
    client.start().expect("there is a runtime");
    (client, path)
}

/// Starts a client that plays a part of its own.
pub(super) fn start_player(ensemble: &SimulatedEnsemble, id: ClientId) -> CuratorFramework {
    let options = client_options(ensemble, id);
    let client = options.retry_policy(RetryNTimes::new(100, Duration::from_millis(200))).build();
    let client = client.expect("valid options");
    client.start().expect("there is a runtime");
    client
}

/// Does the worst of the weather, from two sides if it comes from two.
pub(super) async fn nemeses(field: &impl Field, weather: Weather, seed: u64, random: &mut StdRng) {
    let mut other = StdRng::seed_from_u64(seed ^ 202 << 32);
    let two = async {
        if weather.doubled {
            nemesis(field, weather, &mut other).await;
        }
    };
    let mut third = StdRng::seed_from_u64(seed ^ 303 << 32);
    let throttling = async {
        if weather.throttles && !weather.calm {
            throttle(field, &mut third).await;
        }
    };
    let mut fourth = StdRng::seed_from_u64(seed ^ 505 << 32);
    let hard = async {
        if !weather.calm {
            hardships(field, weather.hardship, &mut fourth).await;
        }
    };
    tokio::join!(nemesis(field, weather, random), two, throttling, hard);
}

/// Brings the faults of a hard storm.
async fn hardships(field: &impl Field, hardship: Hardship, random: &mut StdRng) {
    let Hardship { large, denies, refuses, restores } = hardship;
    tokio::join!(
        hide_nodes(field, large, denies, StdRng::seed_from_u64(random.random())),
        refuse_credentials(field, refuses, StdRng::seed_from_u64(random.random())),
        restore(field, restores, StdRng::seed_from_u64(random.random())),
    );
}

/// Has an administrator make nodes that the clients cannot read.
async fn hide_nodes(field: &impl Field, large: bool, denies: bool, mut random: StdRng) {
    if !large && !denies {
        return;
    }
    let ensemble = field.ensemble();
    for _ in 0..random.random_range(2..8) {
        sleep(Duration::from_millis(random.random_range(200..5000))).await;
        let nodes = field.hard_nodes();
        let Some(node) = nodes.get(random.random_range(0..nodes.len().max(1))) else { continue };
        let lasting = Duration::from_millis(random.random_range(100..12_000));
        let is_denied = denies && (!large || random.random());
        match random.random_range(0..3) {
            _ if is_denied => {
                field.hide(format_args!("{node} may not be read for {lasting:?}"), lasting);
                ensemble.set_readable(node, false);
                sleep(lasting).await;
                ensemble.set_readable(node, true);
            }
            0 => {
                field.hide(format_args!("{node} has large data for {lasting:?}"), lasting);
                ensemble.set_data(node, &[b'x'; SMALL_REPLY]);
                sleep(lasting).await;
                ensemble.set_data(node, b"small");
            }
            _ => {
                field.hide(format_args!("{node} has a large list for {lasting:?}"), lasting);
                let long = long_children(node);
                long.iter().for_each(|child| ensemble.create(child));
                sleep(lasting).await;
                long.iter().for_each(|child| ensemble.delete(child));
            }
        }
    }
}

/// Has the servers refuse the credentials of clients that connect.
async fn refuse_credentials(field: &impl Field, refuses: bool, mut random: StdRng) {
    if !refuses {
        return;
    }
    for _ in 0..random.random_range(1..4) {
        sleep(Duration::from_millis(random.random_range(200..8000))).await;
        let client = ClientId(random.random_range(0..CLIENTS));
        let lasting = Duration::from_millis(random.random_range(100..8000));
        // The pauses between its attempts grow.
        field.fault(format_args!("the credentials of {client:?} are refused for {lasting:?}"), lasting + LONGEST_PAUSE);
        field.ensemble().refuse_credentials(client);
        field.ensemble().reset(client);
        sleep(lasting).await;
        field.ensemble().repair(client);
    }
}

/// Has the servers return to a backup, and ends all sessions of the backup.
async fn restore(field: &impl Field, restores: bool, mut random: StdRng) {
    if !restores {
        return;
    }
    for _ in 0..random.random_range(1..3) {
        sleep(Duration::from_millis(random.random_range(500..10_000))).await;
        let backup = field.ensemble().backup();
        field.note("a backup is made");
        sleep(Duration::from_millis(random.random_range(0..10_000))).await;
        let lasting = Duration::from_millis(random.random_range(0..6000));
        field.fault("all servers return to the backup", lasting);
        field.restore(&backup);
        let restored = Restored { field, sessions: field.ensemble().sessions() };
        sleep(lasting).await;
        drop(restored);
    }
}

/// The sessions of a backup. Nothing is known of some of their nodes, so these must go with them, even if the storm ends.
struct Restored<'f, F: Field> {
    field: &'f F,
    sessions: Vec<i64>,
}

impl<F: Field> Drop for Restored<'_, F> {
    fn drop(&mut self) {
        for session in &self.sessions {
            self.field.end(format_args!("session {session} of the backup is killed"));
            self.field.kill(*session);
        }
    }
}

/// Ends what the hardships of a storm leave.
pub(super) fn relieve(field: &impl Field) {
    let ensemble = field.ensemble();
    for node in field.hard_nodes() {
        ensemble.set_readable(&node, true);
        long_children(&node).iter().for_each(|child| ensemble.delete(child));
        // Clients are notified of the node again.
        ensemble.set_data(&node, b"small");
    }
}

/// Has the servers throttle their requests now and then.
async fn throttle(field: &impl Field, random: &mut StdRng) {
    for _ in 0..random.random_range(2..6) {
        sleep(Duration::from_millis(random.random_range(0..5000))).await;
        let client = ClientId(random.random_range(0..CLIENTS));
        let lasting = Duration::from_millis(random.random_range(500..8000));
        field.fault(format_args!("the server of {client:?} throttles for {lasting:?}"), lasting);
        field.ensemble().throttle(client);
        sleep(lasting).await;
        // That ends other faults of the client too.
        field.ensemble().repair(client);
    }
}

/// Waits for all workers. Returns whether they end.
pub(super) async fn workers_end(
    workers: &mut JoinSet<()>,
    nemeses: impl Future<Output = ()>,
    wrong: impl Fn(String),
) -> bool {
    let all = async {
        while let Some(ended) = workers.join_next().await {
            if let Err(panicked) = ended {
                wrong(format!("a worker that failed: {panicked}"));
            }
        }
    };
    tokio::pin!(nemeses, all);
    // The nemesis ends by itself; what is left then is calm.
    tokio::select! {
        biased;
        () = &mut all => return true,
        () = &mut nemeses => {}
    }
    timeout(THE_END, all).await.is_ok()
}

/// Closes the observers, the last one by its drop. Returns whether the tasks that watch them end.
pub(super) async fn observers_end<O>(
    mut observers: Vec<O>,
    close: impl AsyncFn(&O),
    mut watching: JoinSet<()>,
) -> bool {
    drop(observers.pop());
    for observer in observers {
        close(&observer).await;
    }
    while let Ok(Some(_)) = timeout(RECOVERY, watching.join_next()).await {}
    watching.is_empty()
}

/// Closes the clients. Everything must be cleaned up before, while their sessions live, and nothing may be left.
pub(super) async fn clean_up(field: &impl Field, clients: Vec<CuratorFramework>, wrong: impl Fn(String)) {
    let ensemble = field.ensemble();
    for id in 0..CLIENTS {
        ensemble.repair(ClientId(id));
    }
    sleep(RECOVERY).await;
    for (node, _) in field.nodes() {
        wrong(node);
    }
    for client in &clients {
        if client.watchers() > 0 {
            wrong(format!("watches of {:?}", client.watched_paths()));
        }
        client.close().await;
    }
    drop(clients);
    sleep(RECOVERY).await;
    if !ensemble.sessions().is_empty() {
        wrong(format!("sessions {:?}", ensemble.sessions()));
    }
    // The one that is left carries the ensemble's messages.
    let tasks = tokio::runtime::Handle::current().metrics().num_alive_tasks();
    if tasks > 1 {
        wrong(format!("{} tasks", tasks - 1));
    }
}

/// The nodes below a parent, in the order of their numbers.
pub(super) fn queue(ensemble: &SimulatedEnsemble, parent: &str) -> Vec<String> {
    let mut nodes: Vec<_> = ensemble.children(parent).iter().map(|node| format!("{parent}/{node}")).collect();
    // A long child has no number.
    nodes.retain(|node| number(node).is_some());
    nodes.sort_by_key(|node| number(node));
    nodes
}

pub(super) fn number(node: &str) -> Option<i64> {
    node.rsplit_once('-')?.1.parse().ok()
}

/// Does its worst for a while, then mends everything.
async fn nemesis(field: &impl Field, weather: Weather, random: &mut StdRng) {
    if weather.calm {
        return;
    }
    let ensemble = field.ensemble();
    if weather.numbers_end {
        sleep(Duration::from_millis(random.random_range(0..5000))).await;
        let next = i32::MAX - random.random_range(0..5);
        for part in field.parts() {
            // There may be no such part yet.
            let set = ensemble.set_next_sequence(&part, next);
            field.note(format_args!("the next number in {part} is {next}: {set}"));
        }
    }
    for _ in 0..random.random_range(2..9) {
        sleep(Duration::from_millis(random.random_range(200..6000))).await;
        let client = ClientId(random.random_range(0..CLIENTS));
        let lasting = Duration::from_millis(random.random_range(100..12_000));
        match random.random_range(0..12) {
            0 | 1 => {
                field.fault(format_args!("{client:?} is reset"), Duration::ZERO);
                ensemble.reset(client);
            }
            2 | 3 => {
                field.fault(format_args!("{client:?} is partitioned for {lasting:?}"), lasting);
                ensemble.partition(client);
                sleep(lasting).await;
                ensemble.repair(client);
            }
            4 => {
                let sessions = ensemble.sessions();
                if let Some(session) = sessions.get(random.random_range(0..sessions.len().max(1))) {
                    field.end(format_args!("session {session} is killed"));
                    field.kill(*session);
                }
            }
            5 => {
                field.fault(format_args!("the server of {client:?} is cut off for {lasting:?}"), lasting);
                ensemble.cut_off_server(client);
                sleep(lasting).await;
                ensemble.repair(client);
            }
            6 => {
                field.fault(format_args!("the server of {client:?} is behind for a while"), Duration::from_secs(6));
                ensemble.stale_reads(client);
                // It falls behind again and again, and loses its connection meanwhile.
                for _ in 0..random.random_range(1..12) {
                    sleep(Duration::from_millis(random.random_range(20..500))).await;
                    ensemble.reset(client);
                    ensemble.stale_reads(client);
                }
                ensemble.repair(client);
            }
            7 if weather.loses_data => {
                field.fault("all servers start again without their data", Duration::ZERO);
                field.take_away(field.nodes().into_iter().map(|(path, _)| path).collect());
                field.lose_data();
            }
            7 => {
                field.fault("all servers start again", Duration::ZERO);
                ensemble.restart();
            }
            8..=10 => {
                field.fault(format_args!("the answer to the next write of {client:?} is lost"), lasting);
                ensemble.drop_reply(client);
            }
            _ => match random.random_range(0..3) {
                0 => {
                    field.fault(format_args!("the clock of {client:?} skips {lasting:?}"), Duration::ZERO);
                    ensemble.skip_clock(client, lasting);
                }
                _ => {
                    // An administrator deletes a node.
                    let nodes = field.nodes();
                    if let Some((node, _)) = nodes.get(random.random_range(0..nodes.len().max(1))) {
                        field.end(format_args!("somebody deletes {node}"));
                        field.delete(node);
                    }
                }
            },
        }
    }
}
