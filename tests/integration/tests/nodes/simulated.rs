//! Nodes under a simulated network and paused time: moments are exact.

use std::time::Duration;

use curator_framework::CreateMode;
use curator_framework::recipe::RecipeClient as _;
use curator_integration::env::tasks;
use curator_integration::simulated_stage::{LATENCY, ONE, SESSION, TWO, client, play, soon, until};
use curator_recipes::{NodeState, PersistentNodeOptions};
use tokio::time::{Instant, sleep};

use crate::stage::{MODES, ephemeral, is_standing, started, started_with};

const FOLDER: &str = "/test";
const PATH: &str = "/test/foo";

/// Curator's `TestPersistentNode.testQuickClose`, for each moment of the create.
#[test]
fn node_closed_at_any_moment_of_its_create_leaves_nothing() {
    for millis in 0..80 {
        play(millis, async |ensemble| {
            let one = client(&ensemble, ONE).await;
            let before = tasks();
            for mode in MODES {
                let node = started(&one, mode, PATH, "");
                sleep(Duration::from_millis(millis / 2)).await;
                soon(node.close()).await;
                until("it is deleted", || ensemble.children(FOLDER).is_empty()).await;
                sleep(SESSION * 2).await;
                assert_eq!(ensemble.children(FOLDER), [""; 0], "{mode:?} after {millis} ms");
                let dropped = started(&one, mode, PATH, "");
                sleep(Duration::from_millis(millis / 2)).await;
                drop(dropped);
                sleep(SESSION * 2).await;
                assert_eq!((ensemble.children(FOLDER), one.watchers()), (vec![], 0), "{mode:?} after {millis} ms");
            }
            assert!(tasks() <= before, "{} tasks, not {before}", tasks());
        });
    }
}

/// A fault of the connection at each moment of a create, of a change and of a close.
#[test]
fn node_is_one_or_none_whatever_its_connection_does() {
    for seed in 0..120 {
        play(seed, async |ensemble| {
            let one = client(&ensemble, ONE).await;
            let fault = || match seed % 4 {
                0 => ensemble.drop_reply(ONE),
                1 => ensemble.reset(ONE),
                2 => ensemble.stale_reads(ONE),
                _ => {
                    ensemble.reset(ONE);
                    ensemble.drop_reply(ONE);
                }
            };
            for mode in MODES {
                // A sequential node is found after a lost reply by its id alone.
                for is_protected in
                    [false, true].into_iter().filter(|&is_protected| is_protected || !mode.is_sequential())
                {
                    let options = PersistentNodeOptions::new();
                    let options = if is_protected { options.protected() } else { options };
                    let node = started_with(&one, mode, PATH, "one", options);
                    sleep(Duration::from_millis(seed / 4)).await;
                    fault();
                    until("it stands", || is_standing(&node)).await;
                    until("one node is left", || ensemble.children(FOLDER).len() == 1).await;
                    sleep(Duration::from_secs(1)).await;
                    let nodes = ensemble.children(FOLDER);
                    let path = node.actual_path().unwrap();
                    assert!(nodes.len() == 1 && path.ends_with(&nodes[0]), "{mode:?}: {nodes:?}, not {path}");
                    ensemble.repair(ONE);
                    fault();
                    soon(node.set_data("two")).await.unwrap();
                    let (data, _) = soon(one.get_data().for_path(&path)).await.unwrap();
                    assert_eq!(data, b"two", "{mode:?}");
                    ensemble.repair(ONE);
                    fault();
                    soon(node.close()).await;
                    until("none is left", || ensemble.children(FOLDER).is_empty()).await;
                    sleep(SESSION * 2).await;
                    assert_eq!(ensemble.children(FOLDER), [""; 0], "{mode:?}");
                    ensemble.repair(ONE);
                }
            }
        });
    }
}

