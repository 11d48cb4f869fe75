//! The task that keeps one node standing.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use curator_framework::{
    Acl, CreateMode, CuratorFramework, Error, EventType, NodeSpec, Operation, Parents, Session, Stat, WakeReason,
    Watch, make_path,
};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};

use crate::nodes::claims::Claim;
use crate::nodes::error::{NodeError, NodeResult};
use crate::nodes::options::ForeignData;
use crate::nodes::persistent_node::PersistentNodeListener;
use crate::nodes::state::{NodeState, StandingNode};
use crate::nodes::verdict::{Facts, Known, Verdict};
use crate::standing::changes::Published;
use crate::standing::listeners::Listeners;
use crate::standing::{Pauses, Stop};

/// The time without a foreign change after which the next one is undone at once.
const CALM: Duration = Duration::from_secs(5);

/// The node to keep.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) path: String,
    pub(super) mode: CreateMode,
    pub(super) is_protected: bool,
    pub(super) parents: Parents,
    pub(super) acl: Option<Vec<Acl>>,
    pub(super) foreign_data: ForeignData,
    pub(super) touch: Option<Touch>,
}

impl Plan {
    /// Returns the mode of a node with a known name.
    const fn mode_of_name(&self) -> CreateMode {
        match self.mode {
            CreateMode::PersistentSequential => CreateMode::Persistent,
            CreateMode::EphemeralSequential => CreateMode::Ephemeral,
            CreateMode::PersistentSequentialWithTtl(ttl) => CreateMode::PersistentWithTtl(ttl),
            mode => mode,
        }
    }

    /// Returns the path if it is known before the first create.
    fn known_path(&self) -> Option<String> {
        (!self.mode.is_sequential() && !self.is_protected).then(|| self.path.clone())
    }
}

/// The child of a node with a time to live. Writes of the child keep the node.
#[derive(Debug)]
pub(super) struct Touch {
    pub(super) child: String,
    pub(super) ttl: Duration,
    pub(super) every: Duration,
}

/// The data that the node is to have.
#[derive(Debug, Clone)]
pub(super) struct Wanted {
    pub(super) data: Arc<[u8]>,
    /// The number of the data, from 1.
    pub(super) generation: u64,
    /// The data is the client's default data, which is known with the first session.
    pub(super) is_default: bool,
}

/// The newest data that the task has tried to write.
#[derive(Debug, Clone, Default)]
pub(super) struct Written {
    pub(super) generation: u64,
    /// The reason why it is not on the server.
    pub(super) refused: Option<NodeError>,
}

/// The state that a node shares with its task.
pub(super) struct Shared {
    pub(super) state: Published<NodeState>,
    pub(super) listeners: Listeners<dyn PersistentNodeListener>,
    pub(super) wanted: watch::Sender<Wanted>,
    pub(super) written: watch::Sender<Written>,
    pub(super) actual_path: watch::Sender<Option<String>>,
}

impl Shared {
    /// Returns the state before the start. Without data the node gets the client's default data.
    pub(super) fn new(data: Option<Vec<u8>>, plan: &Plan) -> Self {
        let is_default = data.is_none();
        let wanted = Wanted { data: data.unwrap_or_default().into(), generation: 1, is_default };
        Self {
            state: Published::new(NodeState::Latent),
            listeners: Listeners::default(),
            wanted: watch::Sender::new(wanted),
            written: watch::Sender::default(),
            actual_path: watch::Sender::new(plan.known_path()),
        }
    }

    pub(super) fn publish(&self, state: NodeState) {
        if !state.is_same(&self.state.newest()) {
            self.state.publish(state);
        }
    }
}

/// Publishes the last state, however the task ends.
pub(super) struct Ending(pub(super) Arc<Shared>);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.state.end(NodeState::Closed);
        self.0.listeners.close();
    }
}

/// The outcome of an attempt to place the node.
enum Placed {
    Standing,
    Taken,
    /// The node at the path has changed meanwhile.
    Again,
}

