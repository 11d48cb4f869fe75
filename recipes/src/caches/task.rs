//! The task of a cache: one loop a session around the engine.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use curator_framework::{
    AddWatchMode, CuratorFramework, Error, Resync, Session, Stat, SubscriptionEvent, WatchKind, WatchedData,
};
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use tokio::time::{Instant, sleep, sleep_until};

use super::connection::Connection;
use super::engine::{Engine, Request};
use super::error::CacheError;
use super::events::CacheEvent;
use super::model::CacheState;
use super::options::CuratorCacheOptions;
use super::shared::Shared;
use super::source::{NodeWatch, Source, Watches};
use crate::standing::{Pauses, Stop, catch_up};

/// The limit of a cache's requests in flight while it loads, or reads the changes of an outage. A request of a lock of
/// the same client waits behind at most so many reads.
const AT_ONCE_IN_A_LOAD: usize = 32;
/// The limit of the requests in flight once the contents are fresh. Each write of any client causes one.
const AT_ONCE: usize = 1024;
/// The pause after a request was lost on a connection that stays.
const HOLD_UP: Duration = Duration::from_secs(1);

/// The reply to a request; `None` if the node does not exist.
enum Found {
    Node(Option<(Stat, Vec<u8>)>),
    Children(Option<Vec<String>>),
}

/// A request that has ended, with the number of the connection on which it began.
struct Ended {
    request: Request,
    epoch: u64,
    found: Result<Found, Error>,
    watch: Option<NodeWatch>,
}

/// The task of one cache.
pub(super) struct CacheTask {
    client: CuratorFramework,
    shared: Arc<Shared>,
    compressed: Option<bool>,
    keeps_contents: bool,
    keeps_root: bool,
    mode: AddWatchMode,
    max_nodes: usize,
    pauses: Pauses,
}

/// Ends the streams also if the runtime drops the task.
impl Drop for CacheTask {
    fn drop(&mut self) {
        self.shared.close(self.keeps_contents);
    }
}

impl CacheTask {
    pub(super) fn new(client: CuratorFramework, shared: Arc<Shared>, options: &CuratorCacheOptions) -> Self {
        let is_single = options.max_depth == Some(0);
        let mode = if is_single { AddWatchMode::Persistent } else { AddWatchMode::PersistentRecursive };
        let compressed = options.compressed.then_some(true);
        let CuratorCacheOptions { keeps_contents, keeps_root, max_nodes, .. } = *options;
        let pauses = Pauses::default();
        Self { client, shared, compressed, keeps_contents, keeps_root, mode, max_nodes, pauses }
    }

    pub(super) async fn run(mut self, mut stop: Stop) {
        let connection = Connection::new(&self.client, &self.shared);
        let (client, shared) = (self.client.weak_clone(), Arc::clone(&self.shared));
        let keeps_root = self.keeps_root;
        tokio::select! {
            biased;
            () = stop.requested() => {}
            // Ahead of the notifications that follow a change of the connection.
            () = connection.tell() => {}
            () = keep_root(&client, &shared), if keeps_root => {}
            () = self.follow(&connection) => {}
        }
    }

    /// Follows the nodes until the client is closed.
    async fn follow(&mut self, connection: &Connection) {
        loop {
            let followed = match self.client.session().await {
                Ok(session) => {
                    if connection.is_in_another(&session) {
                        self.shared.begins_session(&session);
                    }
                    self.follow_in(&session).await
                }
                Err(error) => Err(error.into()),
            };
            let error = match followed {
                Ok(()) => continue,
                Err(CacheError::Framework(Error::Closed)) => return,
                Err(error) => error,
            };
            // The client may be started later.
            let may_pass = error.is_retryable() || matches!(error, CacheError::Framework(Error::NotStarted));
            let pause = self.pauses.after(may_pass);
            if !may_pass {
                let path = &self.shared.root;
                tracing::warn!(%error, path, pause_s = pause.as_secs_f64(), "a cache cannot be filled");
                self.shared.state.send_replace(CacheState::Failed(error));
            }
            sleep(pause).await;
        }
    }

