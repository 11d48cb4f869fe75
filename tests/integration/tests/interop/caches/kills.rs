//! Random work on a cluster with servers that are killed, under caches of both languages.
//!
//! `CURATOR_CACHE_SECONDS` makes the work longer.

use std::time::Duration;

use curator_framework::{CuratorFramework, RetryForever};
use curator_integration::env::{connected, in_time};
use curator_recipes::CuratorCacheOptions;
use curator_test::ApacheCluster;
use tokio::sync::watch;
use tokio::task::{JoinSet, block_in_place};
use tokio::time::{Instant, sleep};

use super::follower::Follower;
use super::tree::{Difference, Tree};
use super::work::Gardener;
use crate::peer::{Language, Peer, Thread};

const ROOT: &str = "/tree";
const SECONDS: u64 = 12;
const SHORT: Duration = Duration::from_secs(2);
const LONG: Duration = Duration::from_secs(30);
/// Longer than a short session.
const DOWN: Duration = Duration::from_millis(2500);

fn cluster() -> ApacheCluster {
    let sessions = (Duration::from_secs(2), Duration::from_secs(60));
    let cluster = ApacheCluster::builder().tick(Duration::from_millis(500)).session_timeouts(sessions.0, sessions.1);
    block_in_place(|| cluster.start()).unwrap_or_else(|error| panic!("{error}"))
}

async fn client(servers: &str, session: Duration) -> CuratorFramework {
    let options = CuratorFramework::builder(servers).session_timeout(session).connection_timeout(LONG);
    connected(options.retry_policy(RetryForever::new(Duration::from_millis(100)).unwrap())).await
}

/// A cache in Java.
struct Javas {
    kind: &'static str,
    thread: Thread,
}

impl Javas {
    async fn start(peer: &Peer, kind: &'static str) -> Self {
        let mut cache = Self { kind, thread: peer.thread(kind) };
        assert_eq!(cache.ask("start").await, "started");
        cache
    }

    async fn ask(&mut self, what: &str) -> String {
        self.thread.ask(&format!("cache {} {ROOT} {what}", self.kind)).await
    }

    /// Checks the nodes of the cache. Curator's newer cache misses nodes for good if the connection breaks between the
    /// read of their parent and its list. The next read shows the same version of the children, so it does not list.
    async fn assert_has(&mut self, expected: &Tree) {
        let text = match self.ask(&format!("agrees {expected}")).await {
            agrees if agrees == "agrees" => return,
            other => other,
        };
        let nodes = Tree::parse(&text);
        let is_missed = |(_, has, _): &Difference<'_>| self.kind == "curator" && has.is_none();
        let (missed, other): (Vec<_>, Vec<_>) = nodes.differences(expected).into_iter().partition(is_missed);
        println!("Java's {} misses {} nodes", self.kind, missed.len());
        assert!(other.is_empty(), "Java's {}: {other:#?}", self.kind);
    }

    /// Checks the nodes that result from the events: the nodes of the cache. Curator reports nothing of a node that is
    /// replaced by one with the same version while the client is away.
    async fn assert_told(&mut self, expected: &Tree, marker: &str) {
        let told = Tree::parse(&self.ask(&format!("told {marker}")).await);
        let is_replaced = |(_, told, is): &Difference<'_>| matches!((told, is), (Some(told), Some(is)) if told.version == is.version && told.czxid < is.czxid);
        let is_missed = |(_, told, _): &Difference<'_>| self.kind == "curator" && told.is_none();
        let (missed, rest): (Vec<_>, Vec<_>) = told.differences(expected).into_iter().partition(is_missed);
        let (replaced, other): (Vec<_>, Vec<_>) = rest.into_iter().partition(is_replaced);
        let kind = self.kind;
        println!("Java's {kind} tells nothing of {} replaced and {} missed nodes", replaced.len(), missed.len());
        assert!(other.is_empty(), "the events of Java's {kind}: {other:#?}");
    }
}

/// Kills one server after the other, and starts it again.
async fn kill_in_turn(cluster: &ApacheCluster, time: Duration) {
    let began = Instant::now();
    let mut server = 0;
    while began.elapsed() < time {
        println!("{:>8.1?} server {server} is killed; {:?} leads", began.elapsed(), cluster.leader());
        block_in_place(|| cluster.kill(server)).unwrap();
        sleep(DOWN).await;
        block_in_place(|| cluster.restart(server).and_then(|()| cluster.wait_for_server(server))).unwrap();
        server = (server + 1) % cluster.servers();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn caches_of_both_languages_agree_behind_random_work_and_kills() {
    let time = Duration::from_secs(std::env::var("CURATOR_CACHE_SECONDS").map_or(SECONDS, |all| all.parse().unwrap()));
    let seed: u64 = rand::random();
    println!("seed {seed}");
    let cluster = cluster();
    let (all, last) = (cluster.connect_string(), cluster.server(2).unwrap().to_string());
    let observer = client(&all, LONG).await;
    observer.create().for_path(ROOT).await.unwrap();

    let start = |servers, session| Peer::start(Language::Java, servers, session);
    let javas = tokio::join!(start(all.clone(), LONG), start(last.clone(), SHORT));
    let mut theirs = vec![Javas::start(&javas.0, "curator").await, Javas::start(&javas.0, "tree").await];
    theirs.push(Javas::start(&javas.1, "curator").await);
    let mut ours = Vec::new();
    for (name, servers, session) in [
        ("the cache with all servers", &all, LONG),
        ("the cache with one server", &last, LONG),
        ("the cache with short sessions", &last, SHORT),
    ] {
        ours.push(Follower::start(name, client(servers, session).await, ROOT, CuratorCacheOptions::new()).await);
    }
    let shallow = CuratorCacheOptions::new().max_depth(2);
    let shallow = Follower::start("the shallow cache", client(&all, LONG).await, ROOT, shallow).await;

    let (stop, stopped) = watch::channel(false);
    let mut gardeners = JoinSet::new();
    for number in 0..2 {
        let gardener = Gardener::new(client(&all, LONG).await, ROOT, &format!("g{number}"), seed ^ number);
        gardeners.spawn(gardener.work(stopped.clone()));
    }
    kill_in_turn(&cluster, time).await;
    stop.send_replace(true);
    while let Some(done) = in_time(gardeners.join_next()).await {
        println!("{:?}", done.unwrap());
    }

    // Java tells events behind its cache, in their order.
    let marker = format!("{ROOT}/marker");
    observer.create().for_path(&marker).await.unwrap();
    let expected = Tree::read(&observer, ROOT).await;
    println!("{} nodes", expected.0.len());
    for cache in ours {
        cache.assert_has(&expected).await;
    }
    let is_shallow = |path: &str| path[ROOT.len()..].matches('/').count() <= 2;
    let nodes = expected.0.iter().filter(|(path, _)| is_shallow(path)).map(|(path, seen)| (path.clone(), seen.clone()));
    shallow.assert_has(&Tree(nodes.collect())).await;
    for cache in &mut theirs {
        cache.assert_has(&expected).await;
        cache.assert_told(&expected, &marker).await;
    }
    // A cache of Java's that starts now has them all.
    let mut fresh = Javas::start(&javas.0, "curator").await;
    assert_eq!(fresh.ask(&format!("agrees {expected}")).await, "agrees");
    javas.0.end().await;
    javas.1.end().await;
}
