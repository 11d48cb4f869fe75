//! Clients that play one part of their own beside the workers of a storm.

use std::sync::Arc;
use std::time::Duration;

use curator_checkers::locks::{Attempt, Mode, Step};
use curator_framework::CuratorFramework;
use curator_recipes::LockOwner;
use curator_test::ClientId;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use super::PACE;
use crate::contenders::{Book, Guard, Lock, Recipe, Scribe, Verb, work};
use crate::storm::field::{Field, queue};
use crate::storm::stage::{read, start_player};
use crate::storm::weather::{PATH, SESSION};

type Locks = Field<Book>;

const IDLE: ClientId = ClientId(100);
const RIVAL: ClientId = ClientId(101);
const CROWD: ClientId = ClientId(102);
const QUITTER: ClientId = ClientId(103);
const SIBLINGS: ClientId = ClientId(104);

/// Lets the players of a seed play. Returns their clients, which live until all is cleaned up.
pub(super) fn play(seed: u64, recipe: Recipe, field: &Locks, workers: &mut JoinSet<()>) -> Vec<CuratorFramework> {
    let Field { scribe, ensemble, .. } = field;
    let random = StdRng::seed_from_u64(seed ^ 200 << 32);
    match seed % 8 {
        1 | 5 => {
            let (idle, rival) = (start_player(ensemble, IDLE), start_player(ensemble, RIVAL));
            workers.spawn(duel(field.clone(), recipe, (idle.clone(), rival.clone()), random));
            vec![idle, rival]
        }
        2 => {
            let client = start_player(ensemble, CROWD);
            workers.spawn(crowd(scribe.clone(), recipe, client.clone(), random));
            vec![client]
        }
        3 | 7 => {
            let client = start_player(ensemble, QUITTER);
            workers.spawn(quit(field.clone(), recipe, client.clone(), random));
            vec![client]
        }
        _ => {
            workers.spawn(harm(field.clone(), recipe, random));
            if !matches!(recipe, Recipe::Mutex | Recipe::Batches) {
                return Vec::new();
            }
            // Often two of them are neighbours in the queue.
            let client = start_player(ensemble, SIBLINGS);
            for number in 0..3 {
                let random = StdRng::seed_from_u64(seed ^ (210 + number) << 32);
                workers.spawn(work(scribe.clone(), lock(&client, recipe), random, PACE, false));
            }
            vec![client]
        }
    }
}

fn lock(client: &CuratorFramework, recipe: Recipe) -> Lock {
    Lock::new(client.clone(), recipe, PATH).expect("a valid path")
}

