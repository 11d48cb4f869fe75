//! The JSON of `/api`. README describes it.

use curator_cli::text::kind;
use serde::Serialize;

use super::follow::Snapshot;
use super::history::Change;
use super::link::Link;
use super::lock::{Contender, Detail, Lock};
use super::page;

/// The most holders of a lock in the list.
const HOLDERS: usize = 16;

/// The state of the connection, at the top of each answer.
#[derive(Debug, Serialize)]
pub(super) struct LinkJson<'a> {
    servers: &'a str,
    connected: bool,
    connection_since_ms: i64,
    cause: Option<&'a str>,
}

impl<'a> LinkJson<'a> {
    pub(super) fn new(link: &'a Link) -> Self {
        Self {
            servers: &link.servers,
            connected: link.is_connected(),
            connection_since_ms: link.since,
            cause: link.cause.as_deref(),
        }
    }
}

/// The top of each answer about locks.
#[derive(Debug, Serialize)]
struct Head<'a> {
    #[serde(flatten)]
    link: LinkJson<'a>,
    exists: Option<bool>,
    complete: bool,
    left_out: Vec<&'a str>,
    as_of_ms: i64,
    problems: &'a [String],
}

impl<'a> Head<'a> {
    fn new(snapshot: &'a Snapshot, link: &'a Link) -> Self {
        Self {
            link: LinkJson::new(link),
            exists: snapshot.is_known().then_some(snapshot.missing.is_none()),
            complete: page::is_complete(snapshot, link),
            left_out: snapshot.left_out.keys().map(String::as_str).collect(),
            as_of_ms: snapshot.at,
            problems: &snapshot.problems,
        }
    }
}

#[derive(Debug, Serialize)]
struct ContenderJson<'a> {
    node: &'a str,
    kind: &'static str,
    state: &'static str,
    data: Option<String>,
    data_bytes: Option<usize>,
    session: Option<String>,
    fencing_token: Option<i64>,
    created_ms: Option<i64>,
    granted_ms: Option<i64>,
    asked_to_release: bool,
}

impl<'a> ContenderJson<'a> {
    fn new(contender: &'a Contender) -> Self {
        let detail = contender.detail.as_ref();
        Self {
            node: &contender.path,
            kind: kind(contender.kind),
            state: if contender.holds() { "holds" } else { "waits" },
            data: detail.map(page::data),
            data_bytes: detail.map(|detail| detail.length),
            session: contender.session().filter(|session| *session != 0).map(page::session),
            fencing_token: detail.map(|detail| detail.czxid),
            created_ms: detail.map(|detail| detail.created),
            granted_ms: contender.granted,
            asked_to_release: detail.is_some_and(Detail::asks_to_release),
        }
    }
}

#[derive(Debug, Serialize)]
struct LockJson<'a> {
    path: &'a str,
    recipe: &'static str,
    holders: usize,
    waiters: usize,
    held_since_ms: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    blocked_by: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    first_holders: Option<Vec<ContenderJson<'a>>>,
}

impl<'a> LockJson<'a> {
    fn new(lock: &'a Lock) -> Self {
        Self {
            path: &lock.path,
            recipe: lock.recipe.words(),
            holders: lock.holders().count(),
            waiters: lock.waiters(),
            held_since_ms: lock.held_since(),
            blocked_by: lock.blocked_by.as_deref(),
            first_holders: None,
        }
    }

    fn with_holders(lock: &'a Lock) -> Self {
        let holders = lock.holders().take(HOLDERS).map(|holder| ContenderJson::new(holder)).collect();
        Self { first_holders: Some(holders), ..Self::new(lock) }
    }
}

#[derive(Debug, Serialize)]
struct ChangeJson<'a> {
    at_ms: i64,
    change: &'static str,
    contender: Option<ContenderJson<'a>>,
}

impl<'a> ChangeJson<'a> {
    fn new(change: &'a Change) -> Self {
        let contender = change.contender.as_ref().map(ContenderJson::new);
        Self { at_ms: change.at, change: change.kind.word(), contender }
    }
}

/// Returns the answer to `/api/locks`, with all locks or with those that have waiters.
pub(crate) fn locks(snapshot: &Snapshot, link: &Link, contended: bool) -> serde_json::Result<String> {
    #[derive(Serialize)]
    struct Answer<'a> {
        #[serde(flatten)]
        head: Head<'a>,
        locks: Vec<LockJson<'a>>,
    }
    let shown = snapshot.locks.values().filter(|lock| !contended || lock.waiters() > 0);
    let locks = shown.map(|lock| LockJson::with_holders(lock)).collect();
    serde_json::to_string(&Answer { head: Head::new(snapshot, link), locks })
}

/// Returns the answer to `/api/locks/{path}`.
pub(crate) fn lock(snapshot: &Snapshot, link: &Link, lock: &Lock, history: &[Change]) -> serde_json::Result<String> {
    #[derive(Serialize)]
    struct Answer<'a> {
        #[serde(flatten)]
        head: Head<'a>,
        #[serde(flatten)]
        lock: LockJson<'a>,
        contenders: Vec<ContenderJson<'a>>,
        history: Vec<ChangeJson<'a>>,
    }
    let shown = lock.contenders.iter().filter(|node| node.holds() || node.waits());
    serde_json::to_string(&Answer {
        head: Head::new(snapshot, link),
        lock: LockJson::new(lock),
        contenders: shown.map(|node| ContenderJson::new(node)).collect(),
        history: history.iter().map(ChangeJson::new).collect(),
    })
}

/// Returns the answer to `/api/locks/{path}` without a lock.
pub(crate) fn no_lock(snapshot: &Snapshot, link: &Link, error: &str) -> serde_json::Result<String> {
    #[derive(Serialize)]
    struct Answer<'a> {
        error: &'a str,
        #[serde(flatten)]
        head: Head<'a>,
    }
    serde_json::to_string(&Answer { error, head: Head::new(snapshot, link) })
}
