//! `latch`: a count that processes count down, and that others wait for.

use std::time::{Duration, Instant};

use clap::builder::BoolishValueParser;
use clap::{Args, Subcommand};
use curator_recipes::{BarrierError, CountDownLatch};
use serde::Serialize;

use crate::failure::{Failure, UNKNOWN};
use crate::output::{print, print_change, tell};
use crate::show::line;
use crate::site::Site;
use crate::values::{Access, AccessList};
use crate::waiting::WaitOptions;

/// The commands of `curator latch`.
#[derive(Debug, Subcommand)]
pub(crate) enum Latch {
    /// Sets the count, unless an earlier one is not yet counted down
    Set(Set),
    /// Counts down by one, and prints the remaining count
    Down(Down),
    /// Waits until the count is zero
    #[command(after_help = WAIT_NOTES)]
    Wait {
        #[command(flatten)]
        wait: WaitOptions,
        /// The latch's path
        path: String,
    },
    /// Prints the remaining count
    Status(StatusOptions),
}

#[derive(Debug, Args)]
#[command(after_help = SET_NOTES)]
pub(crate) struct Set {
    /// The exit status if an earlier count remains
    #[arg(long, short = 'E', default_value_t = 75, value_name = "STATUS", env = "CURATOR_CONFLICT_EXIT_CODE")]
    conflict_exit_code: u8,
    #[command(flatten)]
    access: Access,
    /// The latch's path
    path: String,
    /// The count
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    count: u32,
}

const SET_NOTES: &str = "\
Exit status:
    0  the count is set, and a new round begins
   75  an earlier count remains (see -E)
   76  the connection was lost, and the count may be set: `curator latch status` shows it
    2, 69, 70, 77  an error, as in `curator --help`";

#[derive(Debug, Args)]
#[command(after_help = DOWN_NOTES)]
pub(crate) struct Down {
    /// The name of this count: the same name counts once in a round, however often the command is repeated
    #[arg(long, env = "CURATOR_OPERATION")]
    operation: Option<String>,
    #[command(flatten)]
    access: Access,
    /// The latch's path
    path: String,
}

const DOWN_NOTES: &str = "\
Exit status:
    0  it is counted; the remaining count is printed
    1  no count is set
   76  the connection was lost, and it may be counted: with --operation the command can be repeated
    2, 69, 70, 77  an error, as in `curator --help`

One call counts once, also if the reply is lost.";

const WAIT_NOTES: &str = "\
Exit status:
    0  the count is zero
    1  no count is set
   75  it is not zero at the end of --timeout (see -E)
    2, 69, 70, 77, 128 + n  an error or a signal, as in `curator --help`

The wait goes on over lost connections and sessions. It ends with 69 when the session has ended, and no server
answers within --connect-timeout.";

#[derive(Debug, Args)]
#[command(after_help = STATUS_NOTES)]
pub(crate) struct StatusOptions {
    /// Print JSON, in one line
    #[arg(long, value_parser = BoolishValueParser::new(), env = "CURATOR_JSON")]
    json: bool,
    /// The latch's path
    path: String,
}

const STATUS_NOTES: &str = "\
Exit status:
    0  the count is zero
    1  no count is set
    3  a count remains
    2, 69, 70, 77  an error, as in `curator --help`";

/// The exit statuses of `latch status`.
const NOT_SET: u8 = 1;
const REMAINS: u8 = 3;

impl Latch {
    /// Returns the access control list of the nodes that the command creates.
    pub(crate) const fn acl(&self) -> Option<&AccessList> {
        match self {
            Self::Set(set) => Some(&set.access.acl),
            Self::Down(down) => Some(&down.access.acl),
            _ => None,
        }
    }

    const fn path(&self) -> &String {
        match self {
            Self::Set(Set { path, .. })
            | Self::Down(Down { path, .. })
            | Self::Wait { path, .. }
            | Self::Status(StatusOptions { path, .. }) => path,
        }
    }
}

/// Runs a command of `curator latch`, and returns the exit status.
pub(crate) async fn latch(site: &Site, command: &Latch) -> Result<u8, Failure> {
    let (begin, path) = (Instant::now(), command.path());
    let budget = if let Latch::Wait { wait, .. } = command { wait.timeout } else { None };
    site.first_session(budget).await?;
    site.check(None, path).await?;
    let latch = CountDownLatch::new(site.client.clone(), path)?;
    match command {
        Latch::Set(set) => {
            let next = "curator latch status shows it";
            if latch.try_set_count(set.count).await.map_err(|error| unknown(error, "the count may be set", next))? {
                return Ok(0);
            }
            tell(&format!("{path} has a count already: curator latch status {path} shows it"));
            Ok(set.conflict_exit_code)
        }
        Latch::Down(down) => {
            let counted = match &down.operation {
                Some(id) => latch.count_down_as(id).await,
                None => latch.count_down().await,
            };
            let next = if down.operation.is_some() { "repeat the command" } else { "curator latch status shows it" };
            let remaining = counted.map_err(|error| unknown(error, "it may be counted", next))?;
            print_change(format!("{remaining}\n"), &remaining.to_string()).await?;
            Ok(0)
        }
        Latch::Wait { wait, .. } => {
            let left = budget.map_or(Duration::MAX, |budget| budget.saturating_sub(begin.elapsed()));
            let still = format!("{path} is not counted down: curator latch status {path} shows it");
            wait.end(latch.wait_timeout(left), &format!("waits for the count of {path}"), &still).await
        }
        Latch::Status(options) => status(&latch, options).await,
    }
}

/// Names the next step after a change that may have been applied.
fn unknown(error: BarrierError, change: &str, next: &str) -> Failure {
    if !error.outcome_unknown() {
        return error.into();
    }
    let Failure(_, text) = error.into();
    Failure(UNKNOWN, format!("{text}; {change}: {next}"))
}

/// The JSON of `latch status`.
#[derive(Serialize)]
struct Shot<'a> {
    path: &'a str,
    state: &'static str,
    remaining: Option<u32>,
    round: Option<u64>,
}

async fn status(latch: &CountDownLatch, options: &StatusOptions) -> Result<u8, Failure> {
    let path = &options.path;
    // The round is read first: if the next one starts between the two reads, it is not taken for the count of a round
    // that has ended.
    let (shot, text, code) = match latch.round().await {
        Err(BarrierError::NotSet { .. }) => {
            let shot = Shot { path, state: "missing", remaining: None, round: None };
            (shot, format!("{path} has no count"), NOT_SET)
        }
        round => {
            let (round, count) = (round?, latch.count().await?);
            let (state, code) = if count == 0 { ("open", 0) } else { ("closed", REMAINS) };
            let shot = Shot { path, state, remaining: Some(count), round: Some(round) };
            (shot, format!("{path} is {state}: {count} remain (round {round})"), code)
        }
    };
    print(if options.json { line(&shot)? } else { text + "\n" }).await?;
    Ok(code)
}
