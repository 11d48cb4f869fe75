//! The task that keeps the local copy of a shared value up to date.

use std::sync::Arc;

use curator_framework::recipe::RecipeClient as _;
use curator_framework::{Chain, CuratorFramework, Error, Watch, Zxid};

use crate::content::sealed::Content;
use crate::shared::local_copy::{Load, LocalCopy, Newest, Stored};
use crate::shared::versioned::VersionedValue;
use crate::standing::Pauses;
use crate::standing::in_sessions::{CaughtUp, may_pass};

/// The result of a read, with the watch that fires at the next change.
pub(super) struct Read {
    found: Result<Stored, Error>,
    changed: Watch,
}

/// The task that follows one node.
pub(super) struct NodeFollower<V: Content> {
    copy: Arc<LocalCopy<V>>,
    client: CuratorFramework,
    /// The number of the newest value that was reported to the listeners.
    told: u64,
}

impl<V: Content> NodeFollower<V> {
    pub(super) fn new(copy: Arc<LocalCopy<V>>, client: CuratorFramework) -> Self {
        Self { copy, client, told: 0 }
    }

    /// Reads the node.
    ///
    /// # Errors
    ///
    /// The errors of the read. Undecodable data is in `Read::found` instead, since the watch is set then.
    async fn read(&self) -> Result<Read, Error> {
        let path = self.copy.path();
        let ((stored, stat), changed) = self.client.get_data().undecompressed().watched().for_path(path).await?;
        let value = self.client.from_stored(path, stored, None);
        Ok(Read { found: value.map(|value| VersionedValue::new(Zxid::new(stat.mzxid), stat.version, value)), changed })
    }

    /// Publishes the outcome of the first read, unless the value is closed.
    fn loaded(&self, load: Load) {
        self.copy.load.send_modify(|present| _ = present.as_mut().map(|present| *present = load));
    }

    /// Reads the node for the first time. Creates it with the seed if it is missing.
    async fn start(&mut self, seed: &[u8]) -> Result<Watch, Error> {
        let mut retries = self.client.retry_loop();
        let mut made = false;
        loop {
            let missing = match self.read().await {
                Ok(Read { found, changed }) => {
                    self.copy.update(found?);
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
            match create.for_path(self.copy.path()).await {
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
            let pause = pauses.after(may_pass(&error));
            if !is_closed {
                tracing::warn!(error = %Chain(&error), path = self.copy.path(), "a shared value cannot be read yet");
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
            tracing::warn!(error = %Chain(&error), path = self.copy.path(), "a shared value cannot be read, the last one stays");
            tokio::time::sleep(pauses.after(error.is_retryable())).await;
        }
    }

    /// Reads the node, and passes on a change to the listeners too. Watches a missing node for its creation.
    async fn read_and_publish(&mut self) -> Result<Watch, Error> {
        // The session with a server that has all earlier writes.
        let mut caught_up = CaughtUp::default();
        loop {
            let before = self.copy.stored();
            match self.read().await {
                Ok(Read { found, changed }) => {
                    match found {
                        Ok(value) if value.zxid() > before.zxid() => self.copy.update(value),
                        Ok(value) if value == before => {}
                        Ok(value) => {
                            // The server lags, or it has another history.
                            let session = self.client.session().await?;
                            if caught_up.catch_up(&session, self.copy.path()).await? {
                                continue;
                            }
                            self.copy.replace(&before, value);
                        }
                        Err(error) => {
                            tracing::warn!(error = %Chain(&error), "a shared value cannot be read, the last one stays")
                        }
                    }
                    // Data that is not a value was logged.
                    if let Some(Ok(newest)) = self.news().map(|newest| self.copy.decode(&newest)) {
                        let newest = Arc::new(newest);
                        self.copy.listeners.notify(move |listener| listener(&newest));
                    }
                    return Ok(changed);
                }
                Err(Error::NoNode { .. }) => {}
                Err(error) => return Err(error),
            }
            if let (None, made) = self.client.check_exists().watched().for_path(self.copy.path()).await? {
                tracing::warn!(path = self.copy.path(), "a shared value's node is gone, the last one stays");
                return Ok(made);
            }
        }
    }

    /// Returns the newest value, unless the listeners know it.
    fn news(&mut self) -> Option<Stored> {
        let Newest { number, stored } = self.copy.newest();
        (std::mem::replace(&mut self.told, number) != number).then_some(stored)
    }
}

/// Ends the waits for a read that the task had started, for example because its runtime was dropped.
impl<V: Content> Drop for NodeFollower<V> {
    fn drop(&mut self) {
        self.copy.load.send_if_modified(|load| load.take_if(|load| matches!(load, Load::Begun)).is_some());
    }
}