/// The task of one node.
pub(super) struct Keeper {
    client: CuratorFramework,
    plan: Arc<Plan>,
    shared: Arc<Shared>,
    wanted: watch::Receiver<Wanted>,
    stop: Stop,
    /// The session of the newest attempt.
    session: Option<Session>,
    known: Option<Known>,
    /// The claim to the known node.
    claim: Option<Claim>,
    /// The watch on the node at the path.
    watch: Option<Watch>,
    /// A notification has reported the deletion of the node. It may be late, and that of an earlier node.
    may_be_gone: bool,
    /// The node of which the listeners know.
    announced: Option<i64>,
    /// The sessions in which the reply to a create was lost.
    uncertain: BTreeSet<i64>,
    /// The generation of the data in the newest attempt.
    tried: u64,
    /// The generation of the data on the server; 0 if it is not known.
    written: u64,
    /// The generation of the newest data that the server has refused to a node that stands.
    refused: u64,
    /// The newest data that the server has accepted.
    accepted: Option<Arc<[u8]>>,
    foreign_data: Option<Vec<u8>>,
    touched: Option<Instant>,
    contest: Contest,
    pauses: Pauses,
    /// Publishes the last state also if the runtime drops the task before its first poll.
    _ending: Ending,
}

/// The pauses before foreign changes are undone, so that two clients that undo each other's changes do not spin.
#[derive(Default)]
struct Contest {
    last: Option<Instant>,
    pauses: Pauses,
}

impl Contest {
    /// Pauses, unless the last change is long ago. Fails when the task has to end.
    async fn pause(&mut self, stop: &mut Stop) -> NodeResult<()> {
        if self.last.is_some_and(|last| last.elapsed() < CALM) {
            tokio::select! {
                biased;
                () = stop.requested() => return Err(Error::Closed.into()),
                () = sleep(self.pauses.after(true)) => {}
            }
        } else {
            self.pauses = Pauses::default();
        }
        self.last = Some(Instant::now());
        Ok(())
    }
}

impl Keeper {
    pub(super) fn new(client: CuratorFramework, plan: Arc<Plan>, shared: Arc<Shared>, stop: Stop) -> Self {
        Self {
            client,
            plan,
            wanted: shared.wanted.subscribe(),
            _ending: Ending(Arc::clone(&shared)),
            shared,
            stop,
            session: None,
            known: None,
            claim: None,
            watch: None,
            may_be_gone: false,
            announced: None,
            uncertain: BTreeSet::new(),
            tried: 0,
            written: 0,
            refused: 0,
            accepted: None,
            foreign_data: None,
            touched: None,
            contest: Contest::default(),
            pauses: Pauses::default(),
        }
    }

    pub(super) async fn run(mut self) {
        let mut stop = self.stop.clone();
        loop {
            self.tried = self.wanted.borrow_and_update().generation;
            let session = tokio::select! {
                biased;
                () = stop.requested() => break,
                session = self.next_session() => session,
            };
            self.fill_in_default_data();
            let stood = match session {
                Ok(session) if self.path().is_none() && self.plan.is_protected => tokio::select! {
                    biased;
                    () = stop.requested() => break,
                    created = self.create_first(&session) => created,
                },
                // Not cancelled: without the reply to its create the node could be that of another object of this client.
                Ok(session) => self.stand(session).await,
                Err(error) => Err(error.into()),
            };
            match stood {
                Ok(()) => {}
                Err(NodeError::Framework(Error::Closed)) => break,
                Err(error) => tokio::select! {
                    biased;
                    () = stop.requested() => break,
                    () = self.pause_after(error) => {}
                },
            }
        }
        self.delete().await;
    }

