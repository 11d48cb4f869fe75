//! The ends of terms.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;

use curator_framework::{FixedEnsembleProvider, LossReason};
use curator_integration::env::{connected, in_time};
use curator_integration::in_process::{client, options, server};
use curator_recipes::{LeaderError, TermEnd};
use curator_test::FaultProxy;

use crate::moves::{participant, started};

#[tokio::test]
async fn a_term_that_was_lost_has_not_resigned() {
    let server = server();
    let client = client(&server).await;
    let latch = started(&client);
    let leadership = in_time(latch.leading()).await.unwrap();
    client.delete().for_path(leadership.path()).await.unwrap();
    let lost = TermEnd::Lost(LossReason::NodeDeleted);
    assert_eq!(in_time(leadership.lost()).await, lost);
    in_time(latch.leading()).await.unwrap();
    assert_eq!(in_time(leadership.lost()).await, lost);
    let refused = in_time(leadership.proclaim("late")).await;
    assert!(matches!(&refused, Err(LeaderError::LeadershipLost { reason, .. }) if *reason == lost), "{refused:?}");
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
    poll_fn(|cx| {
        assert!(resigning.as_mut().poll(cx).is_pending());
        Poll::Ready(())
    })
    .await;
    in_time(other.leading()).await.unwrap();
    in_time(latch.close()).await;
    assert!(in_time(resigning).await.unwrap());
}
