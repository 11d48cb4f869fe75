//! Follows the names at a queue's path in one session, and keeps a backlog up to date.
//!
//! A persistent recursive watch reports each name that is created or deleted, so one listing a session is enough. Over
//! `zookeeper-async`, and with servers before 3.6, a listing leaves a watch that reports one change, without a name. Then
//! the next listing waits until the known names are used up, or until none of them is due.
//!
//! A long backlog in the order of the puts is listed once and used up without a watch. Its events would say nothing new:
//! the first ones are about this consumer's deletes, and later items come last. Once another consumer is faster, the watch is
//! set, because its events spare reads. In the meantime a watch on the path itself reports its deletion. A path that is
//! created again has items with the same names and versions: only that notification distinguishes them.
//!
//! The caches' engine reads the stat of each node, even without data. That is one more request an item, so it does not
//! fit here.

use std::sync::Arc;

use curator_framework::recipe::{KnownNodes, Resync, SubscriptionEvent};
use curator_framework::{
    AddWatchMode, Error, EventType, Session, WakeReason, Watch, WatchedEvent, node_from_path, parent_of,
};
use futures_util::FutureExt;

use crate::queues::backlog::Backlog;
use crate::queues::shared::now_millis;
use crate::standing::source::{Reads, Source};

/// Over a one-shot watch, the number of items of a priority or delay queue after which new names are listed.
const TAKEN_BEFORE_LISTING: usize = 16;

/// The number of items from which on a backlog is used up without a watch.
const LONG: usize = 32;

/// The followed names of one session.
pub(super) struct Follower {
    session: Session,
    path: String,
    /// `None` while a long backlog is used up.
    source: Option<Source>,
    /// The changes have to be notified.
    wants_events: bool,
    news: News,
    /// The number of items taken since the newest listing.
    taken: usize,
    /// A one-shot watch of the source on the path itself is set, which reports its deletion.
    watches_path: bool,
    /// The watch on the path itself, without a source.
    path_watch: Option<Watch>,
}

/// The knowledge of changes since the newest listing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum News {
    /// The backlog has all that was notified.
    Known,
    /// The path has changed by names that are not known.
    Unlisted,
    /// The backlog is not to be trusted before the next listing.
    Lost,
}

/// A change of one item, for the owner of reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Changed {
    /// The node with this name was written, so that its version is another one.
    Written(String),
    /// The node with this name was deleted.
    Deleted(String),
    /// Any node may be another one.
    All,
    /// The path was deleted, or may have been: each node is another one.
    Path { is_deleted: bool },
}

impl Follower {
    /// Describes what follows the names, without a request. The first [`update`](Self::update) lists.
    pub(super) fn new(session: &Session, path: &str, wants_events: bool) -> Self {
        let (session, path) = (session.clone(), path.to_owned());
        let (source, path_watch) = (None, None);
        Self { session, path, source, wants_events, news: News::Lost, taken: 0, watches_path: false, path_watch }
    }

    /// Wants the changes to be notified from now on: another consumer was faster.
    pub(super) const fn has_rival(&mut self) {
        self.wants_events = true;
    }

    pub(super) const fn session(&self) -> &Session {
        &self.session
    }

    /// Counts an item that was taken.
    pub(super) const fn has_taken(&mut self) {
        self.taken = self.taken.saturating_add(1);
    }

    /// Applies all notifications that have arrived. A notification precedes each reply that reflects its change.
    pub(super) fn notified(&mut self, backlog: &mut Backlog, changed: &mut Vec<Changed>) {
        while let Some(event) = self.source.as_mut().and_then(Source::try_next) {
            self.apply(event, backlog, changed);
        }
        if let Some(reason) = self.path_watch.as_mut().and_then(FutureExt::now_or_never) {
            (self.path_watch, self.news) = (None, News::Lost);
            backlog.clear();
            changed.push(Changed::Path { is_deleted: reason == WakeReason::Event(EventType::NodeDeleted) });
        }
    }

