//! Several Apache ZooKeeper servers as one ensemble, and locks on it.
//!
//! These tests need the Debian package `zookeeper`. Without it they fail and say so.

use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use curator_framework::{CuratorFramework, RetryNTimes, SessionEnd};
use curator_recipes::{InterProcessMutex, LossReason};
use curator_test::{ApacheCluster, ApacheError};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// How long something may take that must happen.
const SOON: Duration = Duration::from_secs(60);
const TICK: Duration = Duration::from_millis(500);

fn started(builder: curator_test::ApacheClusterBuilder) -> ApacheCluster {
    let sessions = (Duration::from_secs(2), Duration::from_secs(60));
    let started = builder.tick(TICK).session_timeouts(sessions.0, sessions.1).start();
    started.unwrap_or_else(|error| panic!("{error}"))
}

fn until(what: &str, mut done: impl FnMut() -> bool) {
    let began = Instant::now();
    while !done() {
        assert!(began.elapsed() < SOON, "{what} did not happen in time");
        thread::sleep(Duration::from_millis(5));
    }
}

async fn connected(servers: &str, session: Duration) -> CuratorFramework {
    let client = CuratorFramework::builder(servers)
        .session_timeout(session)
        .connection_timeout(SOON)
        .retry_policy(RetryNTimes::new(100, Duration::from_millis(50)))
        .build()
        .unwrap();
    client.start().unwrap();
    in_time(client.block_until_connected()).await.unwrap();
    client
}

async fn in_time<T>(future: impl Future<Output = T>) -> T {
    timeout(SOON, future).await.expect("it did not come in time")
}

