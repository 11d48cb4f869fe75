//! Faults under a simulated network and paused time. Waiting for a listener blocks the runtime, so that time does
//! not advance in the meantime.

use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use curator_framework::recipe::RecipeClient as _;
use curator_framework::{Acl, ConnectionState, CuratorFramework, Permission, RetryNTimes};
use curator_integration::env::{PATIENCE, tasks};
use curator_integration::simulated_stage::{ONE, TWO, until};
use curator_recipes::{SharedError, SharedValue};
use curator_test::{ClientId, SimulatedEnsemble};
use parking_lot::Mutex;

pub(crate) const LATENCY: Duration = Duration::from_millis(20);
const PATH: &str = "/shared/value";

pub(crate) async fn client(ensemble: &SimulatedEnsemble, id: ClientId) -> CuratorFramework {
    let options = ensemble.client(id).session_timeout(Duration::from_secs(6));
    let client = options.retry_policy(RetryNTimes::new(10, Duration::from_millis(100))).build().unwrap();
    client.start().unwrap();
    client.block_until_connected().await.unwrap();
    client
}

async fn started(client: &CuratorFramework) -> SharedValue {
    let value = SharedValue::new(client.clone(), PATH, "seed").unwrap();
    value.start().unwrap();
    value.initialized().await.unwrap();
    value
}

async fn becomes(client: &CuratorFramework, wanted: ConnectionState) {
    client.watch_connection_state().wait_for(|state| *state == Some(wanted)).await.unwrap();
}

fn changes_of(value: &SharedValue) -> Receiver<Vec<u8>> {
    let (told, changes) = channel();
    value.add_listener(move |value| told.send(value.value().clone()).unwrap());
    changes
}

fn next<T>(told: &Receiver<T>) -> T {
    told.recv_timeout(PATIENCE).unwrap()
}

/// Resolves when the value's task has read a value, and has notified the listeners of it.
async fn is_seen(value: &SharedValue, wanted: &[u8]) {
    value.watch().wait_for(|value| value.value() == wanted).await.unwrap();
    // The copy has a write of this object already: a notification and a read follow.
    tokio::time::sleep(LATENCY * 4).await;
}

#[tokio::test(start_paused = true)]
async fn a_reconnect_without_a_change_reads_again_and_tells_nothing() {
    let ensemble = SimulatedEnsemble::new(1, LATENCY);
    let client = client(&ensemble, ONE).await;
    let value = started(&client).await;
    let (changes, mut watch) = (changes_of(&value), value.watch());
    watch.mark_unchanged();
    for _ in 0..5 {
        ensemble.reset(ONE);
        becomes(&client, ConnectionState::Suspended).await;
        assert_eq!(ensemble.watch_count(), 0);
        becomes(&client, ConnectionState::Reconnected).await;
        until("it is read again", || ensemble.watch_count() == 1).await;
    }
    assert!(!watch.has_changed().unwrap());
    // The first report is the change.
    value.set_value("changed").await.unwrap();
    is_seen(&value, b"changed").await;
    assert_eq!(next(&changes), b"changed");
    assert!(changes.try_recv().is_err());
}

