//! Follows the names at a queue's path in one session, and keeps a backlog up to date.
//!
//! A persistent recursive watch reports each name that is created or deleted, so one listing a session is enough. Over
//! `zookeeper-async`, and with servers before 3.6, a listing leaves a watch that reports one change, without a name. Then
//! the next listing waits until the known names are used up.
//!
//! The caches' engine reads the stat of each node, even without data. That is one more request an item, so it does not
//! fit here.

use std::sync::Arc;

use curator_framework::recipe::{KnownNodes, Resync, SubscriptionEvent};
use curator_framework::{AddWatchMode, Error, EventType, Session, WatchedEvent, node_from_path, parent_of};

use crate::queues::backlog::Backlog;
use crate::standing::source::Source;

/// Over a one-shot watch, the number of items of a priority or delay queue after which new names are listed.
const TAKEN_BEFORE_LISTING: usize = 16;

/// The followed names of one session.
pub(super) struct Follower {
    session: Session,
    path: String,
    source: Source,
    news: News,
    /// The number of items taken since the newest listing.
    taken: usize,
}

/// What is known of changes since the newest listing.
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
}

impl Follower {
    /// Starts to listen. The first [`update`](Self::update) lists.
    pub(super) async fn open(session: &Session, path: &str) -> Result<Self, Error> {
        // After a reconnect nothing is resumed: the path is listed again.
        let resync: Arc<dyn Resync> = Arc::new(KnownNodes::default);
        let source = Source::open(session, path, AddWatchMode::PersistentRecursive, resync).await?;
        Ok(Self { session: session.clone(), path: path.to_owned(), source, news: News::Lost, taken: 0 })
    }

    pub(super) const fn session(&self) -> &Session {
        &self.session
    }

    /// Counts an item that was taken.
    pub(super) const fn has_taken(&mut self) {
        self.taken = self.taken.saturating_add(1);
    }

    /// Applies all notifications that have arrived, and lists if the backlog needs it.
    pub(super) async fn update(&mut self, backlog: &mut Backlog, changed: &mut Vec<Changed>) -> Result<(), Error> {
        while let Some(event) = self.source.try_next() {
            self.apply(event, backlog, changed);
        }
        let is_due = match self.news {
            News::Known => false,
            News::Lost => true,
            News::Unlisted => {
                let waits = if backlog.is_in_order_of_puts() { usize::MAX } else { TAKEN_BEFORE_LISTING };
                backlog.ready() == 0 || self.taken >= waits
            }
        };
        if is_due { self.list(backlog, changed).await } else { Ok(()) }
    }

    /// Resolves after the next notification. Returns `false` at the end of the session.
    pub(super) async fn changed(&mut self, backlog: &mut Backlog, changed: &mut Vec<Changed>) -> bool {
        match self.source.next().await {
            Some(event) => {
                self.apply(event, backlog, changed);
                true
            }
            None => false,
        }
    }

    async fn list(&mut self, backlog: &mut Backlog, changed: &mut Vec<Changed>) -> Result<(), Error> {
        let reads = &self.source.reads;
        let names = loop {
            match reads.get_children(&self.path).await? {
                Some(names) => break names,
                // The read of a missing node leaves the watch that reports its creation.
                None if reads.is_one_shot() && reads.exists(&self.path).await?.is_some() => {}
                None => break Vec::new(),
            }
        };
        if self.news == News::Lost {
            changed.push(Changed::All);
        }
        backlog.listed(names);
        (self.news, self.taken) = (News::Known, 0);
        Ok(())
    }

    fn apply(&mut self, event: SubscriptionEvent, backlog: &mut Backlog, changed: &mut Vec<Changed>) {
        let SubscriptionEvent::Event(WatchedEvent { event_type, path, .. }) = event else {
            self.news = News::Lost;
            return;
        };
        if path == self.path {
            if self.source.reads.is_one_shot() {
                self.news = self.news.max(News::Unlisted);
                changed.push(Changed::All);
            } else if event_type == EventType::NodeDeleted {
                backlog.clear();
                changed.push(Changed::All);
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

impl News {
    /// Returns the one that asks for more.
    fn max(self, other: Self) -> Self {
        if self == Self::Lost { self } else { other }
    }
}
