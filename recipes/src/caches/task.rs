//! The task of a cache: one loop a session around the engine.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use curator_framework::recipe::{RecipeClient as _, Resync, SubscriptionEvent};
use curator_framework::{AddWatchMode, Chain, CuratorFramework, Error, Session, Stat, Zxid};
use futures_util::FutureExt as _;
use tokio::time::{Instant, sleep, sleep_until};

use super::connection::Connection;
use super::contents::{KnownUpTo, Shared};
use super::engine::Engine;
use super::error::CacheError;
use super::model::CacheState;
use super::options::CuratorCacheOptions;
use super::request::{BatchSize, Completed, InFlight, Reply, Request, send};
use crate::standing::in_sessions::{InSessions, work_in_sessions};
use crate::standing::source::Source;
use crate::standing::{Pauses, Stop, catch_up};

/// The limit of a cache's reads in flight while it loads, or reads the changes of an outage. A request of a lock of
/// the same client waits behind at most so many reads.
const AT_ONCE_IN_A_LOAD: usize = 32;
/// The limit of the reads in flight once the contents are fresh. Each write of any client causes one.
const AT_ONCE: usize = 1024;
/// The pause after a request was lost on a connection that stays.
const PAUSE_AFTER_LOSS: Duration = Duration::from_secs(1);
/// The least pause after a reply above the client's limit: its transfer delays all other replies of the client.
const PAUSE_AFTER_LARGE: Duration = Duration::from_secs(1);
/// The codes of replies that the same read has again: `MARSHALLINGERROR`, `BADARGUMENTS`, `APIERROR`, `AUTHFAILED`,
/// `SESSIONCLOSEDREQUIRESASLAUTH`.
const LASTING: [i32; 5] = [-5, -8, -100, -115, -124];

pub(super) struct CacheTask {
    client: CuratorFramework,
    shared: Arc<Shared>,
    compressed: Option<bool>,
    keeps_contents: bool,
    /// The task creates the root before the next read.
    creates_root: bool,
    keeps_root: bool,
    reports_connection: bool,
    mode: AddWatchMode,
    max_watched_nodes: usize,
    pauses: Pauses,
    repeats: Repeats,
}

/// The pauses between the attempts of refused requests, across sessions.
#[derive(Default)]
struct Repeats {
    pauses: Pauses,
    /// The end of the pause.
    until: Option<Instant>,
}

impl Repeats {
    /// Records refusals. Returns the pause until the requests are sent again. Replies are spaced wider if they are large.
    fn refused(&mut self, is_large: bool) -> Duration {
        let pause = self.pauses.after(false).max(if is_large { PAUSE_AFTER_LARGE } else { Duration::ZERO });
        self.until = self.until.max(Some(Instant::now() + pause));
        pause
    }

    /// Returns the end of the pause, if it has not ended.
    fn paused_until(&self) -> Option<Instant> {
        self.until.filter(|until| *until > Instant::now())
    }
}

/// Ends the streams even if the runtime drops the task.
impl Drop for CacheTask {
    fn drop(&mut self) {
        self.shared.close(self.keeps_contents);
    }
}

/// The work of the task, which reports each session to the readers.
struct Following<'a> {
    task: &'a mut CacheTask,
    connection: &'a Connection,
}

impl InSessions for Following<'_> {
    type Error = CacheError;

    async fn work_in(&mut self, session: &Session) -> Result<(), CacheError> {
        if self.connection.is_in_another(session) {
            self.task.shared.begins_session(session);
        }
        self.task.follow_in(session, self.connection).await
    }

    fn pauses(&mut self) -> &mut Pauses {
        &mut self.task.pauses
    }

    fn failed(&mut self, error: CacheError, may_pass: bool, pause: Duration) {
        if !may_pass {
            cannot_be_filled(&self.task.shared, error, pause);
        }
    }
}

impl CacheTask {
    pub(super) fn new(client: CuratorFramework, shared: Arc<Shared>, options: &CuratorCacheOptions) -> Self {
        let is_single = options.max_depth == Some(0);
        let mode = if is_single { AddWatchMode::Persistent } else { AddWatchMode::PersistentRecursive };
        let CuratorCacheOptions { keeps_contents, creates_root, keeps_root, .. } = *options;
        let CuratorCacheOptions { reports_connection, max_watched_nodes, .. } = *options;
        let pauses = Pauses::default();
        Self {
            client,
            shared,
            compressed: options.compressed,
            keeps_contents,
            creates_root,
            keeps_root,
            reports_connection,
            mode,
            max_watched_nodes,
            pauses,
            repeats: Repeats::default(),
        }
    }