/// The leader has not heard of an idle client for long when that gets the lock. Right behind the grant the client's
/// server is cut off, and a rival waits for the moment when the leader ends the session; or an administrator deletes
/// the node.
async fn duel(field: Locks, recipe: Recipe, (idle, rival): (CuratorFramework, CuratorFramework), mut random: StdRng) {
    let Field { scribe, ensemble, .. } = field.clone();
    let (first, second) = (lock(&idle, recipe), lock(&rival, recipe));
    for _ in 0..3 {
        sleep(SESSION.mul_f64(random.random_range(0.3..1.0))).await;
        let away = SESSION.mul_f64(random.random_range(0.0..0.65));
        scribe.fault(format_args!("a duel: {IDLE:?} is partitioned for {away:?}"), away + SESSION * 2);
        ensemble.partition(IDLE);
        sleep(away).await;
        ensemble.repair(IDLE);
        if random.random() {
            let _unanswered = timeout(SESSION / 6, idle.check_exists().for_path("/")).await;
        }
        let attempt = scribe.ask(Mode::Exclusive);
        // The leader hears of a client that waits for long.
        let Ok(Some(guard)) = first.acquire(Mode::Exclusive, Verb::Within(SESSION / 6), 0).await else {
            scribe.step(attempt, Step::GaveUp);
            continue;
        };
        let guard = Arc::new(guard);
        scribe.granted(attempt, &guard).await;
        sleep(Duration::from_millis(random.random_range(0..200))).await;
        if random.random_range(0..4) == 0 {
            scribe.note(format_args!("somebody deletes {}", guard.path()));
            field.delete(guard.path());
        } else {
            scribe.note(format_args!("the server of {IDLE:?} is cut off"));
            ensemble.cut_off_server(IDLE);
        }
        let reads = random.random::<bool>().then(|| read(idle.clone(), 500, StdRng::seed_from_u64(random.random())));
        let waits = scribe.ask(Mode::Exclusive);
        let rivals = async {
            match second.acquire(Mode::Exclusive, Verb::Within(SESSION * 2), 0).await {
                Ok(Some(guard)) => {
                    let guard = Arc::new(guard);
                    scribe.granted(waits, &guard).await;
                    hold(&scribe, waits, &guard, SESSION / 4).await;
                    let _told = guard.release().await;
                    scribe.step(waits, Step::Released);
                }
                _ => scribe.step(waits, Step::GaveUp),
            }
        };
        let holds = async {
            tokio::select! {
                biased;
                () = hold(&scribe, attempt, &guard, SESSION * 5 / 4) => {}
                () = async { match reads { Some(reads) => reads.await, None => std::future::pending().await } } => {}
            }
            ensemble.repair(IDLE);
        };
        tokio::join!(holds, rivals);
        drop(guard);
        scribe.step(attempt, Step::Released);
    }
}

/// Asks and goes away, while answers are lost and servers are behind.
async fn quit(field: Locks, recipe: Recipe, client: CuratorFramework, mut random: StdRng) {
    let Field { scribe, ensemble, .. } = field;
    let lock = lock(&client, recipe);
    for _ in 0..6 {
        sleep(Duration::from_millis(random.random_range(100..2000))).await;
        scribe.fault(format_args!("{QUITTER:?} goes away"), SESSION);
        ensemble.stale_reads(QUITTER);
        ensemble.drop_reply(QUITTER);
        let attempt = scribe.ask(Mode::Exclusive);
        let soon = Duration::from_millis(random.random_range(0..500));
        match lock.acquire(Mode::Exclusive, Verb::Drop(soon), 0).await {
            Ok(Some(guard)) => {
                let guard = Arc::new(guard);
                scribe.granted(attempt, &guard).await;
                scribe.leaves(attempt, Step::Releasing);
                drop(guard);
                scribe.step(attempt, Step::Released);
            }
            _ => scribe.step(attempt, Step::GaveUp),
        }
        sleep(Duration::from_millis(random.random_range(0..500))).await;
        ensemble.repair(QUITTER);
    }
}

/// An administrator that deletes nodes in the moments that do most harm.
async fn harm(field: Locks, recipe: Recipe, mut random: StdRng) {
    for _ in 0..12 {
        sleep(Duration::from_millis(random.random_range(100..2000))).await;
        match recipe {
            Recipe::Mutex | Recipe::Batches => evict(&field, &mut random).await,
            Recipe::Multi => bereave(&field, [["a", "b"][random.random_range(0..2)], "c"]),
            Recipe::Many(_) => bereave(&field, ["locks", "leases"]),
            _ => return,
        }
    }
}

/// Deletes the node of a contender that needs several: one that it has, while it waits for another.
fn bereave(field: &Locks, parts: [&str; 2]) {
    let ensemble = &field.ensemble;
    let [has, wants] = parts.map(|part| queue(ensemble, &format!("{PATH}/{part}")));
    let Some(node) = has.first() else { return };
    let owner = ensemble.owner(node);
    if wants.iter().skip(1).any(|waiting| ensemble.owner(waiting) == owner) {
        field.scribe.end(format_args!("somebody deletes {node}, whose owner waits for another"));
        field.delete(node);
    }
}

