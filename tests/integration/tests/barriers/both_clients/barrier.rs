//! Barriers: setting, waiting, and barriers of owners.

use std::time::Duration;

use curator_framework::recipe::RecipeClient as _;
use curator_framework::{Acl, CreateMode, CuratorFramework, DefaultZooKeeperFactory, Error, Permission, SessionId};
use curator_integration::env::{builder, connected, eventually, in_time};
use curator_integration::on_every_server;
use curator_recipes::{BarrierError, DistributedBarrier, LossReason, Release};
use tokio::task::JoinHandle;

use super::watched;

const MOMENT: Duration = Duration::from_millis(300);

fn barrier(client: &CuratorFramework, path: &str) -> DistributedBarrier {
    DistributedBarrier::new(client.clone(), path).unwrap()
}

fn waiting(barrier: &DistributedBarrier) -> JoinHandle<Result<(), BarrierError>> {
    let barrier = barrier.clone();
    tokio::spawn(async move { barrier.wait_on_barrier().await })
}

on_every_server! {
    /// Redisson's #5349: only the first listener was notified.
    async fn removal_lets_all_waiters_pass(env) {
        let (one, two, path) = (env.client().await, env.client().await, env.path("barrier"));
        let (ours, others) = (barrier(&one, &path), barrier(&two, &path));
        in_time(ours.set_barrier()).await.unwrap();
        assert!(in_time(others.is_set()).await.unwrap());
        in_time(others.set_barrier()).await.unwrap();
        let waiters: Vec<_> = (0..5).flat_map(|_| [waiting(&ours), waiting(&others)]).collect();
        watched(&one, 5).await;
        watched(&two, 5).await;
        assert!(waiters.iter().all(|waiter| !waiter.is_finished()));
        in_time(others.remove_barrier()).await.unwrap();
        for waiter in waiters {
            in_time(waiter).await.unwrap().unwrap();
        }
        assert!(!in_time(ours.is_set()).await.unwrap());
        in_time(ours.remove_barrier()).await.unwrap();
    }

    async fn barrier_that_may_not_be_read_is_set(env) {
        let (client, path) = (env.client().await, env.path("barrier"));
        let create = client.create().creating_parents_if_needed();
        create.with_acl([Acl::new(Permission::ADMIN, "world", "anyone")]).for_path(&path).await.unwrap();
        let barrier = barrier(&client, &path);
        assert!(in_time(barrier.is_set()).await.unwrap());
        match in_time(barrier.set_barrier()).await {
            Err(BarrierError::Framework(Error::NoAuth { .. })) => assert!(env.exists_needs_read()),
            set => assert!(set.is_ok() && !env.exists_needs_read(), "{set:?}"),
        }
        in_time(barrier.remove_barrier()).await.unwrap();
        assert!(!in_time(barrier.is_set()).await.unwrap());
    }

    /// The owner in the stat of a container is a mark, not a session.
    async fn container_at_the_path_is_a_barrier_that_is_set(env) {
        let (client, path) = (env.client().await, env.path("barrier"));
        // `zookeeper-async` cannot create containers.
        let other = connected(builder(env.address()).zookeeper_factory(DefaultZooKeeperFactory::new())).await;
        let create = other.create().creating_parents_if_needed().with_mode(CreateMode::Container);
        create.for_path(&path).await.unwrap();
        let barrier = barrier(&client, &path);
        in_time(barrier.set_barrier()).await.unwrap();
        assert!(in_time(barrier.is_set()).await.unwrap());
        in_time(barrier.remove_barrier()).await.unwrap();
        assert!(!in_time(barrier.is_set()).await.unwrap());
    }

    /// Curator's `TestDistributedBarrier.testNoBarrier`.
    async fn barrier_that_is_not_set_lets_waiters_pass(env) {
        let barrier = barrier(&env.client().await, &env.path("barrier"));
        assert!(in_time(barrier.wait_on_barrier_timeout(MOMENT)).await.unwrap().is_some());
        assert!(in_time(barrier.wait_on_barrier_timeout(Duration::ZERO)).await.unwrap().is_some());
        in_time(barrier.wait_on_barrier()).await.unwrap();
    }

    /// CURATOR-654: the watch of a waiter that gives up stays.
    async fn waiter_that_gives_up_leaves_no_watch(env) {
        let (client, path) = (env.client().await, env.path("barrier"));
        let barrier = barrier(&client, &path);
        in_time(barrier.set_barrier()).await.unwrap();
        for budget in [MOMENT, Duration::ZERO] {
            assert!(in_time(barrier.wait_on_barrier_timeout(budget)).await.unwrap().is_none());
            assert_eq!(client.watched_paths(), [""; 0]);
        }
        let waiter = waiting(&barrier);
        watched(&client, 1).await;
        waiter.abort();
        watched(&client, 0).await;
    }

    /// A data change is not a removal.
    async fn waiter_waits_through_a_change_of_the_data(env) {
        let (client, path) = (env.client().await, env.path("barrier"));
        let barrier = barrier(&client, &path);
        in_time(barrier.set_barrier()).await.unwrap();
        let waiter = waiting(&barrier);
        watched(&client, 1).await;
        client.set_data().for_path(&path, "other").await.unwrap();
        assert!(in_time(barrier.wait_on_barrier_timeout(MOMENT)).await.unwrap().is_none());
        watched(&client, 1).await;
        assert!(!waiter.is_finished());
        in_time(barrier.remove_barrier()).await.unwrap();
        in_time(waiter).await.unwrap().unwrap();
    }

    async fn owned_barrier_stands_until_its_owner_removes_it(env) {
        let (one, two, path) = (env.client().await, env.client().await, env.path("a/barrier"));
        let (ours, others) = (barrier(&one, &path), barrier(&two, &path));
        let owned = in_time(ours.set_owned()).await.unwrap();
        assert!(owned.is_held() && owned.path() == path);
        let session = one.check_exists().for_path(&path).await.unwrap().unwrap().ephemeral_owner;
        for refused in [in_time(ours.set_owned()).await, in_time(others.set_owned()).await] {
            match refused {
                Err(BarrierError::AlreadySet { path: refused, session: of }) => {
                    assert_eq!((refused.as_str(), of), (path.as_str(), SessionId::new(session)));
                }
                other => panic!("{other:?}"),
            }
        }
        let waiter = waiting(&others);
        watched(&two, 1).await;
        assert_eq!(in_time(owned.release()).await.unwrap(), Release::Released);
        in_time(waiter).await.unwrap().unwrap();
        drop(in_time(others.set_owned()).await.unwrap());
        eventually("the dropped guard removes its barrier", async || !ours.is_set().await.unwrap()).await;
    }

    async fn barrier_without_an_owner_refuses_one(env) {
        let barrier = barrier(&env.client().await, &env.path("barrier"));
        in_time(barrier.set_barrier()).await.unwrap();
        let refused = in_time(barrier.set_owned()).await;
        assert!(matches!(refused, Err(BarrierError::AlreadySet { session: None, .. })), "{refused:?}");
        assert!(in_time(barrier.is_set()).await.unwrap());
    }

    /// Curator's barrier of a dead owner exists forever.
    async fn barrier_falls_with_the_session_of_its_owner(env) {
        let (one, two, path) = (env.client().await, env.client().await, env.path("barrier"));
        let owned = in_time(barrier(&one, &path).set_owned()).await.unwrap();
        let waiter = waiting(&barrier(&two, &path));
        watched(&two, 1).await;
        env.kill_owner_of(&two, &path).await;
        in_time(waiter).await.unwrap().unwrap();
        let reason = in_time(owned.lost()).await;
        assert!(matches!(reason, LossReason::Session(_)), "{reason:?}");
        assert!(!owned.is_held());
        assert_eq!(in_time(owned.release()).await.unwrap(), Release::AlreadyLost(reason));
    }

    async fn owner_is_notified_of_a_removal_and_leaves_the_next_barrier(env) {
        let (one, two, path) = (env.client().await, env.client().await, env.path("barrier"));
        for removes in [false, true] {
            let owned = in_time(barrier(&one, &path).set_owned()).await.unwrap();
            in_time(barrier(&two, &path).remove_barrier()).await.unwrap();
            let next = in_time(barrier(&two, &path).set_owned()).await.unwrap();
            assert_eq!(in_time(owned.lost()).await, LossReason::NodeDeleted);
            assert!(!owned.is_held());
            let lost = Release::AlreadyLost(LossReason::NodeDeleted);
            match removes {
                true => assert_eq!(in_time(owned.release()).await.unwrap(), lost),
                false => drop(owned),
            }
            // After the delete in the background, if there is one.
            in_time(one.create().with_mode(CreateMode::EphemeralSequential).for_path(&env.path("mark"))).await.unwrap();
            assert!(in_time(barrier(&one, &path).wait_on_barrier_timeout(MOMENT)).await.unwrap().is_none());
            assert!(next.is_held());
            assert_eq!(in_time(next.release()).await.unwrap(), Release::Released);
        }
    }

    async fn wait_survives_a_restart_of_the_server(env) {
        let env = env.alone();
        let (client, path) = (env.client().await, env.path("barrier"));
        let barrier = barrier(&client, &path);
        in_time(barrier.set_barrier()).await.unwrap();
        let waiter = waiting(&barrier);
        watched(&client, 1).await;
        env.restart().await;
        in_time(barrier.is_set()).await.unwrap();
        assert!(!waiter.is_finished());
        in_time(barrier.remove_barrier()).await.unwrap();
        in_time(waiter).await.unwrap().unwrap();
    }
}
