//! Servers that serve reads only.

use std::time::Duration;

use curator_framework::{ConnectionState, CuratorFramework, DefaultZooKeeperFactory, Error, RetryNTimes};
use curator_integration::env::{PATIENCE, in_time};
use curator_test::ApacheCluster;

fn client(servers: &str, read_only: bool) -> CuratorFramework {
    let client = CuratorFramework::builder(servers)
        .zookeeper_factory(DefaultZooKeeperFactory::new())
        .can_be_read_only(read_only)
        .session_timeout(Duration::from_secs(6))
        .connection_timeout(Duration::from_secs(6))
        .retry_policy(RetryNTimes::new(0, Duration::ZERO))
        .build()
        .unwrap();
    client.start().unwrap();
    client
}

/// Curator's `TestReadOnly.testConnectionStateNewClient` and `testReadOnly`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn read_only_client_reads_from_a_cut_off_server_and_writes_after_its_repair() {
    let cluster = tokio::task::block_in_place(|| ApacheCluster::builder().read_only_mode().start().unwrap());
    let first = client(&cluster.connect_string(), false);
    in_time(first.create().with_data("data").for_path("/node")).await.unwrap();
    first.close().await;
    for index in [1, 2] {
        tokio::task::block_in_place(|| cluster.kill(index).unwrap());
    }
    let server = cluster.server(0).unwrap().to_string();
    let reader = client(&server, true);
    let mut state = reader.watch_connection_state();
    let read_only = state.wait_for(|state| *state == Some(ConnectionState::ReadOnly));
    tokio::time::timeout(PATIENCE * 2, read_only).await.expect("it serves reads").unwrap();
    assert_eq!(in_time(reader.get_data().for_path("/node")).await.unwrap().0, b"data");
    let refused = in_time(reader.set_data().for_path("/node", "new")).await.unwrap_err();
    assert!(matches!(refused, Error::ZooKeeper { code: -119, .. }), "{refused}");
    // A client without that option is not connected.
    let writer = client(&server, false);
    assert!(in_time(writer.get_data().for_path("/node")).await.is_err());
    for index in [1, 2] {
        tokio::task::block_in_place(|| cluster.restart(index).unwrap());
    }
    let again = state.wait_for(|state| *state == Some(ConnectionState::Reconnected));
    tokio::time::timeout(PATIENCE * 3, again).await.expect("it is connected for writes").unwrap();
    in_time(reader.set_data().for_path("/node", "new")).await.unwrap();
    reader.close().await;
    writer.close().await;
}
