//! Clients that put items into a queue and consume them.

use std::time::{Duration, UNIX_EPOCH};

use curator_checkers::queues::{Delivery as Id, End, Event, Item, Outcome, Put, Rules};
use curator_framework::{CreateMode, CuratorFramework, CuratorOp, Error, node_from_path};
use curator_recipes::{
    Delivery, DistributedDelayQueue, DistributedIdQueue, DistributedPriorityQueue, DistributedQueue, QueueConsumer,
    QueueError, QueueOptions, RawCodec,
};
use rand::Rng;
use rand::seq::IndexedRandom as _;
use tokio::time::{Instant, sleep, timeout};

use super::Worker;
use crate::storm::RECOVERY;

const STEPS: u32 = 10;
/// The limit of the time of a call that does not wait for others.
const LIMIT: Duration = Duration::from_secs(90);
/// The time in which the next write comes.
const LOST_FOR: Duration = Duration::from_secs(10);
/// The time after which an idle consumer has nothing.
const IDLE: Duration = Duration::from_secs(5);
/// The time in which consumers get an item that is there.
const STUCK: Duration = Duration::from_secs(30);
/// The path of the queue, as the servers know it.
pub const QUEUE: &str = "/storm/lock/deep/queue";
/// The items of a queue for a single consumer.
const ALONE: u32 = 4;

/// The kind of a storm's queue, and its options.
#[derive(Debug, Clone, Copy)]
pub struct Kind {
    order: Order,
    at_most_once: bool,
    batch: u32,
    max_attempts: Option<u32>,
}

#[derive(Debug, Clone, Copy)]
enum Order {
    Puts,
    Ids,
    Priorities,
    Times,
}

impl Kind {
    /// Returns the kind of a seed's queue. Seeds in a row have all kinds.
    pub fn of(seed: u64) -> Self {
        let at_most_once = seed / 2 % 3 == 2;
        Self {
            order: [Order::Puts, Order::Ids, Order::Priorities, Order::Times][(seed / 3 % 4) as usize],
            at_most_once,
            batch: [1, 4, 8][(seed % 3) as usize],
            max_attempts: (!at_most_once && seed / 5 % 3 == 1).then_some(3),
        }
    }

    /// Returns the rules of the queue.
    pub fn rules(self, behind: Duration) -> Rules {
        let Self { at_most_once, max_attempts, .. } = self;
        Rules { at_most_once, max_attempts, behind, ..Rules::new(QUEUE) }
    }

    fn options(self, path: &str) -> QueueOptions {
        let options = QueueOptions::new().batch(self.batch);
        match (self.at_most_once, self.max_attempts) {
            (true, _) => options.at_most_once(),
            (false, None) => options.lock_path(format!("{path}-locks")),
            (false, Some(most)) => options.lock_path(format!("{path}-locks")).max_attempts(most),
        }
    }
}

/// The queue of a client, which its workers share.
#[derive(Debug, Clone)]
pub struct Queueing {
    kind: Kind,
    queue: Queue,
    effects: String,
}

#[derive(Debug, Clone)]
enum Queue {
    Plain(DistributedQueue<String>),
    Id(DistributedIdQueue<String>),
    Priority(DistributedPriorityQueue<String>),
    Delay(DistributedDelayQueue<String>),
}

/// The way of a put.
#[derive(Debug, Clone, Copy)]
enum How {
    One,
    Within(Duration),
    Batch,
    All,
}

/// Puts values in one way, each with this argument.
macro_rules! put {
    ($queue:expr, $how:expr, $values:expr, $all:expr $(, $argument:expr)?) => {
        match $how {
            How::One => $queue.put(&$values[0] $(, $argument)?).await.map(Some),
            How::Within(budget) => $queue.put_timeout(&$values[0] $(, $argument)?, budget).await,
            How::Batch => $queue.put_batch($values $(, $argument)?).await.map(Some),
            How::All => $queue.put_all($values.iter().map($all)).await.map(Some),
        }
    };
}

impl Queueing {
    /// Creates the queue of a client.
    pub fn new(client: &CuratorFramework, path: &str, kind: Kind) -> Self {
        let path = format!("{path}/deep/queue");
        let (effects, options, client) = (format!("{path}-effects"), kind.options(&path), client.clone());
        let queue = match kind.order {
            Order::Puts => Queue::Plain(DistributedQueue::with_options(client, path, RawCodec, options).unwrap()),
            Order::Ids => Queue::Id(DistributedIdQueue::with_options(client, path, RawCodec, options).unwrap()),
            Order::Priorities => {
                Queue::Priority(DistributedPriorityQueue::with_options(client, path, RawCodec, options).unwrap())
            }
            Order::Times => Queue::Delay(DistributedDelayQueue::with_options(client, path, RawCodec, options).unwrap()),
        };
        Self { kind, queue, effects }
    }

