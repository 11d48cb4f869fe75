//! The members of a group, followed by any process.
//!
//! One recursive watch follows a group, and a one-shot watch on the listing. A watch on each member would cost n²
//! watches if all members follow each other. At a reconnect the session resyncs the known members, and nothing is read
//! again. That leaves a one-shot watch on each member for a while. The listing has a separate watch because servers
//! send no event of a member that the client may not read, not even that it joins.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use curator_framework::recipe::{KnownNodes, RecipeClient as _, Resync, SubscriptionEvent, owning_session};
use curator_framework::{
    AddWatchMode, Chain, Changes, CuratorFramework, Error, PathText, Session, Stat, WakeReason, Watch, Zxid, make_path,
    node_from_path, validate_path,
};
use futures_util::future::join;
use futures_util::stream::{self, StreamExt as _};
use parking_lot::Mutex;
use tokio::sync::{SetOnce, watch};

use crate::groups::members::{GroupState, Member, MemberChange, Members, changes_of};
use crate::nodes::error::NodeError;
use crate::standing::in_sessions::{CaughtUp, InSessions, work_in_sessions};
use crate::standing::source::{Reads, Source};
use crate::standing::{Pauses, StandingTask, Stop, first_found, within};

/// The number of members that are read at once.
const READS_AT_ONCE: usize = 32;

/// The members of a group, as any process can follow them: the part of Curator's `GroupMember` that reads.
///
/// Each child of the path is a member, including the children that Java's `GroupMember` creates. A path that does not
/// exist is a group without members. [Clones](crate#handles) are cheap, and all clones are one object. They keep the
/// client open. [`close`](Self::close), or the drop of the last clone, ends it.
///
/// The members are from the newest reply, which may be late. So a member that is shown may have ended, and one that is
/// not shown may be at work. For a right to act use a lock, an election or a [`Partition`](crate::Partition).
///
/// Servers with ZooKeeper's fix for CVE-2024-23944 drop the events of a path that the client may not read, and its watches.
/// So after such a time a group may miss changes until the next reconnect. New data of one member that the client may not
/// read is missed too, but not that it joins or leaves.
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
/// | start, new session | 3, and 1 for each member: `sync` (a write over `zookeeper-async`), a recursive watch (not over `zookeeper-async`), a listing with a watch, the members' data |
/// | a member joins | 2: a listing, and a read |
/// | a member leaves | 1: a listing; if the notifications do not arrive together, also a read |
/// | a member changes its data | 1 |
/// | lost connection | none, apart from the watches that the session sets again; over `zookeeper-async` as at a start, without `sync` |
/// | close | the removal of the watches: 2 |
///
/// | watches | at the server |
/// | --- | --- |
/// | `DefaultZooKeeperFactory` | 2: one is recursive, the other is on the listing |
/// | the same, after a reconnect | 1 more for each member, until that member changes |
/// | `zookeeper-async`, servers before 3.6 | 1, and 1 for each member |
///
/// The recursive watch notifies of nodes below the members too, which costs no request.
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
    /// Set when the members are wanted. The started task sends nothing before.
    wanted: Arc<SetOnce<()>>,
}

impl Group {
    /// Creates an object that follows the group at a path, without a request.
    ///
    /// # Errors
    ///
    /// `Error::InvalidPath`: ZooKeeper does not allow this path.
    pub fn new(client: CuratorFramework, path: impl Into<String>) -> Result<Self, NodeError> {
        let path = path.into();
        validate_path(&path)?;
        let state = watch::Sender::new(GroupState::Latent);
        Ok(Self { owner: Arc::new(Owner { client, path, state, task: StandingTask::new(), wanted: Arc::default() }) })
    }

    /// Starts to follow the group, in the background, now or when the client is connected. The group of a
    /// [`GroupMember`](crate::GroupMember) is started by its member, and followed once it is
    /// [asked](crate::GroupMember#following-the-others).
    ///
    /// # Errors
    ///
    /// * `NodeError::AlreadyStarted`: an earlier call has started the object.
    /// * `NodeError::Closed`: create another object.
    /// * `Error::NoRuntime`: call it in a tokio runtime.
    pub fn start(&self) -> Result<(), NodeError> {
        self.start_when_wanted()?;
        _ = self.want();
        Ok(())
    }

