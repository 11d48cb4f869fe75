//! Deaths of other members in an outage and in `leave`. On an in-process server.

use std::time::Duration;

use curator_framework::recipe::RecipeClient as _;
use curator_framework::{CuratorFramework, FixedEnsembleProvider};
use curator_integration::env::{answered, connected, eventually, in_time};
use curator_integration::in_process::{client, options, server};
use curator_recipes::{DistributedDoubleBarrier, DoubleBarrierOptions};
use curator_test::wire::OpCode;
use curator_test::{FaultProxy, TestingServer};

use crate::double_stage::all_enter;

const PATH: &str = "/barrier";

fn named(client: &CuratorFramework, id: &str, quantity: usize) -> DistributedDoubleBarrier {
    let options = DoubleBarrierOptions::new().id(id);
    DistributedDoubleBarrier::with_options(client.clone(), PATH, quantity, options).unwrap()
}

/// A client through a proxy.
async fn behind_proxy(server: &TestingServer) -> (FaultProxy, CuratorFramework) {
    let proxy = FaultProxy::start(server.address()).unwrap();
    let options = options(server).ensemble_provider(FixedEnsembleProvider::new(proxy.connect_string()));
    (proxy, connected(options).await)
}

/// Lets a member die in an outage of the one that watches it, before or after the reply that sets its watch. Returns
/// the id that is reported.
async fn death_in_an_outage(is_watched: bool) -> String {
    let server = server();
    let (proxy, watcher) = behind_proxy(&server).await;
    let two = client(&server).await;
    let mut members = all_enter(&[named(&watcher, "watcher", 2), named(&two, "dead", 2)]).await;
    let (_dead, first) = (members.pop().unwrap(), members.pop().unwrap());
    let reads = proxy.replies(OpCode::GetData);
    if !is_watched {
        // The reply to the read of the other member; the one before is the reply to the read of `ready`.
        proxy.refuse();
        proxy.drop_reply(OpCode::GetData, 2);
    }
    let fault = async {
        if is_watched {
            eventually("the watches", async || proxy.replies(OpCode::GetData) >= reads + 2).await;
            answered(std::slice::from_ref(&watcher)).await;
            proxy.refuse();
            proxy.reset();
        }
        eventually("it is cut off", async || !watcher.is_connected()).await;
        assert!(server.kill_session(two.session().await.unwrap().id().unwrap().get()));
        eventually("it is dead", async || server.children(PATH).unwrap().len() == 2).await;
        proxy.accept();
        std::future::pending::<()>().await;
    };
    tokio::select! {
        told = in_time(first.member_lost()) => told.unwrap(),
        () = fault => unreachable!(),
    }
}

#[tokio::test]
async fn death_in_an_outage_is_reported() {
    assert_eq!(death_in_an_outage(true).await, "dead");
}

/// The id was never read, so the report has the name of the node.
#[tokio::test]
async fn death_in_an_outage_is_reported_if_the_member_was_not_read_before() {
    let told = death_in_an_outage(false).await;
    assert!(told.starts_with("_c_") && told.ends_with("-member"), "{told}");
}

#[tokio::test]
async fn death_during_the_wait_in_leave_is_counted() {
    let server = server();
    let leaver = connected(options(&server).session_timeout(Duration::from_secs(3))).await;
    let two = client(&server).await;
    let mut members = all_enter(&[named(&leaver, "leaver", 2), named(&two, "dead", 2)]).await;
    let (_dead, first) = (members.pop().unwrap(), members.pop().unwrap());
    let leaving = tokio::spawn(async move { first.leave().await.unwrap() });
    eventually("it watches the other one", async || {
        leaver.watched_paths().iter().any(|path| path.ends_with("-member"))
    })
    .await;
    assert!(server.kill_session(two.session().await.unwrap().id().unwrap().get()));
    assert_eq!(in_time(leaving).await.unwrap().died, 1);
}

/// The read of the deaths, which would come after the budget, does not turn the end of the round into an error.
#[tokio::test]
async fn slow_read_of_the_deaths_does_not_end_a_leave() {
    let server = server();
    let proxy = FaultProxy::start(server.address()).unwrap();
    let provider = FixedEnsembleProvider::new(proxy.connect_string());
    let options = options(&server).session_timeout(Duration::from_secs(10)).ensemble_provider(provider);
    let (leaver, two) = (connected(options).await, client(&server).await);
    let mut members = all_enter(&[named(&leaver, "leaver", 2), named(&two, "two", 2)]).await;
    let (second, first) = (members.pop().unwrap(), members.pop().unwrap());
    let leaving = tokio::spawn(async move { first.leave_timeout(Duration::from_millis(7400)).await });
    eventually("it watches the other one", async || {
        leaver.watched_paths().iter().any(|path| path.ends_with("-member"))
    })
    .await;
    // Else the reply to the read that sets the watch would be late too.
    answered(std::slice::from_ref(&leaver)).await;
    // The event arrives within the budget, even if all above has taken seconds. The reply to a read cannot.
    proxy.latency(Duration::from_millis(2500));
    assert_eq!(in_time(second.leave()).await.unwrap().died, 0);
    let left = in_time(leaving).await.unwrap().unwrap();
    assert_eq!(left.map(|departure| departure.died), Some(0));
}