    fn consumer(&self) -> QueueConsumer<String> {
        match &self.queue {
            Queue::Plain(queue) => queue.consumer(),
            Queue::Id(queue) => queue.consumer(),
            Queue::Priority(queue) => queue.consumer(),
            Queue::Delay(queue) => queue.consumer(),
        }
    }

    async fn put(&self, how: How, values: &[String], rank: i32) -> Result<Option<()>, QueueError> {
        match &self.queue {
            Queue::Plain(queue) => put!(queue, how, values, |value| value),
            Queue::Id(queue) => {
                let id = format!("id/{rank}");
                put!(queue, how, values, |value| (value, &*id), &id)
            }
            Queue::Priority(queue) => put!(queue, how, values, |value| (value, rank), rank),
            Queue::Delay(queue) => {
                // All of them are due.
                let due = UNIX_EPOCH + Duration::from_secs(rank.abs_diff(-3).into());
                put!(queue, how, values, |value| (value, due), due)
            }
        }
    }
}

/// The work on a delivery.
#[derive(Debug, Clone, Copy)]
struct Plan {
    time: Duration,
    /// `None` drops the delivery.
    end: Option<End>,
    /// The first call is dropped after this time.
    brief: Option<Duration>,
    /// Calls although the delivery is lost.
    insists: bool,
}

/// A consumer, and what is known of it.
struct Consuming {
    consumer: QueueConsumer<String>,
    /// The number of items that it may have taken.
    may_have: usize,
    /// The times of its start and of its newest deliveries: at most a batch.
    times: Vec<Duration>,
}

impl Worker<Event> {
    /// Puts and consumes until all faults are over, then until the queue is empty, and once more alone.
    pub async fn queue(mut self, queueing: Queueing) {
        self.create_parent(&queueing.effects).await;
        let (mut steps, mut consuming) = (0, None);
        while !self.is_calm() || steps < STEPS {
            steps += 1;
            self.pause().await;
            self.loses_a_reply();
            self.step(&queueing, &mut consuming).await;
        }
        self.meet().await;
        // Now only an administrator is in the way.
        self.consumer_ends(&mut consuming);
        self.ensemble.repair(self.name);
        sleep(LOST_FOR + RECOVERY).await;
        for _ in 0..STEPS {
            self.step(&queueing, &mut consuming).await;
        }
        self.meet().await;
        let mut consumer = consuming.map_or_else(|| queueing.consumer(), |consuming| consuming.consumer);
        self.drain(&queueing, &mut consumer).await;
        drop(consumer);
        self.meet().await;
        if self.number == 0 {
            self.scribe.event(Event::Alone);
            for _ in 0..ALONE {
                self.put_all(&queueing).await;
            }
            self.drain(&queueing, &mut queueing.consumer()).await;
        }
    }

    async fn step(&mut self, queueing: &Queueing, consuming: &mut Option<Consuming>) {
        match self.one_of(10) {
            0..=2 => self.put(queueing).await,
            3 => self.consumer_ends(consuming),
            4 => self.delete_by_hand(),
            _ => {
                let times = vec![self.scribe.now()];
                let new = || Consuming { consumer: queueing.consumer(), may_have: 0, times };
                self.consume(queueing, consuming.get_or_insert_with(new)).await;
            }
        }
    }

    /// Creates the parent of the effects.
    async fn create_parent(&mut self, path: &str) {
        loop {
            match self.client.create().creating_parents_if_needed().for_path(path).await {
                Ok(_) | Err(Error::NodeExists { .. }) => return,
                Err(error) => self.scribe.judge(&error, error.is_retryable()),
            }
            self.pause().await;
        }
    }

    /// Now and then has the reply to the client's next write lost. Other requests on the connection are lost with it.
    fn loses_a_reply(&mut self) {
        if !self.is_calm() && self.one_of(6) == 0 {
            let what = format_args!("the reply to the next write of {:?} is lost", self.name);
            self.scribe.fault(what, LOST_FOR);
            self.ensemble.drop_reply(self.name);
        }
    }

    async fn put(&mut self, queueing: &Queueing) {
        let brief = (self.one_of(6) == 0).then(|| self.time(0..300));
        let how = match self.one_of(6) {
            0 | 1 => How::One,
            2 => How::Within(self.time(0..600)),
            3 => How::Batch,
            _ => How::All,
        };
        self.puts(queueing, how, brief).await;
    }