    /// Starts like [`start`](Self::start), but sends nothing before the members are wanted.
    pub(super) fn start_when_wanted(&self) -> Result<(), NodeError> {
        let Owner { client, path, state, task, wanted } = &*self.owner;
        // Does not keep the client: its last clone ends the task.
        let (client, path, state, wanted) = (client.weak_clone(), path.clone(), state.clone(), Arc::clone(wanted));
        let started = task.start(move |stop| {
            state.send_replace(GroupState::Loading);
            Follower::new(client, path, state).run(stop, wanted)
        });
        started.map_err(|error| NodeError::of_start(error, self.path_text()))
    }

    /// Wants the members from now on.
    fn want(&self) -> &watch::Sender<GroupState> {
        // Fails for all but the first call.
        let _first = self.owner.wanted.set(());
        &self.owner.state
    }

    /// Returns whether the members are wanted.
    pub(super) fn is_wanted(&self) -> bool {
        self.owner.wanted.initialized()
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
        self.want().borrow().clone()
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
        self.want().borrow().members().cloned()
    }

    /// Returns the state as a channel. It may skip states.
    #[must_use]
    pub fn watch(&self) -> watch::Receiver<GroupState> {
        self.want().subscribe()
    }

    /// Returns the changes of the members as a stream, which ends with the group object. It starts with a
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
    /// The closing continues when the future is dropped.
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

/// The paths of the members that were read, or are being read, and have not changed since, as far as the notifications
/// were handled.
#[derive(Default)]
struct Current(Mutex<BTreeSet<String>>);

impl Current {
    /// Returns the paths of the members that have to be read, among these ids. From here on their changes count. All
    /// other members are forgotten.
    fn unread(&self, group: &str, ids: &BTreeSet<String>) -> Vec<String> {
        let mut paths = self.0.lock();
        paths.retain(|path| ids.contains(node_from_path(path)));
        ids.iter().map(|id| make_path(group, id)).filter(|path| paths.insert(path.clone())).collect()
    }

    /// Handles a notification. Returns `true` if the task has to read a member again, `None` if changes are unknown.
    fn hears(&self, notification: SubscriptionEvent) -> Option<bool> {
        match notification {
            SubscriptionEvent::Event(event) => Some(self.0.lock().remove(&event.path)),
            SubscriptionEvent::Resynced => Some(false),
            _ => None,
        }
    }
}

impl Resync for Current {
    /// Returns the members. The watch on the listing restores itself.
    fn known(&self) -> KnownNodes {
        let data = self.0.lock().iter().cloned().collect();
        // All that the session has shown counts: it is applied, its notification is in the queue, or its reply is.
        KnownNodes { zxid: Some(Zxid::new(i64::MAX)), data, ..KnownNodes::default() }
    }
}

/// The task of one group.
struct Follower {
    client: CuratorFramework,
    path: String,
    state: watch::Sender<GroupState>,
    members: Members,
    pauses: Pauses,
    caught_up: CaughtUp,
}

/// Publishes the last state even if the runtime drops the task before its first poll.
impl Drop for Follower {
    fn drop(&mut self) {
        self.state.send_replace(GroupState::Closed);
    }
}

impl InSessions for Follower {
    type Error = Error;

    /// Follows the group until the session ends, or until a notification was missed.
    async fn work_in(&mut self, session: &Session) -> Result<(), Error> {
        self.caught_up.catch_up(session, &self.path).await?;
        let current = Arc::<Current>::default();
        let source =
            Source::open(session, &self.path, AddWatchMode::PersistentRecursive, Arc::<Current>::clone(&current));
        // The listing second: before 3.9 the newest watch on the children counts.
        let (source, mut listed) = join(source, session.get_children_watched(&self.path)).await;
        let mut source = source?;
        loop {
            let is_watched = match listed {
                Ok((names, listing)) => self.follow_members(session, names, listing, &mut source, &current).await?,
                Err(Error::NoNode { .. }) => self.wait_for_path(session, &current).await?,
                Err(error) => return Err(error),
            };
            if !is_watched {
                return Ok(());
            }
            listed = session.get_children_watched(&self.path).await;
        }
    }

    fn pauses(&mut self) -> &mut Pauses {
        &mut self.pauses
    }

