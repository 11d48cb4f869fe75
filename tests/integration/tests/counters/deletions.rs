//! Nodes and markers that are deleted, and created again, around a change. On an in-process server.

use std::time::Duration;

use curator_framework::{ConnectionState, CuratorFramework, Error, FixedEnsembleProvider};
use curator_integration::connection_stage::comes_to;
use curator_integration::env::{connected, eventually, in_time};
use curator_integration::in_process::{self, options, server};
use curator_recipes::{Compared, CounterError, DistributedAtomicLong, UniqueIds};
use curator_test::wire::OpCode;
use curator_test::{FaultProxy, TestingServer};
use tokio::task::JoinHandle;

use crate::stage::{long, node, values};

const PATH: &str = "/test/count";

/// A client through a proxy, and one without.
struct Stage {
    server: TestingServer,
    proxy: FaultProxy,
    client: CuratorFramework,
    direct: CuratorFramework,
}

impl Stage {
    async fn new() -> Self {
        let server = server();
        let proxy = FaultProxy::start(server.address()).unwrap();
        let provider = FixedEnsembleProvider::new(proxy.connect_string());
        let client = connected(options(&server).ensemble_provider(provider)).await;
        let direct = in_process::client(&server).await;
        direct.create_containers("/test").await.unwrap();
        Self { server, proxy, client, direct }
    }

    async fn create(&self, value: i64) {
        self.direct.create().with_data(value.to_be_bytes()).for_path(PATH).await.unwrap();
    }

    /// Deletes the node with its markers.
    async fn delete(&self) {
        self.direct.delete().deleting_children_if_needed().for_path(PATH).await.unwrap();
    }

    async fn value(&self) -> Option<i64> {
        node(&self.direct, PATH).await.map(|(data, _)| i64::from_be_bytes(data.try_into().unwrap()))
    }

    /// Calls `add(7)`, and cuts the client off at its nth transaction.
    async fn cut_off(&self, number: &DistributedAtomicLong, is_reply: bool, nth: usize) -> Change {
        self.cut_off_at(is_reply, nth, || self.add(number)).await
    }

    /// Makes a change, and cuts the client off at its nth transaction.
    async fn cut_off_at(&self, is_reply: bool, nth: usize, change: impl FnOnce() -> Change) -> Change {
        let faults = self.proxy.faults_done();
        if is_reply {
            self.proxy.drop_reply(OpCode::Multi, nth)
        } else {
            self.proxy.drop_request(OpCode::Multi, nth)
        }
        self.proxy.refuse();
        let change = change();
        in_time(self.proxy.wait_for_faults(faults + 1)).await;
        comes_to(&self.client, ConnectionState::Suspended).await;
        change
    }

    fn add(&self, number: &DistributedAtomicLong) -> Change {
        let number = number.clone();
        tokio::spawn(async move { number.add(7).await.map(|change| values(&change)) })
    }
}

type Change = JoinHandle<Result<(i64, i64), CounterError>>;

/// The new node has the version of the one that was read.
#[tokio::test]
async fn change_never_rests_on_a_node_that_was_deleted() {
    for is_first in [true, false] {
        let stage = Stage::new().await;
        let number = long(&stage.client, PATH);
        if is_first {
            stage.create(5).await;
        } else {
            assert_eq!(values(&in_time(number.add(5)).await.unwrap()), (0, 5));
        }
        let session = stage.client.session().await.unwrap().id().unwrap().get();
        stage.server.clear_requests();
        stage.proxy.latency(Duration::from_millis(50));
        let change = stage.add(&number);
        let has_sent = || stage.server.requests().iter().any(|request| request.session_id == session);
        if is_first {
            eventually("it has read the node", async || has_sent()).await;
        }
        stage.delete().await;
        stage.create(100).await;
        assert_eq!(in_time(change).await.unwrap().unwrap(), (100, 107), "first: {is_first}");
        assert_eq!(stage.value().await, Some(107));
    }
}

/// The new node has the version of the one that was read, and the client cannot decompress its data.
#[tokio::test]
async fn change_never_overwrites_a_node_that_cannot_be_read() {
    let server = server();
    let direct = in_process::client(&server).await;
    let client = connected(options(&server).enable_compression()).await;
    client.create().creating_parents_if_needed().with_data(5_i64.to_be_bytes()).for_path(PATH).await.unwrap();
    let number = long(&client, PATH);
    // A comparison reads the node for the next change too.
    assert_eq!(in_time(number.compare_and_set(0, 1)).await.unwrap(), Compared::Differs(5));
    direct.delete().for_path(PATH).await.unwrap();
    direct.create().with_data(100_i64.to_be_bytes()).for_path(PATH).await.unwrap();
    let compared = in_time(number.compare_and_set(0, 1)).await.map(drop);
    for refused in [compared, in_time(number.increment()).await.map(drop)] {
        let error = refused.unwrap_err();
        assert!(matches!(error, CounterError::Framework(Error::Compression { .. })), "{error}");
    }
    let (data, stat) = node(&direct, PATH).await.unwrap();
    assert_eq!((data.as_slice(), stat.version), (100_i64.to_be_bytes().as_slice(), 0));
}

