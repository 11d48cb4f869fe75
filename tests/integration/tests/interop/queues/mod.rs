//! Java's queues beside ours: producers and consumers of both languages on one path.
//!
//! A [`Peer`](crate::peer::Peer) in Java has these verbs, one in Rust those with a star. All start with
//! `queue KIND PATH LOCK`. A lock `-` means at most once.
//!
//! | verb | answer |
//! | --- | --- |
//! | `put TEXT [ARGUMENT]` | `put`: an item with this id, priority or time |
//! | `multi TEXT,TEXT [ARGUMENT]` | `put`: the items as one node |
//! | `puts TEXT COUNT` | `put`: so many items, each with its number behind the text |
//! | `remove ID` | the number of items that were removed |
//! | `consume MILLIS` | `consuming`, and then `got TEXT` for each item, on which this thread works for so long. A negative time is a gate |
//! | `open THREAD` | `open`: one item passes the gate of this thread |
//! | `consume MILLIS EFFECTS` (Rust) | `consuming`, and then `got TEXT`; the item is completed with the create of a sequential node `EFFECTS/TEXT-`, if there is a lock |
//! | `close` (both) | `closed`: the consumer of this thread, once its last item is done |
//! | `poll`, `take MILLIS` | the item, or `none`: of a queue of the kind `simple` |
//!
//! A kind is `plain`, `id`, `priority`, `delay` or `simple`.

mod kinds;
mod returned;
mod shared;
mod worker;

use std::time::{Duration, UNIX_EPOCH};

use curator_framework::CuratorFramework;
use curator_integration::env::in_time;
use curator_recipes::{
    Delivery, DistributedDelayQueue, DistributedIdQueue, DistributedPriorityQueue, DistributedQueue, QueueConsumer,
    QueueError, QueueOptions, RawCodec,
};
pub(crate) use worker::{Workers, queue};

use crate::peer::{Peer, Thread};

/// The queues with Java's own frame around the items.
const KINDS: [&str; 4] = ["plain", "id", "priority", "delay"];

/// The kind, the path and the lock path of a queue.
#[derive(Debug, Clone)]
struct Queue {
    kind: &'static str,
    path: String,
    lock: Option<String>,
}

impl Queue {
    fn at_most_once(kind: &'static str, path: &str) -> Self {
        Self { kind, path: path.to_owned(), lock: None }
    }

    fn locked(kind: &'static str, path: &str) -> Self {
        Self { lock: Some(format!("{path}-locks")), ..Self::at_most_once(kind, path) }
    }

    /// Returns a line to a process.
    fn line(&self, what: &str) -> String {
        format!("queue {} {} {} {what}", self.kind, self.path, self.lock.as_deref().unwrap_or("-"))
    }

    /// A thread of a process that works on this queue.
    fn of(&self, peer: &Peer, name: &str) -> Remote {
        let name = format!("{name}{}", self.path);
        Remote { queue: self.clone(), thread: peer.thread(&name), name }
    }

    /// The queue of this crate.
    fn ours(&self, client: &CuratorFramework) -> Ours {
        let options = match &self.lock {
            Some(lock) => QueueOptions::new().lock_path(lock),
            None => QueueOptions::new().at_most_once(),
        };
        Ours::new(client.clone(), self.kind, &self.path, options).unwrap()
    }
}

/// A producer or a consumer in another process.
struct Remote {
    queue: Queue,
    /// The name of the thread.
    name: String,
    thread: Thread,
}

impl Remote {
    async fn asks(&mut self, what: &str) -> String {
        self.thread.ask(&self.queue.line(what)).await
    }

    async fn does(&mut self, what: &str, answer: &str) {
        assert_eq!(self.asks(what).await, answer, "{what}");
    }

    /// Lets the consumer end its work on an item.
    async fn opens(&self, peer: &Peer) {
        let mut gate = peer.thread("gate");
        assert_eq!(gate.ask(&self.queue.line(&format!("open {}", self.name))).await, "open");
    }

    /// The next item that it gets.
    async fn gets(&mut self, item: &str) {
        self.thread.says(&format!("got {item}")).await;
    }
}

/// A queue of any kind with the items of Java's program.
enum Ours {
    Plain(DistributedQueue<String>),
    Id(DistributedIdQueue<String>),
    Priority(DistributedPriorityQueue<String>),
    Delay(DistributedDelayQueue<String>),
}

impl Ours {
    fn new(client: CuratorFramework, kind: &str, path: &str, options: QueueOptions) -> Result<Self, QueueError> {
        Ok(match kind {
            "id" => Self::Id(DistributedIdQueue::with_options(client, path, RawCodec, options)?),
            "priority" => Self::Priority(DistributedPriorityQueue::with_options(client, path, RawCodec, options)?),
            "delay" => Self::Delay(DistributedDelayQueue::with_options(client, path, RawCodec, options)?),
            _ => Self::Plain(DistributedQueue::with_options(client, path, RawCodec, options)?),
        })
    }

    fn consumer(&self) -> QueueConsumer<String> {
        match self {
            Self::Plain(queue) => queue.consumer(),
            Self::Id(queue) => queue.consumer(),
            Self::Priority(queue) => queue.consumer(),
            Self::Delay(queue) => queue.consumer(),
        }
    }

    /// Puts items as one node each, or as a batch of one node. An argument is an id, a priority or milliseconds after 1970.
    async fn put(&self, items: &[&str], argument: &str, is_batch: bool) {
        let items: Vec<_> = items.iter().map(|&item| item.to_owned()).collect();
        let due = || UNIX_EPOCH + Duration::from_millis(argument.parse().unwrap());
        let priority = || argument.parse().unwrap();
        in_time(async {
            match (self, is_batch) {
                (Self::Plain(queue), false) => queue.put_all(&items).await,
                (Self::Plain(queue), true) => queue.put_batch(&items).await,
                (Self::Id(queue), false) => queue.put_all(items.iter().map(|item| (item, argument))).await,
                (Self::Id(queue), true) => queue.put_batch(&items, argument).await,
                (Self::Priority(queue), false) => queue.put_all(items.iter().map(|item| (item, priority()))).await,
                (Self::Priority(queue), true) => queue.put_batch(&items, priority()).await,
                (Self::Delay(queue), false) => queue.put_all(items.iter().map(|item| (item, due()))).await,
                (Self::Delay(queue), true) => queue.put_batch(&items, due()).await,
            }
        })
        .await
        .unwrap();
    }
}

/// The next delivery, which is not an error.
async fn next(consumer: &mut QueueConsumer<String>) -> Delivery<String> {
    in_time(consumer.next()).await.expect("the client is open").unwrap()
}

/// The items of the next deliveries, which are completed.
async fn drained(consumer: &mut QueueConsumer<String>, count: usize) -> Vec<String> {
    let mut items = Vec::new();
    while items.len() < count {
        let mut delivery = next(consumer).await;
        in_time(delivery.complete()).await.unwrap();
        items.extend(delivery.take_items());
    }
    items
}