    /// Waits for a session. Meanwhile an ephemeral node ends with the earlier one.
    async fn next_session(&self) -> curator_framework::Result<Session> {
        let mut connecting = std::pin::pin!(self.client.session());
        let Some(earlier) = self.session.as_ref().filter(|_| self.plan.mode.is_ephemeral()) else {
            return connecting.await;
        };
        let connected = tokio::select! {
            biased;
            connected = &mut connecting => Some(connected),
            _ = earlier.ended() => None,
        };
        if earlier.end_reason().is_some() && self.stands() {
            self.shared.publish(NodeState::Creating);
        }
        match connected {
            Some(connected) => connected,
            None => connecting.await,
        }
    }

    fn path(&self) -> Option<String> {
        self.shared.actual_path.borrow().clone()
    }

    fn fill_in_default_data(&self) {
        self.shared.wanted.send_if_modified(|wanted| {
            if wanted.is_default {
                wanted.data = self.client.default_data().into();
            }
            // Other data is a change; this is the data that was wanted from the beginning.
            false
        });
    }

    fn report(&self, generation: u64, refused: Option<NodeError>) {
        self.shared.written.send_replace(Written { generation, refused });
    }

    /// Waits before the next attempt. New data ends the pause, because it may be the cure.
    async fn pause_after(&mut self, error: NodeError) {
        // The client may be started later.
        let may_pass = error.is_retryable() || matches!(error, NodeError::Framework(Error::NotStarted));
        let (pause, path) = (self.pauses.after(may_pass), &self.plan.path);
        let pause_s = pause.as_secs_f64();
        if may_pass {
            tracing::debug!(%error, path, pause_s, "a node is created later");
        } else {
            tracing::warn!(%error, path, pause_s, "a node cannot be created");
            self.shared.publish(NodeState::Failed(error.clone()));
            self.report(self.tried, Some(error));
        }
        tokio::select! {
            () = sleep(pause) => {}
            changed = self.wanted.changed() => if changed.is_err() { sleep(pause).await },
        }
    }

    /// Places the node, and waits as long as it stands or another node is at its path.
    async fn stand(&mut self, session: Session) -> NodeResult<()> {
        self.session = Some(session.clone());
        let Some(path) = self.path() else { return self.create_first(&session).await };
        loop {
            match self.place(&session, &path).await? {
                Placed::Standing => {
                    self.hold(&session, &path).await?;
                    if session.end_reason().is_some() {
                        return Ok(());
                    }
                }
                Placed::Taken => return self.wait_for_other().await,
                Placed::Again => {}
            }
        }
    }

    /// Waits as long as the other node at the path does not change.
    async fn wait_for_other(&mut self) -> NodeResult<()> {
        loop {
            tokio::select! {
                biased;
                () = self.stop.requested() => return Err(Error::Closed.into()),
                _ = woken(&mut self.watch) => return Ok(()),
                changed = self.wanted.changed() => match changed {
                    Ok(()) => self.report_taken(),
                    Err(_no_owner) => return Ok(()),
                },
            }
        }
    }

    /// Creates the node of which the server, or the client, chooses the name.
    async fn create_first(&mut self, session: &Session) -> NodeResult<()> {
        let (wanted, plan) = (self.wanted.borrow_and_update().clone(), &self.plan);
        let created = if plan.is_protected {
            let mut create = self.client.create().with_mode(plan.mode).with_protection().with_data(&*wanted.data);
            if plan.parents != Parents::Expected {
                create = create.creating_parent_containers_if_needed();
            }
            if let Some(acl) = &plan.acl {
                create = create.with_acl(acl.clone());
            }
            create.for_path_with_stat(&plan.path).await
        } else {
            let stored = self.client.to_stored_at(&plan.path, &wanted.data)?;
            session.create_with_parents(&plan.path, plan.mode, &spec(plan, &stored)).await
        };
        let (path, stat) = created?;
        self.adopt(session, &stat, false);
        self.accept(&wanted);
        self.session = Some(session.clone());
        self.shared.actual_path.send_replace(Some(path));
        Ok(())
    }

