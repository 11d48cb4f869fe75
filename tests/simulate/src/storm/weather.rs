//! The part that all storms share: the weather, and the faults that it brings.

use std::time::Duration;

use curator_test::ClientId;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio::time::sleep;

use super::field::{Field, Subject};

pub(super) const SESSION: Duration = Duration::from_secs(6);
/// The longest time from a fault until its client is back.
pub(crate) const RECOVERY: Duration = Duration::from_secs(14);
pub(super) const CLIENTS: u32 = 3;
pub(super) const WORKERS: u32 = 2;
pub(crate) const PATH: &str = "/storm/lock";
/// The smallest limit of replies that a client can have.
pub(super) const SMALL_REPLY: usize = 4096;
/// The longest pause of a client or a cache after a refusal.
pub(super) const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// Returns the paths of two children with names that make the list of a node longer than the clients accept. A
/// notification about one of them is shorter: one above the limit would end the connection.
pub(crate) fn long_children(parent: &str) -> [String; 2] {
    ["a", "b"].map(|last| format!("{parent}/{}{last}", "long".repeat(SMALL_REPLY / 7)))
}

/// Returns `true` if a path is a long child's.
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
    /// The servers may lose all data, and their transactions start again.
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
    pub(super) large: bool,
    /// Clients may not read some nodes.
    denies: bool,
    /// The servers do not accept the clients' credentials now and then.
    pub(super) refuses: bool,
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

/// Does the worst of the weather, from two sides if it comes from two.
pub(super) async fn nemeses(field: &Field<impl Subject>, weather: Weather, seed: u64, random: &mut StdRng) {
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
async fn hardships(field: &Field<impl Subject>, hardship: Hardship, random: &mut StdRng) {
    let Hardship { large, denies, refuses, restores } = hardship;
    tokio::join!(
        hide_nodes(field, large, denies, StdRng::seed_from_u64(random.random())),
        refuse_credentials(field, refuses, StdRng::seed_from_u64(random.random())),
        restore(field, restores, StdRng::seed_from_u64(random.random())),
    );
}

/// Has an administrator make nodes that the clients cannot read.
async fn hide_nodes(field: &Field<impl Subject>, large: bool, denies: bool, mut random: StdRng) {
    if !large && !denies {
        return;
    }
    let ensemble = &field.ensemble;
    for _ in 0..random.random_range(2..8) {
        sleep(Duration::from_millis(random.random_range(200..5000))).await;
        let nodes = Subject::hard_nodes(field);
        let Some(node) = nodes.get(random.random_range(0..nodes.len().max(1))) else { continue };
        let lasting = Duration::from_millis(random.random_range(100..12_000));
        let is_denied = denies && (!large || random.random());
        match random.random_range(0..3) {
            _ if is_denied => {
                Subject::hide(field, format_args!("{node} may not be read for {lasting:?}"), lasting);
                ensemble.set_readable(node, false);
                sleep(lasting).await;
                ensemble.set_readable(node, true);
            }
            0 => {
                Subject::hide(field, format_args!("{node} has large data for {lasting:?}"), lasting);
                ensemble.set_data(node, &[b'x'; SMALL_REPLY]);
                sleep(lasting).await;
                ensemble.set_data(node, b"small");
            }
            _ => {
                Subject::hide(field, format_args!("{node} has a large list for {lasting:?}"), lasting);
                let long = long_children(node);
                long.iter().for_each(|child| ensemble.create(child));
                sleep(lasting).await;
                long.iter().for_each(|child| ensemble.delete(child));
            }
        }
    }
}

/// Has the servers refuse the credentials of clients that connect.
async fn refuse_credentials(field: &Field<impl Subject>, refuses: bool, mut random: StdRng) {
    if !refuses {
        return;
    }
    for _ in 0..random.random_range(1..4) {
        sleep(Duration::from_millis(random.random_range(200..8000))).await;
        let client = ClientId(random.random_range(0..CLIENTS));
        let lasting = Duration::from_millis(random.random_range(100..8000));
        // The pauses between its attempts grow.
        field
            .scribe
            .fault(format_args!("the credentials of {client:?} are refused for {lasting:?}"), lasting + LONGEST_PAUSE);
        field.ensemble.refuse_credentials(client);
        field.ensemble.reset(client);
        sleep(lasting).await;
        field.ensemble.repair(client);
    }
}

/// Has the servers return to a backup, and ends all sessions of the backup.
async fn restore(field: &Field<impl Subject>, restores: bool, mut random: StdRng) {
    if !restores {
        return;
    }
    for _ in 0..random.random_range(1..3) {
        sleep(Duration::from_millis(random.random_range(500..10_000))).await;
        let backup = field.ensemble.backup();
        field.scribe.note("a backup is made");
        sleep(Duration::from_millis(random.random_range(0..10_000))).await;
        let lasting = Duration::from_millis(random.random_range(0..6000));
        field.scribe.fault("all servers return to the backup", lasting);
        field.restore(&backup);
        let restored = Restored { field, sessions: field.ensemble.sessions() };
        sleep(lasting).await;
        drop(restored);
    }
}

/// The sessions of a backup. Nothing is known of some of their nodes, so these must go with them, even if the storm ends.
struct Restored<'f, B: Subject> {
    field: &'f Field<B>,
    sessions: Vec<i64>,
}

