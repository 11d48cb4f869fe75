//! Consumers of both languages on the same queues, some of which are killed.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use curator_framework::CuratorFramework;
use curator_integration::env::{Env, Kind, children, eventually, in_time};
use curator_test::kill_session;

use super::{Ours, Queue, Remote};
use crate::peer::{Language, Peer};

/// The items that a language puts into a queue in a round.
const PART: usize = 25;
/// Rounds put more while a queue has fewer items than this.
const BACKLOG: u64 = 100;
/// The processes that are killed, and those that lose their sessions.
const KILLS: usize = 4;

/// A consumer, and the items that it has said.
struct Consumer {
    remote: Remote,
    language: Language,
    got: Vec<String>,
}

impl Consumer {
    async fn start(peer: &Peer, queue: &Queue, name: &str, (language, millis): (Language, u32)) -> Self {
        let mut remote = queue.of(peer, name);
        let effects = match language {
            Language::Rust => format!(" {}-effects", queue.path),
            _ => String::new(),
        };
        remote.does(&format!("consume {millis}{effects}"), "consuming").await;
        Self { remote, language, got: Vec::new() }
    }

    /// Hears the next item. `None` after its end.
    async fn hear(&mut self) -> Option<()> {
        let answer = self.remote.thread.answer().await.filter(|answer| answer != "closed")?;
        self.got.push(answer.strip_prefix("got ").unwrap().to_owned());
        Some(())
    }

    /// Hears what it has said up to now, and then one item more. So it is in the middle of its work, or soon after.
    async fn hear_up_to_now(&mut self) {
        while !self.remote.thread.is_silent() {
            self.hear().await.unwrap();
        }
        self.hear().await.unwrap();
    }

    /// Hears all that it has said, once it has ended.
    async fn hear_all(mut self) -> (Language, Vec<String>) {
        while self.hear().await.is_some() {}
        (self.language, self.got)
    }
}

/// A queue with its producers and consumers.
struct Stage {
    queue: Queue,
    ours: Ours,
    javas: Remote,
    /// Two of processes that live, two of processes that die; Java's first.
    consumers: Vec<Consumer>,
    items: Vec<String>,
    rounds: usize,
}

async fn len(queue: &Ours) -> u64 {
    let Ours::Plain(queue) = queue else { unreachable!() };
    in_time(queue.len()).await.unwrap()
}

impl Stage {
    async fn new(client: &CuratorFramework, queue: Queue, peers: &[(Peer, Language); 4]) -> Self {
        let (ours, javas) = (queue.ours(client), queue.of(&peers[0].0, "producer"));
        if queue.lock.is_some() {
            in_time(client.create().creating_parents_if_needed().for_path(&format!("{}-effects", queue.path)))
                .await
                .unwrap();
        }
        let mut consumers = Vec::new();
        for (number, (peer, language)) in peers.iter().enumerate() {
            let millis = if number < 2 { 0 } else { 5 };
            consumers.push(Consumer::start(peer, &queue, &format!("consumer-{number}"), (*language, millis)).await);
        }
        Self { queue, ours, javas, consumers, items: Vec::new(), rounds: 0 }
    }

    /// Puts some items by each language, until the victim is in the middle of its work.
    async fn feed(&mut self, victim: Option<usize>) {
        let Self { queue, ours, javas, consumers, items, rounds } = self;
        let is_heard = AtomicBool::new(false);
        let hears = async {
            if let Some(victim) = victim {
                consumers[victim].hear_up_to_now().await;
            }
            is_heard.store(true, Ordering::Relaxed);
        };
        let feeds = async {
            loop {
                eventually("the backlog is small", async || len(ours).await < BACKLOG).await;
                let names = |language: &str| {
                    (0..PART).map(|number| format!("{language}-{rounds}-{number}")).collect::<Vec<_>>()
                };
                let [rusts, of_java] = ["rust", "java"].map(names);
                javas.thread.begin(&queue.line(&format!("puts java-{rounds}- {PART}")));
                ours.put(&rusts.iter().map(String::as_str).collect::<Vec<_>>(), "", false).await;
                javas.thread.says("put").await;
                items.extend(rusts.into_iter().chain(of_java));
                *rounds += 1;
                if is_heard.load(Ordering::Relaxed) {
                    break;
                }
            }
        };
        tokio::join!(hears, feeds);
    }

