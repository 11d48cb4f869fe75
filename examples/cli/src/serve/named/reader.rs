//! Reads the state of one path again and again. It writes nothing.

use curator_cli::queues::QueueReader;
use curator_framework::{CuratorFramework, Error, validate_path};
use curator_recipes::{CountDownLatch, Group, GroupState, Member};

use super::{Kind, State};
use crate::barrier;
use crate::failure::Failure;
use crate::members::not_a_group;

/// The reader of a path.
pub(crate) struct Reader {
    client: CuratorFramework,
    kind: Kind,
    path: String,
    source: Source,
}

/// The knowledge of a reader between two looks.
enum Source {
    Group(Group),
    Counter,
    /// The newest state, with the transactions that have created and changed the node and its list of children.
    Barrier(Option<([i64; 3], barrier::Look)>),
    Latch(CountDownLatch),
    Queue(QueueReader),
}

impl Reader {
    pub(super) fn new(client: &CuratorFramework, kind: Kind, path: &str) -> Result<Self, Failure> {
        validate_path(path)?;
        let source = match kind {
            Kind::Group => {
                let group = Group::new(client.clone(), path)?;
                group.start()?;
                Source::Group(group)
            }
            Kind::Counter => Source::Counter,
            Kind::Barrier => Source::Barrier(None),
            Kind::Latch => Source::Latch(CountDownLatch::new(client.clone(), path)?),
            Kind::Queue => Source::Queue(QueueReader::new(path, format!("{path}-locks"), format!("{path}-dead"))),
        };
        Ok(Self { client: client.clone(), kind, path: path.to_owned(), source })
    }

    pub(super) fn place(&self) -> (Kind, &str) {
        (self.kind, &self.path)
    }

    /// Returns the present state; `None` while it is not known.
    pub(super) async fn read(&mut self) -> Result<Option<State>, Failure> {
        let (client, path) = (&self.client, self.path.as_str());
        let state = match &mut self.source {
            Source::Group(group) => return members(client, group).await,
            Source::Counter => counter(client, path).await?,
            Source::Barrier(known) => Some(State::Barrier(look(client, path, known).await?)),
            Source::Latch(latch) => latch.glance().await?.map(|(round, remaining)| State::Latch { round, remaining }),
            Source::Queue(reader) => reader.read(client).await?.map(State::Queue),
        };
        Ok(Some(state.unwrap_or(State::Missing)))
    }
}

async fn members(client: &CuratorFramework, group: &Group) -> Result<Option<State>, Failure> {
    let members = match group.state() {
        GroupState::Known(members) => members,
        GroupState::Refused { cause, .. } | GroupState::Failed(cause) => return Err(cause.into()),
        GroupState::Closed => return Err(Error::Closed.into()),
        _ => return Ok(None),
    };
    // A server hides the session of a member that this client may not read.
    let is_owned = |one: &Member| one.session.is_some() || one.czxid.get() == 0;
    let children: Vec<_> = members.iter().map(|one| (one.id.as_str(), is_owned(one))).collect();
    if let Some(reason) = not_a_group(group.path(), &children) {
        return Err(Failure(2, reason));
    }
    let is_missing = members.is_empty() && client.check_exists().for_path(group.path()).await?.is_none();
    Ok(Some(if is_missing { State::Missing } else { State::Group(members) }))
}

/// Reads a number of 8 bytes, or of 4 as `SharedCount` writes it. Empty data is 0.
async fn counter(client: &CuratorFramework, path: &str) -> Result<Option<State>, Failure> {
    let data = match client.get_data().for_path(path).await {
        Err(Error::NoNode { .. }) => return Ok(None),
        read => read?.0,
    };
    let long = <[u8; 8]>::try_from(&*data).map(i64::from_be_bytes);
    let number = long.or_else(|_| <[u8; 4]>::try_from(&*data).map(|bytes| i32::from_be_bytes(bytes).into()));
    match number {
        Ok(number) => Ok(Some(State::Counter(number))),
        Err(_) if data.is_empty() => Ok(Some(State::Counter(0))),
        Err(_) => Err(Failure(2, format!("the data of {path} is not a counter: it has {} bytes", data.len()))),
    }
}

/// Reads a barrier, and its members only if they may have changed.
async fn look(
    client: &CuratorFramework,
    path: &str,
    known: &mut Option<([i64; 3], barrier::Look)>,
) -> Result<barrier::Look, Failure> {
    let (data, stat) = match client.get_data().for_path(path).await {
        Err(Error::NoNode { .. }) => return Ok(barrier::Look::OPEN),
        read => read?,
    };
    let newest = [stat.czxid, stat.mzxid, stat.pzxid];
    match known {
        Some((at, look)) if *at == newest => Ok(look.clone()),
        _ => {
            let look = barrier::look_at(client, path, &data, &stat).await?;
            *known = Some((newest, look.clone()));
            Ok(look)
        }
    }
}
