//! The command that runs under a grant, and its options.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::pin::pin;
use std::process::{ExitStatus, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use clap::Args;
use clap::builder::BoolishValueParser;
use curator_framework::{LossReason, SessionEnd};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, waitid};
use tokio::io::AsyncWriteExt as _;
use tokio::process::{Child, ChildStdin, Command};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::Instant;

use crate::failure::Failure;
use crate::grant::Grant;
use crate::output::{self, tell};
use crate::signals::{self, Signals};
use crate::values::{Access, duration};

/// The exit statuses of shells for a command that was not found, or that cannot be executed.
pub(crate) const NOT_FOUND: u8 = 127;
pub(crate) const NOT_EXECUTABLE: u8 = 126;
/// The argument with which this program starts itself in order to become the command.
pub(crate) const BECOME: &str = "__become";

/// The connect string, which the command gets. A `curator` in the command uses the same servers and the same chroot.
static CONNECT: OnceLock<String> = OnceLock::new();

/// Sets the connect string of later commands.
pub(crate) fn set_connect(servers: &str) {
    CONNECT.get_or_init(|| servers.to_owned());
}

/// The command, and the options that each command has. A path must precede it: the command is the last argument.
#[derive(Debug, Args)]
pub(crate) struct Work {
    #[command(flatten)]
    pub(crate) grace: Grace,
    #[command(flatten)]
    pub(crate) setting: Setting,
    /// Tell the place in the queue, the holder and the grant. On a terminal a line follows after 2 s of waiting anyhow
    #[arg(long, short, value_parser = BoolishValueParser::new(), env = "CURATOR_VERBOSE")]
    pub(crate) verbose: bool,
    /// Run this line of the shell: `-c 'a | b'` is `-- sh -c 'a | b'`
    #[arg(short = 'c', long, value_name = "LINE", conflicts_with = "command")]
    shell: Option<OsString>,
    /// The command and its arguments
    #[arg(last = true, required_unless_present = "shell")]
    pub(crate) command: Vec<OsString>,
}

impl Work {
    /// Takes the line of the shell for the command, if there is one. Returns `true` then.
    pub(crate) fn take_shell_line(&mut self) -> bool {
        let Some(line) = self.shell.take() else { return false };
        self.command = vec!["sh".into(), "-c".into(), line];
        true
    }
}

/// The time from SIGTERM to SIGKILL after a loss.
#[derive(Debug, Args)]
pub(crate) struct Grace {
    /// The time from SIGTERM to SIGKILL; at most T/4 [default: 5s or T/6, the shorter; T is the session timeout]
    #[arg(long, value_parser = duration, env = "CURATOR_GRACE")]
    grace: Option<Duration>,
}

/// The process group of the command, and the access to the nodes.
#[derive(Debug, Args)]
pub(crate) struct Setting {
    /// Leave the command in this process's group, so that it can read from the terminal; this program then stops
    /// only the command, not the processes that it started
    #[arg(long, value_parser = BoolishValueParser::new(), env = "CURATOR_FOREGROUND")]
    pub(crate) foreground: bool,
    #[command(flatten)]
    pub(crate) access: Access,
}

impl Grace {
    /// Returns the time from SIGTERM to SIGKILL in a session with this timeout.
    pub(crate) fn in_session(&self, session_timeout: Duration) -> Result<Duration, Failure> {
        let longest = session_timeout / 4;
        let grace = self.grace.unwrap_or_else(|| (session_timeout / 6).min(Duration::from_secs(5)));
        if grace > longest {
            let text = format!("--grace {grace:?} is more than a quarter of the session timeout: at most {longest:?}");
            return Err(Failure(2, text));
        }
        Ok(grace)
    }
}

