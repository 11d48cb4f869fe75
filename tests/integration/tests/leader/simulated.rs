//! Elections under a simulated network and paused time: moments are exact.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use curator_framework::recipe::RecipeClient as _;
use curator_framework::{CreateMode, CuratorFramework, Zxid};
use curator_integration::env::tasks;
use curator_integration::simulated_stage::{LATENCY, ONE, PATIENCE, SESSION, TWO, client, play, soon, until};
use curator_recipes::{
    Change, FencingToken, InterProcessMutex, LeaderError, LeaderLatch, LeaderSelector, LeaderSelectorOptions,
    LeaderState, Leadership, TermEnd, TermOutcome,
};
use curator_test::{ClientId, SimulatedEnsemble};
use tokio::time::{Instant, sleep, timeout};

use crate::stage::{leaders, named, started};

const PATH: &str = "/election";

async fn leads(latch: &LeaderLatch) -> Leadership {
    soon(latch.leading()).await.unwrap()
}

/// Closes each leader. The numbers of the terms do not fall, and no node is left.
async fn all_lead_in_turn(
    ensemble: &SimulatedEnsemble,
    mut latches: Vec<LeaderLatch>,
    mut term: FencingToken,
    what: &str,
) {
    while !latches.is_empty() {
        until("one leads", || leaders(&latches).len() == 1).await;
        let latch = latches.remove(leaders(&latches)[0]);
        let next = leads(&latch).await.token();
        assert!(next >= term, "{what}: {next} behind {term}");
        term = next;
        soon(latch.close()).await;
    }
    assert_eq!(ensemble.children(PATH), [""; 0], "{what}");
}

/// Curator's `TestLeaderLatch.testLeadershipElectionWhenNodeDisappearsAfterChildrenAreRetrieved` (CURATOR-645), for
/// each moment of the join.
#[test]
fn predecessor_that_leaves_at_any_moment_of_a_join_has_one_successor() {
    for millis in 0..120 {
        play(millis, async |ensemble| {
            let (one, two) = (client(&ensemble, ONE).await, client(&ensemble, TWO).await);
            let initial = named(&one, PATH, "initial leader");
            leads(&initial).await;
            let candidates = [named(&two, PATH, "candidate 0"), named(&one, PATH, "candidate 1")];
            sleep(Duration::from_millis(millis)).await;
            initial.close().await;
            until("one candidate leads", || leaders(&candidates).len() == 1).await;
            until("both have nodes", || ensemble.children(PATH).len() == 2).await;
            let leader = leaders(&candidates)[0];
            candidates[leader].close().await;
            leads(&candidates[1 - leader]).await;
            assert_eq!(ensemble.children(PATH).len(), 1, "after {millis} ms");
        });
    }
}

/// Curator's `TestLeaderLatch.testResetRace` and `testCreateDeleteRace`, for each moment of the join.
#[test]
fn latch_leaves_one_node_or_none_at_any_moment_of_its_join() {
    for millis in 0..100 {
        play(millis, async |ensemble| {
            let one = client(&ensemble, ONE).await;
            // A path that is there, and one that is not.
            if millis % 2 == 0 {
                one.create().for_path(PATH).await.unwrap();
            }
            let before = tasks();
            let latch = started(&one, PATH);
            sleep(Duration::from_millis(millis / 2)).await;
            latch.abstain(Duration::ZERO);
            until("one node is left, which leads", || {
                let nodes = ensemble.children(PATH);
                latch.leadership().is_some_and(|term| nodes.len() == 1 && term.node_path().ends_with(&nodes[0]))
            })
            .await;
            soon(latch.close()).await;
            assert_eq!(ensemble.children(PATH), [""; 0], "after {millis} ms");

            let latch = started(&one, PATH);
            sleep(Duration::from_millis(millis / 2)).await;
            soon(latch.close()).await;
            sleep(SESSION * 2).await;
            assert_eq!(ensemble.children(PATH), [""; 0], "after {millis} ms");
            drop(latch);
            let dropped = started(&one, PATH);
            sleep(Duration::from_millis(millis / 2)).await;
            drop(dropped);
            sleep(SESSION * 2).await;
            assert_eq!((ensemble.children(PATH), one.watchers()), (vec![], 0), "after {millis} ms");
            assert!(tasks() <= before, "{} tasks, not {before}", tasks());
        });
    }
}

