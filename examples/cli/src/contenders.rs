//! Finds locks of any kind, and lists their holders and waiters.

use std::collections::{BTreeMap, HashSet};

use curator_framework::{Chain, CuratorFramework, Error, PathText, make_path, node_from_path, parent_of};
use curator_recipes::{
    InterProcessMutex, InterProcessReadWriteLock, InterProcessSemaphoreV2, LeaderError, LeaderLatch, LockError,
    LockInternalsDriver as _, Participant, ParticipantKind, Revoker, StandardLockInternalsDriver,
};
use futures_util::future::ready;
use futures_util::stream::{self, Stream, StreamExt as _, TryStreamExt as _};
use serde::{Serialize, Serializer};

use crate::fields::DataFields;
use crate::kinds::{LockKind, kind_of, kind_of_node, kinds_of, lock_of_contender, shown_by, whole_of};
use crate::text::{created, kind, seconds, start_of};

/// The text before the limit of leases in the data of a lease, which a bracket ends.
pub const LEASES_OF: &str = " (n=";
/// The number of listings that are under way at the same time.
const AT_ONCE: usize = 64;

/// A contender, as one row of the table.
#[derive(Debug, Clone)]
pub struct Contender {
    /// The contender, as its node shows it.
    pub participant: Participant,
    /// The state of the contender:
    ///
    /// * `holds`: it holds the lock.
    /// * `leads`: it leads in an election.
    /// * `waits`: it is queued.
    /// * `lease`: it has the node of a lease, and may wait, since the limit of the semaphore is not known.
    /// * `turn`: it is the next to take a lease of the semaphore. If it has made the node of that lease, this node has
    ///   a row too.
    pub state: &'static str,
}

/// A lock with its contenders. It serializes as the JSON of `curator status`.
#[derive(Debug, Clone)]
pub struct Lock {
    /// The lock's path.
    pub path: String,
    /// The kind; `None` if the node has no child that shows it.
    pub kind: Option<LockKind>,
    /// The contenders, in the order of the queue.
    pub contenders: Vec<Contender>,
    /// A persistent node that has the name of a contender's node, of a lock without contenders. It blocks the next
    /// contender.
    pub blocked_by: Option<String>,
}

/// The node at a path.
#[derive(Debug, Clone)]
pub enum Look {
    /// A lock, or a node without children, which may be a lock without contenders.
    Lock(Lock),
    /// A part of a lock: a contender's node, or the node above a semaphore's leases.
    PartOf(String),
    /// A node that has children, but no contenders.
    Other,
    /// The node does not exist.
    Missing,
}

/// The locks below a path.
#[derive(Debug, Clone, Default)]
pub struct Below {
    /// The locks with contenders, in the order of their paths.
    pub locks: Vec<Lock>,
    /// The nodes that could not be read, each with the reason.
    pub refused: BTreeMap<String, String>,
}

impl Lock {
    /// Returns `true` if the limit of a semaphore with leases is not known: each lease counts as a holder.
    #[must_use]
    pub fn has_unknown_limit(&self) -> bool {
        self.contenders.iter().any(|one| one.state == "lease")
    }

    /// Returns the number of contenders that hold the lock. Without a limit each lease of a semaphore counts.
    #[must_use]
    pub fn holding(&self) -> usize {
        self.contenders.iter().filter(|one| one.holds()).count()
    }

    /// Returns the number of contenders that wait. The contender with the turn counts once.
    #[must_use]
    pub fn waiting(&self) -> usize {
        let has = |state| self.contenders.iter().any(|one| one.state == state);
        let takes_a_lease =
            self.contenders.iter().any(|one| one.state == "waits" && one.participant.kind == ParticipantKind::Lease);
        let twice = usize::from(has("turn") && takes_a_lease);
        self.contenders.iter().filter(|one| matches!(one.state, "waits" | "turn")).count() - twice
    }

    /// Returns the path of a persistent node that blocks the waiters, or the next contender.
    #[must_use]
    pub fn blocker(&self) -> Option<&str> {
        let of_a_waiter = self.contenders.iter().find_map(|one| one.participant.blocked_by.as_deref());
        of_a_waiter.or(self.blocked_by.as_deref())
    }

    /// Returns `true` if the lock has no holder, and gets none while a persistent node exists.
    #[must_use]
    pub fn is_blocked(&self) -> bool {
        !self.is_held() && self.blocker().is_some()
    }

