//! `barrier enter`: runs a command that starts and ends together with the commands of other members.

use std::convert::Infallible;
use std::ffi::OsString;
use std::future::pending;
use std::time::Duration;

use clap::Args;
use clap::builder::BoolishValueParser;
use curator_cli::text::shown;
use curator_framework::{CuratorFramework, Zxid};
use curator_recipes::{BarrierMember, Departure, DistributedDoubleBarrier, DoubleBarrierOptions};

use crate::child::{self, Order, Setting, Streams, own_id};
use crate::failure::Failure;
use crate::grant::Grant;
use crate::output::tell;
use crate::signals::Signals;
use crate::values::{at_least_one, duration};
use crate::waiting::{PACE, may_tell, told};

/// The options of `curator barrier enter`.
#[derive(Debug, Args)]
#[command(after_help = NOTES)]
pub(crate) struct Enter {
    /// The number of members that enter together; all must give the same number
    #[arg(long, short = 'n', value_name = "N", value_parser = at_least_one, env = "CURATOR_MEMBERS")]
    members: usize,
    /// Enter also when so many members have come, --quorum-grace later; all must give the same number [default: all]
    #[arg(long, value_name = "N", value_parser = at_least_one, requires = "quorum_grace", env = "CURATOR_QUORUM")]
    quorum: Option<usize>,
    /// The time that the members of --quorum wait for the others
    #[arg(long, value_name = "TIME", value_parser = duration, requires = "quorum", env = "CURATOR_QUORUM_GRACE")]
    quorum_grace: Option<Duration>,
    /// Give up when the barrier does not open in this time, which includes connecting [default: never]
    #[arg(long, short = 'w', visible_alias = "wait", value_parser = duration, env = "CURATOR_TIMEOUT")]
    pub(crate) timeout: Option<Duration>,
    /// Wait at most this long for the other members after the command; 0 leaves at once [default: until all have left]
    #[arg(long, value_name = "TIME", value_parser = duration, env = "CURATOR_LEAVE_TIMEOUT")]
    leave_timeout: Option<Duration>,
    /// The exit status if the barrier did not open, or if members were still there at the end of --leave-timeout
    #[arg(long, short = 'E', default_value_t = 75, value_name = "STATUS", env = "CURATOR_CONFLICT_EXIT_CODE")]
    conflict_exit_code: u8,
    /// The id of the member, which `curator barrier status` shows [default: host and process id]
    #[arg(long, env = "CURATOR_ID")]
    id: Option<String>,
    /// Print how many members have come, and that others have not left. On a terminal lines follow after 2 s without it too
    #[arg(long, short, value_parser = BoolishValueParser::new(), env = "CURATOR_VERBOSE")]
    verbose: bool,
    #[command(flatten)]
    pub(crate) setting: Setting,
    /// The barrier's path
    pub(crate) path: String,
    /// The command and its arguments
    #[arg(last = true, required = true)]
    command: Vec<OsString>,
}

const NOTES: &str = "\
What happens:
  N members have come              all enter, and each runs its command; with --quorum also fewer, after a time
  too few come until --timeout     the process leaves, and ends with status 75 (see -E); it counts for no other member
  a signal while waiting           the process leaves, and ends with 128 + n
  the command ends                 the process waits until all members are through, and ends with the command's status
  a signal while the command runs  the command gets it
  a member dies                    standard error names it, or counts it at the end; the others go on without it
  the own session ends             the command runs on; the others count the member as died; the status is 74

The command gets CURATOR_BARRIER_PATH, CURATOR_MEMBER_ID and CURATOR_ROUND: a number that all members of the round share, and
that grows with each round. A status other than 0 of the command is not replaced by 75.

Give the barrier a path of its own: any other node below it counts as a member, and its data is overwritten.
The barrier is that of Curator's DistributedDoubleBarrier, in Java too. That no member is inside alone holds for members of
this program and of Rust.";

