//! Parents of locks where the client has no containers: this client deletes what it has made when no recipe uses it.

use std::time::Duration;

use curator_framework::{
    CreateMode, CuratorFramework, CuratorFrameworkBuilder, DefaultZooKeeperFactory, Error, RetryNTimes,
};
use curator_integration::env::{Env, builder, children, connected, eventually, in_time};
use curator_integration::on_every_server;
use curator_recipes::InterProcessMutex;
use curator_test::{ClientId, SimulatedEnsemble, kill_session};
use rand::Rng;

use crate::ground::{exists, in_namespace};
use crate::without_containers::WithoutContainers;

/// Short, and much longer than a lock is held in these tests.
const INTERVAL: Duration = Duration::from_millis(100);

fn without_containers(env: &Env) -> CuratorFrameworkBuilder {
    builder(env.address()).zookeeper_factory(WithoutContainers(DefaultZooKeeperFactory::new()))
}

fn reaping(env: &Env) -> CuratorFrameworkBuilder {
    without_containers(env).reap_interval(INTERVAL)
}

/// Takes the lock and gives it back.
async fn use_lock(client: &CuratorFramework, path: &str) {
    let mutex = InterProcessMutex::new(client.clone(), path).unwrap();
    assert!(in_time(mutex.acquire()).await.unwrap().release().await.unwrap().is_released());
}

async fn is_gone(client: &CuratorFramework, path: &str) {
    eventually(path, async || !exists(client, path).await).await;
}

/// Makes the parents of a lock, and waits until they are reaped: everything that was due before was checked.
async fn a_whole_round(client: &CuratorFramework, other: &CuratorFramework, path: &str) {
    use_lock(client, path).await;
    is_gone(other, path).await;
}