/// The server still has the old session when the client comes back with a new one. The client also closes the old session
/// then, which may come first: the name is missing until the next create arrives.
#[test]
fn name_is_missing_for_two_round_trips_at_most_if_the_client_is_back_before_its_session_ends() {
    let mut unbroken = 0;
    for seed in 0..40 {
        unbroken += usize::from(play(seed, async |ensemble| {
            let one = client(&ensemble, ONE).await;
            let node = ephemeral(&one, PATH, "mine");
            until("it stands", || is_standing(&node)).await;
            sleep(Duration::from_millis(seed * 97)).await;
            let old = ensemble.owner(PATH).unwrap();
            ensemble.partition(ONE);
            until("the session is lost", || !is_standing(&node)).await;
            ensemble.reset(ONE);
            ensemble.repair(ONE);
            let mut missing = Duration::ZERO;
            until("it stands again", || {
                missing += Duration::from_millis(u64::from(ensemble.owner(PATH).is_none()));
                is_standing(&node)
            })
            .await;
            assert!(missing <= LATENCY * 4, "seed {seed}: missing for {missing:?}");
            let new = ensemble.owner(PATH).unwrap();
            assert_ne!(old, new, "seed {seed}");
            for _ in 0..SESSION.as_millis() * 2 {
                sleep(Duration::from_millis(1)).await;
                assert_eq!(ensemble.owner(PATH), Some(new), "seed {seed}");
            }
            missing.is_zero()
        }));
    }
    assert!(unbroken > 20, "unbroken in {unbroken} of 40");
}

/// A client that is cut off: its node goes with its session, and another client's node exists; the first one waits.
#[test]
fn one_of_two_nodes_stands_at_a_path_whatever_the_network_does() {
    for seed in 0..40 {
        play(seed, async |ensemble| {
            let clients = [client(&ensemble, ONE).await, client(&ensemble, TWO).await];
            let nodes = [ephemeral(&clients[0], PATH, "one"), ephemeral(&clients[1], PATH, "two")];
            for round in 0..6 {
                let id = [ONE, TWO][(seed as usize + round) % 2];
                sleep(Duration::from_millis(seed * 211 % 5000)).await;
                match seed % 3 {
                    0 => ensemble.partition(id),
                    1 => ensemble.cut_off_server(id),
                    _ => ensemble.reset(id),
                }
                sleep(SESSION * 2).await;
                ensemble.repair(id);
                until("one of them stands by the server", || {
                    let standing: Vec<_> = nodes
                        .iter()
                        .filter_map(|node| match node.state() {
                            NodeState::Standing(standing) => Some(standing.session),
                            _ => None,
                        })
                        .collect();
                    standing.len() == 1 && ensemble.owner(PATH) == Some(standing[0].unwrap().get())
                })
                .await;
            }
        });
    }
}

/// A node that is not there now is not standing for longer than a round trip and the pause of a create.
#[test]
fn deleted_node_stands_again_within_two_round_trips() {
    for seed in 0..20 {
        play(seed, async |ensemble| {
            let one = client(&ensemble, ONE).await;
            for mode in [CreateMode::Ephemeral, CreateMode::Persistent] {
                let node = started(&one, mode, PATH, "mine");
                until("it stands", || is_standing(&node)).await;
                sleep(SESSION).await;
                ensemble.delete(PATH);
                let deleted = Instant::now();
                until("it is created again", || !ensemble.children(FOLDER).is_empty()).await;
                assert!(deleted.elapsed() <= LATENCY * 4, "{mode:?}: after {:?}", deleted.elapsed());
                until("it stands", || is_standing(&node)).await;
                soon(node.close()).await;
            }
        });
    }
}

/// A clock that jumps, as on a host that slept: the node exists in the next session.
#[test]
fn node_of_a_host_that_slept_stands_again() {
    for seed in 0..20 {
        play(seed, async |ensemble| {
            let (one, two) = (client(&ensemble, ONE).await, client(&ensemble, TWO).await);
            let node = ephemeral(&one, PATH, "mine");
            until("it stands", || is_standing(&node)).await;
            let session = ensemble.owner(PATH).unwrap();
            ensemble.partition(ONE);
            ensemble.skip_clock(ONE, SESSION * 2);
            sleep(SESSION * 2).await;
            assert!(!is_standing(&node) && ensemble.owner(PATH).is_none());
            ensemble.repair(ONE);
            until("it stands", || is_standing(&node)).await;
            let (data, stat) = soon(two.get_data().for_path(PATH)).await.unwrap();
            assert!(data == b"mine" && stat.ephemeral_owner != session);
        });
    }
}
