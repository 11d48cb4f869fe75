//! The local copy of a shared value's node, and the task that keeps it up to date.

use std::fmt;
use std::sync::Arc;

use curator_framework::recipe::{Listeners, RecipeClient as _};
use curator_framework::{Chain, CuratorFramework, Error, ListenerId, Watch, Zxid};
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::shared::error::SharedError;
use crate::shared::listeners::{SharedValueListener, SharedValueReader};
use crate::shared::versioned::VersionedValue;
use crate::standing::{Pauses, catch_up};

pub(super) type Bytes = VersionedValue<Vec<u8>>;

/// An observer of the copy. It must return at once.
pub(super) trait ChangeSink: Send + Sync {
    /// Takes the newest value, in the order of the changes, before the call returns that has set it.
    fn changed(&self, value: &Bytes);

    /// Called at the close, perhaps more than once.
    fn closed(&self);
}

/// The first read.
#[derive(Debug, Clone)]
enum Load {
    Begun,
    /// The newest attempt has failed. Another one follows.
    Failed(Error),
    Done,
}

/// The newest value, with the number of values before it.
#[derive(Clone)]
struct Newest {
    number: u64,
    value: Bytes,
}

/// The local copy of the node. It holds no client, so an owner of the copy keeps no session alive.
pub(super) struct CachedValue {
    path: String,
    newest: Mutex<Newest>,
    /// The number of the newest value that the sink and the channel have. Locked while they get one.
    passed_on: Mutex<u64>,
    /// `None` after the close.
    channel: Mutex<Option<watch::Sender<Bytes>>>,
    /// `None` after the close.
    load: watch::Sender<Option<Load>>,
    sink: Option<Arc<dyn ChangeSink>>,
    listeners: Listeners<dyn SharedValueListener>,
}

impl CachedValue {
    pub(super) fn new(path: String, seed: Vec<u8>, sink: Option<Arc<dyn ChangeSink>>) -> Self {
        let seed = VersionedValue::seed(seed);
        Self {
            path,
            channel: Mutex::new(Some(watch::Sender::new(seed.clone()))),
            load: watch::Sender::new(Some(Load::Begun)),
            newest: Mutex::new(Newest { number: 0, value: seed }),
            passed_on: Mutex::default(),
            sink,
            listeners: Listeners::default(),
        }
    }

    pub(super) fn is_newest(&self, value: &Bytes) -> bool {
        self.newest.lock().value == *value
    }

    /// Replaces the copy if the value is newer. Compares the zxid, since versions overflow and start again with each
    /// node (CURATOR-688).
    pub(super) fn update(&self, value: Bytes) {
        self.update_since(None, value);
    }

    /// Replaces the copy by a value that the servers had after `before` was the newest one, even if its zxid is not
    /// larger. The servers then have lost their data or were restored from a backup. A copy that has changed in the
    /// meantime is replaced only by a newer value.
    pub(super) fn replace(&self, before: &Bytes, value: Bytes) {
        self.update_since(Some(before), value);
    }

    fn update_since(&self, before: Option<&Bytes>, value: Bytes) {
        let mut newest = self.newest.lock();
        let is_replaced = before.is_some_and(|before| newest.value == *before && value != *before);
        if value.zxid() > newest.value.zxid() || is_replaced {
            *newest = Newest { number: newest.number + 1, value };
        }
        drop(newest);
        self.pass_on();
    }

    /// Passes on the newest value to the sink and the channel.
    fn pass_on(&self) {
        let mut passed_on = self.passed_on.lock();
        let Newest { number, value } = self.newest.lock().clone();
        if std::mem::replace(&mut *passed_on, number) != number {
            if let Some(sink) = &self.sink {
                sink.changed(&value);
            }
            let channel = self.channel.lock().clone();
            channel.inspect(|channel| drop(channel.send_replace(value)));
        }
    }

    pub(super) fn watch(&self) -> watch::Receiver<Bytes> {
        match &*self.channel.lock() {
            Some(sender) => sender.subscribe(),
            None => watch::channel(self.versioned_value()).1,
        }
    }

    /// Waits for the first read, or for a failure of it. `None` after the close.
    pub(super) async fn is_loaded(&self) -> Option<Result<(), SharedError>> {
        let mut load = self.load.subscribe();
        let load = load.wait_for(|load| !matches!(load, Some(Load::Begun))).await.ok()?.clone()?;
        Some(if let Load::Failed(error) = load { Err(error.into()) } else { Ok(()) })
    }