    /// Returns the items that each language has got.
    async fn end(mut self, client: &CuratorFramework) -> (Vec<String>, [BTreeMap<String, usize>; 2]) {
        eventually("all items are taken", async || len(&self.ours).await == 0).await;
        // While the consumers live: a lock that one of them has left would end with its session.
        if let Some(locks) = &self.queue.lock {
            eventually("no lock is left", async || children(client, locks).await.is_empty()).await;
        }
        for consumer in &mut self.consumers[..2] {
            consumer.remote.thread.begin(&self.queue.line("close"));
        }
        let mut counts = [BTreeMap::new(), BTreeMap::new()];
        for consumer in self.consumers {
            let (language, got) = consumer.hear_all().await;
            for item in got {
                *counts[usize::from(language == Language::Rust)].entry(item).or_default() += 1;
            }
        }
        (self.items, counts)
    }
}

/// At least once, and the effects of our completions exactly once. Java's consumers delete an item although their session
/// has ended, and two of them may work on one.
async fn check_locked(client: &CuratorFramework, stage: Stage) {
    let effects = format!("{}-effects", stage.queue.path);
    let (items, [javas, ours]) = stage.end(client).await;
    let mut made = BTreeMap::<_, usize>::new();
    for node in in_time(client.get_children().for_path(&effects)).await.unwrap() {
        *made.entry(node[..node.len() - 11].to_owned()).or_default() += 1;
    }
    let times = |counts: &BTreeMap<String, usize>, item| counts.get(item).copied().unwrap_or_default();
    let (mut doubled, mut again) = (Vec::new(), 0);
    for item in &items {
        let (made, javas, ours) = (times(&made, item), times(&javas, item), times(&ours, item));
        assert!(made <= 1, "{item}: our effect is made {made} times");
        assert!(made <= ours, "{item}: an effect without a delivery");
        assert!(made + javas >= 1, "{item} is lost; we got it {ours} times");
        if made + javas > 1 {
            doubled.push(item);
        }
        again += (ours + javas).saturating_sub(1);
    }
    println!("{} items with locks: {again} deliveries again, doubled by Java: {doubled:?}", items.len());
    // Each Java process that was killed or has lost its session had one item.
    assert!(doubled.len() <= KILLS / 2, "{doubled:?}");
}

/// At most once: a consumer that is killed loses the item in its hands.
async fn check_at_most_once(client: &CuratorFramework, stage: Stage) {
    let (items, [javas, ours]) = stage.end(client).await;
    let times = |counts: &BTreeMap<String, usize>, item| counts.get(item).copied().unwrap_or_default();
    let (mut lost, mut doubled) = (Vec::new(), Vec::new());
    for item in &items {
        let (javas, ours) = (times(&javas, item), times(&ours, item));
        assert!(javas <= 1 && ours <= 1, "{item}: Java got it {javas} times, we {ours} times");
        match javas + ours {
            0 => lost.push(item),
            1 => {}
            _ => doubled.push(item),
        }
    }
    println!("{} items at most once: lost {lost:?}, doubled {doubled:?}", items.len());
    assert!(lost.len() <= KILLS, "{lost:?}");
    assert_eq!(doubled, [""; 0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn queues_survive_their_consumers() {
    let is_long = std::env::var("CURATOR_MODEL").is_ok_and(|bounds| bounds == "long");
    let rounds = if is_long { 400 } else { 50 };
    let env = Env::new(Kind::InProcess);
    let client = env.client().await;
    let peers = tokio::join!(Peer::java(&env), Peer::rust(&env), Peer::java(&env), Peer::rust(&env));
    let [java, rust] = [Language::Java, Language::Rust];
    let peers = [(peers.0, java), (peers.1, rust), (peers.2, java), (peers.3, rust)];
    let mut sessions = Vec::new();
    for (peer, _) in &peers {
        sessions.push(peer.session().await);
    }
    let queues = [Queue::locked("plain", &env.path("locked")), Queue::at_most_once("plain", &env.path("plain"))];
    let [locked, plain] = queues.map(|queue| Stage::new(&client, queue, &peers));
    let (mut locked, mut plain) = (locked.await, plain.await);
    let mut peers = peers.map(|(peer, _)| Some(peer));
    for round in 0..rounds {
        // The victims in their turn: two processes, then two sessions.
        let victim = [2, 3, 0, 1].get(round * 5 / rounds).filter(|_| round * 5 % rounds == 0).copied();
        tokio::join!(locked.feed(victim), plain.feed(victim));
        let Some(victim) = victim else { continue };
        if victim >= 2 {
            peers[victim].take().unwrap().kill().await;
        }
        kill_session(env.address(), sessions[victim]).await.unwrap();
    }
    check_locked(&client, locked).await;
    check_at_most_once(&client, plain).await;
    for peer in peers.into_iter().flatten() {
        peer.end().await;
    }
}