/// A term has ended at three quarters of the session's timeout, and the next leader starts behind it.
#[test]
fn term_is_over_before_the_next_one_begins() {
    for seed in 0..20 {
        play(seed, async |ensemble| {
            let (one, two) = (client(&ensemble, ONE).await, client(&ensemble, TWO).await);
            let (first, second) = (started(&one, PATH), LeaderLatch::new(two, PATH).unwrap());
            let old = leads(&first).await;
            second.start().unwrap();
            until("the second waits", || ensemble.children(PATH).len() == 2).await;
            sleep(Duration::from_millis(seed * 137)).await;
            ensemble.partition(ONE);
            let cut = Instant::now();
            while !second.has_leadership() {
                assert!(cut.elapsed() < SESSION * 3, "the second waits for ever");
                if old.is_held() {
                    assert!(old.remaining() <= SESSION * 3 / 4);
                } else {
                    assert!(cut.elapsed() <= SESSION * 3 / 4, "seed {seed}: over after {:?}", cut.elapsed());
                    break;
                }
                sleep(Duration::from_millis(1)).await;
            }
            assert!(!old.is_held() && !first.has_leadership(), "seed {seed}: two leaders");
            assert!(matches!(soon(old.ended()).await, TermEnd::Lost(_)));
            let new = leads(&second).await;
            assert!(new.token() > old.token());
            ensemble.repair(ONE);
            until("the first waits again", || ensemble.children(PATH).len() == 2).await;
            assert!(new.is_held() && !first.has_leadership());
        });
    }
}

/// The term of a selector is dropped at the deadline, even if its work continues.
#[test]
fn run_is_cancelled_at_the_deadline() {
    struct Inside(Arc<AtomicUsize>);
    impl Drop for Inside {
        fn drop(&mut self) {
            self.0.fetch_sub(1, Ordering::SeqCst);
        }
    }
    for seed in 0..20 {
        play(seed, async |ensemble| {
            let inside = Arc::new(AtomicUsize::new(0));
            let begun = Arc::new(AtomicUsize::new(0));
            let mut runs = Vec::new();
            for id in [ONE, TWO] {
                let selector = LeaderSelector::new(client(&ensemble, id).await, PATH).unwrap();
                let (inside, begun) = (Arc::clone(&inside), Arc::clone(&begun));
                runs.push(tokio::spawn(async move {
                    selector
                        .run(|_| {
                            let (inside, begun) = (Arc::clone(&inside), Arc::clone(&begun));
                            async move {
                                assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two terms at once");
                                let _inside = Inside(inside);
                                begun.fetch_add(1, Ordering::SeqCst);
                                std::future::pending::<()>().await;
                                Ok::<(), std::convert::Infallible>(())
                            }
                        })
                        .await
                }));
                until("it is in the queue", || ensemble.children(PATH).len() == runs.len()).await;
            }
            for cut in [ONE, TWO, ONE] {
                let terms = begun.load(Ordering::SeqCst);
                sleep(Duration::from_millis(seed * 211)).await;
                ensemble.partition(cut);
                let at = Instant::now();
                until("the term is over", || inside.load(Ordering::SeqCst) == 0).await;
                assert!(at.elapsed() <= SESSION * 3 / 4, "seed {seed}: dropped after {:?}", at.elapsed());
                until("the next one begins", || begun.load(Ordering::SeqCst) == terms + 1).await;
                ensemble.repair(cut);
                until("the old one is back", || ensemble.children(PATH).len() == 2).await;
            }
            assert!(runs.iter().all(|run| !run.is_finished()));
        });
    }
}

