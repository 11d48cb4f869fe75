//! Four processes of ours with many tasks and one node each, beside ten threads of Java.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::SocketAddr;
use std::time::Duration;

use curator_checkers::locks::Rules;
use curator_framework::CuratorFramework;
use curator_integration::env::{Env, Kind, children, eventually};
use curator_integration::in_process::{client, server};
use curator_test::LoggedRequest;
use curator_test::wire::OpCode;
use futures_util::future::{join, join_all};

use crate::peer::{Language, Peer, Thread};
use crate::record::{Report, check, rules};

const PROCESSES: usize = 4;
/// A hundredth of it is not longer than [`COUNTS`].
const SESSION: Duration = Duration::from_secs(10);
const LEASES: usize = 4;
/// The time of a job under a lease, and the time in which a search for other contenders counts, in milliseconds.
const WORK: usize = 5;
const COUNTS: usize = 100;
/// The most jobs of a client beside a queued thread: while its look still counts, of one turn, and of the leases that it
/// has when the thread comes.
const MOST_JOBS: usize = LEASES * (COUNTS / WORK + 1) + LEASES + LEASES;
const HAND_OVERS: usize = 500;

/// A contest of Java's threads and our tasks, which take part until Java's threads have had their rounds.
struct Contest {
    name: &'static str,
    java: &'static str,
    ours: &'static str,
    threads: usize,
    rounds: usize,
    processes: usize,
    tasks: usize,
    hold: usize,
    /// The time between two rounds of a thread, in milliseconds.
    rest: usize,
}

/// All are queued at nearly all times.
const QUEUED: Contest = Contest {
    name: "queued",
    java: "semaphore:4",
    ours: "one-node-semaphore:4",
    threads: 10,
    rounds: 40,
    processes: PROCESSES,
    tasks: 20,
    hold: WORK,
    rest: 0,
};
/// One client passes its leases on while no thread is queued.
const PASSING: Contest = Contest { name: "passing", rounds: 6, processes: 1, rest: 300, ..QUEUED };
/// Between two grants of a thread each client that was queued has a turn.
const MUTEX: Contest = Contest {
    name: "mutex",
    java: "mutex",
    ours: "one-node-mutex",
    threads: 2,
    rounds: HAND_OVERS / 2 + 5,
    tasks: 3,
    hold: 0,
    ..QUEUED
};

struct Crowd {
    java: Peer,
    rust: Vec<Peer>,
}

impl Crowd {
    async fn start(address: SocketAddr) -> Self {
        let start = |language| Peer::start(language, address, SESSION);
        let ours = join_all((0..PROCESSES).map(|_| start(Language::Rust)));
        let (java, rust) = join(start(Language::Java), ours).await;
        Self { java, rust }
    }

    async fn compete(&self, contest: &Contest, path: &str) -> Vec<Report> {
        let &Contest { java, ours, threads, rounds, processes, tasks, hold, rest, .. } = contest;
        let begin = |peer: &Peer, number, what: String| -> Vec<Thread> {
            let names = (0..number).map(|number| format!("{path}-{number}"));
            names.map(|name| peer.thread(&name)).inspect(|thread| thread.begin(&what)).collect()
        };
        let mut theirs = begin(&self.java, threads, format!("compete {java} {path} {rounds} {hold} {rest}"));
        let rust = &self.rust[..processes];
        let endless = format!("compete {ours} {path} 1000000 {hold}");
        let mut ours: Vec<_> = rust.iter().flat_map(|peer| begin(peer, tasks, endless.clone())).collect();
        let mut reports = Vec::new();
        for thread in &mut theirs {
            reports.push(Report::of(thread).await);
        }
        for peer in rust {
            assert_eq!(peer.thread("stop").ask(&format!("stop {path}")).await, "stopped");
        }
        for thread in &mut ours {
            reports.push(Report::of(thread).await);
        }
        reports
    }

    /// Runs a contest. No grant is one too many, and no node is left.
    async fn run(&self, contest: &Contest, client: &CuratorFramework, path: &str) -> Vec<Report> {
        let reports = self.compete(contest, path).await;
        // The holders of a node have one transaction.
        check(contest.name, &reports, &Rules { growing_tokens: false, ..rules(contest.java) });
        let folders: &[&str] = if contest.java == "mutex" { &[""] } else { &["/locks", "/leases"] };
        for folder in folders {
            let folder = format!("{path}{folder}");
            eventually("no node is left", async || children(client, &folder).await.is_empty()).await;
        }
        reports
    }