    async fn put_all(&mut self, queueing: &Queueing) {
        self.puts(queueing, How::All, None).await;
    }

    async fn puts(&mut self, queueing: &Queueing, how: How, brief: Option<Duration>) {
        let rank = self.random.random_range(-2..3);
        let nodes = if matches!(how, How::All) { self.random.random_range(2..6) } else { 1 };
        let item = |put: u64, node: u64| Item(put * 10 + node);
        // Other kinds of queues have the order of the puts alone.
        let counts = matches!(queueing.kind.order, Order::Priorities | Order::Times);
        let number = self.scribe.begins(|put| {
            let items = (0..nodes).map(|node| item(put, node)).collect();
            Event::Puts(Put(put), items, if counts { rank.into() } else { 0 })
        });
        let put = Put(number);
        let mut values: Vec<_> = (0..nodes).map(|node| item(number, node).0.to_string()).collect();
        if let How::Batch = how {
            // They are one node.
            values = vec![values[0].clone(); 3];
        }
        match timeout(brief.unwrap_or(LIMIT), queueing.put(how, &values, rank)).await {
            Ok(Ok(done)) => self.scribe.event(Event::HasPut(put, done.is_some())),
            Ok(Err(error)) => {
                // A budget may end before the reply.
                let is_fair = matches!(how, How::Within(_)) || !self.is_calm();
                self.scribe.judge(&error, error.is_retryable() && is_fair);
                if !error.outcome_unknown() {
                    self.scribe.event(Event::HasPut(put, false));
                }
            }
            Err(_) if brief.is_some() => self.scribe.note(format_args!("{put:?} is dropped")),
            Err(_) => self.scribe.wrong(format!("{put:?} does not end")),
        }
    }

    fn error(&self, error: &QueueError) {
        let is_unknown = if let QueueError::Unknown { path } = error {
            self.scribe.event(Event::Unknown(node_from_path(path).to_owned()));
            true
        } else {
            false
        };
        // The session of a doubtful request has ended in the storm, and its consumer may learn of that in the calm.
        self.scribe.judge(error, is_unknown || (error.is_retryable() && !self.is_calm()));
    }

    /// Drops a consumer, with the items that it has not delivered.
    fn consumer_ends(&self, consuming: &mut Option<Consuming>) {
        if let Some(Consuming { may_have, times, .. }) = consuming.take() {
            self.scribe.event(Event::ConsumerDropped(may_have, times[0]));
        }
    }

    /// Deletes an item or a lock as an administrator would.
    fn delete_by_hand(&mut self) {
        let parent = format!("{QUEUE}{}", ["", "-locks"][self.one_of(2) as usize]);
        let Some(node) =
            self.ensemble.children(&parent).choose(&mut self.random).map(|name| format!("{parent}/{name}"))
        else {
            return;
        };
        self.scribe.end(format_args!("somebody deletes {node}"));
        self.scribe.revoke(vec![node.clone()]);
        self.ensemble.delete(&node);
    }

    fn plan(&mut self, kind: Kind) -> Plan {
        let end = match self.one_of(9) {
            0 | 1 => Some(End::Complete),
            2..=4 if !kind.at_most_once => Some(End::CompleteWith),
            5 if !kind.at_most_once => Some(End::Retry),
            6 if !kind.at_most_once => Some(End::Requeue),
            7 if !kind.at_most_once => Some(End::Reject),
            8 => None,
            _ => Some(End::Complete),
        };
        let time = if self.one_of(3) == 0 { self.time(0..3000) } else { self.time(0..100) };
        let brief = (self.one_of(6) == 0).then(|| self.time(0..200));
        Plan { time, end, brief, insists: self.one_of(2) == 0 }
    }

    /// Takes one item, or several at a time.
    async fn consume(&mut self, queueing: &Queueing, consuming: &mut Consuming) {
        let (soon, batch) = (self.time(50..3000), queueing.kind.batch as usize);
        let Consuming { consumer, may_have, times } = consuming;
        // What it takes while the future is dropped, or an error is returned.
        *may_have = batch;
        // A run logs the items with unknown outcomes, and does not return them.
        if queueing.kind.at_most_once || self.one_of(3) > 0 {
            let plan = self.plan(queueing.kind);
            match timeout(soon, consumer.next()).await {
                Ok(Some(Ok(delivery))) => {
                    *may_have = batch - 1;
                    let id = self.delivered(&delivery);
                    times.push(self.scribe.now());
                    self.work(queueing, delivery, id, plan).await;
                }
                Ok(Some(Err(error))) => self.error(&error),
                Ok(None) => self.scribe.wrong("a consumer that ends"),
                Err(_) => {}
            }
            times.drain(..times.len().saturating_sub(batch));
            return;
        }
        let mut plans: Vec<_> = (0..100).map(|_| self.plan(queueing.kind)).collect();
        let (this, last) = (&*self, self.plan_of_drain());
        let work = |delivery| {
            let id = this.delivered(&delivery);
            times.push(this.scribe.now());
            this.work(queueing, delivery, id, plans.pop().unwrap_or(last))
        };
        if let Err(error) = consumer.run_until(sleep(soon), 4, work).await {
            self.error(&error);
        }
        times.drain(..times.len().saturating_sub(batch));
    }

