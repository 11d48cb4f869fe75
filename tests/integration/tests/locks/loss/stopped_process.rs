//! A process that was stopped for longer than its session: its first check of the lock shows that it is not held.
//!
//! The holders are processes of their own. They look over and over, from before they are stopped until after that, and
//! tell what the first look said that started behind the gap. Half of them look in the only thread of their runtime, so
//! that no timer and no event of the client can run before that look.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use curator_framework::LossReason;
use curator_integration::env::{PATIENCE, builder, connected, eventually, in_time};
use curator_integration::held::{Form, Kind, Way, all_lost, not_over};
use curator_recipes::{LockGuard, Release, SemaphoreProtocol};
use curator_test::ApacheServer;
use rustix::process::{Pid, Signal, kill_process};

const SESSION: Duration = Duration::from_secs(3);
/// The arguments of a process that holds: the server, the path, and which of the holders it is.
const ROLE: &str = "CURATOR_STOPPED_HOLDER";
const TEST: &str = "loss::stopped_process::the_first_look_of_a_holder_that_was_stopped_says_that_it_is_not_held";
/// What the holders hold, and how many threads they have.
const HOLDERS: [(Way, usize); 6] = [
    (Way::new(Kind::Mutex, Form::Plain), 1),
    (Way::new(Kind::Mutex, Form::Reentrant), 2),
    (Way::new(Kind::Write, Form::Downgraded), 1),
    (Way::new(Kind::SemaphoreMutex, Form::Plain), 2),
    (Way::new(Kind::Multi, Form::Plain), 1),
    (Way::new(Kind::Lease(SemaphoreProtocol::Direct), Form::Plain), 2),
];

#[test]
fn the_first_look_of_a_holder_that_was_stopped_says_that_it_is_not_held() {
    if let Ok(role) = std::env::var(ROLE) {
        return hold(&role);
    }
    let sessions = (SESSION, Duration::from_secs(60));
    let server = ApacheServer::builder().tick(Duration::from_millis(500)).session_timeouts(sessions.0, sessions.1);
    let server = server.start().unwrap_or_else(|error| panic!("{error}"));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(stop_and_look(&server));
    println!("{} holders stood still until their sessions were over: all first looks were right", 2 * HOLDERS.len());
}

async fn stop_and_look(server: &ApacheServer) {
    let client = connected(builder(server.address())).await;
    // The first half has waiters.
    let mut holders: Vec<_> = (0..2 * HOLDERS.len()).map(|index| Holder::start(server, index)).collect();
    for holder in &mut holders {
        let held = holder.hear("held ");
        let (token, nodes) = held.split_once(' ').unwrap();
        holder.token = token.parse().unwrap();
        holder.nodes = nodes.split(' ').map(str::to_owned).collect();
    }
    let mut waiters = Vec::new();
    for Holder { way, path, token, .. } in &holders[..HOLDERS.len()] {
        let (client, way, path, token) = (client.clone(), way.plain(), path.clone(), *token);
        waiters.push(tokio::spawn(async move {
            let next = way.take(&client, &path, |_| {}).await.unwrap();
            assert!(next[0].is_held() && next[0].token().czxid().get() > token, "{way}");
            next
        }));
    }
    for holder in &mut holders {
        holder.tell("look");
        holder.hear("looking");
        holder.signal(Signal::STOP);
    }
    let mut granted = Vec::new();
    for waiter in waiters {
        granted.push(in_time(waiter).await.unwrap());
    }
    for node in holders.iter().flat_map(|holder| &holder.nodes) {
        let gone = async || client.check_exists().for_path(node).await.unwrap().is_none();
        eventually("the session is over", gone).await;
    }
    for holder in &mut holders {
        holder.signal(Signal::CONT);
        assert_eq!(holder.hear("first look: "), "not held", "{}, {}", holder.way, holder.path);
        holder.hear("told");
    }
    for mut holder in holders {
        holder.end_well();
    }
    drop(granted);
    client.close().await;
}

/// A process that holds; killed when it is dropped.
struct Holder {
    way: Way,
    path: String,
    token: i64,
    nodes: Vec<String>,
    child: Child,
    questions: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Holder {
    fn start(server: &ApacheServer, index: usize) -> Self {
        let kind = index % HOLDERS.len();
        let path = format!("/stopped-{index}");
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([TEST, "--exact", "--nocapture"])
            .env(ROLE, format!("{} {path} {kind}", server.address()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (questions, answers) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        Self { way: HOLDERS[kind].0, path, token: 0, nodes: Vec::new(), child, questions, answers }
    }

    fn tell(&mut self, what: &str) {
        writeln!(self.questions, "{what}").unwrap();
    }

    /// The text after these words, in the next line that starts with them.
    fn hear(&mut self, words: &str) -> String {
        loop {
            let mut line = String::new();
            assert!(self.answers.read_line(&mut line).unwrap() > 0, "{} ended without saying {words:?}", self.way);
            if let Some(rest) = line.trim_end().strip_prefix(words) {
                return rest.to_owned();
            }
        }
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_raw(i32::try_from(self.child.id()).unwrap()).unwrap(), signal).unwrap();
    }

    fn end_well(&mut self) {
        let began = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return assert!(status.success(), "a process ended with {status}");
            }
            assert!(began.elapsed() < PATIENCE, "a process does not end");
            thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// What a process does that holds.
fn hold(role: &str) {
    let words: Vec<_> = role.split(' ').collect();
    let [address, path, kind] = words[..] else { panic!("{role}") };
    let (way, threads) = HOLDERS[kind.parse::<usize>().unwrap()];
    let runtime = match threads {
        1 => tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap(),
        _ => tokio::runtime::Builder::new_multi_thread().worker_threads(threads).enable_all().build().unwrap(),
    };
    runtime.block_on(async {
        let client = connected(builder(address.parse().unwrap()).session_timeout(SESSION)).await;
        let guards = way.take(&client, path, |_| {}).await.unwrap();
        let nodes: Vec<_> = guards.iter().flat_map(LockGuard::parts).map(LockGuard::node_path).collect();
        println!("\nheld {} {}", guards[0].token().czxid().get(), nodes.join(" "));
        let asked = tokio::task::spawn_blocking(|| std::io::stdin().read_line(&mut String::new()).unwrap());
        assert!(asked.await.unwrap() > 0, "nobody asks any more");
        println!("first look: {}", look_over_and_over(&guards));
        let reasons = in_time(all_lost(&guards)).await;
        assert!(reasons.iter().all(|reason| matches!(reason, LossReason::Session(_))), "{reasons:?}");
        println!("told");
        for guard in &guards {
            assert!(matches!(guard.release().await, Ok(Release::AlreadyLost(_))));
        }
        client.close().await;
    });
}

/// Looks until the process was stopped, and says what it saw then. Nothing is awaited. (The servers count from a little
/// before the stop.)
fn look_over_and_over(guards: &[LockGuard]) -> &'static str {
    let parts = || guards.iter().flat_map(LockGuard::parts).chain(guards);
    let look = || match parts().any(LockGuard::is_held) {
        true => "held",
        false if not_over(guards).is_some() => "time is left",
        false => "not held",
    };
    // It may be stopped as soon as this is heard.
    let mut ended = Instant::now();
    println!("looking");
    loop {
        let began = Instant::now();
        let seen = look();
        if began - ended > SESSION / 2 {
            return seen;
        }
        ended = Instant::now();
        if ended - began > SESSION / 2 {
            // It was stopped in the look: the next one is the first.
            return look();
        }
        if seen != "held" {
            return "lost before the stop";
        }
    }
}