    /// Creates the node, or finds it. Leaves a watch on the node at the path.
    async fn place(&mut self, session: &Session, path: &str) -> NodeResult<Placed> {
        let is_ephemeral = self.plan.mode.is_ephemeral();
        let is_of_session = |known: Known| !is_ephemeral || session.id() == Some(known.session);
        let may_stand = !self.may_be_gone && self.known.is_some_and(is_of_session);
        let (found, watch) = match may_stand {
            true => session.exists_watched(path).await?,
            false => self.create(session, path).await?,
        };
        (self.watch, self.may_be_gone) = (Some(watch), false);
        let Some(found) = found else {
            self.forget();
            return Ok(Placed::Again);
        };
        let facts = Facts { is_ephemeral, session: session.id(), known: self.known, uncertain: &self.uncertain };
        match facts.judge(&found) {
            Verdict::Known => {}
            Verdict::Found => {
                self.adopt(session, &found, false);
                if self.claim.is_none() {
                    return Ok(self.give_way(&found));
                }
            }
            Verdict::Adopt => self.adopt(session, &found, self.uncertain.is_empty()),
            Verdict::Dying => return self.replace(session, path, &found).await,
            Verdict::Taken => return Ok(self.give_way(&found)),
        }
        self.check_data(session, path, &found).await
    }

    fn adopt(&mut self, session: &Session, found: &Stat, adopted: bool) {
        self.claim = Claim::new(session, found.czxid);
        self.known = Some(Known::of(found, adopted));
        self.uncertain.clear();
        self.written = 0;
        self.foreign_data = None;
        self.touched = None;
    }

    fn forget(&mut self) {
        (self.known, self.claim) = (None, None);
        self.shared.publish(NodeState::Creating);
    }

    fn give_way(&mut self, found: &Stat) -> Placed {
        let (session, czxid) = (found.ephemeral_owner, found.czxid);
        (self.known, self.claim) = (None, None);
        // The answered create was behind all earlier ones of the session.
        if let Some(session) = &self.session {
            self.uncertain.remove(&session.id().unwrap_or_default());
        }
        let state = NodeState::TakenBy { session, czxid };
        if !state.is_same(&self.shared.state.newest()) {
            let session_id = tracing::field::display(format!("{session:#x}"));
            tracing::warn!(path = self.plan.path, session_id, "a node is taken");
        }
        self.shared.publish(state);
        self.report_taken();
        Placed::Taken
    }

    /// Reports that the newest wanted data waits for another session's node to go.
    fn report_taken(&mut self) {
        let generation = self.wanted.borrow_and_update().generation;
        if let NodeState::TakenBy { session, .. } = self.shared.state.newest() {
            let path = self.client.path_text(&self.plan.path);
            self.report(generation, Some(NodeError::TakenBy { path, session }));
        }
    }

    /// Sends a create and, in the same write, a read that sets a watch. Returns the node at the path.
    async fn create(&mut self, session: &Session, path: &str) -> NodeResult<(Option<Stat>, Watch)> {
        let wanted = self.wanted.borrow_and_update().clone();
        let stored = self.client.to_stored_at(path, &wanted.data)?;
        let id = session.id().unwrap_or_default();
        // Until the reply arrives the node may or may not exist, also if this future is dropped.
        let was_certain = self.uncertain.insert(id);
        let spec = spec(&self.plan, &stored);
        let create = session.create_with_parents(path, self.plan.mode_of_name(), &spec);
        let both = futures_util::future::join(create, session.exists_watched(path));
        let (created, looked) = session.in_one_write(both).await;
        if was_certain && !matches!(&created, Err(error) if error.outcome_unknown()) {
            self.uncertain.remove(&id);
        }
        match created {
            Ok((_, stat)) => {
                self.adopt(session, &stat, false);
                self.accept(&wanted);
                match looked? {
                    // The parents were missing when the read was executed.
                    (None, _) => Ok(session.exists_watched(path).await?),
                    looked => Ok(looked),
                }
            }
            Err(Error::NodeExists { .. }) => Ok(looked?),
            Err(error) => Err(error.into()),
        }
    }