on_every_server! {
    /// Curator's `TestFramework.testCreateParentContainers`.
    async fn nodes_made_for_a_lock_are_deleted_when_unused(env) {
        let (client, other) = (connected(reaping(&env)).await, env.client().await);
        use_lock(&client, &env.path("a/b/lock")).await;
        is_gone(&other, &env.path("a")).await;
        // Also what a create has made as containers, and what is used again.
        let create = client.create().creating_parent_containers_if_needed().with_mode(CreateMode::Ephemeral);
        let node = create.for_path(&env.path("c/d/node")).await.unwrap();
        client.delete().for_path(&node).await.unwrap();
        is_gone(&other, &env.path("c")).await;
        use_lock(&client, &env.path("a/b/lock")).await;
        is_gone(&other, &env.path("a")).await;
    }

    async fn parent_that_another_client_uses_stays_until_it_is_unused(env) {
        let (client, other) = (connected(reaping(&env)).await, env.client().await);
        let lock = env.path("lock");
        use_lock(&client, &lock).await;
        let theirs = in_time(InterProcessMutex::new(other.clone(), &lock).unwrap().acquire()).await.unwrap();
        for round in 0..3 {
            a_whole_round(&client, &other, &env.path(&format!("round-{round}"))).await;
            assert!(exists(&other, theirs.node_path()).await && theirs.is_held());
        }
        assert!(theirs.release().await.unwrap().is_released());
        is_gone(&other, &lock).await;
    }

    async fn what_is_held_stays(env) {
        let (client, other) = (connected(reaping(&env)).await, env.client().await);
        let lock = env.path("lock");
        let guard = in_time(InterProcessMutex::new(client.clone(), &lock).unwrap().acquire()).await.unwrap();
        for round in 0..2 {
            a_whole_round(&client, &other, &env.path(&format!("round-{round}"))).await;
            assert!(guard.is_held() && exists(&other, guard.node_path()).await);
        }
        drop(guard);
        is_gone(&other, &lock).await;
    }

    /// Curator's `TestFramework.testOverrideCreateParentContainers`.
    async fn what_is_not_to_be_a_container_stays(env) {
        let (client, other) = (connected(reaping(&env)).await, env.client().await);
        let persistent = connected(reaping(&env).dont_use_container_parents()).await;
        let unreaped = connected(without_containers(&env).reap_interval(None)).await;
        let theirs = env.path("theirs/lock");
        other.create().creating_parents_if_needed().for_path(&theirs).await.unwrap();
        let plain = env.path("plain/parent/node");
        client.create().creating_parents_if_needed().with_mode(CreateMode::Ephemeral).for_path(&plain).await.unwrap();
        client.delete().for_path(&plain).await.unwrap();
        use_lock(&persistent, &env.path("persistent/lock")).await;
        use_lock(&unreaped, &env.path("unreaped/lock")).await;
        // It was there, so this client has not made it.
        use_lock(&client, &theirs).await;
        for round in 0..3 {
            a_whole_round(&client, &other, &env.path(&format!("round-{round}"))).await;
        }
        for path in [env.path("persistent/lock"), env.path("unreaped/lock"), theirs, env.path("plain/parent")] {
            assert!(exists(&other, &path).await, "{path}");
        }
    }

    async fn the_node_of_a_namespace_stays(env) {
        let namespace = env.path("name/space");
        let (client, other) = (connected(reaping(&env).namespace(&namespace[1..])).await, env.client().await);
        use_lock(&client, "/a/lock").await;
        is_gone(&other, &format!("{namespace}/a")).await;
        for round in 0..2 {
            use_lock(&client, &format!("/round-{round}")).await;
            is_gone(&client, &format!("/round-{round}")).await;
        }
        assert!(exists(&other, &namespace).await);
    }

    /// What was made in one session is still this client's in the next.
    async fn a_new_session_goes_on_with_it(env) {
        let other = env.client().await;
        let client = connected(without_containers(&env).reap_interval(Duration::from_secs(1))).await;
        let lock = env.path("lock");
        let guard = in_time(InterProcessMutex::new(client.clone(), &lock).unwrap().acquire()).await.unwrap();
        let session = client.session().await.unwrap();
        let owner = other.check_exists().for_path(guard.node_path()).await.unwrap().unwrap().ephemeral_owner;
        kill_session(env.address(), owner).await.unwrap();
        in_time(session.ended()).await;
        is_gone(&other, &lock).await;
        assert!(in_time(client.session()).await.unwrap().number() > session.number());
    }

    async fn a_node_that_may_not_be_deleted_is_left_alone(env) {
        let (client, other) = (connected(reaping(&env)).await, env.client().await);
        use_lock(&client, &env.path("above/lock")).await;
        let acl = crate::ground::world(curator_framework::Permission::READ);
        match other.set_acl().with_acl(acl).for_path(&env.path("above")).await {
            Ok(_) => {}
            Err(Error::NoNode { .. }) => return,
            Err(error) => panic!("{error}"),
        }
        a_whole_round(&client, &other, &env.path("round")).await;
        assert!(client.is_connected());
    }

    /// Locks are taken and given back while two clients delete their parents all the time.
    async fn acquire_survives_the_deletion_of_parents(env) {
        let (flat, nested) = (env.path("flat"), env.path("one/two/three"));
        let mut all = tokio::task::JoinSet::new();
        let mut clients = Vec::new();
        for number in 0..2 {
            let options = without_containers(&env).reap_interval(Duration::from_millis(1));
            // As few retries as most have.
            let client = connected(options.retry_policy(RetryNTimes::new(3, Duration::from_millis(1)))).await;
            clients.push(client.clone());
            for path in [flat.clone(), nested.clone(), format!("{nested}/{number}")] {
                let client = client.clone();
                all.spawn(async move {
                    let mutex = InterProcessMutex::new(client, path).unwrap();
                    for _ in 0..250 {
                        assert!(in_time(mutex.acquire()).await.unwrap().release().await.unwrap().is_released());
                        let pause = rand::rng().random_range(0..3);
                        tokio::time::sleep(Duration::from_millis(pause)).await;
                    }
                });
            }
        }
        while let Some(done) = all.join_next().await {
            done.unwrap();
        }
        let client = env.client().await;
        is_gone(&client, &flat).await;
        is_gone(&client, &env.path("one")).await;
    }
}