/// The pause behind a failed term grows, and a term that succeeds ends it. Each term is one create.
#[test]
fn failing_terms_are_paced_and_succeeding_ones_are_not() {
    play(1, async |ensemble| {
        let options = LeaderSelectorOptions::new().back_off(Duration::from_secs(1), Duration::from_secs(8));
        let one = client(&ensemble, ONE).await;
        // Not a container: the server would delete it between two terms, and count from 0 again.
        one.create().for_path(PATH).await.unwrap();
        let selector = LeaderSelector::with_options(one, PATH, options).unwrap();
        let (terms, fails) = (Arc::new(AtomicUsize::new(0)), Arc::new(std::sync::atomic::AtomicBool::new(true)));
        let (runner, counter, failing) = (selector.clone(), Arc::clone(&terms), Arc::clone(&fails));
        let run = tokio::spawn(async move {
            runner
                .run(|leadership| {
                    let (counter, failing) = (Arc::clone(&counter), Arc::clone(&failing));
                    async move {
                        let number: usize = leadership.node_path().rsplit_once('-').unwrap().1.parse().unwrap();
                        assert_eq!(number, counter.fetch_add(1, Ordering::SeqCst), "one create a term");
                        if failing.load(Ordering::SeqCst) { Err("not today") } else { Ok(()) }
                    }
                })
                .await
        });
        sleep(Duration::from_secs(100)).await;
        let failed = terms.load(Ordering::SeqCst);
        // 1, 2, 4 s, then 8 s each: some 15 terms, with jitter up to twice as many.
        assert!((8..=40).contains(&failed), "{failed} terms in 100 s");
        assert!(!run.is_finished(), "the error of a term is not the error of the run");
        fails.store(false, Ordering::SeqCst);
        sleep(Duration::from_secs(10)).await;
        let before = terms.load(Ordering::SeqCst);
        sleep(Duration::from_secs(10)).await;
        let succeeded = terms.load(Ordering::SeqCst) - before;
        assert!(succeeded > 50, "{succeeded} terms in 10 s");
        // A close does not wait for the end of the pause.
        fails.store(true, Ordering::SeqCst);
        sleep(Duration::from_secs(30)).await;
        soon(selector.close()).await;
        soon(run).await.unwrap().unwrap();
    });
}

/// A leader and a waiter wake the runtime hardly more often than a holder of a mutex and its waiter, also in an outage.
#[test]
fn standing_latch_is_quiet() {
    let wakes = || tokio::runtime::Handle::current().metrics().worker_park_count(0);
    let minutes = Duration::from_secs(300);
    let measure = async || {
        let before = wakes();
        sleep(minutes).await;
        (wakes() - before) / minutes.as_secs()
    };
    let [mutex, latch] = [false, true].map(|is_latch| {
        play(2, async |ensemble| {
            let (one, two) = (client(&ensemble, ONE).await, client(&ensemble, TWO).await);
            let latches = [&one, &two].map(|client| LeaderLatch::new(client.clone(), PATH).unwrap());
            let mutexes = [&one, &two].map(|client| InterProcessMutex::new(client.clone(), PATH).unwrap());
            let mut guard = None;
            if is_latch {
                latches.iter().for_each(|latch| latch.start().unwrap());
            } else {
                guard = Some(mutexes[0].acquire().await.unwrap());
                let waiter = mutexes[1].clone();
                tokio::spawn(async move { waiter.acquire().await.map(drop) });
            }
            until("both are in the queue", || ensemble.children(PATH).len() == 2).await;
            let standing = measure().await;
            ensemble.partition(ONE);
            if !is_latch {
                // The latch joins again; so does this one.
                let mutex = mutexes[0].clone();
                tokio::spawn(async move { while mutex.acquire().await.is_err() {} });
            }
            let away = measure().await;
            drop(guard);
            (standing, away)
        })
    });
    println!("wake-ups a second, connected and away: {mutex:?} for a mutex, {latch:?} for a latch");
    assert!(latch.0 <= mutex.0 + 5 && latch.1 <= mutex.1 + 5, "{latch:?}, not {mutex:?}");
}

