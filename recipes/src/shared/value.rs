//! The shared value.

use std::fmt;
use std::sync::Arc;

use curator_framework::{CuratorFramework, Error, ListenerId, validate_path};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::shared::error::SharedError;
use crate::shared::listeners::{SharedListenerId, SharedValueListener, SharedValueReader};
use crate::shared::node::{Bytes, Keeper, Known, Sink};
use crate::shared::versioned::VersionedValue;

/// What ZooKeeper takes for "whatever version".
const ANY_VERSION: i32 = -1;

/// A few bytes that all processes share, with a copy here that is kept up to date: Curator's `SharedValue`.
///
/// Where `tokio::sync::watch` carries a value between the tasks of one process, this carries it between all processes
/// that use the same path on the same ensemble, Java's Curator included. Cheap to clone; all clones are one value,
/// which ends when the last of them is dropped, or with [`close`](Self::close).
///
/// # What is read is a copy
///
/// The copy is behind by the time that the server's word takes, and stays as it is while there is no connection. It is
/// read again after each reconnect and in each new session, and never goes back: it is replaced only by a value with a
/// larger `mzxid`. To change what is certainly the newest value use [`try_set_value`](Self::try_set_value).
///
/// If somebody deletes the node, the copy stays, and changes fail with `NoNode`. The node is not made again, but when
/// somebody does so its value is taken over. If the node cannot be read (no permission, data that is not compressed as
/// it should be), the copy stays too, and the node is read again with longer and longer pauses, up to half a minute, or
/// when it changes; events with the level *warn* tell of it. A server with ZooKeeper's fix for CVE-2024-23944 tells no
/// changes to those who may not read them: a value whose permission is taken away meanwhile notices at the next
/// reconnect.
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
/// motto.add_listener(|_: &dyn SharedValueReader, new: &[u8]| println!("now {}", String::from_utf8_lossy(new)));
/// motto.start().await?;
/// let before = motto.versioned_value();
/// if !motto.try_set_value(&before, "one at a time").await? {
///     println!("somebody was faster");
/// }
/// # Ok(())
/// # }
/// ```
///
/// # Differences from Curator
///
/// * A value is told once: a reconnect reads it again, but tells it only if it has changed.
/// * A `false` of [`try_set_value`](Self::try_set_value) always means "not set". Curator gives it also after a lost reply.
/// * [`watch`](Self::watch) is for async code, which has no need of listeners.
/// * A node that exists is not written to by [`start`](Self::start), so a reader needs no permission to create.
///
/// # ZooKeeper layout
///
/// One persistent node at the path, with the value as its data. Missing parents are containers.
///
/// # Cost
///
/// One request to start if the node exists, else three. None to read the copy, one to set the value. One watch, and one
/// read at each change, which every process does.
#[derive(Clone)]
pub struct SharedValue {
    owner: Arc<Owner>,
}

/// What all clones share. The task ends with it.
struct Owner {
    known: Arc<Known>,
    client: CuratorFramework,
    seed: Vec<u8>,
    life: Mutex<Life>,
}

enum Life {
    Latent,
    Starting,
    Started { task: JoinHandle<()>, states: ListenerId },
    Closed,
}

/// A start that ends here, unless it comes through.
struct Start<'a>(&'a Mutex<Life>);

impl Drop for Start<'_> {
    fn drop(&mut self) {
        let mut life = self.0.lock();
        if matches!(*life, Life::Starting) {
            *life = Life::Latent;
        }
    }
}

impl Owner {
    /// Tells the task to end.
    fn end(&self) -> Option<JoinHandle<()>> {
        let before = std::mem::replace(&mut *self.life.lock(), Life::Closed);
        self.known.close();
        let Life::Started { task, states } = before else { return None };
        task.abort();
        self.client.connection_state_listenable().remove_listener(states);
        Some(task)
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        drop(self.end());
    }
}

