//! Processes that change a set under a lock, on a cluster of real servers, while servers and processes are killed and
//! stopped: only a writer with an ignored fence may lose an element.
//!
//! Each process reads the set, sleeps, and writes it back with one element more, all under one `InterProcessMutex`. The
//! set is kept twice: one copy refuses reads and writes with a fencing token older than one it has seen, the other
//! takes everything. `CURATOR_STORM_SECONDS` makes the storm longer; its seed is printed.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on fails")]

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use curator_framework::{CuratorFramework, RetryNTimes};
use curator_integration::clients::with_client;
use curator_recipes::InterProcessMutex;
use curator_test::ApacheCluster;
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use rustix::process::{Pid, Signal, kill_process};

const PATH: &str = "/storm/set";
const PROCESSES: usize = 5;
const SESSION: Duration = Duration::from_secs(3);
const PATIENCE: Duration = Duration::from_secs(60);
/// The arguments of a process of the storm: the servers, and where the set is.
const ROLE: &str = "CURATOR_STORM_WRITER";

#[test]
fn no_element_is_lost_among_writes_that_carry_a_valid_fence() {
    if let Ok(role) = std::env::var(ROLE) {
        return write_elements(&role);
    }
    let seconds = std::env::var("CURATOR_STORM_SECONDS").map_or(20, |seconds| seconds.parse().unwrap());
    let seed = rand::random::<u64>();
    println!("seed {seed}, {seconds} s");
    let cluster =
        ApacheCluster::builder().session_timeouts(Duration::from_secs(2), Duration::from_secs(60)).start().unwrap();
    println!("Apache ZooKeeper {}, {} servers", cluster.version(), cluster.servers());

    let set = Arc::new(SharedSet::default());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let serving = Arc::clone(&set);
    thread::spawn(move || serve(&listener, &serving));
    let role = format!("{} {address}", cluster.connect_string());
    let mut writers: Vec<_> = (0..PROCESSES).map(|_| Writer::start(&role)).collect();

    nemesis(&cluster, &set, &mut writers, &role, StdRng::seed_from_u64(seed), Duration::from_secs(seconds));

    // In the calm after it every process makes progress.
    let calm = set.state.lock().accepted.len();
    let began = Instant::now();
    until("writes in the calm", || set.state.lock().accepted.len() >= calm + 10 * PROCESSES);
    println!("{} writes in the calm took {:.1?}", 10 * PROCESSES, began.elapsed());
    set.stopping.store(true, Ordering::SeqCst);
    for writer in &mut writers {
        writer.end_well();
    }
    let state = set.state.lock();
    let lost = |copy: &BTreeSet<u64>, written: &BTreeSet<u64>| written.difference(copy).count();
    println!(
        "{} grants, {} at the same time as another; fenced: {} written, {} refused, {} lost; unfenced: {} written, {} lost",
        state.grants,
        state.overlaps,
        state.accepted.len(),
        state.refused,
        lost(&state.fenced, &state.accepted),
        state.written.len(),
        lost(&state.unfenced, &state.written),
    );
    assert_eq!(lost(&state.fenced, &state.accepted), 0, "elements were lost in spite of their fences");
    assert!(state.accepted.len() > 10 * PROCESSES, "hardly anything was written");
    drop(state);
    nothing_is_left(&cluster);
}

/// Sessions of killed processes end by themselves; then nothing of the lock is there.
fn nothing_is_left(cluster: &ApacheCluster) {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let client = connected(&cluster.connect_string()).await;
        let began = Instant::now();
        loop {
            let left = client.get_children().for_path(PATH).await.unwrap();
            if left.is_empty() {
                break;
            }
            assert!(began.elapsed() < PATIENCE, "left behind: {left:?}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        client.close().await;
    });
}