    pub(super) async fn run(mut self, mut stop: Stop) {
        let connection = Connection::new(&self.client, &self.shared);
        let (client, shared) = (self.client.weak_clone(), Arc::clone(&self.shared));
        let (keeps_root, reports_connection) = (self.keeps_root, self.reports_connection);
        let mut following = Following { task: &mut self, connection: &connection };
        tokio::select! {
            biased;
            () = stop.requested() => {}
            () = shared.has_failed() => {}
            // Ahead of the notifications that follow a change of the connection.
            () = connection.tell(), if reports_connection => {}
            () = keep_root(&client, &shared), if keeps_root => {}
            () = work_in_sessions(&client, &mut following) => {}
        }
    }

    /// Follows the nodes until the session ends.
    async fn follow_in(&mut self, session: &Session, connection: &Connection) -> Result<(), CacheError> {
        let shared = Arc::clone(&self.shared);
        let can_resync = shared.can_resync();
        if self.creates_root {
            self.client.create_containers(&shared.root).await?;
            self.creates_root = false;
        }
        if can_resync || shared.len() > 0 {
            // The server may lag behind the server of an earlier session, and the contents must not go back.
            catch_up(session, &shared.root).await?;
        }
        let epoch = session.epoch();
        if can_resync {
            // A larger zxid proves nothing: the servers may be restored from a backup.
            shared.trust_up_to(session.continues(shared.stats()).await?);
        }
        let resync: Arc<dyn Resync> = Arc::<Shared>::clone(&shared);
        let source = Source::open(session, &shared.root, self.mode, resync).await?;
        let is_one_shot = source.reads.is_one_shot();
        // Another connection may be one to servers with another history.
        let can_resync = shared.can_resync() && session.epoch() == epoch;
        shared.is_one_shot.store(is_one_shot, Ordering::Release);
        shared.update(|engine| {
            if is_one_shot {
                engine.list_leaves();
            }
            match can_resync && !is_one_shot {
                true => engine.check_root(),
                false => engine.restart(),
            }
        });
        // From here on a resync of the session starts at the client's own transaction.
        shared.set_known_up_to(KnownUpTo::Newest);
        let (reads, batch_size) = (InFlight::default(), BatchSize::default());
        let mut run = SessionRun { session: session.clone(), source, reads, batch_size, newest_stat: 0, lost: None };
        let ended = self.run_session(&mut run, connection).await;
        // The end of the session may come without a notice of the lost connection.
        shared.step(|_| None);
        // The notifications of the first resync have arrived: their end is in the queue when the subscription is made.
        let knows_all = ended.is_ok() && !is_one_shot;
        shared.set_known_up_to(session.zxid().filter(|_| knows_all).into());
        ended
    }

    /// Handles notifications and replies until the session ends.
    async fn run_session(&mut self, run: &mut SessionRun, connection: &Connection) -> Result<(), CacheError> {
        let mut batch = Batch::default();
        loop {
            let (is_connected, epoch) = (run.session.is_connected(), run.session.epoch());
            batch.take_from(run);
            if self.reports_connection && !batch.is_empty() {
                // Changes are reported after the connection that has brought them.
                connection.is_told().await;
            }
            let paused_until = self.step(run, &mut batch)?;
            let pause = async {
                sleep_until(paused_until?).await;
                Some(())
            };
            tokio::select! {
                biased;
                Some(completed) = run.reads.next() => batch.replies.push(completed),
                notification = run.source.next() => match notification {
                    Some(notification) => batch.notifications.push(notification),
                    None => return Ok(()),
                },
                () = self.shared.wake.notified() => {}
                () = run.session.connection_changed(is_connected, epoch) => {}
                Some(()) = pause => {}
            }
        }
    }

    /// Hands in a batch. Sends requests, and publishes how fresh the contents are. Returns the moment at which further
    /// requests can be sent without a notification or a reply.
    fn step(&mut self, run: &mut SessionRun, batch: &mut Batch) -> Result<Option<Instant>, CacheError> {
        let shared = Arc::clone(&self.shared);
        let (mut refused, mut failure, mut too_many, mut repeats_at) = (Vec::new(), None, None, None);
        let is_fresh = shared.step(|engine| {
            for notification in batch.notifications.drain(..) {
                apply_notification(&shared, engine, run, notification);
            }
            // After the notifications, because replies may be older.
            for completed in batch.replies.drain(..) {
                refused.extend(self.apply_replies(engine, run, completed));
            }
            repeats_at = self.repeat_refused(engine, refused.iter().map(|(_, error)| error));
            failure = engine.failure().cloned();
            too_many = self.too_many(run.source.reads.is_one_shot(), engine.tree().len());
            self.send_queued(engine, run);
            let is_current = run.session.is_connected() && !engine.awaits_resync();
            (is_current && failure.is_none() && too_many.is_none()).then_some(batch.zxid)
        });
        if is_fresh {
            self.pauses = Pauses::default();
        }
        let is_root_refused = refused.iter().any(|(path, _)| *path == shared.root);
        for (path, error) in refused {
            tracing::warn!(error = %Chain(&error), path, "a node cannot be cached");
        }
        if let Some(error) = failure.filter(|_| is_root_refused) {
            let pause = repeats_at.map_or(Duration::ZERO, |at| at.saturating_duration_since(Instant::now()));
            cannot_be_filled(&shared, error.into(), pause);
        }
        too_many.map_or_else(|| Ok(run.paused_until().into_iter().chain(repeats_at).min()), Err)
    }

