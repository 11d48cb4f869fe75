//! Watches that stay when they fire.

use std::fmt;

use crate::core::ClientCore;
use crate::error::Result;
use crate::model::{AddWatchMode, PersistentEvent};
use crate::operations::with_retries;
use crate::session::subscription::Subscription;
use crate::zookeeper::SubscriptionEvent;

/// A watch that stays when it fires, through reconnects and new sessions: Curator's `PersistentWatcher`, and its
/// `watchers().add()`. The node need not exist. Dropping it removes the watch.
///
/// # Examples
///
/// ```no_run
/// # async fn run(client: curator_framework::CuratorFramework) -> Result<(), curator_framework::Error> {
/// use curator_framework::{AddWatchMode, PersistentEvent};
///
/// let mut settings = client.add_watch("/settings", AddWatchMode::PersistentRecursive).await?;
/// loop {
///     match settings.next().await? {
///         PersistentEvent::Changed(event) => println!("{} has changed", event.path),
///         _ => println!("look at all of it"),
///     }
/// }
/// # }
/// ```
pub struct PersistentWatcher {
    client: ClientCore,
    path: String,
    mode: AddWatchMode,
    /// The watch in one session.
    current: Option<Subscription>,
}

impl PersistentWatcher {
    pub(crate) async fn add(client: ClientCore, path: &str, mode: AddWatchMode) -> Result<Self> {
        let mut watcher = Self { client, path: path.to_owned(), mode, current: None };
        watcher.set().await?;
        Ok(watcher)
    }

    async fn set(&mut self) -> Result<()> {
        let (path, mode) = (self.path.as_str(), self.mode);
        let current =
            with_retries(&self.client, path, |session| async move { session.subscribe(path, mode, None).await });
        self.current = Some(current.await?);
        Ok(())
    }

    /// Returns the path that is watched.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Resolves with the next event. Events come in the order of the changes. Between two resets none is left out, and
    /// each stands for one change. A change may come again while a [`Subscription`](crate::Subscription) of the same
    /// session resyncs. Up to 10,000 events wait until this takes them. With one more, all of them are dropped, and a
    /// `Reset` takes their place.
    ///
    /// # Errors
    ///
    /// `Error::ConnectionLoss`, `Error::SessionExpired`: the watch is not set, because the retry policy gave up. The
    /// next call tries again. `Error::Closed`: the client was closed.
    ///
    /// # Cancel safety
    ///
    /// No event is lost when the future is dropped.
    pub async fn next(&mut self) -> Result<PersistentEvent> {
        if let Some(current) = &mut self.current {
            match current.next().await {
                Some(SubscriptionEvent::Event(event)) => return Ok(PersistentEvent::Changed(event)),
                Some(_) => return Ok(PersistentEvent::Reset),
                None => self.current = None,
            }
        }
        self.set().await?;
        Ok(PersistentEvent::Reset)
    }
}

impl fmt::Debug for PersistentWatcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PersistentWatcher").field("path", &self.path).field("mode", &self.mode).finish_non_exhaustive()
    }
}