    /// Returns a lock without contenders.
    fn unused(path: &str, kind: Option<LockKind>) -> Self {
        Self { path: path.to_owned(), kind, contenders: Vec::new(), blocked_by: None }
    }

    /// Returns `true` if a contender holds the lock, or a lease of it.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.holding() > 0
    }
}

impl Contender {
    /// Returns `true` for a holder, and for a lease while the limit is not known.
    #[must_use]
    pub fn holds(&self) -> bool {
        matches!(self.state, "holds" | "leads" | "lease")
    }

    /// Returns the words for a holder: its data, unless a request has overwritten it.
    #[must_use]
    pub fn words(&self) -> String {
        match self.is_asked_to_release() {
            true => "a contender that is asked to release".to_owned(),
            false => start_of(&self.participant.data),
        }
    }

    /// Returns `true` if another client asks for the release: the request has overwritten the data.
    #[must_use]
    pub fn is_asked_to_release(&self) -> bool {
        Revoker::is_request(&self.participant.data)
    }
}

#[derive(Serialize)]
struct LockFields<'a> {
    path: &'a str,
    kind: Option<LockKind>,
    state: &'static str,
    holding: usize,
    waiting: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    blocked_by: Option<&'a str>,
    contenders: &'a [Contender],
}

impl Serialize for Lock {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        LockFields {
            path: &self.path,
            kind: self.kind,
            state: match (self.is_held(), self.is_blocked()) {
                (true, _) => "held",
                (false, true) => "blocked",
                (false, false) => "free",
            },
            holding: self.holding(),
            waiting: self.waiting(),
            blocked_by: self.blocker(),
            contenders: &self.contenders,
        }
        .serialize(serializer)
    }
}

#[derive(Serialize)]
struct ContenderFields<'a> {
    state: &'static str,
    kind: &'static str,
    #[serde(flatten)]
    data: DataFields<'a>,
    node: &'a str,
    session: Option<String>,
    created: String,
    age: f64,
    sequence: i64,
    fencing_token: i64,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    asked_to_release: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    blocked_by: Option<&'a str>,
}

impl Serialize for Contender {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let one = &self.participant;
        ContenderFields {
            state: self.state,
            kind: kind(one.kind),
            data: DataFields::new(&one.data),
            node: &one.path,
            session: one.session.map(|session| session.to_string()),
            created: created(one),
            age: seconds(one.age()),
            sequence: one.sequence,
            fencing_token: one.czxid.get(),
            asked_to_release: self.is_asked_to_release(),
            blocked_by: one.blocked_by.as_deref(),
        }
        .serialize(serializer)
    }
}

/// Returns the children with contenders' names that are contenders (`true`), or are not (`false`). Reads
/// their stats one after the other.
fn judged<'a>(
    client: &'a CuratorFramework,
    path: &'a str,
    children: &'a [String],
) -> impl Stream<Item = Result<(String, bool), Error>> {
    let named = children.iter().filter(|child| kind_of_node(child).is_some()).map(|child| make_path(path, child));
    stream::iter(named).then(async |node| Ok((client.check_exists().for_path(&node).await?, node))).try_filter_map(
        async |(stat, node)| Ok(stat.map(|stat| (node, StandardLockInternalsDriver.is_contender(stat.ephemeral_owner)))),
    )
}

/// Returns the kind of a lock that has contenders at a path with these children, other than the kind that is `wanted`.
/// Reads a node only if its name shows another kind.
///
/// # Errors
///
/// * `Error::NoAuth`: a node may not be read.
/// * `Error::ConnectionLoss`, `Error::SessionExpired`: the servers did not answer.
pub async fn other_kind(
    client: &CuratorFramework,
    path: &str,
    children: &[String],
    wanted: Option<LockKind>,
) -> Result<Option<LockKind>, Error> {
    for kind in kinds_of(children).filter(|kind| Some(*kind) != wanted) {
        for (queue, nodes) in queues_of(client, path, kind, children).await? {
            let judged = judged(client, &queue, &nodes).try_filter(|(_, is_contender)| ready(*is_contender));
            if std::pin::pin!(judged).try_next().await?.is_some() {
                return Ok(Some(kind));
            }
        }
    }
    Ok(None)
}

