//! Transactions that count once, even if a reply is lost: each one writes its number into a marker of its session.
//!
//! Each change in flight has a separate marker, because a marker shows only its newest try.

use curator_framework::recipe::RecipeClient as _;
use curator_framework::spi::Operation;
use curator_framework::{CuratorFramework, Error, Session, node_from_path, parent_of};
use parking_lot::Mutex;

use crate::marker::{Marker, Proof};

/// The most markers that stay for further transactions.
const MOST_UNUSED: usize = 16;

/// The markers of one queue that no transaction uses now.
#[derive(Debug)]
pub(super) struct Markers {
    client: CuratorFramework,
    /// The queue's path.
    path: String,
    unused: Mutex<Vec<Numbered>>,
    /// The session in which the server has refused a marker.
    refused_in: Mutex<Option<Session>>,
}

/// A marker, and the number of the newest try that it has recorded.
#[derive(Debug)]
struct Numbered {
    marker: Marker,
    attempt: u64,
}

/// The tries of one change of the queue.
#[derive(Debug, Default)]
pub(super) struct Proving(Option<Unsettled>);

/// A try with an unknown outcome.
#[derive(Debug)]
struct Unsettled {
    numbered: Numbered,
    /// The try was to create the marker, so a missing marker proves that it was not applied.
    creates_marker: bool,
    /// `None` while the request is on its way.
    error: Option<Error>,
}

/// The outcome of an earlier try.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Settled {
    Applied,
    NotApplied,
    /// Nothing can prove it: the session has ended, the marker was deleted by hand, or this client may not read it.
    Unknown,
}

/// The outcome of a try with a reply.
#[derive(Debug)]
pub(super) enum Tried {
    Applied,
    /// The operation with this index has failed, and nothing was changed.
    Refused(usize, Error),
    /// The marker was refused, and nothing was changed. The next try makes another one, or has none.
    Again,
}

impl Markers {
    pub(super) fn new(client: CuratorFramework, path: String) -> Self {
        Self { client, path, unused: Mutex::default(), refused_in: Mutex::default() }
    }

    /// Returns whether transactions of this session have a marker.
    pub(super) fn are_possible(&self, session: &Session) -> bool {
        session.has_transactions() && !self.refused_in.lock().as_ref().is_some_and(|refused| refused.is_same(session))
    }

    /// Continues without markers in this session: it has reached the limit of ephemeral nodes, or the server allows none
    /// beside the queue's path.
    fn are_refused(&self, session: &Session, mut numbered: Numbered) -> Tried {
        numbered.marker.refused();
        *self.refused_in.lock() = Some(session.clone());
        Tried::Again
    }

    /// Keeps a marker for the next transaction. The drop of one too many deletes its node.
    fn keep(&self, numbered: Numbered) {
        let mut unused = self.unused.lock();
        if unused.len() < MOST_UNUSED {
            unused.push(numbered);
        }
    }

    /// Returns a marker of this session that no other transaction uses.
    fn unused(&self, session: &Session) -> Numbered {
        let (unused, of_others): (_, Vec<_>) = {
            let mut all = self.unused.lock();
            let (of_session, of_others) =
                std::mem::take(&mut *all).into_iter().partition(|numbered: &Numbered| numbered.marker.is_of(session));
            *all = of_session;
            (all.pop(), of_others)
        };
        // Outside of the lock: a drop leaves the node to the session.
        drop(of_others);
        unused.unwrap_or_else(|| {
            let (parent, name) = (parent_of(&self.path), node_from_path(&self.path));
            Numbered { marker: Marker::new(session, parent, &format!("{name}-marker")), attempt: 0 }
        })
    }
}

impl Proving {
    /// Returns whether a try was sent, and its outcome is unknown.
    pub(super) const fn is_unsettled(&self) -> bool {
        self.0.is_some()
    }

    /// Forgets an earlier try, and returns its error.
    pub(super) fn give_up(&mut self) -> Option<Error> {
        self.0.take()?.error
    }

    /// Finds out if an earlier try was applied.
    pub(super) async fn settle(&mut self, markers: &Markers, session: &Session) -> Result<Settled, Error> {
        let Some(earlier) = &mut self.0 else { return Ok(Settled::NotApplied) };
        if !earlier.numbered.marker.is_of(session) {
            return Ok(Settled::Unknown);
        }
        let proof = match earlier.numbered.marker.proof(earlier.numbered.attempt).await {
            Err(Error::NoAuth { .. }) => return Ok(Settled::Unknown),
            proof => proof?,
        };
        if proof == Proof::None && !earlier.creates_marker {
            return Ok(Settled::Unknown);
        }
        if let Some(earlier) = self.0.take() {
            markers.keep(earlier.numbered);
        }
        Ok(if proof == Proof::Applied { Settled::Applied } else { Settled::NotApplied })
    }

    /// Sends the operations and the marker's one in one transaction. No earlier try is unsettled.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, the try is unsettled.
    pub(super) async fn send(
        &mut self,
        markers: &Markers,
        session: &Session,
        mut operations: Vec<Operation>,
    ) -> Result<Tried, Error> {
        let mut numbered = markers.unused(session);
        let (index_of_marker, creates_marker) = (operations.len(), !numbered.marker.stands());
        numbered.attempt += 1;
        let record = match creates_marker {
            true => numbered.marker.create(numbered.attempt),
            false => numbered.marker.record(numbered.attempt),
        };
        if let Operation::Create { path, data, acl, mode } = &record {
            if markers.client.check_create(path, *mode, data, acl).is_err() {
                return Ok(markers.are_refused(session, numbered));
            }
        }
        operations.push(record);
        self.0 = Some(Unsettled { numbered, creates_marker, error: None });
        let sent = session.transaction(operations).await;
        let Some(mut unsettled) = self.0.take() else { return Ok(Tried::Again) };
        let Err(error) = sent else {
            unsettled.numbered.marker.applied();
            markers.keep(unsettled.numbered);
            return Ok(Tried::Applied);
        };
        match error {
            Error::Transaction { index, cause, .. } if index >= index_of_marker => Ok(match *cause {
                // It was deleted by hand.
                Error::NoNode { .. } if !creates_marker => Tried::Again,
                _ => markers.are_refused(session, unsettled.numbered),
            }),
            // Nothing was sent, and a client with so many nodes needs none for its items.
            Error::TooManyEphemeralNodes { .. } => Ok(markers.are_refused(session, unsettled.numbered)),
            error if error.outcome_unknown() => {
                unsettled.error = Some(error.clone());
                self.0 = Some(unsettled);
                Err(error)
            }
            error => {
                unsettled.numbered.marker.refused();
                markers.keep(unsettled.numbered);
                match error {
                    Error::Transaction { index, cause, .. } => Ok(Tried::Refused(index, *cause)),
                    error => Err(error),
                }
            }
        }
    }
}
