//! The lines about the queue, for the person at the terminal of a waiter.

use std::cell::Cell;
use std::convert::Infallible;
use std::future::{Future, pending};
use std::io::IsTerminal as _;
use std::time::{Duration, Instant};

use clap::Args;
use clap::builder::BoolishValueParser;
use curator_cli::contenders::{Contender, contenders};
use curator_cli::kinds::not_a_contender;
use curator_cli::text::{age, shown_session};
use curator_framework::{Chain, CuratorFramework};
use curator_recipes::{BarrierError, LockError, ParticipantKind};

use crate::failure::Failure;
use crate::output::{tell, tell_conflict};
use crate::values::duration;

/// The options of a command that waits for a node.
#[derive(Debug, Args)]
pub(crate) struct WaitOptions {
    /// Give up when the wait is not over in this time, which includes connecting; 0 looks once [default: never]
    #[arg(long, short = 'w', visible_alias = "wait", value_parser = duration, env = "CURATOR_TIMEOUT")]
    pub(crate) timeout: Option<Duration>,
    /// The exit status when the wait is not over at the end of --timeout
    #[arg(long, short = 'E', default_value_t = 75, value_name = "STATUS", env = "CURATOR_CONFLICT_EXIT_CODE")]
    conflict_exit_code: u8,
    /// Print that it waits. On a terminal a line follows after 2 s without it too
    #[arg(long, short, value_parser = BoolishValueParser::new(), env = "CURATOR_VERBOSE")]
    verbose: bool,
}

impl WaitOptions {
    /// Awaits `waited`, and returns the exit status. Prints `waits` if that takes a while, and `still` if the wait is not
    /// over at the end of its budget.
    pub(crate) async fn end(
        &self,
        waited: impl Future<Output = Result<Option<()>, BarrierError>>,
        waits: &str,
        still: &str,
    ) -> Result<u8, Failure> {
        if told(waited, self.verbose, waits).await?.is_some() {
            return Ok(0);
        }
        tell_conflict(if self.verbose { 1 } else { self.conflict_exit_code }, still);
        Ok(self.conflict_exit_code)
    }
}

/// The wait after which a line is printed on a terminal.
const PATIENCE: Duration = Duration::from_secs(2);
/// The time in which this contender's node usually joins the queue.
const JOINS: Duration = Duration::from_millis(100);
pub(crate) const PACE: Duration = Duration::from_secs(1);

/// Resolves when a waiter may print lines: soon if they are asked for, after some time on a terminal, otherwise never.
pub(crate) async fn may_tell(verbose: bool) {
    match (verbose, std::io::stderr().is_terminal()) {
        (true, _) => tokio::time::sleep(JOINS).await,
        (false, true) => tokio::time::sleep(PATIENCE).await,
        (false, false) => pending().await,
    }
}

/// Awaits `work`, and prints a line if that takes a while and lines may be printed.
pub(crate) async fn told<T>(work: impl Future<Output = T>, verbose: bool, line: &str) -> T {
    let telling = async {
        may_tell(verbose).await;
        tell(line);
        pending().await
    };
    tokio::select! {
        biased;
        done = work => done,
        done = telling => done,
    }
}

/// Tells what a waiter waits for.
pub(crate) struct Waiting<'a> {
    client: &'a CuratorFramework,
    path: &'a str,
    leases: Option<usize>,
    verbose: bool,
    begin: Instant,
    has_printed: Cell<bool>,
}

impl<'a> Waiting<'a> {
    pub(crate) fn new(client: &'a CuratorFramework, path: &'a str, leases: Option<usize>, verbose: bool) -> Self {
        Self { client, path, leases, verbose, begin: Instant::now(), has_printed: Cell::new(false) }
    }

    /// Prints a line when the place in the queue or the holder has changed. Never ends: the caller drops it.
    pub(crate) async fn report(&self) -> Infallible {
        may_tell(self.verbose).await;
        let mut before = None;
        loop {
            let (place, pause) = match self.look().await {
                // Each look reads all nodes, so it is rarer in a long queue.
                Ok((Some(place), contenders)) => (Some(place), PACE.max(JOINS * contenders)),
                Ok((None, _)) => (None, JOINS),
                Err(error) => {
                    let text = format!("waits for {}: the queue cannot be read: {}", self.path, Chain(&error));
                    (Some(Place { key: text.clone(), text }), PACE)
                }
            };
            if let Some(Place { key, text }) = place {
                if before.as_ref() != Some(&key) {
                    tell(&text);
                    self.has_printed.set(true);
                    before = Some(key);
                }
            }
            tokio::time::sleep(pause).await;
        }
    }

    /// Prints the grant, if a line about the wait was printed or lines are asked for.
    pub(crate) fn granted(&self, verb: &str, number: &str) {
        if self.verbose || self.has_printed.get() {
            tell(&format!("{verb} {} after {}, {number}", self.path, age(self.begin.elapsed())));
        }
    }

    /// Reads the queue. Returns the place, if this process waits in it, and the number of contenders.
    async fn look(&self) -> Result<(Option<Place>, u32), LockError> {
        let own = self.client.session().await?.id();
        let queue = contenders(self.client, self.path, self.leases).await?;
        let place = Place::of(self.path, &queue, |one| one.participant.session == own);
        Ok((place, u32::try_from(queue.len()).unwrap_or(u32::MAX)))
    }
}

/// A place in the queue.
#[derive(Debug, PartialEq, Eq)]
struct Place {
    /// The facts that a new line must differ in.
    key: String,
    text: String,
}

impl Place {
    fn of(path: &str, queue: &[Contender], is_own: impl Fn(&Contender) -> bool) -> Option<Self> {
        // A semaphore's waiters follow its leases. The contender with the turn may have a row in both.
        let at = queue.iter().rposition(&is_own)?;
        if queue.iter().any(|one| is_own(one) && matches!(one.state, "holds" | "leads")) {
            return None;
        }
        let holders: Vec<&Contender> = queue.iter().filter(|one| one.holds()).collect();
        let behind_leases = queue[at].participant.kind == ParticipantKind::Lock
            && queue.iter().any(|one| one.participant.kind == ParticipantKind::Lease);
        let ahead = if behind_leases {
            holders.len() + queue[..at].iter().filter(|one| one.participant.kind == ParticipantKind::Lock).count()
        } else {
            at
        };
        let mut text = format!("waits for {path}: {ahead} ahead");
        let mut key = text.clone();
        if let Some(first) = holders.first() {
            let one = &first.participant;
            let more = if holders.len() > 1 { format!(" and {} more", holders.len() - 1) } else { String::new() };
            let held = if first.state == "leads" { "led" } else { "held" };
            text += &format!(
                "; {held} by {}{more} (asked {} ago, session {}, node {})",
                first.words(),
                age(one.age()),
                shown_session(one.session),
                one.path
            );
            key += &format!("{more} {}", one.path);
        }
        if let Some(node) = queue.iter().filter(|one| is_own(one)).find_map(|one| one.participant.blocked_by.as_deref())
        {
            let blocked = format!("; {}", not_a_contender(node));
            text += &blocked;
            key += &blocked;
        }
        Some(Self { key, text })
    }
}
