//! `members`: the members of a group.

use std::time::{Duration, SystemTime};

use clap::Args;
use clap::builder::BoolishValueParser;
use curator_cli::fields::{DataFields, shown_data};
use curator_cli::kinds::kind_of;
use curator_cli::text::{rfc3339, shown, shown_session};
use curator_framework::recipe::owning_session;
use curator_framework::{Chain, CuratorFramework, Error, SessionId, make_path};
use curator_recipes::{Group, GroupState, InterProcessSemaphoreV2, MemberChange, Members};
use futures_util::stream::{self, StreamExt as _};
use serde::{Serialize, Serializer};

use crate::failure::Failure;
use crate::outages::Outages;
use crate::output::{print, tell};
use crate::show::{Noun, StreamState, change, line, tell_anew};
use crate::site::Site;

#[derive(Debug, Args)]
#[command(after_help = NOTES)]
pub(crate) struct MembersOptions {
    /// Print JSON, in one line; with --watch a line for each change
    #[arg(long, value_parser = BoolishValueParser::new(), env = "CURATOR_JSON")]
    json: bool,
    /// Print a line when a member joins, changes its data or leaves, until interrupted; first one for each member
    #[arg(long, value_parser = BoolishValueParser::new(), env = "CURATOR_WATCH")]
    watch: bool,
    /// The group's path
    path: String,
}

const NOTES: &str = "\
Exit status:
    0  the group has members
    1  no members: the group does not exist, or is empty, or the path is not a group
    2, 69, 70, 77  an error, as in `curator --help`

With --watch it goes on without members. After the first look it also goes on while the group cannot be read.

The path is that of a GroupMember, in Java too; for a Partition it is <path>/members. SINCE is the creation of the
member's node, on ZooKeeper's clock.";

/// The exit status without members.
const NO_MEMBERS: u8 = 1;
/// The number of members that are read at the same time.
const AT_ONCE: usize = 64;

/// Prints the members, and returns the exit status.
pub(crate) async fn members(site: &Site, options: &MembersOptions) -> Result<u8, Failure> {
    site.first_session(None).await?;
    if options.watch {
        return watch(site, options).await;
    }
    let path = &options.path;
    let rows = match found(site, path).await {
        Err(Failure(NO_MEMBERS, reason)) if options.json => {
            print(line(&Shot { path, state: "missing", members: &[], reason: Some(&reason) })?).await?;
            return Ok(NO_MEMBERS);
        }
        found => found?,
    };
    let state = if rows.is_empty() { "empty" } else { "populated" };
    print(match (options.json, rows.is_empty()) {
        (true, _) => line(&Shot { path, state, members: &rows, reason: None })?,
        (false, true) => format!("{path} has no members\n"),
        (false, false) => table(&rows),
    })
    .await?;
    Ok(if rows.is_empty() { NO_MEMBERS } else { 0 })
}

/// Prints each change of the group, until the reader of the pipe closes it.
async fn watch(site: &Site, options: &MembersOptions) -> Result<u8, Failure> {
    site.check_chroot().await?;
    let client = &site.client;
    let group = Group::new(client.clone(), &options.path)?;
    group.start()?;
    let (mut states, mut outages) = (group.watch(), Outages::of(client));
    states.mark_changed();
    let (mut printed, mut was_known, mut is_stale, mut problem) = (Members::default(), false, false, None);
    loop {
        tokio::select! {
            biased;
            Ok(()) = states.changed() => {
                let state = states.borrow_and_update().clone();
                match state {
                    // The first look has the exit status of the other commands.
                    GroupState::Failed(error) if !was_known => return Err(error.into()),
                    GroupState::Failed(error) => {
                        tell_anew(&mut problem, format!("the group cannot be read: {}", Chain(&error)));
                    }
                    GroupState::Refused { cause, .. } => {
                        let reason = cause.to_string();
                        let text = format!("the members may have changed, the group cannot be read: {reason}");
                        let is_new = tell_anew(&mut problem, text);
                        is_stale = true;
                        if is_new && options.json && !print(line(&StreamState { reason: Some(&reason), ..StreamState::new("stale") })?).await? {
                            return Ok(0);
                        }
                    }
                    GroupState::Known(members) => {
                        // The changes precede the line that says that they are printed.
                        for change in members.changes_since(&printed) {
                            if !print(event(change, options.json)?).await? {
                                return Ok(0);
                            }
                        }
                        if std::mem::take(&mut is_stale) && options.json && !print(line(&StreamState::new("fresh"))?).await? {
                            return Ok(0);
                        }
                        if !was_known && members.is_empty() {
                            tell(&format!("{} has no members", options.path));
                        }
                        (printed, was_known, problem) = (members, true, None);
                    }
                    GroupState::Closed => return Err(Error::Closed.into()),
                    _ => {}
                }
            }
            is_connected = outages.change() => tell(if is_connected {
                "the connection is back"
            } else {
                "no connection: changes of the group are printed when it is back"
            }),
        }
    }
}

