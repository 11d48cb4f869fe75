//! The notifications of a cache in one session: from a subscription, or from watches of each node.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use curator_framework::recipe::{Subscription, SubscriptionEvent};
use curator_framework::{EventType, Session, WakeReason, Watch, WatchKind, WatchedEvent};
use futures_util::FutureExt as _;
use futures_util::stream::{FuturesUnordered, StreamExt as _};

/// The notifications of a cache in one session.
pub(super) enum Source {
    Subscription(Subscription),
    /// The client, or its server, does not support persistent watches.
    Watches(Watches),
}

impl Source {
    /// Resolves with the next notification; `None` at the end of the session.
    pub(super) async fn next(&mut self) -> Option<SubscriptionEvent> {
        match self {
            Self::Subscription(subscription) => subscription.recv().await,
            Self::Watches(watches) => watches.next().await,
        }
    }

    /// Returns the next notification, if it has arrived.
    pub(super) fn try_next(&mut self) -> Option<SubscriptionEvent> {
        match self {
            Self::Subscription(subscription) => subscription.try_recv().ok(),
            Self::Watches(watches) => watches.next().now_or_never().flatten(),
        }
    }

    /// Adds the watch that a read has set.
    pub(super) fn add(&mut self, watch: Option<NodeWatch>) {
        if let (Self::Watches(watches), Some(watch)) = (self, watch) {
            watches.armed.push(watch);
        }
    }

    pub(super) const fn is_one_shot(&self) -> bool {
        matches!(self, Self::Watches(_))
    }
}

/// A watch on a node, or on the list of its children.
pub(super) struct NodeWatch {
    pub(super) path: String,
    pub(super) kind: WatchKind,
    pub(super) watch: Watch,
}

impl Future for NodeWatch {
    type Output = (String, WatchKind, WakeReason);

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.watch).poll(cx).map(|reason| (std::mem::take(&mut self.path), self.kind, reason))
    }
}

/// The one-shot watches of a cache in a session.
pub(super) struct Watches {
    session: Session,
    armed: FuturesUnordered<NodeWatch>,
    /// The connection of the armed watches. The client has dropped those of earlier connections.
    epoch: u64,
}

impl Watches {
    pub(super) fn new(session: &Session) -> Self {
        Self { session: session.clone(), armed: FuturesUnordered::new(), epoch: session.epoch() }
    }

    async fn next(&mut self) -> Option<SubscriptionEvent> {
        loop {
            let (path, kind, reason) = tokio::select! {
                biased;
                Some(fired) = self.armed.next() => fired,
                _ = self.session.ended() => return None,
            };
            let event_type = match (reason, kind) {
                // A reason to read, even for a deletion: the reply that showed a newer node may have overtaken it.
                (WakeReason::Event(_), WatchKind::Data) => EventType::NodeDataChanged,
                (WakeReason::Event(EventType::NodeChildrenChanged), WatchKind::Children) => {
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
