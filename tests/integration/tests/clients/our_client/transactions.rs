//! Several changes at once.

use curator_framework::{
    Allowance, CreateMode, CuratorOp, Error, OperationType, OtherPaths, Schema, SchemaSet, SessionEnd,
};
use curator_integration::env::{connected as connect, in_time};
use curator_integration::on_every_server;
use curator_recipes::{InterProcessMutex, LockError, LossReason};
use curator_test::wire::OpCode;

use super::{connected, second};

on_every_server! {
    /// Curator's `TestTransactionsNew.testBasic` and `testWithNamespace`.
    async fn all_is_done_and_told(env) {
        let client = connected(env.address()).await.using_namespace(&env.path("ns")[1..]).unwrap();
        client.create().creating_parents_if_needed().with_data("old").for_path("/there").await.unwrap();
        let results = client
            .transaction()
            .check("/there")
            .create("/new", "data")
            .operation(CuratorOp::create("/new/child-").with_mode(CreateMode::EphemeralSequential))
            .operation(CuratorOp::set_data("/there", "changed").with_version(0))
            .create("/gone", "")
            .delete("/gone")
            .commit()
            .await
            .unwrap();
        let kinds: Vec<_> = results.iter().map(|result| result.operation).collect();
        use OperationType::{Check, Create, Delete, SetData};
        assert_eq!(kinds, [Check, Create, Create, SetData, Create, Delete]);
        assert_eq!(results[2].for_path, "/new/child-");
        assert_eq!(results[2].result_path.as_deref(), Some("/new/child-0000000000"));
        assert_eq!(results[3].result_stat.unwrap().version, 1);
        assert_eq!(client.get_data().for_path("/new").await.unwrap().0, b"data");
        assert_eq!(client.get_data().for_path("/there").await.unwrap().0, b"changed");
        let child = client.check_exists().for_path("/new/child-0000000000").await.unwrap().unwrap();
        assert_ne!(child.ephemeral_owner, 0);
        assert!(client.check_exists().for_path("/gone").await.unwrap().is_none());
        assert_eq!(client.transaction().commit().await.unwrap(), []);
        // Curator's `testWithCompression`.
        let compressed = CuratorOp::set_data("/there", "small").compressed();
        client.transaction().operation(compressed).create("/plain", "small").commit().await.unwrap();
        assert_eq!(client.get_data().decompressed().for_path("/there").await.unwrap().0, b"small");
        assert_ne!(client.get_data().for_path("/there").await.unwrap().0, b"small");
        assert_eq!(client.get_data().for_path("/plain").await.unwrap().0, b"small");
    }

    /// Curator's `TestTransactionsNew.testCheckVersion`, and what the error says.
    async fn one_that_cannot_be_done_is_named_and_nothing_is_done(env) {
        let client = connected(env.address()).await;
        let (there, new) = (env.path("there"), env.path("new"));
        client.create().creating_parents_if_needed().for_path(&there).await.unwrap();
        let missing = env.path("missing");
        for (operation, name, is) in [
            (CuratorOp::check(&there).with_version(7), "check", is_bad_version as fn(&Error) -> bool),
            (CuratorOp::set_data(&there, "x").with_version(7), "setData", is_bad_version),
            (CuratorOp::delete(&missing), "delete", is_no_node),
            (CuratorOp::check(&missing), "check", is_no_node),
            (CuratorOp::create(&there), "create", is_existing),
            (CuratorOp::create(format!("{missing}/child")), "create", is_no_node),
        ] {
            let asked = client.transaction().create(&new, "").operation(operation).set_data(&there, "changed").commit();
            let error = in_time(asked).await.unwrap_err();
            assert!(!error.is_retryable() && !error.outcome_unknown(), "{error}");
            let Error::Transaction { index: 1, operation, cause } = &error else { panic!("{error}") };
            assert!(operation.starts_with(name) && is(cause), "{error}");
            assert!(client.check_exists().for_path(&new).await.unwrap().is_none(), "{error}");
            assert_eq!(client.check_exists().for_path(&there).await.unwrap().unwrap().version, 0, "{error}");
        }
    }

    /// Java's Curator sends it again, and then tells that it failed.
    async fn one_whose_reply_was_lost_is_not_sent_again(env) {
        let proxy = env.proxy();
        let client = connect(second(proxy.address())).await;
        let path = env.path("node");
        client.create().creating_parents_if_needed().for_path(&env.path("")[..env.path("").len() - 1]).await.unwrap();
        proxy.drop_reply(OpCode::Multi, 1);
        let error = in_time(client.transaction().create(&path, "").commit()).await.unwrap_err();
        assert!(matches!(error, Error::ConnectionLoss { .. }) && error.outcome_unknown(), "{error}");
        in_time(client.block_until_connected()).await.unwrap();
        assert!(in_time(client.check_exists().for_path(&path)).await.unwrap().is_some());
        // One that was lost before it came to the server looks the same.
        proxy.drop_request(OpCode::Multi, 1);
        let error = in_time(client.transaction().delete(&path).commit()).await.unwrap_err();
        assert!(error.outcome_unknown(), "{error}");
        assert!(in_time(client.check_exists().for_path(&path)).await.unwrap().is_some());
    }

    /// Curator's `TestSchema.testMulti` and `testTransaction`.
    async fn schemas_are_asked_about_each_operation(env) {
        let (path, other) = (env.path("schema"), env.path("other"));
        let schema = Schema::for_path(&path).unwrap().ephemeral(Allowance::Must).can_be_deleted(false);
        let client = connect(second(env.address()).schema_set(SchemaSet::new([schema], OtherPaths::Allowed))).await;
        client.create().creating_parents_if_needed().for_path(&other).await.unwrap();
        for operation in [CuratorOp::create(&path), CuratorOp::delete(&path)] {
            let error = client.transaction().delete(&other).operation(operation).commit().await.unwrap_err();
            assert!(matches!(error, Error::SchemaViolation { .. }), "{error}");
        }
        let ephemeral = CuratorOp::create(&path).with_mode(CreateMode::Ephemeral);
        client.transaction().delete(&other).operation(ephemeral).commit().await.unwrap();
    }

    /// Curator's `TestFramework.testBackgroundTransactionWithConcurrentClose`.
    async fn one_that_waits_for_a_connection_ends_with_the_client(env) {
        let proxy = env.proxy();
        let client = connect(second(proxy.address())).await;
        proxy.refuse();
        proxy.reset();
        let mut state = client.watch_connection_state();
        in_time(state.wait_for(|state| state.is_some_and(|state| !state.is_connected()))).await.unwrap();
        let waiting = { let client = client.clone(); tokio::spawn(async move { client.transaction().check("/").commit().await }) };
        in_time(client.close()).await;
        let ended = in_time(waiting).await.unwrap();
        assert!(matches!(ended, Err(Error::Closed)), "{ended:?}");
    }

    async fn one_that_was_sent_before_the_client_is_closed_may_have_been_made(env) {
        let proxy = env.proxy();
        for guarded in [false, true] {
            let client = connect(second(proxy.address())).await;
            let guard = InterProcessMutex::new(client.clone(), env.path("lock")).unwrap().acquire().await.unwrap();
            proxy.partition();
            let committing = async {
                if guarded {
                    return guard.transaction().check("/").commit().await;
                }
                client.transaction().check("/").commit().await.map_err(LockError::from)
            };
            let mut committing = Box::pin(committing);
            assert!(futures_util::poll!(&mut committing).is_pending());
            let repaired = async { let ended = committing.await; proxy.repair(); ended };
            let (ended, ()) = in_time(async { tokio::join!(repaired, client.close()) }).await;
            match ended {
                Err(LockError::Framework(error)) => assert!(!guarded && error.outcome_unknown(), "{error}"),
                Err(LockError::LockLost { reason, .. }) => {
                    assert!(guarded && reason == LossReason::Session(SessionEnd::Closed), "{reason}");
                }
                other => panic!("{other:?}"),
            }
        }
    }

    /// Curator's `TestFramework.testSync` and `testSyncNew`.
    async fn a_sync_is_answered(env) {
        let client = connected(env.address()).await;
        let path = env.path("one/two");
        client.create().creating_parents_if_needed().for_path(&path).await.unwrap();
        in_time(client.sync(&path)).await.unwrap();
        assert!(matches!(client.sync("no path").await, Err(Error::InvalidPath { .. })));
        client.close().await;
        assert!(matches!(client.sync(&path).await, Err(Error::Closed)));
    }
}

fn is_bad_version(error: &Error) -> bool {
    matches!(error, Error::BadVersion { .. })
}

fn is_no_node(error: &Error) -> bool {
    matches!(error, Error::NoNode { .. })
}

fn is_existing(error: &Error) -> bool {
    matches!(error, Error::NodeExists { .. })
}
