//! Deaths of other members in an outage and in `leave`, and groups with both clients. On an in-process server.

use std::time::Duration;

use curator_framework::{CuratorFramework, FixedEnsembleProvider, ZooKeeperAsyncFactory};
use curator_integration::env::{answered, connected, eventually, in_time};
use curator_integration::in_process::{client, options, server};
use curator_recipes::{CountDownLatch, DistributedDoubleBarrier, DoubleBarrierOptions};
use curator_test::wire::OpCode;
use curator_test::{FaultProxy, TestingServer};

use crate::double_stage::all_enter;

const PATH: &str = "/barrier";

fn named(client: &CuratorFramework, id: &str, quantity: usize) -> DistributedDoubleBarrier {
    let options = DoubleBarrierOptions::new().member_id(id);
    DistributedDoubleBarrier::with_options(client.clone(), PATH, quantity, options).unwrap()
}

/// A client through a proxy.
async fn behind_proxy(server: &TestingServer, is_async: bool) -> (FaultProxy, CuratorFramework) {
    let proxy = FaultProxy::start(server.address()).unwrap();
    let mut options = options(server).ensemble_provider(FixedEnsembleProvider::new(proxy.connect_string()));
    if is_async {
        options = options.zookeeper_factory(ZooKeeperAsyncFactory);
    }
    (proxy, connected(options).await)
}

/// Lets a member die in an outage of the one that watches it, before or behind the reply that sets its watch. Returns the
/// id that is reported.
async fn death_in_an_outage(is_async: bool, is_watched: bool) -> String {
    let server = server();
    let (proxy, watcher) = behind_proxy(&server, is_async).await;
    let two = client(&server).await;
    let mut members = all_enter(&[named(&watcher, "watcher", 2), named(&two, "dead", 2)]).await;
    let (_dead, first) = (members.pop().unwrap(), members.pop().unwrap());
    let reads = proxy.replies(OpCode::GetData);
    if !is_watched {
        // The reply to the read of the other member; the one before is that of `ready`.
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
    for is_async in [false, true] {
        assert_eq!(death_in_an_outage(is_async, true).await, "dead", "zookeeper-async: {is_async}");
    }
}

/// The id was never read, so the report has the name of the node.
#[tokio::test]
async fn death_in_an_outage_is_reported_if_the_member_was_not_read_before() {
    let told = death_in_an_outage(false, false).await;
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
    assert_eq!(in_time(leaving).await.unwrap().died(), 1);
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
    assert_eq!(in_time(second.leave()).await.unwrap().died(), 0);
    let left = in_time(leaving).await.unwrap().unwrap();
    assert_eq!(left.map(|departure| departure.died()), Some(0));
}

#[tokio::test]
async fn leaver_without_transactions_leaves_the_next_round_open() {
    let server = server();
    let (proxy, one) = behind_proxy(&server, true).await;
    let (two, three) = (client(&server).await, client(&server).await);
    let barriers = [named(&one, "async", 2), named(&two, "two", 2)];
    let mut members = all_enter(&barriers).await;
    let (second, first) = (members.pop().unwrap(), members.pop().unwrap());
    assert!(in_time(second.leave_timeout(Duration::ZERO)).await.unwrap().is_none());
    proxy.latency(Duration::from_millis(200));
    let leaving = tokio::spawn(async move { first.leave().await });
    let version = async || two.check_exists().for_path(PATH).await.unwrap().unwrap().version;
    eventually("its node is gone", async || server.children(PATH).unwrap() == ["ready"]).await;
    let before = version().await;
    eventually("it has begun to close", async || version().await >= before + 2).await;
    let (next, other) = {
        let mut members = all_enter(&[named(&two, "two", 2), named(&three, "three", 2)]).await;
        let other = members.pop().unwrap();
        (members.pop().unwrap(), other)
    };
    assert_eq!(in_time(leaving).await.unwrap().unwrap().died(), 0);
    let left = in_time(next.leave_timeout(Duration::from_millis(500))).await.unwrap();
    assert!(
        other.is_held() && left.is_none(),
        "{left:?}, and the other member of the round stands: {:?}",
        server.children(PATH)
    );
}

#[tokio::test]
async fn latch_opens_if_both_clients_count_by_turns() {
    let server = server();
    let one = client(&server).await;
    let other = connected(options(&server).zookeeper_factory(ZooKeeperAsyncFactory)).await;
    let [ours, theirs, waiter] =
        [&one, &other, &one].map(|client| CountDownLatch::new(client.clone(), "/latch").unwrap());
    assert!(in_time(ours.try_set_count(3)).await.unwrap());
    let waiting = tokio::spawn(async move { waiter.wait().await });
    eventually("it waits", async || one.watchers() == 1).await;
    assert_eq!(in_time(ours.count_down()).await.unwrap(), 2);
    assert_eq!(in_time(theirs.count_down()).await.unwrap(), 1);
    assert_eq!(in_time(ours.count_down()).await.unwrap(), 0);
    in_time(waiting).await.unwrap().unwrap();
}