fn simulated(ensemble: &SimulatedEnsemble, number: u32) -> CuratorFrameworkBuilder {
    ensemble
        .client(ClientId(number))
        .zookeeper_factory(WithoutContainers(ensemble.factory(ClientId(number))))
        .session_timeout(Duration::from_secs(30))
        .retry_policy(RetryNTimes::new(3, INTERVAL))
}

/// To the second: a minute after the last use, and never without a reaper.
#[tokio::test(start_paused = true)]
async fn a_parent_goes_a_minute_after_its_last_use() {
    let ensemble = SimulatedEnsemble::new(3, Duration::from_millis(2));
    let reaping = connected(simulated(&ensemble, 1)).await;
    let persistent = connected(simulated(&ensemble, 2).dont_use_container_parents()).await;
    let unreaped = connected(simulated(&ensemble, 3).reap_interval(None)).await;
    let names = || {
        let mut names = ensemble.children("/");
        names.retain(|name| name != "zookeeper");
        names.sort_unstable();
        names
    };
    for (client, lock) in [(&reaping, "/reaped/lock"), (&persistent, "/persistent/lock"), (&unreaped, "/unreaped/lock")]
    {
        use_lock(client, lock).await;
    }
    // Neither a namespace nor what was there before is this client's to delete.
    let inside = reaping.using_namespace("name/space").unwrap();
    use_lock(&inside, "/lock").await;
    unreaped.create().for_path("/theirs").await.unwrap();
    use_lock(&reaping, "/theirs/below/lock").await;
    tokio::time::sleep(Duration::from_secs(40)).await;
    use_lock(&reaping, "/reaped/lock").await;
    tokio::time::sleep(Duration::from_secs(59)).await;
    assert_eq!(ensemble.children("/reaped"), ["lock"]);
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(ensemble.children("/reaped"), [""; 0]);
    tokio::time::sleep(Duration::from_secs(61)).await;
    assert_eq!(names(), ["name", "persistent", "theirs", "unreaped"]);
    tokio::time::sleep(Duration::from_secs(24 * 3600)).await;
    assert_eq!(names(), ["name", "persistent", "theirs", "unreaped"]);
    assert_eq!((ensemble.children("/theirs"), ensemble.children("/name")), (vec![], vec!["space".to_owned()]));
    assert_eq!(ensemble.children("/name/space"), [""; 0]);
    // Used all the time, it stays.
    for _ in 0..10 {
        use_lock(&reaping, "/reaped/lock").await;
        tokio::time::sleep(Duration::from_secs(50)).await;
        assert_eq!(ensemble.children("/reaped"), ["lock"]);
    }
    for client in [reaping, persistent, unreaped] {
        client.close().await;
    }
}

#[tokio::test]
async fn a_reaper_that_never_rests_is_refused() {
    let built =
        CuratorFramework::builder("a:1").retry_policy(RetryNTimes::new(0, INTERVAL)).reap_interval(Duration::ZERO);
    assert_eq!(built.build().map(drop).unwrap_err().to_string(), "invalid reap interval: it is zero");
}

/// Two that meet on one lock, one of which came through a namespace.
#[tokio::test]
async fn a_parent_made_through_a_namespace_is_known_under_its_whole_path() {
    let env = Env::new(curator_integration::env::Kind::InProcess);
    let (_, namespace) = in_namespace(&env, "ns").await;
    let client = connected(reaping(&env)).await;
    let inside = client.using_namespace(&namespace[1..]).unwrap();
    use_lock(&inside, "/lock").await;
    let guard = InterProcessMutex::new(client.clone(), format!("{namespace}/lock")).unwrap().acquire().await.unwrap();
    a_whole_round(&inside, &client, "/round").await;
    assert!(guard.is_held());
    drop(guard);
    eventually("it goes", async || children(&client, &namespace).await.is_empty()).await;
}