    /// Follows the nodes until the session ends.
    async fn follow_in(&mut self, session: &Session) -> Result<(), CacheError> {
        let shared = Arc::clone(&self.shared);
        let can_resync = shared.can_resync();
        if can_resync || shared.len() > 0 {
            // The server may lag behind that of an earlier session, and the contents must not go back.
            catch_up(session, &shared.root).await?;
        }
        let resync: Arc<dyn Resync> = Arc::<Shared>::clone(&shared);
        let source = match session.subscribe(&shared.root, self.mode, Some(resync)).await {
            Err(Error::Unsupported { .. }) => Source::Watches(Watches::new(session)),
            subscribed => Source::Subscription(subscribed?),
        };
        let awaits_resync = can_resync && !source.is_one_shot();
        shared.is_one_shot.store(source.is_one_shot(), Ordering::Release);
        shared.update(|engine| {
            if source.is_one_shot() {
                engine.list_leaves();
            }
            match awaits_resync {
                true => engine.check_root(),
                false => {
                    engine.all_lost();
                    engine.read_all();
                }
            }
        });
        // From here on a resync of the session begins at the client's own transaction.
        shared.know_up_to(i64::MAX);
        let reads = FuturesUnordered::new();
        let mut stay = Stay { session: session.clone(), source, reads, awaits_resync, newest_stat: 0, lost: None };
        let ended = self.stay(&mut stay).await;
        // The end of the session may come without a notice of the lost connection.
        shared.turn(|_| (None, Vec::new()));
        let knows_all = ended.is_ok() && !stay.awaits_resync && !stay.source.is_one_shot();
        shared.know_up_to(if knows_all { session.zxid() } else { 0 });
        ended
    }

    /// Handles notifications and replies until the session ends.
    async fn stay(&mut self, stay: &mut Stay) -> Result<(), CacheError> {
        let mut connection = self.client.watch_connection_state();
        let (mut notifications, mut ended) = (Vec::new(), Vec::new());
        loop {
            // Read before the notifications are taken: those of all transactions up to this one have arrived.
            let zxid = stay.zxid();
            notifications.extend(std::iter::from_fn(|| stay.source.try_next()));
            self.turn(stay, zxid, notifications.drain(..), ended.drain(..))?;
            let held_up_until = stay.held_up_until();
            let pause = async {
                sleep_until(held_up_until?).await;
                Some(())
            };
            tokio::select! {
                biased;
                Some(first) = stay.reads.next() => {
                    ended.push(first);
                    ended.extend(std::iter::from_fn(|| stay.reads.next().now_or_never().flatten()));
                }
                notification = stay.source.next() => match notification {
                    Some(notification) => notifications.push(notification),
                    None => return Ok(()),
                },
                () = self.shared.looked_for.notified() => {}
                changed = connection.changed() => if changed.is_err() {
                    return Err(Error::Closed.into());
                },
                Some(()) = pause => {}
            }
        }
    }

    /// Hands in notifications, then replies, which may be older. Sends requests, and publishes how fresh the contents are.
    fn turn(
        &mut self,
        stay: &mut Stay,
        zxid: i64,
        notifications: impl Iterator<Item = SubscriptionEvent>,
        ended: impl Iterator<Item = Ended>,
    ) -> Result<(), CacheError> {
        let shared = Arc::clone(&self.shared);
        let (mut failed, mut end) = (Vec::new(), None);
        let is_fresh = shared.turn(|engine| {
            for notification in notifications {
                handle(&shared, engine, stay, notification);
            }
            for ended in ended {
                failed.extend(self.apply(engine, stay, ended));
            }
            end = self.end(stay.source.is_one_shot(), engine.tree().len(), &failed);
            self.send(engine, stay);
            let is_current = stay.session.is_connected() && !stay.awaits_resync && end.is_none();
            let failure = |(path, error): &(String, Error)| CacheEvent::Failed {
                path: path.clone(),
                error: error.clone().into(),
            };
            (is_current.then_some(zxid), failed.iter().map(failure).collect())
        });
        if is_fresh {
            self.pauses = Pauses::default();
        }
        for (path, error) in failed {
            tracing::warn!(%error, path, "a node cannot be cached");
        }
        end.map_or(Ok(()), Err)
    }

