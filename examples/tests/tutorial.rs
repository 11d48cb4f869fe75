//! Types the commands of the tutorial, and compares what they print with the page.
//!
//! `cargo build` and `cargo run` start the program of the step, which is built already. With `TUTORIAL_BUILDS=yes` the
//! real cargo builds it, as for a reader.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on fails")]

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

const REPOSITORY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
/// The programs of the page, in its order.
const STEPS: [&str; 3] = ["connect", "throttle", "watch"];
const LIMIT: usize = 3;
/// Precedes the commands of each block, or follows them: what a shell keeps from one command to the next.
const BEFORE: &str = ". \"$STATE/variables\"; cd \"$(cat \"$STATE/folder\")\"; set -eu\n";
const AFTER: &str = "\nexport -p >\"$STATE/variables\"; pwd >\"$STATE/folder\"\n";
/// The commands that change the machine, or that take minutes.
const STUBS: [(&str, &str); 2] = [
    ("sudo", "#!/bin/sh\n"),
    (
        "cargo",
        r#"#!/bin/sh
set -eu
case $1 in
build | run) mkdir -p target/debug; cp "$(cat "$STATE/program")" target/debug/throttled ;;
*) exec "$CARGO" "$@" ;;
esac
[ "$1" = build ] || { while [ "$1" != -- ] && [ $# != 1 ]; do shift; done; shift; exec target/debug/throttled "$@"; }
"#,
    ),
];

/// A fenced block of the page: the words behind the fence, and the text.
struct Block {
    kind: String,
    text: String,
}

fn blocks() -> Vec<Block> {
    let page = fs::read_to_string(format!("{REPOSITORY}/recipes/docs/tutorial.md")).unwrap();
    let fences = page.split("\n```").skip(1).step_by(2);
    fences
        .map(|block| block.split_once('\n').unwrap())
        .map(|(kind, text)| Block { kind: kind.into(), text: format!("{text}\n") })
        .collect()
}

/// A reader, with a folder and addresses of its own.
struct Reader {
    folder: tempfile::TempDir,
    /// Takes the place of 127.0.0.1, so that the page's ports are free.
    address: String,
}

impl Reader {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        for name in ["home", "state", "bin"] {
            fs::create_dir(folder.path().join(name)).unwrap();
        }
        symlink(Path::new(REPOSITORY).canonicalize().unwrap(), folder.path().join("home/curator")).unwrap();
        let [_, a, b, c] = std::process::id().to_be_bytes();
        let reader = Self { folder, address: format!("127.{}.{b}.{c}", 64 + a % 64) };
        fs::write(reader.state("variables"), "").unwrap();
        fs::write(reader.state("folder"), reader.path("home").to_str().unwrap()).unwrap();
        let builds = std::env::var_os("TUTORIAL_BUILDS").is_some();
        for (name, script) in STUBS.iter().filter(|(name, _)| !builds || *name != "cargo") {
            let file = reader.path("bin").join(name);
            fs::write(&file, script).unwrap();
            fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
        }
        reader
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn state(&self, name: &str) -> PathBuf {
        self.path("state").join(name)
    }

    /// The folder of the reader's own crate.
    fn project(&self) -> PathBuf {
        self.path("home/throttled")
    }

    /// Types commands, and returns what they print.
    fn types(&self, commands: &str) -> String {
        let printed = self.state("printed");
        // Each line is one write to the end of one file, so the lines of all processes are in their true order.
        let output = File::create(&printed).and_then(|_| File::options().append(true).open(&printed)).unwrap();
        let path = format!("{}:{}", self.path("bin").display(), std::env::var("PATH").unwrap());
        let script = format!("{BEFORE}{}{AFTER}", commands.replace("127.0.0.1", &self.address));
        let mut shell = Command::new("sh");
        shell.args(["-c", &script]).env("PATH", path).env("STATE", self.path("state")).env("CARGO", env!("CARGO"));
        shell.env("CARGO_NET_OFFLINE", "true").env_remove("CARGO_TARGET_DIR");
        let status = shell.stdin(Stdio::null()).stdout(output).status().unwrap();
        let printed = fs::read_to_string(printed).unwrap();
        assert!(status.success(), "{commands}{printed}");
        printed.replace(&self.address, "127.0.0.1")
    }

