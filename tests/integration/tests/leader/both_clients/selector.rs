//! Curator's `TestLeaderSelector`, `TestLeaderSelectorParticipants` and `TestLeaderSelectorWithExecutor`.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use curator_framework::{Acl, ConnectionState, Error, LossReason, Permission, RetryForever, RetryNTimes};
use curator_integration::env::{builder, children, connected, eventually, in_time};
use curator_integration::on_every_server;
use curator_recipes::{
    Change, InterProcessMutex, LeaderError, LeaderSelector, LeaderSelectorOptions, LeaderState, Leadership, TermEnd,
    TermOutcome,
};
use curator_test::wire::OpCode;
use tokio::task::JoinSet;

use crate::stage::{LONG, Report, SHORT, Terms, becomes, take_down};

fn selector(client: &curator_framework::CuratorFramework, path: &str, id: &str) -> LeaderSelector {
    LeaderSelector::with_options(client.clone(), path, LeaderSelectorOptions::new().id(id)).unwrap()
}

on_every_server! {
    /// Curator's `TestLeaderSelector.testInterruption`: the task of the term is ended from outside.
    async fn aborted_run_deletes_its_node(env) {
        let (client, path) = (env.client().await, env.path("selector"));
        let (first, second) = (selector(&client, &path, "first"), selector(&client, &path, "second"));
        let mut terms = Terms::new();
        let run = terms.run(&first, "first");
        assert_eq!(terms.begins().await.0, "first");
        let next = terms.run(&second, "second");
        env.wait_for_children(&client, &path, 2).await;
        run.abort();
        assert!(in_time(run).await.unwrap_err().is_cancelled());
        assert_eq!(terms.ends().await, "first");
        assert!(!first.has_leadership());
        assert_eq!(terms.begins().await.0, "second");
        env.wait_for_children(&client, &path, 1).await;
        // A waiter is aborted too, and the object can run again.
        let waiter = terms.run(&first, "first");
        env.wait_for_children(&client, &path, 2).await;
        waiter.abort();
        env.wait_for_children(&client, &path, 1).await;
        next.abort();
        env.wait_for_children(&client, &path, 0).await;
        let outcome = in_time(first.run_once(|_| async { 7 })).await.unwrap();
        assert!(matches!(outcome, TermOutcome::Done(7)), "{outcome:?}");
        env.wait_for_children(&client, &path, 0).await;
    }

    /// Curator's `TestLeaderSelector.testLeaderNodeDeleteOnInterrupt`: the term is interrupted while no server answers.
    async fn interrupt_in_an_outage_deletes_the_node_after_the_reconnect(env) {
        let (proxy, direct, path) = (env.proxy(), env.client().await, env.path("selector"));
        let client = connected(builder(proxy.address()).session_timeout(LONG)).await;
        let selector = selector(&client, &path, "");
        let mut terms = Terms::new();
        let (runner, begin) = (selector.clone(), terms.of(""));
        let (sender, leadership) = tokio::sync::oneshot::channel();
        let term = |leadership: Leadership| {
            sender.send(leadership.clone()).unwrap();
            begin.stay(leadership)
        };
        let run = tokio::spawn(async move { runner.run_once(term).await });
        terms.begins().await;
        // The view of the term, which the caller keeps, does not keep the node.
        let _leadership = in_time(leadership).await.unwrap();
        take_down(&proxy);
        becomes(&client, ConnectionState::Suspended).await;
        assert!(selector.has_leadership() && selector.interrupt_leadership());
        terms.ends().await;
        assert!(!selector.has_leadership());
        env.wait_for_children(&direct, &path, 1).await;
        proxy.accept();
        let outcome = in_time(run).await.unwrap();
        assert!(matches!(outcome, Ok(TermOutcome::Interrupted)), "{outcome:?}");
        env.wait_for_children(&direct, &path, 0).await;
    }

    /// Curator's `TestLeaderSelector.testInterruptLeadershipWithRequeue`: two interrupts in a row.
    async fn interrupted_selector_leads_again_however_often(env) {
        let (client, path) = (env.client().await, env.path("selector"));
        let selector = selector(&client, &path, "");
        let mut terms = Terms::new();
        assert!(!selector.interrupt_leadership());
        let run = terms.run(&selector, "");
        let (_, mut term) = terms.begins().await;
        for pause in [0, 1, 5, 20, 50] {
            assert!(selector.interrupt_leadership());
            tokio::time::sleep(Duration::from_millis(pause)).await;
            // It may lead again already.
            selector.interrupt_leadership();
            let before = term;
            loop {
                match terms.next().await {
                    Report::Began { term: began, .. } => term = began,
                    Report::Ended { .. } => continue,
                }
                tokio::task::yield_now().await;
                if terms.inside() == 1 && selector.has_leadership() {
                    break;
                }
            }
            assert!(term > before);
        }
        in_time(selector.close()).await;
        in_time(run).await.unwrap().unwrap();
        env.wait_for_children(&client, &path, 0).await;
    }

    /// Curator's `TestLeaderSelector.testInterruptLeadership`.
    async fn interrupt_ends_the_term(env) {
        let (client, path) = (env.client().await, env.path("selector"));
        let selector = selector(&client, &path, "");
        let mut terms = Terms::new();
        let (runner, begin) = (selector.clone(), terms.of(""));
        let (sender, leadership) = tokio::sync::oneshot::channel();
        let run = tokio::spawn(async move {
            runner
                .run_once(|leadership| {
                    sender.send(leadership.clone()).unwrap();
                    begin.stay(leadership)
                })
                .await
        });
        terms.begins().await;
        let leadership = in_time(leadership).await.unwrap();
        assert!(selector.has_leadership() && leadership.is_held());
        assert!(selector.interrupt_leadership());
        terms.ends().await;
        let outcome = in_time(run).await.unwrap();
        assert!(matches!(outcome, Ok(TermOutcome::Interrupted)), "{outcome:?}");
        assert!(!selector.has_leadership() && !leadership.is_held() && !selector.interrupt_leadership());
        assert_eq!(in_time(leadership.ended()).await, TermEnd::Resigned);
        env.wait_for_children(&client, &path, 0).await;
    }

    /// Another clone follows the states of the runs.
    async fn states_of_a_selector_follow_its_runs(env) {
        let (client, path) = (env.client().await, env.path("selector"));
        let options = LeaderSelectorOptions::new().back_off(Duration::from_millis(1), Duration::from_millis(1));
        let selector = LeaderSelector::with_options(client.clone(), &path, options).unwrap();
        let (watch, mut changes) = (selector.watch(), selector.changes());
        assert!(matches!(selector.state(), LeaderState::Latent));
        let mut next = async || match in_time(changes.recv()).await {
            Some(Change::Item(state)) => Some(state),
            None => None,
            dropped => panic!("{dropped:?}"),
        };
        let outcome = in_time(selector.run_once(async |leadership| {
            let state = selector.state();
            assert!(matches!(&state, LeaderState::Leading(led) if led.token() == leadership.token()), "{state:?}");
            leadership.token()
        }));
        let TermOutcome::Done(token) = outcome.await.unwrap() else { panic!("the term was lost") };
        assert!(matches!(next().await, Some(LeaderState::Waiting { position: None })));
        let led = next().await;
        assert!(matches!(&led, Some(LeaderState::Leading(led)) if led.token() == token && !led.is_held()), "{led:?}");
        assert!(matches!(next().await, Some(LeaderState::Waiting { position: None })));
        assert!(matches!(next().await, Some(LeaderState::Latent)));

        // A term that fails, and a close in the next one.
        let mut terms = 0;
        let run = selector.run(|_| {
            terms += 1;
            let (closer, fails) = (selector.clone(), terms == 1);
            async move {
                if fails {
                    return Err("the work has failed");
                }
                tokio::spawn(async move { closer.close().await });
                std::future::pending().await
            }
        });
        in_time(run).await.unwrap();
        let mut words = Vec::new();
        while let Some(state) = next().await {
            words.push(format!("{state:?}").split([' ', '(']).next().unwrap().to_owned());
        }
        assert_eq!(words, ["Waiting", "Leading", "Waiting", "Abstaining", "Waiting", "Leading", "Waiting", "Closed"]);
        assert!(matches!(selector.state(), LeaderState::Closed) && matches!(*watch.borrow(), LeaderState::Closed));
    }

    /// Curator's `TestLeaderSelector.testRaceAtStateChanged`: the session ends between the create and the grant, and
    /// the caller gives up.
    async fn session_that_ends_during_the_grant_begins_no_term(env) {
        let (proxy, direct, path) = (env.proxy(), env.client().await, env.path("selector"));
        let options = builder(proxy.address()).session_timeout(SHORT);
        let client = connected(options.retry_policy(RetryForever::new(Duration::from_millis(50)).unwrap())).await;
        let selector = selector(&client, &path, "");
        let mut terms = Terms::new();
        direct.create().creating_parents_if_needed().for_path(&path).await.unwrap();
        proxy.refuse();
        proxy.drop_reply(OpCode::Create2, 1);
        let run = terms.run(&selector, "");
        in_time(proxy.wait_for_faults(1)).await;
        env.wait_for_children(&direct, &path, 1).await;
        becomes(&client, ConnectionState::Lost).await;
        assert!(terms.is_quiet() && !selector.has_leadership());
        run.abort();
        assert!(in_time(run).await.unwrap_err().is_cancelled());
        proxy.accept();
        becomes(&client, ConnectionState::Reconnected).await;
        env.wait_for_children(&direct, &path, 0).await;
        assert!(terms.is_quiet() && !selector.has_leadership());
    }

    /// The same without giving up: the term is one of the next session.
    async fn session_that_ends_during_the_grant_leads_in_the_next_one(env) {
        let (proxy, direct, path) = (env.proxy(), env.client().await, env.path("selector"));
        let options = builder(proxy.address()).session_timeout(SHORT);
        let client = connected(options.retry_policy(RetryForever::new(Duration::from_millis(50)).unwrap())).await;
        let selector = selector(&client, &path, "");
        let mut terms = Terms::new();
        direct.create().creating_parents_if_needed().for_path(&path).await.unwrap();
        proxy.refuse();
        proxy.drop_reply(OpCode::Create2, 1);
        let run = terms.run(&selector, "");
        let old = env.wait_for_children(&direct, &path, 1).await;
        becomes(&client, ConnectionState::Lost).await;
        proxy.accept();
        let Report::Began { path: node, .. } = terms.next().await else { panic!("a term ended") };
        assert!(!node.ends_with(old[0].as_str()), "the node of the old session leads");
        env.wait_for_children(&direct, &path, 1).await;
        run.abort();
    }

    /// Curator's `TestLeaderSelector.testAutoRequeue`.
    async fn selector_leads_again_after_each_term(env) {
        let (client, path) = (env.client().await, env.path("selector"));
        let selector = selector(&client, &path, "");
        let (runner, count) = (selector.clone(), Arc::new(AtomicUsize::new(0)));
        let counter = Arc::clone(&count);
        let run = tokio::spawn(async move {
            runner
                .run(|leadership| {
                    let counter = Arc::clone(&counter);
                    async move {
                        leadership.verify().await?;
                        counter.fetch_add(1, Ordering::SeqCst);
                        Ok::<(), LeaderError>(())
                    }
                })
                .await
        });
        eventually("ten terms", async || count.load(Ordering::SeqCst) >= 10).await;
        in_time(selector.close()).await;
        in_time(run).await.unwrap().unwrap();
        let all = count.load(Ordering::SeqCst);
        env.wait_for_children(&client, &path, 0).await;
        assert_eq!(count.load(Ordering::SeqCst), all);
    }

    /// Curator's `TestLeaderSelector.testServerDying`: the term ends without a server, and the run returns.
    async fn term_ends_although_no_server_is_there(env) {
        let proxy = env.proxy();
        let client = connected(builder(proxy.address()).session_timeout(SHORT)).await;
        let selector = selector(&client, &env.path("selector"), "");
        let mut terms = Terms::new();
        let (runner, begin) = (selector.clone(), terms.of(""));
        let run = tokio::spawn(async move { runner.run_once(|leadership| begin.stay(leadership)).await });
        terms.begins().await;
        take_down(&proxy);
        terms.ends().await;
        becomes(&client, ConnectionState::Lost).await;
        let outcome = in_time(run).await.unwrap();
        assert!(matches!(outcome, Ok(TermOutcome::Lost(LossReason::Session(_)))), "{outcome:?}");
        in_time(selector.close()).await;
    }

    /// Curator's `TestLeaderSelector.testKillSessionThenCloseShouldElectNewLeader`: two selectors of one client.
    async fn close_of_the_leader_behind_a_killed_session_elects_the_other(env) {
        let (client, observer, path) = (env.client().await, env.client().await, env.path("selector"));
        let selectors = [selector(&client, &path, "0"), selector(&client, &path, "1")];
        let mut terms = Terms::new();
        let runs = [terms.run(&selectors[0], "0"), terms.run(&selectors[1], "1")];
        let Report::Began { id, term, path: node } = terms.next().await else { panic!("a term ended") };
        env.wait_for_children(&observer, &path, 2).await;
        env.kill_owner_of(&observer, &node).await;
        assert_eq!(terms.ends().await, id);
        let (id, next) = terms.begins().await;
        assert!(next > term && terms.inside() == 1);
        env.wait_for_children(&observer, &path, 2).await;
        let leader: usize = id.parse().unwrap();
        assert!(selectors[leader].has_leadership() && !selectors[1 - leader].has_leadership());
        in_time(selectors[leader].close()).await;
        assert_eq!(terms.ends().await, id);
        let (id, _) = terms.begins().await;
        assert_eq!((id, terms.inside()), ((1 - leader).to_string(), 1));
        in_time(selectors[1 - leader].close()).await;
        for run in runs {
            in_time(run).await.unwrap().unwrap();
        }
        env.wait_for_children(&observer, &path, 0).await;
    }

    /// Curator's `TestLeaderSelector.testKillServerThenCloseShouldElectNewLeader`: the session outlives the restart of
    /// the server, or it does not.
    async fn close_of_the_leader_behind_a_restart_elects_the_other(env) {
        let env = env.alone();
        let path = env.path("selector");
        let client = connected(builder(env.address()).session_timeout(Duration::from_secs(4))).await;
        let selectors = [selector(&client, &path, "0"), selector(&client, &path, "1")];
        let mut terms = Terms::new();
        let runs = [terms.run(&selectors[0], "0"), terms.run(&selectors[1], "1")];
        terms.begins().await;
        env.wait_for_children(&client, &path, 2).await;
        env.restart().await;
        env.wait_for_children(&client, &path, 2).await;
        let count = || selectors.iter().filter(|one| one.has_leadership()).count();
        eventually("one of them leads", async || count() == 1).await;
        assert!(terms.inside() <= 1);
        let leader = usize::from(selectors[1].has_leadership());
        in_time(selectors[leader].close()).await;
        eventually("the other leads", async || selectors[1 - leader].has_leadership()).await;
        eventually("the other works", async || terms.inside() == 1).await;
        in_time(selectors[1 - leader].close()).await;
        for run in runs {
            in_time(run).await.unwrap().unwrap();
        }
        env.wait_for_children(&client, &path, 0).await;
    }

    /// Curator's `TestLeaderSelector.testClosing`.
    async fn close_of_a_waiter_changes_nothing_and_close_of_the_leader_ends_its_term(env) {
        let (client, path) = (env.client().await, env.path("selector"));
        let selectors = [selector(&client, &path, "0"), selector(&client, &path, "1")];
        let mut terms = Terms::new();
        let runs = [terms.run(&selectors[0], "0"), terms.run(&selectors[1], "1")];
        let (id, _) = terms.begins().await;
        env.wait_for_children(&client, &path, 2).await;
        let (leader, waiter) = (&selectors[usize::from(id == "1")], &selectors[usize::from(id == "0")]);
        assert!(leader.has_leadership() && !waiter.has_leadership());
        in_time(waiter.close()).await;
        in_time(waiter.close()).await;
        env.wait_for_children(&client, &path, 1).await;
        assert!(leader.has_leadership() && !waiter.has_leadership() && terms.is_quiet());
        in_time(leader.close()).await;
        assert_eq!(terms.ends().await, id);
        assert!(!leader.has_leadership() && !waiter.has_leadership());
        for run in runs {
            in_time(run).await.unwrap().unwrap();
        }
        assert_eq!(children(&client, &path).await, [""; 0]);
        let once = in_time(leader.run_once(|_| async {})).await.map(drop);
        for outcome in [once, in_time(terms.run(waiter, "")).await.unwrap()] {
            assert!(matches!(outcome, Err(LeaderError::Closed { .. })), "{outcome:?}");
        }
        assert!(terms.is_quiet());
    }

    /// Curator's `TestLeaderSelector.testRotatingLeadership`.
    async fn selectors_take_turns(env) {
        const SELECTORS: usize = 5;
        const ROUNDS: usize = 3;
        let (clients, path) = ([env.client().await, env.client().await], env.path("selector"));
        let led = Arc::new(parking_lot::Mutex::new(Vec::new()));
        let mut runs = JoinSet::new();
        let mut selectors = Vec::new();
        for number in 0..SELECTORS {
            let client = clients[number % 2].clone();
            let selector = selector(&client, &path, &number.to_string());
            selectors.push(selector.clone());
            let (led, path) = (Arc::clone(&led), path.clone());
            runs.spawn(async move {
                selector
                    .run(|_| {
                        led.lock().push(number);
                        let (client, path) = (client.clone(), path.clone());
                        async move {
                            // The others are behind this one, in the order of their last terms.
                            while children(&client, &path).await.len() != SELECTORS {
                                tokio::time::sleep(Duration::from_millis(10)).await;
                            }
                            Ok::<(), std::convert::Infallible>(())
                        }
                    })
                    .await
            });
        }
        eventually("all rounds are done", async || led.lock().len() >= SELECTORS * ROUNDS).await;
        for selector in selectors {
            in_time(selector.close()).await;
        }
        while let Some(run) = in_time(runs.join_next()).await {
            run.unwrap().unwrap();
        }
        let led = led.lock().clone();
        for round in led.chunks_exact(SELECTORS).take(ROUNDS) {
            let mut numbers = round.to_vec();
            numbers.sort_unstable();
            assert_eq!(numbers, (0..SELECTORS).collect::<Vec<_>>(), "{led:?}");
        }
        env.wait_for_children(&clients[0], &path, 0).await;
    }

    /// Curator's `TestLeaderSelectorParticipants.testId`.
    async fn id_of_a_selector_is_the_data_of_its_node(env) {
        let (client, path) = (env.client().await, env.path("ls"));
        let selector = selector(&client, &path, "A is A");
        assert_eq!(in_time(selector.leader()).await.unwrap(), None);
        let mut terms = Terms::new();
        let _run = terms.run(&selector, "");
        let (_, term) = terms.begins().await;
        let leader = in_time(selector.leader()).await.unwrap().expect("it leads");
        assert!(leader.holds && leader.czxid == term.czxid());
        assert_eq!((leader.id().to_string().as_str(), selector.id()), ("A is A", "A is A"));
        let participants = in_time(selector.participants()).await.unwrap();
        assert_eq!(participants, [leader]);
        let name = participants[0].path.rsplit_once('/').unwrap().1;
        assert!(name.starts_with("_c_") && name.contains("-lock-"), "{name}");
        assert_eq!(participants[0].data, b"A is A");
        // A mutex of the path is in the same queue.
        let mutex = InterProcessMutex::new(client, &path).unwrap();
        assert!(in_time(mutex.try_acquire()).await.unwrap().is_none());
    }

    /// Curator's `TestLeaderSelectorParticipants.testBasic`.
    async fn ten_selectors_see_the_same_participants_and_one_leader(env) {
        let (client, path) = (env.client().await, env.path("ls"));
        let selectors: Vec<_> = (0..10).map(|number| selector(&client, &path, &number.to_string())).collect();
        let mut terms = Terms::new();
        let runs: Vec<_> = selectors.iter().map(|selector| terms.run(selector, selector.id())).collect();
        let (id, _) = terms.begins().await;
        env.wait_for_children(&client, &path, 10).await;
        let participants = in_time(selectors[0].participants()).await.unwrap();
        for selector in &selectors {
            assert_eq!(in_time(selector.participants()).await.unwrap(), participants);
            assert_eq!(selector.has_leadership(), selector.id() == id);
        }
        let leaders: Vec<_> = participants.iter().filter(|one| one.holds).map(|one| one.id().to_string()).collect();
        assert_eq!(leaders, [id]);
        let mut ids: Vec<_> = participants.iter().map(|one| one.id().to_string()).collect();
        ids.sort_unstable();
        assert_eq!(ids, (0..10).map(|number| number.to_string()).collect::<Vec<_>>());
        for run in runs {
            run.abort();
        }
    }

    /// Curator's `TestLeaderSelectorWithExecutor.test`: the terms run where the caller wants, here in another runtime.
    async fn run_of_another_runtime_leads_once(env) {
        let (client, path) = (env.client().await, env.path("selector"));
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let selector = selector(&client, &path, "");
        let mut terms = Terms::new();
        let run = {
            let _inside = runtime.enter();
            terms.run(&selector, "")
        };
        terms.begins().await;
        assert_eq!((terms.inside(), selector.has_leadership()), (1, true));
        assert!(selector.interrupt_leadership());
        terms.ends().await;
        terms.begins().await;
        assert_eq!(terms.inside(), 1);
        // The runtime ends, and its term with it.
        tokio::task::spawn_blocking(move || drop(runtime)).await.unwrap();
        terms.ends().await;
        assert!(in_time(run).await.unwrap_err().is_cancelled());
        assert!(!selector.has_leadership());
        env.wait_for_children(&client, &path, 0).await;
    }

    async fn one_object_runs_once_at_a_time(env) {
        let (client, path) = (env.client().await, env.path("selector"));
        let selector = selector(&client, &path, "");
        let mut terms = Terms::new();
        let run = terms.run(&selector, "");
        terms.begins().await;
        let once = in_time(selector.run_once(|_| async {})).await.map(drop);
        for outcome in [once, in_time(terms.run(&selector, "")).await.unwrap()] {
            assert!(matches!(outcome, Err(LeaderError::AlreadyStarted { .. })), "{outcome:?}");
        }
        assert!(selector.has_leadership() && terms.is_quiet());
        run.abort();
        assert!(in_time(run).await.is_err());
        assert!(matches!(in_time(selector.run_once(|_| async {})).await.unwrap(), TermOutcome::Done(_)));
    }

    async fn deleted_node_ends_the_term_and_the_selector_joins_again(env) {
        let (client, observer, path) = (env.client().await, env.client().await, env.path("selector"));
        let selector = selector(&client, &path, "");
        let mut terms = Terms::new();
        let (runner, begin) = (selector.clone(), terms.of(""));
        let run = tokio::spawn(async move { runner.run_once(|leadership| begin.stay(leadership)).await });
        let Report::Began { path: node, .. } = terms.next().await else { panic!("a term ended") };
        observer.delete().for_path(&node).await.unwrap();
        terms.ends().await;
        let outcome = in_time(run).await.unwrap();
        assert!(matches!(outcome, Ok(TermOutcome::Lost(LossReason::NodeDeleted))), "{outcome:?}");
        let run = terms.run(&selector, "");
        for _ in 0..2 {
            let Report::Began { path: node, .. } = terms.next().await else { panic!("a term ended") };
            observer.delete().for_path(&node).await.unwrap();
            terms.ends().await;
        }
        terms.begins().await;
        in_time(selector.close()).await;
        in_time(run).await.unwrap().unwrap();
    }

    /// Even if its retry policy gives up at once.
    async fn waiting_selector_whose_node_is_deleted_joins_again(env) {
        let (observer, path) = (env.client().await, env.path("selector"));
        let client = connected(builder(env.address()).retry_policy(RetryNTimes::new(0, Duration::ZERO))).await;
        let mut terms = Terms::new();
        let first = selector(&observer, &path, "first");
        let holding = terms.run(&first, "first");
        let Report::Began { path: held, .. } = terms.next().await else { panic!("a term ended") };
        let waiter = selector(&client, &path, "waiter");
        let waiting = terms.run(&waiter, "waiter");
        for _ in 0..2 {
            let nodes = env.wait_for_children(&observer, &path, 2).await;
            let node = nodes.iter().find(|node| !held.ends_with(node.as_str())).unwrap().clone();
            observer.delete().for_path(&format!("{path}/{node}")).await.unwrap();
            eventually("the waiter is back", async || {
                let now = children(&observer, &path).await;
                now.len() == 2 && !now.contains(&node)
            })
            .await;
            assert!(!waiting.is_finished());
        }
        in_time(first.close()).await;
        in_time(holding).await.unwrap().unwrap();
        assert_eq!(terms.ends().await, "first");
        assert_eq!(terms.begins().await.0, "waiter");
        in_time(waiter.close()).await;
        in_time(waiting).await.unwrap().unwrap();
    }

    async fn connection_that_is_reset_costs_no_term_of_a_selector(env) {
        let (proxy, path) = (env.proxy(), env.path("selector"));
        let client = connected(builder(proxy.address()).session_timeout(LONG)).await;
        let selector = selector(&client, &path, "");
        let mut terms = Terms::new();
        let _run = terms.run(&selector, "");
        terms.begins().await;
        for _ in 0..3 {
            take_down(&proxy);
            becomes(&client, ConnectionState::Suspended).await;
            proxy.accept();
            becomes(&client, ConnectionState::Reconnected).await;
            in_time(client.check_exists().for_path("/")).await.unwrap();
        }
        assert!(terms.is_quiet() && selector.has_leadership() && terms.inside() == 1);
    }

    /// Curator's selector tries again at once, forever.
    async fn refused_selector_returns_the_error(env) {
        let (admin, client, path) = (env.client().await, env.client().await, env.path("selector"));
        let read_only = vec![Acl::new(Permission::READ | Permission::ADMIN, "world", "anyone")];
        admin.create().creating_parents_if_needed().with_acl(read_only).for_path(&path).await.unwrap();
        let selector = selector(&client, &path, "");
        let (mut terms, mut changes) = (Terms::new(), selector.changes());
        for _ in 0..2 {
            let outcome = in_time(terms.run(&selector, "")).await.unwrap();
            assert!(matches!(outcome, Err(LeaderError::Framework(Error::NoAuth { .. }))), "{outcome:?}");
            assert!(matches!(in_time(changes.recv()).await, Some(Change::Item(LeaderState::Waiting { .. }))));
            assert!(matches!(in_time(changes.recv()).await, Some(Change::Item(LeaderState::Failed(_)))));
            assert!(matches!(in_time(changes.recv()).await, Some(Change::Item(LeaderState::Latent))));
        }
        assert!(terms.is_quiet());
        admin.set_acl().with_acl(Acl::open_unsafe()).for_path(&path).await.unwrap();
        let run = terms.run(&selector, "");
        terms.begins().await;
        in_time(client.close()).await;
        terms.ends().await;
        let outcome = in_time(run).await.unwrap();
        assert!(matches!(outcome, Err(LeaderError::Framework(Error::Closed))), "{outcome:?}");
    }

    async fn term_that_panics_leaves_no_node(env) {
        let (client, path) = (env.client().await, env.path("selector"));
        let selector = selector(&client, &path, "");
        for is_in_the_closure in [true, false] {
            let runner = selector.clone();
            let run = tokio::spawn(async move {
                let term = |_| {
                    if is_in_the_closure {
                        std::panic::resume_unwind(Box::new("a term that fails"));
                    }
                    async { std::panic::resume_unwind(Box::new("a term that fails")) }
                };
                runner.run_once::<(), _>(term).await
            });
            assert!(in_time(run).await.unwrap_err().is_panic());
            assert!(!selector.has_leadership());
            env.wait_for_children(&client, &path, 0).await;
        }
        let outcome = in_time(selector.run_once(|_| async {})).await;
        assert!(matches!(outcome, Ok(TermOutcome::Done(()))), "{outcome:?}");
    }

    /// The future of a run is dropped at any moment: in the queue, at the grant, in the term.
    async fn dropped_run_leaves_no_node(env) {
        let (client, path) = (env.client().await, env.path("selector"));
        let selector = selector(&client, &path, "");
        client.create().creating_parents_if_needed().for_path(&path).await.unwrap();
        for micros in (0..8000).step_by(400) {
            let run = selector.run_once(|_| std::future::pending::<()>());
            let outcome = tokio::time::timeout(Duration::from_micros(micros), run).await;
            assert!(outcome.is_err(), "{outcome:?}");
            assert!(!selector.has_leadership());
            env.wait_for_children(&client, &path, 0).await;
        }
        curator_integration::env::answered(std::slice::from_ref(&client)).await;
        assert_eq!(children(&client, &path).await, [""; 0]);
    }
}
