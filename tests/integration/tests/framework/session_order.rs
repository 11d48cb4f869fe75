//! Events of one session never arrive after events of the next one.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use curator_framework::spi::{HandleEvent, Notification};
use curator_framework::{
    ConnectError, ConnectionState, CuratorFramework, Error, EventType, RetryForever, SessionEnd, WakeReason, Watch,
    WatchedEvent,
};
use curator_integration::connection_stage::{Puppets, TIMEOUT, Told, comes_to, simulated};
use curator_integration::env::{builder, connected, in_time};
use curator_test::{ClientId, SimulatedEnsemble, TestingServer};
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use tokio::task::{JoinSet, LocalSet};
use tokio::time::{Instant, sleep};

use ConnectionState::{Connected, Lost, Reconnected, Suspended};

/// How many storms.
const STORMS: u64 = 8;
const STORM: Duration = Duration::from_secs(60);
const NODE: &str = "/watched";

/// The waiters that woke: the number of the session of the watch, and the reason.
type Woken = Rc<RefCell<Vec<(u64, WakeReason)>>>;

/// Sets watches in one session after the other, as fast as they are woken, and changes the node that all watch.
async fn watches(client: CuratorFramework, woken: Woken) {
    let mut newest = 0;
    // The watches of the newest session that are checked here; a task of its own waits for each of the others.
    let mut open: Vec<Watch> = Vec::new();
    let mut waiting = JoinSet::new();
    loop {
        let session = match client.session().await {
            Ok(session) => session,
            Err(Error::Closed) => break,
            Err(Error::ConnectionLoss { .. }) => continue,
            Err(error) => panic!("{error}"),
        };
        if session.number() > newest {
            // After this session is seen, nothing comes from earlier ones.
            assert!(open.iter().all(Watch::has_fired), "a watch of session {newest} is open in {}", session.number());
            open.clear();
            newest = session.number();
        }
        open.retain(|watch| !watch.has_fired());
        for is_looked_at in [true, false] {
            let Ok((_, watch)) = session.exists_watched(NODE).await else { continue };
            if is_looked_at {
                open.push(watch);
                continue;
            }
            let (number, woken) = (session.number(), Rc::clone(&woken));
            waiting.spawn_local(async move {
                let reason = watch.await;
                woken.borrow_mut().push((number, reason));
            });
        }
        // The answer does not matter: it may be lost.
        drop(client.set_data().for_path(NODE, "x").await);
        sleep(Duration::from_millis(100)).await;
        while waiting.try_join_next().is_some() {}
    }
    while in_time(waiting.join_next()).await.is_some() {}
}

/// Hits a client until the storm has ended.
async fn hits(ensemble: &SimulatedEnsemble, client: ClientId, seed: u64) {
    let mut random = StdRng::seed_from_u64(seed);
    let start = Instant::now();
    while start.elapsed() < STORM {
        sleep(Duration::from_millis(random.random_range(1..3000))).await;
        match random.random_range(0..8) {
            0..=2 => ensemble.reset(client),
            3..=5 => {
                let sessions = ensemble.sessions();
                if !sessions.is_empty() {
                    ensemble.kill_session(sessions[random.random_range(0..sessions.len())]);
                }
            }
            6 => ensemble.restart(),
            _ => {
                ensemble.partition(client);
                sleep(Duration::from_millis(random.random_range(1..12_000))).await;
                ensemble.repair(client);
            }
        }
    }
}

/// Returns `true` if the states of a listener are the story of so many sessions.
fn is_a_story(told: &[ConnectionState], sessions: u64) -> bool {
    let follows = |pair: &[ConnectionState]| {
        matches!(
            (pair[0], pair[1]),
            (Connected | Reconnected, Suspended | Lost) | (Suspended, Reconnected | Lost) | (Lost, Reconnected)
        )
    };
    told.first() == Some(&Connected)
        && told.windows(2).all(follows)
        && told.iter().filter(|state| **state == Lost).count() as u64 == sessions - 1
}

