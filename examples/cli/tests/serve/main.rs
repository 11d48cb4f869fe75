//! Runs `curator serve`, and tests it over HTTP and in a browser.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on fails")]

mod attacks;
mod browser;
mod following;
mod named;
mod old_server;
mod pages;
mod queues;
mod services;
mod unknown;

use std::io::{BufRead as _, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use curator_framework::{CreateMode, CuratorFramework, RetryOneTime};
use curator_test::{ApacheServer, TestingServer, unique_root};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tokio::runtime::Runtime;

/// Longer than anything that is waited for can take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// Waits until a look returns a result.
fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let begin = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(begin.elapsed() < PATIENCE, "never: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A running `curator serve`.
struct Web {
    child: Child,
    address: String,
}

struct Answer {
    status: u16,
    headers: Vec<(String, String)>,
    body: String,
}

impl Answer {
    fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap()
    }
}

impl Web {
    fn start(connect: &str, arguments: &[&str]) -> Self {
        Self::start_with(connect, arguments, Stdio::inherit())
    }

    fn start_with(connect: &str, arguments: &[&str], stderr: Stdio) -> Self {
        Self::spawn(Command::new(env!("CARGO_BIN_EXE_curator")), connect, arguments, stderr)
    }

    /// Starts the program with a deliberate break.
    #[cfg(curator_mutants)]
    fn start_broken(connect: &str, name: &str) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_curator"));
        command.env("CURATOR_MUTANT", name);
        Self::spawn(command, connect, &[], Stdio::inherit())
    }

    fn spawn(mut command: Command, connect: &str, arguments: &[&str], stderr: Stdio) -> Self {
        command.args(["serve", "--listen", "127.0.0.1:0", "--session-timeout", "4s"]).args(arguments);
        command.env("CURATOR_CONNECT", connect).env_remove("CURATOR_AUTH").env_remove("CURATOR_TOKEN");
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(stderr).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().rsplit_once("http://").expect("the address").1.trim_end_matches('/').to_owned();
        Self { child, address }
    }

    /// Starts the program and waits until it has read all nodes.
    fn start_live(connect: &str, arguments: &[&str]) -> Self {
        let web = Self::start(connect, arguments);
        web.wait_for_health(200);
        web
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    fn request(&self, method: &str, path: &str, headers: &[(&str, &str)]) -> Answer {
        let config = ureq::Agent::config_builder().http_status_as_error(false).max_redirects(0);
        let agent: ureq::Agent = config.timeout_global(Some(PATIENCE)).build().into();
        let mut request = ureq::http::Request::builder().method(method).uri(self.url(path));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let mut response = agent.run(request.body(()).unwrap()).unwrap();
        let pair = |(name, value): (&ureq::http::HeaderName, &ureq::http::HeaderValue)| {
            (name.as_str().to_owned(), value.to_str().unwrap().to_owned())
        };
        Answer {
            status: response.status().as_u16(),
            headers: response.headers().iter().map(pair).collect(),
            body: response.body_mut().read_to_string().unwrap(),
        }
    }

    fn get(&self, path: &str) -> Answer {
        self.request("GET", path, &[])
    }

    fn wait_for_health(&self, status: u16) {
        until("the health", || (self.get("/healthz").status == status).then_some(()));
    }

    fn locks(&self) -> Value {
        self.get("/api/locks").json()["locks"].clone()
    }

    /// Waits until a lock satisfies a condition, and returns it.
    fn lock(&self, path: &str, condition: impl Fn(&Value) -> bool) -> Value {
        let found = || {
            let answer = self.get(&format!("/api/locks{path}"));
            (answer.status == 200).then(|| answer.json()).filter(&condition)
        };
        until("a state of the lock", found)
    }

    /// Waits until a lock has so many holders and waiters.
    fn counts(&self, path: &str, holders: usize, waiters: usize) -> Value {
        self.lock(path, |lock| lock["holders"] == holders && lock["waiters"] == waiters)
    }

    fn stream(&self, path: &str) -> Stream {
        let agent: ureq::Agent = ureq::Agent::config_builder().build().into();
        let response = agent.get(self.url(path)).call().unwrap();
        Stream(BufReader::new(Box::new(response.into_body().into_reader())))
    }

    /// Sends a signal, and returns the exit status.
    fn end(mut self, signal: Signal) -> Option<i32> {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
        until("the end of the program", || self.child.try_wait().unwrap()).code()
    }
}

impl Drop for Web {
    fn drop(&mut self) {
        let _gone = self.child.kill();
        let _gone = self.child.wait();
    }
}

/// A stream of server-sent events.
struct Stream(BufReader<Box<dyn Read + Send>>);

impl Stream {
    /// Returns the next update, or `None` at the end of the stream.
    fn next(&mut self) -> Option<Value> {
        loop {
            let mut line = String::new();
            if self.0.read_line(&mut line).unwrap_or(0) == 0 {
                return None;
            }
            if let Some(data) = line.strip_prefix("data: ") {
                return Some(serde_json::from_str(data.trim_end()).unwrap());
            }
        }
    }

    /// Returns the first update with a text in it.
    fn update_with(&mut self, text: &str) -> Value {
        let begin = Instant::now();
        loop {
            let update = self.next().expect("a further update");
            if update.to_string().contains(text) {
                return update;
            }
            assert!(begin.elapsed() < PATIENCE, "no update with {text}: {update}");
        }
    }
}

/// Clients that create contenders, in a runtime of their own.
struct Clients {
    runtime: Runtime,
    connect: String,
}

impl Clients {
    fn new(connect: &str) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        Self { runtime, connect: connect.to_owned() }
    }

    fn client(&self) -> CuratorFramework {
        let _in = self.runtime.enter();
        let retry = RetryOneTime::new(Duration::from_millis(100));
        let client = CuratorFramework::builder(&*self.connect).retry_policy(retry);
        let client = client.session_timeout(Duration::from_secs(10)).build().unwrap();
        client.start().unwrap();
        self.runtime.block_on(client.block_until_connected()).unwrap();
        client
    }

    /// Creates a contender's node and returns its path.
    fn contend(&self, client: &CuratorFramework, lock: &str, name: &str, data: impl Into<Vec<u8>>) -> String {
        let create = client.create().creating_parents_if_needed().with_protection();
        let create = create.with_mode(CreateMode::EphemeralSequential).with_data(data);
        self.runtime.block_on(create.for_path(&format!("{lock}/{name}"))).unwrap()
    }

    fn create(&self, client: &CuratorFramework, path: &str, data: impl Into<Vec<u8>>) {
        let create = client.create().creating_parents_if_needed().with_data(data);
        self.runtime.block_on(create.for_path(path)).unwrap();
    }

    fn delete(&self, client: &CuratorFramework, path: &str) {
        self.runtime.block_on(client.delete().deleting_children_if_needed().for_path(path)).unwrap();
    }

    /// Creates contenders in sessions with 25 nodes each, and returns the clients and the paths in order.
    fn crowd(&self, lock: &str, count: usize) -> (Vec<CuratorFramework>, Vec<String>) {
        let clients: Vec<_> = (0..count.div_ceil(25)).map(|_| self.client()).collect();
        let one = |index: usize| {
            self.contend(&clients[index / 25], lock, "lock-", format!("host-{}.example:{index}", index / 25))
        };
        let paths = (0..count).map(one).collect();
        (clients, paths)
    }
}

/// An Apache ZooKeeper for one test, or a part of the one that the whole run shares.
struct Apache {
    connect: String,
    _server: Option<ApacheServer>,
}

impl Apache {
    fn start() -> Self {
        let Ok(shared) = std::env::var("CURATOR_TEST_APACHE") else {
            let server = ApacheServer::start().unwrap();
            return Self { connect: server.connect_string(), _server: Some(server) };
        };
        let root = unique_root("serve");
        let clients = Clients::new(&shared);
        clients.create(&clients.client(), &root, "");
        Self { connect: format!("{shared}{root}"), _server: None }
    }
}

fn in_process() -> TestingServer {
    TestingServer::builder().tick(Duration::from_millis(500)).start().unwrap()
}
