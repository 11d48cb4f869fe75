//! A process that carries out commands: Java's Curator, or a second instance of a program of this crate.
//!
//! A line of its output answers a line of its input.

use std::io::{BufRead as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};
use std::time::Duration;

use curator_test::curator_class_path;
use rustix::process::{Pid, Signal, kill_process};
use rustix::time::{ClockId, clock_gettime};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, ChildStdin, Command};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::time::timeout;

/// The result of a benchmark.
pub type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

const PATIENCE: Duration = Duration::from_secs(120);

/// Returns the time of the clock that all processes read: it counts from the start of the host.
#[must_use]
pub fn now() -> Duration {
    let now = clock_gettime(ClockId::Monotonic);
    Duration::new(now.tv_sec.unsigned_abs(), u32::try_from(now.tv_nsec).unwrap_or_default())
}

/// Returns the path of a program of another language, from the folder `programs`.
#[must_use]
pub fn program(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("programs").join(file)
}

/// A compiled program of Java's side.
#[derive(Debug)]
pub struct Java {
    class: &'static str,
    classes: TempDir,
    jars: String,
}

impl Java {
    /// Compiles the class of this name, and those that it names, from the folder `programs`.
    pub async fn compile(class: &'static str) -> Result<Self> {
        let jars = curator_class_path()?;
        let classes = tempfile::tempdir()?;
        let programs = program("");
        let mut compiler = Command::new("javac");
        compiler.args(["-cp", &jars, "-d"]).arg(classes.path()).arg("-sourcepath").arg(&programs);
        compiler.arg(programs.join(format!("{class}.java")));
        let compiled = compiler.output().await.map_err(|error| format!("javac: {error}"))?;
        if !compiled.status.success() {
            return Err(String::from_utf8_lossy(&compiled.stderr).into_owned().into());
        }
        Ok(Self { class, classes, jars })
    }

    /// Returns the command that runs the program.
    #[must_use]
    pub fn command(&self) -> Command {
        let mut java = Command::new("java");
        java.arg("-cp").arg(format!("{}:{}", self.classes.path().display(), self.jars)).arg(self.class);
        java
    }
}

/// A process. A drop kills it.
#[derive(Debug)]
pub struct Process {
    child: Child,
    input: ChildStdin,
    answers: UnboundedReceiver<String>,
}

impl Process {
    /// Starts a process, which says `ready`. `takes` gets each line first; if it returns `true` the line is not an
    /// answer.
    pub async fn start(mut command: Command, takes: impl Fn(&str) -> bool + Send + 'static) -> Result<Self> {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true).spawn()?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err("no pipes".into());
        };
        let (sender, answers) = unbounded_channel();
        tokio::spawn(async move {
            let mut lines = BufReader::new(output).lines();
            while let Ok(Some(line)) = lines.next_line().await {
                if !takes(&line) {
                    // The receiver is gone only if its process is dropped.
                    drop(sender.send(line));
                }
            }
        });
        let mut process = Self { child, input, answers };
        match timeout(PATIENCE, process.answers.recv()).await {
            Ok(Some(given)) if given == "ready" => Ok(process),
            given => Err(format!("{given:?}, not \"ready\"").into()),
        }
    }

    /// Sends a line, and returns the answer.
    pub async fn ask(&mut self, line: &str) -> Result<String> {
        self.input.write_all(format!("{line}\n").as_bytes()).await?;
        let answer = timeout(PATIENCE, self.answers.recv()).await.map_err(|_| format!("no answer to {line:?}"))?;
        Ok(answer.ok_or_else(|| format!("the process has ended before it answered {line:?}"))?)
    }

    /// Sends a line that has this answer.
    pub async fn tell(&mut self, line: &str, answer: &str) -> Result<()> {
        match self.ask(line).await? {
            given if given == answer => Ok(()),
            given => Err(format!("{line:?}: {given:?}, not {answer:?}").into()),
        }
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        let id = self.child.id().ok_or("the process has ended")?;
        Ok(kill_process(Pid::from_raw(id.try_into()?).ok_or("a process without an id")?, signal)?)
    }

    /// Kills the process as `kill -9` does.
    pub async fn kill(mut self) -> Result<()> {
        Ok(self.child.kill().await?)
    }
}

/// A second instance of a program, which carries out commands.
pub trait Commands {
    /// Carries out the command of a line, and returns the answer.
    fn run(&mut self, words: &[&str]) -> impl Future<Output = Result<String>> + Send;
}

/// Carries out the lines of the standard input, until its end.
pub async fn serve(mut commands: impl Commands) -> Result<()> {
    let mut lines = lines();
    while let Some(line) = lines.recv().await {
        let words: Vec<_> = line.split(' ').collect();
        say(&commands.run(&words).await?);
    }
    Ok(())
}

/// Says `ready`, and returns the lines of the standard input.
#[must_use]
pub fn lines() -> UnboundedReceiver<String> {
    say("ready");
    let (sender, lines) = unbounded_channel();
    std::thread::spawn(move || {
        std::io::stdin().lock().lines().map_while(std::result::Result::ok).try_for_each(|line| sender.send(line))
    });
    lines
}

/// Writes a line of the standard output.
pub fn say(line: &str) {
    let mut output = std::io::stdout().lock();
    // The reader is gone if this process is about to end.
    drop(output.write_all(format!("{line}\n").as_bytes()).and_then(|()| output.flush()));
}

/// Returns the exit code of a program that does this work. The work is a task: a future of `main` runs beside the threads
/// of the runtime.
pub async fn exit_code(work: impl Future<Output = Result<bool>> + Send + 'static) -> ExitCode {
    match tokio::spawn(work).await.unwrap_or_else(|error| Err(error.into())) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