    pub(super) fn listeners(&self) -> &Listeners<dyn SharedValueListener> {
        &self.listeners
    }

    /// Ends the channel, the sink and the listeners.
    pub(super) fn close(&self) {
        let sender = self.channel.lock().take();
        drop(sender);
        self.load.send_replace(None);
        if let Some(sink) = &self.sink {
            sink.closed();
        }
        self.listeners.close();
    }
}

impl SharedValueReader for CachedValue {
    fn path(&self) -> &str {
        &self.path
    }

    fn value(&self) -> Vec<u8> {
        self.newest.lock().value.value().clone()
    }

    fn versioned_value(&self) -> Bytes {
        self.newest.lock().value.clone()
    }

    fn add_listener_object(&self, listener: Arc<dyn SharedValueListener>) -> ListenerId {
        self.listeners.add(listener)
    }

    fn remove_listener(&self, id: ListenerId) {
        self.listeners.remove(id);
    }
}

impl fmt::Debug for CachedValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let newest = &self.newest.lock().value;
        f.debug_struct("CachedValue")
            .field("path", &self.path)
            .field("zxid", &newest.zxid())
            .field("version", &newest.version())
            .field("listeners", &self.listeners)
            .finish_non_exhaustive()
    }
}

/// The result of a read, with the watch that fires at the next change.
pub(super) struct Read {
    found: Result<Bytes, Error>,
    changed: Watch,
}

/// The task that follows one node.
pub(super) struct NodeFollower {
    cache: Arc<CachedValue>,
    client: CuratorFramework,
    /// The number of the newest value that the listeners were told of.
    told: u64,
}

impl NodeFollower {
    pub(super) fn new(cache: Arc<CachedValue>, client: CuratorFramework) -> Self {
        Self { cache, client, told: 0 }
    }

    /// Reads the node.
    ///
    /// # Errors
    ///
    /// Those of the read. Undecodable data is in `Read::found` instead, since the watch is set then.
    async fn read(&self) -> Result<Read, Error> {
        let path = &self.cache.path;
        let ((stored, stat), changed) = self.client.get_data().undecompressed().watched().for_path(path).await?;
        let value = self.client.from_stored(path, stored, None);
        Ok(Read { found: value.map(|value| VersionedValue::new(Zxid::new(stat.mzxid), stat.version, value)), changed })
    }

    /// Publishes the outcome of the first read, unless the value is closed.
    fn loaded(&self, load: Load) {
        self.cache.load.send_modify(|present| _ = present.as_mut().map(|present| *present = load));
    }

    /// Reads the node for the first time. Creates it with the seed if it is missing.
    async fn start(&mut self, seed: &[u8]) -> Result<Watch, Error> {
        let mut retries = self.client.retry_loop();
        let mut made = false;
        loop {
            let missing = match self.read().await {
                Ok(Read { found, changed }) => {
                    self.cache.update(found?);
                    // The first value is not a change.
                    self.news();
                    return Ok(changed);
                }
                Err(error @ Error::NoNode { .. }) => error,
                Err(error) => return Err(error),
            };
            if made {
                // Another client deletes the node again and again.
                retries.pause_after(missing).await?;
            }
            let create = self.client.create().creating_parent_containers_if_needed().with_data(seed);
            match create.for_path(&self.cache.path).await {
                Ok(_) | Err(Error::NodeExists { .. }) => made = true,
                Err(error) => return Err(error),
            }
        }
    }

    /// Follows the node until the client is closed.
    pub(super) async fn follow(mut self, seed: &[u8]) {
        let mut pauses = Pauses::default();
        let mut changed = loop {
            self.loaded(Load::Begun);
            let error = match self.start(seed).await {
                Ok(changed) => break changed,
                Err(error) => error,
            };
            let is_closed = matches!(error, Error::Closed);
            // The client may be started later.
            let pause = pauses.after(error.is_retryable() || matches!(error, Error::NotStarted));
            if !is_closed {
                tracing::warn!(error = %Chain(&error), path = self.cache.path, "a shared value cannot be read yet");
            }
            self.loaded(Load::Failed(error));
            if is_closed {
                return;
            }
            tokio::time::sleep(pause).await;
        };
        self.loaded(Load::Done);
        loop {
            changed.await;
            match self.catch_up().await {
                Some(next) => changed = next,
                None => return,
            }
        }
    }

