//! A process that obeys commands.
//!
//! A line to it is `THREAD VERB ARGUMENTS`, a line from it is `> THREAD ANSWER`. Each of its threads does one thing at a
//! time. What all of them know:
//!
//! | verb | answer |
//! | --- | --- |
//! | `clock` | nanoseconds |
//! | `session` | the id of its session |
//! | `acquire KIND PATH MILLIS` | `held TOKEN` or `timeout` |
//! | `release KIND PATH` | `released` |
//! | `compete KIND,KIND PATH ROUNDS HOLD_MILLIS [REST_MILLIS]` | for each round `asked NANOS KIND`, `granted NANOS TOKEN`, (`downgraded NANOS TOKEN`,) `releasing NANOS`, `released NANOS`; or, once more in the same round, `asked NANOS KIND`, `refused NANOS`; then `done` |
//! | `stop PATH` | `stopped`: each thread that competes there finishes its round and is `done` |
//!
//! A kind is `mutex`, `read`, `write`, `semaphore-mutex`, `multi` (the path and the path with `-too`), `kazoo`,
//! `downgrade` (to write, and then to read), or `semaphore:LIMIT`, `semaphore:LIMIT:LEASES` or `semaphore:LIMIT:LEASES:HOW`,
//! where HOW is `wait`, `try`, or a budget in milliseconds.
//!
//! Other modules have verbs of their own: elections in [`leaders`](crate::leaders), nodes and groups in
//! [`groups`](crate::groups), caches in [`caches`](crate::caches), counters and barriers in [`counts`](crate::counts), services in
//! [`discovery`](crate::discovery), queues in [`queues`](crate::queues).

use std::collections::HashMap;
use std::fmt::Display;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use curator_integration::env::{Env, in_time};
use curator_test::curator_class_path;
use parking_lot::Mutex;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdout, Command};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::record::Clock;
use crate::rust_peer;

const SESSION: Duration = Duration::from_secs(30);
const MARK: &str = "> ";

/// What a process is written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Language {
    Java,
    Rust,
    Python,
}

/// A process. Killed when it is dropped.
pub(crate) struct Peer {
    language: Language,
    process: Child,
    /// Lines; none when there is nothing more to do.
    input: UnboundedSender<Option<String>>,
    threads: Threads,
}

/// The listener of each thread of the process. Empty when the process has ended.
type Threads = Arc<Mutex<Option<HashMap<String, UnboundedSender<String>>>>>;

/// One of its threads.
pub(crate) struct Thread {
    name: String,
    language: Language,
    input: UnboundedSender<Option<String>>,
    answers: UnboundedReceiver<String>,
}

impl Peer {
    pub(crate) async fn java(env: &Env) -> Self {
        Self::start(Language::Java, env.address(), SESSION).await
    }

    pub(crate) async fn rust(env: &Env) -> Self {
        Self::start(Language::Rust, env.address(), SESSION).await
    }

    /// Starts it on a server, or on the servers of a connect string.
    pub(crate) async fn start(language: Language, servers: impl Display, session: Duration) -> Self {
        let arguments = [servers.to_string(), session.as_millis().to_string()];
        let command = match language {
            Language::Java => java(&arguments).await,
            Language::Rust => rust_peer::command(&arguments),
            Language::Python => python(&arguments),
        };
        Self::run(language, command).await
    }

    /// Starts it and waits until it is connected.
    pub(crate) async fn run(language: Language, mut command: Command) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut process = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let mut pipe = process.stdin.take().unwrap();
        let (input, mut lines) = unbounded_channel::<Option<String>>();
        tokio::spawn(async move {
            while let Some(Some(line)) = lines.recv().await {
                // It may have been killed.
                if pipe.write_all(line.as_bytes()).await.is_err() {
                    return;
                }
            }
        });
        let threads = Threads::new(Mutex::new(Some(HashMap::new())));
        tokio::spawn(hand_out(process.stdout.take().unwrap(), Arc::clone(&threads)));
        let peer = Self { language, process, input, threads };
        let mut main = peer.thread("main");
        assert_eq!(main.answer().await.as_deref(), Some("ready"), "{language:?}");
        let before = Clock::now();
        let theirs = Duration::from_nanos(main.ask("clock").await.parse().unwrap());
        assert!(before <= theirs && theirs <= Clock::now(), "{language:?} has another clock: {before:?}, {theirs:?}");
        peer
    }

    /// A thread of this name, which no other caller may use.
    pub(crate) fn thread(&self, name: &str) -> Thread {
        let (voice, answers) = unbounded_channel();
        if let Some(threads) = &mut *self.threads.lock() {
            threads.insert(name.to_owned(), voice);
        }
        Thread { name: name.to_owned(), language: self.language, input: self.input.clone(), answers }
    }

    /// The id of its session.
    pub(crate) async fn session(&self) -> i64 {
        self.thread("session").ask("session").await.parse().unwrap()
    }

    /// The version of Java's Curator, such as `[5, 4]`.
    pub(crate) async fn curator_version(&self) -> [u32; 2] {
        let version = self.thread("version").ask("version").await;
        let mut parts = version.split('.').map(|part| part.parse().unwrap());
        [parts.next().unwrap(), parts.next().unwrap()]
    }

    /// Has nothing more to do, and says goodbye.
    pub(crate) async fn end(self) {
        let Self { mut process, input, .. } = self;
        input.send(None).unwrap();
        assert!(in_time(process.wait()).await.unwrap().success());
    }

    /// Kills it as `kill -9` does. Its session continues until the server ends it.
    pub(crate) async fn kill(mut self) {
        self.process.kill().await.unwrap();
    }
}

