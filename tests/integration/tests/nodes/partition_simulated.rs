//! Partitions under a simulated network and paused time: moments are exact.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use curator_framework::CuratorFramework;
use curator_integration::simulated_stage::{ONE, SESSION, TWO, client, play, until};
use curator_recipes::{OwnedItem, Partition, PartitionOptions};
use curator_test::{ClientId, SimulatedEnsemble};
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use tokio::time::{Instant, sleep, timeout};

use crate::partition_stage::{Ledger, Member, are_calm, items, kill};

const SETTLE: Duration = Duration::from_secs(1);
const GRACE: Duration = Duration::from_secs(30);
/// More than the requests of a move take.
const MOVE: Duration = Duration::from_millis(200);
const PATH: &str = "/work";

/// A partition of numbered items, with the default options.
fn partition(client: &CuratorFramework, id: &str, count: usize) -> Partition {
    Partition::new(client.clone(), PATH, id, items(count)).unwrap()
}

fn member(client: &CuratorFramework, id: &str, count: usize, ledger: &Ledger) -> Member {
    Member::run(partition(client, id, count), ledger)
}

async fn become_calm<'a>(members: impl IntoIterator<Item = &'a Member> + Clone, count: usize, ledger: &Ledger) {
    until("all items have their owners", || are_calm(members.clone(), count, ledger)).await;
    ledger.assert_one_owner_each();
}

/// The moments when items were revoked, and when their work ended.
#[derive(Debug, Clone, Default)]
struct Moments(Arc<Mutex<Vec<(Instant, Instant)>>>);

struct Ending(Moments, Instant);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.0.lock().push((self.1, Instant::now()));
    }
}

impl Moments {
    /// Resolves when the item is revoked, and records the moment when the result is dropped.
    async fn revoked(&self, item: &OwnedItem) -> Ending {
        item.revoked().await;
        Ending(self.clone(), Instant::now())
    }

    /// The time from each revocation to the end of its work.
    fn graces(&self) -> Vec<Duration> {
        self.0.lock().iter().map(|(revoked, ended)| *ended - *revoked).collect()
    }
}

/// Runs a partition, with work that continues for some time when it is revoked.
fn slow(partition: Partition, ledger: &Ledger, moments: &Moments, stays: Duration) -> Member {
    let (running, ledger, moments) = (partition.clone(), ledger.clone(), moments.clone());
    let run = tokio::spawn(async move {
        let id = running.id();
        let work = running.run(async |item| {
            let _work = ledger.begin(id, &item);
            let _ending = moments.revoked(&item).await;
            assert!(item.is_held());
            sleep(stays).await;
        });
        work.await
    });
    Member { partition, run }
}

#[test]
fn work_that_does_not_return_is_dropped_at_the_end_of_its_grace() {
    play(1, async |ensemble| {
        let (one, two) = (client(&ensemble, ONE).await, client(&ensemble, TWO).await);
        let (ledger, moments) = (Ledger::default(), Moments::default());
        let ann = slow(partition(&one, "ann", 6), &ledger, &moments, GRACE * 10);
        become_calm([&ann], 6, &ledger).await;
        let (bob, begun) = (member(&two, "bob", 6, &ledger), Instant::now());
        until("an item has moved", || ledger.begun() > 6).await;
        let expected = SETTLE + GRACE;
        assert!(begun.elapsed() >= expected && begun.elapsed() <= expected + MOVE, "after {:?}", begun.elapsed());
        become_calm([&ann, &bob], 6, &ledger).await;
        assert_eq!(moments.graces(), [GRACE; 3]);
        assert_eq!(ledger.begun(), 6 + 3, "the items that stay are not disturbed");
    });
}

#[test]
fn an_item_moves_as_soon_as_its_work_has_returned() {
    play(1, async |ensemble| {
        let (one, two) = (client(&ensemble, ONE).await, client(&ensemble, TWO).await);
        let (ledger, moments, stays) = (Ledger::default(), Moments::default(), Duration::from_secs(3));
        let ann = slow(partition(&one, "ann", 6), &ledger, &moments, stays);
        become_calm([&ann], 6, &ledger).await;
        let begun = Instant::now();
        let bob = member(&two, "bob", 6, &ledger);
        become_calm([&ann, &bob], 6, &ledger).await;
        let expected = SETTLE + stays;
        assert!(begun.elapsed() >= expected && begun.elapsed() <= expected + MOVE * 2, "after {:?}", begun.elapsed());
        assert_eq!(moments.graces(), [stays; 3]);
    });
}

