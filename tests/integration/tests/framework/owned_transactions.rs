//! Owned nodes that are created and deleted in transactions.

use curator_framework::recipe::{NodeSpec, OwnedNode};
use curator_framework::spi::{Done, Operation};
use curator_framework::{CreateMode, Error, Session, Stat};
use curator_integration::env::{builder, connected, eventually};
use curator_integration::in_process::{client, server};
use curator_test::FaultProxy;
use curator_test::wire::OpCode;

fn member(session: &Session) -> OwnedNode {
    session.owned_node("/p", "member", CreateMode::Ephemeral)
}

fn write() -> Vec<Operation> {
    vec![Operation::SetData { path: "/p".to_owned(), data: b"5".to_vec(), version: None }]
}

fn set(done: &[Done]) -> &Stat {
    let [Done::Set(stat)] = done else { panic!("not the result of one write: {done:?}") };
    stat
}

#[tokio::test]
async fn the_other_operations_are_applied_with_the_create_and_the_delete() {
    let server = server();
    let client = client(&server).await;
    client.create().for_path("/p").await.unwrap();
    let session = client.session().await.unwrap();
    let mut owned = member(&session);
    let (created, done) = owned.create_with(&NodeSpec::new(b"one"), write()).await.unwrap();
    assert_eq!((set(&done).version, set(&done).num_children), (1, 0));
    let (data, stat) = session.get_data(owned.path().unwrap()).await.unwrap();
    assert_eq!((data, stat.czxid), (b"one".to_vec(), created.stat.czxid));
    assert_eq!(stat.czxid, set(&done).mzxid);
    let done = owned.delete_with(write()).await.unwrap().expect("the node was deleted before");
    assert_eq!((set(&done).version, set(&done).num_children), (2, 1));
    assert!(server.children("/p").unwrap().is_empty());
}

#[tokio::test]
async fn a_refused_operation_leaves_the_node_as_it_was() {
    let server = server();
    let client = client(&server).await;
    let session = client.session().await.unwrap();
    let mut owned = member(&session);
    let refused = owned.create_with(&NodeSpec::new(&[]), write()).await.unwrap_err();
    assert!(matches!(refused, Error::Transaction { index: 0, .. }), "{refused}");
    assert!(!owned.is_uncertain());
    client.create().for_path("/p").await.unwrap();
    owned.create_with(&NodeSpec::new(&[]), write()).await.unwrap();
    let missing = Operation::Check { path: "/missing".to_owned(), version: None };
    let refused = owned.delete_with(vec![missing]).await.unwrap_err();
    assert!(matches!(refused, Error::Transaction { index: 0, .. }), "{refused}");
    assert_eq!(server.children("/p").unwrap().len(), 1);
    client.delete().for_path(owned.path().unwrap()).await.unwrap();
    assert_eq!(owned.delete_with(write()).await.unwrap(), None);
}

#[tokio::test]
async fn a_node_whose_transaction_was_not_answered_is_adopted_or_deleted() {
    let server = server();
    client(&server).await.create().for_path("/p").await.unwrap();
    for is_adopted in [true, false] {
        let proxy = FaultProxy::start(server.address()).unwrap();
        let client = connected(builder(proxy.connect_string().parse().unwrap())).await;
        let session = client.session().await.unwrap();
        proxy.drop_reply(OpCode::Multi, 1);
        let mut owned = member(&session);
        let lost = owned.create_with(&NodeSpec::new(b"one"), write()).await.unwrap_err();
        assert!(lost.outcome_unknown() && owned.is_uncertain(), "{lost}");
        client.block_until_connected().await.unwrap();
        session.write_barrier().await.unwrap();
        let stat = session.exists(owned.planned_path()).await.unwrap().expect("the transaction was applied");
        if is_adopted {
            let name = owned.planned_path()[3..].to_owned();
            owned.adopt(&name, &stat, &[]).await.unwrap();
            assert_eq!((owned.czxid(), owned.is_uncertain()), (Some(stat.czxid), false));
            assert!(owned.delete_with(write()).await.unwrap().is_some());
        } else {
            drop(owned);
        }
        eventually("the node is deleted", async || server.children("/p").unwrap().is_empty()).await;
    }
}