/// The command, and the way in which it runs and stops.
pub(crate) struct Order<'a> {
    pub(crate) command: &'a [OsString],
    /// `true` leaves the command in this process's group.
    pub(crate) foreground: bool,
    /// The path of the lock, the election or the group.
    pub(crate) path: &'a str,
    pub(crate) grace: Duration,
    /// `true` stops the command when another client asks for the lock.
    pub(crate) revocable: bool,
    pub(crate) streams: Streams<'a>,
}

/// The standard streams of a command.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Streams<'a> {
    pub(crate) input: Input<'a>,
    /// `true` has the command print on standard error: standard output has records of this program.
    pub(crate) prints_on_stderr: bool,
}

/// The input of a command.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Input<'a> {
    /// This program's standard input.
    Inherited,
    Nothing,
    /// Bytes on standard input.
    Bytes(&'a [u8]),
    /// Bytes in the variable `CURATOR_ITEM`, and nothing on standard input.
    Variable(&'a [u8]),
}

impl<'a> Streams<'a> {
    /// The streams of this program.
    pub(crate) const INHERITED: Self = Self::with(Input::Inherited);

    pub(crate) const fn with(input: Input<'a>) -> Self {
        Self { input, prints_on_stderr: false }
    }
}

/// The end of a command.
pub(crate) struct Ended {
    pub(crate) status: ExitStatus,
    /// `true` if the command was stopped because the grant was lost or nearly lost.
    pub(crate) lost: bool,
    /// `true` if the command was stopped because another client asked for the lock.
    pub(crate) revoked: bool,
    /// `true` if a signal asked this program to end in the meantime. HUP does not count: for a service it may mean a reload.
    pub(crate) asked_to_end: bool,
}

/// Runs the command while the grant lasts.
pub(crate) async fn run(grant: &impl Grant, order: &Order<'_>, signals: &mut Signals) -> io::Result<Ended> {
    let mut changes = signal(SignalKind::child())?;
    output::flush(output::BEFORE_A_COMMAND);
    let mut child = start(grant, order)?;
    let foreground = order.foreground;
    let process = Process::of(&child, foreground);
    let (mut stopping, mut lost, mut kill_at) = (false, false, None::<Instant>);
    let (mut explained, mut asked_to_end, mut revoked) = (foreground, false, false);
    let mut fed = pin!(feed(child.stdin.take(), order.streams.input));
    let mut is_fed = false;
    let status = loop {
        tokio::select! {
            biased;
            status = child.wait() => break status?,
            () = &mut fed, if !is_fed => is_fed = true,
            reason = grant.lost(), if !lost => {
                (lost, stopping) = (true, true);
                process.signal(Signal::TERM);
                // A silence allowed the grace before this point. The last quarter of the timeout must see no command.
                let silence = matches!(reason, LossReason::Session(SessionEnd::DeadlinePassed));
                let last = Instant::now() + if silence { Duration::ZERO } else { order.grace };
                kill_at = Some(kill_at.map_or(last, |at| at.min(last)));
                tell(&format!("{} is lost: {reason}", grant.what(order.path)));
            }
            () = nearly_lost(grant, order.grace), if !stopping => {
                (lost, stopping) = (true, true);
                process.signal(Signal::TERM);
                kill_at = Some(Instant::now() + grant.remaining());
                let what = grant.what(order.path);
                tell(&format!("no answer from the servers: the command is stopped before {what} can be lost"));
            }
            () = grant.revocation_requested(), if order.revocable && !stopping => {
                (stopping, revoked) = (true, true);
                process.signal(Signal::TERM);
                kill_at = Some(Instant::now() + order.grace);
                tell(&format!("another client asks for {}: the command is stopped", grant.what(order.path)));
            }
            signal = signals.next() => {
                asked_to_end |= matches!(signal, Signal::INT | Signal::TERM | Signal::QUIT);
                match signal {
                    Signal::TSTP => {
                        tell(&format!("Ctrl-Z is not obeyed: a stopped process cannot keep {}", grant.what(order.path)));
                    }
                    // The terminal sends these to the whole group.
                    Signal::INT | Signal::QUIT if foreground => {}
                    signal => process.signal(signal),
                }
            }
            _ = changes.recv(), if !explained => if process.wants_the_terminal() {
                tell("the command is stopped because it wants the terminal: Ctrl-C ends it, --foreground lets it have it");
                explained = true;
            },
            () = until(kill_at) => {
                kill_at = None;
                process.signal(Signal::KILL);
            }
        }
    };
    if lost {
        // Processes that the command left in its group must not continue either.
        process.signal(Signal::KILL);
    }
    Ok(Ended { status, lost, revoked, asked_to_end })
}

fn start(grant: &impl Grant, order: &Order<'_>) -> io::Result<Child> {
    let words = order.command;
    let mut command = if cfg!(target_os = "linux") {
        // This program becomes the command, so that the kernel kills the command even after `kill -9` here.
        let mut this = Command::new("/proc/self/exe");
        this.arg(BECOME).arg(std::process::id().to_string()).args(words);
        this
    } else {
        let mut this = Command::new(&words[0]);
        this.args(&words[1..]);
        this
    };
    // The command has no need of the credentials.
    command.env_remove("CURATOR_AUTH").envs(grant.variables(order.path)).kill_on_drop(true);
    if let Some(servers) = CONNECT.get() {
        command.env("CURATOR_CONNECT", servers);
    }
    if !order.foreground {
        command.process_group(0);
    }
    match order.streams.input {
        Input::Inherited => &mut command,
        Input::Nothing => command.stdin(Stdio::null()),
        Input::Bytes(_) => command.stdin(Stdio::piped()),
        Input::Variable(bytes) => command.stdin(Stdio::null()).env("CURATOR_ITEM", OsStr::from_bytes(bytes)),
    };
    if order.streams.prints_on_stderr {
        command.stdout(io::stderr());
    }
    command.spawn()
}

/// Writes the bytes of the input, and closes it. A command need not read all of it.
async fn feed(pipe: Option<ChildStdin>, input: Input<'_>) {
    if let (Some(mut pipe), Input::Bytes(bytes)) = (pipe, input) {
        let _closed = pipe.write_all(bytes).await;
    }
}

/// Becomes the command, unless the process that holds the lock has ended.
pub(crate) fn become_command(parent: &OsStr, command: &[OsString]) -> u8 {
    let Some((program, arguments)) = command.split_first() else { return NOT_FOUND };
    #[cfg(target_os = "linux")]
    if let Err(error) = rustix::process::set_parent_process_death_signal(Some(Signal::KILL)) {
        tell(&format!("the command cannot be bound to this process: {error}"));
        output::flush(output::AT_THE_END);
    }
    let now = rustix::process::getppid().map_or(0, |parent| parent.as_raw_nonzero().get());
    if *parent != *now.to_string() {
        return 1;
    }
    let error = std::process::Command::new(program).args(arguments).exec();
    cannot_run(program, &error)
}

/// Prints why a command cannot run, and returns the exit status for it.
pub(crate) fn cannot_run(program: &OsStr, error: &io::Error) -> u8 {
    let is_missing = error.kind() == io::ErrorKind::NotFound;
    let is_line = program.as_bytes().iter().any(|byte| b" |&;<>$".contains(byte));
    let hint = if is_missing && is_line { "; for a line of the shell use -c" } else { "" };
    tell(&format!("cannot run {}: {error}{hint}", program.to_string_lossy()));
    if is_missing { NOT_FOUND } else { NOT_EXECUTABLE }
}

/// Resolves when at most `grace` is left until the session's deadline.
async fn nearly_lost(grant: &impl Grant, grace: Duration) {
    loop {
        match grant.remaining().checked_sub(grace) {
            Some(left) if !left.is_zero() => tokio::time::sleep(left).await,
            // Without a grace, or after the loss, `lost` stops the command instead.
            _ if grace.is_zero() || !grant.is_held() => std::future::pending().await,
            _ => return,
        }
    }
}

async fn until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// The command's process, and its process group if it has its own.
struct Process {
    pid: Option<Pid>,
    group: bool,
}

impl Process {
    fn of(child: &Child, foreground: bool) -> Self {
        let pid = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        Self { pid, group: !foreground }
    }

    /// Returns `true` if the process is stopped because it is not in the terminal's foreground group.
    fn wants_the_terminal(&self) -> bool {
        let Some(pid) = self.pid else { return false };
        // Without NOWAIT a later look would not see the stop.
        let options = WaitIdOptions::STOPPED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let stopped = waitid(WaitId::Pid(pid), options).ok().flatten().and_then(|status| status.stopping_signal());
        stopped.is_some_and(|signal| [Signal::TTIN.as_raw(), Signal::TTOU.as_raw()].contains(&signal))
    }

    /// Sends a signal to the process or its group. Sends none after the end, because the process id may be reused.
    fn signal(&self, signal: Signal) {
        let Some(pid) = self.pid else { return };
        let send = |signal| {
            if self.group {
                rustix::process::kill_process_group(pid, signal)
            } else {
                rustix::process::kill_process(pid, signal)
            }
        };
        let sent = send(signal);
        if signals::ends(signal) {
            // A stopped process must continue to handle the signal. It may have ended already.
            let _gone = send(Signal::CONT);
        }
        match sent {
            Ok(()) | Err(rustix::io::Errno::SRCH) => {}
            Err(error) => tell(&format!("cannot send {} to the command: {error}", signals::name(signal))),
        }
    }
}

/// Returns the exit status of a shell for the command's status.
pub(crate) fn code(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX)
}

