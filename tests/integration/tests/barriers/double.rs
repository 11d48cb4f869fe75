//! Double barriers on both servers.

use std::time::Duration;

use curator_framework::{LossReason, SessionEnd, Zxid};
use curator_integration::env::{builder, children, connected, eventually, in_time};
use curator_integration::on_every_server;
use curator_recipes::{BarrierError, DistributedDoubleBarrier, DoubleBarrierOptions};
use curator_test::kill_session;
use futures_util::future::{join, join_all};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::double_stage::{LONG, all_enter, all_leave, barrier};

on_every_server! {
    /// Curator's `TestDistributedDoubleBarrier.testBasic`.
    async fn members_enter_together_and_leave_together(env) {
        let (client, path) = (env.client().await, env.path("barrier"));
        let (one, two) = (barrier(&client, &path, 2), barrier(&env.client().await, &path, 2));
        let mut first = tokio::spawn(async move { one.enter().await.unwrap() });
        env.wait_for_children(&client, &path, 1).await;
        assert!(!first.is_finished());
        let second = in_time(two.enter()).await.unwrap();
        let first = in_time(&mut first).await.unwrap();
        assert!(first.is_held() && second.is_held());
        assert_eq!((first.has_opened(), second.has_opened()), (false, true));
        assert_eq!(in_time(first.round()).await.unwrap(), in_time(second.round()).await.unwrap());
        let mut leaving = tokio::spawn(async move { first.leave().await.unwrap() });
        env.wait_for_children(&client, &path, 2).await;
        assert!(!leaving.is_finished());
        assert_eq!(in_time(second.leave()).await.unwrap().died, 0);
        assert_eq!(in_time(&mut leaving).await.unwrap().died, 0);
        assert_eq!(children(&client, &path).await, [""; 0]);
    }

    async fn five_members_go_through_a_hundred_rounds(env) {
        let path = env.path("barrier");
        let mut members = JoinSet::new();
        for _ in 0..5 {
            let barrier = barrier(&env.client().await, &path, 5);
            members.spawn(async move {
                let (mut rounds, mut led) = (Vec::new(), 0);
                for _ in 0..100 {
                    let member = in_time(barrier.enter()).await.unwrap();
                    led += usize::from(member.has_opened());
                    rounds.push(in_time(member.round()).await.unwrap());
                    assert_eq!(in_time(member.leave()).await.unwrap().died, 0);
                }
                (rounds, led)
            });
        }
        let all = members.join_all().await;
        assert!(all.iter().all(|(rounds, _)| *rounds == all[0].0), "{all:?}");
        assert!(all[0].0.is_sorted_by(|one, next| one < next));
        assert_eq!(all.iter().map(|(_, led)| led).sum::<usize>(), 100);
    }

    async fn member_whose_budget_ends_counts_no_longer(env) {
        let (client, path) = (env.client().await, env.path("barrier"));
        let (one, two) = (barrier(&client, &path, 2), barrier(&env.client().await, &path, 2));
        for budget in [Duration::ZERO, Duration::from_millis(300)] {
            assert!(in_time(one.enter_timeout(budget)).await.unwrap().is_none());
            assert_eq!(children(&client, &path).await, [""; 0]);
            assert!(in_time(two.enter_timeout(budget)).await.unwrap().is_none());
        }
        assert_eq!(children(&client, &path).await, [""; 0]);
        all_leave(all_enter([&one, &two]).await).await;
    }

    async fn stale_ready_lets_no_member_in_alone(env) {
        let (client, path) = (env.client().await, env.path("barrier"));
        client.create().creating_parents_if_needed().for_path(&format!("{path}/ready")).await.unwrap();
        let barriers = [barrier(&client, &path, 2), barrier(&env.client().await, &path, 2)];
        assert!(in_time(barriers[0].enter_timeout(Duration::from_millis(300))).await.unwrap().is_none());
        client.create().creating_parents_if_needed().for_path(&format!("{path}/ready")).await.unwrap();
        all_leave(all_enter(&barriers).await).await;
        assert_eq!(children(&client, &path).await, [""; 0]);
    }

    /// Curator's `TestDistributedDoubleBarrier.testOverSubscribed`.
    async fn sixth_of_five_members_enters_the_same_round(env) {
        let path = env.path("barrier");
        let mut members = JoinSet::new();
        for _ in 0..6 {
            let barrier = barrier(&env.client().await, &path, 5);
            members.spawn(async move {
                let member = in_time(barrier.enter()).await.unwrap();
                let round = in_time(member.round()).await.unwrap();
                (member, round)
            });
        }
        let entered = members.join_all().await;
        assert!(entered.iter().all(|(_, round)| *round == entered[0].1), "{entered:?}");
        all_leave(entered.into_iter().map(|(member, _)| member).collect()).await;
    }

    /// Curator at its head lets those that are late by more than the leavers need wait forever.
    async fn late_member_of_fast_leavers_gets_in_and_out(env) {
        let path = env.path("barrier");
        let mut members = JoinSet::new();
        for number in 0..5 {
            let barrier = barrier(&env.client().await, &path, 5);
            members.spawn(async move {
                if number == 0 {
                    sleep(Duration::from_millis(300)).await;
                }
                let member = barrier.enter_timeout(LONG).await.unwrap().unwrap();
                assert_eq!(member.leave_timeout(LONG).await.unwrap().unwrap().died, 0);
            });
        }
        in_time(members.join_all()).await;
    }

    /// Curator lets a timed caller through at any wake-up (CURATOR-1290 of GitHub).
    async fn wake_ups_let_no_timed_caller_through(env) {
        let (client, path) = (env.client().await, env.path("barrier"));
        let proxy = env.proxy();
        let barriers = [barrier(&connected(builder(proxy.address())).await, &path, 3), barrier(&client, &path, 3)];
        let waits = join_all(barriers.iter().map(|barrier| barrier.enter_timeout(Duration::from_secs(1))));
        let disturb = async {
            env.wait_for_children(&client, &path, 2).await;
            proxy.reset();
            for _ in 0..20 {
                client.set_data().for_path(&path, "9").await.unwrap();
                sleep(Duration::from_millis(10)).await;
            }
            proxy.reset();
        };
        let (entered, ()) = in_time(join(waits, disturb)).await;
        assert!(entered.into_iter().all(|entered| entered.unwrap().is_none()));
        assert_eq!(children(&client, &path).await, [""; 0]);
    }

    async fn member_that_stops_waiting_for_leavers_has_left(env) {
        let (client, path) = (env.client().await, env.path("barrier"));
        let barriers = [barrier(&client, &path, 2), barrier(&env.client().await, &path, 2)];
        let mut members = all_enter(&barriers).await;
        let (second, first) = (members.remove(1), members.remove(0));
        for budget in [Duration::ZERO, Duration::from_millis(200)] {
            assert!(in_time(first.leave_timeout(budget)).await.unwrap().is_none());
            assert!(!first.is_held() && second.is_held());
        }
        assert_eq!(children(&client, &path).await.len(), 2);
        assert_eq!(in_time(second.leave()).await.unwrap().died, 0);
        // A further call reports the end.
        assert_eq!(in_time(first.leave_timeout(Duration::ZERO)).await.unwrap().unwrap().died, 0);
        assert_eq!(children(&client, &path).await, [""; 0]);
    }

    /// In Curator the others wait forever for a member that has died while it waited.
    async fn members_that_leave_do_not_wait_for_the_dead(env) {
        let (client, path) = (env.client().await, env.path("barrier"));
        let mut barriers = Vec::new();
        for id in ["ann", "bob", "cat", "dan"] {
            let options = DoubleBarrierOptions::new().id(id);
            let client = env.client().await;
            barriers.push(DistributedDoubleBarrier::with_options(client, &path, 4, options).unwrap());
        }
        let mut members = all_enter(&barriers).await;
        let dead = members.remove(1);
        let mut told: Vec<_> = members.iter().map(|member| Box::pin(member.member_lost())).collect();
        for told in &mut told {
            assert!(futures_util::poll!(told).is_pending());
        }
        env.wait_for_children(&client, &path, 5).await;
        let node = in_time(barriers[0].members()).await.unwrap().into_iter().find(|one| one.id == "bob").unwrap();
        kill_session(env.address(), node.session.unwrap().get()).await.unwrap();
        assert_eq!(in_time(dead.lost()).await, LossReason::Session(SessionEnd::Expired));
        drop(told);
        assert!(!dead.is_held());
        assert_eq!(all_leave(members).await, [1; 3]);
        assert_eq!(children(&client, &path).await, [""; 0]);
    }

    async fn death_while_others_wait_in_leave_ends_their_wait(env) {
        let (client, path) = (env.client().await, env.path("barrier"));
        let barriers = [barrier(&client, &path, 3), barrier(&env.client().await, &path, 3), barrier(&env.client().await, &path, 3)];
        let mut members = all_enter(&barriers).await;
        let dead = members.pop().unwrap();
        let leaving = tokio::spawn(all_leave(members));
        env.wait_for_children(&client, &path, 2).await;
        let node = in_time(barriers[0].members()).await.unwrap();
        kill_session(env.address(), node[0].session.unwrap().get()).await.unwrap();
        assert_eq!(in_time(leaving).await.unwrap(), [1; 2]);
        let lost = in_time(dead.leave()).await;
        assert!(matches!(lost, Err(BarrierError::Lost { reason: LossReason::Session(_), .. })), "{lost:?}");
        assert_eq!(children(&client, &path).await, [""; 0]);
    }

    async fn dropped_member_and_dropped_waits_leave_no_node(env) {
        let (client, path) = (env.client().await, env.path("barrier"));
        let barriers = [barrier(&client, &path, 2), barrier(&env.client().await, &path, 2)];
        for _ in 0..3 {
            let entering = barriers[0].clone();
            let entering = tokio::spawn(async move { drop(entering.enter().await) });
            env.wait_for_children(&client, &path, 1).await;
            entering.abort();
            env.wait_for_children(&client, &path, 0).await;
        }
        let mut members = all_enter(&barriers).await;
        drop(members.pop());
        env.wait_for_children(&client, &path, 2).await;
        assert_eq!(all_leave(members).await, [1]);
        assert_eq!(children(&client, &path).await, [""; 0]);
        drop(all_enter(&barriers).await);
        // `ready` is left alone, and stale.
        env.wait_for_children(&client, &path, 1).await;
        assert!(in_time(barriers[0].enter_timeout(Duration::from_millis(200))).await.unwrap().is_none());
    }

    async fn quorum_opens_after_its_grace_and_later_members_join(env) {
        let (client, path) = (env.client().await, env.path("barrier"));
        let grace = Duration::from_millis(400);
        let options = DoubleBarrierOptions::new().quorum(2, grace);
        let with = |client| DistributedDoubleBarrier::with_options(client, &path, 3, options.clone()).unwrap();
        let barriers = [with(client.clone()), with(env.client().await), with(env.client().await)];
        // One is not a quorum.
        assert!(in_time(barriers[0].enter_timeout(grace * 2)).await.unwrap().is_none());
        let began = Instant::now();
        let mut members = all_enter(&barriers[..2]).await;
        assert!(began.elapsed() >= grace, "{:?}", began.elapsed());
        let late = in_time(barriers[2].enter()).await.unwrap();
        assert_eq!(in_time(late.round()).await.unwrap(), in_time(members[0].round()).await.unwrap());
        assert!(!late.has_opened());
        members.push(late);
        assert_eq!(all_leave(members).await, [0, 0, 0]);
        // All three need no grace.
        let began = Instant::now();
        let long = DoubleBarrierOptions::new().quorum(2, LONG * 2);
        let with = |client| DistributedDoubleBarrier::with_options(client, &path, 3, long.clone()).unwrap();
        let barriers = [with(client.clone()), with(env.client().await), with(env.client().await)];
        all_leave(all_enter(&barriers).await).await;
        assert!(began.elapsed() < LONG);
        assert_eq!(children(&client, &path).await, [""; 0]);
    }

    async fn death_ahead_of_a_late_member_is_reported(env) {
        let (client, path) = (env.client().await, env.path("barrier"));
        let options = DoubleBarrierOptions::new().quorum(3, Duration::from_millis(50));
        let mut barriers = Vec::new();
        for _ in 0..4 {
            barriers.push(DistributedDoubleBarrier::with_options(env.client().await, &path, 4, options.clone()).unwrap());
        }
        let late = barriers.pop().unwrap();
        let mut members = all_enter(&barriers).await;
        drop(members.pop());
        env.wait_for_children(&client, &path, 3).await;
        members.push(in_time(late.enter()).await.unwrap());
        assert_eq!(all_leave(members).await, [1, 1, 0]);
    }

    async fn node_deleted_by_another_client_is_created_again_while_its_member_waits(env) {
        let (client, path) = (env.client().await, env.path("barrier"));
        let waiting = barrier(&env.client().await, &path, 2);
        let mut waiting = tokio::spawn(async move { waiting.enter().await.unwrap() });
        let node = env.wait_for_children(&client, &path, 1).await.remove(0);
        client.delete().for_path(&format!("{path}/{node}")).await.unwrap();
        eventually("another node stands", async || {
            children(&client, &path).await.first().is_some_and(|name| *name != node)
        })
        .await;
        let other = in_time(barrier(&client, &path, 2).enter()).await.unwrap();
        let first = in_time(&mut waiting).await.unwrap();
        // A member that has entered is notified.
        let node = in_time(other.round()).await.unwrap();
        assert!(node > Zxid::new(0) && first.is_held());
        let names = children(&client, &path).await;
        let own = format!("{other:?}");
        let own = names.iter().find(|name| own.contains(*name)).unwrap();
        env.client().await.delete().for_path(&format!("{path}/{own}")).await.unwrap();
        assert_eq!(in_time(other.lost()).await, LossReason::NodeDeleted);
        let lost = in_time(other.leave()).await;
        assert!(matches!(lost, Err(BarrierError::Lost { reason: LossReason::NodeDeleted, .. })), "{lost:?}");
        assert_eq!(in_time(first.leave()).await.unwrap().died, 1);
        assert_eq!(children(&client, &path).await, [""; 0]);
    }

    async fn arguments_that_cannot_work_are_refused(env) {
        let client = env.client().await;
        // The children of the root would count as members.
        let root = DistributedDoubleBarrier::new(client.clone(), "/", 2);
        assert!(matches!(root, Err(BarrierError::InvalidArgument { argument: "path", .. })), "{root:?}");
        let none = DistributedDoubleBarrier::new(client.clone(), env.path("barrier"), 0);
        assert!(matches!(none, Err(BarrierError::InvalidArgument { argument: "member_qty", .. })), "{none:?}");
        assert!(DistributedDoubleBarrier::new(client.clone(), "barrier", 2).is_err());
        for least in [0, 3] {
            let options = DoubleBarrierOptions::new().quorum(least, LONG);
            let refused = DistributedDoubleBarrier::with_options(client.clone(), env.path("barrier"), 2, options);
            assert!(matches!(refused, Err(BarrierError::InvalidArgument { argument: "quorum", .. })), "{refused:?}");
        }
    }

    async fn members_are_listed_in_the_order_of_their_arrival(env) {
        let (client, path) = (env.client().await, env.path("barrier"));
        let options = |id: &str| DoubleBarrierOptions::new().id(id);
        let observer = barrier(&client, &path, 3);
        assert_eq!(in_time(observer.members()).await.unwrap(), []);
        let mut members = JoinSet::new();
        for (number, id) in ["ann", "bob", "cat"].into_iter().enumerate() {
            let one = DistributedDoubleBarrier::with_options(env.client().await, &path, 3, options(id)).unwrap();
            members.spawn(async move { one.enter().await.unwrap() });
            env.wait_for_children(&client, &path, number + 1 + usize::from(number == 2)).await;
        }
        let arrived = in_time(observer.members()).await.unwrap();
        assert_eq!(arrived.iter().map(|one| one.id.as_str()).collect::<Vec<_>>(), ["ann", "bob", "cat"]);
        let members = in_time(members.join_all()).await;
        assert!(in_time(members.into_iter().next().unwrap().leave_timeout(LONG / 100)).await.unwrap().is_none());
    }
}
