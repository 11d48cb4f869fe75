//! The part of a queue that its clones share.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use curator_framework::recipe::{Budget, RecipeClient as _};
use curator_framework::spi::Operation;
use curator_framework::{
    Chain, CreateMode, CuratorFramework, Error, PathText, RetryLoop, Session, Stat, WakeReason, Zxid, make_path,
    node_from_path,
};
use futures_util::future::join_all;
use tokio::sync::MutexGuard;

use crate::codec::Codec;
use crate::queues::error::QueueError;
use crate::queues::items::{self, Content, History};
use crate::queues::names::{self, Kind, Ordered};
use crate::queues::options::{Checked, Mode, QueueOptions};
use crate::queues::paths::PathsMade;
use crate::queues::proving::Markers;
use crate::queues::put::{NewNode, Producer, QueuePath, end_of_budget};
use crate::queues::queued::QueuedItem;
use crate::reads::read_children;

/// The number of items that one request reads.
const READ_AT_ONCE: usize = 16;
/// The number of items that are removed at once.
const REMOVED_AT_ONCE: usize = 64;

/// The shared part of a queue.
pub(super) struct Shared<T> {
    pub(super) client: CuratorFramework,
    pub(super) path: String,
    pub(super) kind: Kind,
    pub(super) codec: Arc<dyn Codec<T>>,
    pub(super) options: Checked,
    pub(super) markers: Arc<Markers>,
    producer: Producer,
    /// Held by the put that counts the items, until it is done.
    bound: tokio::sync::Mutex<()>,
}

/// The content of an item's node.
pub(super) struct Decoded<T> {
    pub(super) items: Vec<T>,
    /// The deliveries from earlier nodes of the item.
    pub(super) history: History,
    /// The data, decompressed.
    pub(super) plain: Vec<u8>,
}

impl<T> Shared<T> {
    pub(super) fn new(
        client: CuratorFramework,
        path: String,
        kind: Kind,
        codec: Arc<dyn Codec<T>>,
        options: QueueOptions,
    ) -> Result<Self, QueueError> {
        let options = options.check(&client, &path)?;
        if kind == Kind::Id && path.contains('|') {
            return Err(QueueError::invalid("path", "the path of a queue with ids cannot contain '|'"));
        }
        let markers = Arc::new(Markers::new(client.clone(), path.clone()));
        let producer = Producer::new(client.clone(), path.clone(), QueuePath::Persistent, Arc::clone(&markers));
        let bound = tokio::sync::Mutex::default();
        Ok(Self { client, path, kind, codec, options, markers, producer, bound })
    }

    /// Returns the path of the node with this name.
    pub(super) fn node(&self, name: &str) -> String {
        make_path(&self.path, name)
    }

    /// Returns the path of the node with this name, for an error.
    pub(super) fn node_text(&self, name: &str) -> PathText {
        self.client.path_text(&self.node(name))
    }

    /// Returns the error of a read, a claim or the end of an item. What the server refuses for this item alone is an error of its
    /// own.
    pub(super) fn item_error(&self, path: &str, error: Error) -> QueueError {
        let path = self.client.path_text(path);
        let is_of_item = match &error {
            Error::NoAuth { path: of } | Error::NotEmpty { path: of } | Error::ReplyTooLarge { path: of, .. } => {
                *of == path
            }
            Error::RequestTooLarge { .. } => true,
            _ => false,
        };
        if is_of_item { QueueError::Refused { path, cause: error } } else { error.into() }
    }

    /// Logs an error about one item.
    pub(super) fn report(&self, error: &QueueError) {
        if error.is_of_one_item() {
            tracing::warn!(path = %self.path, error = %Chain(error), "an item cannot be delivered");
        }
    }

