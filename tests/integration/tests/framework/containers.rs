//! Paths that are made once: Curator's `TestEnsureContainers`.

use curator_framework::{EnsureContainers, Error, Permission};
use curator_integration::env::{Env, PATIENCE, builder, connected, in_time};
use curator_integration::on_every_server;

use crate::ground::{GROUNDS, cut_off, exists, impatient, run, world};

on_every_server! {
    /// Curator's `TestEnsureContainers.testBasic`.
    async fn a_path_is_made(env) {
        let client = env.client().await;
        for background in GROUNDS {
            let path = env.path(&format!("one-{background}/two/three"));
            let ensure = EnsureContainers::new(client.clone(), &path);
            assert!(!exists(&client, &path).await, "nothing is made before");
            run(background, async move { ensure.ensure().await }).await.unwrap();
            assert!(exists(&client, &path).await);
        }
    }

    /// Curator's `TestEnsureContainers.testSingleExecution`.
    async fn it_is_made_once(env) {
        let client = env.client().await;
        let path = env.path("one/two/three");
        let mut ensure = EnsureContainers::new(client.clone(), &path);
        ensure.ensure().await.unwrap();
        client.delete().for_path(&path).await.unwrap();
        ensure.ensure().await.unwrap();
        assert!(!exists(&client, &path).await);
        ensure.reset();
        ensure.ensure().await.unwrap();
        assert!(exists(&client, &path).await);
    }

    /// Curator's does nothing more after a failure.
    async fn a_failure_does_not_count(env) {
        let proxy = env.proxy();
        let client = connected(impatient(&proxy)).await;
        let ensure = EnsureContainers::new(client.clone(), env.path("one/two"));
        cut_off(&proxy, &client).await;
        assert!(in_time(ensure.ensure()).await.unwrap_err().is_retryable());
        proxy.accept();
        in_time(client.block_until_connected()).await.unwrap();
        in_time(ensure.ensure()).await.unwrap();
        assert!(exists(&client, &env.path("one/two")).await);
    }

    /// Curator's `TestEnsureContainers.testNodeExistsButNoCreatePermission` (CURATOR-728).
    async fn what_is_there_needs_no_permission_to_create(env) {
        let client = env.client().await;
        let path = env.path("one/two");
        client.create().creating_parents_if_needed().for_path(&path).await.unwrap();
        for node in [&path, &env.path("one")] {
            client.set_acl().with_acl(world(Permission::READ)).for_path(node).await.unwrap();
        }
        EnsureContainers::new(client.clone(), &path).ensure().await.unwrap();
        let refused = EnsureContainers::new(client.clone(), format!("{path}/three")).ensure().await;
        assert!(matches!(refused, Err(Error::NoAuth { .. })), "{refused:?}");
    }

    /// Curator's `TestFrameworkEdges.testCreateContainersForBadConnect`.
    async fn containers_are_made_when_the_server_comes_at_last(env) {
        let proxy = env.proxy();
        proxy.refuse();
        let client = builder(proxy.address()).connection_timeout(PATIENCE).build().unwrap();
        client.start().unwrap();
        let path = env.path("this/does/not/exist");
        let (creator, below) = (client.clone(), path.clone());
        let creating = tokio::spawn(async move { creator.create_containers(&below).await });
        in_time(proxy.wait_for_connections(2)).await;
        assert!(!creating.is_finished());
        proxy.accept();
        in_time(creating).await.unwrap().unwrap();
        assert!(exists(&client, &path).await);
    }
}

/// Two that are asked at once make it once.
#[tokio::test]
async fn several_may_ensure_at_once() {
    let env = Env::new(curator_integration::env::Kind::InProcess);
    let client = env.client().await;
    let ensure = EnsureContainers::new(client.clone(), env.path("one/two"));
    let all = futures_util::future::join_all((0..10).map(|_| ensure.ensure())).await;
    assert!(all.into_iter().all(|ensured| ensured.is_ok()));
    assert!(exists(&client, &env.path("one/two")).await);
}
