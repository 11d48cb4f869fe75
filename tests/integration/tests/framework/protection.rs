//! Protected creates: what is lost is found, and what is given up is deleted.

use std::time::Duration;

use curator_framework::recipe::ProtectedId;
use curator_framework::{CreateMode, Error, RetryNTimes, node_from_path, parent_of};
use curator_integration::env::{builder, children, connected, eventually, in_time};
use curator_integration::on_every_server;
use curator_test::kill_session;
use curator_test::wire::OpCode;

use crate::ground::{GROUNDS, impatient, run, take_down};

const MODES: [CreateMode; 4] =
    [CreateMode::Persistent, CreateMode::PersistentSequential, CreateMode::Ephemeral, CreateMode::EphemeralSequential];

on_every_server! {
    /// Curator's `TestFrameworkEdges.testPathsFromProtectingInBackground`, `TestCreate.testCreateProtectedUtils`, and
    /// `TestFramework.testCreateWithProtection` of its async module (CURATOR-489).
    async fn the_path_of_a_protected_node_is_whole_in_every_mode(env) {
        let client = env.client().await;
        for namespace in ["", &env.path("ns")[1..]] {
            let client = client.using_namespace(namespace).unwrap();
            for mode in MODES {
                for background in GROUNDS {
                    let asked = if namespace.is_empty() { env.path("parent/node") } else { "/parent/node".to_owned() };
                    let creator = client.clone();
                    let path = run(background, {
                        let asked = asked.clone();
                        async move {
                            let create = creator.create().creating_parents_if_needed().with_protection().with_mode(mode);
                            create.for_path(&asked).await
                        }
                    });
                    let path = path.await.unwrap();
                    assert_eq!(parent_of(&path), parent_of(&asked), "{mode:?}");
                    let name = node_from_path(&path);
                    let id = ProtectedId::of(name).expect("it has the prefix");
                    let rest = name.strip_prefix(&id.prefix()).unwrap();
                    let number = rest.strip_prefix("node").unwrap();
                    assert_eq!(number.len(), if mode.is_sequential() { 10 } else { 0 }, "{path}");
                    assert!(client.check_exists().for_path(&path).await.unwrap().is_some(), "{path}");
                }
            }
        }
    }

    /// Curator's `TestFrameworkEdges.testProtectedCreateNodeDeletion`: the reply is lost, and the caller gives up.
    async fn a_protected_node_that_is_given_up_is_deleted(env) {
        let (proxy, direct) = (env.proxy(), env.client().await);
        for namespace in ["", &env.path("ns")[1..]] {
            for mode in MODES {
                let client = connected(impatient(&proxy).namespace(namespace)).await;
                let parent = if namespace.is_empty() { env.path("parent") } else { "/parent".to_owned() };
                client.create().creating_parents_if_needed().or_set_data().for_path(&parent).await.unwrap();
                let faults = proxy.faults_done();
                proxy.drop_reply(OpCode::Create2, 1);
                let create = client.create().with_protection().with_mode(mode);
                let created = in_time(create.for_path(&format!("{parent}/node"))).await;
                assert!(matches!(created, Err(Error::ConnectionLoss { sent: true, .. })), "{created:?}");
                in_time(proxy.wait_for_faults(faults + 1)).await;
                let full = if namespace.is_empty() { parent } else { format!("/{namespace}{parent}") };
                eventually("it is deleted", async || children(&direct, &full).await.is_empty()).await;
                in_time(client.close()).await;
            }
        }
    }

    /// The same, when the caller has lost interest: the future is dropped at any moment.
    async fn a_protected_node_whose_creator_went_away_is_deleted(env) {
        let client = env.client().await;
        let parent = env.path("parent");
        client.create().creating_parents_if_needed().for_path(&parent).await.unwrap();
        for number in 0..40 {
            let create = client.create().with_protection();
            let path = format!("{parent}/node");
            let created = tokio::time::timeout(Duration::from_micros(100 * number), create.for_path(&path)).await;
            if let Ok(created) = created {
                client.delete().for_path(&created.unwrap()).await.unwrap();
            }
        }
        eventually("nothing is left", async || children(&client, &parent).await.is_empty()).await;
    }

    /// Curator's `TestFrameworkEdges.testProtectionWithKilledSession` (CURATOR-498): the node of the session that ended is
    /// not taken for the new one's.
    async fn a_protected_node_of_an_ended_session_is_not_taken_for_ours(env) {
        let (proxy, direct) = (env.proxy(), env.client().await);
        let options = builder(proxy.address()).session_timeout(Duration::from_secs(6));
        let client = connected(options.retry_policy(RetryNTimes::new(1000, Duration::from_millis(20)))).await;
        let parent = env.path("parent");
        client.create().creating_parents_if_needed().for_path(&parent).await.unwrap();
        proxy.drop_reply(OpCode::Create2, 1);
        let faults = proxy.faults_done();
        let (creator, asked) = (client.clone(), format!("{parent}/node-"));
        let creating = tokio::spawn(async move {
            let create = creator.create().with_protection().with_mode(CreateMode::EphemeralSequential);
            create.for_path_with_stat(&asked).await
        });
        in_time(proxy.wait_for_faults(faults + 1)).await;
        take_down(&proxy);
        // Unless it was quick enough to attach again, find its node and be done.
        let names = env.wait_for_children(&direct, &parent, 1).await;
        let old = format!("{parent}/{}", names[0]);
        let owner = direct.check_exists().for_path(&old).await.unwrap().unwrap().ephemeral_owner;
        let before = client.session().await.ok().map(|session| session.number());
        kill_session(env.address(), owner).await.unwrap();
        proxy.accept();
        let (path, stat) = in_time(creating).await.unwrap().unwrap();
        if before.is_none() {
            assert_ne!(stat.ephemeral_owner, owner, "created in the session that was killed");
            let now = direct.check_exists().for_path(&path).await.unwrap();
            assert_eq!(now, Some(stat));
            env.wait_for_children(&direct, &parent, 1).await;
        }
    }
}