/// Every follower is connected to the leader, and every pair for elections: all through the links.
fn until_whole(cluster: &ApacheCluster) {
    let servers = cluster.servers();
    until("all being connected", || cluster.connections() == (servers - 1, servers * (servers - 1) / 2));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn majority_goes_on_whatever_happens_to_one_server() {
    let cluster = started(ApacheCluster::builder().sync_limit(8));
    until_whole(&cluster);
    for asked in [cluster.kill(3), cluster.restart(3), cluster.thaw(3), cluster.cut(0, 3), cluster.repair(usize::MAX)] {
        assert!(matches!(asked, Err(ApacheError::NoSuchServer { servers: 3, .. })));
    }
    assert!(cluster.version().starts_with("3."), "version {}", cluster.version());
    let servers: Vec<String> = (0..3).map(|index| cluster.server(index).unwrap().to_string()).collect();
    assert_eq!(cluster.connect_string(), servers.join(","));
    let mut written = Vec::new();
    let mut write = async |leader: usize, name: &str| {
        let path = format!("/{name}");
        let client = connected(&servers[leader], Duration::from_secs(40)).await;
        // On a busy machine an election may precede the reply.
        in_time(client.create().idempotent().for_path(&path)).await.unwrap();
        written.push(path);
    };

    // Cut off in silence, the leader is replaced; when repaired it follows.
    let first = cluster.wait_until_serving().unwrap();
    write(first, "start").await;
    cluster.isolate(first).unwrap();
    assert_eq!(cluster.leader(), None, "it leads nobody from that moment on");
    let second = cluster.wait_until_serving().unwrap();
    assert_ne!(second, first);
    write(second, "isolated").await;
    cluster.repair(first).unwrap();
    until_whole(&cluster);

    // Killed, the leader is replaced; when restarted it has its data again.
    let second = cluster.wait_until_serving().unwrap();
    cluster.kill(second).unwrap();
    let third = cluster.wait_until_serving().unwrap();
    assert_ne!(third, second);
    assert!(matches!(cluster.wait_for_server(second), Err(ApacheError::Stopped)));
    assert!(matches!(cluster.freeze(second), Err(ApacheError::Stopped)));
    write(third, "killed").await;
    cluster.restart(second).unwrap();
    cluster.wait_for_server(second).unwrap();
    until_whole(&cluster);

    // Frozen, the leader is replaced; when thawed it follows.
    let third = cluster.wait_until_serving().unwrap();
    cluster.freeze(third).unwrap();
    let fourth = cluster.wait_until_serving().unwrap();
    assert_ne!(fourth, third);
    write(fourth, "frozen").await;
    cluster.thaw(third).unwrap();
    until_whole(&cluster);

    // A follower that is killed bothers no client; two that are killed bother all.
    let leader = cluster.wait_until_serving().unwrap();
    let followers: Vec<usize> = (0..3).filter(|index| *index != leader).collect();
    cluster.kill(followers[0]).unwrap();
    write(cluster.wait_until_serving().unwrap(), "two").await;
    cluster.kill(followers[1]).unwrap();
    until("one server alone leads nobody", || cluster.leader().is_none());

    cluster.stop().unwrap();
    (0..3).for_each(|index| cluster.restart(index).unwrap());
    cluster.wait_until_serving().unwrap();
    for (index, server) in servers.iter().enumerate() {
        cluster.wait_for_server(index).unwrap();
        let reader = connected(server, Duration::from_secs(20)).await;
        // A server that has just followed the leader may apply its last transactions later.
        in_time(reader.sync("/")).await.unwrap();
        for path in &written {
            assert!(in_time(reader.check_exists().for_path(path)).await.unwrap().is_some(), "{path} on {index}");
        }
    }
}

#[test]
fn impossible_clusters_and_servers_are_refused() {
    for builder in [
        ApacheCluster::builder().servers(0),
        ApacheCluster::builder().servers(2),
        ApacheCluster::builder().servers(10),
        ApacheCluster::builder().sync_limit(0),
        ApacheCluster::builder().tick(Duration::ZERO),
        ApacheCluster::builder().session_timeouts(Duration::ZERO, TICK),
    ] {
        assert!(matches!(builder.start(), Err(ApacheError::InvalidOption(_))));
    }
    let nowhere = tempfile::tempdir().unwrap();
    let error = ApacheCluster::builder().jars(nowhere.path()).start().unwrap_err();
    assert!(matches!(error, ApacheError::NotInstalled { .. }), "{error}");
}

/// The session timeout of the clients that are cut off.
const SESSION: Duration = Duration::from_secs(6);
/// How long the follower that is cut off continues, in ticks: much longer than any session lives.
const SYNC_LIMIT: u32 = 40;
const HOLDERS: u32 = 6;

/// A lock with a holder on one server and a waiter on others.
struct Contest {
    holder: SocketAddr,
    waiter: String,
    path: String,
    /// How long before the cut the lock is taken: the moment in the schedule of heartbeats.
    age: Duration,
}

/// What became of the old holder when the waiter was granted.
struct Verdict {
    /// The reason of the loss that was reported, and how long before.
    told: Option<(LossReason, Duration)>,
    still_held: bool,
    /// How many reads of the old holder were answered behind the cut.
    reads: usize,
    /// The node of the old holder.
    node: String,
}

/// What the contests and the nemesis report to each other.
#[derive(Clone)]
struct Signals {
    /// All holders and waiters are connected.
    ready: mpsc::UnboundedSender<()>,
    /// When the cut will be.
    due: watch::Receiver<Option<Instant>>,
    /// When it was.
    cut: watch::Receiver<Option<Instant>>,
}

async fn told(signal: &mut watch::Receiver<Option<Instant>>) -> Instant {
    in_time(signal.wait_for(Option::is_some)).await.unwrap().unwrap()
}

impl Contest {
    async fn run(self, mut signals: Signals) -> Verdict {
        let holder = connected(&self.holder.to_string(), SESSION).await;
        let waiter = connected(&self.waiter, Duration::from_secs(20)).await;
        let mutex = InterProcessMutex::new(holder.clone(), &self.path).unwrap();
        assert!(in_time(mutex.acquire()).await.unwrap().release().await.unwrap().is_released());
        signals.ready.send(()).unwrap();
        let due = told(&mut signals.due).await;
        tokio::time::sleep_until((due - self.age).into()).await;
        let old = in_time(mutex.acquire()).await.unwrap();
        let node = old.node_path().to_owned();

        // A watch tells when, so that a late check of it harms nothing.
        let (tell, lost) = watch::channel(None);
        let (stop, mut stopped) = watch::channel(());
        let holding = tokio::spawn({
            let (mut cut, node) = (signals.cut.clone(), node.clone());
            async move {
                let mut reads = 0;
                let reading = async {
                    loop {
                        if in_time(holder.get_data().for_path(&node)).await.is_ok() {
                            // A read that was under way at the cut may have been answered before.
                            reads += usize::from(cut.borrow_and_update().is_some());
                        }
                        tokio::time::sleep(Duration::from_millis(10)).await;
                    }
                };
                tokio::select! {
                    reason = old.lost() => drop(tell.send(Some((reason, Instant::now())))),
                    () = reading => {}
                    _ = stopped.changed() => {}
                }
                (old.is_held(), reads)
            }
        });
        signals.ready.send(()).unwrap();
        told(&mut signals.cut).await;
        let mutex = InterProcessMutex::new(waiter, &self.path).unwrap();
        let new = in_time(mutex.acquire()).await.unwrap();
        let granted = Instant::now();
        let told = lost.borrow().map(|(reason, at): (LossReason, Instant)| (reason, granted.duration_since(at)));
        drop(stop);
        let (still_held, reads) = in_time(holding).await.unwrap();
        assert!(new.is_held());
        Verdict { told, still_held, reads, node }
    }
}

/// Plays one contest for each age. The holder's server answers its pings, and its reads until one waits behind a
/// heartbeat, but it has lost its leader: the leader ends the session, and the server does not know of it.
async fn cut_off_from_the_leader(
    ages: impl ExactSizeIterator<Item = Duration>,
    start: impl Fn(Contest, Signals) -> JoinHandle<Verdict>,
) -> Vec<Verdict> {
    let cluster = started(ApacheCluster::builder().sync_limit(SYNC_LIMIT));
    let leader = cluster.wait_until_serving().unwrap();
    let follower = (0..cluster.servers()).find(|index| *index != leader).unwrap();
    let holder = cluster.server(follower).unwrap();
    let others = (0..cluster.servers()).filter(|index| *index != follower);
    let waiter = others.map(|index| cluster.server(index).unwrap().to_string()).collect::<Vec<_>>().join(",");
    // It lives on its server's word longer than that server continues.
    let witness = connected(&holder.to_string(), Duration::from_secs(60)).await;

    let (ready, mut is_ready) = mpsc::unbounded_channel();
    let (tell_due, due) = watch::channel(None);
    let (tell_cut, cut) = watch::channel(None);
    let signals = Signals { ready, due, cut };
    let count = ages.len();
    let contests: Vec<_> = ages
        .enumerate()
        .map(|(number, age)| Contest { holder, waiter: waiter.clone(), path: format!("/lock-{number}"), age })
        .map(|contest| start(contest, signals.clone()))
        .collect();
    for _ in 0..count {
        in_time(is_ready.recv()).await.unwrap();
    }
    let at = Instant::now() + Duration::from_secs(2);
    tell_due.send(Some(at)).unwrap();
    tokio::time::sleep_until(at.into()).await;
    for _ in 0..count {
        in_time(is_ready.recv()).await.unwrap();
    }
    assert_eq!(cluster.cut_from_leader(follower).unwrap(), leader);
    tell_cut.send(Some(Instant::now())).unwrap();

    let mut verdicts = Vec::new();
    for contest in contests {
        verdicts.push(in_time(contest).await.unwrap());
    }
    assert_eq!(cluster.leader(), Some(leader));
    for Verdict { node, .. } in &verdicts {
        let stale = in_time(witness.check_exists().for_path(node)).await.unwrap();
        assert!(stale.is_some(), "the follower does not know of the end of the session yet");
    }
    cluster.repair(follower).unwrap();
    assert!(in_time(witness.check_exists().for_path("/")).await.is_ok());
    verdicts
}

/// The holders take their locks at different times, so that the cut meets each at another moment between two heartbeats.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn holder_on_a_follower_that_is_cut_off_is_told_before_the_next_one_is_granted() {
    // An eighth of the timeout lies between two heartbeats of a holder.
    let ages = (0..HOLDERS).map(|number| Duration::from_millis(300) + SESSION / 8 * number / HOLDERS);
    for verdict in cut_off_from_the_leader(ages, |contest, signals| tokio::spawn(contest.run(signals))).await {
        let Verdict { told, still_held, reads, .. } = verdict;
        let (reason, before) = told.expect("granted before the old holder was told");
        assert_eq!(reason, LossReason::Session(SessionEnd::DeadlinePassed));
        assert!(!still_held && before > Duration::ZERO);
        println!("told {before:?} before the next one was granted, after {reads} reads");
    }
}

#[cfg(curator_mutants)]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn holder_that_takes_reads_for_proofs_is_found() {
    let broken = |contest: Contest, signals| {
        tokio::task::spawn_blocking(|| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            let run = || runtime.block_on(contest.run(signals));
            curator_framework::mutants::with("reads-move-the-deadline", run)
        })
    };
    for verdict in cut_off_from_the_leader([Duration::from_secs(1)].into_iter(), broken).await {
        println!("granted in spite of {} reads of the old holder", verdict.reads);
        assert!(verdict.told.is_none() && verdict.still_held && verdict.reads > 0);
    }
}
