//! Clients that count down a latch and wait for it.

use std::time::Duration;

use curator_checkers::latches::{Call, Event};
use curator_framework::CuratorFramework;
use curator_recipes::{BarrierError, CountDownLatch};
use rand::Rng;
use tokio::time::{sleep, timeout};

use super::Worker;

const STEPS: u32 = 10;
/// The limit of the time of a call that does not wait for others.
const LIMIT: Duration = Duration::from_secs(90);

/// The latch of a client, which its workers share.
#[derive(Debug, Clone)]
pub struct Latching(CountDownLatch);

impl Latching {
    /// Creates the latch of a client.
    pub fn new(client: &CuratorFramework, path: &str) -> Self {
        Self(CountDownLatch::new(client.clone(), format!("{path}/deep/latch")).expect("a valid path"))
    }
}

impl Worker<Event> {
    /// Counts and waits until all faults are over, and once more.
    pub async fn latch(mut self, Latching(latch): Latching) {
        let mut steps = 0;
        while !self.is_calm() || steps < STEPS {
            steps += 1;
            self.pause().await;
            self.lose_a_reply();
            self.step(&latch).await;
        }
        for _ in 0..2 {
            self.meet().await;
            let count = self.meeting.workers;
            self.set(&latch, count, None).await;
            self.meet().await;
            self.open(&latch).await;
        }
    }

    fn brief(&mut self) -> Option<Duration> {
        (self.one_of(5) == 0).then(|| self.time(0..400))
    }

    async fn step(&mut self, latch: &CountDownLatch) {
        let brief = self.brief();
        match self.one_of(16) {
            0..=2 => {
                let count = self.random.random_range(1..5);
                self.set(latch, count, brief).await;
            }
            3..=5 => self.count_down(latch, brief).await,
            6..=8 => {
                let id = format!("operation-{}", self.one_of(6));
                let call = self.begins(|call| Event::Counts(call, Some(id.clone())));
                self.ends(call, latch.count_down_as(&id), Event::Counted, brief).await;
            }
            9 => {
                let call = self.begins(Event::Reads);
                self.ends(call, latch.count(), Event::Shows, brief).await;
            }
            10..=12 => {
                let budget = self.time(1..8000);
                let call = self.begins(Event::Waits);
                self.ends(
                    call,
                    latch.wait_timeout(budget),
                    |call, passed| Event::Waited(call, passed.is_some()),
                    brief,
                )
                .await;
            }
            13 => {
                let soon = self.time(0..6000);
                let call = self.begins(Event::Waits);
                self.ends(call, latch.wait(), |call, ()| Event::Waited(call, true), Some(soon)).await;
            }
            14 => {
                let soon = self.time(0..4000);
                if let Ok(Err(error)) = timeout(soon, latch.participant_lost()).await {
                    self.error(&error);
                }
            }
            _ => self.participate(latch, brief).await,
        }
    }

    fn begins(&self, event: impl FnOnce(Call) -> Event) -> Call {
        Call(self.scribe.begins(|number| event(Call(number))))
    }

    /// Notes the end of a call.
    async fn ends<T>(
        &self,
        call: Call,
        future: impl Future<Output = Result<T, BarrierError>>,
        event: impl FnOnce(Call, T) -> Event,
        brief: Option<Duration>,
    ) {
        match timeout(brief.unwrap_or(LIMIT), future).await {
            Ok(Ok(result)) => return self.scribe.event(event(call, result)),
            Ok(Err(error)) => self.error(&error),
            Err(_) if brief.is_some() => {}
            Err(_) => self.scribe.wrong(format!("{call:?} does not end")),
        }
        self.scribe.event(Event::Gone(call));
    }

    fn error(&self, error: &BarrierError) {
        self.scribe.judge(error, error.is_retryable());
    }

    async fn set(&self, latch: &CountDownLatch, count: u32, brief: Option<Duration>) {
        let call = self.begins(|call| Event::SetsCount(call, count));
        self.ends(call, latch.try_set_count(count), Event::SetCount, brief).await;
    }

    async fn count_down(&self, latch: &CountDownLatch, brief: Option<Duration>) {
        let call = self.begins(|call| Event::Counts(call, None));
        self.ends(call, latch.count_down(), Event::Counted, brief).await;
    }

    async fn participate(&mut self, latch: &CountDownLatch, brief: Option<Duration>) {
        let name = format!("worker-{}", self.number);
        // Its count is one of the round that it joins, even if that ends before.
        let call = self.begins(|call| Event::Counts(call, None));
        let (time, drops) = (self.time(0..2000), self.one_of(3) == 0);
        let joins_and_counts = async {
            let participant = latch.participate(&name).await?;
            sleep(time).await;
            self.lose_a_reply();
            if drops { Ok(None) } else { participant.count_down().await.map(Some) }
        };
        match timeout(brief.unwrap_or(LIMIT), joins_and_counts).await {
            // A server that is behind lets a participant join a round that has ended. Then it does not count.
            Ok(Ok(Some(remaining))) if remaining > 0 => return self.scribe.event(Event::Counted(call, remaining)),
            // It may have been lost.
            Ok(Err(error)) => {
                self.scribe.judge(&error, error.is_retryable() || matches!(error, BarrierError::Lost { .. }));
            }
            Err(_) if brief.is_none() => self.scribe.wrong(format!("{call:?} does not end")),
            _ => {}
        }
        self.scribe.event(Event::Gone(call));
    }

    /// Waits for a latch that all workers count down, without an end.
    async fn open(&mut self, latch: &CountDownLatch) {
        let call = self.begins(Event::Waits);
        let soon = self.time(0..300);
        let waits = async {
            match latch.wait().await {
                Ok(()) => self.scribe.event(Event::Waited(call, true)),
                Err(error) => self.scribe.judge(&error, false),
            }
        };
        let counts = async {
            sleep(soon).await;
            loop {
                self.count_down(latch, None).await;
                match latch.count().await {
                    Ok(0) => break,
                    Ok(_) => {}
                    Err(error) => break self.scribe.judge(&error, false),
                }
                sleep(Duration::from_millis(50)).await;
            }
        };
        tokio::join!(waits, counts);
    }
}
