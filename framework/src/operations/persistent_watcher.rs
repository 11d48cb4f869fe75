//! Watches that stay when they fire.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_util::stream::{Stream, unfold};
use tokio::sync::mpsc::error::TryRecvError;

use crate::core::ClientCore;
use crate::error::{Error, Result};
use crate::model::{AddWatchMode, PersistentEvent};
use crate::operations::with_retries;
use crate::session::subscription::Subscription;
use crate::sync::changes::Changes;
use crate::zookeeper::SubscriptionEvent;

/// A watch that stays when it fires, through reconnects and new sessions: Curator's `PersistentWatcher`, and its
/// `watchers().add()`. The node need not exist. Dropping it removes the watch.
///
/// It is a [`Stream`] of events. They come in the order of the changes. Between two resets none is left out, and each
/// reports one change. A change may come again while a [`Subscription`](crate::recipe::Subscription) of the same
/// session resyncs. Up to 10,000 events wait for the reader. With one more, all of them are dropped, and a `Reset`
/// takes their place.
///
/// An event can be an error, after which the stream continues:
///
/// * `Error::ConnectionLoss`, `Error::SessionExpired`: the watch is not set, because the retry policy gave up. The next
///   event tries again.
/// * `Error::Closed`: the client was closed. The stream ends.
///
/// # Examples
///
/// ```no_run
/// # async fn run(client: curator_framework::CuratorFramework) -> Result<(), curator_framework::Error> {
/// use curator_framework::{AddWatchMode, PersistentEvent};
///
/// let mut settings = client.add_watch("/settings", AddWatchMode::PersistentRecursive).await?;
/// while let Some(event) = settings.recv().await {
///     match event? {
///         PersistentEvent::Changed(event) => println!("{} has changed", event.path),
///         _ => println!("look at all of it"),
///     }
/// }
/// # Ok(())
/// # }
/// ```
#[must_use = "dropping it removes the watch"]
pub struct PersistentWatcher {
    path: String,
    mode: AddWatchMode,
    events: Changes<Result<PersistentEvent>>,
}

/// The watch of a path, in one session after the other.
struct Watched {
    client: ClientCore,
    path: String,
    mode: AddWatchMode,
    /// The watch in one session.
    current: Option<Subscription>,
    is_closed: bool,
}

impl Watched {
    async fn set(&mut self) -> Result<()> {
        let (path, mode) = (self.path.as_str(), self.mode);
        let current =
            with_retries(
                &self.client,
                "addWatch",
                path,
                |session| async move { session.subscribe(path, mode, None).await },
            );
        self.current = Some(current.await?);
        Ok(())
    }

    async fn next(mut self) -> Option<(Result<PersistentEvent>, Self)> {
        if self.is_closed {
            return None;
        }
        if let Some(current) = &mut self.current {
            match current.recv().await {
                Some(SubscriptionEvent::Event(event)) => return Some((Ok(PersistentEvent::Changed(event)), self)),
                Some(_) => return Some((Ok(PersistentEvent::Reset), self)),
                None => self.current = None,
            }
        }
        let event = self.set().await.map(|()| PersistentEvent::Reset);
        self.is_closed = matches!(event, Err(Error::Closed));
        Some((event, self))
    }
}

impl PersistentWatcher {
    pub(crate) async fn add(client: ClientCore, path: &str, mode: AddWatchMode) -> Result<Self> {
        let mut watched = Watched { client, path: path.to_owned(), mode, current: None, is_closed: false };
        watched.set().await?;
        Ok(Self { path: path.to_owned(), mode, events: Changes::new(unfold(watched, Watched::next)) })
    }

    /// Returns the path that is watched.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Resolves with the next event, or the error that prevents it; `None` after `Error::Closed`.
    ///
    /// # Cancel safety
    ///
    /// No event is lost when the future is dropped.
    pub async fn recv(&mut self) -> Option<Result<PersistentEvent>> {
        self.events.recv().await
    }

    /// Returns the next event, or the error that prevents it, if it has arrived.
    ///
    /// # Errors
    ///
    /// * of the outer `Result`, `TryRecvError::Empty`: none has arrived; `TryRecvError::Disconnected`: the client was
    ///   closed
    /// * of the inner one: the errors of [`recv`](Self::recv)
    pub fn try_recv(&mut self) -> Result<Result<PersistentEvent>, TryRecvError> {
        self.events.try_recv()
    }
}

impl Stream for PersistentWatcher {
    type Item = Result<PersistentEvent>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        Pin::new(&mut self.events).poll_next(cx)
    }
}

impl fmt::Debug for PersistentWatcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PersistentWatcher").field("path", &self.path).field("mode", &self.mode).finish_non_exhaustive()
    }
}
