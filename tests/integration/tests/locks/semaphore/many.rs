//! Several leases at once: all or none.

use curator_framework::recipe::RecipeClient as _;
use std::time::Duration;

use curator_integration::env::{Env, builder, children, connected, eventually, in_time};
use curator_integration::kinds::{Polled, poll_and_drop};
use curator_integration::on_every_server;
use curator_recipes::{
    InterProcessSemaphoreV2, Lease, LeaseSet, LockError, LossReason, Release, SemaphoreOptions, SemaphoreProtocol,
};
use curator_test::wire::OpCode;

const BOTH: [SemaphoreProtocol; 2] = [SemaphoreProtocol::Curator, SemaphoreProtocol::Direct];

async fn semaphore(env: &Env, protocol: SemaphoreProtocol, leases: usize) -> InterProcessSemaphoreV2 {
    let (client, path) = (env.client().await, env.path(&protocol.to_string()));
    InterProcessSemaphoreV2::with_options(client, path, leases, SemaphoreOptions::new().protocol(protocol)).unwrap()
}

async fn release(leases: LeaseSet) {
    assert_eq!(leases.release().await.unwrap(), Release::Released);
}

on_every_server! {
    /// A set is one guard, regardless of the number of its leases.
    async fn a_set_of_leases_is_held_and_released_as_one(env) {
        let observer = env.client().await;
        for protocol in BOTH {
            let semaphore = semaphore(&env, protocol, 3).await;
            let nodes = format!("{}/leases", semaphore.path());
            for wanted in 1..=3 {
                let leases = in_time(semaphore.acquire_many(wanted)).await.unwrap();
                assert_eq!((leases.len(), leases.iter().count()), (wanted, wanted));
                assert!(leases.is_held() && leases.remaining() > Duration::ZERO);
                assert_eq!(in_time(leases.protect(async { 7 })).await.unwrap(), 7);
                in_time(leases.verify()).await.unwrap();
                assert_eq!(in_time(leases.release()).await.unwrap(), Release::Released);
                env.wait_for_children(&observer, &nodes, 0).await;
                assert!(!leases.is_held() && leases.remaining().is_zero());
                assert_eq!(in_time(leases.release()).await.unwrap(), Release::Released);
            }
            let singles: Vec<Lease> = in_time(semaphore.acquire_many(3)).await.unwrap().into_iter().collect();
            let mut left = singles.len();
            for lease in singles {
                env.wait_for_children(&observer, &nodes, left).await;
                assert!(lease.is_held());
                assert_eq!(in_time(lease.release()).await.unwrap(), Release::Released);
                left -= 1;
            }
            drop(in_time(semaphore.acquire_many(3)).await.unwrap());
            env.wait_for_children(&observer, &nodes, 0).await;
        }
    }

    async fn a_set_of_leases_is_lost_with_any_of_them(env) {
        let observer = env.client().await;
        for protocol in BOTH {
            let semaphore = semaphore(&env, protocol, 3).await;
            for lost in 0..3 {
                let leases = in_time(semaphore.acquire_many(3)).await.unwrap();
                let work = leases.protect(std::future::pending::<()>());
                let deleted = async {
                    observer.delete().for_path(leases.iter().nth(lost).unwrap().node_path()).await.unwrap();
                    in_time(leases.lost()).await
                };
                let (work, reason) = tokio::join!(in_time(work), deleted);
                assert!(matches!(work, Err(LockError::LockLost { .. })), "{work:?}");
                assert_eq!(reason, LossReason::NodeDeleted);
                assert!(!leases.is_held() && leases.remaining().is_zero());
                assert_eq!(leases.iter().filter(|lease| lease.is_held()).count(), 2);
                assert_eq!(in_time(leases.release()).await.unwrap(), Release::AlreadyLost(reason));
                env.wait_for_children(&observer, &format!("{}/leases", semaphore.path()), 0).await;
            }
        }
    }

    async fn all_or_none(env) {
        let observer = env.client().await;
        for protocol in BOTH {
            let semaphore = semaphore(&env, protocol, 3).await;
            let leases = format!("{}/leases", semaphore.path());
            let held = in_time(semaphore.acquire_many(2)).await.unwrap();
            assert_eq!(held.len(), 2);
            assert!(semaphore.try_acquire_many(2).await.unwrap().is_none());
            env.wait_for_children(&observer, &leases, 2).await;
            assert!(semaphore.acquire_many_timeout(2, Duration::from_millis(300)).await.unwrap().is_none());
            // What was taken already is given back.
            env.wait_for_children(&observer, &leases, 2).await;
            let third = in_time(semaphore.try_acquire_many(1)).await.unwrap().expect("one is free");
            release(third).await;
            release(held).await;
            let all = in_time(semaphore.acquire_many_timeout(3, Duration::from_secs(20))).await.unwrap();
            let all = all.expect("all are free");
            let mut tokens: Vec<_> = all.iter().map(|lease| lease.token()).collect();
            tokens.dedup();
            assert_eq!(tokens.len(), 3, "each lease has a node of its own");
            assert!(semaphore.try_acquire().await.unwrap().is_none());
            release(all).await;
            for part in ["leases", "locks"] {
                env.wait_for_children(&observer, &format!("{}/{part}", semaphore.path()), 0).await;
            }
        }
    }

    async fn a_set_is_split_only_into_two_with_leases(env) {
        for protocol in BOTH {
            let semaphore = semaphore(&env, protocol, 3).await;
            let mut first = in_time(semaphore.acquire_many(3)).await.unwrap();
            let paths: Vec<_> = first.iter().map(|lease| lease.node_path().to_owned()).collect();
            for refused in [0, 3, 4] {
                assert!(first.split(refused).is_none());
            }
            let last = first.split(2).unwrap();
            assert_eq!(last.iter().map(|lease| lease.node_path()).collect::<Vec<_>>(), paths[1..]);
            assert_eq!((first.len(), first.node_path()), (1, paths[0].as_str()));
            release(last).await;
            assert!(first.is_held());
            let _two = in_time(semaphore.try_acquire_many(2)).await.unwrap().expect("two are free again");
            release(first).await;
        }
    }

    async fn more_than_there_are_is_an_error(env) {
        for protocol in BOTH {
            let semaphore = semaphore(&env, protocol, 2).await;
            for (wanted, text) in [
                (0, "invalid number of leases: it is zero"),
                (3, "invalid number of leases: 3 are more than the 2 there are"),
            ] {
                for outcome in [
                    in_time(semaphore.acquire_many(wanted)).await.map(Some),
                    in_time(semaphore.try_acquire_many(wanted)).await,
                    in_time(semaphore.acquire_many_timeout(wanted, Duration::from_secs(60))).await,
                ] {
                    let error = outcome.expect_err("it cannot be granted");
                    assert!(matches!(error, LockError::InvalidArgument { .. }) && error.to_string() == text, "{error}");
                }
            }
            assert_eq!(children(&env.client().await, semaphore.path()).await, [""; 0], "nothing was sent");
        }
    }

    async fn two_that_want_all_do_not_block_each_other(env) {
        for protocol in BOTH {
            let mut users = tokio::task::JoinSet::new();
            for _ in 0..3 {
                let semaphore = semaphore(&env, protocol, 2).await;
                users.spawn(async move {
                    for _ in 0..5 {
                        release(semaphore.acquire_many(2).await.unwrap()).await;
                    }
                });
            }
            while let Some(done) = in_time(users.join_next()).await {
                done.unwrap();
            }
        }
    }

    async fn single_leases_beside_several_are_never_too_many(env) {
        const LIMIT: usize = 3;
        for protocol in BOTH {
            let inside = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
            let mut users = tokio::task::JoinSet::new();
            for number in 0..6 {
                let (semaphore, inside) = (semaphore(&env, protocol, LIMIT).await, inside.clone());
                users.spawn(async move {
                    for _ in 0..4 {
                        let wanted = if number < 2 { 2 + number } else { 1 };
                        let leases = semaphore.acquire_many(wanted).await.unwrap();
                        let now = inside.fetch_add(wanted, std::sync::atomic::Ordering::SeqCst) + wanted;
                        assert!(now <= LIMIT, "{now} leases at once");
                        tokio::task::yield_now().await;
                        inside.fetch_sub(wanted, std::sync::atomic::Ordering::SeqCst);
                        release(leases).await;
                    }
                });
            }
            while let Some(done) = in_time(users.join_next()).await {
                done.unwrap();
            }
        }
    }

    async fn dropped_half_way_it_gives_all_back(env) {
        let observer = env.client().await;
        for protocol in BOTH {
            let semaphore = semaphore(&env, protocol, 3).await;
            let leases = format!("{}/leases", semaphore.path());
            let held = semaphore.acquire().await.unwrap();
            // It takes two of three and waits for the last one.
            let waiter = { let semaphore = semaphore.clone(); tokio::spawn(async move { semaphore.acquire_many(3).await }) };
            env.wait_for_children(&observer, &leases, 4).await;
            assert!(!waiter.is_finished());
            waiter.abort();
            env.wait_for_children(&observer, &leases, 1).await;
            env.wait_for_children(&observer, &format!("{}/locks", semaphore.path()), 0).await;
            assert!(held.release().await.unwrap().is_released());
            // And at whichever poll it is dropped.
            for polls in 1.. {
                match in_time(poll_and_drop(semaphore.acquire_many(3), polls)).await {
                    Polled::Ready(all) => {
                        assert!(polls > 1, "granted after {polls} polls");
                        release(all.unwrap()).await;
                        break;
                    }
                    Polled::Dropped => {
                        eventually("all is given back", async || {
                            children(&observer, &leases).await.is_empty()
                                && children(&observer, &format!("{}/locks", semaphore.path())).await.is_empty()
                        })
                        .await;
                    }
                }
            }
        }
    }

    /// The connection is lost at each of the creates, before or behind it.
    async fn a_connection_that_is_lost_once_counts_once(env) {
        const LEASES: usize = 12;
        let observer = env.client().await;
        for is_reply in [true, false] {
            for nth in [1, 2, LEASES] {
                let proxy = env.proxy();
                // Its retries would not do for one each.
                let client = connected(builder(proxy.address())).await;
                let path = env.path("semaphore");
                let semaphore = InterProcessSemaphoreV2::new(client, &path, LEASES).unwrap();
                release(in_time(semaphore.acquire_many(2)).await.unwrap()).await;
                match is_reply {
                    true => proxy.drop_reply(OpCode::Create2, nth),
                    false => proxy.drop_request(OpCode::Create2, nth),
                }
                // Some of the creates were carried out twice: the try succeeds anyway.
                let tried = in_time(semaphore.try_acquire_many(LEASES)).await.unwrap();
                let all = tried.unwrap_or_else(|| panic!("all are free: create {nth}, {is_reply}"));
                assert_eq!((proxy.faults_done(), all.len()), (1, LEASES));
                env.wait_for_children(&observer, &format!("{path}/leases"), LEASES).await;
                release(all).await;
                env.wait_for_children(&observer, &format!("{path}/leases"), 0).await;
            }
        }
    }

    /// The end of a lease that was taken already frees another: together they would be one too many.
    async fn all_are_not_granted_because_one_of_them_was_lost(env) {
        let observer = env.client().await;
        for protocol in BOTH {
            let (others, client) = (semaphore(&env, protocol, 3).await, env.client().await);
            let path = others.path().to_owned();
            let semaphore =
                InterProcessSemaphoreV2::with_options(client.clone(), path, 3, SemaphoreOptions::new().protocol(protocol)).unwrap();
            let leases = format!("{}/leases", semaphore.path());
            let other = in_time(others.acquire()).await.unwrap();
            let waiter = tokio::spawn(async move { semaphore.acquire_many(3).await.unwrap() });
            let ours = async || {
                let mut ours = children(&observer, &leases).await;
                ours.retain(|name| !other.node_path().ends_with(name.as_str()));
                // By their numbers.
                ours.sort_by(|one, two| one.rsplit('-').next().cmp(&two.rsplit('-').next()));
                ours
            };
            // Two of them are granted, the third one waits.
            eventually("it waits for the third", async || {
                ours().await.len() == 3 && client.watched_paths().iter().any(|watched| watched.ends_with("/leases"))
            })
            .await;
            let first = ours().await.remove(0);
            observer.delete().for_path(&format!("{leases}/{first}")).await.unwrap();
            eventually("it begins again", async || {
                let now = ours().await;
                now.len() == 3 && !now.contains(&first)
            })
            .await;
            assert!(!waiter.is_finished(), "{protocol}: four of three");
            assert_eq!(other.release().await.unwrap(), Release::Released);
            let all = in_time(waiter).await.unwrap();
            assert!(all.len() == 3 && all.iter().all(|lease| lease.is_held()), "{protocol}: {all:?}");
            release(all).await;
        }
    }
}
