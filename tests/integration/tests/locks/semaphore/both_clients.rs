//! At most N at once.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use curator_integration::env::{children, in_time};
use curator_integration::on_every_server;
use curator_recipes::{InterProcessSemaphoreV2, Release, SemaphoreOptions, SemaphoreProtocol};
use tokio::task::JoinSet;

on_every_server! {
    /// Curator's `TestInterProcessSemaphore.testRelease1AtATime`.
    async fn never_more_than_the_limit_and_all_of_it(env) {
        let path = env.path("semaphore");
        let clients = [env.client().await, env.client().await, env.client().await];
        let (inside, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let mut users = Vec::new();
        for number in 0..12 {
            let semaphore = InterProcessSemaphoreV2::new(clients[number % 3].clone(), &path, 4).unwrap();
            let (inside, most) = (Arc::clone(&inside), Arc::clone(&most));
            users.push(tokio::spawn(async move {
                for _ in 0..3 {
                    let lease = semaphore.acquire().await.unwrap();
                    let now = inside.fetch_add(1, Ordering::SeqCst) + 1;
                    most.fetch_max(now, Ordering::SeqCst);
                    assert!(now <= 4, "{now} leases at once");
                    tokio::time::sleep(Duration::from_millis(40)).await;
                    inside.fetch_sub(1, Ordering::SeqCst);
                    assert_eq!(lease.release().await.unwrap(), Release::Released);
                }
            }));
        }
        for user in users {
            in_time(user).await.unwrap();
        }
        assert_eq!(most.load(Ordering::SeqCst), 4);
        for part in ["locks", "leases"] {
            env.wait_for_children(&clients[0], &format!("{path}/{part}"), 0).await;
        }
    }

    async fn no_two_leases_have_one_number(env) {
        let clients = [env.client().await, env.client().await];
        for protocol in [SemaphoreProtocol::Curator, SemaphoreProtocol::Direct] {
            let path = env.path(&protocol.to_string());
            let in_use = Arc::new(parking_lot::Mutex::new(BTreeSet::new()));
            let mut users = JoinSet::new();
            for number in 0..10 {
                let options = SemaphoreOptions::new().protocol(protocol);
                let client = clients[number % 2].clone();
                let semaphore = InterProcessSemaphoreV2::with_options(client, &path, 3, options).unwrap();
                let in_use = Arc::clone(&in_use);
                users.spawn(async move {
                    for round in 0..4 {
                        let lease = semaphore.acquire().await.unwrap();
                        let slot = lease.slot().await.unwrap();
                        assert!(slot < 3 && in_use.lock().insert(slot), "{slot} is another lease's too");
                        lease.verify().await.unwrap();
                        assert_eq!(lease.slot().await.unwrap(), slot);
                        in_use.lock().remove(&slot);
                        if (number + round) % 3 > 0 {
                            assert!(lease.release().await.unwrap().is_released());
                        }
                    }
                });
            }
            in_time(users.join_all()).await;
            for part in ["leases", "slots"] {
                env.wait_for_children(&clients[0], &format!("{path}/{part}"), 0).await;
            }
        }
    }

    /// Curator's `TestInterProcessSemaphore.testSimple2`.
    async fn one_more_than_the_limit_waits_for_one_to_come_back(env) {
        let semaphore = InterProcessSemaphoreV2::new(env.client().await, env.path("semaphore"), 3).unwrap();
        let mut leases = Vec::new();
        for _ in 0..3 {
            leases.push(semaphore.acquire_timeout(Duration::from_secs(10)).await.unwrap().expect("there are three"));
        }
        assert!(semaphore.acquire_timeout(Duration::from_millis(300)).await.unwrap().is_none());
        assert!(semaphore.try_acquire().await.unwrap().is_none());
        assert!(leases.pop().unwrap().release().await.unwrap().is_released());
        assert!(in_time(semaphore.acquire_timeout(Duration::from_secs(10))).await.unwrap().is_some());
    }

    async fn a_waiter_gets_the_lease_that_comes_back_first(env) {
        // Holders of very different length: the waiter must not wait for a certain one.
        let path = env.path("semaphore");
        let semaphore = InterProcessSemaphoreV2::new(env.client().await, &path, 2).unwrap();
        for newer_goes in [true, false] {
            let older = semaphore.acquire().await.unwrap();
            let newer = semaphore.acquire().await.unwrap();
            let waiter = { let semaphore = semaphore.clone(); tokio::spawn(async move { semaphore.acquire().await.unwrap() }) };
            env.wait_for_children(&env.client().await, &format!("{path}/leases"), 3).await;
            assert!(!waiter.is_finished());
            let (goes, stays) = if newer_goes { (newer, older) } else { (older, newer) };
            assert!(goes.release().await.unwrap().is_released());
            let granted = in_time(waiter).await.unwrap();
            assert!(stays.is_held() && granted.is_held());
            assert!(stays.release().await.unwrap().is_released());
            assert!(granted.release().await.unwrap().is_released());
        }
    }

    async fn leases_are_granted_in_the_order_in_which_they_were_asked_for(env) {
        let path = env.path("semaphore");
        let client = env.client().await;
        let semaphore = InterProcessSemaphoreV2::new(client.clone(), &path, 1).unwrap();
        let lease = semaphore.acquire().await.unwrap();
        let served = Arc::new(parking_lot::Mutex::new(Vec::new()));
        let mut waiters = Vec::new();
        for number in 0..6 {
            let (semaphore, served) = (semaphore.clone(), Arc::clone(&served));
            waiters.push(tokio::spawn(async move {
                let lease = semaphore.acquire().await.unwrap();
                served.lock().push(number);
                assert!(lease.release().await.unwrap().is_released());
            }));
            env.wait_for_children(&client, &format!("{path}/locks"), number + 1).await;
        }
        assert!(lease.release().await.unwrap().is_released());
        for waiter in waiters {
            in_time(waiter).await.unwrap();
        }
        assert_eq!(*served.lock(), [0, 1, 2, 3, 4, 5]);
    }

    /// Curator's `testGetParticipantNodes`, and the data of `setNodeData`.
    async fn leases_show_their_data_and_names(env) {
        let path = env.path("semaphore");
        let client = env.client().await;
        let semaphore = InterProcessSemaphoreV2::with_options(client.clone(), &path, 3, SemaphoreOptions::new().data("worker seven")).unwrap();
        assert_eq!(semaphore.participant_nodes().await.unwrap(), Vec::<String>::new());
        let leases = [semaphore.acquire().await.unwrap(), semaphore.acquire().await.unwrap()];
        assert_eq!(semaphore.participant_nodes().await.unwrap(), leases.each_ref().map(|lease| lease.node_name().to_owned()));
        assert_eq!(leases[0].data().await.unwrap(), b"worker seven");
        assert!(leases[0].node_path().starts_with(&format!("{path}/leases/_c_")), "{}", leases[0].node_path());
        assert!(leases[0].token() < leases[1].token());
        drop(leases);
        env.wait_for_children(&client, &format!("{path}/leases"), 0).await;
    }

    /// Curator's `testInterruptAcquire` (CURATOR-462).
    async fn dropped_waiter_leaves_no_node_and_blocks_no_contender(env) {
        let path = env.path("semaphore");
        let client = env.client().await;
        let semaphore = InterProcessSemaphoreV2::new(client.clone(), &path, 1).unwrap();
        let lease = semaphore.acquire().await.unwrap();
        let waiter = { let semaphore = semaphore.clone(); tokio::spawn(async move { semaphore.acquire().await.unwrap() }) };
        env.wait_for_children(&client, &format!("{path}/leases"), 2).await;
        waiter.abort();
        env.wait_for_children(&client, &format!("{path}/leases"), 1).await;
        env.wait_for_children(&client, &format!("{path}/locks"), 0).await;
        assert!(lease.release().await.unwrap().is_released());
        drop(in_time(semaphore.acquire()).await.unwrap());
    }

    /// Curator's `testClientClose`.
    async fn closing_the_holders_client_frees_the_lease(env) {
        let path = env.path("semaphore");
        let (first, second) = (env.client().await, env.client().await);
        let held = InterProcessSemaphoreV2::new(first.clone(), &path, 1).unwrap().acquire().await.unwrap();
        let semaphore = InterProcessSemaphoreV2::new(second.clone(), &path, 1).unwrap();
        assert!(semaphore.try_acquire().await.unwrap().is_none());
        first.close().await;
        assert!(!held.is_held());
        drop(in_time(semaphore.acquire()).await.unwrap());
        env.wait_for_children(&second, &format!("{path}/leases"), 0).await;
        assert_eq!(children(&second, &format!("{path}/locks")).await, Vec::<String>::new());
    }

    /// Curator's `testNoOrphanedNodes`.
    async fn a_waiter_whose_node_is_deleted_asks_again(env) {
        let path = env.path("semaphore");
        let client = env.client().await;
        let leases = format!("{path}/leases");
        let semaphore = InterProcessSemaphoreV2::new(client.clone(), &path, 1).unwrap();
        let lease = semaphore.acquire().await.unwrap();
        let waiter = { let semaphore = semaphore.clone(); tokio::spawn(async move { semaphore.acquire().await.unwrap() }) };
        // The first try has deleted its lease before the waiter queues.
        env.wait_for_children(&client, &format!("{path}/locks"), 1).await;
        let nodes = env.wait_for_children(&client, &leases, 2).await;
        let waiting = nodes.iter().find(|node| *node != lease.node_name()).unwrap();
        client.delete().for_path(&format!("{leases}/{waiting}")).await.unwrap();
        curator_integration::env::eventually("the waiter has a new node", async || {
            let now = children(&client, &leases).await;
            now.len() == 2 && !now.contains(waiting)
        })
        .await;
        assert!(lease.release().await.unwrap().is_released());
        assert!(in_time(waiter).await.unwrap().release().await.unwrap().is_released());
        env.wait_for_children(&client, &leases, 0).await;
    }
}