    /// Reads the node until that succeeds. Returns `None` when the client is closed.
    async fn catch_up(&mut self) -> Option<Watch> {
        let mut pauses = Pauses::default();
        loop {
            let error = match self.read_and_publish().await {
                Ok(changed) => return Some(changed),
                Err(Error::Closed) => return None,
                Err(error) => error,
            };
            tracing::warn!(error = %Chain(&error), path = self.cache.path, "a shared value cannot be read, the last one stays");
            tokio::time::sleep(pauses.after(error.is_retryable())).await;
        }
    }

    /// Reads the node, and passes on a change to the listeners too. Watches a missing node for its creation.
    async fn read_and_publish(&mut self) -> Result<Watch, Error> {
        // The session with a server that has all earlier writes.
        let mut caught_up = None;
        loop {
            let before = self.cache.versioned_value();
            match self.read().await {
                Ok(Read { found, changed }) => {
                    match found {
                        Ok(value) if value.zxid() > before.zxid() => self.cache.update(value),
                        Ok(value) if value == before => {}
                        Ok(value) => {
                            // The server lags, or it has another history.
                            let session = self.client.session().await?;
                            if caught_up != Some(session.number()) {
                                catch_up(&session, &self.cache.path).await?;
                                caught_up = Some(session.number());
                                continue;
                            }
                            self.cache.replace(&before, value);
                        }
                        Err(error) => {
                            tracing::warn!(error = %Chain(&error), "a shared value cannot be read, the last one stays")
                        }
                    }
                    if let Some(newest) = self.news() {
                        let (cache, newest) = (Arc::clone(&self.cache), Arc::new(newest));
                        self.cache.listeners.notify(move |listener| listener.value_changed(&*cache, newest.value()));
                    }
                    return Ok(changed);
                }
                Err(Error::NoNode { .. }) => {}
                Err(error) => return Err(error),
            }
            if let (None, made) = self.client.check_exists().watched().for_path(&self.cache.path).await? {
                tracing::warn!(path = self.cache.path, "a shared value's node is gone, the last one stays");
                return Ok(made);
            }
        }
    }

    /// Returns the newest value, unless the listeners know it.
    fn news(&mut self) -> Option<Bytes> {
        let Newest { number, value } = self.cache.newest.lock().clone();
        (std::mem::replace(&mut self.told, number) != number).then_some(value)
    }
}

/// Ends the waits for a read that the task had begun, for example because its runtime was dropped.
impl Drop for NodeFollower {
    fn drop(&mut self) {
        self.cache.load.send_if_modified(|load| load.take_if(|load| matches!(load, Load::Begun)).is_some());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(zxid: i64, version: i32) -> Bytes {
        VersionedValue::new(Zxid::new(zxid), version, zxid.to_be_bytes().to_vec())
    }

    /// CURATOR-688, and CURATOR-329: version 0 is newer than a seed.
    #[test]
    fn the_zxid_alone_tells_what_is_newer() {
        let cache = CachedValue::new("/value".into(), b"seed".to_vec(), None);
        let mut newest = VersionedValue::seed(b"seed".to_vec());
        for (read, is_newer) in [
            (value(7, 0), true),
            (value(8, i32::MAX), true),
            (value(9, i32::MIN), true),
            (value(8, 3), false),
            (value(9, 5), false),
            (value(10, 0), true),
        ] {
            if is_newer {
                newest = read.clone();
            }
            cache.update(read);
            assert!(cache.is_newest(&newest), "{cache:?}");
        }
    }

    #[test]
    fn waits_and_listeners_end_with_the_value() {
        let cache = CachedValue::new("/value".into(), b"seed".to_vec(), None);
        let early = cache.watch();
        cache.close();
        let late = cache.watch();
        assert!(early.has_changed().is_err() && late.has_changed().is_err());
        assert_eq!(late.borrow().value(), b"seed");
        let listener = Arc::new(|_: &dyn SharedValueReader, _: &[u8]| {});
        let listens = Arc::downgrade(&listener);
        cache.add_listener_object(listener);
        assert!(listens.upgrade().is_none());
    }
}
