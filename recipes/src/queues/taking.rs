//! The deletes that take items: at most once, and not lost with a reply.
//!
//! An item that is gone after a delete without a reply may be another consumer's. The marker of the transaction shows
//! which. Over `zookeeper-async`, which has no transactions, and where the server allows no marker, the item counts as
//! taken.

use curator_framework::spi::Operation;
use curator_framework::{Error, Session, Stat};
use futures_util::future::join_all;

use crate::queues::proving::{Markers, Proving, Settled, Tried};

/// An item that was read, and its reader's knowledge of it.
#[derive(Debug)]
pub(super) struct Item<P> {
    pub(super) path: String,
    pub(super) name: Box<str>,
    pub(super) stat: Stat,
    pub(super) content: P,
    /// The item is deleted, and another one has its name: the path was created again.
    pub(super) is_followed: bool,
}

/// Items that their reader wants to have.
#[derive(Debug)]
pub(super) struct Taking<P> {
    items: Vec<Item<P>>,
    decided: Vec<(Item<P>, Taken)>,
    proving: Proving,
    /// The session of a delete with an unknown outcome.
    sent_in: Option<Session>,
    /// The outcome of a delete of an earlier session is unknown.
    is_doubtful: bool,
}

/// The outcome of a delete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Taken {
    /// `is_first` is false after an earlier request without a reply.
    Ours {
        is_first: bool,
    },
    OfAnother,
    /// The node was written since it was read.
    Changed,
    /// The node has children, so it cannot be deleted.
    HasChildren,
    /// The item is deleted, and nothing proves which client has taken it.
    Unknown,
}

impl<P> Taking<P> {
    pub(super) fn new() -> Self {
        Self { items: Vec::new(), decided: Vec::new(), proving: Proving::default(), sent_in: None, is_doubtful: false }
    }

    pub(super) fn add(&mut self, item: Item<P>) {
        self.items.push(item);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.items.is_empty() && self.decided.is_empty()
    }

    /// Returns whether a delete was sent, and its outcome is unknown.
    pub(super) const fn may_be_deleted(&self) -> bool {
        self.sent_in.is_some()
    }

    /// Returns the names of the items.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.items.iter().chain(self.decided.iter().map(|(item, _)| item)).map(|item| &*item.name)
    }

    /// Removes and returns the items with known outcomes.
    pub(super) fn take_decided(&mut self) -> Vec<(Item<P>, Taken)> {
        std::mem::take(&mut self.decided)
    }

    /// Deletes the nodes that are the ones that were read. After an error another call continues.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, the nodes may be deleted. The next call finds out.
    pub(super) async fn delete(&mut self, markers: &Markers, session: &Session) -> Result<(), Error> {
        let mut is_first = !self.is_doubtful;
        while !self.items.is_empty() {
            if self.sent_in.is_some() {
                is_first = false;
                self.settle(markers, session).await?;
                continue;
            }
            self.sent_in = Some(session.clone());
            let sent = match markers.are_possible(session) {
                true => self.send(markers, session, is_first).await,
                false => self.send_unproven(session, is_first).await,
            };
            // The next call reads a doubtful item again before it deletes.
            if !sent.as_ref().is_err_and(|error| self.is_doubtful || error.outcome_unknown()) {
                self.sent_in = None;
            }
            sent?;
        }
        // The next items have no earlier delete.
        self.is_doubtful = false;
        Ok(())
    }

    fn decide_all(&mut self, taken: Taken) {
        self.decided.extend(self.items.drain(..).map(|item| (item, taken)));
    }

    async fn send(&mut self, markers: &Markers, session: &Session, is_first: bool) -> Result<(), Error> {
        let delete = |item: &Item<P>| Operation::Delete { path: item.path.clone(), version: Some(item.stat.version) };
        let deletes = self.items.iter().map(delete).collect();
        match self.proving.send(markers, session, deletes).await? {
            Tried::Applied => self.decide_all(Taken::Ours { is_first }),
            Tried::Again => {}
            Tried::Refused(index, cause) => {
                let taken = self.refused(cause)?;
                let item = self.items.remove(index);
                self.decided.push((item, taken));
            }
        }
        Ok(())
    }

    /// Deletes one item.
    async fn send_unproven(&mut self, session: &Session, is_first: bool) -> Result<(), Error> {
        let Some(item) = self.items.first() else { return Ok(()) };
        let taken = match session.delete(&item.path, Some(item.stat.version)).await {
            Ok(()) => Taken::Ours { is_first },
            Err(error) => self.refused(error)?,
        };
        let item = self.items.remove(0);
        self.decided.push((item, taken));
        Ok(())
    }

    /// Returns the outcome of a delete that the server has refused.
    fn refused(&self, cause: Error) -> Result<Taken, Error> {
        match cause {
            Error::NoNode { .. } if self.is_doubtful => Ok(Taken::Unknown),
            Error::NoNode { .. } => Ok(Taken::OfAnother),
            Error::BadVersion { .. } => Ok(Taken::Changed),
            Error::NotEmpty { .. } => Ok(Taken::HasChildren),
            error => Err(error),
        }
    }

    /// Finds out if the earlier delete was applied.
    async fn settle(&mut self, markers: &Markers, session: &Session) -> Result<(), Error> {
        let is_same = self.sent_in.as_ref().is_some_and(|earlier| earlier.is_same(session));
        let is_proven = self.proving.is_unsettled();
        let sent = if is_proven { self.items.len() } else { 1 };
        let pinned = session.pinned();
        pinned.write_barrier().await?;
        // With a proof too: the path may be created again, with another item of the same name and version.
        let reads = self.items[..sent].iter().map(|item| pinned.exists(&item.path));
        let found = pinned.in_one_write(join_all(reads)).await;
        let found = found.into_iter().collect::<Result<Vec<_>, _>>()?;
        let gone = if is_proven {
            match self.proving.settle(markers, session).await? {
                Settled::Applied => Taken::Ours { is_first: false },
                Settled::NotApplied if !self.is_doubtful => Taken::OfAnother,
                Settled::NotApplied | Settled::Unknown => Taken::Unknown,
            }
        } else if is_same && !self.is_doubtful {
            Taken::Ours { is_first: false }
        } else {
            Taken::Unknown
        };
        let unsent = self.items.split_off(sent);
        for (mut item, found) in std::mem::take(&mut self.items).into_iter().zip(found) {
            let czxid = found.map(|found| found.czxid);
            if czxid == Some(item.stat.czxid) {
                self.items.push(item);
            } else {
                item.is_followed = czxid.is_some();
                self.decided.push((item, gone));
            }
        }
        self.items.extend(unsent);
        // A delete of an earlier session may arrive later than this read.
        self.is_doubtful |= gone == Taken::Unknown;
        self.sent_in = None;
        let _settled = self.proving.give_up();
        Ok(())
    }
}
