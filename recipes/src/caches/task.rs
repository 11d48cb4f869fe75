//! The task of a cache: one loop a session around the engine.

use std::sync::Arc;

use curator_framework::{
    AddWatchMode, CuratorFramework, Error, Resync, Session, Stat, Subscription, SubscriptionEvent,
};
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use tokio::time::{Instant, sleep};

use super::engine::Request;
use super::error::CacheError;
use super::events::CacheEvent;
use super::model::CacheState;
use super::options::CuratorCacheOptions;
use super::shared::Shared;
use crate::standing::{Pauses, Stop};

/// The number of requests that a cache has in flight. Locks of the same client wait behind at most so many reads.
const AT_ONCE: usize = 32;

/// What a request has found; `None` if the node does not exist.
enum Found {
    Node(Option<(Stat, Vec<u8>)>),
    Children(Option<Vec<String>>),
}

/// A request that has ended, with the number of the connection on which it began.
struct Ended {
    request: Request,
    epoch: u64,
    found: Result<Found, Error>,
}

/// The task of one cache.
pub(super) struct CacheTask {
    client: CuratorFramework,
    shared: Arc<Shared>,
    compressed: Option<bool>,
    keeps_contents: bool,
    mode: AddWatchMode,
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
        let keeps_contents = options.keeps_contents;
        Self { client, shared, compressed, keeps_contents, mode, pauses: Pauses::default() }
    }

    pub(super) async fn run(mut self, mut stop: Stop) {
        tokio::select! {
            biased;
            () = stop.requested() => {}
            () = self.follow() => {}
        }
    }

    /// Follows the nodes until the client is closed.
    async fn follow(&mut self) {
        loop {
            let followed = match self.client.session().await {
                Ok(session) => self.follow_in(&session).await,
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
        let resync: Arc<dyn Resync> = Arc::<Shared>::clone(&shared);
        let subscription = session.subscribe(&shared.root, self.mode, Some(resync)).await?;
        shared.update(|engine| {
            if can_resync {
                engine.check_root();
            } else {
                engine.read_all();
            }
        });
        // From here on the client knows up to which transaction all notifications have arrived.
        shared.know_up_to(i64::MAX);
        let is_resynced = !can_resync;
        let mut stay =
            Stay { session: session.clone(), subscription, reads: FuturesUnordered::new(), is_resynced, lost: None };
        let ended = self.stay(&mut stay).await;
        shared.know_up_to(if ended.is_ok() { session.zxid() } else { 0 });
        ended
    }

    /// Handles notifications and replies until the session ends.
    async fn stay(&mut self, stay: &mut Stay) -> Result<(), CacheError> {
        let mut connection = self.client.watch_connection_state();
        loop {
            self.look(stay);
            let ended = tokio::select! {
                biased;
                event = stay.subscription.next() => match event {
                    Some(event) => {
                        self.handle(stay, event);
                        continue;
                    }
                    None => return Ok(()),
                },
                Some(ended) = stay.reads.next() => ended,
                () = self.shared.looked_for.notified() => continue,
                changed = connection.changed() => match changed {
                    Ok(()) => continue,
                    Err(_) => return Err(Error::Closed.into()),
                },
            };
            let mut all = vec![ended];
            while let Some(Some(ended)) = stay.reads.next().now_or_never() {
                all.push(ended);
            }
            // Notifications come first: a reply may be older than one of them.
            while let Some(event) = stay.subscription.try_next() {
                self.handle(stay, event);
            }
            self.apply(stay, all)?;
        }
    }

    /// Publishes how fresh the contents are, and sends requests.
    fn look(&mut self, stay: &mut Stay) {
        // Ahead of the notifications: all up to this transaction have arrived.
        let zxid = stay.session.zxid();
        while let Some(event) = stay.subscription.try_next() {
            self.handle(stay, event);
        }
        let is_connected = stay.session.is_connected();
        if !is_connected || !stay.is_resynced {
            self.publish_stale();
            return;
        }
        let fresh = self.shared.update(|engine| {
            let epoch = stay.session.epoch();
            while stay.reads.len() < AT_ONCE && stay.lost.is_none_or(|lost| lost < epoch) {
                let Some(request) = engine.next_request() else { break };
                stay.reads.push(send(stay.session.clone(), self.shared.full_path(request.path()), request, epoch));
            }
            engine.mark(zxid)
        });
        self.publish_fresh(fresh);
    }

    fn handle(&self, stay: &mut Stay, event: SubscriptionEvent) {
        match event {
            SubscriptionEvent::Event(event) => {
                if let Some(path) = self.shared.relative(&event.path) {
                    self.shared.update(|engine| engine.notified(event.event_type, path));
                }
            }
            SubscriptionEvent::Resynced => {
                // Those that are left ran on the lost connection.
                stay.reads.clear();
                stay.is_resynced = true;
                self.shared.update(|engine| engine.resynced());
            }
            // Notifications were dropped, or the known nodes are not those of this server.
            _ => {
                stay.reads.clear();
                stay.is_resynced = true;
                self.shared.update(|engine| {
                    engine.all_lost();
                    engine.read_all();
                });
            }
        }
    }

    fn apply(&self, stay: &mut Stay, all: Vec<Ended>) -> Result<(), CacheError> {
        let mut failed = Vec::new();
        let mut root_failed = None;
        self.shared.update(|engine| {
            for Ended { request, epoch, found } in all {
                let found = match found {
                    Ok(Found::Node(Some((stat, data)))) => {
                        let path = self.shared.full_path(request.path());
                        let data = self.client.from_stored(&path, data, self.compressed);
                        data.map(|data| Found::Node(Some((stat, data))))
                    }
                    found => found,
                };
                match found {
                    Ok(Found::Node(found)) => engine.was_read(request.path(), found),
                    Ok(Found::Children(names)) => engine.was_listed(request.path(), names),
                    Err(error) if error.is_retryable() || stay.session.end_reason().is_some() => {
                        stay.lost = stay.lost.max(Some(epoch));
                        engine.was_not_answered(request);
                    }
                    Err(error) => {
                        if request.path().is_empty() {
                            root_failed = Some(error.clone());
                        }
                        failed.push((self.shared.full_path(request.path()), error));
                        engine.was_refused(request);
                    }
                }
            }
        });
        for (path, error) in failed {
            tracing::warn!(%error, path, "a node cannot be cached");
            self.shared.tell(CacheEvent::Failed { path, error: error.into() });
        }
        root_failed.map_or(Ok(()), |error| Err(error.into()))
    }

    fn publish_fresh(&mut self, fresh: Option<i64>) {
        let Some(zxid) = fresh else {
            self.publish(CacheState::Loading, |state| matches!(state, CacheState::Loading));
            return;
        };
        self.pauses = Pauses::default();
        self.shared.initialized();
        self.publish(CacheState::Fresh(zxid), |state| matches!(state, CacheState::Fresh(known) if *known == zxid));
    }

    fn publish_stale(&self) {
        let zxid = self.shared.state.borrow().zxid();
        match zxid {
            Some(zxid) => {
                let stale = CacheState::Stale { since: Instant::now(), zxid };
                self.publish(stale, |state| matches!(state, CacheState::Stale { .. }));
            }
            None => self.publish(CacheState::Loading, |state| matches!(state, CacheState::Loading)),
        }
    }

    fn publish(&self, state: CacheState, is_same: impl Fn(&CacheState) -> bool) {
        self.shared.state.send_if_modified(|published| {
            let is_new = !is_same(published);
            if is_new {
                *published = state;
            }
            is_new
        });
    }
}

/// The cache in one session.
struct Stay {
    session: Session,
    subscription: Subscription,
    reads: FuturesUnordered<BoxFuture<'static, Ended>>,
    /// The changes between the sessions have arrived.
    is_resynced: bool,
    /// The newest connection on which a request was lost.
    lost: Option<u64>,
}

fn send(session: Session, path: String, request: Request, epoch: u64) -> BoxFuture<'static, Ended> {
    async move {
        let found = match &request {
            Request::Read(_) => session.get_data(&path).await.map(|(data, stat)| Found::Node(Some((stat, data)))),
            Request::List(_) => session.get_children(&path).await.map(|names| Found::Children(Some(names))),
        };
        let found = match (found, &request) {
            (Err(Error::NoNode { .. }), Request::Read(_)) => Ok(Found::Node(None)),
            (Err(Error::NoNode { .. }), Request::List(_)) => Ok(Found::Children(None)),
            (found, _) => found,
        };
        Ended { request, epoch, found }
    }
    .boxed()
}
