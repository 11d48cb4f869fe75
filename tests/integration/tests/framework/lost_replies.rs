//! Requests and replies that get lost: what is idempotent, and what is protected, still comes out right.

use curator_framework::{CreateMode, CuratorFramework, Error};
use curator_integration::env::{Env, builder, children, connected, in_time};
use curator_integration::on_every_server;
use curator_test::FaultProxy;
use curator_test::wire::OpCode;

use crate::ground::{GROUNDS, exists, run};

/// A client behind a proxy, with a session so long that no heartbeat meets the fault.
async fn client_behind(proxy: &FaultProxy) -> CuratorFramework {
    connected(builder(proxy.address()).session_timeout(std::time::Duration::from_secs(60))).await
}

/// The connection breaks before the server hears of the next such request, and after it has answered.
const LOSSES: [fn(&FaultProxy, OpCode, usize); 2] = [FaultProxy::drop_request, FaultProxy::drop_reply];

async fn prepared(env: &Env) -> (FaultProxy, CuratorFramework, CuratorFramework) {
    let (proxy, direct) = (env.proxy(), env.client().await);
    let client = client_behind(&proxy).await;
    client.create().creating_parents_if_needed().for_path(&env.path("there")).await.unwrap();
    (proxy, client, direct)
}

on_every_server! {
    /// Curator's `TestCreate.testIdempotentCreateConnectionLoss`.
    async fn an_idempotent_create_survives_a_lost_connection(env) {
        let (proxy, client, direct) = prepared(&env).await;
        for (number, lose) in LOSSES.into_iter().enumerate() {
            let node = env.path(&format!("there/{number}"));
            let faults = proxy.faults_done();
            lose(&proxy, OpCode::Create2, 1);
            let create = client.create().idempotent().with_data("mine");
            let (path, stat) = in_time(create.for_path_with_stat(&node)).await.unwrap();
            assert_eq!((path, Some(stat)), (node.clone(), direct.check_exists().for_path(&node).await.unwrap()));
            assert_eq!(proxy.faults_done(), faults + 1);
            // Another client's node stays its own.
            lose(&proxy, OpCode::Create2, 1);
            let other = in_time(client.create().idempotent().with_data("other").for_path(&node)).await;
            assert!(matches!(other, Err(Error::NodeExists { .. })), "{other:?}");
        }
    }

    async fn a_plain_create_says_after_a_lost_reply_that_the_node_exists(env) {
        let (proxy, client, _) = prepared(&env).await;
        let node = env.path("there/node");
        proxy.drop_reply(OpCode::Create2, 1);
        let created = in_time(client.create().for_path(&node)).await;
        assert!(matches!(created, Err(Error::NodeExists { .. })), "{created:?}");
    }

    /// Curator's `TestDelete.testIdempotentDeleteConnectionLoss`.
    async fn an_idempotent_delete_survives_a_lost_connection(env) {
        let (proxy, client, direct) = prepared(&env).await;
        for (number, lose) in LOSSES.into_iter().enumerate() {
            let node = env.path(&format!("there/{number}"));
            client.create().for_path(&node).await.unwrap();
            let faults = proxy.faults_done();
            lose(&proxy, OpCode::Delete, 1);
            let wrong = in_time(client.delete().idempotent().with_version(4).for_path(&node)).await;
            assert!(matches!(wrong, Err(Error::BadVersion { .. })), "{wrong:?}");
            lose(&proxy, OpCode::Delete, 1);
            in_time(client.delete().idempotent().with_version(0).for_path(&node)).await.unwrap();
            assert_eq!(proxy.faults_done(), faults + 2);
            assert!(!exists(&direct, &node).await);
        }
    }

    /// Curator's `TestSetData.testIdempotentSetConnectionLoss`.
    async fn an_idempotent_change_survives_a_lost_connection(env) {
        let (proxy, client, direct) = prepared(&env).await;
        let node = env.path("there/node");
        client.create().with_data("start").for_path(&node).await.unwrap();
        for (number, lose) in LOSSES.into_iter().enumerate() {
            let version = i32::try_from(number).unwrap();
            let data = format!("data-{number}");
            let faults = proxy.faults_done();
            lose(&proxy, OpCode::SetData, 1);
            let set = client.set_data().idempotent().with_version(version);
            let stat = in_time(set.for_path(&node, data.clone())).await.unwrap();
            assert_eq!(stat.version, version + 1);
            assert_eq!(direct.get_data().for_path(&node).await.unwrap(), (data.into_bytes(), stat));
            lose(&proxy, OpCode::SetData, 1);
            let wrong = in_time(client.set_data().idempotent().with_version(9).for_path(&node, "x")).await;
            assert!(matches!(wrong, Err(Error::BadVersion { .. })), "{wrong:?}");
            assert_eq!(proxy.faults_done(), faults + 2);
        }
        // Without it the same change is refused the second time, although it was made.
        proxy.drop_reply(OpCode::SetData, 1);
        let plain = in_time(client.set_data().with_version(2).for_path(&node, "plain")).await;
        assert!(matches!(plain, Err(Error::BadVersion { .. })), "{plain:?}");
        assert_eq!(direct.get_data().for_path(&node).await.unwrap().0, b"plain");
    }

    /// Curator's `TestFrameworkEdges.testMissedResponseOnESCreate` and `testMissedResponseOnBackgroundESCreate`.
    async fn a_protected_create_finds_the_node_whose_reply_was_lost(env) {
        let (proxy, client, direct) = prepared(&env).await;
        for background in GROUNDS {
            for (number, lose) in LOSSES.into_iter().enumerate() {
                let parent = env.path(&format!("there/{background}-{number}"));
                client.create().for_path(&parent).await.unwrap();
                let faults = proxy.faults_done();
                lose(&proxy, OpCode::Create2, 1);
                let (creator, asked) = (client.clone(), format!("{parent}/node-"));
                let created = run(background, async move {
                    let create = creator.create().with_protection().with_mode(CreateMode::EphemeralSequential);
                    create.for_path_with_stat(&asked).await
                });
                let (path, stat) = created.await.unwrap();
                assert_eq!(proxy.faults_done(), faults + 1);
                assert_eq!(direct.check_exists().for_path(&path).await.unwrap(), Some(stat));
                let names = children(&direct, &parent).await;
                assert_eq!(names.iter().map(|name| format!("{parent}/{name}")).collect::<Vec<_>>(), [path]);
            }
        }
    }
}