    /// Returns the error that ends the cache in this session: the root cannot be read, or there are too many nodes.
    fn end(&self, is_one_shot: bool, nodes: usize, failed: &[(String, Error)]) -> Option<CacheError> {
        let root = &self.shared.root;
        if let Some((_, error)) = failed.iter().find(|(path, _)| path == root) {
            return Some(error.clone().into());
        }
        let limit = self.max_nodes;
        (is_one_shot && nodes > limit).then(|| CacheError::TooManyNodes { path: self.client.path_text(root), limit })
    }

    /// Hands in the reply to a request. Returns the path and the error if the node cannot be cached.
    fn apply(&self, engine: &mut Engine, stay: &mut Stay, ended: Ended) -> Option<(String, Error)> {
        let Ended { request, epoch, found, watch } = ended;
        stay.source.add(watch);
        let found = match found {
            Ok(Found::Node(Some((stat, data)))) => {
                stay.newest_stat = stay.newest_stat.max(stat.mzxid).max(stat.pzxid);
                let path = self.shared.full_path(request.path());
                let data = self.client.from_stored(&path, data, self.compressed);
                data.map(|data| Found::Node(Some((stat, data))))
            }
            found => found,
        };
        match found {
            Ok(Found::Node(found)) => engine.was_read(request.path(), found),
            Ok(Found::Children(names)) => engine.was_listed(request.path(), names),
            Err(error) if is_of_the_server(&error) || stay.session.end_reason().is_some() => {
                stay.was_lost(epoch);
                engine.was_not_answered(request);
            }
            Err(error) => {
                let path = self.shared.full_path(request.path());
                engine.was_refused(request);
                return Some((path, error));
            }
        }
        None
    }

    /// Sends as many requests as have room.
    fn send(&self, engine: &mut Engine, stay: &mut Stay) {
        if !stay.session.is_connected() || stay.awaits_resync || stay.held_up_until().is_some() {
            return;
        }
        let is_one_shot = stay.source.is_one_shot();
        let is_fresh = self.shared.state.borrow().is_fresh();
        let at_once = if is_fresh && !is_one_shot { AT_ONCE } else { AT_ONCE_IN_A_LOAD };
        let epoch = stay.session.epoch();
        while stay.reads.len() < at_once {
            let Some(request) = engine.next_request() else { return };
            let path = self.shared.full_path(request.path());
            stay.reads.push(send(stay.session.clone(), path, request, epoch, is_one_shot));
        }
    }
}

fn handle(shared: &Shared, engine: &mut Engine, stay: &mut Stay, notification: SubscriptionEvent) {
    match notification {
        SubscriptionEvent::Event(event) => {
            if let Some(path) = shared.relative(&event.path) {
                engine.notified(event.event_type, path);
            }
        }
        SubscriptionEvent::Resynced => {
            // These reads were sent on the lost connection.
            stay.reads.clear();
            stay.awaits_resync = false;
            engine.resynced();
        }
        // Notifications were dropped, or the known nodes are of another server.
        _ => {
            stay.reads.clear();
            stay.awaits_resync = false;
            engine.all_lost();
            engine.read_all();
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
            // Until the cache shows the node, it looks as if it were missing.
            shared.shows_all_of(&client.session().await?, || client.path_text(&shared.root)).await
        };
        let Err(error) = created.await else {
            pauses = Pauses::default();
            continue;
        };
        let pause = pauses.after(error.is_retryable());
        tracing::warn!(%error, path = shared.root, pause_s = pause.as_secs_f64(), "the root of a cache cannot be created");
        sleep(pause).await;
    }
}