impl Thread {
    pub(crate) const fn language(&self) -> Language {
        self.language
    }

    /// Tells it what to do, and does not wait for it.
    pub(crate) fn begin(&self, what: &str) {
        // If it was killed, no answer comes.
        drop(self.input.send(Some(format!("{} {what}\n", self.name))));
    }

    /// What it says next; `None` if the process has ended.
    pub(crate) async fn answer(&mut self) -> Option<String> {
        let answer = in_time(self.answers.recv()).await?;
        assert!(!answer.starts_with("error "), "{} of {:?}: {answer}", self.name, self.language);
        Some(answer)
    }

    /// What it says next is this.
    pub(crate) async fn says(&mut self, text: &str) {
        assert_eq!(self.answer().await.as_deref(), Some(text), "{} of {:?}", self.name, self.language);
    }

    pub(crate) async fn ask(&mut self, what: &str) -> String {
        self.begin(what);
        self.answer().await.unwrap_or_else(|| panic!("{:?} has ended before it did {what}", self.language))
    }

    /// Waits until it holds what it was to acquire; gives its fencing token.
    pub(crate) async fn holds(&mut self) -> i64 {
        let answer = self.answer().await.unwrap();
        let token = answer.strip_prefix("held ").unwrap_or_else(|| panic!("{:?} says {answer}", self.language));
        token.parse().unwrap()
    }

    pub(crate) async fn acquire(&mut self, kind: &str, path: &str) -> i64 {
        self.begin_to_acquire(kind, path);
        self.holds().await
    }

    pub(crate) fn begin_to_acquire(&self, kind: &str, path: &str) {
        self.begin(&format!("acquire {kind} {path} 60000"));
    }

    pub(crate) async fn release(&mut self, kind: &str, path: &str) {
        self.begin(&format!("release {kind} {path}"));
        self.says("released").await;
    }

    /// Whether it has not said anything.
    pub(crate) fn is_silent(&self) -> bool {
        self.answers.is_empty()
    }
}

/// Routes each line to the listener of its thread. Other lines are dropped.
async fn hand_out(output: ChildStdout, threads: Threads) {
    let mut lines = BufReader::new(output).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        let Some((thread, answer)) = line.strip_prefix(MARK).and_then(|line| line.split_once(' ')) else { continue };
        if let Some(voice) = threads.lock().as_ref().and_then(|threads| threads.get(thread)) {
            // The test may have lost interest.
            drop(voice.send(answer.to_owned()));
        }
    }
    threads.lock().take();
}

async fn java(arguments: &[String]) -> Command {
    let mut java = Command::new("java");
    java.args(["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto", "-Dfile.encoding=UTF-8", "-cp"]);
    let jars = class_path();
    java.arg(format!("{}:{jars}", classes(&jars).await.display())).arg("CuratorPeer").args(arguments);
    java
}

/// Returns the class path of Curator with its service discovery. That jar is the last one: it may come with an older
/// Curator.
fn class_path() -> String {
    let jars = curator_class_path().unwrap();
    let package = "libcurator-discovery-java";
    assert!(jars.contains("curator-x-discovery.jar"), "on Debian and Ubuntu `apt-get install {package}`");
    jars
}

fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("interop_programs").join(name)
}

/// The folder of the classes of the Java side, which the first test that needs them compiles for all.
async fn classes(jars: &str) -> PathBuf {
    let curator =
        ["CuratorPeer", "CuratorElections", "CuratorGroups", "CuratorCaches", "CuratorCounts", "CuratorQueues"];
    let names = [&curator[..], &["CuratorServices", "spring/ZookeeperInstance", "dubbo/ZookeeperInstance"]].concat();
    let sources: Vec<_> = names.iter().map(|name| source(&format!("{name}.java"))).collect();
    let mut hasher = DefaultHasher::new();
    jars.hash(&mut hasher);
    sources.iter().for_each(|source| std::fs::read(source).unwrap().hash(&mut hasher));
    let all = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let classes = all.join(format!("curator-peer-{:x}", hasher.finish()));
    if classes.exists() {
        return classes;
    }
    let folder = tempfile::tempdir_in(all).unwrap();
    let mut compiler = Command::new("javac");
    let output = compiler.args(["-cp", jars, "-d"]).arg(folder.path()).args(sources).output().await;
    let output = output.expect("javac: on Debian and Ubuntu `apt-get install openjdk-17-jdk-headless`");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    match std::fs::rename(folder.path(), &classes) {
        Ok(()) => drop(folder.keep()),
        // Another process was faster.
        Err(_) => assert!(classes.exists()),
    }
    classes
}

fn python(arguments: &[String]) -> Command {
    let package = "python3-kazoo";
    let kazoo = Path::new("/usr/lib/python3/dist-packages/kazoo");
    assert!(kazoo.exists(), "kazoo not found: on Debian and Ubuntu `apt-get install {package}`");
    let mut python = Command::new("/usr/bin/python3");
    python.arg("-B").arg(source("kazoo_peer.py")).args(arguments);
    python
}

/// The clocks are compared when a process starts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_processes_read_one_clock() {
    let env = Env::new(curator_integration::env::Kind::InProcess);
    for language in [Language::Java, Language::Rust, Language::Python] {
        Peer::start(language, env.address(), SESSION).await.end().await;
    }
}