    async fn end(self) {
        for peer in self.rust.into_iter().chain([self.java]) {
            peer.end().await;
        }
    }
}

/// Returns how many times a grant in one language follows a grant in another.
fn hand_overs(reports: &[Report]) -> usize {
    let of = |report: &Report| report.grants().map(|at| (at, report.language)).collect::<Vec<_>>();
    let grants: BTreeMap<_, _> = reports.iter().flat_map(of).collect();
    let languages: Vec<_> = grants.into_values().collect();
    languages.windows(2).filter(|pair| pair[0] != pair[1]).count()
}

/// A thread of Java in the queue of a semaphore.
#[derive(Default)]
struct Queued {
    /// The turns and the jobs that each of our sessions has had since.
    turns: HashMap<i64, HashSet<usize>>,
    jobs: HashMap<i64, usize>,
}

/// Returns the most turns and jobs of one of our sessions while a thread of Java is in the queue.
fn most_beside_a_queued_thread(log: &[LoggedRequest], path: &str, ours: &[i64]) -> [usize; 2] {
    let (queue, leases) = (format!("{path}/locks/"), format!("{path}/leases/"));
    let mut queued: HashMap<&str, Queued> = HashMap::new();
    // The queue node of each of our sessions.
    let mut nodes: HashMap<i64, usize> = HashMap::new();
    let mut most = [0, 0];
    for (number, request) in log.iter().enumerate().filter(|(_, request)| request.error == 0) {
        let (Some(at), session) = (request.path.as_deref(), request.session_id) else { continue };
        let is_ours = ours.contains(&session);
        match request.op {
            OpCode::Create | OpCode::Create2 if at.starts_with(&queue) && is_ours => {
                nodes.insert(session, number);
            }
            OpCode::Create | OpCode::Create2 if at.starts_with(&queue) => {
                queued.insert(at, Queued::default());
            }
            OpCode::Create | OpCode::Create2 if at.starts_with(&leases) && is_ours => {
                let Some(node) = nodes.get(&session) else { continue };
                for beside in queued.values_mut() {
                    beside.turns.entry(session).or_default().insert(*node);
                }
            }
            OpCode::Exists if at == path && is_ours => {
                for beside in queued.values_mut() {
                    *beside.jobs.entry(session).or_default() += 1;
                }
            }
            OpCode::Delete if at.starts_with(&queue) && is_ours => {
                nodes.remove(&session);
            }
            OpCode::Delete if at.starts_with(&queue) => {
                let created = at.trim_end_matches(|digit: char| digit.is_ascii_digit());
                let Some(beside) = queued.remove(created) else { continue };
                let turns = beside.turns.values().map(HashSet::len).max().unwrap_or(0);
                let jobs = beside.jobs.values().copied().max().unwrap_or(0);
                most = [most[0].max(turns), most[1].max(jobs)];
            }
            _ => {}
        }
    }
    assert!(queued.is_empty(), "threads are left: {:?}", queued.keys());
    most
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn crowds_exclude_each_other_beside_javas_threads() {
    let env = Env::new(Kind::Apache);
    let (crowd, client) = (Crowd::start(env.address()).await, env.client().await);
    for contest in [QUEUED, PASSING] {
        crowd.run(&contest, &client, &env.path(contest.name)).await;
    }
    let hand_overs = hand_overs(&crowd.run(&MUTEX, &client, &env.path(MUTEX.name)).await);
    println!("{hand_overs} hand-overs between Java and Rust");
    assert!(hand_overs >= HAND_OVERS, "{hand_overs}");
    crowd.end().await;
}

/// `recipes/docs/batches.md`, "Leases of a semaphore".
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_crowd_has_one_turn_beside_a_queued_thread_of_java() {
    let server = server();
    let (crowd, client) = (Crowd::start(server.address()).await, client(&server).await);
    let ours = join_all(crowd.rust.iter().map(Peer::session)).await;
    for contest in [QUEUED, PASSING] {
        let path = format!("/{}", contest.name);
        server.clear_requests();
        crowd.run(&contest, &client, &path).await;
        let [turns, jobs] = most_beside_a_queued_thread(&server.requests(), &path, &ours);
        println!("{}: at most {turns} turns and {jobs} jobs of a client beside a queued thread", contest.name);
        assert!(turns <= 1, "{turns}");
        assert!((1..=MOST_JOBS).contains(&jobs), "{jobs}");
    }
    crowd.end().await;
}
