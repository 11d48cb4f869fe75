//! Three servers that fail: Curator's `TestWithCluster`.

use std::time::Duration;

use curator_framework::{ConnectionState, CreateMode, CuratorFramework, RetryForever};
use curator_integration::connection_stage::Told;
use curator_integration::env::connected;
use curator_test::ApacheCluster;
use futures_util::FutureExt;
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
    // The one that is left does not take anybody.
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
