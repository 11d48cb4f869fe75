//! One count, over lost replies and sessions.

use curator_framework::recipe::OwnedNode;
use curator_framework::spi::{Done, Operation};
use curator_framework::{CreateMode, Error, Session};

use super::call::{Call, Tried};
use super::plan::{Counted, Record, judge_count};
use super::store::{Known, Store};
use crate::barriers::error::BarrierError;

/// One count of an operation.
pub(super) struct Counting<'a> {
    store: &'a Store,
    /// The caller's id of the operation; otherwise one that the first try generates.
    operation: Option<String>,
    /// The round in which the operation counts: the round that was last read.
    round: Option<Record>,
    /// The operation counts only in `round`, and not at all after its end.
    is_participant: bool,
    /// The error of a try in `round` that may have been applied.
    unknown: Option<Error>,
    /// The node of a participant, which its count deletes.
    own: Option<&'a mut OwnedNode>,
}

impl Call for Counting<'_> {
    type Output = u32;

    /// Counts, and returns how many counts are left: 0 if the round has ended.
    async fn attempt(&mut self, session: &Session) -> Result<Tried<u32>, BarrierError> {
        if !self.is_bound() {
            // The round that was read before may have ended before this call.
            self.round = None;
        }
        match self.look(session).await? {
            Some(known) if known.left() > 0 => self.count(session, known).await,
            known => self.end(session, known).await,
        }
    }

    fn failed(&mut self, error: &Error) {
        if error.outcome_unknown() {
            self.unknown = Some(error.clone());
        }
    }

    fn unknown(&self) -> Option<Error> {
        self.unknown.clone()
    }
}

impl<'a> Counting<'a> {
    pub(super) fn new(
        store: &'a Store,
        operation: Option<String>,
        participant: Option<(Record, &'a mut OwnedNode)>,
    ) -> Self {
        let (round, own) = participant.unzip();
        Self { store, operation, is_participant: own.is_some(), round, unknown: None, own }
    }

    /// Returns `true` if the operation may count only in the round that was last read.
    const fn is_bound(&self) -> bool {
        self.is_participant || self.unknown.is_some()
    }

    /// Ends without a change of the round. `known` is its state; `None` if it has ended. It may have ended before this
    /// call, so its end decides only for a participant.
    async fn end(&mut self, session: &Session, known: Option<Known>) -> Result<Tried<u32>, BarrierError> {
        if let Some(own) = self.own.as_mut().filter(|own| own.session().is_same(session)) {
            own.delete().await?;
            self.own = None;
        }
        let left = known.map(|known| known.left()).or(self.is_participant.then_some(0));
        Ok(left.map(Ok).or_else(|| self.unknown.clone().map(Err)))
    }

    /// Returns the state of the operation's round, from the last count of this latch or from the server; `None` if the
    /// round has ended.
    async fn look(&mut self, session: &Session) -> Result<Option<Known>, BarrierError> {
        // A count on the condition of a known state takes that state out, so the next count reads. A round that has
        // ended is read again: the next one may have started.
        let earlier = self.store.known.lock().take().filter(|known| known.left() > 0);
        let known = match (&self.round, earlier) {
            (Some(round), Some(known)) if !round.is_same_round(&known.record) => {
                self.store.read_round(session, round).await?
            }
            (_, Some(known)) => Some(known),
            (Some(round), None) => self.store.read_round(session, round).await?,
            (None, None) => Some(self.store.read(session, None).await?),
        };
        self.round = self.round.take().or_else(|| known.as_ref().map(|known| known.record.clone()));
        Ok(known)
    }

    /// Sends the count on the condition of a known state. The last one opens the latch.
    async fn count(&mut self, session: &Session, known: Known) -> Result<Tried<u32>, BarrierError> {
        let (store, opens) = (self.store, known.left() == 1);
        let Known { record, version, tally } = known;
        let operation = self.operation.get_or_insert_with(|| session.new_id().to_string());
        let path = store.child(record.round, operation);
        let acl = session.acl_for(&path);
        let mut operations = vec![
            Operation::Create { path, data: Vec::new(), acl, mode: CreateMode::Persistent },
            Operation::SetData { path: store.round(record.round), data: Vec::new(), version: Some(tally.version) },
        ];
        if opens {
            let data = record.opened().to_data();
            operations.push(Operation::SetData { path: store.path.clone(), data, version: Some(version) });
        }
        match judge_count(self.send(session, operations).await)? {
            Counted::Now(tally) => {
                let known = Known { record, version, tally };
                let left = known.left();
                *store.known.lock() = Some(known);
                Ok(Some(Ok(left)))
            }
            Counted::Before => {
                let known = store.read_round(session, &record).await?;
                self.end(session, known).await
            }
            Counted::No => Ok(None),
        }
    }

    /// Sends the transaction, with the delete of the participant's node if it exists in this session.
    async fn send(&mut self, session: &Session, operations: Vec<Operation>) -> Result<Vec<Done>, Error> {
        let Some(own) = self.own.as_mut().filter(|own| own.session().is_same(session)) else {
            return session.transaction(operations).await;
        };
        let done = own.delete_with(operations).await?.unwrap_or_default();
        if done.is_empty() {
            // Another client has deleted the node, so nothing was counted.
            self.own = None;
        }
        Ok(done)
    }
}
