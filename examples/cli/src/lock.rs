//! `lock`, `semaphore`, `read` and `write`: a command under a lock.

use std::ffi::OsString;
use std::time::{Duration, Instant};

use clap::Args;
use clap::builder::BoolishValueParser;
use curator_cli::kinds::LockKind;
use curator_framework::{Chain, CuratorFramework};
use curator_recipes::{
    InterProcessLock, InterProcessMutex, InterProcessReadWriteLock, InterProcessSemaphoreV2, LockError, LockGuard,
    LockOptions, ParticipantKind, Release,
};

use crate::child::{self, Input, Order, Streams, Work, host};
use crate::failure::{Failure, LOST};
use crate::output::tell;
use crate::signals::Signals;
use crate::site::{RELEASE, Site};
use crate::values::{at_least_one, duration};
use crate::waiting::Waiting;

/// The options of `curator semaphore`.
#[derive(Debug, Args)]
pub(crate) struct Semaphore {
    /// Number of leases; all clients must give the same number
    #[arg(short = 'n', long, default_value_t = 1, value_parser = at_least_one, env = "CURATOR_LEASES")]
    pub(crate) leases: usize,
    /// Run the command for each line of standard input, with `{}` replaced by the line, under a lease for each
    #[arg(long, value_parser = BoolishValueParser::new(), env = "CURATOR_EACH")]
    pub(crate) each: bool,
    #[command(flatten)]
    pub(crate) run: Run,
}

/// The options of `curator lock`, `read` and `write`.
#[derive(Debug, Args)]
#[command(after_help = TIMELINE)]
pub(crate) struct Run {
    /// Give up when the lock is not acquired in this time, which includes connecting [default: never]
    #[arg(long, short = 'w', value_parser = duration, env = "CURATOR_TIMEOUT")]
    pub(crate) timeout: Option<Duration>,
    /// Give up at once when another contender has the lock
    #[arg(long = "try", value_parser = BoolishValueParser::new(), env = "CURATOR_TRY")]
    pub(crate) once: bool,
    /// The exit status when the lock was not acquired
    #[arg(long, short = 'E', default_value_t = 75, value_name = "STATUS", env = "CURATOR_CONFLICT_EXIT_CODE")]
    conflict_exit_code: u8,
    /// Stop the command when another client asks for the lock with `curator revoke`
    #[arg(long, value_parser = BoolishValueParser::new(), env = "CURATOR_REVOCABLE")]
    revocable: bool,
    /// Data of this contender's node, which `curator ls` shows [default: host, process id and command]
    #[arg(long, env = "CURATOR_DATA")]
    data: Option<String>,
    /// The lock's path
    path: String,
    #[command(flatten)]
    pub(crate) work: Work,
}

const TIMELINE: &str = "\
The command gets CURATOR_LOCK_PATH, CURATOR_NODE, CURATOR_FENCING_TOKEN and CURATOR_DEADLINE: the time (seconds since
1970) until which the lock was certain at the start. While this program runs, the actual deadline moves on.

When the servers are silent, times count from the newest evidence that the session lives. T is the session timeout that
the servers granted, G the grace:
  3/4 T - G   SIGTERM to the command and its process group
  3/4 T       the lock counts as lost: SIGKILL
  T           the earliest moment at which another contender can acquire the lock
If the session is killed or the node is deleted, another contender may acquire the lock at once. The command then gets
SIGTERM, and SIGKILL after G. Pass the fencing token to the resource to be safe from that, and from a paused process.

INT, TERM, HUP, QUIT, USR1 and USR2 are passed on to the command. The lock is released after the command has ended. If
this program is killed with SIGKILL, Linux kills the command too, but not the processes that it started, nor a setuid
program. The server releases the lock when the session ends, at most T later.";

/// A lock of any kind. A semaphore is not an `InterProcessLock`, because one caller can hold several leases.
pub(crate) enum Lock {
    One(Box<dyn InterProcessLock>),
    Leases(InterProcessSemaphoreV2),
}

impl Lock {
    pub(crate) fn new(
        client: &CuratorFramework,
        kind: ParticipantKind,
        leases: Option<usize>,
        run: &Run,
    ) -> Result<Self, LockError> {
        let (client, path) = (client.clone(), &run.path);
        let read_write = InterProcessReadWriteLock::with_options;
        Ok(match (kind, leases) {
            (_, Some(n)) => Self::Leases(InterProcessSemaphoreV2::with_options(client, path, n, lock_options(run))?),
            (ParticipantKind::Read, _) => Self::One(Box::new(read_write(client, path, lock_options(run))?.read_lock())),
            (ParticipantKind::Write, _) => {
                Self::One(Box::new(read_write(client, path, lock_options(run))?.write_lock()))
            }
            _ => Self::One(Box::new(InterProcessMutex::with_options(client, path, lock_options(run))?)),
        })
    }

