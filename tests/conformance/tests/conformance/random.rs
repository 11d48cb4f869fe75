//! Random requests on three connections: both servers must say the same.

use curator_test::wire::{Acl, OpCode};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::request::Request::*;
use crate::request::*;
use crate::side::{Side, TIMEOUT_MS};
use crate::versions::Version;

const CLIENTS: usize = 3;
const STEPS: usize = 150;
const PATHS: [&str; 10] = ["", "/a", "/b", "/a/x", "/a/y", "/b/x", "/a/x/deep", "/n-", "/a/n-", "/a/x/n-"];

fn pick<T: Clone>(random: &mut StdRng, from: &[T]) -> T {
    from[random.random_range(0..from.len())].clone()
}

fn acl(random: &mut StdRng) -> Vec<Acl> {
    let entry = |perms, scheme: &str, id: &str| Acl { perms, scheme: scheme.to_owned(), id: id.to_owned() };
    match random.random_range(0..12) {
        0 => vec![entry(31, "auth", "")],
        1 => vec![entry(5, "world", "anyone"), entry(31, "ip", "127.0.0.1")],
        2 => vec![entry(29, "world", "anyone")],
        _ => open(),
    }
}

fn write(random: &mut StdRng) -> Request {
    let path = pick(random, &PATHS);
    let version = pick(random, &[-1, -1, -1, 0, 1]);
    match random.random_range(0..10) {
        0..4 => {
            let op = pick(random, &[OpCode::Create, OpCode::Create2, OpCode::CreateContainer]);
            // Siblings of the root are not the test's own.
            let path = if path.is_empty() { "/a" } else { path };
            Create(op, path, acl(random), random.random_range(0..5))
        }
        4..6 => Delete(path, version),
        6..8 => set(path, version),
        // Apache does not answer one that succeeds alone.
        8 => Check(path, 99),
        _ => CreateTtl(path, 5, 1000),
    }
}

/// Sets watches of one mode alone if the server can have several modes on one path.
fn request(random: &mut StdRng, version: Version) -> Request {
    let path = pick(random, &PATHS);
    match random.random_range(0..24) {
        0..9 => write(random),
        9..13 => {
            let op = pick(random, &[OpCode::Exists, OpCode::GetData, OpCode::GetChildren, OpCode::GetChildren2]);
            Read(op, path, random.random())
        }
        13 => Path(pick(random, &[OpCode::GetAcl, OpCode::Sync, OpCode::GetAllChildrenNumber]), path),
        14..17 => {
            let count = random.random_range(0..5);
            let part = |random: &mut StdRng| match random.random_range(0..8) {
                0 => Check(pick(random, &PATHS), pick(random, &[-1, 0, 1])),
                _ => write(random),
            };
            Multi(OpCode::Multi, (0..count).map(|_| part(random)).collect())
        }
        17 => Multi(OpCode::MultiRead, vec![get(path), Read(OpCode::GetChildren, pick(random, &PATHS), false)]),
        18..20 if version.keeps_modes_apart() => watch_data(path),
        18..20 => AddWatch(path, random.random_range(0..2)),
        20 => Watches(OpCode::RemoveWatches, path, random.random_range(1..4)),
        21 => {
            let op = pick(random, &[OpCode::SetWatches, OpCode::SetWatches2]);
            let mut list = || (0..random.random_range(0..3)).map(|_| pick(random, &PATHS)).collect();
            let mut lists = [list(), list(), list(), list(), list()];
            if version.keeps_modes_apart() {
                lists[3..].fill(Vec::new());
            }
            SetWatches(op, lists)
        }
        22 => SetAcl(path, acl(random), -1),
        _ => pick(random, &[Auth("digest", "user:secret"), Path(OpCode::GetEphemerals, ""), Raw(OpCode::WhoAmI, b"")]),
    }
}

/// One step: a request, or a client that goes and comes back.
#[derive(Debug, Clone)]
enum Step {
    Call(usize, Request),
    /// The session ends and the client starts another.
    Again(usize),
    /// The session moves to a new connection.
    Move(usize),
    /// What the client says it has seen is what it has.
    Mark(usize),
}

fn step(random: &mut StdRng, version: Version) -> Step {
    let client = random.random_range(0..CLIENTS);
    match random.random_range(0..60) {
        0 => Step::Again(client),
        1 => Step::Move(client),
        2..5 => Step::Mark(client),
        _ => Step::Call(client, request(random, version)),
    }
}

/// Plays the steps and says what came of each.
async fn play(side: &mut Side, steps: &[Step]) -> Vec<usize> {
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        clients.push(side.connect(TIMEOUT_MS).await);
    }
    let mut ends = Vec::new();
    for step in steps {
        match step {
            Step::Call(client, request) => side.call(clients[*client], request.clone()).await,
            Step::Mark(client) => side.mark(clients[*client]),
            Step::Move(client) => clients[*client] = side.attach(clients[*client], true).await,
            Step::Again(client) => {
                let old = clients[*client];
                let before = side.lines_len();
                side.call(old, Raw(OpCode::CloseSession, b"")).await;
                side.closed(old).await;
                // A session's nodes go in any order.
                side.sort_from(before);
                clients[*client] = side.connect(TIMEOUT_MS).await;
            }
        }
        for client in &clients {
            let mut events = side.take_events(*client).await;
            if matches!(step, Step::Again(_)) {
                events.sort_unstable();
            }
            for event in events {
                side.note(format!("{client}: event {event}"));
            }
        }
        ends.push(side.lines_len());
    }
    ends
}

async fn differential(seed: u64) {
    let mut random = StdRng::seed_from_u64(seed);
    let mut apache = Side::apache().await;
    let steps: Vec<Step> = (0..STEPS).map(|_| step(&mut random, apache.version)).collect();
    let mut ours = Side::in_process_beside(&apache).await;
    let ends = play(&mut ours, &steps).await;
    play(&mut apache, &steps).await;
    let (ours, apaches) = (ours.lines(), apache.lines());
    for (line, (our, apache)) in ours.iter().zip(&apaches).enumerate() {
        let step = ends.iter().position(|end| line < *end).unwrap_or_default();
        assert!(
            our == apache,
            "seed {seed:#x}, step {step}:\n  ours:   {our}\n  Apache: {apache}\nafter\n{}",
            ours[line.saturating_sub(30)..line].join("\n")
        );
    }
    assert_eq!(ours.len(), apaches.len(), "seed {seed:#x}");
}

#[tokio::test]
async fn fixed_seeds() {
    for seed in 1..=4 {
        differential(seed).await;
    }
}

#[tokio::test]
async fn a_fresh_seed() {
    for _ in 0..2 {
        let seed = rand::random();
        println!("seed {seed:#x}");
        differential(seed).await;
    }
}