    /// Puts the program of a step in place of the one before.
    fn writes(&self, step: &str, text: &str) {
        let file = fs::read_to_string(format!("{REPOSITORY}/examples/tutorial/{step}.rs")).unwrap();
        assert_eq!(text, file, "the page shows another text than {step}.rs");
        let test = std::env::current_exe().unwrap();
        let program = test.parent().unwrap().parent().unwrap().join(format!("examples/tutorial_{step}"));
        assert!(program.exists(), "{} is missing: build with --all-targets", program.display());
        fs::write(self.state("program"), program.to_str().unwrap()).unwrap();
        fs::write(self.project().join("src/main.rs"), text).unwrap();
    }

    /// Waits until one of the servers leads, and returns its number.
    fn leader(&self) -> usize {
        let mut leader = None;
        soon("a server leads", || {
            leader = (1..=3).find(|server| self.mode(*server).is_some_and(|text| text.contains("Mode: leader")));
            leader.is_some()
        });
        leader.unwrap()
    }

    /// Waits until a server is a part of the ensemble.
    fn awaits(&self, server: usize) {
        soon("the server is back", || self.mode(server).is_some_and(|text| text.contains("Mode: ")));
    }

    /// Returns what a server says of itself.
    fn mode(&self, server: usize) -> Option<String> {
        let mut stream = TcpStream::connect(format!("{}:218{server}", self.address)).ok()?;
        stream.write_all(b"srvr").ok()?;
        stream.shutdown(Shutdown::Write).ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        Some(answer)
    }
}

impl Drop for Reader {
    /// Kills the servers if the test has failed.
    fn drop(&mut self) {
        for server in 1..=3 {
            let pid = fs::read_to_string(self.project().join(format!("zk/{server}/pid")));
            if let Some(pid) = pid.ok().and_then(|pid| Pid::from_raw(pid.trim().parse().ok()?)) {
                let _: Result<(), rustix::io::Errno> = kill_process(pid, Signal::KILL);
            }
        }
    }
}

fn soon(what: &str, mut done: impl FnMut() -> bool) {
    let began = Instant::now();
    while !done() {
        assert!(began.elapsed() < Duration::from_secs(60), "never: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn sorted(text: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    lines
}

fn without_numbers(line: &str) -> String {
    let parts: Vec<&str> =
        line.split(|c: char| c.is_ascii_digit() || c == '.').filter(|part| !part.is_empty()).collect();
    parts.join("#")
}

/// The jobs start and end in turn, and at no time more than the limit are at work.
fn assert_throttled(printed: &str) {
    let mut working = BTreeSet::new();
    for line in printed.lines() {
        if let Some(job) = line.strip_suffix(" begins") {
            assert!(working.insert(job), "{job} begins twice:\n{printed}");
            assert!(working.len() <= LIMIT, "{working:?} at once:\n{printed}");
        } else if let Some(job) = line.strip_suffix(" ends") {
            assert!(working.remove(job), "{job} ends twice:\n{printed}");
        }
    }
    assert!(working.is_empty(), "{working:?} did not end:\n{printed}");
}

#[test]
fn commands_print_what_the_page_shows() {
    let reader = Reader::new();
    let mut steps = STEPS.iter();
    let mut printed = String::new();
    // The page kills server 2. The test kills the leader, so that both copies lose their connections.
    let mut leader = 2;
    for Block { kind, text } in blocks() {
        match kind.as_str() {
            "bash" => {
                let script = text.replace("127.0.0.1", &reader.address);
                fs::write(reader.project().join("servers.sh"), script).unwrap();
            }
            "rust,no_run" => reader.writes(steps.next().expect("no more programs than steps"), &text),
            "sh" => {
                if text.contains("kill -9") {
                    leader = reader.leader();
                }
                let commands = text.replace("zk/2/", &format!("zk/{leader}/"));
                printed = reader.types(&commands.replace("servers.sh 2", &format!("servers.sh {leader}")));
                assert_throttled(&printed);
                if text.contains("servers.sh 2") {
                    reader.awaits(leader);
                }
            }
            "text" => assert_eq!(printed, text),
            "text in any order" => assert_eq!(sorted(&printed), sorted(&text)),
            "text among others" => {
                for line in text.lines() {
                    assert!(printed.lines().any(|one| one == line), "{line} is not among:\n{printed}");
                }
            }
            "text among others, numbers vary" => {
                let printed: Vec<String> = printed.lines().map(without_numbers).collect();
                for line in text.lines().map(without_numbers) {
                    assert!(printed.contains(&line), "{line} is not among:\n{printed:#?}");
                }
            }
            _ => panic!("a block of the kind {kind:?}"),
        }
    }
    assert!(steps.next().is_none(), "a program is not on the page");
}