/// The drop of the last handle ends the session: the latch's own task keeps no client alive.
#[test]
fn task_of_a_latch_does_not_keep_its_client() {
    play(3, async |ensemble| {
        let before = tasks();
        let one = client(&ensemble, ONE).await;
        let latch = started(&one, PATH);
        let leadership = leads(&latch).await;
        drop(one);
        drop(latch);
        until("the session is closed", || ensemble.sessions().is_empty()).await;
        assert!(!leadership.is_held());
        assert_eq!(ensemble.children(PATH), [""; 0]);
        drop(leadership);
        until("all tasks have ended", || tasks() <= before).await;
    });
}

/// The sequence of states of a latch through an outage.
#[test]
fn states_of_an_outage_are_told_in_order() {
    play(4, async |ensemble| {
        let one = client(&ensemble, ONE).await;
        let latch = LeaderLatch::new(one, PATH).unwrap();
        let mut changes = latch.changes();
        latch.start().unwrap();
        let old = leads(&latch).await;
        ensemble.partition(ONE);
        soon(old.lost()).await;
        ensemble.repair(ONE);
        let new = leads(&latch).await;
        soon(latch.close()).await;
        let mut told = Vec::new();
        while let Some(change) = soon(changes.recv()).await {
            match change {
                Change::Item(LeaderState::Leading(leadership)) => told.push(leadership.token()),
                Change::Item(_) => {}
                Change::Dropped(count) => panic!("{count} were dropped"),
            }
        }
        assert_eq!(told, [old.token(), new.token()]);
    });
}

/// A run reports what ended it, and its errors.
#[test]
fn outcomes_of_a_run() {
    play(5, async |ensemble| {
        let (one, two) = (client(&ensemble, ONE).await, client(&ensemble, TWO).await);
        let selector = LeaderSelector::new(one.clone(), PATH).unwrap();
        let done = soon(selector.run_once(|leadership| async move { leadership.token() })).await.unwrap();
        assert!(matches!(done, TermOutcome::Done(token) if token.czxid() > Zxid::new(0)), "{done:?}");
        let lost = soon(selector.run_once(|leadership| async move {
            ensemble_delete(&two, leadership.node_path()).await;
            std::future::pending::<()>().await;
        }));
        let lost = lost.await.unwrap();
        assert!(matches!(lost, TermOutcome::Lost(curator_framework::LossReason::NodeDeleted)), "{lost:?}");
        one.close().await;
        let closed = soon(selector.run_once(|_| async {})).await;
        assert!(matches!(closed, Err(LeaderError::Framework(curator_framework::Error::Closed))), "{closed:?}");
    });
}

async fn ensemble_delete(client: &CuratorFramework, path: &str) {
    client.delete().for_path(path).await.unwrap();
}

