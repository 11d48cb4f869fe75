//! The administrators of a storm, each with one kind of interference with the nodes of registrants.

use std::time::Duration;

use curator_framework::{CreateMode, CuratorFramework};
use curator_test::ClientId;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::MOST_CLIENTS;
use crate::registrants::Book;
use crate::storm::field::Field;
use crate::storm::stage::start_player;
use crate::storm::weather::{PATH, SESSION};

type Nodes = Field<Book>;

const ADMINISTRATOR: ClientId = ClientId(120);

/// Starts the administrators of a seed. Returns their clients, which live until the nodes are cleaned up.
pub(super) fn play(seed: u64, field: &Nodes, players: &mut JoinSet<()>) -> Vec<CuratorFramework> {
    let random = StdRng::seed_from_u64(seed ^ 800 << 32);
    let field = field.clone();
    match seed % 6 {
        0 | 4 => drop(players.spawn(delete(field, random))),
        1 => drop(players.spawn(outlive(field, random))),
        2 => drop(players.spawn(raze(field, random))),
        _ => {
            let client = start_player(&field.ensemble, ADMINISTRATOR);
            if seed % 6 == 3 {
                players.spawn(write(field, client.clone(), random));
            } else {
                players.spawn(squat(field, client.clone(), random));
            }
            return vec![client];
        }
    }
    Vec::new()
}

/// Returns one of the nodes.
fn any_node(field: &Nodes, random: &mut StdRng) -> Option<(String, i64)> {
    let nodes = field.nodes();
    nodes.get(random.random_range(0..nodes.len().max(1))).cloned()
}

/// An administrator that deletes nodes. Often the reply to the create that follows is lost.
async fn delete(field: Nodes, mut random: StdRng) {
    for _ in 0..12 {
        sleep(Duration::from_millis(random.random_range(100..3000))).await;
        let Some((node, _)) = any_node(&field, &mut random) else { continue };
        let client = ClientId(random.random_range(0..MOST_CLIENTS));
        if random.random() {
            field.scribe.fault(format_args!("the answer to the next write of {client:?} is lost"), Duration::ZERO);
            field.ensemble.drop_reply(client);
        }
        field.scribe.end(format_args!("an administrator deletes {node}"));
        field.delete(&node);
    }
}

/// Cuts a client off for so long that its next session starts before the servers end the present one.
async fn outlive(field: Nodes, mut random: StdRng) {
    for _ in 0..6 {
        sleep(Duration::from_millis(random.random_range(500..5000))).await;
        let client = ClientId(random.random_range(0..MOST_CLIENTS));
        let lasting = SESSION.mul_f64(random.random_range(0.7..1.0));
        field.scribe.fault(format_args!("{client:?} is partitioned for {lasting:?}"), lasting);
        field.ensemble.partition(client);
        sleep(lasting).await;
        field.ensemble.repair(client);
        if random.random() {
            field.ensemble.drop_reply(client);
        }
    }
}

/// An administrator that deletes the path with all that is below it.
async fn raze(field: Nodes, mut random: StdRng) {
    for _ in 0..6 {
        sleep(Duration::from_millis(random.random_range(500..6000))).await;
        field.scribe.end(format_args!("an administrator deletes {PATH} and all below it"));
        for (node, _) in field.nodes() {
            field.delete(&node);
        }
        for part in &field.parts {
            field.ensemble.delete(part);
        }
        field.ensemble.delete(&format!("{PATH}/items"));
        field.ensemble.delete(PATH);
    }
}

/// An administrator that writes data into the nodes.
async fn write(field: Nodes, client: CuratorFramework, mut random: StdRng) {
    for number in 0..16 {
        sleep(Duration::from_millis(random.random_range(100..2500))).await;
        let Some((node, _)) = any_node(&field, &mut random) else { continue };
        field.scribe.end(format_args!("an administrator writes into {node}"));
        let written = client.set_data().for_path(&node, format!("foreign {number}"));
        let _may_fail = timeout(SESSION, written).await;
    }
}

/// An administrator that has nodes at the paths of registrants for a while.
async fn squat(field: Nodes, client: CuratorFramework, mut random: StdRng) {
    for _ in 0..8 {
        sleep(Duration::from_millis(random.random_range(100..2500))).await;
        let path = format!("{}/shared-{}", field.parts[0], random.random_range(0..4));
        let mode = if random.random() { CreateMode::Ephemeral } else { CreateMode::Persistent };
        if random.random() {
            field.scribe.end(format_args!("an administrator deletes {path}"));
            field.delete(&path);
        }
        let create = client.create().creating_parents_if_needed().with_mode(mode).with_data("an outsider");
        // After a lost reply it may exist although the create has failed.
        if let Ok((_, stat)) = create.for_path_with_stat(&path).await {
            field.scribe.outsider(path.clone(), stat.czxid);
        }
        sleep(Duration::from_millis(random.random_range(0..6000))).await;
        field.scribe.end(format_args!("an administrator deletes {path}"));
        field.delete(&path);
    }
}