    /// Replaces the node of an earlier session of this client, in one transaction: its name does not vanish meanwhile.
    async fn replace(&mut self, session: &Session, path: &str, dying: &Stat) -> NodeResult<Placed> {
        let wanted = self.wanted.borrow_and_update().clone();
        let data = self.client.to_stored_at(path, &wanted.data)?.into_owned();
        let acl = self.plan.acl.clone().unwrap_or_else(|| session.acl_for(path));
        let (path_of_new, mode) = (path.to_owned(), self.plan.mode_of_name());
        let operations = vec![
            Operation::Delete { path: path.to_owned(), version: Some(dying.version) },
            Operation::Create { path: path_of_new, data, acl, mode },
        ];
        let id = session.id().unwrap_or_default();
        let was_certain = self.uncertain.insert(id);
        let replaced = session.transaction(operations).await;
        if was_certain && matches!(&replaced, Err(error) if !error.outcome_unknown()) {
            self.uncertain.remove(&id);
        }
        match replaced {
            Ok(_) => {
                // Takes the notification of the deletion, which must not fire the watch on the new node.
                self.notified().await?;
                let (found, watch) = session.exists_watched(path).await?;
                self.watch = Some(watch);
                match found.filter(|found| session.id() == Some(found.ephemeral_owner)) {
                    Some(found) => {
                        self.adopt(session, &found, false);
                        self.accept(&wanted);
                        Ok(Placed::Standing)
                    }
                    None => Ok(Placed::Again),
                }
            }
            Err(Error::Unsupported { .. }) => Ok(self.give_way(dying)),
            Err(Error::Transaction { cause, .. }) => match *cause {
                Error::NoNode { .. } | Error::BadVersion { .. } | Error::NodeExists { .. } => Ok(Placed::Again),
                // No permission to delete the node: it goes with its session.
                Error::NoAuth { .. } => Ok(self.give_way(dying)),
                cause => Err(cause.into()),
            },
            Err(error) => Err(error.into()),
        }
    }

    /// Waits until the watch fires. Fails when the task has to end.
    async fn notified(&mut self) -> NodeResult<()> {
        tokio::select! {
            biased;
            () = self.stop.requested() => Err(Error::Closed.into()),
            _ = woken(&mut self.watch) => Ok(()),
        }
    }

    /// Waits as long as the node stands.
    async fn hold(&mut self, session: &Session, path: &str) -> NodeResult<()> {
        loop {
            if self.write(session, path).await? {
                let touch_at = self.touch(session, path).await?;
                self.publish_standing(path);
                let woken = tokio::select! {
                    biased;
                    () = self.stop.requested() => return Err(Error::Closed.into()),
                    woken = woken(&mut self.watch) => woken,
                    changed = self.wanted.changed() => match changed {
                        Ok(()) => continue,
                        Err(_no_owner) => return Ok(()),
                    },
                    () = wait_until(touch_at) => continue,
                };
                match woken {
                    WakeReason::SessionEnded(_) => return Ok(()),
                    WakeReason::Event(EventType::NodeDeleted) => {}
                    _ => match self.place(session, path).await? {
                        Placed::Standing => continue,
                        // The next attempt finds the other node.
                        Placed::Taken | Placed::Again => return Ok(()),
                    },
                }
            } else {
                // Takes the notification of the deletion, which must not fire the watch on the next node.
                self.notified().await?;
            }
            self.may_be_gone = true;
            self.shared.publish(NodeState::Creating);
            self.contest.pause(&mut self.stop).await?;
            return Ok(());
        }
    }