/// Changes that are not read are counted, and the newest 128 are kept.
#[test]
fn unread_changes_are_dropped_with_a_marker() {
    play(6, async |ensemble| {
        let latch = LeaderLatch::new(client(&ensemble, ONE).await, PATH).unwrap();
        let (mut unread, mut read) = (latch.changes(), latch.changes());
        let reader = tokio::spawn(async move {
            let mut all = Vec::new();
            while let Some(change) = read.recv().await {
                match change {
                    Change::Item(state) => all.push(state),
                    Change::Dropped(count) => panic!("{count} were dropped although all are read"),
                }
            }
            all
        });
        latch.start().unwrap();
        for _ in 0..100 {
            leads(&latch).await;
            assert!(soon(latch.resign()).await.unwrap().is_some());
        }
        let last = leads(&latch).await.token();
        soon(latch.close()).await;
        let (mut kept, mut dropped) = (Vec::new(), 0);
        while let Some(change) = soon(unread.recv()).await {
            match change {
                Change::Item(state) => kept.push(state),
                Change::Dropped(count) => {
                    assert!(kept.is_empty(), "the marker stands before what was kept");
                    dropped += usize::try_from(count).unwrap();
                }
            }
        }
        let all = soon(reader).await.unwrap();
        assert_eq!((kept.len(), kept.len() + dropped), (128, all.len()));
        assert!(matches!(kept.last(), Some(LeaderState::Closed)), "{kept:?}");
        let term = |state: &LeaderState| match state {
            LeaderState::Leading(leadership) => Some(leadership.token()),
            _ => None,
        };
        let (led, newest): (Vec<_>, Vec<_>) =
            (all.iter().filter_map(term).collect(), kept.iter().filter_map(term).collect());
        assert!(led.len() == 101 && led.is_sorted_by(|one, next| one < next), "{led:?}");
        assert!(newest.last() == Some(&last) && led.ends_with(&newest), "{newest:?}");
    });
}

/// A time that has ended before the task has seen it counts too.
#[test]
fn leader_that_abstains_for_no_time_resigns() {
    play(7, async |ensemble| {
        let (one, two) = (client(&ensemble, ONE).await, client(&ensemble, TWO).await);
        let first = started(&one, PATH);
        let leadership = leads(&first).await;
        let second = started(&two, PATH);
        until("both are in the queue", || ensemble.children(PATH).len() == 2).await;
        first.abstain(Duration::ZERO);
        assert_eq!(soon(leadership.ended()).await, TermEnd::Resigned);
        leads(&second).await;
        until("the first is back", || ensemble.children(PATH).len() == 2).await;
        assert!(!first.has_leadership() && second.has_leadership());
    });
}

/// The future of a hand-over is dropped at any moment, or its budget ends there: one latch leads, and nothing is lost.
#[test]
fn hand_over_that_is_given_up_at_any_moment_leaves_one_leader() {
    let mut outcomes = [0; 3];
    for millis in 0..120 {
        let outcome = play(millis, async |ensemble| {
            let (one, two) = (client(&ensemble, ONE).await, client(&ensemble, TWO).await);
            let mut latches = vec![named(&one, PATH, "leader")];
            let old = leads(&latches[0]).await;
            for (client, id) in [(&one, "between"), (&two, "chosen")] {
                latches.push(named(client, PATH, id));
                until("it is in the queue", || ensemble.children(PATH).len() == latches.len()).await;
            }
            // After the candidates have read their nodes.
            sleep(SESSION).await;
            let chosen = latches[0].participants().await.unwrap().pop().unwrap();
            assert_eq!(*chosen.id(), *"chosen");
            let budget = Duration::from_millis(millis);
            let handed_over = match millis % 2 {
                0 => timeout(budget, latches[0].resign_to_timeout(&chosen, PATIENCE)).await.ok(),
                _ => Some(soon(latches[0].resign_to_timeout(&chosen, budget)).await),
            };
            if let Some(handed_over) = &handed_over {
                let handed_over = handed_over.as_ref().unwrap();
                assert_eq!(handed_over.is_some(), !old.is_held(), "after {millis} ms");
            }
            sleep(SESSION).await;
            let now = leaders(&latches);
            assert_eq!(now.len(), 1, "after {millis} ms: {now:?} lead");
            assert!(now != [1], "after {millis} ms: the candidate between them leads");
            assert_eq!(ensemble.children(PATH).len(), 3, "after {millis} ms");
            let term = leads(&latches[now[0]]).await.token();
            all_lead_in_turn(&ensemble, latches, term, &format!("after {millis} ms")).await;
            handed_over.map_or(0, |handed_over| if handed_over.unwrap().is_some() { 1 } else { 2 })
        });
        outcomes[outcome] += 1;
    }
    println!("dropped, done, out of budget: {outcomes:?}");
    // A candidate follows within some milliseconds, so few budgets end before it.
    assert!(outcomes[0] > 5 && outcomes[1] > 5, "{outcomes:?}");
}

