//! The notifications of a group's members in one session: from a subscription, or from a watch on each member.

use std::collections::{BTreeMap, BTreeSet};
use std::future::{Future, pending};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use curator_framework::recipe::{KnownNodes, Resync, Subscription, SubscriptionEvent, WatchedData};
use curator_framework::{
    AddWatchMode, Error, Session, Stat, WakeReason, Watch, Zxid, make_path, node_from_path, parent_of,
};
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use parking_lot::Mutex;

/// The notifications of a group's members in one session.
pub(super) struct Source {
    path: String,
    current: Arc<Mutex<Current>>,
    events: Events,
    last_number: u64,
}

enum Events {
    Subscription(Subscription),
    /// The client, or its server, does not support persistent watches.
    Watches(FuturesUnordered<MemberWatch>),
}

/// The members that were read, and have not changed since, as far as the notifications were handled.
#[derive(Default)]
struct Current {
    /// The numbers of the reads, and of the watches that these have set.
    members: BTreeMap<String, u64>,
    /// The number of times that the session has asked for them, to resync. The reply to an earlier read may be too old.
    resyncs: u64,
    /// The session has asked for them, and may not take requests yet.
    awaits_resync: bool,
    /// Notifications were dropped.
    has_missed: bool,
}

impl Current {
    /// Handles a notification. Returns `true` if a member is to be read again, or could not be read until now.
    fn hears(&mut self, path: &str, event: SubscriptionEvent) -> bool {
        match event {
            SubscriptionEvent::Event(event) => {
                parent_of(&event.path) == path && self.members.remove(node_from_path(&event.path)).is_some()
            }
            SubscriptionEvent::Resynced => std::mem::take(&mut self.awaits_resync),
            _ => {
                self.has_missed = true;
                true
            }
        }
    }

    /// Returns the members of which the session is to report the changes of an outage. The watch on the listing restores
    /// itself.
    fn resync(&mut self, path: &str) -> KnownNodes {
        // A new subscription asks too, and does not resync: it has no members yet. At a reconnect without members they may
        // be about to be read again, because of the resync.
        self.awaits_resync |= self.resyncs > 0;
        self.resyncs += 1;
        let data = self.members.keys().map(|id| make_path(path, id)).collect();
        // All that the session has shown counts: it is applied, or its notification is in the queue.
        KnownNodes { zxid: Some(Zxid::new(i64::MAX)), data, ..KnownNodes::default() }
    }
}

/// A watch on a member, which resolves with its id.
struct MemberWatch {
    id: String,
    number: u64,
    watch: Watch,
}

impl Future for MemberWatch {
    type Output = (String, u64, WakeReason);

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.watch).poll(cx).map(|reason| (std::mem::take(&mut self.id), self.number, reason))
    }
}

/// A member in the reply to a read.
pub(super) struct Found {
    pub(super) data: Vec<u8>,
    pub(super) stat: Stat,
    watch: Option<Watch>,
    /// The resyncs before the read.
    resyncs: u64,
}

impl Source {
    /// Begins to listen. The request is sent at the first poll.
    pub(super) async fn open(session: &Session, path: &str) -> Result<Self, Error> {
        let current = Arc::<Mutex<Current>>::default();
        let (known, parent) = (Arc::clone(&current), path.to_owned());
        let resync: Arc<dyn Resync> = Arc::new(move || known.lock().resync(&parent));
        let events = match session.subscribe(path, AddWatchMode::PersistentRecursive, Some(resync)).await {
            Err(Error::Unsupported { .. }) => Events::Watches(FuturesUnordered::new()),
            subscribed => Events::Subscription(subscribed?),
        };
        Ok(Self { path: path.to_owned(), current, events, last_number: 0 })
    }

    /// Returns the ids that have to be read, among these. All others are forgotten.
    pub(super) fn unread(&mut self, ids: &BTreeSet<String>) -> Vec<String> {
        // A member that joins is notified ahead of the listing that shows it, and read once.
        self.catch_up();
        let mut current = self.current.lock();
        current.members.retain(|id, _| ids.contains(id));
        ids.iter().filter(|id| !current.members.contains_key(*id)).cloned().collect()
    }

    /// Reads a member. If the client may not read it, its data is empty.
    pub(super) fn read(&self, session: &Session, id: &str) -> impl Future<Output = Result<Found, Error>> + use<> {
        let (session, path, current) = (session.clone(), make_path(&self.path, id), Arc::clone(&self.current));
        let is_watched = matches!(self.events, Events::Watches(_));
        async move {
            let resyncs = current.lock().resyncs;
            let found = |data, stat, watch| Found { data, stat, watch, resyncs };
            if is_watched {
                return match session.get_data_watched(&path).await {
                    Err(Error::NoAuth { .. }) => match session.exists_watched(&path).await? {
                        (Some(stat), watch) => Ok(found(Vec::new(), stat, Some(watch))),
                        (None, _) => Err(Error::NoNode { path: path.into() }),
                    },
                    read => read.map(|WatchedData { data, stat, watch }| found(data, stat, Some(watch))),
                };
            }
            match session.get_data(&path).await {
                Err(Error::NoAuth { .. }) => match session.exists(&path).await? {
                    Some(stat) => Ok(found(Vec::new(), stat, None)),
                    None => Err(Error::NoNode { path: path.into() }),
                },
                read => read.map(|(data, stat)| found(data, stat, None)),
            }
        }
    }

    /// Records that a member was read. Its changes are notified from now on.
    pub(super) fn was_read(&mut self, id: &str, Found { watch, resyncs, .. }: Found) {
        self.last_number += 1;
        let number = self.last_number;
        let mut current = self.current.lock();
        if current.resyncs == resyncs {
            current.members.insert(id.to_owned(), number);
        }
        if let (Events::Watches(watches), Some(watch)) = (&mut self.events, watch) {
            watches.push(MemberWatch { id: id.to_owned(), number, watch });
        }
    }

    /// Forgets all members.
    pub(super) fn forget(&mut self) {
        self.current.lock().members.clear();
    }

    /// Handles all notifications that have arrived. Returns `true` if one of them is news.
    fn catch_up(&mut self) -> bool {
        let Events::Subscription(events) = &mut self.events else { return false };
        let mut is_news = false;
        while let Ok(event) = events.try_recv() {
            is_news |= self.current.lock().hears(&self.path, event);
        }
        is_news
    }

    /// Resolves when a member has to be read. Returns `false` if the watches are gone.
    pub(super) async fn changed(&mut self) -> bool {
        loop {
            if self.current.lock().has_missed {
                return false;
            }
            let is_news = match &mut self.events {
                Events::Subscription(events) => {
                    let Some(event) = events.recv().await else { return false };
                    let is_news = self.current.lock().hears(&self.path, event);
                    self.catch_up() || is_news
                }
                Events::Watches(watches) => match watches.next().await {
                    Some((id, number, WakeReason::Event(_))) => {
                        // Otherwise the member has left, or was read since.
                        let members = &mut self.current.lock().members;
                        members.get(&id) == Some(&number) && members.remove(&id).is_some()
                    }
                    Some(_) => return false,
                    None => pending().await,
                },
            };
            let current = self.current.lock();
            if is_news && !current.awaits_resync && !current.has_missed {
                return true;
            }
        }
    }
}
