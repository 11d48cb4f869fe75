//! `barrier`: a barrier that holds processes back, and a double barrier that its members enter and leave together.

use std::time::{Duration, Instant, SystemTime};

use clap::builder::BoolishValueParser;
use clap::{Args, Subcommand};
use curator_cli::text::{rfc3339, shown, shown_session};
use curator_framework::recipe::owning_session;
use curator_framework::{CuratorFramework, Error, Stat, make_path};
use curator_recipes::{BarrierError, DistributedBarrier, DistributedDoubleBarrier};
use serde::{Serialize, Serializer};

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
                    return Err(Failure(HELD, format!("{path} is set by a process, and is removed when that ends")));
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

/// The JSON of `barrier status`.
#[derive(Serialize)]
struct Shot<'a> {
    path: &'a str,
    #[serde(flatten)]
    look: &'a Look,
}

/// The state of a barrier or a double barrier.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Look {
    /// `open`, `set`, `gathering`, `entered` or `empty`.
    pub(crate) state: &'static str,
    /// The number of members for which the others wait, if a member has written it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) wanted: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) members: Option<Vec<Row>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) session: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "rfc3339_of")]
    pub(crate) since: Option<SystemTime>,
}

/// A member of a double barrier.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Row {
    pub(crate) id: String,
    session: String,
}

fn rfc3339_of<S: Serializer>(time: &Option<SystemTime>, serializer: S) -> Result<S::Ok, S::Error> {
    time.map(rfc3339).serialize(serializer)
}

impl Look {
    /// The state without a node.
    pub(crate) const OPEN: Self = Self { state: "open", wanted: None, members: None, session: None, since: None };

    pub(crate) fn exists(&self) -> bool {
        self.state != Self::OPEN.state
    }

    /// Returns `true` if the barrier holds processes back.
    pub(crate) fn is_closed(&self) -> bool {
        matches!(self.state, "set" | "gathering")
    }
}

async fn status(client: &CuratorFramework, options: &StatusOptions) -> Result<u8, Failure> {
    let path = &options.path;
    let look = match client.get_data().for_path(path).await {
        Err(Error::NoNode { .. }) => Look::OPEN,
        found => {
            let (data, stat) = found?;
            look_at(client, path, &data, &stat).await?
        }
    };
    print(if options.json { line(&Shot { path, look: &look })? } else { text(path, &look) }).await?;
    Ok(if look.is_closed() { CLOSED } else { 0 })
}

/// Returns the state of a barrier that has a node with this data.
pub(crate) async fn look_at(client: &CuratorFramework, path: &str, data: &[u8], stat: &Stat) -> Result<Look, Failure> {
    let wanted = std::str::from_utf8(data).ok().and_then(|text| text.parse().ok());
    let is_open = client.check_exists().for_path(&make_path(path, "ready")).await?.is_some();
    let members = DistributedDoubleBarrier::new(client.clone(), path, 1)?.members().await?;
    // Members write their number, also into an empty barrier, and their nodes are ephemeral. The data of a barrier that is
    // set are an address or an id. A node with other children holds waiters back too.
    if wanted.is_none() && !is_open && members.iter().all(|one| one.session.is_none()) {
        let since = u64::try_from(stat.ctime).ok().map(|ms| SystemTime::UNIX_EPOCH + Duration::from_millis(ms));
        let session = owning_session(stat.ephemeral_owner).map(|session| session.to_string());
        return Ok(Look { state: "set", session, since, ..Look::OPEN });
    }
    let members: Vec<Row> =
        members.into_iter().map(|one| Row { id: one.id, session: shown_session(one.session) }).collect();
    let state = match (members.is_empty(), is_open) {
        (true, _) => "empty",
        (false, true) => "entered",
        (false, false) => "gathering",
    };
    Ok(Look { state, wanted, members: Some(members), ..Look::OPEN })
}

fn text(path: &str, look: &Look) -> String {
    let Look { state, wanted, members, since, session } = look;
    let Some(members) = members else {
        let Some(since) = since.map(rfc3339) else { return format!("{path} is not set\n") };
        let until = session.as_ref().map_or_else(String::new, |session| format!(", until session {session} ends"));
        return format!("{path} is set since {since}{until}\n");
    };
    let of = wanted.map_or_else(String::new, |wanted| format!(" of {wanted}"));
    let count = members.len();
    let mut text = match *state {
        "gathering" => format!("{path} waits: {count}{of} members\n"),
        "entered" => format!("{path} is open: {count}{of} members\n"),
        _ => return format!("{path} has no members\n"),
    };
    for Row { id, session } in members {
        text += &format!("{} (session {session})\n", shown(id.as_bytes()));
    }
    text
}