    fn failed(&mut self, error: Error, may_pass: bool, pause: Duration) {
        if may_pass {
            return;
        }
        tracing::warn!(error = %Chain(&error), path = self.path, pause_s = pause.as_secs_f64(), "a group cannot be read");
        self.state.send_modify(|state| {
            *state = match state.members() {
                // Not the published ones: a listing may have been answered, and only a read be refused.
                Some(_) => GroupState::Refused { members: self.members.clone(), cause: error.into() },
                None => GroupState::Failed(error.into()),
            };
        });
    }
}

impl Follower {
    fn new(client: CuratorFramework, path: String, state: watch::Sender<GroupState>) -> Self {
        let (members, pauses, caught_up) = (Members::default(), Pauses::default(), CaughtUp::default());
        Self { client, path, state, members, pauses, caught_up }
    }

    /// Follows the group, once its members are wanted, until the client is closed.
    async fn run(mut self, mut stop: Stop, wanted: Arc<SetOnce<()>>) {
        let client = self.client.weak_clone();
        tokio::select! {
            biased;
            () = stop.requested() => return,
            () = client.closed() => return,
            _ = wanted.wait() => {}
        }
        tokio::select! {
            biased;
            () = stop.requested() => {}
            () = work_in_sessions(&client, &mut self) => {}
        }
    }

    /// Follows the members of a listing. Returns `true` when it has changed, `false` if the watches are lost.
    async fn follow_members(
        &mut self,
        session: &Session,
        names: Vec<String>,
        mut listing: Watch,
        source: &mut Source,
        current: &Current,
    ) -> Result<bool, Error> {
        let mut names = names.into_iter().collect();
        self.members.retain(&names);
        loop {
            // The notifications of a resync arrive before the session takes requests.
            if session.connected().await.is_err() {
                return Ok(false);
            }
            // A member that joins is notified ahead of the listing that shows it, and read once.
            while let Some(notification) = source.try_next() {
                if current.hears(notification).is_none() {
                    return Ok(false);
                }
            }
            self.read(&mut names, &source.reads, current).await?;
            self.publish();
            let news = async {
                while !current.hears(source.next().await?)? {}
                Some(())
            };
            tokio::select! {
                // The listing first: it spares the reads of members that have left.
                biased;
                reason = &mut listing => return Ok(is_news(reason)),
                news = news => if news.is_none() { return Ok(false) },
            }
        }
    }

    /// Waits until the path of the group is created. Returns `false` if the watch is lost.
    async fn wait_for_path(&mut self, session: &Session, current: &Current) -> Result<bool, Error> {
        self.members = Members::default();
        current.0.lock().clear();
        let (stat, created) = session.exists_watched(&self.path).await?;
        if stat.is_some() {
            return Ok(true);
        }
        self.publish();
        Ok(is_news(created.await))
    }

    /// Reads the members that have changed, and removes each that has left.
    async fn read(&mut self, names: &mut BTreeSet<String>, reads: &Reads, current: &Current) -> Result<(), Error> {
        let unread = current.unread(&self.path, names);
        let mut found = stream::iter(unread).map(|path| read_member(reads, path)).buffer_unordered(READS_AT_ONCE);
        while let Some((path, found)) = found.next().await {
            let id = node_from_path(&path);
            let Some((stat, data)) = found? else {
                // The watch on the listing reports it if the member joins again.
                self.members.remove(id);
                names.remove(id);
                current.0.lock().remove(&path);
                continue;
            };
            let data = self.client.from_stored(&path, data.clone(), None).unwrap_or(data);
            let (session, czxid) = (owning_session(stat.ephemeral_owner), Zxid::new(stat.czxid));
            self.members.set(Member { id: id.to_owned(), data, session, czxid });
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

/// Returns `true` if a watch was used up or removed on its connection, so that the list is read again.
fn is_news(reason: WakeReason) -> bool {
    matches!(reason, WakeReason::Event(_) | WakeReason::WatchRemoved)
}

/// Reads a member. If the client may not read it, its data is empty. From 3.8.4 and 3.9.2 on the servers then refuse its
/// stat too, so all of that is zero.
async fn read_member(reads: &Reads, path: String) -> (String, Result<Option<(Stat, Vec<u8>)>, Error>) {
    let found = match reads.get_data(&path).await {
        Err(Error::NoAuth { .. }) => match reads.exists(&path).await {
            Err(Error::NoAuth { .. }) => Ok(Some(Default::default())),
            found => found.map(|stat| Some((stat?, Vec::new()))),
        },
        found => found,
    };
    (path, found)
}
