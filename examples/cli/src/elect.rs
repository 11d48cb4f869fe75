//! `elect`: runs a command in each term in which this process leads an election.

use std::time::{Duration, Instant};

use clap::Args;
use clap::builder::BoolishValueParser;
use curator_cli::kinds::LockKind;
use curator_framework::{Chain, CuratorFramework};
use curator_recipes::{LeaderError, LeaderLatch, LeaderLatchOptions, Leadership, ParticipantKind};

use crate::child::{self, Order, Streams, Work, own_id};
use crate::failure::{Failure, LOST};
use crate::nested;
use crate::output::{tell, tell_conflict};
use crate::signals::Signals;
use crate::site::{RELEASE, Site};
use crate::values::duration;
use crate::waiting::Waiting;

#[derive(Debug, Args)]
#[command(after_help = NOTES)]
pub(crate) struct Elect {
    /// End when a term does not begin in this time, which includes connecting; after a loss it counts anew [default:
    /// never]
    #[arg(long, short = 'w', visible_alias = "wait", value_parser = duration, env = "CURATOR_TIMEOUT")]
    timeout: Option<Duration>,
    /// The exit status when no term began in the time of --timeout
    #[arg(long, short = 'E', default_value_t = 75, value_name = "STATUS", env = "CURATOR_CONFLICT_EXIT_CODE")]
    conflict_exit_code: u8,
    /// End after one term, with status 74 if leadership was lost
    #[arg(long, value_parser = BoolishValueParser::new(), env = "CURATOR_ONCE")]
    once: bool,
    /// Wait for this time before a term, unless the earlier leader has resigned: processes that a killed leader left
    /// running then have it to end; give it to all candidates
    #[arg(long, value_parser = duration, env = "CURATOR_DELAY")]
    delay: Option<Duration>,
    /// The id of this candidate, which `curator leader` shows [default: host and process id]
    #[arg(long, env = "CURATOR_ID")]
    id: Option<String>,
    /// Text that the leader proclaims before the command starts, such as its address; `curator leader` shows it
    #[arg(long, value_name = "TEXT", env = "CURATOR_PROCLAIM")]
    proclaim: Option<String>,
    /// The election's path
    path: String,
    #[command(flatten)]
    pub(crate) work: Work,
}

const NOTES: &str = "\
What happens:
  the command ends by itself     the process resigns, and ends with the command's status
  leadership is or may be lost   the command is stopped; the process joins again, and runs the command anew in its next
                                 term; with --once it ends with status 74
  a signal while waiting         the process leaves the election, and ends with 128 + n
  a signal while leading         the command gets it; the process resigns when the command has ended, with its status
  no connection while waiting    the process goes on waiting; with --timeout it ends with status 69 in the end

The command gets CURATOR_LOCK_PATH, CURATOR_NODE, CURATOR_HELD, CURATOR_TERM, CURATOR_FENCING_TOKEN (the term too) and
CURATOR_DEADLINE: the time (seconds since 1970) until which leadership was certain at the start. While this program runs,
the actual deadline moves on. A connection that is lost and comes back in time costs nothing.

When the servers are silent, times count from the newest evidence that the session lives. T is the session timeout that
the servers granted, G the grace:
  3/4 T - G   SIGTERM to the command and its process group
  3/4 T       leadership counts as lost: SIGKILL
  T           the earliest moment at which another candidate can lead
If the session is killed or the node is deleted, another candidate may lead at once. The command then gets SIGTERM, and
SIGKILL after G. Pass the term to the resource to be safe from that, and from a paused process.

Candidates are those of LeaderLatch, in Java too. If this program is killed with SIGKILL, Linux kills the command too, but
not the processes that it started, nor a setuid program. Another candidate leads when the session ends, at most T later.";

/// Runs the command in each term, and returns the exit status.
pub(crate) async fn elect(site: &Site, elect: &Elect, signals: &mut Signals) -> Result<u8, Failure> {
    let mut options = LeaderLatchOptions::new().id(own_id(elect.id.as_deref()));
    if let Some(delay) = elect.delay {
        options = options.delay_after_unclean_loss(delay);
    }
    let latch = LeaderLatch::with_options(site.client.clone(), &elect.path, options)?;
    let begin = Instant::now();
    signals.unless_ended(prepare(site, elect)).await?;
    latch.start()?;
    let outcome = terms(site, &latch, elect, begin, signals).await;
    let what = if latch.has_leadership() { "leadership of" } else { "the candidate's node of" };
    match &outcome {
        // The outage, or the loss, is the reason for the end.
        Err(Failure(69, _)) | Ok(LOST) => _ = tokio::time::timeout(RELEASE, latch.close()).await,
        _ => site.give_back(&format!("{what} {}", elect.path), latch.close()).await,
    }
    outcome
}