    /// Acquires the lock: with `once` if it is free, otherwise within the budget if there is one.
    async fn acquire(&self, once: bool, budget: Option<Duration>) -> Result<Option<LockGuard>, LockError> {
        Ok(match (self, budget) {
            (Self::One(lock), _) if once => lock.try_acquire().await?,
            (Self::One(lock), Some(budget)) => lock.acquire_timeout(budget).await?,
            (Self::One(lock), None) => Some(lock.acquire().await?),
            (Self::Leases(semaphore), _) if once => semaphore.try_acquire().await?.map(Into::into),
            (Self::Leases(semaphore), Some(budget)) => semaphore.acquire_timeout(budget).await?.map(Into::into),
            (Self::Leases(semaphore), None) => Some(semaphore.acquire().await?.into()),
        })
    }
}

/// Runs the command under a lock, a semaphore if it has `leases`, and returns the exit status.
pub(crate) async fn under(
    site: &Site,
    kind: ParticipantKind,
    leases: Option<usize>,
    run: &Run,
    signals: &mut Signals,
) -> Result<u8, Failure> {
    let lock = Lock::new(&site.client, kind, leases, run)?;
    let Some(held) = signals.unless_ended(acquire(site, &lock, kind, leases, run)).await? else {
        let other = format!("another contender has {0}: curator status {0} shows it", run.path);
        tell(&signals.unless_ended(site.refused_by(&run.path, kind, other)).await?);
        return Ok(run.conflict_exit_code);
    };
    held.run(run, &run.work.command, Input::Inherited, signals).await
}

/// A lock that was acquired, and the time from SIGTERM to SIGKILL.
pub(crate) struct Held {
    guard: LockGuard,
    grace: Duration,
}

impl Held {
    /// Runs a command under the lock, releases it, and returns the exit status.
    pub(crate) async fn run(
        self,
        run: &Run,
        command: &[OsString],
        input: Input<'_>,
        signals: &mut Signals,
    ) -> Result<u8, Failure> {
        let Self { guard, grace } = self;
        let foreground = run.work.setting.foreground;
        let order = Order {
            command,
            foreground,
            streams: Streams::with(input),
            path: &run.path,
            grace,
            revocable: run.revocable,
        };
        let ended = child::run(&guard, &order, signals).await;
        let released = tokio::time::timeout(RELEASE, guard.release()).await;
        let ended = match ended {
            Ok(ended) => ended,
            Err(error) => return Ok(child::cannot_run(&command[0], &error)),
        };
        match released {
            _ if ended.lost => return Ok(LOST),
            Ok(Ok(Release::Released)) => {}
            Ok(Ok(Release::AlreadyLost(reason))) => {
                return Err(Failure(LOST, format!("the lock was lost before the command ended: {reason}")));
            }
            Ok(Err(error)) => {
                tell(&format!("the lock goes with its session, it could not be given back: {}", Chain(&error)))
            }
            Err(_too_long) => tell("the lock goes with its session, the servers did not answer when it was given back"),
        }
        Ok(child::code(ended.status))
    }
}

/// Acquires the lock within the time that the options allow. Returns the guard, and the grace for the command.
pub(crate) async fn acquire(
    site: &Site,
    lock: &Lock,
    kind: ParticipantKind,
    leases: Option<usize>,
    run: &Run,
) -> Result<Option<Held>, Failure> {
    let begin = Instant::now();
    let session = site.first_session(run.timeout).await?;
    let grace = run.work.grace.in_session(session.timeout())?;
    let left = || run.timeout.map(|budget| budget.saturating_sub(begin.elapsed()));
    let checking = site.check(Some(LockKind::of(kind)), &run.path);
    match tokio::time::timeout(left().unwrap_or(Duration::MAX), checking).await {
        Ok(checked) => checked?,
        // The acquire has no time left either, and reports it.
        Err(_too_long) => {}
    }
    let waiting = Waiting::new(&site.client, &run.path, leases, run.work.verbose);
    let guard = tokio::select! {
        biased;
        guard = lock.acquire(run.once, left()) => guard?,
        never = waiting.report() => match never {},
    };
    Ok(guard.map(|guard| {
        waiting.granted("has", &format!("fencing token {}", guard.token().czxid().get()));
        Held { guard, grace }
    }))
}

fn lock_options<K: Default>(run: &Run) -> LockOptions<K> {
    let data = run.data.clone().unwrap_or_else(|| {
        let command = run.work.command.first().map(|command| command.to_string_lossy().into_owned());
        format!("{} {} {}", host(), std::process::id(), command.unwrap_or_default())
    });
    LockOptions::new().data(data)
}