    /// Returns the data of one node with these items.
    pub(super) fn encode<'a>(&self, batch: impl IntoIterator<Item = &'a T>) -> Result<Vec<u8>, QueueError>
    where
        T: 'static,
    {
        let refused = |cause| QueueError::Encode { path: self.client.path_text(&self.path), cause };
        let bytes = batch.into_iter().map(|item| self.codec.encode(item));
        let bytes: Vec<_> = bytes.collect::<Result<_, _>>().map_err(|cause| refused(cause.into()))?;
        items::encode(bytes).map_err(|cause| refused(Arc::new(cause)))
    }

    /// Puts all of the nodes or none, once there is room.
    pub(super) async fn put(&self, nodes: Vec<NewNode>) -> Result<(), QueueError> {
        let _room = self.room(nodes.len()).await?;
        self.producer.put(&nodes).await
    }

    /// Puts all of the nodes or none. Returns `Ok(None)` if the budget ends before the request was sent.
    pub(super) async fn put_timeout(&self, nodes: Vec<NewNode>, budget: Duration) -> Result<Option<()>, QueueError> {
        let budget = Budget::of(budget);
        let Some(room) = budget.limit(self.room(nodes.len())).await else {
            return end_of_budget(&self.client, format!("waiting for room in the queue {}", self.path), false);
        };
        let _room = room?;
        self.producer.put_within(&nodes, budget).await
    }

    /// Waits until this number of nodes fits. No other put of this object counts while the guard exists.
    async fn room(&self, count: usize) -> Result<Option<MutexGuard<'_, ()>>, QueueError> {
        let Some(limit) = self.options.max_items.and_then(|limit| usize::try_from(limit).ok()) else {
            return Ok(None);
        };
        if count > limit {
            let reason = format!("{count} nodes at once never fit into a queue of at most {limit}");
            return Err(QueueError::invalid("items", reason));
        }
        let counting = self.bound.lock().await;
        let mut retries = self.client.retry_loop();
        loop {
            let session = retries.connected(&self.path).await?;
            let waited = self.wait_for_room(&session, limit - count).await;
            match retries.done(waited, &self.path).await? {
                Some(true) => return Ok(Some(counting)),
                Some(false) => retries.progressed(),
                None => {}
            }
        }
    }

    /// Returns `true` if the path has at most this number of children. Otherwise waits for the next change.
    async fn wait_for_room(&self, session: &Session, most: usize) -> Result<bool, Error> {
        let count = session.exists(&self.path).await?.map_or(0, |stat| usize::try_from(stat.num_children).unwrap_or(0));
        if count <= most {
            return Ok(true);
        }
        match session.get_children_watched(&self.path).await {
            Ok((names, _)) if names.len() <= most => Ok(true),
            Ok((_, change)) => match change.await {
                WakeReason::SessionEnded(_) => Err(session.closed_error(format!("getChildren {}", self.path))),
                _ => Ok(false),
            },
            Err(Error::NoNode { .. }) => Ok(true),
            Err(error) => Err(error),
        }
    }

    /// Returns the number of children of the queue's path.
    pub(super) async fn len(&self) -> Result<u64, QueueError> {
        let mut retries = self.client.retry_loop();
        loop {
            let session = retries.connected(&self.path).await?;
            if let Some(found) = retries.done(session.exists(&self.path).await, &self.path).await? {
                return Ok(found.map_or(0, |stat| u64::try_from(stat.num_children).unwrap_or_default()));
            }
        }
    }
}

impl<T> Shared<T> {
    /// Returns the names of the items at the queue's path, or of the dead letters, in their order.
    async fn names(&self, parent: &str) -> Result<Vec<Ordered>, QueueError> {
        let mut retries = self.client.retry_loop();
        loop {
            let session = retries.connected(parent).await?;
            let listed = match session.get_children(parent).await {
                Err(Error::NoNode { .. }) => return Ok(Vec::new()),
                listed => listed,
            };
            if let Some(listed) = retries.done(listed, parent).await? {
                let items = listed.iter().filter(|name| self.kind.is_item(name));
                let mut items: Vec<_> = items.map(|name| Ordered::new(self.kind, name)).collect();
                items.sort_unstable();
                return Ok(items);
            }
        }
    }

    /// Removes the items with an id that are not in work. Returns their number.
    pub(super) async fn remove(&self, id: &str) -> Result<u64, QueueError> {
        let id = names::clean_id(id);
        self.remove_all(&self.path, |name| names::id(name) == id).await
    }

