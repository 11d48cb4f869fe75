//! Listeners to the errors that no caller gets.

use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use curator_framework::{Acl, CuratorFramework, Permission};
use curator_integration::env::{PATIENCE, builder, connected, eventually};
use curator_recipes::InterProcessMutex;
use curator_test::TestingServer;

const READABLE: fn() -> Permission = || Permission::READ | Permission::CREATE | Permission::ADMIN;

/// Drops a guard with a node that cannot be deleted: one error.
async fn fails_to_delete(client: &CuratorFramework, path: &str) {
    let guard = InterProcessMutex::new(client.clone(), path).unwrap().acquire().await.unwrap();
    client.set_acl().with_acl([Acl::new(READABLE(), "world", "anyone")]).for_path(path).await.unwrap();
    drop(guard);
}

async fn next(errors: &Receiver<String>) -> String {
    let mut heard = None;
    eventually("the program is told", async || {
        heard = heard.take().or_else(|| errors.try_recv().ok());
        heard.is_some()
    })
    .await;
    heard.unwrap()
}

#[tokio::test]
async fn a_listener_that_panics_or_blocks_keeps_no_error_from_others() {
    let server = TestingServer::start().unwrap();
    let client = connected(builder(server.address())).await;
    let (told, errors) = channel();
    let (release, gate) = channel::<()>();
    let gate = parking_lot::Mutex::new(gate);
    client.add_error_listener(|_, _| panic!("on purpose"));
    client.add_error_listener(move |_, _| _ = gate.lock().recv_timeout(PATIENCE));
    let panicking = told.clone();
    let calls = std::sync::atomic::AtomicUsize::new(0);
    client.add_error_listener(move |_, error| {
        panicking.send(format!("panics: {error}")).unwrap();
        assert!(calls.fetch_add(1, std::sync::atomic::Ordering::SeqCst) > 0, "on purpose");
    });
    client.add_error_listener(move |what, error| told.send(format!("{what}: {error}")).unwrap());
    for lock in ["/one", "/two"] {
        fails_to_delete(&client, lock).await;
        let mut heard = [next(&errors).await, next(&errors).await];
        heard.sort();
        assert!(heard.iter().all(|text| text.contains(lock)), "{heard:?}");
        assert!(heard[0].starts_with("a node cannot be deleted"), "{heard:?}");
        assert!(heard[1].starts_with("panics"), "{heard:?}");
    }
    assert!(client.is_connected());
    drop(release);
}

#[tokio::test]
async fn a_closed_client_has_no_listener_any_more() {
    let server = TestingServer::start().unwrap();
    let client = connected(builder(server.address())).await;
    let (told, dropped) = channel::<()>();
    let own = client.clone();
    client.add_error_listener(move |_, _| {
        let _owned = (&own, &told);
    });
    client.close().await;
    drop(client);
    assert_eq!(dropped.recv_timeout(Duration::from_secs(10)), Err(std::sync::mpsc::RecvTimeoutError::Disconnected));
}

/// The error names the node as the program does, in `Debug` as the server does.
#[tokio::test]
async fn an_error_names_the_path_of_the_caller() {
    let server = TestingServer::start().unwrap();
    let plain = connected(builder(server.address())).await;
    plain.create().for_path("/app").await.unwrap();
    let options = builder(server.address());
    let options = options
        .ensemble_provider(curator_framework::FixedEnsembleProvider::new(format!("{}/app", server.connect_string())));
    let client = connected(options.namespace("team")).await;
    let (told, errors) = channel();
    client.add_error_listener(move |_, error| told.send(format!("{error} {error:?}")).unwrap());
    fails_to_delete(&client, "/lock").await;
    let heard = next(&errors).await;
    assert!(heard.starts_with("not authorized for /lock/"), "{heard}");
    assert!(heard.contains("/app/team/lock/"), "{heard}");
}