/// Formats a change as a line.
fn event(event: MemberChange, json: bool) -> Result<String, Failure> {
    let (word, member) = match event {
        MemberChange::Joined(member) => ("joined", member),
        MemberChange::DataChanged(member) => ("changed", member),
        MemberChange::Left(member) => ("left", member),
    };
    let (data, session) = (shown_data(&member.data), shown_session(member.session));
    let facts = format!("data {data}, session {session}, czxid {}", member.czxid.get());
    let (id, czxid) = (member.id.clone(), member.czxid.get());
    let member = Row { id: member.id, data: member.data, session: member.session, czxid, since: None };
    change(json, word, &Event { member }, &id, &facts)
}

/// The JSON of a change.
#[derive(Serialize)]
struct Event {
    member: Row,
}

/// Returns the members in the order of their ids.
async fn found(site: &Site, path: &str) -> Result<Vec<Row>, Failure> {
    let client = &site.client;
    let mut ids = match client.get_children().for_path(path).await {
        Err(Error::NoNode { .. }) => return Err(site.missing(path, Noun::Group).await?),
        ids => ids?,
    };
    ids.sort();
    let read: Vec<_> = stream::iter(ids).map(|id| read(client, path, id)).buffered(AT_ONCE).collect().await;
    let rows = read.into_iter().filter_map(Result::transpose).collect::<Result<Vec<_>, _>>()?;
    let children: Vec<_> = rows.iter().map(|row| (row.id.as_str(), row.session.is_some())).collect();
    match not_a_group(path, &children) {
        Some(reason) => Err(Failure(NO_MEMBERS, reason)),
        None => Ok(rows),
    }
}

/// Returns the reason for which a path with these children is not a group. Each child has its name, and `true` if a
/// session owns it.
pub(crate) fn not_a_group(path: &str, children: &[(&str, bool)]) -> Option<String> {
    // A persistent node may have the name of a contender's. The node above the leases of a semaphore is persistent.
    let shows_a_lock = |(name, is_owned): &&(&str, bool)| *is_owned || *name == InterProcessSemaphoreV2::LEASES;
    let names: Vec<String> = children.iter().filter(shows_a_lock).map(|(name, _)| (*name).to_owned()).collect();
    if kind_of(&names).is_some() {
        return Some(format!("{path} is not a group, but a lock or an election: curator status {path} shows it"));
    }
    if children.is_empty() || children.iter().any(|(_, is_owned)| *is_owned) {
        return None;
    }
    let text = format!("{path} is not a group, because its children are not members: no session owns them");
    let is_partition = ["items", "members"].iter().all(|part| children.iter().any(|(name, _)| name == part));
    let inner = if is_partition { format!("; try: curator members {path}/members") } else { String::new() };
    Some(text + &inner)
}

/// Reads a member's node; `None` if the member has left.
async fn read(client: &CuratorFramework, path: &str, id: String) -> Result<Option<Row>, Error> {
    match client.get_data().for_path(&make_path(path, &id)).await {
        Err(Error::NoNode { .. }) => Ok(None),
        Err(error) => Err(error),
        Ok((data, stat)) => {
            let since = u64::try_from(stat.ctime).ok().map(|ms| SystemTime::UNIX_EPOCH + Duration::from_millis(ms));
            Ok(Some(Row { id, data, session: owning_session(stat.ephemeral_owner), czxid: stat.czxid, since }))
        }
    }
}

/// A member, as one row of the table.
struct Row {
    id: String,
    data: Vec<u8>,
    /// The session that owns the node; `None` if the node is not ephemeral.
    session: Option<SessionId>,
    czxid: i64,
    /// The creation of the node, if it is known.
    since: Option<SystemTime>,
}

#[derive(Serialize)]
struct RowFields<'a> {
    id: &'a str,
    #[serde(flatten)]
    data: DataFields<'a>,
    session: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    since: Option<String>,
    czxid: i64,
}

impl Serialize for Row {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        RowFields {
            id: &self.id,
            data: DataFields::new(&self.data),
            session: self.session.map(|session| session.to_string()),
            since: self.since.map(rfc3339),
            czxid: self.czxid,
        }
        .serialize(serializer)
    }
}

/// Formats the members as a table.
fn table(rows: &[Row]) -> String {
    let ids: Vec<String> = rows.iter().map(|row| shown(row.id.as_bytes())).collect();
    let width = ids.iter().map(|id| id.chars().count()).max().unwrap_or_default();
    let format = |id: &str, since: &str, session: &str, czxid: &str, data: &str| {
        format!("{id:<width$}  {since:<20}  {session:<18}  {czxid:>8}  {data}\n")
    };
    let mut text = format("ID", "SINCE", "SESSION", "CZXID", "DATA");
    for (id, row) in ids.iter().zip(rows) {
        let since = row.since.map_or_else(|| "-".to_owned(), rfc3339);
        let session = shown_session(row.session);
        text += &format(id, &since, &session, &row.czxid.to_string(), &shown_data(&row.data));
    }
    text
}

/// The JSON of `members`.
#[derive(Serialize)]
struct Shot<'a> {
    path: &'a str,
    state: &'static str,
    members: &'a [Row],
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
}
