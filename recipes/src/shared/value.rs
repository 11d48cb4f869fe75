//! The shared value.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use curator_framework::recipe::RecipeClient as _;
use curator_framework::{Chain, CuratorFramework, Error, ListenerId, PathText, Session, Zxid, validate_path};
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::shared::error::SharedError;
use crate::shared::listeners::{SharedValueListener, SharedValueReader};
use crate::shared::node_follower::{Bytes, CachedValue, ChangeSink, NodeFollower};
use crate::shared::versioned::VersionedValue;
use crate::standing::{StandingTask, StartError, within};

/// The version that ZooKeeper takes for any version.
const ANY_VERSION: i32 = -1;

/// A few bytes that all processes share, with a local copy that is kept up to date: Curator's `SharedValue`.
///
/// Like `tokio::sync::watch`, but between all processes that use the same path on the same ensemble, including Java's
/// Curator. Cheap to clone; all clones are one value. It ends with [`close`](Self::close), or when the last clone is
/// dropped.
///
/// # Reads return a local copy
///
/// The copy lags by the time of a notification and a read, and stays unchanged without a connection. It is read
/// again after each reconnect and in each new session. Only a value with a larger `mzxid` replaces it. To change the
/// certainly newest value use [`try_set_value`](Self::try_set_value).
///
/// | event | effect on the copy |
/// | --- | --- |
/// | the node is deleted | stays; changes fail with `NoNode`; a new node of another client is read when it is created |
/// | the node cannot be read | stays; one *warn* event a read, which is repeated with pauses of up to 30 seconds |
/// | the data cannot be decoded | stays; one *warn* event; the node is read again when it changes |
/// | read permission is revoked | with ZooKeeper's fix for CVE-2024-23944 noticed only at the next reconnect |
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
/// use curator_recipes::{SharedValue, SharedValueReader};
///
/// let motto = SharedValue::new(client, "/office/motto", "none yet")?;
/// motto.add_listener(|_, new| println!("now {}", String::from_utf8_lossy(new)));
/// motto.start()?;
/// motto.initialized().await?;
/// let before = motto.versioned_value();
/// if !motto.try_set_value(&before, "one at a time").await? {
///     println!("another client wrote first");
/// }
/// # Ok(())
/// # }
/// ```
///
/// # Differences from Curator
///
/// * A value is reported once: a reconnect reads it again, but reports it only if it has changed.
/// * A `false` of [`try_set_value`](Self::try_set_value) always means "not set". Curator also returns it after a lost
///   reply.
/// * [`watch`](Self::watch) serves async code, which then needs no listener.
/// * [`start`](Self::start) returns at once, and [`initialized`](Self::initialized) waits for the first read. Changes wait
///   for it too.
/// * [`start`](Self::start) does not write to an existing node, so a reader needs no permission to create.
///
/// # ZooKeeper layout
///
/// One persistent node at the path, with the value as its data. Missing parents are containers.
///
/// # Cost
///
/// Start: one request if the node exists, else three. Read: none. Set: one. Each change: one read in every process, by
/// its one watch.
#[derive(Clone)]
pub struct SharedValue {
    owner: Arc<Owner>,
}

/// The state that all clones share. Its drop ends the task.
struct Owner {
    cache: Arc<CachedValue>,
    client: CuratorFramework,
    seed: Vec<u8>,
    task: StandingTask,
    states: Mutex<Option<ListenerId>>,
}

impl Owner {
    /// Orders the task to end, and removes the listeners.
    fn stop(&self) {
        self.task.stop();
        self.cache.close();
        if let Some(states) = self.states.lock().take() {
            self.client.connection_state_listenable().remove_listener(states);
        }
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.stop();
    }
}

impl SharedValue {
    /// Creates a value at a path, without a request. `seed` is the value until the first read, and the data of the node
    /// if [`start`](Self::start) has to create it.
    ///
    /// # Errors
    ///
    /// `Error::InvalidPath`: the path is not valid in ZooKeeper.
    pub fn new(
        client: CuratorFramework,
        path: impl Into<String>,
        seed: impl Into<Vec<u8>>,
    ) -> Result<Self, SharedError> {
        Self::with_sink(client, path.into(), seed.into(), None)
    }

    pub(super) fn with_sink(
        client: CuratorFramework,
        path: String,
        seed: Vec<u8>,
        sink: Option<Arc<dyn ChangeSink>>,
    ) -> Result<Self, SharedError> {
        validate_path(&path)?;
        let cache = Arc::new(CachedValue::new(path, seed.clone(), sink));
        let (task, states) = (StandingTask::new(), Mutex::default());
        Ok(Self { owner: Arc::new(Owner { cache, client, seed, task, states }) })
    }

