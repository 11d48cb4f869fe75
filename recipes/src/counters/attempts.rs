//! The attempts to apply the write in flight, and the proofs that a marker gives of those without a reply.
//!
//! After an unknown outcome the same transaction is sent again, never a new computation. Its version lets at most one
//! of them apply. A `BadVersion` then proves nothing by itself, so the marker is read after a write barrier.
//!
//! The marker exists before a write that names a version, because a node that is deleted and created again may reach
//! the same version. The marker is deleted with its node, and the transaction fails without it. A read after the create
//! of the marker shows by `czxid`, `mzxid` and version that the node is still the known one.
//!
//! A missing marker proves nothing. If that read shows the known node, a write with a version is sent again with a new
//! marker. The outcome of a create or a forced value is unknown then.

use curator_framework::spi::{Done, Operation};
use curator_framework::{Error, Session, Stat};

use crate::counters::error::without_change;
use crate::counters::flight::Flight;
use crate::counters::step::{Condition, Refusal};
use crate::marker::{Marker, Proof};

/// The name of a marker, behind `_c_<uuid>-`.
const MARKER: &str = "count";

/// The attempts of a counter, kept between its callers.
#[derive(Debug, Default)]
pub(super) struct Attempts {
    marker: Option<Marker>,
    /// The write that was started and not settled, with its condition.
    flight: Option<(Condition, Flight)>,
    /// The number of writes that were started. The transaction of the newest one records it in the marker.
    begun: u64,
    /// The client lacks transactions, so the counter creates no marker.
    lacks_transactions: bool,
    /// The node that the engine knows.
    known: Option<Known>,
}

/// The transactions that created and last wrote a node. A version says less: it repeats on servers that returned to a
/// backup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Known {
    czxid: i64,
    mzxid: i64,
}

impl Known {
    pub(super) const fn of(stat: &Stat) -> Self {
        Self { czxid: stat.czxid, mzxid: stat.mzxid }
    }
}

/// The meaning of a reply to a write.
pub(super) enum Reply {
    /// Applied; the node's stat after it, unless the write has created it.
    Applied(Option<Stat>),
    Refused(Refusal),
    /// The parent of the node is missing. Nothing was applied.
    NoParent,
    /// The marker is not as expected: another client has deleted it. Nothing was applied.
    Marker,
    Error(Error),
}

impl Reply {
    /// Returns the meaning of a reply to a write, which may be a create.
    fn of(result: Result<Vec<Done>, Error>, is_create: bool) -> Self {
        let (index, error) = match result {
            Ok(done) => {
                let stat = if let Some(Done::Set(stat)) = done.first() { Some(*stat) } else { None };
                return Self::Applied(stat);
            }
            Err(Error::Transaction { index, cause, .. }) => (index, *cause),
            Err(error) => (0, error),
        };
        match (index, error) {
            (0, Error::BadVersion { .. } | Error::NodeExists { .. }) => Self::Refused(Refusal::Changed),
            (0, Error::NoNode { .. }) if is_create => Self::NoParent,
            (0, Error::NoNode { .. }) => Self::Refused(Refusal::Missing),
            (1, Error::NoNode { .. } | Error::NodeExists { .. }) => Self::Marker,
            (_, error) => Self::Error(error),
        }
    }
}

impl Attempts {
    /// Returns the node that the engine knows, if its transactions are known.
    pub(super) const fn known(&self) -> Option<Known> {
        self.known
    }

    /// Records the node that the engine knows from now on.
    pub(super) fn set_known(&mut self, stat: Option<&Stat>) {
        self.known = stat.map(Known::of);
    }

    /// Starts a write with this condition. Returns `false` if an earlier caller has started it.
    pub(super) fn begin(&mut self, condition: Condition) -> bool {
        if self.flight.is_some() {
            return false;
        }
        self.begun += 1;
        self.flight = Some((condition, Flight::Unsent));
        true
    }

    pub(super) const fn is_in_flight(&self) -> bool {
        self.flight.is_some()
    }

    /// Returns the proof of the tries that may have been applied, or `None` if none may.
    pub(super) async fn settle(&mut self, session: &Session) -> Result<Option<Proof>, Error> {
        let Some((_, flight)) = self.flight.as_mut().filter(|(_, flight)| flight.may_be_applied()) else {
            return Ok(None);
        };
        let proof = match &mut self.marker {
            Some(marker) if marker.is_of(session) => marker.proof(self.begun).await?,
            _ => Proof::None,
        };
        flight.proved(proof);
        Ok(Some(proof))
    }

