//! `barrier`: a barrier that holds processes back, and a double barrier that its members enter and leave together.

use std::time::{Duration, Instant, SystemTime};

use clap::builder::BoolishValueParser;
use clap::{Args, Subcommand};
use curator_cli::text::{rfc3339, shown, shown_session};
use curator_framework::recipe::owning_session;
use curator_framework::{CuratorFramework, Error, make_path};
use curator_recipes::{BarrierError, DistributedBarrier, DistributedDoubleBarrier};
use serde::Serialize;

use crate::enter;
use crate::enter::Enter;
use crate::failure::Failure;
use crate::hold::{self, Hold};
use crate::output::print;
use crate::show::line;
use crate::signals::Signals;
use crate::site::Site;
use crate::values::{Access, AccessList};
use crate::waiting::WaitOptions;

/// The commands of `curator barrier`.
#[derive(Debug, Subcommand)]
pub(crate) enum Barrier {
    /// Sets a barrier, which holds back all processes that wait for it; it stands until it is removed
    Set(Set),
    /// Sets a barrier while a command runs; it is removed with this process
    #[command(override_usage = "curator barrier hold [OPTIONS] <PATH> -- <COMMAND>...")]
    Hold(Hold),
    /// Removes a barrier: all processes that wait for it go on. Deletes the node, whatever its data
    Remove {
        /// The barrier's path
        path: String,
    },
    /// Waits until a barrier is removed; without one it ends at once
    #[command(after_help = WAIT_NOTES)]
    Wait {
        #[command(flatten)]
        wait: WaitOptions,
        /// The barrier's path
        path: String,
    },
    /// Enters a double barrier with all members, runs a command, and leaves with all members
    #[command(override_usage = "curator barrier enter [OPTIONS] --members <N> <PATH> -- <COMMAND>...")]
    Enter(Enter),
    /// Tells whether a barrier is set, and which members are at a double barrier
    Status(StatusOptions),
}

const SET_NOTES: &str = "\
Exit status:
    0  the barrier is set, until a client removes it
   75  the barrier of a process stands, which falls with it: `curator barrier hold`
    2, 69, 70, 77  an error, as in `curator --help`";

/// The exit status if a process holds the barrier.
const HELD: u8 = 75;

#[derive(Debug, Args)]
#[command(after_help = SET_NOTES)]
pub(crate) struct Set {
    #[command(flatten)]
    access: Access,
    /// The barrier's path
    path: String,
}

const WAIT_NOTES: &str = "\
Exit status:
    0  the barrier is removed, or was not set
   75  it is still set at the end of --timeout (see -E)
    2, 69, 70, 77, 128 + n  an error or a signal, as in `curator --help`

The wait goes on over lost connections and sessions. It ends with 69 when the session has ended, and no server
answers within --connect-timeout.
The barrier is that of Curator's DistributedBarrier, in Java too.";

#[derive(Debug, Args)]
#[command(after_help = STATUS_NOTES)]
pub(crate) struct StatusOptions {
    /// Print JSON, in one line
    #[arg(long, value_parser = BoolishValueParser::new(), env = "CURATOR_JSON")]
    json: bool,
    /// The barrier's path
    path: String,
}

const STATUS_NOTES: &str = "\
Exit status:
    0  open: the barrier is not set; the double barrier is open, or has no members
    3  closed: the barrier is set; the members at the double barrier wait for others
    2, 69, 70, 77  an error, as in `curator --help`";

/// The exit status of a barrier that holds processes back.
const CLOSED: u8 = 3;

impl Barrier {
    /// Returns the access control list of the nodes that the command creates.
    pub(crate) const fn acl(&self) -> Option<&AccessList> {
        match self {
            Self::Set(set) => Some(&set.access.acl),
            Self::Hold(hold) => Some(&hold.setting.access.acl),
            Self::Enter(enter) => Some(&enter.setting.access.acl),
            _ => None,
        }
    }

    const fn path(&self) -> &String {
        match self {
            Self::Set(Set { path, .. })
            | Self::Hold(Hold { path, .. })
            | Self::Remove { path }
            | Self::Wait { path, .. }
            | Self::Enter(Enter { path, .. })
            | Self::Status(StatusOptions { path, .. }) => path,
        }
    }

    /// Returns the time that the command has.
    const fn budget(&self) -> Option<Duration> {
        match self {
            Self::Wait { wait, .. } => wait.timeout,
            Self::Enter(enter) => enter.timeout,
            _ => None,
        }
    }
}

