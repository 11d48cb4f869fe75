//! `join`: a member of a group, while a command runs.

use std::cell::RefCell;
use std::convert::Infallible;
use std::future::pending;
use std::time::{Duration, Instant};

use curator_cli::contenders::shown_session;
use curator_framework::recipe::RecipeClient as _;
use curator_framework::{Chain, CuratorFramework, SessionId, make_path, validate_path};
use curator_recipes::{NodeError, NodeState, PersistentNode};

use crate::child::{self, Order};
use crate::grant::Grant;
use crate::options::Join;
use crate::outages::Outages;
use crate::signals::Signals;
use crate::{Failure, check, first_session, give_back, own_id, tell, unless_ended};

/// Runs the command as a member of the group, and returns the exit status.
pub(crate) async fn join(
    client: &CuratorFramework,
    join: &Join,
    chroot: Option<&str>,
    signals: &mut Signals,
) -> Result<u8, Failure> {
    let id = own_id(join.id.as_deref());
    if id.is_empty() || id.contains('/') {
        return Err(Failure(2, format!("the id {id:?} is not the name of one node")));
    }
    let path = make_path(&join.path, &id);
    validate_path(&join.path)?;
    validate_path(&path)?;
    let begin = Instant::now();
    let prepared = async {
        first_session(client, join.timeout).await?;
        check(client, None, &join.path, chroot).await
    };
    unless_ended(signals, prepared).await?;
    let data = join.data.as_ref().map_or_else(|| client.default_data().to_vec(), |data| data.clone().into_bytes());
    // Not a `GroupMember`: nothing here asks for the other members.
    let member = Member { group: &join.path, id, node: PersistentNode::new(client.clone(), path, data)? };
    member.node.start()?;
    let left = join.timeout.map(|budget| budget.saturating_sub(begin.elapsed()));
    let report = Report { member: &member, told: RefCell::default() };
    let outcome = tokio::select! {
        biased;
        outcome = registered(client, &report, join, left, signals) => outcome,
        never = report.tell_all(client) => match never {},
    };
    give_back("member", member.node.close()).await;
    outcome
}

/// Waits until the member is registered. Then runs the command, or waits for a signal.
async fn registered(
    client: &CuratorFramework,
    report: &Report<'_>,
    join: &Join,
    left: Option<Duration>,
    signals: &mut Signals,
) -> Result<u8, Failure> {
    let member = report.member;
    let created = async {
        Ok(match left {
            Some(left) => member.node.created_timeout(left).await.map(|node| node.is_some()),
            None => member.node.created().await.map(|_| true),
        })
    };
    match unless_ended(signals, created).await? {
        Err(NodeError::TakenBy { session, .. }) => {
            let (taken, group) = (member.taken_by(session), member.group);
            tell(&format!("{taken}: curator members {group} shows it"));
            return Ok(join.conflict_exit_code);
        }
        Ok(true) => {}
        Ok(false) => return Err(client.no_answer(&format!("create {}", join.path)).into()),
        Err(error) => return Err(error.into()),
    }
    report.tell_state();
    if join.command.is_empty() {
        return unless_ended(signals, pending()).await;
    }
    let (command, foreground) = (&join.command, join.setting.foreground);
    let order = Order { command, foreground, path: &join.path, grace: Duration::ZERO, revocable: false };
    Ok(match child::run(member, &order, signals).await {
        Ok(ended) => child::code(ended.status),
        Err(error) => child::cannot_run(&join.command[0], &error),
    })
}

/// The lines about the registration.
struct Report<'a> {
    member: &'a Member<'a>,
    /// The last line.
    told: RefCell<String>,
}

impl Report<'_> {
    /// Reports each change of the registration, and outages. Never ends: the caller drops it.
    async fn tell_all(&self, client: &CuratorFramework) -> Infallible {
        let (mut states, mut outages) = (self.member.node.watch(), Outages::of(client));
        loop {
            self.tell_state();
            tokio::select! {
                biased;
                changed = states.changed() => if changed.is_err() {
                    return pending().await;
                },
                is_connected = outages.change() => {
                    if is_connected {
                        tell("the connection is back");
                    } else if self.member.node.state().standing().is_some() {
                        tell(&format!("no connection: {} has the member until its session ends", self.member.group));
                    } else {
                        tell("no connection");
                    }
                }
            }
        }
    }

    /// Reports the present state, unless its line was the last one.
    fn tell_state(&self) {
        let (Member { group, id, node }, mut told) = (self.member, self.told.borrow_mut());
        let line = match node.state() {
            NodeState::Standing(node) => {
                format!("joined {group} as {id} (session {}, czxid {})", shown_session(node.session), node.czxid.get())
            }
            NodeState::TakenBy { session, .. } => format!("{}: waits until it leaves", self.member.taken_by(session)),
            NodeState::Refused { cause, .. } => {
                format!("joined {group} as {id}, as far as is known: {cause}; tries again")
            }
            NodeState::Failed(error) => format!("not a member of {group}: {}; tries again", Chain(&error)),
            // The first attempt needs no line.
            NodeState::Creating if !told.is_empty() => format!("not a member of {group} at present: joins again"),
            _ => return,
        };
        if *told != line {
            tell(&line);
            *told = line;
        }
    }
}

/// A member, as the grant of a command. Its end stops no command, because a registration excludes nothing.
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
    fn what(&self) -> &'static str {
        "its registration"
    }

    fn variables(&self, path: &str) -> Vec<(&'static str, String)> {
        vec![
            ("CURATOR_GROUP_PATH", path.to_owned()),
            ("CURATOR_MEMBER_ID", self.id.clone()),
            ("CURATOR_NODE", make_path(path, &self.id)),
        ]
    }
}
