//! One storm over a single holder. Its server refuses its credentials, or some of its requests, and code of the program
//! panics. No other fault hides what follows.

use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use curator_checkers::locks::{Attempt, Mode, Step};
use curator_framework::recipe::{KnownNodes, Resync};
use curator_framework::{AddWatchMode, CuratorFramework, Error};
use curator_test::ClientId;
use rand::Rng;
use rand::rngs::StdRng;
use tokio::time::{sleep, timeout};

use super::PATIENCE;
use crate::contenders::{Book, Guard, Lock, Recipe, Verb};
use crate::scribe::Outcome;
use crate::storm::field::Field;
use crate::storm::stage::{Salt, Stage, start_player_with_credentials};
use crate::storm::weather::{LONGEST_PAUSE, PATH, SESSION, Weather};

const HOLDER: ClientId = ClientId(105);
const SALT: Salt = Salt { own: 1400, readers: 0, faults: 0 };
/// Longer than some messages take, and shorter than a client waits for a connection.
const SOON: Duration = Duration::from_secs(2);

/// Runs one storm.
pub(in crate::storm) async fn storm(seed: u64) -> Outcome {
    let weather = Weather { calm: true, ..Weather::of(seed) };
    let mut stage = Stage::<Book>::new(seed, SALT, weather, Recipe::Mutex.parts(PATH), "a single holder");
    let client = start_player_with_credentials(&stage.field.ensemble, HOLDER);
    stage.clients.push(client.clone());
    let holder = Holder { field: stage.field.clone(), client, random: stage.random_of(0) };
    stage.workers.spawn(holder.holds());
    stage.run("a holder", async {}).await;
    stage.end(&Recipe::Mutex.rules(PATIENCE, SESSION).no_loss_in_calm()).await
}

struct Holder {
    field: Field<Book>,
    client: CuratorFramework,
    random: StdRng,
}

impl Holder {
    /// Holds some times, each time with another trouble.
    async fn holds(mut self) {
        let lock = Lock::new(self.client.clone(), Recipe::Mutex, PATH).expect("a valid path");
        for _ in 0..self.random.random_range(2..5) {
            while self.client.block_until_connected().await.is_err() {
                sleep(SOON).await;
            }
            let scribe = self.field.scribe.clone();
            let attempt = scribe.ask(Mode::Exclusive);
            let guard = match lock.acquire(Mode::Exclusive, Verb::Acquire, 0).await {
                Ok(Some(guard)) => Arc::new(guard),
                other => return scribe.wrong(format_args!("a calm acquire: {other:?}")),
            };
            scribe.granted(attempt, &guard).await;
            // By then it watches its node.
            sleep(SOON).await;
            match self.random.random_range(0..3) {
                0 => self.is_refused().await,
                1 => self.is_throttled(&guard).await,
                _ => self.panics(&guard).await,
            }
            self.ends(attempt, &guard).await;
        }
    }

    async fn ends(&self, attempt: Attempt, guard: &Guard) {
        let scribe = &self.field.scribe;
        if !guard.is_held() {
            scribe.leaves(attempt, Step::Lost);
        }
        scribe.leaves(attempt, Step::Releasing);
        let _may_be_lost = guard.release().await;
        scribe.step(attempt, Step::Released);
    }

    /// An operation that waits for a connection ends as soon as a server refuses the credentials.
    async fn is_refused(&mut self) {
        let Field { scribe, ensemble, .. } = &self.field;
        let lasting = SESSION + SOON;
        scribe.fault(format_args!("the credentials are refused for {lasting:?}"), lasting + LONGEST_PAUSE);
        ensemble.refuse_credentials(HOLDER);
        ensemble.reset(HOLDER);
        sleep(Duration::from_millis(self.random.random_range(0..20))).await;
        let read = timeout(SOON, self.client.check_exists().for_path("/")).await;
        if !matches!(read, Ok(Err(Error::AuthFailed { .. }))) {
            scribe.wrong(format_args!("a read with refused credentials: {read:?}"));
        }
        sleep(lasting).await;
        ensemble.repair(HOLDER);
    }

    /// A refused read does not end the watch on a node.
    async fn is_throttled(&mut self, guard: &Guard) {
        let Field { scribe, ensemble, .. } = &self.field;
        scribe.note("the server throttles");
        ensemble.throttle(HOLDER);
        let child = format!("{PATH}/child");
        // Each event of another child has the holder read its node.
        for _ in 0..self.random.random_range(1..6) {
            ensemble.create(&child);
            sleep(SOON / 4).await;
            ensemble.delete(&child);
            sleep(SOON / 4).await;
        }
        ensemble.repair(HOLDER);
        sleep(SOON).await;
        scribe.note(format_args!("an administrator deletes {}", guard.path()));
        self.field.delete(guard.path());
        if timeout(SOON, guard.lost()).await.is_err() {
            scribe.wrong("the holder is not notified of the deletion");
        }
    }

    /// A panic of a resync, in the task of the session, does not end the session.
    async fn panics(&self, guard: &Guard) {
        let Field { scribe, ensemble, .. } = &self.field;
        let breaks = Arc::new(AtomicBool::new(false));
        let (panics, session) = (Arc::clone(&breaks), self.client.session().await);
        let resync: Arc<dyn Resync> = Arc::new(move || match panics.load(Ordering::Relaxed) {
            // Without a report.
            true => resume_unwind(Box::new("on purpose")),
            false => KnownNodes::default(),
        });
        let Ok(session) = session else { return scribe.wrong("no session in calm") };
        let subscription = session.subscribe(PATH, AddWatchMode::Persistent, Some(resync)).await;
        breaks.store(true, Ordering::Relaxed);
        scribe.fault("a reset, and a panic", Duration::ZERO);
        ensemble.reset(HOLDER);
        sleep(SOON).await;
        if subscription.is_err() || !guard.is_held() {
            scribe.wrong("a panic of a resync has ended the session");
        }
    }
}
