//! The members of a group, followed by any process.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use curator_framework::recipe::{RecipeClient as _, WatchedData, owning_session};
use curator_framework::{
    Chain, Changes, CuratorFramework, Error, PathText, Session, WakeReason, Watch, Zxid, make_path, validate_path,
};
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use tokio::sync::watch;
use tokio::time::sleep;

use crate::groups::members::{GroupState, Member, MemberChange, Members, changes_of};
use crate::nodes::error::NodeError;
use crate::standing::{Pauses, StandingTask, Stop, catch_up, first_found, within};

/// The number of members that are read at once.
const READS_AT_ONCE: usize = 32;

/// The members of a group, as any process can follow them: the part of Curator's `GroupMember` that reads.
///
/// Each child of the path is a member, also those of Java's `GroupMember`. A path that does not exist is a group
/// without members. [Clones](crate#handles) are cheap, and all clones are one object. They keep the client open.
/// [`close`](Self::close), or the drop of the last clone, ends it.
///
/// The members are those of the newest reply, which may be late. So a member that is shown may have ended, and one that
/// is not shown may be at work. For a right to act use a lock, an election or a [`Partition`](crate::Partition).
///
/// Servers with ZooKeeper's fix for CVE-2024-23944 drop the events of a path that the client may not read, and its watches.
/// So after such a time a group may miss changes until the next reconnect.
///
/// # Examples
///
/// ```
/// # #[tokio::main]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = curator_test::TestingServer::start()?;
/// # let retry = curator_framework::RetryOneTime::new(std::time::Duration::from_millis(50));
/// # let client = curator_framework::CuratorFramework::new_client(server.connect_string(), retry)?;
/// # client.start()?;
/// use curator_recipes::{Group, GroupMember, MemberChange};
///
/// let group = Group::new(client.clone(), "/workers")?;
/// group.start()?;
/// let member = GroupMember::new(client, "/workers", "host-7")?;
/// member.start()?;
///
/// let mut changes = group.changes();
/// match changes.recv().await {
///     Some(MemberChange::Joined(member)) => assert_eq!(member.id, "host-7"),
///     other => panic!("{other:?}"),
/// }
/// # member.close().await;
/// # group.close().await;
/// # Ok(())
/// # }
/// ```
///
/// # Cost
///
/// | case | requests |
/// | --- | --- |
/// | start, new session | 2, and 1 for each member: `sync` (a write over `zookeeper-async`), a listing with a watch, the members' data with watches |
/// | a member joins | 2: a listing, and a read |
/// | a member leaves | 1: a listing; if the notifications do not arrive together, also a read and the removal of its watch |
/// | a member changes its data | 1 |
/// | lost connection | none, apart from the watches that the session sets again; over `zookeeper-async` those of a start without `sync` |
/// | close | the removal of the watches: 1, and 1 for each member |
#[derive(Clone)]
pub struct Group {
    owner: Arc<Owner>,
}

struct Owner {
    /// Keeps the client open.
    client: CuratorFramework,
    path: String,
    state: watch::Sender<GroupState>,
    task: StandingTask,
}

impl Group {
    /// Creates an object that is to follow the group at a path, without a request.
    ///
    /// # Errors
    ///
    /// `Error::InvalidPath`: ZooKeeper does not allow this path.
    pub fn new(client: CuratorFramework, path: impl Into<String>) -> Result<Self, NodeError> {
        let path = path.into();
        validate_path(&path)?;
        let state = watch::Sender::new(GroupState::Latent);
        Ok(Self { owner: Arc::new(Owner { client, path, state, task: StandingTask::new() }) })
    }

    /// Starts to follow the group, in the background, now or when the client is connected.
    ///
    /// # Errors
    ///
    /// * `NodeError::AlreadyStarted`: an earlier call has started the object.
    /// * `NodeError::Closed`: create another object.
    /// * `Error::NoRuntime`: call it in a tokio runtime.
    pub fn start(&self) -> Result<(), NodeError> {
        let Owner { client, path, state, task } = &*self.owner;
        // Does not keep the client: its last clone ends the task.
        let (client, path, state) = (client.weak_clone(), path.clone(), state.clone());
        let started = task.start(move |stop| {
            state.send_replace(GroupState::Loading);
            Follower::new(client, path, state).run(stop)
        });
        started.map_err(|error| NodeError::of_start(error, self.path_text()))
    }

