//! A term that ends with the state of the connection, and the place that the latch keeps.

use std::time::Duration;

use curator_framework::spi::HandleEvent;
use curator_framework::{
    ConnectError, ConnectionState, CuratorFramework, FixedEnsembleProvider, RetryNTimes,
    StandardConnectionStateErrorPolicy,
};
use curator_integration::connection_stage::{Puppets, comes_to};
use curator_integration::env::{connected, eventually, in_time};
use curator_integration::in_process::{self, options, server};
use curator_integration::lock_stage::play;
use curator_recipes::LeaderLatch;
use curator_test::{ClientId, FaultProxy, SimulatedEnsemble};
use tokio::time::sleep;

const PATH: &str = "/election";
const SESSION: Duration = Duration::from_secs(12);
const LEADER: ClientId = ClientId(1);
const OTHER: ClientId = ClientId(2);

async fn client(ensemble: &SimulatedEnsemble, id: ClientId) -> CuratorFramework {
    let options = ensemble.client(id).session_timeout(SESSION).connection_timeout(SESSION).reap_interval(None);
    let options = options.connection_state_error_policy(StandardConnectionStateErrorPolicy);
    let client = options.retry_policy(RetryNTimes::new(1000, Duration::from_millis(50))).build().unwrap();
    client.start().unwrap();
    client.block_until_connected().await.unwrap();
    client
}

/// A connection that breaks while the latch asks for its node proves nothing about the node.
#[test]
fn a_latch_resumes_only_with_a_proof_of_its_node() {
    for break_after in 0..40 {
        play(async {
            let ensemble = SimulatedEnsemble::new(1, Duration::from_millis(1));
            let (ours, theirs) = (client(&ensemble, LEADER).await, client(&ensemble, OTHER).await);
            let leader = LeaderLatch::new(ours, PATH).unwrap();
            leader.start().unwrap();
            let leadership = leader.leading().await.unwrap();
            let other = LeaderLatch::new(theirs, PATH).unwrap();
            other.start().unwrap();
            sleep(Duration::from_millis(100)).await;

            ensemble.reset(LEADER);
            leadership.lost().await;
            sleep(Duration::from_micros(break_after * 250)).await;
            ensemble.reset(LEADER);
            // No watch is on the node yet, so only a read shows that it is gone.
            ensemble.delete(leadership.node_path());
            for _ in 0..2000 {
                let both = leader.has_leadership() && other.has_leadership();
                assert!(!both, "two latches lead, with a break after {break_after} steps");
                sleep(Duration::from_micros(500)).await;
            }
            assert!(other.has_leadership(), "{:?}", other.state());
        });
    }
}

/// The state of the connection may be an error state before the request fails that asks for the node.
#[tokio::test]
async fn an_error_state_during_the_question_proves_nothing() {
    let server = server();
    let (proxy, puppets) = (FaultProxy::start(server.address()).unwrap(), Puppets::default());
    let through = options(&server).ensemble_provider(FixedEnsembleProvider::new(proxy.connect_string()));
    let through = through.connection_state_error_policy(StandardConnectionStateErrorPolicy);
    let ours = connected(through.zookeeper_factory(puppets.clone())).await;
    let leader = LeaderLatch::new(ours.clone(), PATH).unwrap();
    leader.start().unwrap();
    let leadership = in_time(leader.leading()).await.unwrap();
    let other = LeaderLatch::new(in_process::client(&server).await, PATH).unwrap();
    other.start().unwrap();
    eventually("the other waits", async || other.our_path().is_some()).await;

    // The reply to the question takes long enough for all that follows.
    proxy.latency(Duration::from_millis(500));
    proxy.reset();
    in_time(leadership.lost()).await;
    comes_to(&ours, ConnectionState::Reconnected).await;
    let gone = HandleEvent::Disconnected(ConnectError::new("a:1", "gone"));
    let puppet = puppets.take().remove(0);
    puppet.send(gone).unwrap();
    comes_to(&ours, ConnectionState::Suspended).await;
    let admin = in_process::client(&server).await;
    admin.delete().for_path(leadership.node_path()).await.unwrap();
    in_time(other.leading()).await.unwrap();
    proxy.latency(Duration::ZERO);
    proxy.reset();
    for _ in 0..300 {
        assert!(!(leader.has_leadership() && other.has_leadership()), "two latches lead");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
