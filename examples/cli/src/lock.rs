//! `lock`, `semaphore`, `read` and `write`: a command under a lock.

use std::ffi::OsString;
use std::time::{Duration, Instant};

use clap::Args;
use clap::builder::BoolishValueParser;
use curator_cli::contenders::{LEASES_OF, limit_of};
use curator_cli::kinds::LockKind;
use curator_framework::{Chain, CuratorFramework, make_path};
use curator_recipes::{
    InterProcessLock, InterProcessMutex, InterProcessReadWriteLock, InterProcessSemaphoreV2, LockError, LockGuard,
    LockOptions, MaxLeases, ParticipantKind, Release, SharedCount,
};

use crate::child::{self, Input, Order, Streams, Work, label};
use crate::failure::{Failure, LOST, REVOKED};
use crate::nested;
use crate::output::{tell, tell_conflict};
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
    /// Follow the number in this node, in place of -n: `curator count --integer --set 5 NODE` changes it while commands
    /// run. A node that does not exist is created with the number of -n
    #[arg(long, value_name = "NODE", env = "CURATOR_LIMIT_PATH")]
    limit_path: Option<String>,
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
    #[arg(long, short = 'w', visible_alias = "wait", value_parser = duration, env = "CURATOR_TIMEOUT")]
    pub(crate) timeout: Option<Duration>,
    /// Give up at once when another contender has the lock
    #[arg(long = "try", value_parser = BoolishValueParser::new(), env = "CURATOR_TRY")]
    pub(crate) once: bool,
    /// The exit status when the lock was not acquired; with 0 no message tells it, unless --verbose is given
    #[arg(long, short = 'E', default_value_t = 75, value_name = "STATUS", env = "CURATOR_CONFLICT_EXIT_CODE")]
    conflict_exit_code: u8,
    /// Stop the command when another client asks for the lock with `curator revoke`
    #[arg(long, value_parser = BoolishValueParser::new(), env = "CURATOR_REVOCABLE")]
    revocable: bool,
    /// Data of this contender's node, which `curator ls` shows [default: host, process id and the command's name]
    #[arg(long, env = "CURATOR_DATA")]
    data: Option<String>,
    /// The lock's path
    pub(crate) path: String,
    #[command(flatten)]
    pub(crate) work: Work,
}

const TIMELINE: &str = "\
The command gets CURATOR_LOCK_PATH, CURATOR_NODE, CURATOR_FENCING_TOKEN and CURATOR_DEADLINE: the time (seconds since
1970) until which the lock was certain at the start. While this program runs, the actual deadline moves on. CURATOR_HELD
has the nodes of this lock and of those around it. These variables outlive the lock: `curator holds` asks the servers.

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

impl Semaphore {
    /// Returns the limit of leases, which may be the number in a node. The wait for it counts from `begin`.
    pub(crate) async fn limit(&self, site: &Site, begin: Instant) -> Result<MaxLeases, Failure> {
        site.first_session(self.run.timeout).await?;
        // A budget of zero does not limit the reads, as it does not limit the connection.
        let budget = self.run.timeout.filter(|budget| !budget.is_zero());
        let left = budget.map_or(Duration::MAX, |budget| budget.saturating_sub(begin.elapsed()));
        let Some(path) = &self.limit_path else {
            let warning = warn_of_other_limit(site, &self.run, self.leases);
            // The program does not need it.
            let _too_long = tokio::time::timeout(left.min(WARNING), warning).await;
            return Ok(self.leases.into());
        };
        let first = i32::try_from(self.leases).unwrap_or(i32::MAX);
        let count = SharedCount::new(site.client.clone(), path, first)?;
        count.start()?;
        let budget = site.client.connection_timeout().min(left);
        match count.initialized_timeout(budget).await? {
            Some(()) => Ok((&count).into()),
            None => Err(Failure(69, format!("the limit {path} was not read within {budget:?}"))),
        }
    }
}

/// The longest time for the search for another limit.
const WARNING: Duration = Duration::from_secs(1);

/// Warns of a holder with another number of leases. Each number counts for its own client alone.
async fn warn_of_other_limit(site: &Site, run: &Run, leases: usize) {
    let parent = make_path(&run.path, InterProcessSemaphoreV2::LEASES);
    let Ok(nodes) = site.client.get_children().for_path(&parent).await else { return };
    let Some(first) = nodes.first() else { return };
    let Ok((data, _)) = site.client.get_data().for_path(&make_path(&parent, first)).await else { return };
    if let Some(other) = limit_of(&data).filter(|other| *other != leases) {
        tell(&format!(
            "a holder of {} has {other} leases as the limit, and this program has {leases}: give all the same number \
             with -n, or the node of one with --limit-path",
            run.path
        ));
    }
}

/// Returns a limit as a number. It may change.
pub(crate) fn present(limit: &MaxLeases) -> usize {
    match limit {
        MaxLeases::Fixed(leases) => *leases,
        MaxLeases::Count(count) => count.count().ok().and_then(|leases| usize::try_from(leases).ok()).unwrap_or(0),
        // Later versions may have others.
        _ => 0,
    }
}

