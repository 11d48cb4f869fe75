//! Six clients of both languages take leases of one semaphore in every way, and Java's alone for comparison.
//!
//! `CURATOR_FLEET_GRANTS` sets the number of grants.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use curator_checkers::locks::{Mode, Step};
use curator_integration::env::{Env, Kind, in_time};
use tokio::sync::Notify;
use tokio::task::JoinSet;

use crate::peer::{Language, Peer};
use crate::record::{Report, check, rules};

const LIMIT: usize = 2;
const GRANTS: usize = 300;
/// How long each holds its leases, in milliseconds.
const HOLD: u64 = 2;
/// How long each rests then, so that leases are free now and then.
const REST: u64 = 20;
/// `acquire()`, `acquire(50 ms)`, and `acquire(2)` with `returnAll`.
const JAVA: [&str; 3] = ["semaphore:2:1:wait", "semaphore:2:1:50", "semaphore:2:2:wait"];
/// `acquire()`, `try_acquire()`, and `acquire_many(2)`, which without a budget would block Java's and be blocked by it.
const OTHERS: [&str; 3] = ["semaphore:2:1:wait", "semaphore:2:1:try", "semaphore:2:2:50"];
/// The run without a client of Rust.
const ALONE: &str = "java-alone";

/// Lets clients compete until they have been granted so much together.
async fn compete(contenders: &[(&Peer, &'static str)], path: &str, grants: usize) -> Vec<Report> {
    let (granted, enough) = (Arc::new(AtomicUsize::new(0)), Arc::new(Notify::new()));
    let mut listeners = JoinSet::new();
    for (number, (peer, kind)) in contenders.iter().enumerate() {
        let mut thread = peer.thread(&format!("{path}-{number}"));
        thread.begin(&format!("compete {kind} {path} 1000000 {HOLD} {REST}"));
        let (granted, enough) = (Arc::clone(&granted), Arc::clone(&enough));
        listeners.spawn(async move {
            let mut report = Report::new(thread.language());
            while let Some(step) = report.hear_step(&mut thread).await {
                if matches!(step, Step::Granted(_)) && granted.fetch_add(1, Ordering::SeqCst) + 1 == grants {
                    enough.notify_one();
                }
            }
            (number, report)
        });
    }
    let mut reports = Vec::new();
    tokio::select! {
        () = enough.notified() => {}
        early = listeners.join_next() => panic!("{:?} has ended before", early.map(|early| early.unwrap().0)),
    }
    for (peer, _) in contenders {
        // More than once for a process with several threads.
        assert_eq!(peer.thread("stop").ask(&format!("stop {path}")).await, "stopped");
    }
    while let Some(done) = in_time(listeners.join_next()).await {
        reports.push(done.unwrap());
    }
    reports.sort_by_key(|(number, _)| *number);
    reports.into_iter().map(|(_, report)| report).collect()
}

/// How many leases may have been taken from each moment on.
struct Taken(Vec<(Duration, usize)>);

impl Taken {
    fn new(reports: &[Report]) -> Self {
        let mut changes = Vec::new();
        for round in reports.iter().flat_map(Report::rounds) {
            let leases = leases_of(round);
            for (at, step) in round {
                match step {
                    // It may have all but one while it waits.
                    Step::Asked(_) => changes.push((*at, leases - 1, 0)),
                    Step::GaveUp => changes.push((*at, 0, leases - 1)),
                    Step::Granted(_) => changes.push((*at, 1, 0)),
                    Step::Released => changes.push((*at, 0, leases)),
                    _ => {}
                }
            }
        }
        changes.sort_unstable();
        let mut taken = 0;
        let taken_from = |(at, more, less)| {
            taken = taken + more - less;
            (at, taken)
        };
        Self(changes.into_iter().map(taken_from).collect())
    }

    /// The most leases that may have been taken at once in a time.
    fn most(&self, from: Duration, until: Duration) -> usize {
        let first = self.0.partition_point(|(at, _)| *at <= from).saturating_sub(1);
        self.0[first..].iter().take_while(|(at, _)| *at <= until).map(|(_, taken)| *taken).max().unwrap_or(0)
    }
}

fn leases_of(round: &[(Duration, Step)]) -> usize {
    match round.first() {
        Some((_, Step::Asked(Mode::Leases(leases)))) => *leases,
        _ => 1,
    }
}

/// What became of one client.
#[derive(Debug, Default)]
struct Account {
    grants: usize,
    /// From the first request to the grant, even when refusals are between them.
    longest_wait: Duration,
    refused: usize,
    /// Of these, with enough leases free at the end of the budget, as far as the clients have reported.
    free_at_the_end: usize,
    /// Of these, with enough leases free all the time.
    free_all_the_time: usize,
}

impl Account {
    fn new(report: &Report, taken: &Taken) -> Self {
        let (mut account, mut since) = (Self::default(), None);
        for round in report.rounds() {
            let [(asked, _), (at, step), ..] = round[..] else { continue };
            let began = *since.get_or_insert(asked);
            if matches!(step, Step::Granted(_)) {
                account.grants += 1;
                account.longest_wait = account.longest_wait.max(at - began);
                since = None;
                continue;
            }
            let leases = leases_of(round);
            // Its own may be among those that it had while it waited.
            let is_free_since = |from| taken.most(from, at) + leases <= LIMIT + (leases - 1);
            account.refused += 1;
            account.free_at_the_end += usize::from(is_free_since(at));
            account.free_all_the_time += usize::from(is_free_since(asked));
        }
        account
    }
}

/// Nothing happened that must not; says how long the clients waited.
fn account(what: &str, contenders: &[(&Peer, &str)], reports: &[Report]) {
    check(what, reports, &rules("semaphore:2"));
    let taken = Taken::new(reports);
    let mut longest = [Duration::ZERO; 2];
    for ((_, kind), report) in contenders.iter().zip(reports) {
        let account = Account::new(report, &taken);
        println!("{what}: {:?} {kind}: {account:?}", report.language);
        // A try of Java's finds the queue empty by chance. Alone, Java's clients are the measure for the waits, and may
        // starve each other.
        let may_be_starved =
            report.language == Language::Java && (kind.ends_with("try") || (what == ALONE && !kind.ends_with("wait")));
        assert!(account.grants > 0 || may_be_starved, "{what}: {:?} {kind} was never granted", report.language);
        // A client that tries does not wait.
        if !kind.ends_with("try") {
            let longest = &mut longest[usize::from(report.language == Language::Rust)];
            *longest = account.longest_wait.max(*longest);
        }
    }
    println!("{what}: the longest wait of Java's clients {:?}, of Rust's {:?}", longest[0], longest[1]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mixed_fleet_never_exceeds_the_limit() {
    let grants = std::env::var("CURATOR_FLEET_GRANTS").map_or(GRANTS, |grants| grants.parse().unwrap());
    let env = Env::new(Kind::Apache);
    let start = async |language| Peer::start(language, env.address(), Duration::from_secs(30)).await;
    let (java, rust) = (Language::Java, Language::Rust);
    let peers = tokio::join!(start(java), start(java), start(java), start(rust), start(rust), start(rust));
    let java = [&peers.0, &peers.1, &peers.2];
    let rust = [&peers.3, &peers.4, &peers.5];
    let client = env.client().await;
    for (what, others, grants) in [("mixed", rust, grants), (ALONE, java, grants / 4)] {
        let path = env.path(what);
        let contenders: Vec<_> = java.into_iter().zip(JAVA).chain(others.into_iter().zip(OTHERS)).collect();
        let reports = compete(&contenders, &path, grants).await;
        account(what, &contenders, &reports);
        for part in ["locks", "leases"] {
            env.wait_for_children(&client, &format!("{path}/{part}"), 0).await;
        }
    }
    for peer in [peers.0, peers.1, peers.2, peers.3, peers.4, peers.5] {
        peer.end().await;
    }
}
