//! Java's Curator and this one at the same paths.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;

use curator_framework::{CreateMode, CuratorFramework};
use curator_recipes::{
    InterProcessLock, InterProcessMutex, InterProcessReadWriteLock, InterProcessSemaphoreMutex,
    InterProcessSemaphoreV2, LockGuard, LockOptions, Release, Revoker,
};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::OnceCell;

use crate::env::{Env, children, eventually, in_time};
use crate::kinds::AnyLease;

const JARS: &str = "/usr/share/java/curator-recipes.jar:/usr/share/java/slf4j-nop.jar";
const ROUNDS: usize = 8;
const TASKS: usize = 2;

/// The classes of the Java side, compiled once.
async fn classes() -> &'static Path {
    static CLASSES: OnceCell<tempfile::TempDir> = OnceCell::const_new();
    let compile = || async {
        for jar in JARS.split(':') {
            let package = "libcurator-recipes-java";
            assert!(Path::new(jar).exists(), "{jar} not found: on Debian and Ubuntu `apt-get install {package}`");
        }
        let folder = tempfile::tempdir().unwrap();
        let source = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("peers/CuratorMixed.java");
        let mut compiler = Command::new("javac");
        let output = compiler.args(["-cp", JARS, "-d"]).arg(folder.path()).arg(source).output().await;
        let output = output.expect("javac: on Debian and Ubuntu `apt-get install openjdk-17-jdk-headless`");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        folder
    };
    CLASSES.get_or_init(compile).await.path()
}

/// Java's side, which does one part for each line.
struct Java {
    process: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
}

impl Java {
    async fn start(env: &Env) -> Self {
        let mut java = Command::new("java");
        java.args(["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto", "-cp"]);
        java.arg(format!("{}:{JARS}", classes().await.display())).arg("CuratorMixed");
        java.args([env.address().to_string(), env.path("mixed"), ROUNDS.to_string()]);
        java.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut process = java.spawn().unwrap();
        let (input, output) = (process.stdin.take().unwrap(), process.stdout.take().unwrap());
        let mut java = Self { process, input, output: BufReader::new(output).lines() };
        java.says("ready").await;
        java
    }

    async fn begin(&mut self, part: &str) {
        self.input.write_all(format!("{part}\n").as_bytes()).await.unwrap();
    }

    async fn says(&mut self, text: &str) {
        assert_eq!(in_time(self.output.next_line()).await.unwrap().as_deref(), Some(text), "see what Java says above");
    }

    /// Has no further part.
    async fn end(mut self) {
        drop(self.input);
        assert!(in_time(self.process.wait()).await.unwrap().success());
    }
}

/// Writes down who is inside, looks who else is, and leaves.
async fn visit(client: &CuratorFramework, path: &str, kind: &str, limit: usize, guard: LockGuard) {
    let own = client.create().with_mode(CreateMode::EphemeralSequential);
    let own = own.for_path(&format!("{path}-inside/{kind}-")).await.unwrap();
    let inside = children(client, &format!("{path}-inside")).await;
    let writers = inside.iter().filter(|child| child.starts_with('w')).count();
    assert!(writers <= limit && (writers == 0 || writers == inside.len()), "{path}: {inside:?}");
    client.delete().for_path(&own).await.unwrap();
    assert_eq!(guard.release().await.unwrap(), Release::Released, "{path}");
}

on_every_server! {
    async fn both_take_turns(env) {
        let mut java = Java::start(&env).await;
        let client = env.client().await;
        for part in ["mutex", "semaphore-mutex", "semaphore", "read-write"] {
            let path = env.path(&format!("mixed/{part}"));
            let limit = if part == "semaphore" { 2 } else { 1 };
            client.create().creating_parents_if_needed().for_path(&format!("{path}-inside")).await.unwrap();
            // One to write with, one to read with; they are the same but for the read-write lock.
            let locks = |client: &CuratorFramework| -> [Arc<dyn InterProcessLock>; 2] {
                let client = client.clone();
                match part {
                    "mutex" => {
                        let lock = Arc::new(InterProcessMutex::new(client, &path).unwrap());
                        [lock.clone(), lock]
                    }
                    "semaphore-mutex" => {
                        let lock = Arc::new(InterProcessSemaphoreMutex::new(client, &path).unwrap());
                        [lock.clone(), lock]
                    }
                    "semaphore" => {
                        let lock = Arc::new(AnyLease(InterProcessSemaphoreV2::new(client, &path, 2).unwrap()));
                        [lock.clone(), lock]
                    }
                    _ => {
                        let lock = InterProcessReadWriteLock::new(client, &path).unwrap();
                        [Arc::new(lock.write_lock()), Arc::new(lock.read_lock())]
                    }
                }
            };
            // Ours are held until Java's are in the queue, and more of ours behind them: the first grant is Java's.
            let mut held = Vec::new();
            for _ in 0..limit {
                held.push(in_time(locks(&client)[0].acquire()).await.unwrap());
            }
            let queue = if part.starts_with("semaphore") { format!("{path}/locks") } else { path.clone() };
            let before = if part.starts_with("semaphore") { 0 } else { 1 };
            env.wait_for_children(&client, &queue, before).await;
            java.begin(part).await;
            env.wait_for_children(&client, &queue, before + 2).await;
            let mut tasks = tokio::task::JoinSet::new();
            for number in 0..TASKS {
                let client = env.client().await;
                let (path, locks) = (path.clone(), locks(&client));
                tasks.spawn(async move {
                    for round in 0..ROUNDS {
                        let reads = part == "read-write" && (number + round) % 2 == 1;
                        let guard = locks[usize::from(reads)].acquire().await.unwrap();
                        visit(&client, &path, if reads { "r" } else { "w" }, limit, guard).await;
                    }
                });
            }
            env.wait_for_children(&client, &queue, before + 4).await;
            for guard in held {
                guard.release().await.unwrap();
            }
            while let Some(done) = in_time(tasks.join_next()).await {
                done.unwrap();
            }
            java.says(&format!("done {part}")).await;
            let folders = if part.starts_with("semaphore") { &["/locks", "/leases"][..] } else { &[""] };
            for folder in folders {
                env.wait_for_children(&client, &format!("{path}{folder}"), 0).await;
            }
        }
        java.end().await;
    }

    async fn each_can_ask_the_other_for_a_lock(env) {
        let mut java = Java::start(&env).await;
        let client = env.client().await;
        let theirs = InterProcessMutex::new(client.clone(), env.path("mixed/is-revoked")).unwrap();
        java.begin("is-revoked").await;
        java.says("holds").await;
        let holder = theirs.participants().await.unwrap().remove(0);
        assert!(holder.holds && holder.data.is_empty(), "{holder:?}");
        Revoker::attempt_revoke(&client, &holder.path).await.unwrap();
        java.says("done is-revoked").await;
        in_time(theirs.acquire()).await.unwrap().release().await.unwrap();

        let (asked, mut nodes) = tokio::sync::mpsc::unbounded_channel();
        let options = LockOptions::new().revocable(move |node: &str| asked.send(node.to_owned()).unwrap());
        let ours = InterProcessMutex::with_options(client.clone(), env.path("mixed/revokes"), options).unwrap();
        let guard = ours.acquire().await.unwrap();
        java.begin("revokes").await;
        assert_eq!(in_time(nodes.recv()).await.unwrap(), guard.path());
        assert_eq!(guard.release().await.unwrap(), Release::Released);
        java.says("done revokes").await;
        eventually("nothing is left", async || children(&client, ours.path()).await.is_empty()).await;
        java.end().await;
    }
}