    /// Applies all notifications that have arrived, and lists if the backlog needs it.
    pub(super) async fn update(&mut self, backlog: &mut Backlog, changed: &mut Vec<Changed>) -> Result<(), Error> {
        self.notified(backlog, changed);
        if self.source.is_none() && self.news == News::Lost && !self.wants_events {
            self.list(backlog, changed).await?;
        }
        if self.source.is_none() && (self.wants_events || backlog.ready() == 0) {
            // After a reconnect nothing is resumed: the path is listed again.
            let resync: Arc<dyn Resync> = Arc::new(KnownNodes::default);
            let mode = AddWatchMode::PersistentRecursive;
            self.source = Some(Source::open(&self.session, &self.path, mode, resync).await?);
            (self.news, self.path_watch) = (News::Lost, None);
        }
        let is_due = match self.news {
            News::Known => false,
            News::Lost => true,
            News::Unlisted => {
                let waits = if backlog.is_in_order_of_puts() { usize::MAX } else { TAKEN_BEFORE_LISTING };
                backlog.due(now_millis()).next().is_none() || self.taken >= waits
            }
        };
        if is_due { self.list(backlog, changed).await } else { Ok(()) }
    }

    /// Resolves after the next notification. Returns `false` at the end of the session.
    pub(super) async fn changed(&mut self, backlog: &mut Backlog, changed: &mut Vec<Changed>) -> bool {
        let Some(source) = &mut self.source else { return true };
        match source.next().await {
            Some(event) => {
                self.apply(event, backlog, changed);
                true
            }
            None => false,
        }
    }

    async fn list(&mut self, backlog: &mut Backlog, changed: &mut Vec<Changed>) -> Result<(), Error> {
        let names = match &self.source {
            Some(source) => {
                if source.reads.is_one_shot() && !self.watches_path {
                    source.reads.exists(&self.path).await?;
                    self.watches_path = true;
                }
                list_watched(&source.reads, &self.path).await?
            }
            None => {
                let (session, path) = (&self.session, &self.path);
                let requests = async { tokio::join!(session.exists_watched(path), session.get_children(path)) };
                let (watched, names) = session.in_one_write(requests).await;
                self.path_watch = Some(watched?.1);
                match names {
                    Err(Error::NoNode { .. }) => Vec::new(),
                    names => names?,
                }
            }
        };
        if self.news == News::Lost {
            changed.push(Changed::All);
        }
        backlog.listed(names);
        self.wants_events |= backlog.ready() < LONG;
        (self.news, self.taken) = (News::Known, 0);
        Ok(())
    }

    fn apply(&mut self, event: SubscriptionEvent, backlog: &mut Backlog, changed: &mut Vec<Changed>) {
        let SubscriptionEvent::Event(WatchedEvent { event_type, path, .. }) = event else {
            (self.news, self.watches_path) = (News::Lost, false);
            return;
        };
        let is_one_shot = self.source.as_ref().is_some_and(|source| source.reads.is_one_shot());
        if path == self.path {
            if is_one_shot {
                self.news = self.news.max(News::Unlisted);
                self.watches_path &= event_type == EventType::NodeChildrenChanged;
                changed.push(Changed::All);
            } else if event_type == EventType::NodeDeleted {
                backlog.clear();
                changed.push(Changed::Path { is_deleted: true });
            }
            return;
        }
        if parent_of(&path) != self.path {
            return;
        }
        let name = node_from_path(&path);
        match event_type {
            EventType::NodeCreated => backlog.created(name),
            EventType::NodeDeleted => {
                backlog.deleted(name);
                changed.push(Changed::Deleted(name.to_owned()));
            }
            EventType::NodeDataChanged => changed.push(Changed::Written(name.to_owned())),
            _ => {}
        }
    }
}

/// Lists the path. The read of a missing node leaves the watch that reports its creation.
async fn list_watched(reads: &Reads, path: &str) -> Result<Vec<String>, Error> {
    loop {
        match reads.get_children(path).await? {
            Some(names) => return Ok(names),
            None if reads.is_one_shot() && reads.exists(path).await?.is_some() => {}
            None => return Ok(Vec::new()),
        }
    }
}

impl News {
    /// Returns the one that asks for more.
    fn max(self, other: Self) -> Self {
        if self == Self::Lost { self } else { other }
    }
}