    /// Sends refused requests again at the end of the pause. Returns that moment, if a request waits for it.
    fn repeat_refused<'a>(
        &mut self,
        engine: &mut Engine,
        refused: impl Iterator<Item = &'a Error> + Clone,
    ) -> Option<Instant> {
        if !engine.has_repeated() {
            self.repeats = Repeats::default();
            return None;
        }
        if refused.clone().next().is_some() {
            self.repeats.refused(refused.into_iter().any(|error| matches!(error, Error::ReplyTooLarge { .. })));
        }
        let until = self.repeats.paused_until();
        if until.is_none() {
            engine.pause_ended();
        }
        until.filter(|_| engine.awaits_pause())
    }

    /// Returns the error that ends the cache in this session, if it has too many nodes.
    fn too_many(&self, is_one_shot: bool, nodes: usize) -> Option<CacheError> {
        let limit = self.max_watched_nodes;
        let path = || self.client.path_text(&self.shared.root);
        (is_one_shot && nodes > limit).then(|| CacheError::TooManyNodes { path: path(), limit })
    }

    /// Hands in the replies to a request. Returns the paths of the nodes that cannot be cached, and the errors.
    fn apply_replies(&self, engine: &mut Engine, run: &mut SessionRun, completed: Completed) -> Vec<(String, Error)> {
        let Completed { requests, epoch, bytes, replies } = completed;
        let replies = match replies {
            Ok(replies) => {
                run.batch_size.replied(requests.len(), bytes);
                replies
            }
            Err(error) if may_pass(&error) || run.session.end_reason().is_some() => {
                run.pause_after_loss(epoch);
                requests.into_iter().for_each(|request| engine.was_lost(request));
                return Vec::new();
            }
            Err(error) => {
                run.batch_size.failed(requests.len(), &error);
                engine.was_not_read(requests);
                return Vec::new();
            }
        };
        let refusals = requests.into_iter().zip(replies);
        refusals.filter_map(|(request, reply)| self.apply_reply(engine, run, (request, epoch), reply)).collect()
    }

    /// Hands in the reply to a read. Returns the path and the error if the node cannot be cached.
    fn apply_reply(
        &self,
        engine: &mut Engine,
        run: &mut SessionRun,
        (request, epoch): (Request, u64),
        reply: Result<Reply, Error>,
    ) -> Option<(String, Error)> {
        let path = self.shared.full_path(request.path());
        let (stat, error) = match reply {
            Ok(Reply::Node(found)) => {
                found.iter().for_each(|(stat, _)| run.has_seen(stat));
                engine.was_read(request.path(), found);
                return None;
            }
            Ok(Reply::Undecodable(stat, error)) => {
                run.has_seen(&stat);
                (Some(stat), error)
            }
            Ok(Reply::Children(names)) => {
                engine.was_listed(request.path(), names);
                return None;
            }
            Err(error) if may_pass(&error) || run.session.end_reason().is_some() => {
                run.pause_after_loss(epoch);
                engine.was_lost(request);
                return None;
            }
            Err(error) => (None, error),
        };
        engine.was_refused(&request, stat.as_ref(), &error).then_some((path, error))
    }

    /// Sends as many requests as have room.
    fn send_queued(&self, engine: &mut Engine, run: &mut SessionRun) {
        if !run.session.is_connected() || run.paused_until().is_some() {
            return;
        }
        let is_fresh = self.shared.state.borrow().is_fresh();
        let is_one_shot = run.source.reads.is_one_shot();
        let at_once = if is_fresh && !is_one_shot { AT_ONCE } else { AT_ONCE_IN_A_LOAD };
        let epoch = run.session.epoch();
        loop {
            let size = if is_one_shot { 1 } else { run.batch_size.get() };
            // A request waits until it has room for all its reads.
            let requests = if run.reads.len() + size > at_once { Vec::new() } else { engine.next_requests(size) };
            if requests.is_empty() {
                return;
            }
            run.batch_size.sent(requests.len());
            let with_path = |request: Request| {
                let path = self.shared.full_path(request.path());
                (request, path)
            };
            let requests: Vec<_> = requests.into_iter().map(with_path).collect();
            let (client, compressed) = (self.client.clone(), self.compressed);
            let decode = move |path: &str, data| client.from_stored(path, data, compressed);
            run.reads.push(requests.len(), send(run.source.reads.clone(), requests, epoch, decode).boxed());
        }
    }
}