    /// Waits until the members are known. Returns the last known ones if a read is
    /// [refused](GroupState::Refused) now.
    ///
    /// # Errors
    ///
    /// * `NodeError::NotStarted`: call [`start`](Self::start) first.
    /// * `NodeError::Closed`: the object or its client was closed, before or during the call.
    /// * The error of [`GroupState::Failed`], such as `Error::NoAuth`, at once. The task tries again with pauses, so a
    ///   later call may succeed.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    pub async fn initialized(&self) -> Result<Members, NodeError> {
        let closed = || Err(NodeError::Closed { path: self.path_text() });
        let look = |state| match state {
            GroupState::Known(members) | GroupState::Refused { members, .. } => Some(Ok(members)),
            GroupState::Loading => None,
            GroupState::Latent => Some(Err(NodeError::NotStarted { path: self.path_text() })),
            GroupState::Failed(error) => Some(Err(error)),
            GroupState::Closed => Some(closed()),
        };
        first_found(self.watch(), look).await.unwrap_or_else(closed)
    }

    /// Waits like [`initialized`](Self::initialized) for at most `budget`. Returns `Ok(None)` if the budget ends while
    /// the client is connected.
    ///
    /// # Errors
    ///
    /// * `NodeError::NotStarted`, `NodeError::Closed`, and the error of [`GroupState::Failed`].
    /// * `Error::ConnectionLoss`: the budget ended without a connection.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    pub async fn initialized_timeout(&self, budget: Duration) -> Result<Option<Members>, NodeError> {
        let request = || format!("reading the group {}", self.path());
        within(&self.owner.client, budget, request, self.initialized()).await
    }

    /// Returns the present state.
    #[must_use]
    pub fn state(&self) -> GroupState {
        self.owner.state.borrow().clone()
    }

    /// Returns the group's path.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.owner.path
    }

    pub(super) fn path_text(&self) -> PathText {
        self.owner.client.path_text(&self.owner.path)
    }

    pub(super) fn is_connected(&self) -> bool {
        self.owner.client.is_connected()
    }

    /// Returns the error of a wait that has ended before the server answered.
    pub(super) fn no_answer(&self) -> Error {
        self.owner.client.no_answer(&format!("joining {}", self.path()))
    }

    /// Returns the last known members, even if a read is [refused](GroupState::Refused) now; `None` before the first read, and
    /// once the group is closed.
    #[must_use]
    pub fn members(&self) -> Option<Members> {
        self.owner.state.borrow().members().cloned()
    }

    /// Returns the state as a channel. It may skip states.
    #[must_use]
    pub fn watch(&self) -> watch::Receiver<GroupState> {
        self.owner.state.subscribe()
    }

    /// Returns the changes of the members as a stream, which ends with the group object. It begins with a
    /// [`Joined`](MemberChange::Joined) for each present member.
    ///
    /// The stream has no gap: it reports all differences between the members that the reader has seen and the present ones,
    /// not each step between them. A slow reader needs no more memory than a fast one. While reads are refused it
    /// reports nothing.
    pub fn changes(&self) -> Changes<MemberChange> {
        changes_of(self.watch())
    }

    /// Ends the task, the streams of changes and the watches. Resolves within the client's
    /// [`max_close_wait`](curator_framework::CuratorFrameworkBuilder::max_close_wait). Closing twice is fine.
    ///
    /// # Cancel safety
    ///
    /// The closing goes on when the future is dropped.
    pub async fn close(&self) {
        self.owner.task.close(&self.owner.client).await;
        self.owner.state.send_replace(GroupState::Closed);
    }
}

impl fmt::Debug for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Group").field("path", &self.path()).field("state", &self.owner.state.borrow()).finish()
    }
}

/// A watch on a member, which resolves with its id.
struct MemberWatch {
    id: String,
    number: u64,
    watch: Watch,
}

impl Future for MemberWatch {
    type Output = (String, u64, WakeReason);

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.watch).poll(cx).map(|reason| (std::mem::take(&mut self.id), self.number, reason))
    }
}

/// The watches on members in one session.
#[derive(Default)]
struct Watches {
    /// The members with a watch that has not fired, as far as the events were handled, with the number of the newest.
    watched: BTreeMap<String, u64>,
    events: FuturesUnordered<MemberWatch>,
    last_number: u64,
}

impl Watches {
    fn add(&mut self, id: String, watch: Watch) {
        self.last_number += 1;
        self.watched.insert(id.clone(), self.last_number);
        self.events.push(MemberWatch { id, number: self.last_number, watch });
    }

    /// Records an event. Returns `false` for an event of an earlier watch: the member has left, or was read since.
    fn has_fired(&mut self, id: &str, number: u64) -> bool {
        self.watched.get(id) == Some(&number) && self.watched.remove(id).is_some()
    }
}

/// Publishes the last state, however the task ends.
struct Ending(watch::Sender<GroupState>);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.send_replace(GroupState::Closed);
    }
}

/// The task of one group.
struct Follower {
    client: CuratorFramework,
    path: String,
    state: watch::Sender<GroupState>,
    members: Members,
    pauses: Pauses,
    /// The number of the session that has caught up with the server.
    caught_up_in: Option<u64>,
    /// Publishes the last state also if the runtime drops the task before its first poll.
    _ending: Ending,
}