#[test]
fn an_item_stays_owned_when_its_work_has_returned_and_moves_at_once() {
    play(1, async |ensemble| {
        let (one, two) = (client(&ensemble, ONE).await, client(&ensemble, TWO).await);
        let (running, ledger) = (partition(&one, "ann", 4), Ledger::default());
        let (partition, calls) = (running.clone(), Arc::new(Mutex::new(Vec::new())));
        let recorded = Arc::clone(&calls);
        let run = tokio::spawn(async move {
            let work = running.run(async |item| recorded.lock().push(item));
            work.await
        });
        until("all work has returned", || calls.lock().len() == 4).await;
        sleep(GRACE * 10).await;
        assert_eq!((partition.share().owned, calls.lock().len()), (items(4), 4));
        assert!(calls.lock().iter().all(OwnedItem::is_held));
        let begun = Instant::now();
        let bob = member(&two, "bob", 4, &ledger);
        until("bob has his items", || ledger.items_of("bob").len() == 2).await;
        assert!(begun.elapsed() <= SETTLE + MOVE * 2, "after {:?}", begun.elapsed());
        assert_eq!(calls.lock().iter().filter(|item| item.is_held()).count(), 2);
        let of_bob = ledger.items_of("bob");
        assert!(calls.lock().iter().all(|item| item.is_held() != of_bob.contains(&item.name().to_owned())));
        drop((bob, run));
    });
}

/// The work of one item blocks the thread until its session has ended.
#[test]
fn no_work_is_polled_behind_the_deadline() {
    play(1, async |ensemble| {
        let one = client(&ensemble, ONE).await;
        let (running, ledger) = (partition(&one, "ann", 3), Ledger::default());
        let (partition, late) = (running.clone(), Arc::new(Mutex::new(Vec::new())));
        let (recorded, book, blocks) = (Arc::clone(&late), ledger.clone(), ensemble.clone());
        tokio::spawn(async move {
            let work = running.run(async |item| {
                let _work = book.begin("ann", &item);
                if item.name() == "item-001" && book.begun() <= 3 {
                    sleep(Duration::from_secs(5)).await;
                    blocks.skip_clock(ONE, SESSION * 10);
                    assert!(!item.is_held());
                    tokio::task::yield_now().await;
                    recorded.lock().push("the work that blocked");
                }
                let mut tick = tokio::time::interval(Duration::from_millis(1));
                poll_fn(|cx| {
                    if !item.is_held() {
                        recorded.lock().push("other work");
                    }
                    while tick.poll_tick(cx).is_ready() {}
                    Poll::<()>::Pending
                })
                .await;
            });
            work.await
        });
        until("all items are owned", || partition.share().owned.len() == 3).await;
        let tokens = ledger.begun();
        until("all items are owned again", || ledger.begun() == tokens + 3).await;
        assert_eq!(*late.lock(), [""; 0]);
        ledger.assert_one_owner_each();
        until("all items are owned", || partition.share().owned.len() == 3).await;
    });
}

#[test]
fn a_member_that_restarts_before_the_others_settle_moves_nothing() {
    play(1, async |ensemble| {
        let (one, two) = (client(&ensemble, ONE).await, client(&ensemble, TWO).await);
        let ledger = Ledger::default();
        let (ann, bob) = (member(&one, "ann", 10, &ledger), member(&two, "bob", 10, &ledger));
        become_calm([&ann, &bob], 10, &ledger).await;
        sleep(SETTLE).await;
        let (begun, owners) = (ledger.begun(), ledger.owners());
        bob.close().await.unwrap();
        sleep(SETTLE / 2).await;
        let bob = member(&two, "bob", 10, &ledger);
        become_calm([&ann, &bob], 10, &ledger).await;
        assert_eq!((ledger.begun(), ledger.owners()), (begun + 5, owners));
        // Each change starts the wait again.
        let cat = member(&two, "cat", 10, &ledger);
        sleep(SETTLE - MOVE).await;
        let dan = member(&two, "dan", 10, &ledger);
        sleep(SETTLE - MOVE).await;
        assert_eq!(ledger.begun(), begun + 5);
        become_calm([&ann, &bob, &cat, &dan], 10, &ledger).await;
    });
}

