//! A paused clock and real sockets: the client refuses to start, and says what to do.

use curator_framework::{CuratorFrameworkBuilder, Error, ZooKeeperAsyncFactory};
use curator_integration::env::in_time;
use curator_test::TestingServer;

fn both(server: &TestingServer) -> [CuratorFrameworkBuilder; 2] {
    [super::second(server.address()), super::second(server.address()).zookeeper_factory(ZooKeeperAsyncFactory)]
}

#[tokio::test(start_paused = true)]
async fn client_with_sockets_does_not_start_on_a_paused_clock() {
    let server = TestingServer::start().unwrap();
    for options in both(&server) {
        let client = options.build().unwrap();
        let error = client.start().unwrap_err();
        assert!(
            error.to_string().contains("without `start_paused`, or with `curator_test::SimulatedEnsemble`"),
            "{error}"
        );
        assert!(matches!(client.block_until_connected().await, Err(Error::NotStarted)));
        // The same client starts when the clock runs.
        tokio::time::resume();
        client.start().unwrap();
        in_time(client.block_until_connected()).await.unwrap();
        client.close().await;
        tokio::time::pause();
    }
}