impl Follower {
    fn new(client: CuratorFramework, path: String, state: watch::Sender<GroupState>) -> Self {
        let (members, pauses, ending) = (Members::default(), Pauses::default(), Ending(state.clone()));
        Self { client, path, state, members, pauses, caught_up_in: None, _ending: ending }
    }

    async fn run(mut self, mut stop: Stop) {
        tokio::select! {
            biased;
            () = stop.requested() => {}
            () = self.follow() => {}
        }
    }

    /// Follows the group until the client is closed.
    async fn follow(&mut self) {
        loop {
            let followed = match self.client.session().await {
                Ok(session) => self.follow_in(&session).await,
                Err(error) => Err(error),
            };
            let error = match followed {
                Ok(()) => continue,
                Err(Error::Closed) => return,
                Err(error) => error,
            };
            // The client may be started later.
            let may_pass = error.is_retryable() || matches!(error, Error::NotStarted);
            let pause = self.pauses.after(may_pass);
            if !may_pass {
                tracing::warn!(error = %Chain(&error), path = self.path, pause_s = pause.as_secs_f64(), "a group cannot be read");
                self.state.send_modify(|state| {
                    *state = match state.members() {
                        // Not the published ones: a listing may have been answered, and only a read be refused.
                        Some(_) => GroupState::Refused { members: self.members.clone(), cause: error.into() },
                        None => GroupState::Failed(error.into()),
                    };
                });
            }
            sleep(pause).await;
        }
    }

    /// Follows the group until the session ends, or the path is created or deleted.
    async fn follow_in(&mut self, session: &Session) -> Result<(), Error> {
        if self.caught_up_in != Some(session.number()) {
            catch_up(session, &self.path).await?;
            self.caught_up_in = Some(session.number());
        }
        let mut watches = Watches::default();
        loop {
            let (names, mut listing) = match session.get_children_watched(&self.path).await {
                Err(Error::NoNode { .. }) => return self.wait_for_path(session).await,
                listed => listed?,
            };
            let names: BTreeSet<String> = names.into_iter().collect();
            self.members.retain(&names);
            watches.watched.retain(|id, _| names.contains(id));
            let unread = names.into_iter().filter(|id| !watches.watched.contains_key(id)).collect();
            self.read(session, unread, &mut watches).await?;
            loop {
                self.publish();
                let (id, number, reason) = tokio::select! {
                    // The listing first: it spares the reads of members that have left.
                    biased;
                    reason = &mut listing => match reason {
                        WakeReason::Event(_) => break,
                        _ => return Ok(()),
                    },
                    Some(event) = watches.events.next() => event,
                };
                match reason {
                    WakeReason::Event(_) if watches.has_fired(&id, number) => {
                        self.read(session, vec![id], &mut watches).await?;
                    }
                    WakeReason::Event(_) => {}
                    _ => return Ok(()),
                }
            }
        }
    }

    /// Waits until the path of the group is created.
    async fn wait_for_path(&mut self, session: &Session) -> Result<(), Error> {
        self.members = Members::default();
        let (stat, created) = session.exists_watched(&self.path).await?;
        if stat.is_none() {
            self.publish();
            created.await;
        }
        Ok(())
    }

    /// Reads members, and sets watches on them.
    async fn read(&mut self, session: &Session, ids: Vec<String>, watches: &mut Watches) -> Result<(), Error> {
        let path = &self.path;
        let reads = futures_util::stream::iter(ids).map(|id| async move {
            let path = make_path(path, &id);
            let read = match session.get_data_watched(&path).await {
                Err(Error::NoAuth { .. }) => match session.exists_watched(&path).await {
                    Ok((Some(stat), watch)) => Ok(WatchedData { data: Vec::new(), stat, watch }),
                    Ok((None, _)) => Err(Error::NoNode { path: path.into() }),
                    Err(error) => Err(error),
                },
                read => read,
            };
            (id, read)
        });
        let mut reads = reads.buffer_unordered(READS_AT_ONCE);
        while let Some((id, read)) = reads.next().await {
            let WatchedData { data, stat, watch } = match read {
                Ok(read) => read,
                // The watch on the listing reports it if the member joins again.
                Err(Error::NoNode { .. }) => {
                    self.members.remove(&id);
                    continue;
                }
                Err(error) => return Err(error),
            };
            let data = self.client.from_stored(&make_path(path, &id), data.clone(), None).unwrap_or(data);
            watches.add(id.clone(), watch);
            let (session, czxid) = (owning_session(stat.ephemeral_owner), Zxid::new(stat.czxid));
            self.members.set(Member { id, data, session, czxid });
        }
        Ok(())
    }

    fn publish(&mut self) {
        self.pauses = Pauses::default();
        let is_known = matches!(&*self.state.borrow(), GroupState::Known(members) if *members == self.members);
        if !is_known {
            self.state.send_replace(GroupState::Known(self.members.clone()));
        }
    }
}