/// Waits for the connection, and refuses options and a path that cannot work.
async fn prepare(site: &Site, elect: &Elect) -> Result<(), Failure> {
    let session = site.first_session(elect.timeout).await?;
    elect.work.grace.in_session(session.timeout())?;
    site.check(Some(LockKind::LeaderLatch), &elect.path).await?;
    nested::refuse_itself(site, ParticipantKind::Candidate, &elect.path, elect.timeout).await
}

/// Runs the command in one term after the other, until it ends by itself or a signal ends it.
async fn terms(
    site: &Site,
    latch: &LeaderLatch,
    elect: &Elect,
    mut begin: Instant,
    signals: &mut Signals,
) -> Result<u8, Failure> {
    loop {
        let left = elect.timeout.map(|budget| budget.saturating_sub(begin.elapsed()));
        let Some((term, grace)) = signals.unless_ended(lead(&site.client, latch, elect, left)).await? else {
            let other = format!("another candidate leads {0}: curator leader {0} shows it", elect.path);
            let refused = site.refused_by(&elect.path, ParticipantKind::Candidate, other);
            let text = signals.unless_ended(refused).await?;
            tell_conflict(if elect.work.verbose { 1 } else { elect.conflict_exit_code }, &text);
            return Ok(elect.conflict_exit_code);
        };
        let (command, foreground) = (&elect.work.command, elect.work.setting.foreground);
        let order =
            Order { command, foreground, path: &elect.path, grace, revocable: false, streams: Streams::INHERITED };
        let ended = match child::run(&term, &order, signals).await {
            Ok(ended) => ended,
            Err(error) => return Ok(child::cannot_run(&elect.work.command[0], &error)),
        };
        if !ended.lost {
            if term.is_held() {
                return Ok(child::code(ended.status));
            }
            tell(&format!("the term of {} was over before the command ended", elect.path));
        }
        if elect.once || ended.asked_to_end {
            return Ok(LOST);
        }
        begin = Instant::now();
        // The silence that stopped the command may end before the session does. After a loss the latch may lead again.
        if term.is_held() {
            if let Err(error) = signals.unless_ended(async { Ok(latch.resign().await) }).await? {
                let node = site.left(&format!("the candidate's node of {}", elect.path));
                tell(&format!("{node}: it could not be given back: {}", Chain(&error)));
            }
        }
        tell(&format!("waits for the next term of {}", elect.path));
    }
}

/// Waits until this process leads. Returns the term, and the grace for the command.
async fn lead(
    client: &CuratorFramework,
    latch: &LeaderLatch,
    elect: &Elect,
    left: Option<Duration>,
) -> Result<Option<(Leadership, Duration)>, Failure> {
    let waiting = Waiting::new(client, &elect.path, None, elect.work.verbose);
    loop {
        let leading = latch.leading_timeout(left.unwrap_or(Duration::MAX));
        let term = tokio::select! {
            biased;
            term = leading => term?,
            never = waiting.report() => match never {},
        };
        let Some(term) = term else { return Ok(None) };
        match begin(client, elect, &term).await {
            Ok(session_timeout) => {
                waiting.granted("leads", &format!("term {}", term.token().czxid().get()));
                return Ok(Some((term, elect.work.grace.in_session(session_timeout)?)));
            }
            // The term is lost too, or the next attempt reaches the servers.
            Err(error) if error.is_retryable() || matches!(error, LeaderError::LeadershipLost { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Proclaims the text of the options, and returns the session timeout.
async fn begin(client: &CuratorFramework, elect: &Elect, term: &Leadership) -> Result<Duration, LeaderError> {
    if let Some(text) = &elect.proclaim {
        term.proclaim(text.as_str()).await?;
    }
    Ok(client.session().await?.timeout())
}
