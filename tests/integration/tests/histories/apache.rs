//! Apache ZooKeeper that is put back to a backup.

use std::time::Duration;

use curator_framework::{CuratorFramework, FixedEnsembleProvider};
use curator_integration::env::{builder, connected, eventually};
use curator_test::{ApacheServer, FaultProxy};
use futures_util::future::join_all;

use crate::program::Program;

const TICK: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(60);

/// Writes until the server has more transactions than the program has seen.
async fn overtake(client: &CuratorFramework, seen: i64) {
    const WRITES: usize = 200;
    client.create().for_path("/filler").await.unwrap();
    let mut zxid = 0;
    while zxid <= seen {
        let writes = (0..WRITES).map(async |_| client.set_data().for_path("/filler", "").await.unwrap().mzxid);
        zxid = join_all(writes).await.into_iter().max().unwrap();
    }
}

/// Plays a program with every recipe up to a backup and beyond, and puts the backup back. The program may connect again
/// once the server has more transactions than it has seen, or before.
async fn play(session_timeout: Duration, is_overtaken: bool) {
    let server = ApacheServer::builder().tick(TICK).session_timeouts(2 * TICK, LONGEST).start();
    let server = server.unwrap_or_else(|error| panic!("{error}"));
    let proxy = FaultProxy::start(server.address()).unwrap();
    let options = builder(server.address()).session_timeout(session_timeout);
    let client = connected(options.ensemble_provider(FixedEnsembleProvider::new(proxy.connect_string()))).await;
    let backup = tempfile::tempdir().unwrap();

    let mut program = Program::start(&client).await;
    tokio::task::block_in_place(|| server.restart_and_save(backup.path())).unwrap();
    program.go_on().await;
    let session = client.session().await.unwrap();
    client.set_data().for_path("/tree", "last").await.unwrap();
    let seen = session.zxid().unwrap().get();
    proxy.refuse();
    proxy.reset();
    tokio::task::block_in_place(|| server.restart_with_data(backup.path())).unwrap();
    let fresh = connected(builder(server.address())).await;
    if is_overtaken {
        overtake(&fresh, seen).await;
    }
    proxy.accept();
    eventually("the client is back", async || client.session().await.is_ok_and(|session| session.is_connected())).await;
    program.agrees(&fresh).await;
    client.close().await;
    fresh.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_recipe_agrees_with_a_server_that_has_gone_on_from_a_backup() {
    Box::pin(play(Duration::from_secs(30), true)).await;
}

/// The server refuses the program, because it has seen later transactions. So its session ends.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_recipe_agrees_with_a_server_that_is_behind_the_program() {
    Box::pin(play(Duration::from_secs(4), false)).await;
}
