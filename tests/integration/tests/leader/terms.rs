//! The ends of terms.

use std::pin::pin;
use std::time::Duration;

use curator_framework::{ConnectionState, FixedEnsembleProvider, LossReason};
use curator_integration::env::{connected, in_time};
use curator_integration::in_process::{client, options, server, simulated};
use curator_integration::lock_stage::play;
use curator_recipes::{LeaderError, LeaderSelector, Release, TermEnd, TermOutcome};
use curator_test::{ClientId, FaultProxy, SimulatedEnsemble};
use futures_util::FutureExt as _;

use crate::moves::{participant, started};
use crate::stage::{becomes, take_down};

#[tokio::test]
async fn a_term_that_was_lost_has_not_resigned() {
    let server = server();
    let client = client(&server).await;
    let latch = started(&client);
    let leadership = in_time(latch.leading()).await.unwrap();
    client.delete().for_path(leadership.node_path()).await.unwrap();
    let lost = TermEnd::Lost(LossReason::NodeDeleted);
    assert_eq!(in_time(leadership.ended()).await, lost);
    assert_eq!(in_time(leadership.lost()).await, LossReason::NodeDeleted);
    in_time(latch.leading()).await.unwrap();
    assert_eq!(in_time(leadership.ended()).await, lost);
    let refused = in_time(leadership.proclaim("late")).await;
    assert!(matches!(&refused, Err(LeaderError::LeadershipLost { reason, .. }) if *reason == lost), "{refused:?}");
}

#[tokio::test]
async fn a_term_that_has_resigned_is_never_lost() {
    let server = server();
    let client = client(&server).await;
    let latch = started(&client);
    let leadership = in_time(latch.leading()).await.unwrap();
    in_time(leadership.verify()).await.unwrap();
    in_time(latch.close()).await;
    in_time(client.close()).await;
    assert_eq!(in_time(leadership.ended()).await, TermEnd::Resigned);
    assert_eq!(leadership.lost().now_or_never(), None);
    assert!(!leadership.is_held() && leadership.remaining().is_zero());
    assert!(matches!(leadership.verify().await, Err(LeaderError::LeadershipLost { reason: TermEnd::Resigned, .. })));
}

/// A caller may keep a future without polling it.
#[tokio::test]
async fn a_resign_that_is_not_polled_holds_nothing_up() {
    let server = server();
    let proxy = FaultProxy::start(server.address()).unwrap();
    let through = options(&server).ensemble_provider(FixedEnsembleProvider::new(proxy.connect_string()));
    let (ours, theirs) = (connected(through).await, client(&server).await);
    let latch = started(&ours);
    in_time(latch.leading()).await.unwrap();
    let other = started(&theirs);
    participant(&other).await;

    let mut resigning = pin!(latch.resign());
    assert!(futures_util::poll!(&mut resigning).is_pending());
    in_time(other.leading()).await.unwrap();
    in_time(latch.close()).await;
    assert_eq!(in_time(resigning).await.unwrap(), Some(Release::Released));
}

/// The node is deleted in the outage in which the leader resigns.
#[tokio::test]
async fn resignation_tells_that_the_node_was_deleted_before() {
    let server = server();
    let proxy = FaultProxy::start(server.address()).unwrap();
    let through = options(&server).ensemble_provider(FixedEnsembleProvider::new(proxy.connect_string()));
    let (ours, theirs) = (connected(through).await, client(&server).await);
    let latch = started(&ours);
    let leadership = in_time(latch.leading()).await.unwrap();
    take_down(&proxy);
    becomes(&ours, ConnectionState::Suspended).await;
    theirs.delete().for_path(leadership.node_path()).await.unwrap();
    let mut resigning = pin!(latch.resign());
    assert!(futures_util::poll!(&mut resigning).is_pending());
    proxy.accept();
    let lost = Release::AlreadyLost(LossReason::NodeDeleted);
    assert_eq!(in_time(resigning).await.unwrap(), Some(lost));
}

/// The work blocks its thread until the session has ended, and returns.
#[test]
fn work_that_ends_behind_the_loss_is_not_done_in_its_term() {
    play(async {
        let ensemble = SimulatedEnsemble::new(1, Duration::from_millis(3));
        let selector = LeaderSelector::new(simulated(&ensemble, 0).await, "/election").unwrap();
        let work = async |_| ensemble.skip_clock(ClientId(0), Duration::from_secs(100));
        let outcome = selector.run_once(work).await.unwrap();
        assert!(matches!(outcome, TermOutcome::Lost(_)), "{outcome:?}");
    });
}