impl SharedValue {
    /// A value at a path. Nothing is sent. `seed` is the data of the node if this has to make it, and the value until
    /// something is read.
    ///
    /// # Errors
    ///
    /// `InvalidPath`.
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
        sink: Option<Arc<dyn Sink>>,
    ) -> Result<Self, SharedError> {
        validate_path(&path)?;
        let known = Arc::new(Known::new(path, seed.clone(), sink));
        Ok(Self { owner: Arc::new(Owner { known, client, seed, life: Mutex::new(Life::Latent) }) })
    }

    /// Reads the value, makes the node if it is missing, and begins to keep the copy up to date.
    ///
    /// # Errors
    ///
    /// * `AlreadyStarted`, `Closed`.
    /// * Of the framework `ConnectionLoss` and `SessionExpired` when the retry policy gives up, `NoAuth`,
    ///   `Compression`, `SchemaViolation`, `NotStarted`, `Closed`, `NoRuntime`.
    ///
    /// After an error of the framework it may be started again.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, it is not started and may be started again. The node may exist.
    pub async fn start(&self) -> Result<(), SharedError> {
        let Owner { known, client, seed, life } = &*self.owner;
        let runtime = tokio::runtime::Handle::try_current().map_err(|_no_runtime| Error::NoRuntime)?;
        {
            let mut life = life.lock();
            match &*life {
                Life::Latent => *life = Life::Starting,
                Life::Starting | Life::Started { .. } => return Err(SharedError::AlreadyStarted { path: self.name() }),
                Life::Closed => return Err(self.closed()),
            }
        }
        let _unless_it_comes_through = Start(life);
        let mut keeper = Keeper::new(Arc::clone(known), client.clone());
        let changed = keeper.begin(seed).await?;
        let mut life = life.lock();
        if !matches!(*life, Life::Starting) {
            return Err(self.closed());
        }
        let told = Arc::downgrade(known);
        let states = client.connection_state_listenable().add_listener(move |_: &CuratorFramework, state| {
            if let Some(known) = told.upgrade() {
                known.listeners().tell(move |listener| listener.state_changed(state));
            }
        });
        *life = Life::Started { task: runtime.spawn(keeper.keep(changed)), states };
        Ok(())
    }

    /// The path of the node.
    #[must_use]
    pub fn path(&self) -> &str {
        self.owner.known.path()
    }

    /// The newest value that is known here. No request.
    #[must_use]
    pub fn value(&self) -> Vec<u8> {
        self.owner.known.value()
    }

    /// The newest value that is known here, with its version. No request.
    #[must_use]
    pub fn versioned_value(&self) -> VersionedValue<Vec<u8>> {
        self.owner.known.versioned_value()
    }

    /// The value as a channel, for async code: it holds the newest one that was seen by the value's own task, shortly
    /// after [`value`](Self::value) has it. It is closed when this is closed or dropped.
    #[must_use]
    pub fn watch(&self) -> watch::Receiver<VersionedValue<Vec<u8>>> {
        self.owner.known.watch()
    }

    /// Sets the value, whatever it is now.
    ///
    /// # Errors
    ///
    /// * `NotStarted`, `Closed`.
    /// * Of the framework `NoNode` if somebody deleted the node, `NoAuth`, `Compression`, `SchemaViolation`;
    ///   `ConnectionLoss` and `SessionExpired` when the retry policy gives up: the value may be set if
    ///   [`outcome_unknown`](SharedError::outcome_unknown) says so.
    ///
    /// After a lost reply it is set again, also if somebody else has set another value meanwhile.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped the value may be set.
    pub async fn set_value(&self, value: impl Into<Vec<u8>>) -> Result<(), SharedError> {
        self.check_started()?;
        let value = value.into();
        let Owner { known, client, .. } = &*self.owner;
        let stat = client.set_data().with_data(value.clone()).for_path(known.path()).await?;
        known.learn(VersionedValue::new(stat.mzxid, stat.version, value));
        Ok(())
    }

    /// Sets the value if it is still the previous one, which [`versioned_value`](Self::versioned_value) gave. `true` if
    /// this call has set it, `false` if it has not because there is another value. If `previous` is not what is known
    /// here, that takes no request; else the new value is read before `false` is returned.
    ///
    /// # Errors
    ///
    /// * `IllegalTrySetVersion` if the previous version is −1: before anything was read, and where the server counts
    ///   through −1, after 2^32 changes.
    /// * Those of [`set_value`](Self::set_value).
    ///
    /// If a reply is lost, the value may be set without anybody knowing whose change it was. Then the error says that
    /// the [`outcome is unknown`](SharedError::outcome_unknown), also when a retry is refused because of the version.
    /// Whoever has to know puts something of his own into the value, and looks for it in the newest one.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped the value may be set.
    pub async fn try_set_value(
        &self,
        previous: &VersionedValue<Vec<u8>>,
        value: impl Into<Vec<u8>>,
    ) -> Result<bool, SharedError> {
        self.check_started()?;
        if previous.version() == ANY_VERSION {
            return Err(SharedError::IllegalTrySetVersion { path: self.name() });
        }
        if !self.owner.known.is_newest(previous) {
            return Ok(false);
        }
        Ok(self.try_set(previous.version(), value.into()).await?)
    }

    async fn try_set(&self, version: i32, value: Vec<u8>) -> Result<bool, Error> {
        let Owner { known, client, .. } = &*self.owner;
        let path = known.path();
        client.check_change(path, &value)?;
        let stored = client.to_stored(path, value.clone(), None)?;
        let mut retries = client.retry_loop();
        // Of an earlier try that may have been applied.
        let mut unknown: Option<Error> = None;
        loop {
            let result = match retries.session().await {
                Ok(session) => session.set_data(path, stored.clone(), Some(version)).await,
                Err(error) => Err(error),
            };
            let error = match result {
                Ok(stat) => {
                    known.learn(VersionedValue::new(stat.mzxid, stat.version, value));
                    return Ok(true);
                }
                Err(Error::BadVersion { .. }) => {
                    self.read_again().await;
                    return unknown.map_or(Ok(false), Err);
                }
                Err(error) => error,
            };
            if error.outcome_unknown() {
                unknown = Some(error.clone());
            }
            if let Err(error) = retries.failed(error).await {
                return Err(unknown.unwrap_or(error));
            }
        }
    }

    /// So that who tries again tries with what there is. If it fails, the value's own task reads again anyway.
    async fn read_again(&self) {
        let Owner { known, client, .. } = &*self.owner;
        match client.get_data().for_path(known.path()).await {
            Ok((value, stat)) => known.learn(VersionedValue::new(stat.mzxid, stat.version, value)),
            Err(error) => tracing::debug!(%error, "a shared value that has changed cannot be read yet"),
        }
    }

    /// Adds a listener. It is told of the changes from now on, not of the value there is.
    ///
    /// It is given the value with each call: a listener that keeps a clone of its own keeps the value, which then
    /// ends only with [`close`](Self::close).
    pub fn add_listener(&self, listener: impl SharedValueListener) -> SharedListenerId {
        self.owner.known.add_listener(Arc::new(listener))
    }

    /// Removes a listener. What it was to be told already may still reach it.
    pub fn remove_listener(&self, id: SharedListenerId) {
        self.owner.known.remove_listener(id);
    }

    /// Ends it: the copy stays as it is, the listeners and [`watch`](Self::watch)es are told nothing more, and the
    /// watch on the node is given up. The node stays. Closing twice is fine.
    ///
    /// # Cancel safety
    ///
    /// The closing goes on when this future is dropped.
    pub async fn close(&self) {
        if let Some(task) = self.owner.end() {
            if let Err(error) = task.await {
                // It was told to end, so anything else is a fault of ours.
                if error.is_panic() {
                    tracing::error!(%error, "the task of a shared value failed");
                }
            }
        }
    }

    fn check_started(&self) -> Result<(), SharedError> {
        match *self.owner.life.lock() {
            Life::Started { .. } => Ok(()),
            Life::Latent | Life::Starting => Err(SharedError::NotStarted { path: self.name() }),
            Life::Closed => Err(self.closed()),
        }
    }

    fn closed(&self) -> SharedError {
        SharedError::Closed { path: self.name() }
    }

    fn name(&self) -> String {
        self.path().to_owned()
    }

    #[cfg(test)]
    pub(super) fn known(&self) -> &Known {
        &self.owner.known
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

    fn add_listener(&self, listener: Arc<dyn SharedValueListener>) -> SharedListenerId {
        self.owner.known.add_listener(listener)
    }

    fn remove_listener(&self, id: SharedListenerId) {
        self.remove_listener(id);
    }
}

impl fmt::Debug for SharedValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let life = match *self.owner.life.lock() {
            Life::Latent => "latent",
            Life::Starting => "starting",
            Life::Started { .. } => "started",
            Life::Closed => "closed",
        };
        f.debug_struct("SharedValue").field("known", &self.owner.known).field("life", &life).finish_non_exhaustive()
    }
}
