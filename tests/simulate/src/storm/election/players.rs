//! Clients and administrators that play one part of their own beside the candidates of a storm.

use std::time::Duration;

use curator_framework::CuratorFramework;
use curator_test::ClientId;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::candidates::{Book, Campaigner, Election};
use crate::storm::field::{Field, queue};
use crate::storm::stage::start_player;
use crate::storm::weather::{PATH, SESSION};

type Elections = Field<Book>;

const VISITOR: ClientId = ClientId(111);
const IMPOSTOR: ClientId = ClientId(112);

/// Lets those play that belong to a seed. Returns their clients, which live until all is cleaned up.
pub(super) fn play(
    seed: u64,
    election: Election,
    field: &Elections,
    workers: &mut JoinSet<()>,
) -> Vec<CuratorFramework> {
    let random = StdRng::seed_from_u64(seed ^ 500 << 32);
    let mut clients = Vec::new();
    if seed % 8 == 7 {
        workers.spawn(betray(field.clone(), StdRng::seed_from_u64(seed ^ 501 << 32)));
    }
    if is_impersonated(seed) {
        let client = start_player(&field.ensemble, IMPOSTOR);
        workers.spawn(impersonate(field.clone(), election, client.clone(), StdRng::seed_from_u64(seed ^ 502 << 32)));
        clients.push(client);
    }
    let field = field.clone();
    match seed % 7 {
        0 | 4 => drop(workers.spawn(depose(field, random))),
        1 => drop(workers.spawn(orphan(field, random))),
        2 => drop(workers.spawn(raze(field, random))),
        3 | 6 => drop(workers.spawn(isolate(field, random))),
        _ => {
            let client = start_player(&field.ensemble, VISITOR);
            for number in 0..2 {
                let random = StdRng::seed_from_u64(seed ^ (510 + number) << 32);
                let (scribe, client, path) = (field.scribe.clone(), client.clone(), PATH.to_owned());
                let visitor = Campaigner { scribe, client, name: VISITOR, path, random, rounds: 3, hands_over: false };
                workers.spawn(visitor.campaign(election));
            }
            workers.spawn(confuse(field, random));
            clients.push(client);
        }
    }
    clients
}

/// Returns `true` if the path of a seed has a node that is not a candidate's for a while, but has such a name.
pub(super) const fn is_impersonated(seed: u64) -> bool {
    matches!(seed % 7, 0 | 3)
}

/// Creates a persistent node with the name of the other recipe's candidates, ahead of all: it blocks no candidate.
async fn impersonate(field: Elections, election: Election, client: CuratorFramework, mut random: StdRng) {
    let name = match election {
        Election::Latch => "lock-0",
        Election::Selector => "latch-0",
    };
    let path = format!("{PATH}/{name}");
    for _ in 0..4 {
        sleep(Duration::from_millis(random.random_range(0..2000))).await;
        let is_created = client.create().for_path(&path).await.is_ok();
        field.scribe.note(format_args!("{path} is persistent: {is_created}"));
        sleep(Duration::from_millis(random.random_range(500..5000))).await;
        field.ensemble.delete(&path);
    }
}

/// An administrator that deletes the leader's node, or ends its session, often soon after the term started.
async fn depose(field: Elections, mut random: StdRng) {
    let mut before = None;
    for _ in 0..10 {
        sleep(Duration::from_millis(random.random_range(100..3000))).await;
        let mut leader = field.scribe.leader();
        if random.random() {
            for _ in 0..100 {
                if leader.is_some() && leader != before {
                    break;
                }
                sleep(Duration::from_millis(20)).await;
                leader = field.scribe.leader();
            }
        }
        let Some((client, node)) = &leader else { continue };
        let node = format!("{PATH}/{node}");
        match field.ensemble.owner(&node).filter(|_| random.random_range(0..3) == 0) {
            Some(session) => {
                field.scribe.end(format_args!("the session of the leader at {client:?} is killed"));
                field.kill(session);
            }
            None => {
                field.scribe.end(format_args!("an administrator deletes the leader's node {node}"));
                field.delete(&node);
            }
        }
        before = leader;
    }
}

/// Ends the leader's session or node while it hands over.
async fn betray(field: Elections, mut random: StdRng) {
    for _ in 0..2000 {
        sleep(Duration::from_millis(20)).await;
        if !field.scribe.hands_over() {
            continue;
        }
        let Some((client, node)) = field.scribe.leader() else { continue };
        let node = format!("{PATH}/{node}");
        sleep(Duration::from_millis(random.random_range(0..300))).await;
        let Some(session) = field.ensemble.owner(&node) else { continue };
        field.scribe.end(format_args!("the leader at {client:?} ends while it hands over"));
        if random.random() {
            field.kill(session);
        } else {
            field.delete(&node);
        }
        sleep(Duration::from_millis(500)).await;
    }
}

/// An administrator that deletes the node of the next candidate, soon after it came to that place.
async fn orphan(field: Elections, mut random: StdRng) {
    let next = || queue(&field.ensemble, PATH).into_iter().nth(1);
    for _ in 0..12 {
        let before = next();
        for _ in 0..100 {
            sleep(Duration::from_millis(20)).await;
            if next().is_some_and(|next| before.as_ref() != Some(&next)) {
                break;
            }
        }
        sleep(Duration::from_millis(random.random_range(0..300))).await;
        if let Some(next) = next() {
            field.scribe.end(format_args!("an administrator deletes {next}, which is the next"));
            field.delete(&next);
        }
        sleep(Duration::from_millis(random.random_range(100..2000))).await;
    }
}

/// An administrator that deletes the path with all that is below it.
async fn raze(field: Elections, mut random: StdRng) {
    for _ in 0..6 {
        sleep(Duration::from_millis(random.random_range(500..6000))).await;
        field.scribe.end(format_args!("an administrator deletes {PATH} and all below it"));
        for (node, _) in field.nodes() {
            field.delete(&node);
        }
        field.ensemble.delete(PATH);
    }
}

/// Cuts the leader off, so that its term ends by the deadline while others wait.
async fn isolate(field: Elections, mut random: StdRng) {
    for _ in 0..5 {
        sleep(Duration::from_millis(random.random_range(500..5000))).await;
        let Some((client, _)) = field.scribe.leader() else { continue };
        let lasting = SESSION.mul_f64(random.random_range(0.2..1.6));
        match random.random_range(0..3) {
            0 => {
                field
                    .scribe
                    .fault(format_args!("the leader's client {client:?} is partitioned for {lasting:?}"), lasting);
                field.ensemble.partition(client);
            }
            1 => {
                field
                    .scribe
                    .fault(format_args!("the server of the leader's {client:?} is cut off for {lasting:?}"), lasting);
                field.ensemble.cut_off_server(client);
            }
            _ => {
                field.scribe.fault(format_args!("the clock of the leader's {client:?} skips {lasting:?}"), lasting);
                field.ensemble.skip_clock(client, lasting);
            }
        }
        sleep(lasting).await;
        field.ensemble.repair(client);
    }
}

/// Loses replies of the visitor, and lets its server lag.
async fn confuse(field: Elections, mut random: StdRng) {
    for _ in 0..8 {
        sleep(Duration::from_millis(random.random_range(100..2500))).await;
        field.scribe.fault(format_args!("{VISITOR:?} is confused"), SESSION);
        field.ensemble.stale_reads(VISITOR);
        field.ensemble.drop_reply(VISITOR);
        sleep(Duration::from_millis(random.random_range(0..1500))).await;
        field.ensemble.repair(VISITOR);
    }
}