/// Runs a command of `curator barrier`, and returns the exit status.
pub(crate) async fn barrier(site: &Site, command: &Barrier, signals: &mut Signals) -> Result<u8, Failure> {
    let (begin, client, path) = (Instant::now(), &site.client, command.path());
    let prepared = async {
        site.first_session(command.budget()).await?;
        site.check(None, path).await
    };
    signals.unless_ended(prepared).await?;
    let left = command.budget().map(|budget| budget.saturating_sub(begin.elapsed()));
    let barrier = || DistributedBarrier::new(client.clone(), path);
    let work = async {
        match command {
            Barrier::Set(_) => match barrier()?.set_barrier().await {
                Err(BarrierError::AlreadySet { .. }) => {
                    return Err(Failure(HELD, format!("{path} is set by a process, and falls with it")));
                }
                set => set?,
            },
            Barrier::Remove { .. } => match barrier()?.remove_barrier().await {
                Err(BarrierError::Framework(Error::NotEmpty { .. })) => {
                    return Err(Failure(2, format!("{path} is not a barrier to remove, because it has children")));
                }
                removed => removed?,
            },
            Barrier::Wait { wait, .. } => {
                let barrier = barrier()?;
                let waited = barrier.wait_on_barrier_timeout(left.unwrap_or(Duration::MAX));
                let still = format!("{path} is still set: curator barrier status {path} shows it");
                return wait.end(waited, &format!("waits for the removal of {path}"), &still).await;
            }
            Barrier::Status(options) => return status(client, options).await,
            Barrier::Hold(_) | Barrier::Enter(_) => {}
        }
        Ok(0)
    };
    match command {
        Barrier::Hold(options) => hold::hold(site, options, signals).await,
        Barrier::Enter(options) => enter::enter(client, options, left, signals).await,
        _ => signals.unless_ended(work).await,
    }
}

/// The state of a barrier or a double barrier.
#[derive(Serialize)]
struct Shot<'a> {
    path: &'a str,
    state: &'static str,
    /// The number of members for which the others wait, if a member has written it.
    #[serde(skip_serializing_if = "Option::is_none")]
    wanted: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    members: Option<Vec<Row>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    session: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    since: Option<String>,
}

/// A member of a double barrier.
#[derive(Serialize)]
struct Row {
    id: String,
    session: String,
}

async fn status(client: &CuratorFramework, options: &StatusOptions) -> Result<u8, Failure> {
    let shot = look(client, &options.path).await?;
    print(if options.json { line(&shot)? } else { text(&shot) }).await?;
    Ok(if matches!(shot.state, "set" | "gathering") { CLOSED } else { 0 })
}

async fn look<'a>(client: &CuratorFramework, path: &'a str) -> Result<Shot<'a>, Failure> {
    let shot = Shot { path, state: "open", wanted: None, members: None, session: None, since: None };
    let (data, stat) = match client.get_data().for_path(path).await {
        Err(Error::NoNode { .. }) => return Ok(shot),
        found => found?,
    };
    let wanted = std::str::from_utf8(&data).ok().and_then(|text| text.parse().ok());
    let is_open = client.check_exists().for_path(&make_path(path, "ready")).await?.is_some();
    let members = DistributedDoubleBarrier::new(client.clone(), path, 1)?.members().await?;
    // Members write their number, also into an empty barrier, and their nodes are ephemeral. The data of a barrier that is
    // set are an address or an id. A node with other children holds waiters back too.
    if wanted.is_none() && !is_open && members.iter().all(|one| one.session.is_none()) {
        let since = u64::try_from(stat.ctime).ok().map(|ms| SystemTime::UNIX_EPOCH + Duration::from_millis(ms));
        let session = owning_session(stat.ephemeral_owner).map(|session| session.to_string());
        return Ok(Shot { state: "set", session, since: since.map(rfc3339), ..shot });
    }
    let members: Vec<Row> =
        members.into_iter().map(|one| Row { id: one.id, session: shown_session(one.session) }).collect();
    let state = match (members.is_empty(), is_open) {
        (true, _) => "empty",
        (false, true) => "entered",
        (false, false) => "gathering",
    };
    Ok(Shot { state, wanted, members: Some(members), ..shot })
}

fn text(shot: &Shot<'_>) -> String {
    let Shot { path, wanted, members, since, session, .. } = shot;
    let Some(members) = members else {
        let Some(since) = since else { return format!("{path} is not set\n") };
        let until = session.as_ref().map_or_else(String::new, |session| format!(", until session {session} ends"));
        return format!("{path} is set since {since}{until}\n");
    };
    let of = wanted.map_or_else(String::new, |wanted| format!(" of {wanted}"));
    let count = members.len();
    let mut text = match shot.state {
        "gathering" => format!("{path} waits: {count}{of} members\n"),
        "entered" => format!("{path} is open: {count}{of} members\n"),
        _ => return format!("{path} has no members\n"),
    };
    for Row { id, session } in members {
        text += &format!("{} (session {session})\n", shown(id.as_bytes()));
    }
    text
}