    /// Removes the items at the queue's path that are wanted and not in work, or dead letters, in transactions of at
    /// most 64. Returns their number.
    pub(super) async fn remove_all(&self, parent: &str, is_wanted: impl Fn(&str) -> bool) -> Result<u64, QueueError> {
        let names = self.names(parent).await?;
        let wanted: Vec<_> = names.iter().map(Ordered::name).filter(|name| is_wanted(name)).collect();
        let mut removed = 0;
        for part in wanted.chunks(REMOVED_AT_ONCE) {
            for was_there in join_all(part.iter().map(|name| self.remove_by_name(parent, name))).await {
                removed += u64::from(was_there?);
            }
        }
        Ok(removed)
    }

    async fn remove_by_name(&self, parent: &str, name: &str) -> Result<bool, QueueError> {
        let lock_path = match &self.options.mode {
            Mode::Locked { lock_path } if parent == self.path => Some(&**lock_path),
            _ => None,
        };
        let path = make_path(parent, name);
        let (mut is_sent, mut retries) = (false, self.client.retry_loop());
        loop {
            let session = retries.connected(&self.path).await?;
            let done = self.remove_item(&session, (&path, lock_path), is_sent, &mut retries).await;
            is_sent |= done.as_ref().is_err_and(Error::outcome_unknown);
            if let Some(was_there) = retries.done(done, &self.path).await? {
                return Ok(was_there);
            }
        }
    }

    /// Removes one item. Returns `false` if it is in work, or if another client has deleted it. `was_sent` is true
    /// after a request with an unknown outcome.
    async fn remove_item(
        &self,
        session: &Session,
        (path, lock_path): (&str, Option<&str>),
        was_sent: bool,
        retries: &mut RetryLoop,
    ) -> Result<bool, Error> {
        let delete = Operation::Delete { path: path.to_owned(), version: None };
        let Some(lock_path) = lock_path else {
            let deleted = match session.has_transactions() {
                true => session.joined_transaction(vec![delete]).await.map(drop),
                false => session.delete(path, None).await,
            };
            let deleted = if let Err(Error::Transaction { cause, .. }) = deleted { Err(*cause) } else { deleted };
            return match deleted {
                Err(Error::NoNode { .. }) => Ok(was_sent),
                deleted => deleted.map(|()| true),
            };
        };
        let lock = make_path(lock_path, node_from_path(path));
        let (acl, mode) = (session.acl_for(&lock), CreateMode::Ephemeral);
        let operations = vec![
            Operation::Create { path: lock.clone(), data: Vec::new(), acl, mode },
            delete,
            Operation::Delete { path: lock, version: None },
        ];
        match session.joined_transaction(operations).await {
            Ok(_) => Ok(true),
            Err(Error::Transaction { index, cause, .. }) => match (index, *cause) {
                (0, Error::NodeExists { .. }) => Ok(false),
                (0, missing @ Error::NoNode { .. }) => {
                    PathsMade::default().create(&self.client, retries, lock_path, QueuePath::Persistent).await?;
                    retries.pause_after(missing).await?;
                    Box::pin(self.remove_item(session, (path, Some(lock_path)), was_sent, retries)).await
                }
                (_, Error::NoNode { .. }) => Ok(was_sent),
                (_, cause) => Err(cause),
            },
            Err(error) => Err(error),
        }
    }
}