async fn storm(seed: u64) -> u64 {
    let ensemble = SimulatedEnsemble::new(seed, Duration::from_millis(20));
    let mut clients = Vec::new();
    let mut running = Vec::new();
    for id in [ClientId(1), ClientId(2)] {
        let policy = RetryForever::new(Duration::from_millis(20)).unwrap();
        let client = simulated(&ensemble, id).retry_policy(policy).build().unwrap();
        let told = Told::by(&client);
        client.start().unwrap();
        client.block_until_connected().await.unwrap();
        drop(client.create().for_path(NODE).await);
        let woken = Woken::default();
        running.push(tokio::task::spawn_local(watches(client.clone(), Rc::clone(&woken))));
        clients.push((client, told, woken));
    }
    let both = [(ClientId(1), seed), (ClientId(2), seed ^ 0xff_ffff)];
    futures_util::future::join_all(both.map(|(client, seed)| hits(&ensemble, client, seed))).await;
    // All effects of the newest hit have ended by then.
    sleep(TIMEOUT * 2).await;
    let mut all_sessions = 0;
    for (client, told, woken) in clients {
        assert!(client.is_connected(), "seed {seed}");
        let session = in_time(client.session()).await.unwrap().number();
        let told = told.all(client).await;
        assert!(is_a_story(&told, session), "seed {seed}, {session} sessions: {told:?}");
        assert!(told.last().is_some_and(|state| state.is_connected()), "seed {seed}: {told:?}");
        let woken = woken.borrow();
        assert!(!woken.is_empty(), "seed {seed}");
        assert!(woken.is_sorted_by_key(|(session, _)| *session), "seed {seed}: {woken:?}");
        all_sessions += session;
    }
    for running in running {
        in_time(running).await.unwrap();
    }
    all_sessions
}

#[test]
fn in_storms_every_session_is_told_before_the_next() {
    let from = u64::from(rand::random::<u32>());
    println!("from seed {from}");
    let mut sessions = 0;
    for seed in from..from + STORMS {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        sessions += LocalSet::new().block_on(&runtime, storm(seed));
    }
    // The storms were some.
    assert!(sessions > STORMS * 4, "{sessions} sessions");
}

/// The framework ignores a handle that continues with a session that has ended.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn session_that_is_over_has_no_listeners() {
    let server = TestingServer::start().unwrap();
    let puppets = Puppets::default();
    let options = builder(server.address()).session_timeout(Duration::from_secs(60));
    let client = options.zookeeper_factory(puppets.clone()).build().unwrap();
    let told = Told::by(&client);
    client.start().unwrap();
    in_time(client.block_until_connected()).await.unwrap();
    let first = puppets.take().remove(0);
    let (_, of_first) = client.check_exists().watched().for_path(NODE).await.unwrap();
    // The end, and more behind it in the same breath.
    let event = WatchedEvent { event_type: EventType::NodeCreated, path: NODE.to_owned() };
    first.send(HandleEvent::Ended(SessionEnd::Expired)).unwrap();
    let gone = HandleEvent::Disconnected(ConnectError::new("a:1", "gone"));
    let late = [gone, HandleEvent::Watched(Notification::Event(event)), HandleEvent::Ended(SessionEnd::Expired)];
    for late in late.clone() {
        // It may have gone by now.
        first.send(late).ok();
    }
    assert_eq!(in_time(of_first).await, WakeReason::SessionEnded(SessionEnd::Expired));
    comes_to(&client, Reconnected).await;
    let session = client.session().await.unwrap();
    assert_eq!(session.number(), 2);
    let (_, mut of_second) = client.check_exists().watched().for_path(NODE).await.unwrap();
    for late in late {
        assert!(first.send(late).is_err(), "somebody listens");
    }
    // The second one's own events come.
    let other = connected(builder(server.address())).await;
    other.create().for_path(NODE).await.unwrap();
    assert_eq!(in_time(&mut of_second).await, WakeReason::Event(EventType::NodeCreated));
    assert_eq!(session.end_reason(), None);
    assert_eq!(told.all(client).await, [Connected, Lost, Reconnected]);
}