    /// Starts to read the value, and to keep the copy up to date, in the background. Creates the node if it is missing.
    /// [`initialized`](Self::initialized) waits for the first read.
    ///
    /// # Errors
    ///
    /// * `SharedError::AlreadyStarted`, `SharedError::Closed`: a value starts once.
    /// * `Error::NoRuntime`: call it in a tokio runtime.
    pub fn start(&self) -> Result<(), SharedError> {
        let Owner { cache, client, seed, task, states } = &*self.owner;
        // A close waits for the lock, and then finds the listener.
        let mut states = states.lock();
        let (follower, seed) = (NodeFollower::new(Arc::clone(cache), client.weak_clone()), seed.clone());
        let started = task.start(|mut stop| async move {
            tokio::select! {
                biased;
                () = stop.requested() => {}
                () = follower.follow(&seed) => {}
            }
        });
        started.map_err(|error| self.not_startable(error))?;
        let weak_cache = Arc::downgrade(cache);
        *states = Some(client.connection_state_listenable().add_listener(move |_, state| {
            if let Some(cache) = weak_cache.upgrade() {
                cache.listeners().notify(move |listener| listener.state_changed(state));
            }
        }));
        Ok(())
    }

    /// Waits for the first read. Resolves at once later, also in an outage.
    ///
    /// # Errors
    ///
    /// * `SharedError::NotStarted`, `SharedError::Closed`.
    /// * Of the framework `Error::ConnectionLoss` and `Error::SessionExpired` when the retry policy has given up,
    ///   `Error::NoAuth`, `Error::Compression`, `Error::SchemaViolation`, `Error::NotStarted`: the read or the create has
    ///   failed. The value tries again in the background, with pauses of up to 30 s.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    pub async fn initialized(&self) -> Result<(), SharedError> {
        self.check_started()?;
        self.owner.cache.is_loaded().await.unwrap_or_else(|| Err(self.closed()))
    }

    /// Waits like [`initialized`](Self::initialized) for at most `budget`. Returns `Ok(None)` if the budget ends while the
    /// client is connected.
    ///
    /// # Errors
    ///
    /// As [`initialized`](Self::initialized), and `Error::ConnectionLoss` if the budget ended without a connection.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    pub async fn initialized_timeout(&self, budget: Duration) -> Result<Option<()>, SharedError> {
        let request = || format!("reading the shared value {}", self.path());
        within(&self.owner.client, budget, request, self.initialized()).await
    }

    fn not_startable(&self, error: StartError) -> SharedError {
        match error {
            StartError::AlreadyStarted => SharedError::AlreadyStarted { path: self.path_text() },
            StartError::Closed => self.closed(),
            StartError::NoRuntime => Error::NoRuntime.into(),
        }
    }

    /// Returns the path of the node.
    #[must_use]
    pub fn path(&self) -> &str {
        self.owner.cache.path()
    }

    /// Returns the newest value that this process knows. No request.
    #[must_use]
    pub fn value(&self) -> Vec<u8> {
        self.owner.cache.value()
    }

    /// Returns the newest value that this process knows, with its version. No request.
    #[must_use]
    pub fn versioned_value(&self) -> VersionedValue<Vec<u8>> {
        self.owner.cache.versioned_value()
    }

    /// Returns the value as a channel, for async code. It has what [`value`](Self::value) returns. The channel closes when the value is closed or dropped.
    #[must_use]
    pub fn watch(&self) -> watch::Receiver<VersionedValue<Vec<u8>>> {
        self.owner.cache.watch()
    }

    /// Sets the value, whatever it is now.
    ///
    /// # Errors
    ///
    /// * As [`initialized`](Self::initialized), for which it waits.
    /// * Of the framework `Error::NoNode` if the node was deleted, `Error::NoAuth`, `Error::Compression`,
    ///   `Error::SchemaViolation`: the value is not set.
    /// * `Error::ConnectionLoss` and `Error::SessionExpired` when the retry policy gives up: the value may be set if
    ///   [`outcome_unknown`](SharedError::outcome_unknown) returns true.
    ///
    /// After a lost reply the value is set again, even if another client has set another value meanwhile.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped the value may be set.
    pub async fn set_value(&self, value: impl Into<Vec<u8>>) -> Result<(), SharedError> {
        self.initialized().await?;
        let value = value.into();
        let Owner { cache, client, .. } = &*self.owner;
        let before = cache.versioned_value();
        let stat = client.set_data().for_path(cache.path(), value.clone()).await?;
        cache.replace(&before, VersionedValue::new(Zxid::new(stat.mzxid), stat.version, value));
        Ok(())
    }

    /// Sets the value if it is still `previous`, from [`versioned_value`](Self::versioned_value). Returns `true` if
    /// this call has set it, `false` if another value is there. If `previous` is not the local copy, `false` takes no
    /// request; else the new value is read first.
    ///
    /// # Errors
    ///
    /// * `SharedError::IllegalTrySetVersion`: the previous version is −1, as before the first read and once in 2^32
    ///   changes.
    /// * Those of [`set_value`](Self::set_value).
    ///
    /// After a lost reply the value may be set without this call knowing it. Then the error has an [unknown
    /// outcome](SharedError::outcome_unknown), even if a retry is refused because of the version. To find out, put a
    /// mark of your own into the value, and look for it in the newest one.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped the value may be set.
    pub async fn try_set_value(
        &self,
        previous: &VersionedValue<Vec<u8>>,
        value: impl Into<Vec<u8>>,
    ) -> Result<bool, SharedError> {
        self.initialized().await?;
        if previous.version() == ANY_VERSION {
            return Err(SharedError::IllegalTrySetVersion { path: self.path_text() });
        }
        if !self.owner.cache.is_newest(previous) {
            return Ok(false);
        }
        Ok(self.try_set(previous.version(), value.into()).await?)
    }

    async fn try_set(&self, version: i32, value: Vec<u8>) -> Result<bool, Error> {
        let Owner { cache, client, .. } = &*self.owner;
        let path = cache.path();
        client.check_change(path, &value)?;
        let stored = client.to_stored(path, value.clone(), None)?;
        let before = cache.versioned_value();
        let mut retries = client.retry_loop();
        // The error of an earlier try that may have been applied.
        let mut unknown: Option<Error> = None;
        loop {
            let error = match retries.session().await {
                Ok(session) => match session.set_data(path, stored.clone(), Some(version)).await {
                    Ok(stat) => {
                        cache.replace(&before, VersionedValue::new(Zxid::new(stat.mzxid), stat.version, value));
                        return Ok(true);
                    }
                    Err(Error::BadVersion { .. }) => {
                        self.read_again(&session, &before).await;
                        return unknown.map_or(Ok(false), Err);
                    }
                    Err(error) => error,
                },
                Err(error) => error,
            };
            if error.outcome_unknown() {
                unknown = Some(error.clone());
            }
            if let Err(error) = retries.failed(error.about(path)).await {
                return Err(unknown.unwrap_or(error));
            }
        }
    }

    /// Refreshes the copy after a refused write of this session, so that the caller's next try starts from it. If it
    /// fails, the value's own task reads again anyway.
    async fn read_again(&self, session: &Session, before: &Bytes) {
        let Owner { cache, client, .. } = &*self.owner;
        let read = async {
            let (stored, stat) = session.get_data(cache.path()).await?;
            Ok::<_, Error>(VersionedValue::new(
                Zxid::new(stat.mzxid),
                stat.version,
                client.from_stored(cache.path(), stored, None)?,
            ))
        };
        match read.await {
            // The server has answered the write, so it is not behind `before`.
            Ok(value) => cache.replace(before, value),
            Err(error) => tracing::debug!(error = %Chain(&error), "a shared value that has changed cannot be read yet"),
        }
    }

    /// Adds a closure as a listener. It is called for each later change, not for the present value.
    /// [`add_listener_object`](SharedValueReader::add_listener_object) adds a [`SharedValueListener`] of any type.
    ///
    /// Each call gets the value as an argument. A listener that keeps its own clone keeps the value alive until
    /// [`close`](Self::close).
    pub fn add_listener(&self, listener: impl Fn(&dyn SharedValueReader, &[u8]) + Send + Sync + 'static) -> ListenerId {
        self.add_listener_object(Arc::new(listener))
    }

    /// Removes a listener. A call that is already queued may still reach it.
    pub fn remove_listener(&self, id: ListenerId) {
        self.owner.cache.remove_listener(id);
    }

    /// Stops the value. The copy stays as it is, the listeners get no more calls, the channels of
    /// [`watch`](Self::watch) close, and the watch on the node is given up. The node stays. Resolves within the client's
    /// [`max_close_wait`](curator_framework::CuratorFrameworkBuilder::max_close_wait). Closing twice is fine.
    ///
    /// # Cancel safety
    ///
    /// The close continues when this future is dropped.
    pub async fn close(&self) {
        self.owner.stop();
        self.owner.task.close(&self.owner.client).await;
    }

    fn check_started(&self) -> Result<(), SharedError> {
        match self.owner.task.check_latent() {
            Err(StartError::AlreadyStarted) => Ok(()),
            Err(StartError::Closed) => Err(self.closed()),
            _ => Err(SharedError::NotStarted { path: self.path_text() }),
        }
    }

    fn closed(&self) -> SharedError {
        SharedError::Closed { path: self.path_text() }
    }

    fn path_text(&self) -> PathText {
        self.owner.client.path_text(self.path())
    }

    #[cfg(test)]
    pub(super) fn cache(&self) -> &CachedValue {
        &self.owner.cache
    }
}

impl SharedValueReader for SharedValue {
    fn path(&self) -> &str {
        self.path()
    }

    fn value(&self) -> Vec<u8> {
        self.value()
    }

    fn versioned_value(&self) -> Bytes {
        self.versioned_value()
    }

    fn add_listener_object(&self, listener: Arc<dyn SharedValueListener>) -> ListenerId {
        self.owner.cache.add_listener_object(listener)
    }

    fn remove_listener(&self, id: ListenerId) {
        self.remove_listener(id);
    }
}

impl fmt::Debug for SharedValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedValue")
            .field("known", &self.owner.cache)
            .field("task", &self.owner.task)
            .finish_non_exhaustive()
    }
}
