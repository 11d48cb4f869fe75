//! The numbers of leases: `Lease::slot`.

use std::sync::Arc;

use curator_framework::recipe::RecipeClient as _;
use curator_framework::{Acl, CreateMode, CuratorFramework, Error, LossReason, SessionEnd};
use curator_integration::env::{builder, children, connected, eventually, in_time};
use curator_integration::on_every_server;
use curator_recipes::{InterProcessSemaphoreV2, Lease, LockError, SemaphoreOptions, SharedCount};
use curator_test::FaultProxy;
use curator_test::wire::OpCode;

async fn lease(client: &CuratorFramework, path: &str, limit: usize) -> Lease {
    let semaphore = InterProcessSemaphoreV2::new(client.clone(), path, limit).unwrap();
    in_time(semaphore.acquire()).await.unwrap()
}

async fn slot(lease: &Lease) -> u32 {
    in_time(lease.slot()).await.unwrap()
}

on_every_server! {
    async fn a_released_number_is_the_next_ones(env) {
        let (client, path) = (env.client().await, env.path("semaphore"));
        let mut leases = Vec::new();
        for expected in 0..3 {
            leases.push(lease(&client, &path, 3).await);
            assert_eq!(slot(leases.last().unwrap()).await, expected);
        }
        let [first, second, third] = leases.try_into().unwrap();
        assert!(second.release().await.unwrap().is_released());
        assert_eq!(children(&client, &format!("{path}/slots")).await.len(), 2, "it is deleted before the lease");
        let fourth = lease(&client, &path, 3).await;
        assert_eq!([slot(&first).await, slot(&fourth).await, slot(&third).await], [0, 1, 2]);
        drop(first);
        assert_eq!(slot(&lease(&client, &path, 3).await).await, 0);
        let released = fourth.release().await.unwrap();
        assert!(released.is_released());
        let error = in_time(fourth.slot()).await.unwrap_err();
        assert_eq!(error.to_string(), "invalid guard: it was released");
    }

    async fn each_lease_of_a_set_has_its_own(env) {
        let semaphore = InterProcessSemaphoreV2::new(env.client().await, env.path("semaphore"), 3).unwrap();
        let leases: Vec<Lease> = in_time(semaphore.acquire_many(3)).await.unwrap().into_iter().collect();
        let mut slots = in_time(futures_util::future::join_all(leases.iter().map(slot))).await;
        slots.sort_unstable();
        assert_eq!(slots, [0, 1, 2]);
        // Two calls of one lease claim one number.
        assert!(leases[0].release().await.unwrap().is_released());
        let again = in_time(semaphore.acquire()).await.unwrap();
        let (one, other) = in_time(futures_util::future::join(again.slot(), again.slot())).await;
        assert_eq!(one.unwrap(), other.unwrap());
    }

    async fn a_session_that_ends_gives_its_numbers_back(env) {
        let (lost, client, path) = (env.client().await, env.client().await, env.path("semaphore"));
        let (theirs, ours) = (lease(&lost, &path, 2).await, lease(&client, &path, 2).await);
        assert_eq!([slot(&theirs).await, slot(&ours).await], [0, 1]);
        env.kill_session(&lost.session().await.unwrap()).await;
        let next = lease(&client, &path, 2).await;
        assert_eq!(slot(&next).await, 0);
        in_time(theirs.lost()).await;
        let error = in_time(theirs.slot()).await.unwrap_err();
        assert!(matches!(error, LockError::LockLost { reason: LossReason::Session(SessionEnd::Expired), .. }), "{error}");
    }

    async fn a_lease_whose_node_was_deleted_gives_its_number_back(env) {
        let (client, admin, path) = (env.client().await, env.client().await, env.path("semaphore"));
        let lost = lease(&client, &path, 1).await;
        assert_eq!(slot(&lost).await, 0);
        admin.delete().for_path(lost.node_path()).await.unwrap();
        let next = lease(&admin, &path, 1).await;
        assert_eq!(slot(&next).await, 0, "the guard of the lost lease still exists");
        let error = in_time(lost.slot()).await.unwrap_err();
        assert!(matches!(error, LockError::LockLost { reason: LossReason::NodeDeleted, .. }), "{error}");
        drop(lost);
        assert_eq!(slot(&next).await, 0);
        next.verify().await.unwrap();
    }

    async fn a_number_whose_node_was_deleted_is_reported(env) {
        let (client, admin, path) = (env.client().await, env.client().await, env.path("semaphore"));
        let ours = lease(&client, &path, 2).await;
        assert_eq!(slot(&ours).await, 0);
        let node = format!("{path}/slots/0000000000");
        admin.delete().for_path(&node).await.unwrap();
        eventually("the deletion is noticed", async || ours.slot().await.is_err()).await;
        let error = ours.slot().await.unwrap_err();
        assert!(matches!(&error, LockError::LockLost { path, reason: LossReason::NodeDeleted } if path.as_str() == node), "{error}");
        assert!(ours.is_held());
        let theirs = lease(&admin, &path, 2).await;
        assert_eq!(slot(&theirs).await, 0);
        // The release deletes its own node, not the one of the other lease.
        assert!(ours.release().await.unwrap().is_released());
        assert_eq!(children(&client, &format!("{path}/slots")).await, ["0000000000"]);
    }

    async fn a_claim_waits_while_all_numbers_are_taken(env) {
        let (client, admin, path) = (env.client().await, env.client().await, env.path("semaphore"));
        let node = format!("{path}/slots/0000000000");
        let create = admin.create().creating_parents_if_needed().with_mode(CreateMode::Ephemeral);
        create.for_path(&node).await.unwrap();
        let ours = Arc::new(lease(&client, &path, 1).await);
        let is_waiting = async || {
            let slots = format!("{path}/slots");
            eventually("it waits", async || client.watched_paths().contains(&slots)).await;
        };
        let claim = |lease: &Arc<Lease>| tokio::spawn({
            let lease = Arc::clone(lease);
            async move { lease.slot().await }
        });
        let waits = claim(&ours);
        is_waiting().await;
        admin.delete().for_path(&node).await.unwrap();
        assert_eq!(in_time(waits).await.unwrap().unwrap(), 0);
        assert!(ours.release().await.unwrap().is_released());

        // The end of the lease ends the wait.
        admin.create().with_mode(CreateMode::Ephemeral).creating_parents_if_needed().for_path(&node).await.unwrap();
        let ours = Arc::new(lease(&client, &path, 1).await);
        let waits = claim(&ours);
        is_waiting().await;
        assert!(ours.release().await.unwrap().is_released());
        assert!(matches!(in_time(waits).await.unwrap(), Err(LockError::InvalidArgument { .. })));
        let ours = Arc::new(lease(&client, &path, 1).await);
        let waits = claim(&ours);
        is_waiting().await;
        admin.delete().for_path(ours.node_path()).await.unwrap();
        assert!(matches!(in_time(waits).await.unwrap(), Err(LockError::LockLost { .. })));
    }

    async fn a_lower_limit_leaves_larger_numbers_in_use(env) {
        let (client, path) = (env.client().await, env.path("semaphore"));
        let count = SharedCount::new(client.clone(), env.path("count"), 3).unwrap();
        count.start().unwrap();
        in_time(count.initialized()).await.unwrap();
        let semaphore = InterProcessSemaphoreV2::new(client.clone(), &path, &count).unwrap();
        let mut leases = Vec::new();
        for expected in 0..3 {
            leases.push(in_time(semaphore.acquire()).await.unwrap());
            assert_eq!(slot(leases.last().unwrap()).await, expected);
        }
        count.set_count(2).await.unwrap();
        let largest = leases.pop().unwrap();
        drop(leases);
        let next = in_time(semaphore.acquire()).await.unwrap();
        assert!(slot(&next).await < 2);
        assert_eq!(slot(&largest).await, 2);
    }

    async fn a_lost_reply_costs_no_number(env) {
        let (path, proxy, direct) = (env.path("semaphore"), env.proxy(), env.client().await);
        let client = connected(builder(proxy.address())).await;
        for (round, lose) in [FaultProxy::drop_reply, FaultProxy::drop_request].into_iter().enumerate() {
            let ours = lease(&client, &path, 2).await;
            lose(&proxy, OpCode::Create2, 1);
            assert_eq!(slot(&ours).await, 0);
            assert_eq!(proxy.faults_done(), round + 1);
            assert_eq!(children(&direct, &format!("{path}/slots")).await, ["0000000000"]);
            assert!(in_time(ours.release()).await.unwrap().is_released());
            env.wait_for_children(&direct, &format!("{path}/slots"), 0).await;
        }
    }

    async fn the_node_of_a_number_has_the_list_of_the_semaphore(env) {
        let (stranger, path) = (env.client().await, env.path("semaphore"));
        let owner = connected(builder(env.address()).authorization("digest", "ann:secret")).await;
        let options = SemaphoreOptions::new().acl(Acl::creator_all());
        let semaphore = InterProcessSemaphoreV2::with_options(owner, &path, 1, options).unwrap();
        let ours = in_time(semaphore.acquire()).await.unwrap();
        assert_eq!(slot(&ours).await, 0);
        let refused = stranger.get_data().for_path(&format!("{path}/slots/0000000000")).await;
        assert!(matches!(refused, Err(Error::NoAuth { .. })), "{refused:?}");
    }
}
