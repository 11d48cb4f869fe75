//! The subscriptions of a session: persistent watches for standing tasks.
//!
//! A server replays nothing for a persistent watch after a lost connection. So with a resync each reconnect sends the
//! nodes that the subscriber knows as one-shot watches, from its zxid, and the persistent watch after them. Until all
//! have their replies, the subscriber gets the changes of children too. Later the recursive watch reports each child,
//! and the remaining one-shot watches cause no further event.
//!
//! The zxid of a resync is never newer than the zxid that the session froze at the loss. So a resync that is
//! interrupted between its parts misses nothing.
//!
//! A new subscription with known nodes resyncs too, with SetWatches as ordinary requests and its addWatch after them. A
//! known path with a persistent watch of the session is in that request twice, so that the one-shot watch does not
//! replace it. The subscriber gets a `Reset` if the server's first reply is older than its zxid: such a server has
//! compared the nodes with another history.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use curator_wire::ErrorCode;
use tokio::sync::mpsc::error::TryRecvError;

use crate::error::{Error, Result};
use crate::model::namespace::Namespace;
use crate::model::{AddWatchMode, WatchedEvent};
use crate::session::Session;
use crate::zookeeper::{KnownNodes, Resync, SINCE_3_6, SubscriptionEvent, WatchEvents};

/// A persistent watch of one session. It ends with the session. Its drop removes the watch. Paths are in the session's
/// namespace.
pub struct Subscription {
    session: Session,
    events: WatchEvents,
    /// The event that `recv` has taken and not returned, with the number of its connection.
    taken: Option<(SubscriptionEvent, u64)>,
}

impl Session {
    /// Sets a persistent watch on a node, which need not exist, or on its subtree. One request, no retry.
    ///
    /// If `resync` names nodes at this call, the subscription starts with a resync, as at a reconnect. It reports the
    /// changes of these nodes since their zxid, which may be of an earlier session, then [`SubscriptionEvent::Resynced`].
    /// It reports [`SubscriptionEvent::Reset`] if that zxid is newer than all zxids of the server's replies in this
    /// session.
    ///
    /// After a reconnect the watch is set again, but the server sends no event of the outage. Without `resync` the
    /// subscription reports [`SubscriptionEvent::Reset`], and the subscriber must read everything again. With `resync` it
    /// reports the changes of the named nodes, then [`SubscriptionEvent::Resynced`].
    ///
    /// | request | per | cost |
    /// | --- | --- | --- |
    /// | addWatch | subscription | one, without data |
    /// | setWatches | subscription, reconnect | one for each 128 KB of paths that the subscriber knows |
    ///
    /// setWatches leaves a one-shot watch for each of these paths on the server, until it fires or the connection ends.
    ///
    /// # Errors
    ///
    /// * `Error::Unsupported` with `zookeeper-async`, and with servers before 3.6. Such a server closes the connection, so
    ///   a session sends one request, and later calls fail at once.
    /// * `Error::ConnectionLoss`, `Error::SessionExpired`, `Error::Closed`: the watch is not set.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves no watch, apart from what setWatches leaves.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn run(session: curator_framework::Session) -> Result<(), curator_framework::Error> {
    /// use std::sync::{Arc, Mutex};
    ///
    /// use curator_framework::AddWatchMode;
    /// use curator_framework::recipe::{KnownNodes, Resync, SubscriptionEvent};
    ///
    /// let known = Arc::new(Mutex::new(KnownNodes::default()));
    /// let shared = Arc::clone(&known);
    /// let resync: Arc<dyn Resync> = Arc::new(move || shared.lock().map(|known| known.clone()).unwrap_or_default());
    /// let mut tree = session.subscribe("/tree", AddWatchMode::PersistentRecursive, Some(resync)).await?;
    /// // Read the tree here, and record in `known` what was read.
    /// while let Some(event) = tree.recv().await {
    ///     match event {
    ///         SubscriptionEvent::Event(event) => println!("read {} again", event.path),
    ///         SubscriptionEvent::Resynced => println!("all changes of the lost connection have arrived"),
    ///         _ => println!("read everything again"),
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn subscribe(
        &self,
        path: &str,
        mode: AddWatchMode,
        resync: Option<Arc<dyn Resync>>,
    ) -> Result<Subscription> {
        let handle = self.handle();
        if !handle.capabilities().persistent_watches {
            return Err(self.unsupported("add persistent watches"));
        }
        let refused = &self.inner.is_before_3_6;
        if refused.load(Ordering::Acquire) {
            let code = ErrorCode::Unimplemented as i32;
            return Err(Error::of_code(path, code, SINCE_3_6, || format!("addWatch {path}")));
        }
        let resync = resync.map(|resync| self.in_server_paths(resync));
        let events = tokio::select! {
            biased;
            _ = self.ended() => return Err(self.closed_error(format!("addWatch {path}"))),
            added = handle.add_watch(&self.to_server_path(path), mode, resync) => added.map_err(|error| {
                if let Error::Unsupported { .. } = error {
                    refused.store(true, Ordering::Release);
                }
                self.for_caller(error)
            })?,
        };
        Ok(Subscription { session: self.unpinned(), events, taken: None })
    }

