//! The mechanism of shared values and shared counts.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use curator_framework::recipe::RecipeClient as _;
use curator_framework::{Chain, CuratorFramework, Error, ListenerId, PathText, Session, Zxid, validate_path};
use tokio::sync::watch;

use crate::content::sealed::Content;
use crate::shared::error::SharedError;
use crate::shared::follower::NodeFollower;
use crate::shared::local_copy::{LocalCopy, Stored};
use crate::shared::versioned::VersionedValue;
#[cfg(doc)]
use crate::shared::{SharedCount, SharedValue};
use crate::standing::{StandingTask, StartError, within};

/// The version that ZooKeeper takes for any version.
const ANY_VERSION: i32 = -1;

/// A value that all processes share, with a local copy that is kept up to date: [`SharedValue`] for bytes,
/// [`SharedCount`] for numbers. [Clones](crate#handles) are cheap, and all clones are one value. It ends with
/// [`close`](Self::close), or when the last clone is dropped.
///
/// # Reads return a local copy
///
/// The copy lags by the time of a notification and a read, and stays unchanged without a connection. It is read
/// again after each reconnect and in each new session. Only a value with a larger `mzxid` replaces it. A conditional
/// change, such as [`try_set_value`](SharedValue::try_set_value), changes the certainly newest value.
///
/// | event | effect on the copy |
/// | --- | --- |
/// | the node is deleted | stays; changes fail with `NoNode`; a new node of another client is read when it is created |
/// | the node cannot be read | stays; one *warn* event a read, which is repeated with pauses of up to 30 seconds |
/// | the data cannot be decoded | stays; one *warn* event; the node is read again when it changes |
/// | read permission is revoked | with ZooKeeper's fix for CVE-2024-23944 noticed only at the next reconnect |
///
/// # Differences from Curator
///
/// * A value is reported once: a reconnect reads it again, but reports it only if it has changed.
/// * A `false` of a conditional change always means "not set". Curator also returns it after a lost reply.
/// * [`watch`](Self::watch) serves async code, which then needs no listener.
/// * [`start`](Self::start) returns at once, and [`initialized`](Self::initialized) waits for the first read. Changes wait
///   for it too.
/// * [`start`](Self::start) does not write to an existing node, so a reader needs no permission to create.
/// * A listener is a closure that gets the value. The states of the connection come from the
///   [client](CuratorFramework::connection_state_listenable).
///
/// # ZooKeeper layout
///
/// One persistent node at the path, with the value as its data. Missing parents are containers.
///
/// # Cost
///
/// Start: one request if the node exists, else three. Read: none. Set: one. Each change: one read in every process, by
/// its one watch.
pub struct Shared<V: Content> {
    owner: Arc<Owner<V>>,
}

impl<V: Content> Clone for Shared<V> {
    fn clone(&self) -> Self {
        Self { owner: Arc::clone(&self.owner) }
    }
}

/// The state that all clones share. Its drop ends the task.
struct Owner<V: Content> {
    copy: Arc<LocalCopy<V>>,
    client: CuratorFramework,
    seed: Vec<u8>,
    task: StandingTask,
}

impl<V: Content> Owner<V> {
    /// Orders the task to end, and removes the listeners.
    fn stop(&self) {
        self.task.stop();
        self.copy.close();
    }
}

impl<V: Content> Drop for Owner<V> {
    fn drop(&mut self) {
        self.stop();
    }
}

impl<V: Content> Shared<V> {
    /// Creates a value at a path, without a request. `seed` is the value until the first read, and the data of the node
    /// if [`start`](Self::start) has to create it.
    ///
    /// # Errors
    ///
    /// `Error::InvalidPath`: the path is not valid in ZooKeeper.
    pub fn new(client: CuratorFramework, path: impl Into<String>, seed: impl Into<V>) -> Result<Self, SharedError> {
        let (path, seed) = (path.into(), seed.into());
        validate_path(&path)?;
        let (data, task) = (seed.to_data(), StandingTask::new());
        Ok(Self { owner: Arc::new(Owner { copy: Arc::new(LocalCopy::new(path, seed)), client, seed: data, task }) })
    }

    /// Starts to read the value, and to keep the copy up to date, in the background. Creates the node if it is missing.
    /// [`initialized`](Self::initialized) waits for the first read.
    ///
    /// # Errors
    ///
    /// * `SharedError::AlreadyStarted`, `SharedError::Closed`: a value starts once.
    /// * `Error::NoRuntime`: call it in a tokio runtime.
    pub fn start(&self) -> Result<(), SharedError> {
        let Owner { copy, client, seed, task } = &*self.owner;
        let (follower, seed) = (NodeFollower::new(Arc::clone(copy), client.weak_clone()), seed.clone());
        let started = task.start(|mut stop| async move {
            tokio::select! {
                biased;
                () = stop.requested() => {}
                () = follower.follow(&seed) => {}
            }
        });
        started.map_err(|error| self.not_startable(error))
    }