impl<T: 'static> Shared<T> {
    /// Returns the content of an item's node.
    pub(super) fn decode(&self, path: &str, stored: &[u8]) -> Result<Decoded<T>, QueueError> {
        let plain = self.plain(path, stored)?;
        let content = self.content(path, &plain)?;
        Ok(Decoded { items: self.items(path, &content)?, history: content.history, plain })
    }

    fn corrupt(&self, path: &str, cause: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> QueueError {
        QueueError::Corrupt { path: self.client.path_text(path), cause: cause.into().into() }
    }

    /// Returns the data of a node, decompressed.
    fn plain(&self, path: &str, stored: &[u8]) -> Result<Vec<u8>, QueueError> {
        self.client.from_stored(path, stored.to_vec(), None).map_err(|error| self.corrupt(path, error))
    }

    fn content<'a>(&self, path: &str, plain: &'a [u8]) -> Result<Content<'a>, QueueError> {
        items::decode(plain).map_err(|error| self.corrupt(path, error))
    }

    fn items(&self, path: &str, content: &Content<'_>) -> Result<Vec<T>, QueueError> {
        let items = content.items.iter().map(|item| self.codec.decode(item));
        items.collect::<Result<_, _>>().map_err(|error| self.corrupt(path, error))
    }

    /// Reads the first items.
    pub(super) async fn peek(&self, most: usize) -> Result<Vec<QueuedItem<T>>, QueueError> {
        self.first(&self.path, most).await
    }

    /// Reads the first dead letters.
    pub(super) async fn dead_letters(&self, most: usize) -> Result<Vec<QueuedItem<T>>, QueueError> {
        self.first(&self.options.dead_letters, most).await
    }

    async fn first(&self, parent: &str, most: usize) -> Result<Vec<QueuedItem<T>>, QueueError> {
        let mut names = self.names(parent).await?;
        names.truncate(most);
        let names: Vec<&str> = names.iter().map(Ordered::name).collect();
        // An item that was taken since the listing is left out.
        let read = read_children(&self.client, parent, &names, READ_AT_ONCE).await?;
        let queued = |(name, read): (&str, Result<(Vec<u8>, Stat), Error>)| {
            let path = make_path(parent, name);
            let (data, stat) = read.map_err(|error| self.item_error(&path, error))?;
            Ok(self.queued(&path, &data, &stat))
        };
        read.into_iter().map(queued).collect()
    }

    fn queued(&self, path: &str, data: &[u8], stat: &Stat) -> QueuedItem<T> {
        let plain = self.plain(path, data);
        let content = plain.as_ref().map_err(Clone::clone).and_then(|plain| self.content(path, plain));
        let (earlier, reason) = content.as_ref().map_or((0, None), |it| (it.history.attempts, it.reason));
        let key = content.as_ref().ok().map(|content| match content.history.first_czxid {
            0 => Zxid::new(stat.czxid),
            first => Zxid::new(first),
        });
        QueuedItem {
            key,
            name: node_from_path(path).to_owned(),
            attempts: earlier.saturating_add(u32::try_from(stat.version).unwrap_or_default()),
            reason: reason.map(|reason| String::from_utf8_lossy(reason).into_owned()),
            created: time_of(stat.ctime),
            items: content.and_then(|content| self.items(path, &content)),
        }
    }

    /// Moves a dead letter back to the queue, with a new count of deliveries. Returns `false` if it does not exist.
    pub(super) async fn retry_dead(&self, name: &str) -> Result<bool, QueueError> {
        let path = make_path(&self.options.dead_letters, name);
        let Some(prefix) = names::prefix_of_any_kind(name) else {
            return Err(QueueError::Foreign { path: self.client.path_text(&path) });
        };
        self.client.check_transactions(&format!("move the dead letter {path} back"))?;
        let mut retries = self.client.retry_loop();
        let (stored, stat) = loop {
            let session = retries.connected(&path).await?;
            let read = match session.get_data(&path).await {
                Err(Error::NoNode { .. }) => return Ok(false),
                read => read,
            };
            if let Some(read) = retries.done(read, &path).await? {
                break read;
            }
        };
        let plain = self.plain(&path, &stored)?;
        let content = self.content(&path, &plain)?;
        let data = items::with_history(&plain, &content, History { attempts: 0, ..content.history });
        let delete = Operation::Delete { path, version: Some(stat.version) };
        self.producer.put_for(delete, NewNode { name: prefix.to_owned(), data }).await
    }
}

/// Returns a time of milliseconds after 1970.
pub(super) fn time_of(millis: i64) -> SystemTime {
    UNIX_EPOCH.checked_add(Duration::from_millis(u64::try_from(millis).unwrap_or_default())).unwrap_or(UNIX_EPOCH)
}

/// Returns the present time of this machine's clock, in milliseconds after 1970.
pub(super) fn now_millis() -> i64 {
    millis_of(SystemTime::now())
}

/// Returns a time in milliseconds after 1970, rounded down. An earlier time is 0.
pub(super) fn millis_of(time: SystemTime) -> i64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

impl<T> fmt::Debug for Shared<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue").field("path", &self.path).field("options", &self.options).finish_non_exhaustive()
    }
}