/// The members restart one after the other, each sooner than the others settle.
#[test]
fn items_keep_their_owners_in_a_rolling_restart_that_is_faster_than_the_settling() {
    const COUNT: usize = 24;
    play(1, async |ensemble| {
        let (ledger, mut members) = (Ledger::default(), Vec::new());
        let mut clients = Vec::new();
        for id in 1..=4 {
            clients.push(client(&ensemble, ClientId(id)).await);
        }
        let options = PartitionOptions::new().settle(SETTLE * 5);
        let start = |place: usize| {
            let (client, id) = (clients[place].clone(), format!("member-{place}"));
            let partition = Partition::with_options(client, PATH, id, items(COUNT), options.clone()).unwrap();
            Member::run(partition, &ledger)
        };
        members.extend((0..4).map(start));
        become_calm(&members, COUNT, &ledger).await;
        sleep(SETTLE * 5).await;
        let (begun, owners) = (ledger.begun(), ledger.owners());
        for round in 0..8 {
            let place = round % 4;
            members.remove(0).close().await.unwrap();
            sleep(Duration::from_millis(300)).await;
            assert_eq!(ledger.owners().len(), COUNT - COUNT / 4, "only the items of the member that restarts wait");
            members.push(start(place));
            sleep(MOVE).await;
            assert_eq!(ledger.owners(), owners, "round {round}");
            sleep(SETTLE).await;
        }
        assert_eq!(ledger.begun(), begun + 8 * COUNT / 4, "an item has moved");
    });
}

/// One more member joins and leaves again and again, each time sooner than the others settle.
#[test]
fn the_items_of_a_member_that_has_left_move_although_another_one_restarts_in_a_loop() {
    const COUNT: usize = 24;
    play(1, async |ensemble| {
        let (one, two) = (client(&ensemble, ONE).await, client(&ensemble, TWO).await);
        let ledger = Ledger::default();
        let [ann, bob, cat] = ["ann", "bob", "cat"].map(|id| member(&one, id, COUNT, &ledger));
        become_calm([&ann, &bob, &cat], COUNT, &ledger).await;
        sleep(SETTLE).await;
        cat.close().await.unwrap();
        let left = Instant::now();
        let restarts = async {
            loop {
                let dan = member(&two, "dan", COUNT, &ledger);
                sleep(SETTLE * 7 / 10).await;
                dan.close().await.unwrap();
                sleep(SETTLE * 7 / 10).await;
            }
        };
        let of_the_others = || ledger.items_of("ann").len() + ledger.items_of("bob").len();
        let moved = async {
            until("the items have moved", || of_the_others() == COUNT).await;
            assert!(left.elapsed() <= SETTLE + MOVE, "after {:?}", left.elapsed());
            let begun = ledger.begun();
            sleep(SETTLE * 20).await;
            assert_eq!(of_the_others(), COUNT);
            assert!(ledger.begun() <= begun + COUNT / 3, "{} moves", ledger.begun() - begun);
        };
        tokio::select! {
            () = restarts => {}
            () = moved => {}
        }
        ledger.assert_one_owner_each();
    });
}

/// Returns the time until a member has an item of another one, while more members join, each sooner than the others
/// settle. Ends after ten times the settling.
fn time_to_an_item_while_others_join() -> Duration {
    play(1, async |ensemble| {
        let (one, two) = (client(&ensemble, ONE).await, client(&ensemble, TWO).await);
        let ledger = Ledger::default();
        let ann = member(&one, "ann", 12, &ledger);
        become_calm([&ann], 12, &ledger).await;
        sleep(SETTLE).await;
        let (bob, begun) = (member(&two, "bob", 12, &ledger), Instant::now());
        let mut others = Vec::new();
        while ledger.items_of("bob").is_empty() && begun.elapsed() < SETTLE * 10 {
            if others.len() < begun.elapsed().div_duration_f64(SETTLE / 2) as usize {
                others.push(member(&two, &format!("other-{}", others.len()), 12, &ledger));
            }
            sleep(MOVE / 10).await;
        }
        drop((ann, bob, others));
        begun.elapsed()
    })
}

