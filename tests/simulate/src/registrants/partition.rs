//! Registrants with a `Partition`.

use std::time::Duration;

use curator_checkers::elections::Candidate;
use curator_recipes::{OwnedItem, Partition, PartitionOptions};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio::time::{Instant, sleep, timeout};

use super::{Registrant, Scribe};

impl Registrant {
    /// Runs one partition.
    pub(super) async fn partition(&mut self, is_last: bool) {
        let id = match self.one_of(5) {
            // Workers of other clients may have it too.
            0 => format!("shared-{}", self.worker),
            _ => format!("own-{}-{}", self.name.0, self.worker),
        };
        let options = PartitionOptions::new().settle(self.time(50..1000)).grace(self.time(100..2000));
        let (client, path) = (self.client.clone(), &*self.place.path);
        let partition = Partition::with_options(client, path, id, &self.items, options).expect("valid names");
        let (scribe, mut random) = (self.scribe.clone(), StdRng::from_rng(&mut self.random));
        let candidate = scribe.wants_items(self.name);
        let run = partition.run(|item| work(scribe.clone(), candidate, item, StdRng::from_rng(&mut random)));
        if !is_last && self.one_of(4) == 0 {
            // A run that is dropped gives up its items.
            let soon = self.time(0..12_000);
            if let Ok(outcome) = timeout(soon, run).await {
                scribe.may_fail(outcome);
            }
        } else {
            let closes = async {
                if is_last {
                    self.stay().await;
                    self.scribe.reports(&partition);
                    // None leaves before all have reported.
                    self.all.wait().await;
                } else {
                    self.pause(0..12_000).await;
                }
                partition.close().await;
            };
            scribe.may_fail(tokio::join!(run, closes).0);
        }
        scribe.wants_no_items(candidate);
    }
}

/// The work of one owned item. Its drop ends the ownership.
struct Work {
    scribe: Scribe,
    candidate: Candidate,
    item: OwnedItem,
}

impl Drop for Work {
    fn drop(&mut self) {
        self.scribe.gives_up(self.candidate, &self.item);
    }
}

/// Works until the item is revoked, and often for some time more.
async fn work(scribe: Scribe, candidate: Candidate, item: OwnedItem, mut random: StdRng) {
    scribe.owns(candidate, &item);
    let work = Work { scribe, candidate, item };
    let more = Duration::from_millis(random.random_range(0..3000));
    let sleeps = random.random::<bool>();
    work.item.revoked().await;
    let until = Instant::now() + more;
    while sleeps && Instant::now() < until {
        sleep(Duration::from_millis(50)).await;
    }
}