/// Returns the paths of the queues of a lock with these children, each with the nodes that have the names of contenders.
/// Lists both queues of a semaphore.
async fn queues_of(
    client: &CuratorFramework,
    path: &str,
    kind: LockKind,
    children: &[String],
) -> Result<Vec<(String, Vec<String>)>, Error> {
    if kind != LockKind::Semaphore {
        let nodes = children.iter().filter(|child| shown_by(child) == Some(kind)).cloned().collect();
        return Ok(vec![(path.to_owned(), nodes)]);
    }
    let list = async |queue| {
        let queue = make_path(path, queue);
        match client.get_children().for_path(&queue).await {
            Err(Error::NoNode { .. }) => Ok((queue, Vec::new())),
            children => Ok((queue, children?)),
        }
    };
    Ok(vec![list(InterProcessSemaphoreV2::LEASES).await?, list(InterProcessSemaphoreV2::LOCKS).await?])
}

/// Returns the path of a persistent node that blocks a new contender of this kind. Reads only the first node of each queue
/// that this contender waits in.
///
/// # Errors
///
/// * `Error::NoAuth`: a queue or its first node may not be read.
/// * `Error::ConnectionLoss`, `Error::SessionExpired`: the servers did not answer.
pub async fn blocker(client: &CuratorFramework, path: &str, kind: ParticipantKind) -> Result<Option<String>, Error> {
    let queues: &[_] = match kind {
        ParticipantKind::Lease => &[
            (InterProcessSemaphoreV2::LOCKS, ParticipantKind::Lock),
            (InterProcessSemaphoreV2::LEASES, ParticipantKind::Lease),
        ],
        kind => &[("", kind)],
    };
    for (queue, kind) in queues {
        let queue = make_path(path, queue);
        let children = match client.get_children().for_path(&queue).await {
            Err(Error::NoNode { .. }) => continue,
            children => children?,
        };
        let ahead = |child| ParticipantKind::of_node(child).filter(|(other, _)| kind.waits_for(*other));
        let Some((_, first)) = children.iter().filter_map(|child| Some((ahead(child)?.1, child))).min() else {
            continue;
        };
        let node = make_path(&queue, first);
        let stat = client.check_exists().for_path(&node).await?;
        if stat.is_some_and(|stat| !StandardLockInternalsDriver.is_contender(stat.ephemeral_owner)) {
            return Ok(Some(node));
        }
    }
    Ok(None)
}

/// Reads the node at a path, and the contenders of a lock.
///
/// # Errors
///
/// The errors of [`InterProcessMutex::participants`].
pub async fn look(client: &CuratorFramework, path: &str, max_leases: Option<usize>) -> Result<Look, LockError> {
    let mut children = match client.get_children().for_path(path).await {
        Err(Error::NoNode { .. }) => return Ok(Look::Missing),
        children => children?,
    };
    if let Some((kind, contenders)) = found(client, path, &children, max_leases).await? {
        return Ok(Look::Lock(Lock { contenders, ..Lock::unused(path, Some(kind)) }));
    }
    if let Some(lock) = blocked(client, path, &children).await? {
        return Ok(Look::Lock(lock));
    }
    // The nodes that are left have gone since, or are not contenders.
    let others = judged(client, path, &children).try_filter(|(_, is_contender)| ready(!is_contender));
    let others: HashSet<String> = others.map_ok(|(node, _)| node).try_collect().await?;
    children.retain(|child| !others.contains(&make_path(path, child)));
    if children.is_empty() && !others.is_empty() {
        return Ok(Look::Other);
    }
    Ok(seen(client, path, &children).await?)
}

/// Returns the lock at a path without contenders, if a persistent node blocks it. Reads only nodes with names that a server
/// gives: a user may have named a lock `lock-7`.
async fn blocked(client: &CuratorFramework, path: &str, children: &[String]) -> Result<Option<Lock>, Error> {
    for kind in kinds_of(children).filter(|_| path != "/") {
        let queue = if kind == LockKind::Semaphore { InterProcessSemaphoreV2::LOCKS } else { "" };
        let queue = make_path(path, queue);
        let names = match kind {
            LockKind::Semaphore => match client.get_children().for_path(&queue).await {
                Err(Error::NoNode { .. } | Error::NoAuth { .. }) => continue,
                names => names?,
            },
            _ => children.iter().filter(|child| shown_by(child) == Some(kind)).cloned().collect(),
        };
        let mut names: Vec<String> =
            names.into_iter().filter(|name| lock_of_contender(&make_path(&queue, name)).is_some()).collect();
        names.sort_unstable_by_key(|name| ParticipantKind::of_node(name).map(|(_, number)| number));
        let others = judged(client, &queue, &names).try_filter(|(_, is_contender)| ready(!is_contender));
        if let Some((node, _)) = std::pin::pin!(others).try_next().await? {
            return Ok(Some(Lock { blocked_by: Some(node), ..Lock::unused(path, Some(kind)) }));
        }
    }
    Ok(None)
}