    /// Reads the data of the known node, unless it is certainly the last that this task has written.
    async fn check_data(&mut self, session: &Session, path: &str, found: &Stat) -> NodeResult<Placed> {
        let is_known = |known: &Known| known.version == found.version && self.written != 0;
        let Some(known) = self.known.filter(|known| !is_known(known)) else {
            return Ok(Placed::Standing);
        };
        let read = match session.get_data_watched(path).await {
            Ok(read) => read,
            Err(Error::NoNode { .. }) => return Ok(Placed::Again),
            // It may be written, but not read.
            Err(Error::NoAuth { .. }) => {
                self.known = Some(Known { version: found.version, ..known });
                return Ok(Placed::Standing);
            }
            Err(error) => return Err(error.into()),
        };
        if read.stat.czxid != known.czxid {
            return Ok(Placed::Again);
        }
        self.watch = Some(read.watch);
        self.known = Some(Known { version: read.stat.version, ..known });
        let wanted = self.wanted.borrow().clone();
        let data = self.client.from_stored(path, read.data.clone(), None).unwrap_or(read.data);
        if *data == *wanted.data {
            // Also a write of this task with a lost reply.
            self.accept(&wanted);
        } else if self.written == wanted.generation {
            // A refused write leaves it.
            self.foreign_data = Some(data);
            if self.plan.foreign_data == ForeignData::Mend {
                self.contest.pause(&mut self.stop).await?;
                self.written = 0;
            }
        }
        Ok(Placed::Standing)
    }

    /// Writes the wanted data, unless the server has it. Returns `false` if the node has gone.
    async fn write(&mut self, session: &Session, path: &str) -> NodeResult<bool> {
        loop {
            let wanted = self.wanted.borrow_and_update().clone();
            let Some(known) = self.known else { return Ok(false) };
            if self.written == wanted.generation {
                // The caller may not have looked at the refusal yet.
                if self.refused != wanted.generation {
                    self.report(wanted.generation, None);
                }
                return Ok(true);
            }
            let stored = self.client.to_stored_at(path, &wanted.data)?.into_owned();
            match session.set_data(path, stored, Some(known.version)).await {
                Ok(stat) if stat.czxid == known.czxid => {
                    self.known = Some(Known { version: stat.version, ..known });
                    self.accept(&wanted);
                }
                Ok(_) | Err(Error::NoNode { .. }) => return Ok(false),
                Err(Error::BadVersion { .. }) => match session.exists(path).await? {
                    Some(stat) if stat.czxid == known.czxid => {
                        self.known = Some(Known { version: stat.version, ..known });
                    }
                    _ => return Ok(false),
                },
                Err(error) if error.is_retryable() || !self.stands() => return Err(error.into()),
                Err(error) => {
                    tracing::warn!(%error, path, "a node's data cannot be written");
                    self.refuse(&wanted, error.into());
                    return Ok(true);
                }
            }
        }
    }

    /// Records that the server has the data.
    fn accept(&mut self, wanted: &Wanted) {
        self.written = wanted.generation;
        self.accepted = Some(Arc::clone(&wanted.data));
        self.foreign_data = None;
    }

    /// Takes back data that the server refuses: it must not keep the node from being created in a later session.
    fn refuse(&mut self, refused: &Wanted, error: NodeError) {
        (self.written, self.refused) = (refused.generation, refused.generation);
        if let Some(accepted) = &self.accepted {
            self.shared.wanted.send_if_modified(|wanted| {
                if wanted.generation == refused.generation {
                    wanted.data = Arc::clone(accepted);
                }
                false
            });
        }
        self.report(refused.generation, Some(error));
    }

    fn stands(&self) -> bool {
        matches!(self.shared.state.newest(), NodeState::Standing(_))
    }