    fn delivered(&self, delivery: &Delivery<String>) -> Id {
        let values = delivery.items();
        if values.iter().any(|value| *value != values[0]) || ![1, 3].contains(&values.len()) {
            self.scribe.wrong(format!("{delivery:?} has {values:?}"));
        }
        if !delivery.is_held() {
            self.scribe.wrong(format!("{delivery:?} is not held"));
        }
        let (token, number) = (delivery.token().czxid().get(), delivery.attempt());
        let item = Item(values[0].parse().unwrap_or_default());
        Id(self.scribe.begins(|id| Event::Delivered(Id(id), item, token, number)))
    }

    /// Works on an item, and ends its delivery.
    async fn work(&self, queueing: &Queueing, delivery: Delivery<String>, id: Id, plan: Plan) {
        let is_lost = timeout(plan.time, delivery.lost()).await.is_ok() || !delivery.is_held();
        if is_lost {
            self.scribe.event(Event::Lost(id));
        }
        let end = plan.end.filter(|_| !is_lost || plan.insists);
        let is_ended = match end {
            Some(end) => {
                let first = plan.brief.unwrap_or(LIMIT);
                self.ends(queueing, &delivery, id, end, first).await
                    || plan.insists && self.ends(queueing, &delivery, id, end, LIMIT).await
            }
            None => false,
        };
        if !is_ended {
            self.scribe.event(Event::Dropped(id));
        }
    }

    /// Ends a delivery. Returns `false` if the outcome is unknown.
    async fn ends(&self, queueing: &Queueing, delivery: &Delivery<String>, id: Id, end: End, limit: Duration) -> bool {
        self.scribe.event(Event::Ends(id, end));
        let effect = CuratorOp::create(format!("{}/effect-", queueing.effects));
        let effect = effect.with_mode(CreateMode::PersistentSequential).with_data(delivery.items()[0].as_str());
        let effect = self.client.transaction().operation(effect);
        let call = async {
            match end {
                End::Complete => delivery.complete().await,
                End::CompleteWith => delivery.complete_with(&effect).await,
                End::Requeue => delivery.requeue().await,
                End::Reject => delivery.reject("a storm").await,
                End::Retry => delivery.retry().await,
            }
        };
        let outcome = match timeout(limit, call).await {
            Ok(Ok(())) => Outcome::Done,
            Ok(Err(QueueError::Lost { .. })) => Outcome::Lost,
            Ok(Err(QueueError::AlreadyGone { .. })) => Outcome::Gone,
            Ok(Err(error)) => {
                self.error(&error);
                return false;
            }
            Err(_) => {
                if limit == LIMIT {
                    self.scribe.wrong(format!("the end of {id:?} does not end"));
                }
                return false;
            }
        };
        self.scribe.event(Event::Ended(id, outcome));
        true
    }

    const fn plan_of_drain(&self) -> Plan {
        let end = if self.number % 2 == 0 { End::Complete } else { End::CompleteWith };
        Plan { time: Duration::ZERO, end: Some(end), brief: None, insists: true }
    }

    /// Completes items until none is left.
    async fn drain(&self, queueing: &Queueing, consumer: &mut QueueConsumer<String>) {
        let (mut left, mut since) = (0, Instant::now());
        let mut plan = self.plan_of_drain();
        if queueing.kind.at_most_once {
            plan.end = Some(End::Complete);
        }
        loop {
            match timeout(IDLE, consumer.next()).await {
                Ok(Some(Ok(delivery))) => {
                    let id = self.delivered(&delivery);
                    self.work(queueing, delivery, id, plan).await;
                }
                Ok(Some(Err(error))) => self.error(&error),
                Ok(None) => return self.scribe.wrong("a consumer that ends"),
                Err(_) => match self.ensemble.children(QUEUE).len() {
                    0 => return,
                    same if same == left && since.elapsed() > STUCK => {
                        return self.scribe.wrong("items that no consumer gets");
                    }
                    same if same == left => {}
                    other => (left, since) = (other, Instant::now()),
                },
            }
        }
    }
}
