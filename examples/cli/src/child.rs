//! The command that runs under a lock.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{ExitCode, ExitStatus};
use std::time::{Duration, SystemTime};

use curator_framework::{LossReason, SessionEnd};
use curator_recipes::LockGuard;
use rustix::process::{Pid, Signal};
use tokio::process::{Child, Command};
use tokio::time::Instant;

use crate::signals::{self, Signals};
use crate::tell;

/// The command is not there, or cannot be executed: as the shells have it.
const NOT_FOUND: u8 = 127;
const NOT_EXECUTABLE: u8 = 126;
/// What this program is called with in order to become the command.
pub(crate) const BECOME: &str = "__become";

/// How a command is run and stopped.
pub(crate) struct Order<'a> {
    pub(crate) command: &'a [OsString],
    pub(crate) lock_path: &'a str,
    pub(crate) grace: Duration,
    /// The command stays in this process's group.
    pub(crate) foreground: bool,
    /// The command is stopped when somebody asks for the lock.
    pub(crate) revocable: bool,
}

/// How a command ended.
pub(crate) struct Ended {
    pub(crate) status: ExitStatus,
    /// It was stopped because of the lock.
    pub(crate) lost: bool,
}

/// Runs the command while the lock is held.
pub(crate) async fn run(guard: &LockGuard, order: &Order<'_>, signals: &mut Signals) -> io::Result<Ended> {
    let mut child = start(guard, order)?;
    let process = Process::of(&child, order.foreground);
    let (mut stopping, mut lost, mut kill_at) = (false, false, None::<Instant>);
    let status = loop {
        tokio::select! {
            biased;
            status = child.wait() => break status?,
            reason = guard.lost(), if !lost => {
                tell(&format!("the lock is lost: {reason}"));
                (lost, stopping) = (true, true);
                process.signal(Signal::TERM);
                // After a silence there was time before; now the margin runs in which nobody else has the lock yet.
                let silence = matches!(reason, LossReason::Session(SessionEnd::DeadlinePassed));
                let last = Instant::now() + if silence { Duration::ZERO } else { order.grace };
                kill_at = Some(kill_at.map_or(last, |at| at.min(last)));
            }
            () = nearly_lost(guard, order.grace), if !stopping => {
                tell("no answer from the servers: the command is stopped before the lock can be lost");
                (lost, stopping) = (true, true);
                process.signal(Signal::TERM);
                kill_at = Some(Instant::now() + guard.remaining());
            }
            () = guard.revocation_requested(), if order.revocable && !stopping => {
                tell("somebody asks for the lock: the command is stopped");
                stopping = true;
                process.signal(Signal::TERM);
                kill_at = Some(Instant::now() + order.grace);
            }
            signal = signals.next() => match signal {
                Signal::TSTP => tell("Ctrl-Z is not obeyed: a lock cannot be kept by a stopped process"),
                // The terminal gives these to the whole group.
                Signal::INT | Signal::QUIT if order.foreground => {}
                signal => process.signal(signal),
            },
            () = until(kill_at) => {
                kill_at = None;
                process.signal(Signal::KILL);
            }
        }
    };
    if lost {
        // What the command has left in its group must not go on either.
        process.signal(Signal::KILL);
    }
    Ok(Ended { status, lost })
}

fn start(guard: &LockGuard, order: &Order<'_>) -> io::Result<Child> {
    let mut command = if cfg!(target_os = "linux") {
        // By way of this program, so that the kernel ends the command with it, also after `kill -9`.
        let mut this = Command::new("/proc/self/exe");
        this.arg(BECOME).arg(std::process::id().to_string()).args(order.command);
        this
    } else {
        let mut this = Command::new(&order.command[0]);
        this.args(&order.command[1..]);
        this
    };
    let deadline = (SystemTime::now() + guard.remaining()).duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    command
        .env("CURATOR_LOCK_PATH", order.lock_path)
        .env("CURATOR_NODE", guard.path())
        .env("CURATOR_FENCING_TOKEN", guard.fencing_token().to_string())
        .env("CURATOR_DEADLINE", format!("{}.{:03}", deadline.as_secs(), deadline.subsec_millis()))
        .kill_on_drop(true);
    if !order.foreground {
        command.process_group(0);
    }
    command.spawn()
}

/// Becomes the command, unless the process that holds the lock has gone.
pub(crate) fn become_command(parent: &OsStr, command: &[OsString]) -> ExitCode {
    let Some((program, arguments)) = command.split_first() else { return ExitCode::from(NOT_FOUND) };
    #[cfg(target_os = "linux")]
    if let Err(error) = rustix::process::set_parent_process_death_signal(Some(Signal::KILL)) {
        tell(&format!("the command cannot be bound to this process: {error}"));
    }
    let now = rustix::process::getppid().map_or(0, |parent| parent.as_raw_nonzero().get());
    if *parent != *now.to_string() {
        return ExitCode::FAILURE;
    }
    let error = std::process::Command::new(program).args(arguments).exec();
    ExitCode::from(cannot_run(program, &error))
}

/// Says why a command cannot be run; the exit status for it.
pub(crate) fn cannot_run(program: &OsStr, error: &io::Error) -> u8 {
    tell(&format!("cannot run {}: {error}", program.to_string_lossy()));
    if error.kind() == io::ErrorKind::NotFound { NOT_FOUND } else { NOT_EXECUTABLE }
}

/// Resolves when no more than `grace` is left of the time for which the lock is certain.
async fn nearly_lost(guard: &LockGuard, grace: Duration) {
    loop {
        match guard.remaining().checked_sub(grace) {
            Some(left) if !left.is_zero() => tokio::time::sleep(left).await,
            // There is no time to be had, or none is asked for: it is the loss that tells.
            _ if grace.is_zero() || !guard.is_held() => std::future::pending().await,
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

/// The command's process, with its group if it has one of its own.
struct Process {
    pid: Option<Pid>,
    group: bool,
}

impl Process {
    fn of(child: &Child, foreground: bool) -> Self {
        let pid = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        Self { pid, group: !foreground }
    }

    /// A process that has ended needs no signal, and its number may be another's.
    fn signal(&self, signal: Signal) {
        let Some(pid) = self.pid else { return };
        let send = |signal| {
            if self.group {
                rustix::process::kill_process_group(pid, signal)
            } else {
                rustix::process::kill_process(pid, signal)
            }
        };
        match send(signal) {
            Ok(()) | Err(rustix::io::Errno::SRCH) => {}
            Err(error) => tell(&format!("cannot send {signal:?} to the command: {error}")),
        }
        if signals::ends(signal) {
            // One that is stopped must wake to hear of it. If it is gone, so be it.
            let _gone = send(Signal::CONT);
        }
    }
}

/// The exit status that stands for a command's, as the shells have it.
pub(crate) fn code(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX)
}