/// Returns the id of this candidate or member.
pub(crate) fn own_id(given: Option<&str>) -> String {
    given.map_or_else(|| format!("{}-{}", host(), std::process::id()), ToOwned::to_owned)
}

/// The programs that run what their arguments name.
const RUNNERS: [&str; 14] =
    ["bash", "dash", "env", "java", "ksh", "make", "nice", "node", "perl", "python3", "ruby", "sh", "sudo", "timeout"];
/// The longest name of a command in the data of a node, in characters.
const LONGEST: usize = 60;

/// Returns the data of a node for a command: the host, this process, and what runs. Of a line of the shell it is the first
/// word: the rest may have secrets, and others can read the node.
pub(crate) fn label(command: &[OsString]) -> String {
    let mut words = command.iter().map(|word| word.to_string_lossy());
    let program = words.next().unwrap_or_default().into_owned();
    let name = program.rsplit('/').next().unwrap_or_default();
    let named = words.find(|word| !word.starts_with('-') && !word.contains('=')).filter(|_| RUNNERS.contains(&name));
    let first = named.as_ref().and_then(|words| words.split_whitespace().next());
    let what = first.map_or_else(|| program.clone(), |first| format!("{program} {first}"));
    format!("{} {} {}", host(), std::process::id(), what.chars().take(LONGEST).collect::<String>())
}

/// Returns the name of this machine.
pub(crate) fn host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn label_names_what_a_runner_runs_without_its_secrets() {
        for (command, name) in [
            (&["backup", "--all"][..], "backup"),
            (&["sh", "-c", "wget https://user:secret@host/"], "sh wget"),
            (&["/bin/sh", "-eu", "/opt/report.sh", "secret"], "/bin/sh /opt/report.sh"),
            (&["make", "-j4", "nightly"], "make nightly"),
            (&["env", "TOKEN=secret", "sync"], "env sync"),
            (&["python3", "-"], "python3"),
            (&["sh", "-c", ""], "sh"),
        ] {
            let command: Vec<OsString> = command.iter().map(Into::into).collect();
            assert_eq!(label(&command), format!("{} {} {name}", host(), std::process::id()));
        }
        let long = ["x".repeat(100).into()];
        assert_eq!(label(&long).rsplit(' ').next().map(str::len), Some(LONGEST));
    }
}