    /// Returns `true` if the write has to wait for a marker. While the marker exists, the node is the one that the
    /// engine knows.
    pub(super) fn needs_marker(&self, session: &Session) -> bool {
        let stands = self.marker.as_ref().is_some_and(|marker| marker.is_of(session) && marker.stands());
        !(self.lacks_transactions || stands || self.is_create())
    }

    /// Returns the marker of this session, which may not exist yet.
    pub(super) fn marker_in(&mut self, session: &Session, path: &str) -> &mut Marker {
        let earlier = self.marker.take().filter(|marker| marker.is_of(session));
        self.marker.insert(earlier.unwrap_or_else(|| Marker::new(session, path, MARKER)))
    }

    /// Returns the operation that records the write in its marker.
    pub(super) fn record(&mut self, session: &Session, path: &str) -> Operation {
        let begun = self.begun;
        if self.is_create() {
            // The marker of an earlier node was deleted with that node.
            return self.marker.insert(Marker::new(session, path, MARKER)).create(begun);
        }
        self.marker_in(session, path).record(begun)
    }

    /// Records that the write is sent.
    pub(super) fn sends(&mut self) {
        if let Some((_, flight)) = &mut self.flight {
            flight.sends();
        }
    }

    fn is_create(&self) -> bool {
        matches!(self.flight, Some((Condition::Missing, _)))
    }

    /// Returns `true` if a lost try may have been applied, and nothing can prove it.
    pub(super) fn is_ambiguous(&self) -> bool {
        self.flight.as_ref().is_some_and(|(_, flight)| flight.is_ambiguous())
    }

    /// Records the reply to the write, and returns its meaning.
    pub(super) fn replied(&mut self, result: Result<Vec<Done>, Error>) -> Reply {
        let unknown = result.as_ref().err().filter(|error| error.outcome_unknown());
        if let Some((_, flight)) = &mut self.flight {
            flight.replied(unknown);
        }
        if let Some(marker) = self.marker.as_mut().filter(|_| unknown.is_none()) {
            if result.is_ok() {
                marker.applied();
            } else {
                marker.refused();
            }
        }
        Reply::of(result, self.is_create())
    }

    /// Ends the write in flight, which is applied or refused.
    pub(super) fn settled(&mut self) {
        self.flight = None;
    }

    /// Ends the write in flight. Returns its error: one with an unknown outcome if the write may have been applied.
    pub(super) fn fail(&mut self, path: &str, error: Error) -> Error {
        let may_be_applied = self.flight.as_ref().is_some_and(|(_, flight)| flight.may_be_applied());
        let error = if may_be_applied { self.unknown(path) } else { without_change(error) };
        self.give_up();
        error
    }

    /// Returns the error of a write that may have been applied.
    pub(super) fn unknown(&self, path: &str) -> Error {
        let unknown = self.flight.as_ref().and_then(|(_, flight)| flight.unknown().cloned());
        let lost = || Error::ConnectionLoss { request: format!("a change of {path}").into(), sent: true, cause: None };
        unknown.unwrap_or_else(lost)
    }

    /// Ends the write in flight, which may still be applied. Its marker is used again only if that cannot hide a later
    /// write: the marker exists, and the server refuses the abandoned write after a later one.
    pub(super) fn give_up(&mut self) {
        let Some((condition, flight)) = self.flight.take() else { return };
        let can_hide = condition == Condition::Exists || !self.marker.as_ref().is_some_and(Marker::stands);
        if flight.may_be_applied() && can_hide {
            self.marker = None;
        }
    }

    /// Returns the marker. The next change creates another one.
    pub(super) const fn take_marker(&mut self) -> Option<Marker> {
        self.marker.take()
    }

    /// Forgets a marker that an administrator has deleted.
    pub(super) fn forget_marker(&mut self) {
        self.marker = None;
    }

    /// Records whether the client has transactions.
    pub(super) const fn know_transactions(&mut self, has_transactions: bool) {
        self.lacks_transactions = !has_transactions;
    }

    pub(super) const fn lacks_transactions(&self) -> bool {
        self.lacks_transactions
    }
}
