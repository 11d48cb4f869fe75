//! `leader`: the leader of an election, and its candidates.

use std::time::{Duration, SystemTime};

use clap::Args;
use clap::builder::BoolishValueParser;
use curator_cli::contenders::{Contender, Lock, Look, glance, look};
use curator_cli::fields::{DataFields, shown_data};
use curator_cli::kinds::LockKind;
use curator_cli::text::{age, rfc3339, seconds, shown, table};
use curator_framework::Error;
use curator_framework::recipe::RecipeClient as _;
use curator_recipes::{Change, Leader, LeaderObserver, ObserverState};
use serde::Serialize;

use crate::failure::Failure;
use crate::outages::Outages;
use crate::output::{print, tell};
use crate::show::{Noun, line, lock_of};
use crate::site::Site;

#[derive(Debug, Args)]
#[command(after_help = NOTES)]
pub(crate) struct LeaderOptions {
    /// Print all candidates too, in the order of the queue
    #[arg(long, value_parser = BoolishValueParser::new(), env = "CURATOR_ALL")]
    pub(crate) all: bool,
    /// Print JSON, in one line
    #[arg(long, value_parser = BoolishValueParser::new(), env = "CURATOR_JSON")]
    json: bool,
    /// Print again on each change of the leader or of its data, until interrupted
    #[arg(long, value_parser = BoolishValueParser::new(), env = "CURATOR_WATCH")]
    pub(crate) watch: bool,
    /// The election's path
    path: String,
}

const NOTES: &str = "\
Exit status:
    0  a candidate leads
    1  no leader: the election has no candidates, or does not exist, or the path is not an election
    2, 69, 70, 77  an error, as in `curator --help`

The path is that of a LeaderLatch or a LeaderSelector, in Java too. `curator ls --watch` follows all candidates.";

/// The exit status without a leader.
const NO_LEADER: u8 = 1;

/// Prints the leader, and returns the exit status.
pub(crate) async fn leader(site: &Site, options: &LeaderOptions) -> Result<u8, Failure> {
    let client = &site.client;
    site.first_session(None).await?;
    if options.watch {
        return watch(site, options).await;
    }
    let path = &options.path;
    let election = match election(site, options).await {
        Err(Failure(NO_LEADER, reason)) if options.json => {
            print(line(&Shot { reason: Some(&reason), ..Shot::new(path, "missing") })?).await?;
            return Ok(NO_LEADER);
        }
        election => election?,
    };
    let observer = LeaderObserver::new(client.clone(), path)?;
    observer.start()?;
    let read = observer.initialized_timeout(client.connection_timeout()).await;
    let leader = observer.leader();
    observer.close().await;
    if read?.is_none() {
        return Err(client.no_answer("reading the leader").into());
    }
    print(text(leader.as_ref(), None, options.all.then_some(&election), options)?).await?;
    Ok(if leader.is_some() { 0 } else { NO_LEADER })
}

/// Returns the election, of latches or of selectors, with its candidates if they are to be printed.
async fn election(site: &Site, options: &LeaderOptions) -> Result<Lock, Failure> {
    let (client, path) = (&site.client, &options.path);
    let found = match glance(client, path).await? {
        // A persistent node may have the name of another kind, beside the candidates.
        Look::Lock(Lock { kind: Some(LockKind::Semaphore | LockKind::ReadWrite), .. }) => {
            look(client, path, None).await?
        }
        _ if options.all => look(client, path, None).await?,
        found => found,
    };
    let lock = lock_of(found, site, path, Noun::Election).await?;
    match lock.kind {
        Some(LockKind::Semaphore | LockKind::ReadWrite) => {
            Err(Failure(NO_LEADER, format!("{path} is not an election, but a lock: curator status {path} shows it")))
        }
        _ => Ok(lock),
    }
}

