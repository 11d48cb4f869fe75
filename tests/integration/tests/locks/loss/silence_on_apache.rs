//! A holder cut off in silence knows of its loss before the next one has the lock: on Apache ZooKeeper.

use std::sync::Arc;
use std::time::{Duration, Instant};

use curator_framework::CuratorFramework;
use curator_integration::env::{builder, connected, in_time};
use curator_integration::held::{Form, Kind, Way};
use curator_recipes::SemaphoreProtocol;
use curator_test::{ApacheServer, FaultProxy};
use tokio::time::sleep;

use super::players::Round;

/// A quarter of it is what a slow machine may take to tell.
const SESSION: Duration = Duration::from_secs(4);
const KEEPS: Duration = Duration::from_millis(50);

/// What becomes of the holder's connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Silence {
    Partition,
    /// All comes later than it helps.
    Late,
    /// The server is frozen, for all.
    Frozen,
}

struct Play {
    name: String,
    round: Arc<Round>,
    silence: Silence,
    proxy: FaultProxy,
    holding: tokio::task::JoinHandle<()>,
    following: tokio::task::JoinHandle<()>,
    clients: [CuratorFramework; 2],
}

async fn begin(server: &ApacheServer, way: Way, silence: Silence) -> Play {
    let name = format!("{way}, {silence:?}");
    let path = format!("/{}", name.replace(['(', ')', ' ', ','], "-"));
    let proxy = FaultProxy::start(server.address()).unwrap();
    let patient = |address| builder(address).session_timeout(SESSION).connection_timeout(Duration::from_secs(30));
    let clients = [connected(patient(proxy.address())).await, connected(patient(server.address())).await];
    let began = Instant::now();
    let round = Round::new(way, &path, move || began.elapsed());
    let holding = tokio::spawn(Arc::clone(&round).hold(clients[0].clone()));
    in_time(round.is_held()).await;
    let following = tokio::spawn(Arc::clone(&round).follow(clients[1].clone(), KEEPS));
    Play { name, round, silence, proxy, holding, following, clients }
}

async fn end(play: Play) {
    let Play { name, round, holding, following, clients, .. } = play;
    round.end_of_silence();
    in_time(holding).await.unwrap();
    in_time(following).await.unwrap();
    for client in clients {
        client.close().await;
    }
    let outcome = round.outcome();
    assert!(outcome.wrong.is_empty(), "{name}: {:#?}\n{:#?}", outcome.wrong, outcome.history);
    // The first one's, the next one's, and the first one's again.
    assert_eq!((outcome.losses, outcome.history.grants()), (1, 3), "{name}: {:#?}", outcome.history);
    println!("{name}: told before the next grant");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_cut_off_in_silence_knows_before_the_next_one_has_the_lock() {
    let sessions = (Duration::from_secs(2), Duration::from_secs(60));
    let server = ApacheServer::builder().tick(Duration::from_millis(500)).session_timeouts(sessions.0, sessions.1);
    let server = server.start().unwrap_or_else(|error| panic!("{error}"));
    let (direct, curator) = (Kind::Lease(SemaphoreProtocol::Direct), Kind::Lease(SemaphoreProtocol::Curator));
    let mut rounds = Vec::new();
    for (kind, form, silence) in [
        (Kind::Mutex, Form::Reentrant, Silence::Partition),
        (Kind::SemaphoreMutex, Form::Plain, Silence::Partition),
        (Kind::Write, Form::Downgraded, Silence::Partition),
        (Kind::Multi, Form::Plain, Silence::Partition),
        (direct, Form::Plain, Silence::Partition),
        (curator, Form::Plain, Silence::Late),
        (Kind::Write, Form::ReadBeside, Silence::Late),
    ] {
        rounds.push(begin(&server, Way::new(kind, form), silence).await);
    }
    for play in &rounds {
        match play.silence {
            Silence::Partition => play.proxy.partition(),
            Silence::Late => play.proxy.latency(SESSION * 3),
            Silence::Frozen => {}
        }
    }
    for play in rounds {
        let served = async {
            while !play.following.is_finished() {
                sleep(Duration::from_millis(10)).await;
            }
        };
        in_time(served).await;
        play.proxy.latency(Duration::ZERO);
        play.proxy.repair();
        // What comes late is not waited for: it comes by another connection.
        play.proxy.reset();
        end(play).await;
    }

    // The waiter is as silent as the holder, and the holder may be the first to be back.
    let mut rounds = Vec::new();
    for (kind, form) in [(Kind::Mutex, Form::Plain), (Kind::Write, Form::Plain), (Kind::SemaphoreMutex, Form::Plain)] {
        rounds.push(begin(&server, Way::new(kind, form), Silence::Frozen).await);
    }
    server.freeze().unwrap();
    for play in &rounds {
        in_time(play.round.is_told()).await;
        play.round.look_at_the_old_holder("told");
    }
    server.thaw().unwrap();
    for play in rounds {
        end(play).await;
    }
}