/// The session of the leader, or of the chosen candidate, is killed at any moment of a hand-over.
#[test]
fn session_that_ends_at_any_moment_of_a_hand_over_leaves_one_leader() {
    for millis in 0..160 {
        play(millis, async |ensemble| {
            let (one, two) = (client(&ensemble, ONE).await, client(&ensemble, TWO).await);
            let three = client(&ensemble, ClientId(3)).await;
            let mut latches = Vec::new();
            for (client, id) in [(&one, "leader"), (&three, "between"), (&two, "chosen")] {
                latches.push(named(client, PATH, id));
                until("it is in the queue", || ensemble.children(PATH).len() == latches.len()).await;
            }
            let old = leads(&latches[0]).await;
            sleep(SESSION).await;
            let chosen = latches[0].participants().await.unwrap().pop().unwrap();
            let killed =
                if millis % 2 == 0 { ensemble.owner(old.node_path()).unwrap() } else { chosen.session.unwrap().get() };
            let (leader, budget) = (latches[0].clone(), SESSION);
            let handing_over = tokio::spawn(async move { leader.resign_to_timeout(&chosen, budget).await });
            sleep(Duration::from_millis(millis / 2)).await;
            ensemble.kill_session(killed);
            // Any outcome will do.
            drop(soon(handing_over).await.unwrap());
            until("all are in the queue", || ensemble.children(PATH).len() == 3).await;
            sleep(SESSION).await;
            assert_eq!(leaders(&latches).len(), 1, "after {millis} ms: {:?} lead", leaders(&latches));
            all_lead_in_turn(&ensemble, latches, old.token(), &format!("after {millis} ms")).await;
        });
    }
}

/// The first hand-over waits for a latch that does not follow, as Java's do not.
#[test]
fn hand_over_behind_another_one_ends_with_its_own_budget() {
    play(3, async |ensemble| {
        let (one, two) = (client(&ensemble, ONE).await, client(&ensemble, TWO).await);
        let leader = started(&one, PATH);
        let leadership = leads(&leader).await;
        let deaf = two.create().with_protection().with_mode(CreateMode::EphemeralSequential);
        deaf.for_path(&format!("{PATH}/latch-")).await.unwrap();
        let deaf = leader.participants().await.unwrap().pop().unwrap();
        let (latch, candidate) = (leader.clone(), deaf.clone());
        let first = tokio::spawn(async move { latch.resign_to_timeout(&candidate, SESSION * 2).await });
        sleep(LATENCY).await;
        let begun = Instant::now();
        assert!(leader.resign_to_timeout(&deaf, SESSION / 10).await.unwrap().is_none());
        assert_eq!(begun.elapsed(), SESSION / 10);
        assert!(soon(first).await.unwrap().unwrap().is_none());
        assert!(leadership.is_held());
    });
}

/// The server deletes the nodes of two latches of one session in one transaction, and notifies of them in any order.
#[test]
fn two_latches_of_one_session_do_not_lead_at_once_behind_its_end() {
    for seed in 0..60 {
        play(seed, async |ensemble| {
            let one = client(&ensemble, ONE).await;
            let latches = [started(&one, PATH), started(&one, PATH)];
            until("both are in the queue", || ensemble.children(PATH).len() == 2).await;
            for round in 0..4 {
                until("one leads", || leaders(&latches).len() == 1).await;
                let leadership = leads(&latches[leaders(&latches)[0]]).await;
                ensemble.kill_session(ensemble.owner(leadership.node_path()).unwrap());
                let at = Instant::now();
                while leadership.is_held() || leaders(&latches).is_empty() {
                    assert!(leaders(&latches).len() <= 1, "seed {seed}, round {round}: two leaders");
                    assert!(at.elapsed() < PATIENCE, "seed {seed}, round {round}: no leader");
                    tokio::task::yield_now().await;
                    sleep(Duration::from_micros(100)).await;
                }
                let next = leads(&latches[leaders(&latches)[0]]).await;
                assert!(
                    ensemble.owner(next.node_path()).is_some() || !next.is_held(),
                    "seed {seed}: led without a node"
                );
                assert!(next.token() > leadership.token(), "seed {seed}");
                until("both are in the queue", || ensemble.children(PATH).len() == 2).await;
            }
        });
    }
}