/// Prints each change of the leader, until the reader of the pipe closes it.
async fn watch(site: &Site, options: &LeaderOptions) -> Result<u8, Failure> {
    site.check_chroot().await?;
    let client = &site.client;
    let observer = LeaderObserver::new(client.clone(), &options.path)?;
    observer.start()?;
    let (mut changes, mut outages) = (observer.changes(), Outages::of(client));
    // The observer may have read the leader before the stream of changes started.
    let mut observed = observer.watch().borrow().clone();
    let (mut before, mut stale) = (None, None);
    loop {
        let leader = leader_of(&observed)?;
        let reason = reason_of(&observed);
        let is_change = before.as_ref().map(Option::as_ref) != Some(leader);
        if !matches!(observed, ObserverState::Loading) && (is_change || options.json && reason != stale) {
            let time = if options.json { String::new() } else { rfc3339(SystemTime::now()) + " " };
            if !print(time + &text(leader, reason.as_deref(), None, options)?).await? {
                return Ok(0);
            }
            before = Some(leader.cloned());
        }
        if let Some(cause) = reason.as_ref().filter(|_| reason != stale) {
            tell(&format!("the leader may have changed, the election cannot be read: {cause}"));
        }
        stale = reason;
        tokio::select! {
            biased;
            change = changes.recv() => match change {
                Some(Change::Item(next)) => observed = next,
                Some(Change::Dropped(count)) => tell(&format!("{count} changes came faster than they were printed")),
                None => return Err(Error::Closed.into()),
            },
            is_connected = outages.change() => if !is_connected {
                tell("no connection: changes of the leader are printed when it is back");
            },
        }
    }
}

/// Returns the leader, if the election has one.
fn leader_of(observed: &ObserverState) -> Result<Option<&Leader>, Failure> {
    match observed {
        ObserverState::Leader(_) | ObserverState::Refused { .. } => Ok(observed.leader()),
        ObserverState::Failed(error) => Err(error.clone().into()),
        _ => Ok(None),
    }
}

/// Returns the reason for which the leader may have changed; `None` for the present leader.
fn reason_of(observed: &ObserverState) -> Option<String> {
    match observed {
        ObserverState::Refused { cause, .. } => Some(cause.to_string()),
        _ => None,
    }
}

/// Formats the leader. With a `reason` it is the last known leader.
fn text(
    leader: Option<&Leader>,
    reason: Option<&str>,
    election: Option<&Lock>,
    options: &LeaderOptions,
) -> Result<String, Failure> {
    let path = &options.path;
    if options.json {
        let candidates = election.map(|election| election.contenders.as_slice());
        let state = match (reason, leader) {
            (Some(_), _) => "stale",
            (None, Some(_)) => "led",
            (None, None) => "vacant",
        };
        return line(&Shot { leader: leader.map(LeaderFields::new), candidates, reason, ..Shot::new(path, state) });
    }
    let mut lines = leader.map_or_else(|| vec![format!("{path} has no leader")], |leader| summary(path, leader));
    lines.extend(election.into_iter().flat_map(|election| table(&election.contenders)));
    Ok(lines.join("\n") + "\n")
}

/// Formats a leader, with its proclaimed data on a line of its own.
fn summary(path: &str, leader: &Leader) -> Vec<String> {
    let Leader { id, path: node, token, session, created, data, .. } = leader;
    let (id, ago, at) = (shown(id.as_bytes()), age(elapsed(*created)), rfc3339(*created));
    let term = token.czxid().get();
    let mut lines =
        vec![format!("{path} is led by {id} (term {term}, joined {ago} ago, at {at}, session {session}, node {node})")];
    lines.extend(data.as_ref().map(|data| format!("it proclaims {}", shown_data(data))));
    lines
}

fn elapsed(since: SystemTime) -> Duration {
    since.elapsed().unwrap_or_default()
}

/// The JSON of `leader`.
#[derive(Serialize)]
struct Shot<'a> {
    path: &'a str,
    state: &'static str,
    leader: Option<LeaderFields<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    candidates: Option<&'a [Contender]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
}

impl<'a> Shot<'a> {
    const fn new(path: &'a str, state: &'static str) -> Self {
        Self { path, state, leader: None, candidates: None, reason: None }
    }
}

#[derive(Serialize)]
struct LeaderFields<'a> {
    id: &'a str,
    term: i64,
    joined: String,
    age: f64,
    session: String,
    node: &'a str,
    #[serde(flatten)]
    data: DataFields<'a>,
}

impl<'a> LeaderFields<'a> {
    fn new(leader: &'a Leader) -> Self {
        Self {
            id: &leader.id,
            term: leader.token.czxid().get(),
            joined: rfc3339(leader.created),
            age: seconds(elapsed(leader.created)),
            session: leader.session.to_string(),
            node: &leader.path,
            data: leader.data.as_deref().map(DataFields::new).unwrap_or_default(),
        }
    }
}