    fn in_server_paths(&self, resync: Arc<dyn Resync>) -> Arc<dyn Resync> {
        let root = self.root().clone();
        if root == Namespace::default() {
            return resync;
        }
        Arc::new(move || {
            let KnownNodes { zxid, data, missing, children } = resync.known();
            let [data, missing, children] = [data, missing, children]
                .map(|paths| paths.iter().map(|path| root.to_server_path(path).into_owned()).collect());
            KnownNodes { zxid, data, missing, children }
        })
    }
}

impl Subscription {
    /// Resolves with the next event, or with `None` when the session has ended. Events have the order of the server's
    /// transactions. A resync's events have no order, and precede its [`Resynced`](SubscriptionEvent::Resynced). When a
    /// `Reset` or `Resynced` arrives, the session takes requests on the new connection.
    ///
    /// At most 10,000 events wait for this call. With one more, all of them are dropped, a `Resynced` included, and a
    /// `Reset` takes their place.
    ///
    /// # Cancel safety
    ///
    /// No event is lost when the future is dropped.
    pub async fn recv(&mut self) -> Option<SubscriptionEvent> {
        if self.taken.is_none() {
            self.taken = Some(self.events.recv_with_epoch().await?);
        }
        if let Some((_, epoch @ 1..)) = self.taken {
            tokio::select! {
                biased;
                _ = self.session.ended() => {}
                () = self.session.epoch_above(epoch - 1) => {}
            }
        }
        self.taken.take().map(|(event, _)| self.for_caller(event))
    }

    /// Returns the next event, if [`recv`](Self::recv) would return it at once.
    ///
    /// Events precede the replies that reflect their transactions. So a subscriber that reads [`Session::zxid`] and then
    /// takes all events knows each change up to that zxid.
    ///
    /// # Errors
    ///
    /// `TryRecvError::Empty`: none has arrived. `TryRecvError::Disconnected`: the session has ended.
    pub fn try_recv(&mut self) -> Result<SubscriptionEvent, TryRecvError> {
        let epoch = self.session.epoch();
        let event = match self.taken.take_if(|(_, of)| *of <= epoch) {
            Some((event, _)) => Ok(event),
            None if self.taken.is_some() => Err(TryRecvError::Empty),
            None => self.events.try_recv_within(epoch),
        };
        event.map(|event| self.for_caller(event))
    }

    /// Returns the session of the subscription.
    #[must_use]
    pub const fn session(&self) -> &Session {
        &self.session
    }

    fn for_caller(&self, event: SubscriptionEvent) -> SubscriptionEvent {
        match event {
            SubscriptionEvent::Event(WatchedEvent { event_type, path }) => {
                let path = self.session.root().to_client_path(&path).to_owned();
                SubscriptionEvent::Event(WatchedEvent { event_type, path })
            }
            marker => marker,
        }
    }
}

impl fmt::Debug for Subscription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subscription").field("events", &self.events).finish_non_exhaustive()
    }
}
