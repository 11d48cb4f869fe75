//! Players that count, write, lead, share items and meet, in each leg.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use curator_framework::{CuratorFramework, Error, RetryOneTime};
use curator_integration::env::{children, eventually, in_time};
use curator_recipes::{
    BarrierError, CountDownLatch, CounterError, DistributedAtomicLong, DistributedBarrier, DistributedDoubleBarrier,
    LeaderSelector, Leadership, OwnedItem, Partition, PartitionOptions, SharedCount, SharedValue, UniqueIds,
};
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

use crate::ground::{CLIENTS, Ground};
use crate::members::{TREE, VALUE};
use crate::tally::{Slot, Tally};

const ITEMS: [&str; 5] = ["a", "b", "c", "d", "e"];
/// The limit of a wait for the other members of a round.
const MEETING: Duration = Duration::from_secs(20);

/// The increments of a number: those that were confirmed, and those with an unknown outcome.
#[derive(Debug, Default)]
struct Sum {
    certain: AtomicI64,
    unknown: AtomicI64,
}

impl Sum {
    fn add(&self, outcome: Result<bool, bool>) {
        match outcome {
            Ok(true) => self.certain.fetch_add(1, Ordering::SeqCst),
            Err(true) => self.unknown.fetch_add(1, Ordering::SeqCst),
            Ok(false) | Err(false) => 0,
        };
    }

    fn check(&self, what: &str, value: i64, tally: &Tally) {
        let [certain, unknown] = [&self.certain, &self.unknown].map(|count| count.load(Ordering::SeqCst));
        println!("         {what}: {value}; {certain} increments, and {unknown} with an unknown outcome");
        if !(certain..=certain + unknown).contains(&value) {
            tally.wrong(format!("{what} is {value}"));
        }
    }
}

/// The objects of one client.
#[derive(Clone)]
struct Player {
    number: usize,
    client: CuratorFramework,
    tally: Arc<Tally>,
    shared: Arc<Shared>,
    long: DistributedAtomicLong,
    count: SharedCount,
    value: SharedValue,
    ids: UniqueIds,
    double: DistributedDoubleBarrier,
    barrier: DistributedBarrier,
    latch: CountDownLatch,
}

/// The state that the players of all clients share.
#[derive(Default)]
struct Shared {
    long: Sum,
    count: Sum,
    ids: Mutex<Vec<u64>>,
    selected: Slot,
    items: [Slot; ITEMS.len()],
}

pub(crate) struct Players {
    all: Vec<Player>,
    last_id: Mutex<u64>,
}

impl Players {
    pub(crate) async fn start(ground: &Ground, tally: &Arc<Tally>) -> Self {
        let (shared, mut all) = (Arc::<Shared>::default(), Vec::new());
        for (number, client) in ground.clients().iter().cloned().enumerate() {
            let retry = RetryOneTime::new(Duration::from_millis(50));
            let player = Player {
                number,
                tally: Arc::clone(tally),
                shared: Arc::clone(&shared),
                long: DistributedAtomicLong::new(client.clone(), "/soak/long", retry).unwrap(),
                count: SharedCount::new(client.clone(), "/soak/count", 0).unwrap(),
                value: SharedValue::new(client.clone(), VALUE, "").unwrap(),
                ids: UniqueIds::new(client.clone(), "/soak/ids").unwrap(),
                double: DistributedDoubleBarrier::new(client.clone(), "/soak/double", CLIENTS).unwrap(),
                barrier: DistributedBarrier::new(client.clone(), "/soak/barrier").unwrap(),
                latch: CountDownLatch::new(client.clone(), "/soak/latch").unwrap(),
                client,
            };
            player.count.start().unwrap();
            in_time(player.count.initialized()).await.unwrap();
            player.value.start().unwrap();
            in_time(player.value.initialized()).await.unwrap();
            in_time(player.long.initialize(0)).await.unwrap();
            all.push(player);
        }
        Self { all, last_id: Mutex::default() }
    }

    /// Lets all play until then.
    pub(crate) fn play(&self, playing: &mut JoinSet<()>, until: Instant, random: &mut StdRng) {
        for player in &self.all {
            let mut seeded = || StdRng::seed_from_u64(random.random());
            playing.spawn(player.clone().counts(until, seeded()));
            playing.spawn(player.clone().writes(until, seeded()));
            playing.spawn(player.clone().leads(until));
            playing.spawn(player.clone().shares(until));
            playing.spawn(player.clone().meets(until));
        }
        playing.spawn(open(self.all[0].clone(), self.all[1].clone(), until));
        playing.spawn(count_down(self.all.clone(), until));
    }

    /// Checks in the calm what the players have counted.
    pub(crate) async fn agree(&self, ground: &Ground, tally: &Tally) {
        let Player { shared, long, .. } = &self.all[0];
        let read = async |path: &str| ground.fresh().get_data().for_path(path).await.unwrap().0;
        shared.long.check("atomic long", in_time(long.get()).await.unwrap(), tally);
        let count = i32::from_be_bytes(read("/soak/count").await.try_into().unwrap());
        shared.count.check("shared count", count.into(), tally);
        for player in &self.all {
            eventually("the shared count is the server's", async || player.count.count().unwrap() == count).await;
        }
        let mut ids = std::mem::take(&mut *shared.ids.lock());
        ids.sort_unstable();
        tally.add("ids", ids.len());
        let last = std::mem::replace(&mut *self.last_id.lock(), ids.last().copied().unwrap_or_default());
        if ids.windows(2).any(|two| two[0] == two[1]) || ids.first().is_none_or(|first| *first <= last) {
            tally.wrong(format!("ids repeat, or are not above {last}"));
        }
        // Nothing of the players is left.
        for path in ["/soak/selector", "/soak/partition/members", "/soak/double"] {
            eventually(&format!("{path} is empty"), async || {
                children(ground.fresh(), path).await.iter().all(|name| name == "ready")
            })
            .await;
        }
    }
}