/// Deletes the node of the next in the queue soon after it came, or ends its session if that is the holder's too.
async fn evict(field: &Locks, random: &mut StdRng) {
    let ensemble = &field.ensemble;
    let kills: bool = random.random();
    let holder_and_next =
        || <[String; 2]>::try_from(queue(ensemble, PATH).into_iter().take(2).collect::<Vec<_>>()).ok();
    let in_one_session = |[holder, next]: &[String; 2]| ensemble.owner(holder) == ensemble.owner(next);
    let mut seen = holder_and_next();
    for _ in 0..100 {
        sleep(Duration::from_millis(20)).await;
        let newer = holder_and_next();
        if newer == seen || !newer.as_ref().is_some_and(|both| in_one_session(both) || !kills) {
            seen = newer;
            continue;
        }
        // It watches by then.
        sleep(Duration::from_millis(random.random_range(0..300))).await;
        let Some([_, next]) = holder_and_next().filter(|both| newer.as_ref() == Some(both)) else { continue };
        match ensemble.owner(&next).filter(|_| kills) {
            Some(session) => {
                field.scribe.end(format_args!("the session of the holder and of {next} is killed"));
                field.kill(session);
            }
            None => {
                field.scribe.end(format_args!("somebody deletes {next}, which is the next"));
                field.delete(&next);
            }
        }
        return;
    }
}

/// Many wait at one client with budgets of the same length; guards are entered again, and released by other tasks.
async fn crowd(scribe: Scribe, recipe: Recipe, client: CuratorFramework, mut random: StdRng) {
    let budget = Duration::from_millis(random.random_range(500..6000));
    let mut waiting = JoinSet::new();
    for _ in 0..random.random_range(3..9) {
        let (scribe, lock) = (scribe.clone(), lock(&client, recipe));
        let (brief, again) = (Duration::from_millis(random.random_range(0..400)), random.random_range(0..3));
        waiting.spawn(async move {
            let attempt = scribe.ask(Mode::Exclusive);
            let in_scope = async {
                let Ok(Some(guard)) = lock.acquire(Mode::Exclusive, Verb::Within(budget), 0).await else { return None };
                let guard = Arc::new(guard);
                scribe.granted(attempt, &guard).await;
                // Most locks let their owner in again at once; an inner acquire of a lease takes another lease.
                let inner = match again {
                    1 => guard.reenter(),
                    2 if guard.lets_its_owner_in() => {
                        let inner = lock.acquire(Mode::Exclusive, Verb::Try, 0).await.ok();
                        inner.map(|inner| inner.expect("the owner is let in"))
                    }
                    _ => None,
                };
                Some((guard, inner.map(Arc::new)))
            };
            let Some((guard, inner)) = LockOwner::scope(in_scope).await else {
                return scribe.step(attempt, Step::GaveUp);
            };
            let last = match inner {
                Some(inner) => {
                    let _still_held = guard.release().await;
                    inner
                }
                None => guard,
            };
            let released = tokio::spawn(async move {
                hold(&scribe, attempt, &last, brief).await;
                let _told = last.release().await;
                drop(last);
                scribe.step(attempt, Step::Released);
            });
            released.await.expect("the storm's runtime lives");
        });
    }
    while let Some(ended) = waiting.join_next().await {
        ended.expect("nobody in the crowd fails");
    }
}

/// Holds for a time, or until the lock is lost; from then on it is not counted on.
async fn hold(scribe: &Scribe, attempt: Attempt, guard: &Guard, time: Duration) {
    let until = Instant::now() + time;
    let mut lost = !guard.is_held();
    while !lost && Instant::now() < until {
        lost = tokio::select! {
            biased;
            _ = guard.lost() => true,
            () = sleep(Duration::from_millis(50)) => !guard.is_held(),
        };
    }
    if lost {
        scribe.leaves(attempt, Step::Lost);
    }
    scribe.leaves(attempt, Step::Releasing);
}