#[tokio::test(start_paused = true)]
async fn a_value_is_fresh_after_each_of_ten_restarts_and_in_each_new_session() {
    let ensemble = SimulatedEnsemble::new(2, LATENCY);
    let (one, two) = (client(&ensemble, ONE).await, client(&ensemble, TWO).await);
    let (value, writer) = (started(&one).await, started(&two).await);
    for round in 0..10 {
        let text = format!("restart {round}").into_bytes();
        ensemble.partition(ONE);
        ensemble.restart();
        writer.set_value(text.clone()).await.unwrap();
        assert_ne!(value.value(), text);
        ensemble.repair(ONE);
        is_seen(&value, &text).await;
        assert_eq!(value.value(), text);
    }
    for round in 0..3 {
        let text = format!("session {round}").into_bytes();
        ensemble.partition(ONE);
        becomes(&one, ConnectionState::Lost).await;
        writer.set_value(text.clone()).await.unwrap();
        ensemble.repair(ONE);
        is_seen(&value, &text).await;
    }
    assert_eq!((one.watchers(), two.watchers()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_node_deleted_while_the_client_is_away_and_made_again_is_taken_over() {
    let ensemble = SimulatedEnsemble::new(3, LATENCY);
    let (one, two) = (client(&ensemble, ONE).await, client(&ensemble, TWO).await);
    let value = started(&one).await;
    let changes = changes_of(&value);
    for (round, away) in [false, true, false, true].into_iter().enumerate() {
        let text = format!("round {round}");
        if away {
            ensemble.partition(ONE);
        }
        two.delete().for_path(PATH).await.unwrap();
        if away {
            ensemble.reset(ONE);
            ensemble.repair(ONE);
        }
        until("its making is waited for", || one.watchers() == 1 && ensemble.watch_count() == 1).await;
        assert_ne!(value.value(), text.as_bytes());
        two.create().with_data(text.clone()).for_path(PATH).await.unwrap();
        is_seen(&value, text.as_bytes()).await;
        assert_eq!(next(&changes), text.as_bytes());
    }
}

/// How often the runtime wakes up in a second, measured over some minutes.
async fn wake_ups() -> u64 {
    let wakes = || tokio::runtime::Handle::current().metrics().worker_park_count(0);
    let (before, minutes) = (wakes(), Duration::from_secs(300));
    tokio::time::sleep(minutes).await;
    (wakes() - before) / minutes.as_secs()
}

/// While the value cannot be read it is asked for now and then, and neither a processor nor a server is kept busy.
#[tokio::test(start_paused = true)]
async fn what_cannot_be_read_is_waited_for_without_spinning() {
    let ensemble = SimulatedEnsemble::new(5, LATENCY);
    let client = client(&ensemble, ONE).await;
    let value = started(&client).await;
    let quiet = wake_ups().await;
    let is_quiet = |wake_ups: u64| assert!(wake_ups <= 2 * quiet + 5, "{wake_ups} wake-ups a second, not {quiet}");
    // No connection.
    ensemble.partition(ONE);
    becomes(&client, ConnectionState::Lost).await;
    is_quiet(wake_ups().await);
    ensemble.repair(ONE);
    until("it is read again", || client.watchers() == 1).await;
    // No permission.
    let acl = |permission| [Acl::new(permission, "world", "anyone")];
    client.set_acl().with_acl(acl(Permission::ADMIN)).for_path(PATH).await.unwrap();
    for session in ensemble.sessions() {
        ensemble.kill_session(session);
    }
    until("reading fails", || client.watchers() == 0).await;
    is_quiet(wake_ups().await);
    client.set_acl().with_acl(acl(Permission::ALL)).for_path(PATH).await.unwrap();
    until("it is read again", || client.watchers() == 1).await;
    // No node.
    client.delete().for_path(PATH).await.unwrap();
    is_quiet(wake_ups().await);
    // Its parent, a container, has gone as well.
    client.create().creating_parents_if_needed().with_data("again").for_path(PATH).await.unwrap();
    is_seen(&value, b"again").await;
}

#[tokio::test(start_paused = true)]
async fn slow_and_panicking_listeners_delay_no_other_listener() {
    let ensemble = SimulatedEnsemble::new(6, LATENCY);
    let client = client(&ensemble, ONE).await;
    let value = started(&client).await;
    let (release, blocked) = channel::<()>();
    let blocked = Mutex::new(blocked);
    value.add_listener(move |_| {
        // Blocks from the first change on.
        let _until_the_end = blocked.lock().recv();
    });
    value.add_listener(|_| {
        std::panic::resume_unwind(Box::new("a listener that fails"));
    });
    // One that adds another, and removes itself.
    let (told, late) = channel();
    let (ids, id) = channel();
    let id = Mutex::new(id);
    let (tell, done) = channel();
    // It is dropped with its removal, and the clone with it.
    let shared = value.clone();
    ids.send(value.add_listener(move |_| {
        let told = told.clone();
        shared.add_listener(move |value| told.send(value.value().clone()).unwrap());
        shared.remove_listener(id.lock().recv().unwrap());
        tell.send(shared.path().to_string()).unwrap();
    }))
    .unwrap();
    let changes = changes_of(&value);
    let (told, states) = channel();
    client.connection_state_listenable().add_listener(move |_, state| told.send(state).unwrap());
    value.set_value("0").await.unwrap();
    is_seen(&value, b"0").await;
    assert_eq!(next(&changes), b"0");
    assert_eq!(next(&done), PATH);
    for number in 1..50 {
        let text = number.to_string().into_bytes();
        value.set_value(text.clone()).await.unwrap();
        is_seen(&value, &text).await;
        assert_eq!(next(&changes), text);
        assert_eq!(next(&late), text);
    }
    ensemble.reset(ONE);
    becomes(&client, ConnectionState::Reconnected).await;
    assert_eq!([next(&states), next(&states)], [ConnectionState::Suspended, ConnectionState::Reconnected]);
    // What a blocked listener still has before it keeps nothing from ending.
    let mut watch = value.watch();
    drop(value);
    while watch.changed().await.is_ok() {}
    until("the watch is gone", || client.watchers() == 0).await;
    drop(release);
}

#[tokio::test(start_paused = true)]
async fn an_end_leaves_no_task_and_no_watch() {
    let ensemble = SimulatedEnsemble::new(7, LATENCY);
    let client = client(&ensemble, ONE).await;
    let before = tasks();
    for closed in [true, false] {
        // While it waits for a change, for the node's making, and for the connection.
        for situation in 0..3 {
            let value = started(&client).await;
            let clone = value.clone();
            assert_eq!((tasks(), client.watchers()), (before + 1, 1));
            match situation {
                1 => {
                    client.delete().for_path(PATH).await.unwrap();
                    until("its making is waited for", || client.watchers() == 1 && ensemble.watch_count() == 1).await;
                }
                2 => {
                    ensemble.partition(ONE);
                    ensemble.reset(ONE);
                    becomes(&client, ConnectionState::Suspended).await;
                }
                _ => {}
            }
            if closed {
                value.close().await;
                assert_eq!((tasks(), client.watchers()), (before, 0));
            } else {
                drop(value);
                tokio::time::sleep(Duration::from_millis(1)).await;
                assert_eq!(tasks(), before + 1, "a clone keeps it");
                drop(clone);
                until("all is gone", || tasks() == before && client.watchers() == 0).await;
            }
            ensemble.repair(ONE);
            client.session().await.unwrap();
        }
    }
    assert!(format!("{:?}", client.connection_state_listenable()).contains("listeners: 0"));
}

/// When a client's last clone is dropped with the value, its session ends.
#[tokio::test(start_paused = true)]
async fn the_values_own_task_does_not_keep_the_client() {
    let ensemble = SimulatedEnsemble::new(8, LATENCY);
    let value = started(&client(&ensemble, ONE).await).await;
    assert_eq!(ensemble.sessions().len(), 1);
    drop(value);
    until("the session is closed", || ensemble.sessions().is_empty()).await;
}

/// Wherever the close meets the first read, it leaves nothing but the node.
#[tokio::test(start_paused = true)]
async fn close_during_the_first_read_leaves_nothing() {
    let ensemble = SimulatedEnsemble::new(9, LATENCY);
    let client = client(&ensemble, ONE).await;
    let before = tasks();
    for millis in 0..200 {
        let path = format!("/given/up/{millis}");
        let value = SharedValue::new(client.clone(), path, "seed").unwrap();
        value.start().unwrap();
        let read = value.initialized_timeout(Duration::from_millis(millis)).await.unwrap();
        assert!(read.is_some() || millis < 100, "{millis} ms");
        assert_eq!(value.value(), b"seed");
        value.close().await;
        assert!(matches!(value.initialized().await, Err(SharedError::Closed { .. })));
        assert_eq!((client.watchers(), tasks()), (0, before));
    }
}