/// Returns the kind of the node at a path, by the names of its children. Reads no contender.
///
/// # Errors
///
/// The errors of listing the children.
pub async fn glance(client: &CuratorFramework, path: &str) -> Result<Look, Error> {
    match client.get_children().for_path(path).await {
        Err(Error::NoNode { .. }) => Ok(Look::Missing),
        children => seen(client, path, &children?).await,
    }
}

/// Returns the node at a path, by the names of its children. Reads it if its name is a contender's.
async fn seen(client: &CuratorFramework, path: &str, children: &[String]) -> Result<Look, Error> {
    let name = node_from_path(path);
    let kind = kind_of(children);
    Ok(match kind {
        None if name == InterProcessSemaphoreV2::LEASES
            && children.iter().any(|child| kind_of_node(child) == Some(ParticipantKind::Lease)) =>
        {
            Look::PartOf(parent_of(path).to_owned())
        }
        None if !children.is_empty() => Look::Other,
        None if kind_of_node(name).is_some() => {
            let stat = client.check_exists().for_path(path).await?;
            match stat.map(|stat| StandardLockInternalsDriver.is_contender(stat.ephemeral_owner)) {
                Some(true) => Look::PartOf(whole_of(path).to_owned()),
                Some(false) => Look::Lock(Lock::unused(path, kind)),
                None => Look::Missing,
            }
        }
        kind => Look::Lock(Lock::unused(path, kind)),
    })
}

/// Returns `true` if a read failed for its node alone: others may be read.
#[must_use]
pub const fn is_of_one_node(error: &Error) -> bool {
    unreadable(error).is_some()
}

/// Returns the node that alone cannot be read.
const fn unreadable(error: &Error) -> Option<&PathText> {
    match error {
        Error::NoAuth { path } | Error::ReplyTooLarge { path, .. } | Error::SchemaViolation { path, .. } => Some(path),
        _ => None,
    }
}

/// Finds the locks at a path and below it.
///
/// # Errors
///
/// `NoNode`: the path does not exist. Otherwise the errors of [`InterProcessMutex::participants`].
pub async fn locks_below(client: &CuratorFramework, path: &str) -> Result<Below, LockError> {
    let mut below = Below::default();
    let (mut known, mut semaphores) = (HashSet::new(), HashSet::new());
    let mut level = vec![path.to_owned()];
    while !level.is_empty() {
        let list = |node: String| async move { (client.get_children().for_path(&node).await, node) };
        let listed: Vec<_> = stream::iter(level.drain(..)).map(list).buffered(AT_ONCE).collect().await;
        for (children, node) in listed {
            let mut children = match children {
                Ok(children) => children,
                Err(Error::NoNode { .. }) if node != path => continue,
                Err(error) if node != path && is_of_one_node(&error) => {
                    below.refused.insert(node, Chain(&error).to_string());
                    continue;
                }
                Err(error) => return Err(error.into()),
            };
            let is_the_queue_of_a_semaphore =
                node_from_path(&node) == InterProcessSemaphoreV2::LOCKS && semaphores.contains(parent_of(&node));
            // The leases of the semaphore have been read with its queue.
            let names = if is_the_queue_of_a_semaphore { &[][..] } else { &children };
            let lock = match found(client, &node, names, None).await {
                Err(LockError::Framework(error)) if is_of_one_node(&error) => {
                    let node = unreadable(&error).map_or(node.as_str(), |path| path.as_str()).to_owned();
                    below.refused.insert(node, Chain(&error).to_string());
                    children.retain(|child| kind_of_node(child).is_none());
                    None
                }
                lock => lock?,
            };
            let kind = lock.as_ref().map(|(kind, _)| *kind);
            let has_leases = || children.iter().any(|child| child == InterProcessSemaphoreV2::LEASES);
            if kind.is_none_or(|kind| kind == LockKind::Semaphore) && has_leases() {
                semaphores.insert(node.clone());
            }
            if let Some((_, contenders)) = lock {
                known.extend(contenders.iter().map(|one| one.participant.path.clone()));
                below.locks.push(Lock { contenders, ..Lock::unused(&node, kind) });
            } else if !is_the_queue_of_a_semaphore {
                below.locks.extend(blocked(client, &node, &children).await?);
            }
            // A node with a contender's name that is not a contender may have locks below it.
            level.extend(children.iter().map(|child| make_path(&node, child)).filter(|child| !known.contains(child)));
        }
    }
    below.locks.sort_by(|one, other| one.path.cmp(&other.path));
    Ok(below)
}

