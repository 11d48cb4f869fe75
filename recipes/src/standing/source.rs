//! The nodes at and below a path in one session: reads, and the notifications of changes after them. The notifications
//! come from a subscription, or from the watch that each read sets.
//!
//! `zookeeper-async` drops its watches at a reconnect, so it cannot resync. There a cache sets up to two watches for
//! each node, reads all nodes again, and refuses trees above a limit. A notification may come later than the replies
//! after it, so even the notification of a deletion only causes a read.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use curator_framework::recipe::{Resync, Subscription, SubscriptionEvent, WatchedData};
use curator_framework::spi::Read;
use curator_framework::{
    AddWatchMode, Error, EventType, MultiReadResult, Session, Stat, WakeReason, Watch, WatchKind, WatchedEvent,
};
use futures_util::FutureExt as _;
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// The notifications of the nodes at and below a path in one session.
pub(crate) struct Source {
    pub(crate) reads: Reads,
    /// `None` if the client, or its server, does not support persistent watches.
    subscription: Option<Subscription>,
    watches: Watches,
}

impl Source {
    /// Starts to listen. The request is sent at the first poll.
    pub(crate) async fn open(
        session: &Session,
        path: &str,
        mode: AddWatchMode,
        resync: Arc<dyn Resync>,
    ) -> Result<Self, Error> {
        let subscription = match session.subscribe(path, mode, Some(resync)).await {
            Err(Error::Unsupported { .. }) => None,
            subscribed => Some(subscribed?),
        };
        let (watches, set) = unbounded_channel();
        let reads = Reads { session: session.clone(), watches: subscription.is_none().then_some(watches) };
        let watches = Watches { session: session.clone(), set, armed: FuturesUnordered::new(), epoch: session.epoch() };
        Ok(Self { reads, subscription, watches })
    }

    /// Resolves with the next notification; `None` at the end of the session.
    pub(crate) async fn next(&mut self) -> Option<SubscriptionEvent> {
        match &mut self.subscription {
            Some(subscription) => subscription.recv().await,
            None => self.watches.next().await,
        }
    }

    /// Returns the next notification, if it has arrived.
    pub(crate) fn try_next(&mut self) -> Option<SubscriptionEvent> {
        match &mut self.subscription {
            Some(subscription) => subscription.try_recv().ok(),
            None => self.watches.next().now_or_never().flatten(),
        }
    }
}

/// The reads of a source, which notifies of each change after them.
#[derive(Clone)]
pub(crate) struct Reads {
    session: Session,
    /// Takes the watches that the reads set; `None` if a subscription notifies of the changes.
    watches: Option<UnboundedSender<NodeWatch>>,
}

impl Reads {
    pub(crate) const fn is_one_shot(&self) -> bool {
        self.watches.is_some()
    }

    /// Reads a node; `None` if it does not exist. A missing node has no watch.
    pub(crate) async fn get_data(&self, path: &str) -> Result<Option<(Stat, Vec<u8>)>, Error> {
        let Some(watches) = &self.watches else {
            return if_exists(self.session.get_data(path).await.map(|(data, stat)| (stat, data)));
        };
        if_exists(self.session.get_data_watched(path).await.map(|WatchedData { data, stat, watch }| {
            NodeWatch::add(watches, path, WatchKind::Data, watch);
            (stat, data)
        }))
    }

    /// Reads several nodes in one request. It sets no watches, so a subscription has to notify of the changes.
    pub(crate) async fn multi_read(&self, reads: Vec<Read>) -> Result<Vec<Result<MultiReadResult, Error>>, Error> {
        self.session.multi_read(reads).await
    }

    /// Returns the stat of a node that may be missing or not readable.
    pub(crate) async fn exists(&self, path: &str) -> Result<Option<Stat>, Error> {
        let Some(watches) = &self.watches else { return self.session.exists(path).await };
        let (stat, watch) = self.session.exists_watched(path).await?;
        NodeWatch::add(watches, path, WatchKind::Data, watch);
        Ok(stat)
    }

    /// Lists the children of a node; `None` if it does not exist.
    pub(crate) async fn get_children(&self, path: &str) -> Result<Option<Vec<String>>, Error> {
        let Some(watches) = &self.watches else { return if_exists(self.session.get_children(path).await) };
        if_exists(self.session.get_children_watched(path).await.map(|(names, watch)| {
            NodeWatch::add(watches, path, WatchKind::Children, watch);
            names
        }))
    }
}

fn if_exists<T>(read: Result<T, Error>) -> Result<Option<T>, Error> {
    match read {
        Err(Error::NoNode { .. }) => Ok(None),
        read => read.map(Some),
    }
}

/// A watch on a node, or on the list of its children.
struct NodeWatch {
    path: String,
    kind: WatchKind,
    watch: Watch,
}

impl NodeWatch {
    fn add(watches: &UnboundedSender<Self>, path: &str, kind: WatchKind, watch: Watch) {
        // Without its source nothing waits for the watch.
        let _has_source = watches.send(Self { path: path.to_owned(), kind, watch });
    }
}

impl Future for NodeWatch {
    type Output = (String, WatchKind, WakeReason);

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.watch).poll(cx).map(|reason| (std::mem::take(&mut self.path), self.kind, reason))
    }
}

/// The one-shot watches of a source.
struct Watches {
    session: Session,
    /// The watches that reads have set since the last poll.
    set: UnboundedReceiver<NodeWatch>,
    armed: FuturesUnordered<NodeWatch>,
    /// The connection of the armed watches. The client has dropped all earlier ones.
    epoch: u64,
}

impl Watches {
    async fn next(&mut self) -> Option<SubscriptionEvent> {
        loop {
            let (path, kind, reason) = tokio::select! {
                biased;
                Some(watch) = self.set.recv() => {
                    self.armed.push(watch);
                    continue;
                }
                Some(fired) = self.armed.next() => fired,
                _ = self.session.ended() => return None,
            };
            let event_type = match (reason, kind) {
                // A reason to read, even for a deletion: the reply that showed a newer node may have overtaken it.
                (WakeReason::Event(_) | WakeReason::WatchRemoved, WatchKind::Data) => EventType::NodeDataChanged,
                (WakeReason::Event(EventType::NodeChildrenChanged) | WakeReason::WatchRemoved, WatchKind::Children) => {
                    EventType::NodeChildrenChanged
                }
                // The deletion of a parent: the watch on its data reports it too.
                (WakeReason::Event(_), _) => continue,
                (WakeReason::SessionEnded(_), _) => return None,
                // The first lost watch of this connection has caused a reset.
                (_, _) if self.epoch == self.session.epoch() => continue,
                (_, _) => {
                    self.epoch = self.session.epoch();
                    return Some(SubscriptionEvent::Reset);
                }
            };
            return Some(SubscriptionEvent::Event(WatchedEvent { event_type, path }));
        }
    }
}