/// Two hand-overs, a proclamation and a resignation of one leader at once.
#[test]
fn moves_of_one_leader_at_once_leave_one_leader() {
    for seed in 0..60 {
        play(seed, async |ensemble| {
            let (one, two) = (client(&ensemble, ONE).await, client(&ensemble, TWO).await);
            let three = client(&ensemble, ClientId(3)).await;
            let mut latches = Vec::new();
            for (client, id) in [(&one, "leader"), (&two, "b"), (&three, "c")] {
                latches.push(named(client, PATH, id));
                until("it is in the queue", || ensemble.children(PATH).len() == latches.len()).await;
            }
            let old = leads(&latches[0]).await;
            sleep(SESSION).await;
            let participants = latches[0].participants().await.unwrap();
            let leader = &latches[0];
            let later = async |millis| sleep(Duration::from_millis(millis)).await;
            let (to_b, to_c, proclaimed, resigned) = soon(async {
                tokio::join!(
                    leader.resign_to_timeout(&participants[1], SESSION),
                    async {
                        later(seed % 7).await;
                        leader.resign_to_timeout(&participants[2], SESSION).await
                    },
                    async {
                        later(seed % 11).await;
                        old.proclaim("data").await
                    },
                    async {
                        later(20 + seed).await;
                        if seed % 3 == 0 { leader.resign().await } else { Ok(None) }
                    },
                )
            })
            .await;
            let outcome = format!("seed {seed}: {to_b:?}, {to_c:?}, {proclaimed:?}, {resigned:?}");
            until("all are in the queue", || ensemble.children(PATH).len() == 3).await;
            sleep(SESSION).await;
            assert_eq!(leaders(&latches).len(), 1, "{outcome}");
            all_lead_in_turn(&ensemble, latches, old.token(), &outcome).await;
        });
    }
}

/// The chosen candidate leaves the queue at any moment of the hand-over.
#[test]
fn candidate_that_leaves_at_any_moment_of_a_hand_over_leaves_one_leader() {
    for millis in 0..160 {
        play(millis, async |ensemble| {
            let (one, two) = (client(&ensemble, ONE).await, client(&ensemble, TWO).await);
            let mut latches = Vec::new();
            for (client, id) in [(&one, "leader"), (&one, "between"), (&two, "chosen")] {
                latches.push(named(client, PATH, id));
                until("it is in the queue", || ensemble.children(PATH).len() == latches.len()).await;
            }
            let old = leads(&latches[0]).await;
            sleep(SESSION).await;
            let chosen = latches[0].participants().await.unwrap().pop().unwrap();
            let (leader, target) = (latches[0].clone(), chosen.clone());
            let handing_over = tokio::spawn(async move { leader.resign_to_timeout(&target, SESSION).await });
            sleep(Duration::from_millis(millis / 2)).await;
            match millis % 2 {
                0 => latches[2].abstain(SESSION * 3),
                _ => soon(latches.remove(2).close()).await,
            }
            let handed_over = soon(handing_over).await.unwrap();
            sleep(SESSION).await;
            assert_eq!(leaders(&latches).len(), 1, "after {millis} ms: {handed_over:?}");
            assert_eq!(ensemble.children(PATH).len(), 2, "after {millis} ms: {handed_over:?}");
            if matches!(handed_over, Ok(Some(_))) {
                assert!(!old.is_held(), "after {millis} ms");
            }
        });
    }
}