#[tokio::test]
async fn lost_request_is_not_repeated_on_a_node_that_was_created_again() {
    for (is_first, ends) in [(true, false), (true, true), (false, false), (false, true)] {
        let stage = Stage::new().await;
        let number = long(&stage.client, PATH);
        if is_first {
            stage.create(5).await;
        } else {
            assert_eq!(values(&in_time(number.add(5)).await.unwrap()), (0, 5));
        }
        let session = stage.client.session().await.unwrap().id().unwrap().get();
        // The first transaction of an object creates its marker.
        let change = stage.cut_off(&number, false, 1 + usize::from(is_first)).await;
        stage.delete().await;
        stage.create(100).await;
        if ends {
            assert!(stage.server.kill_session(session));
        }
        stage.proxy.accept();
        let error = in_time(change).await.unwrap().unwrap_err();
        assert!(error.outcome_unknown(), "first: {is_first}, ends: {ends}: {error}");
        assert_eq!(stage.value().await, Some(100));
        assert_eq!(values(&in_time(number.add(7)).await.unwrap()), (100, 107));
    }
}

/// The first change of a node was applied, and went with it.
#[tokio::test]
async fn lost_first_change_is_not_repeated_if_the_node_was_deleted() {
    for (is_create, ends) in [(true, false), (true, true), (false, false), (false, true)] {
        let stage = Stage::new().await;
        let number = long(&stage.client, PATH);
        let session = stage.client.session().await.unwrap().id().unwrap().get();
        let change = if is_create {
            let number = number.clone();
            let set = async move { number.try_set(7).await.map(|change| values(&change)) };
            stage.cut_off_at(true, 1, || tokio::spawn(set)).await
        } else {
            stage.cut_off(&number, true, 2).await
        };
        assert_eq!(stage.value().await, Some(7));
        stage.delete().await;
        if ends {
            assert!(stage.server.kill_session(session));
        }
        stage.proxy.accept();
        let error = in_time(change).await.unwrap().unwrap_err();
        assert!(error.outcome_unknown(), "create: {is_create}, ends: {ends}: {error}");
        assert_eq!(stage.value().await, None);
    }
}

/// The caller that sends the requests of two is dropped, and `close` is the next one in the queue behind it.
#[tokio::test]
async fn close_leaves_the_marker_to_a_caller_that_needs_its_proof() {
    let stage = Stage::new().await;
    let number = long(&stage.client, PATH);
    assert_eq!(values(&in_time(number.add(5)).await.unwrap()), (0, 5));
    stage.proxy.drop_reply(OpCode::Multi, 2);
    stage.proxy.refuse();
    // Each task is in the queue before the next one starts; the server answers the first later.
    stage.proxy.latency(Duration::from_millis(50));
    let first = stage.add(&number);
    let sender = stage.add(&number);
    let closing = {
        let number = number.clone();
        tokio::spawn(async move { number.release_marker().await })
    };
    let other = stage.add(&number);
    in_time(stage.proxy.wait_for_faults(1)).await;
    comes_to(&stage.client, ConnectionState::Suspended).await;
    sender.abort();
    assert!(sender.await.unwrap_err().is_cancelled());
    assert_eq!(in_time(first).await.unwrap().unwrap(), (5, 12));
    stage.proxy.accept();
    assert_eq!(in_time(other).await.unwrap().unwrap(), (19, 26));
    in_time(closing).await.unwrap();
    assert_eq!(stage.server.children(PATH).unwrap(), [""; 0]);
    assert_eq!(stage.value().await, Some(26));
}

/// A forced value that is set again would undo the change of the other client.
#[tokio::test]
async fn forced_value_is_not_set_again_behind_another_change() {
    let stage = Stage::new().await;
    stage.create(5).await;
    let number = long(&stage.client, PATH);
    for nth in [2, 1] {
        stage.proxy.drop_reply(OpCode::Multi, nth);
        stage.proxy.refuse();
        let (faults, forcing) = (stage.proxy.faults_done(), number.clone());
        let change = tokio::spawn(async move { forcing.force_set(8).await });
        in_time(stage.proxy.wait_for_faults(faults + 1)).await;
        comes_to(&stage.client, ConnectionState::Suspended).await;
        let other = long(&stage.direct, PATH);
        assert_eq!(values(&in_time(other.add(1)).await.unwrap()), (8, 9));
        for marker in stage.server.children(PATH).unwrap() {
            drop(stage.direct.delete().for_path(&format!("{PATH}/{marker}")).await);
        }
        stage.proxy.accept();
        let error = in_time(change).await.unwrap().unwrap_err();
        assert!(error.outcome_unknown(), "{error}");
        assert_eq!(stage.value().await, Some(9));
        assert_eq!(values(&in_time(number.add(1)).await.unwrap()), (9, 10));
    }
}

#[tokio::test]
async fn ids_never_repeat_when_the_nodes_of_two_epochs_are_deleted() {
    let server = server();
    let client = in_process::client(&server).await;
    let [one, other] = [(); 2].map(|()| UniqueIds::new(client.clone(), "/ids").unwrap());
    let mut ids = vec![one.next().await.unwrap(), other.next().await.unwrap()];
    for epoch in 0..2 {
        client.delete().for_path(&format!("/ids/{epoch:010}")).await.unwrap();
        ids.push(one.next().await.unwrap());
    }
    ids.push(other.next().await.unwrap());
    assert!(ids.is_sorted_by(|a, b| a < b), "{ids:?}");
}