fn until(what: &str, look: impl Fn() -> bool) {
    let began = Instant::now();
    while !look() {
        assert!(began.elapsed() < PATIENCE, "{what}: not within {PATIENCE:?}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// Kills, freezes and cuts off for a while, one thing after the other, then repairs everything.
fn nemesis(
    cluster: &ApacheCluster,
    set: &SharedSet,
    writers: &mut [Writer],
    role: &str,
    mut random: StdRng,
    lasting: Duration,
) {
    let began = Instant::now();
    // All of them once, then at random.
    let mut next = 0;
    while began.elapsed() < lasting {
        thread::sleep(Duration::from_millis(random.random_range(300..1500)));
        let beyond_the_session = SESSION + Duration::from_millis(random.random_range(500..2000));
        let what = if next < 6 { next } else { random.random_range(0..6) };
        next += 1;
        let at = began.elapsed();
        match what {
            0 => {
                let leader = cluster.wait_until_serving().unwrap();
                println!("{at:>8.1?} leader {leader} is killed");
                cluster.kill(leader).unwrap();
                cluster.wait_until_serving().unwrap();
                cluster.restart(leader).unwrap();
            }
            1 | 2 => {
                let writer = stop_a_holder(set, writers);
                println!("{at:>8.1?} process {writer} holds the lock and stands still for {beyond_the_session:?}");
                thread::sleep(beyond_the_session);
                writers[writer].signal(Signal::CONT);
            }
            3 => {
                let server = random.random_range(0..cluster.servers());
                println!("{at:>8.1?} server {server} stands still for {beyond_the_session:?}");
                cluster.freeze(server).unwrap();
                thread::sleep(beyond_the_session);
                cluster.thaw(server).unwrap();
            }
            4 => {
                let writer = random.random_range(0..writers.len());
                println!("{at:>8.1?} process {writer} is killed");
                writers[writer] = Writer::start(role);
            }
            _ => {
                let server = random.random_range(0..cluster.servers());
                println!("{at:>8.1?} server {server} is cut off for {beyond_the_session:?}");
                cluster.isolate(server).unwrap();
                thread::sleep(beyond_the_session);
                cluster.repair(server).unwrap();
            }
        }
    }
    for server in 0..cluster.servers() {
        cluster.wait_for_server(server).unwrap();
    }
}

/// Stops a process that holds the lock.
fn stop_a_holder(set: &SharedSet, writers: &[Writer]) -> usize {
    let began = Instant::now();
    loop {
        let holder = set.state.lock().holders.keys().next().copied();
        if let Some(index) = writers.iter().position(|writer| Some(u64::from(writer.child.id())) == holder) {
            writers[index].signal(Signal::STOP);
            // What it had said before is heard by then.
            thread::sleep(Duration::from_millis(10));
            if set.state.lock().holders.keys().next().copied() == holder {
                return index;
            }
            writers[index].signal(Signal::CONT);
        }
        assert!(began.elapsed() < PATIENCE, "nobody gets the lock");
        thread::sleep(Duration::from_millis(1));
    }
}

/// A process that writes; killed when it is dropped.
struct Writer {
    child: Child,
}

impl Writer {
    fn start(role: &str) -> Self {
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["no_element_is_lost_among_writes_that_carry_a_valid_fence", "--exact", "--nocapture"])
            .env(ROLE, role)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        Self { child }
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.child.id()).unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
    }

    fn end_well(&mut self) {
        let began = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                assert!(status.success(), "a process ended with {status}");
                return;
            }
            assert!(began.elapsed() < PATIENCE, "a process does not end");
            thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// The set, behind a socket.
#[derive(Default)]
struct SharedSet {
    state: Mutex<State>,
    stopping: AtomicBool,
    elements: AtomicU64,
}

#[derive(Default)]
struct State {
    fenced: BTreeSet<u64>,
    unfenced: BTreeSet<u64>,
    /// The newest token that the fenced copy has seen.
    newest: i64,
    /// What each copy has said was written.
    accepted: BTreeSet<u64>,
    written: BTreeSet<u64>,
    refused: usize,
    /// Which processes say that they hold the lock.
    holders: BTreeMap<u64, i64>,
    grants: usize,
    overlaps: usize,
}

impl State {
    fn passes(&mut self, token: i64) -> bool {
        let passes = token >= self.newest;
        self.newest = self.newest.max(token);
        self.refused += usize::from(!passes);
        passes
    }
}

fn serve(listener: &TcpListener, set: &Arc<SharedSet>) {
    for stream in listener.incoming() {
        let (stream, set) = (stream.unwrap(), Arc::clone(set));
        thread::spawn(move || {
            let mut process = 0;
            // A process that is killed just goes.
            drop(serve_one(&stream, &set, &mut process));
            set.state.lock().holders.remove(&process);
        });
    }
}

/// One process: `hello <id>`, `granted <token>`, `read`, `write`, `over`, each answered with one word.
fn serve_one(stream: &TcpStream, set: &SharedSet, process: &mut u64) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut answers = stream.try_clone()?;
    let (mut token, mut passed) = (0, false);
    let mut snapshot = (BTreeSet::new(), BTreeSet::new());
    for line in BufReader::new(stream).lines() {
        let line = line?;
        let (word, number) = line.split_once(' ').unwrap_or((&line, "0"));
        let number: i64 = number.parse().unwrap();
        let mut answer = "ok";
        {
            let mut state = set.state.lock();
            match word {
                "hello" => *process = u64::try_from(number).unwrap(),
                "granted" => {
                    token = number;
                    state.grants += 1;
                    state.overlaps += usize::from(!state.holders.is_empty());
                    state.holders.insert(*process, token);
                }
                "read" => {
                    passed = state.passes(token);
                    snapshot = (state.fenced.clone(), state.unfenced.clone());
                }
                "write" => {
                    let element = set.elements.fetch_add(1, Ordering::SeqCst);
                    if passed && state.passes(token) {
                        snapshot.0.insert(element);
                        state.fenced = snapshot.0.clone();
                        state.accepted.insert(element);
                    }
                    snapshot.1.insert(element);
                    state.unfenced = snapshot.1.clone();
                    state.written.insert(element);
                }
                "over" => {
                    state.holders.remove(process);
                    if set.stopping.load(Ordering::SeqCst) {
                        answer = "stop";
                    }
                }
                other => panic!("{other}"),
            }
        }
        answers.write_all(format!("{answer}\n").as_bytes())?;
    }
    Ok(())
}

/// What a process of the storm does.
fn write_elements(role: &str) {
    let (connect_string, address) = role.rsplit_once(' ').unwrap();
    let mut set = SetClient::connect(address.parse().unwrap());
    set.ask(format_args!("hello {}", std::process::id()));
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let client = connected(connect_string).await;
        let mutex = InterProcessMutex::new(client.clone(), PATH).unwrap();
        loop {
            // Sessions end and servers are away: the writer tries again.
            let Ok(guard) = mutex.acquire().await else { continue };
            set.ask(format_args!("granted {}", guard.token().czxid().get()));
            set.ask(format_args!("read"));
            let work = Duration::from_millis(rand::random_range(0..20));
            // Most look whether they still hold the lock before they write; some are careless.
            let careless = rand::random_range(0..4) == 0;
            let held = guard.protect(tokio::time::sleep(work)).await.is_ok();
            if careless || (held && guard.is_held()) {
                set.ask(format_args!("write"));
            }
            let go_on = set.ask(format_args!("over"));
            // The outcome is the server's business: a guard that is dropped is cleaned up.
            drop(tokio::time::timeout(SESSION, guard.release()).await);
            if go_on == "stop" {
                break;
            }
        }
        client.close().await;
    });
}

async fn connected(connect_string: &str) -> CuratorFramework {
    let client = with_client(CuratorFramework::builder(connect_string))
        .session_timeout(SESSION)
        .connection_timeout(Duration::from_secs(10))
        .retry_policy(RetryNTimes::new(1000, Duration::from_millis(100)))
        .build()
        .unwrap();
    client.start().unwrap();
    client.block_until_connected().await.unwrap();
    client
}

struct SetClient {
    answers: BufReader<TcpStream>,
    questions: TcpStream,
}

impl SetClient {
    fn connect(address: SocketAddr) -> Self {
        let questions = TcpStream::connect(address).unwrap();
        questions.set_nodelay(true).unwrap();
        Self { answers: BufReader::new(questions.try_clone().unwrap()), questions }
    }

    fn ask(&mut self, question: std::fmt::Arguments<'_>) -> String {
        self.questions.write_all(format!("{question}\n").as_bytes()).unwrap();
        let mut answer = String::new();
        self.answers.read_line(&mut answer).unwrap();
        answer.trim_end().to_owned()
    }
}