impl Player {
    async fn counts(self, until: Instant, mut random: StdRng) {
        let Self { tally, shared, long, count, value, ids, .. } = &self;
        while Instant::now() < until {
            let added = long.increment().await;
            shared.long.add(added.as_ref().map(|_| true).map_err(CounterError::outcome_unknown));
            tally.take("increments", added, CounterError::is_retryable);
            let before = count.versioned_value().unwrap();
            let set = count.try_set_count(&before, before.value() + 1).await;
            shared.count.add(set.as_ref().copied().map_err(curator_recipes::SharedError::outcome_unknown));
            tally.take("compared counts", set, curator_recipes::SharedError::is_retryable);
            let drawn = ids.take(random.random_range(1..5)).await;
            if let Some(drawn) = tally.take("draws of ids", drawn, CounterError::is_retryable) {
                shared.ids.lock().extend(drawn);
            }
            let set = value.set_value(random.random::<u32>().to_string()).await;
            tally.take("shared values", set, curator_recipes::SharedError::is_retryable);
            sleep(Duration::from_millis(random.random_range(0..100))).await;
        }
    }

    /// Changes the tree of the caches.
    async fn writes(self, until: Instant, mut random: StdRng) {
        while Instant::now() < until {
            let mut path = format!("{TREE}/{}", random.random_range(0..20));
            if random.random() {
                path = format!("{path}/{}", random.random_range(0..5));
            }
            let client = &self.client;
            let written = match random.random_range(0..3) {
                0 => client.delete().deleting_children_if_needed().for_path(&path).await,
                1 => client.set_data().for_path(&path, random.random::<u32>().to_string()).await.map(drop),
                _ => client.create().creating_parents_if_needed().for_path(&path).await.map(drop),
            };
            let is_fair = |error: &Error| {
                let others = matches!(error, Error::NoNode { .. } | Error::NodeExists { .. } | Error::NotEmpty { .. });
                others || error.is_retryable()
            };
            self.tally.take("writes to the tree", written, is_fair);
            sleep(Duration::from_millis(random.random_range(0..50))).await;
        }
    }

    /// Leads by a selector, for a moment each time.
    async fn leads(self, until: Instant) {
        let selector = LeaderSelector::new(self.client.clone(), "/soak/selector").unwrap();
        let work = async |leadership: Leadership| {
            self.shared.selected.enter("terms of selectors", &self.tally, move || leadership.is_held());
            sleep(Duration::from_millis(200)).await;
            Ok::<_, Infallible>(())
        };
        selector.run_until(sleep_until(until), work).await.unwrap();
    }

    /// Works on a share of the items.
    async fn shares(self, until: Instant) {
        let partition = Partition::with_options(
            self.client.clone(),
            "/soak/partition",
            self.number.to_string(),
            ITEMS,
            PartitionOptions::new().settle(Duration::from_millis(500)),
        );
        let work = async |item: OwnedItem| {
            let index = ITEMS.iter().position(|name| *name == item.name()).unwrap();
            let owned = item.clone();
            self.shared.items[index].enter("owners of items", &self.tally, move || owned.is_held());
            item.revoked().await;
        };
        partition.unwrap().run_until(sleep_until(until), work).await.unwrap();
    }

    /// Enters the double barrier with all others, and leaves it.
    async fn meets(self, until: Instant) {
        while Instant::now() < until {
            let entered = self.double.enter_timeout(MEETING.min(until - Instant::now())).await;
            let Some(Some(member)) = self.tally.take("calls to enter", entered, is_fair) else { continue };
            let left = member.leave_timeout(MEETING).await;
            self.tally.take("members that have met", left, is_fair);
        }
    }
}

fn is_fair(error: &BarrierError) -> bool {
    error.is_retryable() || matches!(error, BarrierError::Lost { .. })
}

/// Sets the barrier, and removes it while another client waits.
async fn open(owner: Player, waiter: Player, until: Instant) {
    while Instant::now() < until {
        let set = owner.barrier.set_barrier().await;
        // It exists still, if the reply to an earlier removal was lost.
        owner
            .tally
            .take("barriers set", set, |error| is_fair(error) || matches!(error, BarrierError::AlreadySet { .. }));
        let waits = waiter.barrier.wait_on_barrier_timeout(MEETING);
        let removes = async {
            sleep(Duration::from_millis(50)).await;
            while owner.tally.take("barriers removed", owner.barrier.remove_barrier().await, is_fair).is_none() {}
        };
        let (opened, ()) = tokio::join!(waits, removes);
        if waiter.tally.take("waits at barriers", opened, is_fair) == Some(None) {
            waiter.tally.wrong("a waiter does not see that a barrier is removed");
        }
        sleep(Duration::from_millis(50)).await;
    }
}

/// Sets the count of the latch, and counts down while one waits.
async fn count_down(all: Vec<Player>, until: Instant) {
    let [first, second, third] = <[Player; CLIENTS]>::try_from(all).ok().unwrap();
    while Instant::now() < until {
        first.tally.take("latches set", first.latch.try_set_count(2).await, is_fair);
        let counts = async {
            // A latch that is open is not counted down.
            while first.latch.count().await.is_ok_and(|count| count > 0) {
                for player in [&second, &third] {
                    player.tally.take("counts of latches", player.latch.count_down().await, is_fair);
                }
            }
        };
        let (opened, ()) = tokio::join!(first.latch.wait_timeout(MEETING), counts);
        first.tally.take("waits at latches", opened, is_fair);
        sleep(Duration::from_millis(50)).await;
    }
}