#[test]
fn a_member_gets_an_item_within_three_times_the_settling_although_others_join() {
    let time = time_to_an_item_while_others_join();
    assert!(time <= SETTLE * 3 + MOVE, "{time:?}");
}

#[cfg(curator_mutants)]
#[test]
fn a_settling_that_others_prolong_without_end_is_found() {
    let time = curator_framework::mutants::with("settle-without-a-bound", time_to_an_item_while_others_join);
    assert!(time >= SETTLE * 10, "{time:?}");
}

/// The session of the member stays, and with it its locks.
#[test]
fn an_owner_whose_member_is_deleted_and_returns_keeps_its_items() {
    play(1, async |ensemble| {
        let (one, two) = (client(&ensemble, ONE).await, client(&ensemble, TWO).await);
        let ledger = Ledger::default();
        let (ann, bob) = (member(&one, "ann", 10, &ledger), member(&two, "bob", 10, &ledger));
        become_calm([&ann, &bob], 10, &ledger).await;
        let begun = ledger.begun();
        for _ in 0..5 {
            ensemble.delete(&format!("{PATH}/members/bob"));
            sleep(SETTLE / 2).await;
        }
        sleep(SETTLE * 5).await;
        assert_eq!(ledger.begun(), begun);
        assert!(are_calm([&ann, &bob], 10, &ledger));
    });
}

#[test]
fn a_settling_without_end_moves_no_item_from_its_owner() {
    play(1, async |ensemble| {
        let (one, two) = (client(&ensemble, ONE).await, client(&ensemble, TWO).await);
        let ledger = Ledger::default();
        let with = |client: &CuratorFramework, id: &str, settle: Duration| {
            let options = PartitionOptions::new().settle(settle);
            Member::run(Partition::with_options(client.clone(), PATH, id, items(4), options).unwrap(), &ledger)
        };
        let ann = with(&one, "ann", Duration::MAX);
        until("ann owns all", || ledger.items_of("ann").len() == 4).await;
        let bob = with(&two, "bob", Duration::from_secs(u64::MAX / 2));
        sleep(SETTLE * 100).await;
        assert_eq!(ledger.items_of("ann").len(), 4);
        ann.close().await.unwrap();
        let cat = with(&one, "cat", SETTLE);
        until("bob owns his items", || !ledger.items_of("bob").is_empty()).await;
        ledger.assert_one_owner_each();
        drop((bob, cat));
    });
}

/// The other member leaves before it owns the item.
#[test]
fn an_item_that_is_wanted_again_before_its_work_has_returned_stays() {
    play(1, async |ensemble| {
        let (one, two) = (client(&ensemble, ONE).await, client(&ensemble, TWO).await);
        let (ledger, moments, stays) = (Ledger::default(), Moments::default(), Duration::from_secs(5));
        let ann = slow(partition(&one, "ann", 6), &ledger, &moments, stays);
        become_calm([&ann], 6, &ledger).await;
        let bob = member(&two, "bob", 6, &ledger);
        until("ann gives up half of them", || ann.partition.share().wanted.len() == 3).await;
        sleep(SETTLE).await;
        bob.close().await.unwrap();
        until("ann wants all again", || ann.partition.share().wanted.len() == 6).await;
        assert_eq!(moments.graces(), [Duration::ZERO; 0]);
        until("the work begins anew", || ledger.begun() == 6 + 3).await;
        become_calm([&ann], 6, &ledger).await;
        assert_eq!((moments.graces(), ledger.items_of("ann").len()), (vec![stays; 3], 6));
    });
}

#[test]
fn the_work_of_a_member_without_network_is_dropped_before_another_member_begins() {
    for seed in 0..20 {
        play(seed, async |ensemble| {
            let (one, two) = (client(&ensemble, ONE).await, client(&ensemble, TWO).await);
            let ledger = Ledger::default();
            let (ann, bob) = (member(&one, "ann", 8, &ledger), member(&two, "bob", 8, &ledger));
            become_calm([&ann, &bob], 8, &ledger).await;
            sleep(Duration::from_millis(seed * 137)).await;
            ensemble.partition(ONE);
            let cut = Instant::now();
            until("the work of ann is dropped", || ledger.items_of("ann").is_empty()).await;
            assert!(cut.elapsed() <= SESSION * 3 / 4, "seed {seed}: dropped after {:?}", cut.elapsed());
            assert_eq!(ledger.items_of("bob").len(), 4, "seed {seed}");
            until("bob has all", || ledger.items_of("bob").len() == 8).await;
            ensemble.repair(ONE);
            become_calm([&ann, &bob], 8, &ledger).await;
        });
    }
}