/// Returns `true` for errors that say nothing of the node. The connection is lost, or the server refuses such a request
/// now, for example because it is overloaded.
fn is_of_the_server(error: &Error) -> bool {
    error.is_retryable() || matches!(error, Error::ZooKeeper { .. })
}

/// The cache in one session.
struct Stay {
    session: Session,
    source: Source,
    reads: FuturesUnordered<BoxFuture<'static, Ended>>,
    /// The notifications of a resync have not all arrived.
    awaits_resync: bool,
    /// The newest transaction in a stat.
    newest_stat: i64,
    lost: Option<Lost>,
}

/// The newest request that was lost.
struct Lost {
    /// The number of its connection.
    epoch: u64,
    /// The end of the pause.
    until: Instant,
}

impl Stay {
    /// Returns the newest transaction that a reply has shown. Some clients report none but those in stats.
    fn zxid(&self) -> i64 {
        match self.session.zxid() {
            0 => self.newest_stat,
            zxid => zxid,
        }
    }

    /// Records a request that was lost on a connection.
    fn was_lost(&mut self, epoch: u64) {
        let epoch = self.lost.as_ref().map_or(epoch, |lost| lost.epoch.max(epoch));
        self.lost = Some(Lost { epoch, until: Instant::now() + HOLD_UP });
    }

    /// Returns the end of the pause, if a request was lost on the present connection: the next one may be lost too.
    fn held_up_until(&self) -> Option<Instant> {
        let lost = self.lost.as_ref().filter(|lost| lost.epoch >= self.session.epoch())?;
        Some(lost.until).filter(|until| *until > Instant::now())
    }
}

fn send(session: Session, path: String, request: Request, epoch: u64, is_watched: bool) -> BoxFuture<'static, Ended> {
    async move {
        let (found, watch) = match is_watched {
            true => read_watched(&session, path, &request).await,
            false => (read(&session, &path, &request).await, None),
        };
        let found = match (found, &request) {
            (Err(Error::NoNode { .. }), Request::Read(_)) => Ok(Found::Node(None)),
            (Err(Error::NoNode { .. }), Request::List(_)) => Ok(Found::Children(None)),
            (found, _) => found,
        };
        Ended { request, epoch, found, watch }
    }
    .boxed()
}

async fn read(session: &Session, path: &str, request: &Request) -> Result<Found, Error> {
    match request {
        Request::Read(_) => session.get_data(path).await.map(|(data, stat)| Found::Node(Some((stat, data)))),
        Request::List(_) => session.get_children(path).await.map(|names| Found::Children(Some(names))),
    }
}

/// Reads a node, or the list of its children, and sets a watch. A missing root has a watch too.
async fn read_watched(session: &Session, path: String, request: &Request) -> (Result<Found, Error>, Option<NodeWatch>) {
    let read = match request {
        Request::Read(relative) => loop {
            match session.get_data_watched(&path).await {
                Ok(WatchedData { data, stat, watch }) => {
                    break Ok((Found::Node(Some((stat, data))), WatchKind::Data, watch));
                }
                Err(Error::NoNode { .. }) if relative.is_empty() => match session.exists_watched(&path).await {
                    // The root was created between the two requests.
                    Ok((Some(_), _)) => {}
                    Ok((None, watch)) => break Ok((Found::Node(None), WatchKind::Data, watch)),
                    Err(error) => break Err(error),
                },
                Err(error) => break Err(error),
            }
        },
        Request::List(_) => session
            .get_children_watched(&path)
            .await
            .map(|(names, watch)| (Found::Children(Some(names)), WatchKind::Children, watch)),
    };
    match read {
        Ok((found, kind, watch)) => (Ok(found), Some(NodeWatch { path, kind, watch })),
        Err(error) => (Err(error), None),
    }
}