    /// Writes the child that keeps a node with a time to live, if that is due. Returns the time of the next write.
    async fn touch(&mut self, session: &Session, path: &str) -> NodeResult<Option<Instant>> {
        let Some(touch) = &self.plan.touch else { return Ok(None) };
        if let Some(next) = self.touched.map(|last| last + touch.every).filter(|&next| next > Instant::now()) {
            return Ok(Some(next));
        }
        let (child, data) = (make_path(path, &touch.child), self.client.default_data().to_vec());
        let begun = Instant::now();
        match session.set_data(&child, data.clone(), None).await {
            Err(Error::NoNode { .. }) => {
                let acl = self.plan.acl.clone().unwrap_or_else(|| session.acl_for(&child));
                match session.create(&child, data, acl, CreateMode::PersistentWithTtl(touch.ttl)).await {
                    // Without its parent: the watch on that reports the deletion.
                    Ok(_) | Err(Error::NodeExists { .. } | Error::NoNode { .. }) => {}
                    Err(error) => return Err(error.into()),
                }
            }
            written => drop(written?),
        }
        self.touched = Some(begun);
        Ok(Some(begun + touch.every))
    }

    fn publish_standing(&mut self, path: &str) {
        let Some(known) = self.known else { return };
        self.pauses = Pauses::default();
        let Known { czxid, session, adopted, .. } = known;
        let foreign_data = self.foreign_data.clone();
        self.shared.publish(NodeState::Standing(StandingNode {
            path: path.to_owned(),
            czxid,
            session,
            adopted,
            foreign_data,
        }));
        if self.announced.replace(czxid) != Some(czxid) {
            tracing::info!(path, czxid, "a node stands");
            let path = path.to_owned();
            self.shared.listeners.notify(move |listener| listener.node_created(&path));
        }
    }

    /// Returns the session and the node that the end of the task leaves; with a `czxid` if that is certain.
    fn remains(&self) -> Option<(Session, String, Option<Known>)> {
        let (path, session) = (self.path()?, self.session.clone()?);
        let is_ephemeral = self.plan.mode.is_ephemeral();
        if self.plan.touch.is_some() || (is_ephemeral && session.end_reason().is_some()) {
            return None;
        }
        let id = session.id();
        let is_uncertain = match is_ephemeral {
            true => self.uncertain.contains(&id.unwrap_or_default()),
            false => !self.uncertain.is_empty(),
        };
        if is_uncertain {
            return Some((session, path, None));
        }
        // An ephemeral node of an earlier session goes with that.
        let known = self.known.filter(|known| !is_ephemeral || id == Some(known.session))?;
        Some((session, path, Some(known)))
    }

    /// Deletes the node at the end of the task. What cannot be deleted now is left to the background task of the client.
    async fn delete(&mut self) {
        let Some((session, path, Some(known))) = self.remains() else { return };
        let mut version = (!self.may_be_gone).then_some(known.version);
        let deleted = loop {
            if version.is_none() {
                version = match session.exists(&path).await {
                    Ok(Some(stat)) if stat.czxid == known.czxid => Some(stat.version),
                    Ok(_) => break Ok(()),
                    Err(error) => break Err(error),
                };
            }
            match session.delete(&path, version).await {
                Err(Error::BadVersion { .. }) => version = None,
                deleted => break deleted,
            }
        };
        match deleted {
            Ok(()) | Err(Error::NoNode { .. }) => self.known = None,
            Err(error) => tracing::debug!(%error, path, "a node is deleted in the background"),
        }
    }
}

impl Drop for Keeper {
    /// Leaves a node that was not deleted to the background task of the client, also if the runtime of the node ends.
    fn drop(&mut self) {
        if let Some((session, path, known)) = self.remains() {
            session.delete_in_background(&path, self.plan.mode, known.map(|known| known.czxid));
        }
    }
}

fn spec<'a>(plan: &'a Plan, stored: &'a [u8]) -> NodeSpec<'a> {
    let spec = NodeSpec::new(stored).with_parents(plan.parents);
    match &plan.acl {
        Some(acl) => spec.with_acl(acl),
        None => spec,
    }
}

/// Resolves when the watch fires.
async fn woken(watch: &mut Option<Watch>) -> WakeReason {
    match watch {
        Some(watch) => watch.await,
        None => std::future::pending().await,
    }
}

async fn wait_until(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => std::future::pending().await,
    }
}