/// A lock of any kind. A semaphore is not an `InterProcessLock`, because one caller can hold several leases.
pub(crate) enum Lock {
    One(Box<dyn InterProcessLock>),
    Leases(InterProcessSemaphoreV2),
}

impl Lock {
    pub(crate) fn new(
        client: &CuratorFramework,
        kind: ParticipantKind,
        leases: Option<&MaxLeases>,
        run: &Run,
    ) -> Result<Self, LockError> {
        let (client, path) = (client.clone(), &run.path);
        let read_write = InterProcessReadWriteLock::with_options;
        Ok(match (kind, leases) {
            (_, Some(leases)) => {
                let options = match leases {
                    MaxLeases::Fixed(leases) if run.data.is_none() => {
                        LockOptions::new().data(format!("{}{LEASES_OF}{leases})", label(&run.work.command)))
                    }
                    _ => lock_options(run),
                };
                Self::Leases(InterProcessSemaphoreV2::with_options(client, path, leases.clone(), options)?)
            }
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

/// The limit of a semaphore.
pub(crate) struct Limit<'a> {
    leases: MaxLeases,
    /// The node that has it.
    node: Option<&'a str>,
}

impl Limit<'_> {
    /// Returns the message about a lease that was not granted.
    fn refusal(&self, path: &str) -> String {
        match (present(&self.leases), self.node) {
            (0, Some(node)) => format!("the limit in {node} is 0: curator count --integer --set N {node} changes it"),
            (leases, _) => format!("all {leases} leases of {path} are taken: curator status {path} shows the holders"),
        }
    }
}

/// Runs the command under a lease, and returns the exit status.
pub(crate) async fn leased(site: &Site, semaphore: &Semaphore, signals: &mut Signals) -> Result<u8, Failure> {
    let begin = Instant::now();
    let limit = signals.unless_ended(semaphore.limit(site, begin)).await?;
    let limit = Limit { leases: limit, node: semaphore.limit_path.as_deref() };
    under(site, ParticipantKind::Lease, Some(limit), &semaphore.run, begin, signals).await
}

/// Runs the command under a lock, a semaphore if it has a `limit`, and returns the exit status. The wait for the lock
/// counts from `begin`.
pub(crate) async fn under(
    site: &Site,
    kind: ParticipantKind,
    limit: Option<Limit<'_>>,
    run: &Run,
    begin: Instant,
    signals: &mut Signals,
) -> Result<u8, Failure> {
    let leases = limit.as_ref().map(|limit| present(&limit.leases));
    signals.unless_ended(refuse_itself(site, kind, leases, run)).await?;
    let lock = Lock::new(&site.client, kind, limit.as_ref().map(|limit| &limit.leases), run)?;
    let Some(held) = signals.unless_ended(acquire(site, &lock, kind, leases, run, begin)).await? else {
        let other = match &limit {
            Some(limit) => limit.refusal(&run.path),
            None => format!("another contender has {0}: curator status {0} shows it", run.path),
        };
        let text = signals.unless_ended(site.refused_by(&run.path, kind, other)).await?;
        tell_conflict(if run.work.verbose { 1 } else { run.conflict_exit_code }, &text);
        return Ok(run.conflict_exit_code);
    };
    held.run(site, run, &run.work.command, Input::Inherited, signals).await
}

/// Refuses a lock that would wait for a command of which this program is a part.
pub(crate) async fn refuse_itself(
    site: &Site,
    kind: ParticipantKind,
    leases: Option<usize>,
    run: &Run,
) -> Result<(), Failure> {
    // Leases are shared.
    if leases.is_some_and(|leases| leases > 1) {
        return Ok(());
    }
    nested::refuse_itself(site, kind, &run.path, run.timeout).await
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
        site: &Site,
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
                return Err(Failure(
                    LOST,
                    format!("the lock {} was lost before the command ended: {reason}", run.path),
                ));
            }
            Ok(Err(error)) => {
                let lock = site.left(&format!("the lock {}", run.path));
                tell(&format!("{lock}: it could not be given back: {}", Chain(&error)));
            }
            Err(_too_long) => {
                let lock = site.left(&format!("the lock {}", run.path));
                tell(&format!("{lock}: the servers did not answer when it was given back"));
            }
        }
        // A command that has ended its work is not stopped.
        Ok(if ended.revoked && !ended.status.success() { REVOKED } else { child::code(ended.status) })
    }
}

/// Acquires the lock within the time that the options allow, from `begin` on. Returns the guard, and the grace for the command.
pub(crate) async fn acquire(
    site: &Site,
    lock: &Lock,
    kind: ParticipantKind,
    leases: Option<usize>,
    run: &Run,
    begin: Instant,
) -> Result<Option<Held>, Failure> {
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
    LockOptions::new().data(run.data.clone().unwrap_or_else(|| label(&run.work.command)))
}
