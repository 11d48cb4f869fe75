//! `join`: a member of a group, while a command runs.

use std::ffi::OsString;
use std::time::{Duration, Instant};

use clap::Args;
use curator_cli::text::shown_session;
use curator_framework::recipe::RecipeClient as _;
use curator_framework::{Chain, CuratorFramework, SessionId, make_path, validate_path};
use curator_recipes::{NodeError, NodeState, PersistentNode};

use crate::child::{Setting, own_id};
use crate::failure::Failure;
use crate::grant::Grant;
use crate::outages::Outages;
use crate::output::tell_conflict;
use crate::presence::{Presence, Report, run};
use crate::signals::Signals;
use crate::site::Site;
use crate::values::duration;

#[derive(Debug, Args)]
#[command(after_help = NOTES)]
pub(crate) struct Join {
    /// End if the member is not registered within this time, which includes connecting [default: never]
    #[arg(long, short = 'w', visible_alias = "wait", value_parser = duration, env = "CURATOR_TIMEOUT")]
    timeout: Option<Duration>,
    /// The exit status if another session has a member with this id at the end of --timeout
    #[arg(long, short = 'E', default_value_t = 75, value_name = "STATUS", env = "CURATOR_CONFLICT_EXIT_CODE")]
    conflict_exit_code: u8,
    /// The id of the member, distinct from those of all others [default: host and process id]
    #[arg(long, env = "CURATOR_ID")]
    id: Option<String>,
    /// Data of the member's node, which `curator members` shows [default: the address of this host]
    #[arg(long, env = "CURATOR_DATA")]
    data: Option<String>,
    #[command(flatten)]
    pub(crate) setting: Setting,
    /// The group's path
    path: String,
    /// The command and its arguments [default: registered until interrupted]
    #[arg(last = true)]
    command: Vec<OsString>,
}

const NOTES: &str = "\
What happens:
  the command ends by itself      the member leaves, and the process ends with the command's status
  a signal without a command      the member leaves, and the process ends with 128 + n
  a signal with a command         the command gets it; the member leaves when the command has ended, with its status
  the id is taken by a session    the process waits until that member has left; with --timeout it ends with status 75
  the registration ends           the process registers the member again; the command runs on
  no connection                   the process goes on; with --timeout it ends with status 69 if it has not yet joined

The process reports joins, waits and outages on standard error. A registration excludes nothing: for work that only one
process may do, use `curator lock` or `curator elect`. The command gets CURATOR_GROUP_PATH, CURATOR_MEMBER_ID and
CURATOR_NODE.

Members are those of GroupMember, in Java too. If this program is killed with SIGKILL, Linux kills the command too, but
not the processes that it started, nor a setuid program. The member leaves when the session ends, at most T later; T is
the session timeout. So a restart with the same --id needs a --timeout above T.";

/// Runs the command as a member of the group, and returns the exit status.
pub(crate) async fn join(site: &Site, join: &Join, signals: &mut Signals) -> Result<u8, Failure> {
    let client = &site.client;
    let id = own_id(join.id.as_deref());
    if id.is_empty() || id.contains('/') {
        return Err(Failure(2, format!("the id {id:?} is empty or has a slash, so it is not the name of one node")));
    }
    let path = make_path(&join.path, &id);
    validate_path(&join.path)?;
    validate_path(&path)?;
    let begin = Instant::now();
    let prepared = async {
        site.first_session(join.timeout).await?;
        site.check(None, &join.path).await
    };
    signals.unless_ended(prepared).await?;
    let data = join.data.as_ref().map_or_else(|| client.default_data().to_vec(), |data| data.clone().into_bytes());
    // Not a `GroupMember`: nothing here asks for the other members.
    let member = Member { group: &join.path, id, node: PersistentNode::new(client.clone(), path, data)? };
    member.node.start()?;
    let left = join.timeout.map(|budget| budget.saturating_sub(begin.elapsed()));
    let report = Report::new(&member);
    let mut outages = Outages::of(client);
    let outcome = tokio::select! {
        biased;
        outcome = registered(client, &report, join, left, signals) => outcome,
        never = report.follow(Some(member.node.watch()), &mut outages) => match never {},
    };
    let node = format!("the member's node of {}", join.path);
    site.give_back(&node, member.node.close()).await;
    outcome
}

/// Waits until the member is registered. Then runs the command, or waits for a signal.
async fn registered(
    client: &CuratorFramework,
    report: &Report<'_, Member<'_>>,
    join: &Join,
    left: Option<Duration>,
    signals: &mut Signals,
) -> Result<u8, Failure> {
    let member = report.presence;
    let created = async {
        Ok(match left {
            Some(left) => member.node.created_timeout(left).await.map(|node| node.is_some()),
            None => member.node.created().await.map(|_| true),
        })
    };
    match signals.unless_ended(created).await? {
        Err(NodeError::TakenBy { session, .. }) => {
            let (taken, group) = (member.taken_by(session), member.group);
            tell_conflict(join.conflict_exit_code, &format!("{taken}: curator members {group} shows it"));
            return Ok(join.conflict_exit_code);
        }
        Ok(true) => {}
        Ok(false) => return Err(client.no_answer(&format!("create {}", join.path)).into()),
        Err(error) => return Err(error.into()),
    }
    report.tell_state();
    run(member, &join.command, &join.setting, &join.path, signals).await
}

/// A member, while a command runs.
struct Member<'a> {
    group: &'a str,
    id: String,
    node: PersistentNode,
}

impl Member<'_> {
    /// Formats the fact that another node has the id.
    fn taken_by(&self, session: Option<SessionId>) -> String {
        let (group, id) = (self.group, &self.id);
        match session {
            None => format!("{group} has a node {id} that no session owns"),
            Some(session) => format!("{group} has a member {id} of session {session}"),
        }
    }
}

impl Grant for Member<'_> {
    fn what(&self, _path: &str) -> String {
        "its registration".to_owned()
    }

    fn variables(&self, path: &str) -> Vec<(&'static str, String)> {
        vec![
            ("CURATOR_GROUP_PATH", path.to_owned()),
            ("CURATOR_MEMBER_ID", self.id.clone()),
            ("CURATOR_NODE", make_path(path, &self.id)),
        ]
    }
}

impl Presence for Member<'_> {
    fn state(&self) -> Option<NodeState> {
        Some(self.node.state())
    }

    fn line(&self, state: &NodeState, is_first: bool) -> Option<String> {
        let Member { group, id, .. } = self;
        Some(match state {
            NodeState::Standing(node) => {
                format!("joined {group} as {id} (session {}, czxid {})", shown_session(node.session), node.czxid.get())
            }
            NodeState::TakenBy { session, .. } => format!("{}: waits until it leaves", self.taken_by(*session)),
            NodeState::Refused { cause, .. } => {
                format!("joined {group} as {id}, as far as is known: {cause}; tries again")
            }
            NodeState::Failed(error) => format!("not a member of {group}: {}; tries again", Chain(error)),
            NodeState::Creating if !is_first => format!("not a member of {group} at present: joins again"),
            _ => return None,
        })
    }

    fn stays(&self) -> String {
        format!("{} has the member", self.group)
    }
}
