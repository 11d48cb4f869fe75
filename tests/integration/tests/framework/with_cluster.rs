//! Three servers that fail: Curator's `TestWithCluster`.

use std::time::Duration;

use curator_framework::{ConnectionState, CreateMode, CuratorFramework, Error, RetryForever};
use curator_integration::connection_stage::Told;
use curator_integration::env::{builder, connected, eventually};
use curator_test::{ApacheCluster, FaultProxy};
use futures_util::FutureExt;
use futures_util::future::join_all;
use tokio::task::block_in_place;

/// Elections take their time on a busy machine.
const PATIENCE: Duration = Duration::from_secs(90);

fn cluster() -> ApacheCluster {
    let sessions = (Duration::from_secs(2), Duration::from_secs(90));
    ApacheCluster::builder().tick(Duration::from_secs(1)).session_timeouts(sessions.0, sessions.1).start().unwrap()
}

async fn client(cluster: &ApacheCluster, session: Duration) -> CuratorFramework {
    let options = CuratorFramework::builder(cluster.connect_string()).session_timeout(session);
    let options = options.connection_timeout(PATIENCE);
    connected(options.retry_policy(RetryForever::new(Duration::from_millis(100)).unwrap())).await
}

async fn comes_to(client: &CuratorFramework, wanted: ConnectionState) {
    let mut states = client.watch_connection_state();
    let came = tokio::time::timeout(PATIENCE, states.wait_for(|state| *state == Some(wanted))).await;
    came.expect("it did not come in time").unwrap();
}

/// Curator's `TestWithCluster.testSessionSurvives`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_ephemeral_node_survives_servers_that_restart_in_turn() {
    let cluster = block_in_place(cluster);
    let client = client(&cluster, Duration::from_secs(90)).await;
    client.create().with_mode(CreateMode::Ephemeral).for_path("/mine").await.unwrap();
    let session = client.session().await.unwrap();
    for index in 0..cluster.servers() {
        block_in_place(|| {
            cluster.kill(index).unwrap();
            cluster.wait_until_serving().unwrap();
            cluster.restart(index).unwrap();
            cluster.wait_for_server(index).unwrap();
        });
        let stat = tokio::time::timeout(PATIENCE, client.check_exists().for_path("/mine")).await.unwrap().unwrap();
        assert!(stat.is_some(), "server {index} was restarted");
    }
    assert_eq!(session.ended().now_or_never(), None);
    client.close().await;
}

/// Curator's `TestWithCluster.testSplitBrain`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_majority_the_session_is_suspended_then_lost() {
    let cluster = block_in_place(cluster);
    let client = client(&cluster, Duration::from_secs(8)).await;
    let told = Told::by(&client);
    client.create().for_path("/kept").await.unwrap();
    let leader = block_in_place(|| cluster.wait_until_serving()).unwrap();
    let follower = (leader + 1) % cluster.servers();
    for index in [leader, follower] {
        cluster.kill(index).unwrap();
    }
    comes_to(&client, ConnectionState::Suspended).await;
    comes_to(&client, ConnectionState::Lost).await;
    // The one that is left does not take any client.
    block_in_place(|| {
        cluster.restart(leader).unwrap();
        cluster.wait_until_serving().unwrap();
    });
    comes_to(&client, ConnectionState::Reconnected).await;
    assert!(client.check_exists().for_path("/kept").await.unwrap().is_some());
    let told = told.all(client).await;
    let lost = told.iter().position(|state| *state == ConnectionState::Lost).unwrap();
    assert!(told[..lost].contains(&ConnectionState::Suspended), "{told:?}");
    assert!(told[lost..].contains(&ConnectionState::Reconnected), "{told:?}");
}

/// The default of `max_ephemeral_bytes`, and the bytes of a node with a path of 60 characters.
const MOST_BYTES: usize = 1 << 20;
const BYTES: usize = 64;

/// Writes and reads.
async fn is_served(client: &CuratorFramework, path: &str) {
    let served = async {
        client.create().idempotent().with_data(path).for_path(path).await.unwrap();
        assert_eq!(client.get_data().for_path(path).await.unwrap().0, path.as_bytes());
    };
    tokio::time::timeout(PATIENCE, served).await.expect("it is not served in time");
}

/// The end of a session is one transaction with all its nodes. One that is too long stops all servers for good.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ensemble_serves_after_a_session_with_the_most_nodes_expires() {
    let cluster = block_in_place(cluster);
    let proxy = FaultProxy::start(cluster.server(0).unwrap()).unwrap();
    let full = connected(builder(proxy.address()).session_timeout(Duration::from_secs(5))).await;
    let other = client(&cluster, Duration::from_secs(90)).await;
    is_served(&other, "/full").await;
    let create = async |number: usize| {
        let path = format!("/full/{number:0>54}");
        full.create().with_mode(CreateMode::Ephemeral).for_path(&path).await
    };
    let nodes = MOST_BYTES / BYTES;
    for created in join_all((0..nodes).map(create)).await {
        created.unwrap();
    }
    let refused = create(nodes).await;
    let most = MOST_BYTES + BYTES;
    assert!(
        matches!(refused, Err(Error::TooManyEphemeralNodes { bytes, limit: MOST_BYTES }) if bytes == most),
        "{refused:?}"
    );
    let left = async || {
        let found = tokio::time::timeout(PATIENCE, other.check_exists().for_path("/full")).await;
        found.expect("it is not served in time").unwrap().unwrap().num_children
    };
    assert_eq!(usize::try_from(left().await), Ok(nodes));
    is_served(&other, "/before").await;
    // As if the process were killed: the servers end its session.
    proxy.partition();
    eventually("the session expires", async || left().await == 0).await;
    is_served(&other, "/expired").await;
    block_in_place(|| {
        cluster.stop().unwrap();
        (0..cluster.servers()).for_each(|index| cluster.restart(index).unwrap());
        (0..cluster.servers()).for_each(|index| cluster.wait_for_server(index).unwrap());
    });
    for path in ["/before", "/expired", "/restarted"] {
        is_served(&other, path).await;
    }
    assert_eq!(left().await, 0);
    other.close().await;
}