#[test]
fn a_close_without_network_ends() {
    play(1, async |ensemble| {
        let (one, ledger) = (client(&ensemble, ONE).await, Ledger::default());
        let ann = member(&one, "ann", 3, &ledger);
        become_calm([&ann], 3, &ledger).await;
        ensemble.partition(ONE);
        sleep(SESSION / 4).await;
        timeout(SESSION, ann.close()).await.unwrap().unwrap();
        assert_eq!(ledger.owners().len(), 0);
    });
}

/// Members join, leave, crash and restart, and lose sessions, connections and the network, in an order that a seed
/// decides.
#[test]
fn an_item_has_one_owner_at_most_under_simulated_faults() {
    for seed in 0..40 {
        play(seed, async |ensemble| storm(&ensemble, seed).await);
    }
}

async fn storm(ensemble: &SimulatedEnsemble, seed: u64) {
    const COUNT: usize = 12;
    println!("seed {seed}");
    let (mut random, ledger) = (StdRng::seed_from_u64(seed), Ledger::default());
    let (watcher, mut clients) = (client(ensemble, ClientId(9)).await, Vec::new());
    for id in 0..4 {
        clients.push(client(ensemble, ClientId(id)).await);
    }
    let join = |place: usize, random: &mut StdRng| {
        let options = PartitionOptions::new().settle(Duration::from_millis(random.random_range(0..2000)));
        let options = options.grace(Duration::from_millis(random.random_range(0..3000)));
        let (client, id) = (clients[place].clone(), format!("member-{place}"));
        let partition = Partition::with_options(client, PATH, id, items(COUNT), options).unwrap();
        match random.random_range(0..3) {
            0 => {
                let (running, ledger) = (partition.clone(), ledger.clone());
                let stays = Duration::from_millis(random.random_range(0..4000));
                let run = tokio::spawn(async move {
                    let work = running.run(async |item| {
                        let _work = ledger.begin(running.id(), &item);
                        item.revoked().await;
                        sleep(stays).await;
                    });
                    work.await
                });
                Member { partition, run }
            }
            _ => Member::run(partition, &ledger),
        }
    };
    let mut members: Vec<Option<Member>> = (0..4).map(|place| Some(join(place, &mut random))).collect();
    for _ in 0..30 {
        let place = random.random_range(0..4);
        let id = ClientId(u32::try_from(place).unwrap());
        match (random.random_range(0..8), members[place].take()) {
            (0, Some(member)) => member.close().await.unwrap(),
            (1, Some(member)) => member.run.abort(),
            (2, Some(member)) => {
                members[place] = Some(member);
                if let Some(owner) = ensemble.owner(&format!("{PATH}/members/member-{place}")) {
                    let id = format!("member-{place}");
                    kill(&watcher, PATH, &ledger, &id, async || ensemble.kill_session(owner)).await;
                }
            }
            (3, Some(member)) => {
                members[place] = Some(member);
                ensemble.partition(id);
                sleep(Duration::from_millis(random.random_range(0..20_000))).await;
                ensemble.repair(id);
            }
            (4, Some(member)) => {
                members[place] = Some(member);
                ensemble.drop_reply(id);
            }
            (5, Some(member)) => {
                members[place] = Some(member);
                ensemble.delete(&format!("{PATH}/members/member-{place}"));
            }
            (_, Some(member)) => {
                members[place] = Some(member);
                ensemble.reset(id);
            }
            (_, None) => members[place] = Some(join(place, &mut random)),
        }
        sleep(Duration::from_millis(random.random_range(0..3000))).await;
        ledger.assert_one_owner_each();
    }
    for (place, member) in members.iter_mut().enumerate() {
        if member.is_none() {
            *member = Some(join(place, &mut random));
        }
    }
    let members: Vec<Member> = members.into_iter().flatten().collect();
    become_calm(&members, COUNT, &ledger).await;
    for member in members {
        member.close().await.unwrap();
    }
    assert_eq!(ledger.owners().len(), 0, "seed {seed}");
}