impl<B: Subject> Drop for Restored<'_, B> {
    fn drop(&mut self) {
        for session in &self.sessions {
            self.field.scribe.end(format_args!("session {session} of the backup is killed"));
            self.field.kill(*session);
        }
    }
}

/// Ends what the hardships of a storm leave.
pub(super) fn relieve(field: &Field<impl Subject>) {
    let ensemble = &field.ensemble;
    for node in Subject::hard_nodes(field) {
        ensemble.set_readable(&node, true);
        long_children(&node).iter().for_each(|child| ensemble.delete(child));
        // Clients are notified of the node again.
        ensemble.set_data(&node, b"small");
    }
}

/// Has the servers throttle their requests now and then.
async fn throttle(field: &Field<impl Subject>, random: &mut StdRng) {
    for _ in 0..random.random_range(2..6) {
        sleep(Duration::from_millis(random.random_range(0..5000))).await;
        let client = ClientId(random.random_range(0..CLIENTS));
        let lasting = Duration::from_millis(random.random_range(500..8000));
        field.scribe.fault(format_args!("the server of {client:?} throttles for {lasting:?}"), lasting);
        field.ensemble.throttle(client);
        sleep(lasting).await;
        // That ends other faults of the client too.
        field.ensemble.repair(client);
    }
}

/// Does its worst for a while, then repairs everything.
async fn nemesis(field: &Field<impl Subject>, weather: Weather, random: &mut StdRng) {
    if weather.calm {
        return;
    }
    let ensemble = &field.ensemble;
    if weather.numbers_end {
        sleep(Duration::from_millis(random.random_range(0..5000))).await;
        let next = i32::MAX - random.random_range(0..5);
        for part in &field.parts {
            // There may be no such part yet.
            let set = ensemble.set_next_sequence(part, next);
            field.scribe.note(format_args!("the next number in {part} is {next}: {set}"));
        }
    }
    for _ in 0..random.random_range(2..9) {
        sleep(Duration::from_millis(random.random_range(200..6000))).await;
        let client = ClientId(random.random_range(0..CLIENTS));
        let lasting = Duration::from_millis(random.random_range(100..12_000));
        match random.random_range(0..12) {
            0 | 1 => {
                field.scribe.fault(format_args!("{client:?} is reset"), Duration::ZERO);
                ensemble.reset(client);
            }
            2 | 3 => {
                field.scribe.fault(format_args!("{client:?} is partitioned for {lasting:?}"), lasting);
                ensemble.partition(client);
                sleep(lasting).await;
                ensemble.repair(client);
            }
            4 => {
                let sessions = ensemble.sessions();
                if let Some(session) = sessions.get(random.random_range(0..sessions.len().max(1))) {
                    field.scribe.end(format_args!("session {session} is killed"));
                    field.kill(*session);
                }
            }
            5 => {
                field.scribe.fault(format_args!("the server of {client:?} is cut off for {lasting:?}"), lasting);
                ensemble.cut_off_server(client);
                sleep(lasting).await;
                ensemble.repair(client);
            }
            6 => {
                field
                    .scribe
                    .fault(format_args!("the server of {client:?} is behind for a while"), Duration::from_secs(6));
                ensemble.stale_reads(client);
                // It falls behind again and again, and loses its connection in the meantime.
                for _ in 0..random.random_range(1..12) {
                    sleep(Duration::from_millis(random.random_range(20..500))).await;
                    ensemble.reset(client);
                    ensemble.stale_reads(client);
                }
                ensemble.repair(client);
            }
            7 if weather.loses_data => {
                field.scribe.fault("all servers start again without their data", Duration::ZERO);
                field.take_away(field.nodes().into_iter().map(|(path, _)| path).collect());
                Subject::lose_data(field);
            }
            7 => {
                field.scribe.fault("all servers start again", Duration::ZERO);
                ensemble.restart();
            }
            8..=10 => {
                field.scribe.fault(format_args!("the answer to the next write of {client:?} is lost"), lasting);
                ensemble.drop_reply(client);
            }
            _ => match random.random_range(0..3) {
                0 => {
                    field.scribe.fault(format_args!("the clock of {client:?} skips {lasting:?}"), Duration::ZERO);
                    ensemble.skip_clock(client, lasting);
                }
                _ => {
                    // An administrator deletes a node.
                    let nodes = field.nodes();
                    if let Some((node, _)) = nodes.get(random.random_range(0..nodes.len().max(1))) {
                        field.scribe.end(format_args!("somebody deletes {node}"));
                        field.delete(node);
                    }
                }
            },
        }
    }
}