/// Enters, runs the command, leaves, and returns the exit status.
pub(crate) async fn enter(
    client: &CuratorFramework,
    options: &Enter,
    left: Option<Duration>,
    signals: &mut Signals,
) -> Result<u8, Failure> {
    let (path, id) = (&options.path, own_id(options.id.as_deref()));
    let mut settings = DoubleBarrierOptions::new().id(&id);
    if let (Some(least), Some(grace)) = (options.quorum, options.quorum_grace) {
        settings = settings.quorum(least, grace);
    }
    let barrier = DistributedDoubleBarrier::with_options(client.clone(), path, options.members, settings)?;
    let Some(member) = signals.unless_ended(come(&barrier, options, left)).await? else {
        let fewer = options.quorum.map(|least| format!(", and {least} were not there for --quorum-grace"));
        let (members, fewer) = (options.members, fewer.unwrap_or_default());
        tell(&format!("{path} did not open: fewer than {members} members came{fewer}"));
        return Ok(options.conflict_exit_code);
    };
    let round = signals.unless_ended(async { Ok(member.round().await?) }).await?;
    let membership = Membership { member: &member, id, round };
    let (command, foreground) = (&options.command, options.setting.foreground);
    let order =
        Order { command, foreground, path, grace: Duration::ZERO, revocable: false, streams: Streams::INHERITED };
    let ended = tokio::select! {
        biased;
        ended = child::run(&membership, &order, signals) => ended,
        never = membership.tell_losses() => match never {},
    };
    let (code, leave_timeout) = match ended {
        Ok(ended) => (child::code(ended.status), options.leave_timeout),
        Err(error) => (child::cannot_run(&command[0], &error), Some(Duration::ZERO)),
    };
    let waits = format!("waits for the other members to leave {path}");
    let leaving = told(leave(&member, leave_timeout), options.verbose, &waits);
    let Some(departure) = signals.unless_ended(leaving).await? else {
        let is_failed = code != 0 || leave_timeout == Some(Duration::ZERO);
        if !is_failed {
            tell(&format!("other members are still at {path}: curator barrier status {path} shows them"));
        }
        return Ok(if is_failed { code } else { options.conflict_exit_code });
    };
    match departure.died {
        0 => {}
        died => tell(&format!("members of this round that died: {died}")),
    }
    Ok(code)
}

/// Waits until the barrier opens.
async fn come(
    barrier: &DistributedDoubleBarrier,
    options: &Enter,
    left: Option<Duration>,
) -> Result<Option<BarrierMember>, Failure> {
    let entering = async {
        match left {
            Some(left) => barrier.enter_timeout(left).await,
            None => barrier.enter().await.map(Some),
        }
    };
    tokio::select! {
        biased;
        member = entering => Ok(member?),
        never = tell_arrivals(barrier, options) => match never {},
    }
}

/// Prints a line when the number of members has changed. Never ends: the caller drops it.
async fn tell_arrivals(barrier: &DistributedDoubleBarrier, options: &Enter) -> Infallible {
    may_tell(options.verbose).await;
    let mut before = None;
    loop {
        // After a failure the wait continues, so the next look may succeed.
        if let Ok(members) = barrier.members().await {
            if before != Some(members.len()) {
                tell(&format!("waits for {}: {} of {} members", options.path, members.len(), options.members));
                before = Some(members.len());
            }
        }
        tokio::time::sleep(PACE).await;
    }
}

/// Leaves, and waits for the other members.
async fn leave(member: &BarrierMember, budget: Option<Duration>) -> Result<Option<Departure>, Failure> {
    Ok(match budget {
        Some(budget) => member.leave_timeout(budget).await?,
        None => Some(member.leave().await?),
    })
}

/// A membership in a round, as the grant of a command. Its loss stops no command, because a barrier excludes nothing.
struct Membership<'a> {
    member: &'a BarrierMember,
    id: String,
    round: Zxid,
}

impl Membership<'_> {
    /// Prints the members that die, and the loss of this member's node. Never ends: the caller drops it.
    async fn tell_losses(&self) -> Infallible {
        let own = async {
            let reason = self.member.lost().await;
            tell(&format!("the member's node is lost: {reason}; the other members continue without it"));
            pending().await
        };
        let others = async {
            loop {
                match self.member.member_lost().await {
                    Ok(id) => tell(&format!("the member {} died", shown(id.as_bytes()))),
                    // The loss of this member, or an outage for longer than the retries.
                    Err(_) => pending().await,
                }
            }
        };
        tokio::select! {
            never = own => never,
            never = others => never,
        }
    }
}

impl Grant for Membership<'_> {
    fn what(&self, path: &str) -> String {
        format!("the member's node of {path}")
    }

    fn variables(&self, path: &str) -> Vec<(&'static str, String)> {
        vec![
            ("CURATOR_BARRIER_PATH", path.to_owned()),
            ("CURATOR_MEMBER_ID", self.id.clone()),
            ("CURATOR_ROUND", self.round.get().to_string()),
        ]
    }
}