/// Publishes that the cache has failed until a later attempt.
fn cannot_be_filled(shared: &Shared, error: CacheError, pause: Duration) {
    let path = &shared.root;
    tracing::warn!(error = %Chain(&error), path, pause_s = pause.as_secs_f64(), "a cache cannot be filled");
    shared.state.send_replace(CacheState::Failed(error));
}

fn apply_notification(shared: &Shared, engine: &mut Engine, run: &mut SessionRun, notification: SubscriptionEvent) {
    match notification {
        SubscriptionEvent::Event(event) => {
            if let Some(path) = shared.relative(&event.path) {
                engine.notified(event.event_type, path);
            }
        }
        SubscriptionEvent::Resynced => {
            // These reads were sent on the lost connection.
            run.reads.clear();
            engine.resynced();
        }
        // Notifications were dropped, or the known nodes are of another server.
        _ => {
            run.reads.clear();
            engine.restart();
        }
    }
}

/// Creates the root whenever it does not exist, as a container. Never resolves.
async fn keep_root(client: &CuratorFramework, shared: &Shared) {
    let mut pauses = Pauses::default();
    loop {
        shared.root_is_missing().await;
        let created = async {
            client.create_containers(&shared.root).await?;
            // Until the cache shows the node, it appears to be missing.
            shared.shows_all_of(&client.session().await?, || client.path_text(&shared.root)).await
        };
        let Err(error) = created.await else {
            pauses = Pauses::default();
            continue;
        };
        let pause = pauses.after(error.is_retryable());
        tracing::warn!(error = %Chain(&error), path = shared.root, pause_s = pause.as_secs_f64(), "the root of a cache cannot be created");
        sleep(pause).await;
    }
}

/// Returns `true` for errors after which the same read may succeed. The connection is lost, or the server refuses reads
/// now, for example because it is overloaded. Unknown codes count too: a node that is left out is not read again before
/// its next change.
fn may_pass(error: &Error) -> bool {
    match error {
        Error::ZooKeeper { code, .. } => !LASTING.contains(code),
        _ => error.is_retryable(),
    }
}

/// The cache in one session.
struct SessionRun {
    session: Session,
    source: Source,
    reads: InFlight,
    batch_size: BatchSize,
    /// The newest transaction in a stat.
    newest_stat: i64,
    lost: Option<Lost>,
}

/// The notifications and replies to hand in together.
#[derive(Default)]
struct Batch {
    /// The notifications of all transactions up to this one have arrived.
    zxid: i64,
    notifications: Vec<SubscriptionEvent>,
    replies: Vec<Completed>,
}

impl Batch {
    /// Adds all that has arrived. The order counts. After the replies, and after the transaction, the notifications
    /// that the server has sent ahead of them have arrived.
    fn take_from(&mut self, run: &mut SessionRun) {
        self.replies.extend(std::iter::from_fn(|| run.reads.next().now_or_never().flatten()));
        self.zxid = run.zxid();
        self.notifications.extend(std::iter::from_fn(|| run.source.try_next()));
    }

    fn is_empty(&self) -> bool {
        self.notifications.is_empty() && self.replies.is_empty()
    }
}

/// The newest request that was lost.
struct Lost {
    /// The number of its connection.
    epoch: u64,
    /// The end of the pause.
    until: Instant,
}

impl SessionRun {
    /// Returns the newest transaction that a reply has shown. Some clients report none but those in stats.
    fn zxid(&self) -> i64 {
        self.session.zxid().map_or(self.newest_stat, Zxid::get)
    }

    /// Records the transactions in a stat.
    fn has_seen(&mut self, stat: &Stat) {
        self.newest_stat = self.newest_stat.max(stat.mzxid).max(stat.pzxid);
    }

    /// Records a request that was lost on a connection.
    fn pause_after_loss(&mut self, epoch: u64) {
        let epoch = self.lost.as_ref().map_or(epoch, |lost| lost.epoch.max(epoch));
        self.lost = Some(Lost { epoch, until: Instant::now() + PAUSE_AFTER_LOSS });
    }

    /// Returns the end of the pause, if a request was lost on the present connection: the next one may be lost too.
    fn paused_until(&self) -> Option<Instant> {
        let lost = self.lost.as_ref().filter(|lost| lost.epoch >= self.session.epoch())?;
        Some(lost.until).filter(|until| *until > Instant::now())
    }
}