/// Returns the contenders of the lock at a path, in the order of the queue. The names of the children show the kind of
/// the lock, but not the limit of a semaphore.
///
/// # Errors
///
/// `NoNode`: the path does not exist. Otherwise the errors of [`InterProcessMutex::participants`].
pub async fn contenders(
    client: &CuratorFramework,
    path: &str,
    max_leases: Option<usize>,
) -> Result<Vec<Contender>, LockError> {
    let children = client.get_children().for_path(path).await?;
    Ok(found(client, path, &children, max_leases).await?.map(|(_, contenders)| contenders).unwrap_or_default())
}

/// Returns the contenders of the first kind that has some, among the kinds that the names of the children show.
async fn found(
    client: &CuratorFramework,
    path: &str,
    children: &[String],
    max_leases: Option<usize>,
) -> Result<Option<(LockKind, Vec<Contender>)>, LockError> {
    // The root cannot be a lock.
    for kind in kinds_of(children).filter(|_| path != "/") {
        let contenders = contenders_of(client, path, kind, max_leases).await?;
        if !contenders.is_empty() {
            return Ok(Some((kind, contenders)));
        }
    }
    Ok(None)
}

/// Returns the limit of leases that the data of a lease names at its end, as `curator semaphore -n` writes it.
#[must_use]
pub fn limit_of(data: &[u8]) -> Option<usize> {
    let text = std::str::from_utf8(data).ok()?.strip_suffix(')')?;
    let (_, number) = text.rsplit_once(LEASES_OF)?;
    number.parse().ok()
}

async fn contenders_of(
    client: &CuratorFramework,
    path: &str,
    kind: LockKind,
    max_leases: Option<usize>,
) -> Result<Vec<Contender>, LockError> {
    let semaphore = kind == LockKind::Semaphore;
    let participants = match kind {
        LockKind::Semaphore => {
            let limit = max_leases.unwrap_or(usize::from(u16::MAX));
            InterProcessSemaphoreV2::new(client.clone(), path, limit)?.participants().await?
        }
        LockKind::ReadWrite => InterProcessReadWriteLock::new(client.clone(), path)?.participants().await?,
        LockKind::Mutex => InterProcessMutex::new(client.clone(), path)?.participants().await?,
        LockKind::LeaderLatch => candidates(client, path).await.map_err(as_of_a_lock)?,
    };
    let is_lease = |one: &&Participant| one.kind == ParticipantKind::Lease;
    let leases: Vec<&Participant> = participants.iter().filter(is_lease).collect();
    let limit = max_leases.or_else(|| leases.iter().find_map(|lease| limit_of(&lease.data)));
    // The first of the queue creates its lease, and waits for a free one under its turn. A lease without others is free.
    let turn = participants.get(leases.len()).and_then(|first| first.session);
    let pending = leases.last().filter(|last| leases.len() > 1 && turn.is_some() && last.session == turn);
    let pending = pending.map(|pending| pending.path.clone());
    let state = |(index, participant): (usize, &Participant)| match (participant.kind, participant.holds, limit) {
        (ParticipantKind::Lease, _, Some(limit)) => {
            if index < limit {
                "holds"
            } else {
                "waits"
            }
        }
        (ParticipantKind::Lease, _, None) if pending.as_ref() == Some(&participant.path) => "waits",
        (ParticipantKind::Lease, _, None) => "lease",
        (ParticipantKind::Lock, _, _) if semaphore && participant.position == 0 => "turn",
        (_, true, _) if kind == LockKind::LeaderLatch => "leads",
        (_, true, _) => "holds",
        (_, false, _) => "waits",
    };
    let states: Vec<_> = participants.iter().enumerate().map(state).collect();
    let contenders = participants.into_iter().zip(states);
    Ok(contenders.map(|(participant, state)| Contender { participant, state }).collect())
}

async fn candidates(client: &CuratorFramework, path: &str) -> Result<Vec<Participant>, LeaderError> {
    LeaderLatch::new(client.clone(), path)?.participants().await
}

fn as_of_a_lock(error: LeaderError) -> LockError {
    match error {
        LeaderError::Framework(error) => error.into(),
        other => LockError::InvalidArgument { argument: "election", reason: other.to_string() },
    }
}