    /// Waits for the first read. Resolves at once later, even in an outage. Data that cannot be decoded does not fail it, so
    /// that a set can repair the data.
    ///
    /// # Errors
    ///
    /// * `SharedError::NotStarted`, `SharedError::Closed`.
    /// * Of the framework `Error::ConnectionLoss` and `Error::SessionExpired` when the retry policy has given up,
    ///   `Error::NoAuth`, `Error::Compression`, `Error::SchemaViolation`, `Error::ReplyTooLarge`, `Error::NotStarted`,
    ///   `Error::Closed`: the read or the create has failed. The value tries again in the background, with pauses of up to 30 s.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    pub async fn initialized(&self) -> Result<(), SharedError> {
        self.check_started()?;
        self.owner.copy.is_loaded().await.unwrap_or_else(|| Err(self.closed()))
    }

    /// Waits like [`initialized`](Self::initialized) for at most `budget`. Returns `Ok(None)` if the budget ends while the
    /// client is connected.
    ///
    /// # Errors
    ///
    /// * `SharedError::NotStarted`, `SharedError::Closed`: the value does not run.
    /// * `Error::ConnectionLoss`: the budget ended without a connection.
    /// * `Error::ConnectionLoss`, `Error::SessionExpired`: the retry policy gave up on the read or the create. The
    ///   value tries again in the background.
    /// * `Error::NoAuth`, `Error::Compression`, `Error::SchemaViolation`, `Error::ReplyTooLarge`, `Error::NotStarted`,
    ///   `Error::Closed`: the read or the create has failed. The value tries again in the background.
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
        self.owner.copy.path()
    }

    /// Returns the value as a channel, for async code. Data that cannot be decoded is left out. The channel closes when the
    /// value is closed or dropped.
    #[must_use]
    pub fn watch(&self) -> watch::Receiver<VersionedValue<V>> {
        self.owner.copy.watch()
    }

    /// Sets the value, regardless of the present one.
    pub(super) async fn set(&self, value: V) -> Result<(), SharedError> {
        self.initialized().await?;
        let Owner { copy, client, .. } = &*self.owner;
        let (before, data) = (copy.stored(), value.to_data());
        let stat = client.set_data().for_path(copy.path(), data.clone()).await?;
        copy.replace(&before, VersionedValue::new(Zxid::new(stat.mzxid), stat.version, data));
        Ok(())
    }

    /// Sets the value if it is still `previous`.
    pub(super) async fn try_set(&self, previous: &VersionedValue<V>, value: V) -> Result<bool, SharedError> {
        self.initialized().await?;
        if previous.version() == ANY_VERSION {
            return Err(SharedError::IllegalTrySetVersion { path: self.path_text() });
        }
        if !self.owner.copy.is_newest(&previous.with(previous.value().to_data())) {
            return Ok(false);
        }
        Ok(self.try_set_data(previous.version(), value.to_data()).await?)
    }

    async fn try_set_data(&self, version: i32, data: Vec<u8>) -> Result<bool, Error> {
        let Owner { copy, client, .. } = &*self.owner;
        let path = copy.path();
        client.check_change(path, &data)?;
        let stored = client.to_stored(path, data.clone(), None)?;
        let before = copy.stored();
        let mut retries = client.retry_loop();
        // The error of an earlier try that may have been applied.
        let mut unknown: Option<Error> = None;
        loop {
            let error = match retries.session().await {
                Ok(session) => match session.set_data(path, stored.clone(), Some(version)).await {
                    Ok(stat) => {
                        copy.replace(&before, VersionedValue::new(Zxid::new(stat.mzxid), stat.version, data));
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
    async fn read_again(&self, session: &Session, before: &Stored) {
        let Owner { copy, client, .. } = &*self.owner;
        let read = async {
            let (stored, stat) = session.get_data(copy.path()).await?;
            Ok::<_, Error>(VersionedValue::new(
                Zxid::new(stat.mzxid),
                stat.version,
                client.from_stored(copy.path(), stored, None)?,
            ))
        };
        match read.await {
            // The server has answered the write, so its value is not older than `before`.
            Ok(value) => copy.replace(before, value),
            Err(error) => tracing::debug!(error = %Chain(&error), "a shared value that has changed cannot be read yet"),
        }
    }

    /// Adds a listener. It is called with each later value that this process sees, not with the present one. As with every
    /// ZooKeeper watch, only the last of several quick changes is seen.
    ///
    /// It is called on a thread of its own, one call at a time, in the order of the changes. It may block, panic, and add
    /// or remove listeners, without harm to the session, the value or another listener. Calls to a slow listener queue in
    /// memory; [`watch`](Self::watch) keeps the newest value only. A listener that keeps a clone of the value keeps the
    /// value alive until [`close`](Self::close).
    #[doc(alias = "valueHasChanged")]
    #[doc(alias = "countHasChanged")]
    pub fn add_listener(&self, listener: impl Fn(&VersionedValue<V>) + Send + Sync + 'static) -> ListenerId {
        self.owner.copy.listeners.add(Arc::new(listener))
    }

    /// Removes a listener. A call that is already queued may still reach it.
    pub fn remove_listener(&self, id: ListenerId) {
        self.owner.copy.listeners.remove(id);
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

    pub(super) fn newest(&self) -> Result<VersionedValue<V>, SharedError> {
        self.owner.copy.value()
    }

    pub(super) fn newest_data(&self) -> Stored {
        self.owner.copy.stored()
    }
}

impl<V: Content> fmt::Debug for Shared<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared")
            .field("known", &self.owner.copy)
            .field("task", &self.owner.task)
            .finish_non_exhaustive()
    }
}
