//! The delete that takes an item: at most once, and not lost with a reply.

use curator_framework::spi::Operation;
use curator_framework::{Error, Session, Stat};

/// An item that was read, and that its reader wants to have.
#[derive(Debug)]
pub(super) struct Taking {
    pub(super) path: String,
    pub(super) name: Box<str>,
    pub(super) data: Vec<u8>,
    pub(super) stat: Stat,
    /// The session of a delete with an unknown outcome.
    sent_in: Option<Session>,
    /// The delete joins the deletes of other items.
    joins: bool,
}

/// The outcome of a delete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Taken {
    Ours,
    OfAnother,
    /// The node was written since it was read.
    Changed,
}

impl Taking {
    pub(super) const fn new(path: String, name: Box<str>, data: Vec<u8>, stat: Stat) -> Self {
        Self { path, name, data, stat, sent_in: None, joins: false }
    }

    /// Lets the delete join the deletes of other items.
    pub(super) const fn joining(mut self, joins: bool) -> Self {
        self.joins = joins;
        self
    }

    /// Returns whether a delete was sent, and its outcome is unknown.
    pub(super) const fn may_be_deleted(&self) -> bool {
        self.sent_in.is_some()
    }

    /// Deletes the node, if it is the one that was read. A node that is gone after an unanswered delete was deleted by
    /// it.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, the node may be deleted. The next call finds out.
    pub(super) async fn delete(&mut self, session: &Session) -> Result<Taken, Error> {
        if let Some(earlier) = &self.sent_in {
            let pinned = session.pinned();
            pinned.write_barrier().await?;
            match pinned.exists(&self.path).await? {
                Some(stat) if stat.czxid == self.stat.czxid => {
                    // A delete of an earlier session may arrive later than this read.
                    if earlier.is_same(session) {
                        self.sent_in = None;
                    }
                }
                _ => return Ok(Taken::Ours),
            }
        }
        let earlier = self.sent_in.replace(session.clone());
        match self.send(session).await {
            Ok(()) => Ok(Taken::Ours),
            Err(Error::NoNode { .. }) if earlier.is_some() => Ok(Taken::Ours),
            Err(Error::NoNode { .. }) => Ok(Taken::OfAnother),
            Err(Error::BadVersion { .. }) => {
                self.sent_in = None;
                Ok(Taken::Changed)
            }
            Err(error) => {
                if !error.outcome_unknown() {
                    self.sent_in = earlier;
                }
                Err(error)
            }
        }
    }

    async fn send(&self, session: &Session) -> Result<(), Error> {
        let (path, version) = (&self.path, Some(self.stat.version));
        match self.joins && session.has_transactions() {
            true => joined_delete(session, path, version).await,
            false => session.delete(path, version).await,
        }
    }
}

/// Deletes a node in a transaction that joins others.
pub(super) async fn joined_delete(session: &Session, path: &str, version: Option<i32>) -> Result<(), Error> {
    match session.joined_transaction(vec![Operation::Delete { path: path.to_owned(), version }]).await {
        Err(Error::Transaction { cause, .. }) => Err(*cause),
        deleted => deleted.map(drop),
    }
}
