//! One count, over lost replies and sessions.

use curator_framework::recipe::OwnedNode;
use curator_framework::spi::{Done, Operation};
use curator_framework::{CreateMode, Error, Session};

use super::plan::{Counted, Record, judge_count};
use super::store::{Known, Store};
use crate::barriers::error::BarrierError;

/// One count of an operation.
pub(super) struct Counting<'a> {
    store: &'a Store,
    /// The id of the operation; that of the first try without one.
    operation: Option<String>,
    /// The round in which the operation counts: that of the newest look.
    round: Option<Record>,
    /// The operation counts in `round` alone, and not at all after its end.
    is_participant: bool,
    /// The error of a try in `round` that may have been applied.
    unknown: Option<Error>,
    /// The node of a participant, which its count deletes.
    own: Option<&'a mut OwnedNode>,
}

/// The result of one try.
enum Tried {
    /// The operation has counted, or its round is over. The number is that of the counts left.
    Counted(u32),
    /// Nothing was changed, and another look is needed.
    Refused,
    /// An earlier try may have counted.
    Unknown(Error),
}

impl<'a> Counting<'a> {
    pub(super) const fn new(store: &'a Store, operation: Option<String>) -> Self {
        Self { store, operation, round: None, is_participant: false, unknown: None, own: None }
    }

    pub(super) const fn of_participant(
        store: &'a Store,
        operation: String,
        round: Record,
        own: &'a mut OwnedNode,
    ) -> Self {
        let operation = Some(operation);
        Self { store, operation, round: Some(round), is_participant: true, unknown: None, own: Some(own) }
    }

    /// Counts. Returns how many counts are left.
    pub(super) async fn run(mut self) -> Result<u32, BarrierError> {
        self.store.check_transactions().await?;
        let mut retries = self.store.client.retry_loop();
        loop {
            if !self.is_bound() {
                // The round of the look before may have been over before this call.
                self.round = None;
            }
            let tried = match retries.session().await {
                Ok(session) => self.attempt(&session).await,
                Err(error) => Err(error.into()),
            };
            let error = match tried {
                Ok(Tried::Counted(left)) => return Ok(left),
                // Another count was faster, so at most as many tries follow as counts.
                Ok(Tried::Refused) => continue,
                Ok(Tried::Unknown(error)) => return Err(error.into()),
                Err(BarrierError::Framework(error)) => error,
                Err(error) => return Err(error),
            };
            if error.outcome_unknown() {
                self.unknown = Some(error.clone());
            }
            if let Err(error) = retries.failed(error.about(&self.store.path)).await {
                return Err(self.unknown.unwrap_or(error).into());
            }
        }
    }

    /// Returns `true` if the operation may count in no other round than that of the newest look.
    const fn is_bound(&self) -> bool {
        self.is_participant || self.unknown.is_some()
    }

    /// Makes one try.
    async fn attempt(&mut self, session: &Session) -> Result<Tried, BarrierError> {
        let Some(known) = self.look(session).await? else {
            self.delete_own(session).await?;
            return Ok(self.after_the_round());
        };
        match known.record.left(known.tally.counted) {
            0 => {
                self.delete_own(session).await?;
                Ok(Tried::Counted(0))
            }
            left => self.count(session, known, left == 1).await,
        }
    }

    /// Returns the result after the end of the operation's round. That round may have been over before this call, so
    /// its end decides for a participant alone.
    fn after_the_round(&self) -> Tried {
        match &self.unknown {
            _ if self.is_participant => Tried::Counted(0),
            Some(unknown) => Tried::Unknown(unknown.clone()),
            None => Tried::Refused,
        }
    }

    /// Returns the state of the operation's round, from the last count of this latch or from the server; `None` if the
    /// round is over.
    async fn look(&mut self, session: &Session) -> Result<Option<Known>, BarrierError> {
        // A count on the condition of an earlier state takes it out, so that the next one reads.
        let earlier = self.store.known.lock().take();
        let is_of_round = |known: &Known| self.round.as_ref().is_none_or(|round| round.is_same_round(&known.record));
        let known = match earlier.filter(is_of_round) {
            // A round that is over is read again: the next one may have begun.
            Some(known) if known.record.left(known.tally.counted) > 0 => known,
            _ => match (self.store.read(session, self.round.as_ref()).await, &self.round) {
                (Err(BarrierError::NotSet { .. }), Some(_)) => return Ok(None),
                (known, _) => known?,
            },
        };
        let round = self.round.get_or_insert_with(|| known.record.clone());
        Ok(round.is_same_round(&known.record).then_some(known))
    }

    /// Sends the count on the condition of a known state. The last one opens the latch.
    async fn count(&mut self, session: &Session, known: Known, opens: bool) -> Result<Tried, BarrierError> {
        let Known { record, version, tally } = known;
        let (store, round) = (self.store, record.round);
        let path = self.child(session, round);
        let acl = session.acl_for(&path);
        let mut operations = vec![
            Operation::Create { path, data: Vec::new(), acl, mode: CreateMode::Persistent },
            Operation::SetData { path: store.round(round), data: Vec::new(), version: Some(tally.version) },
        ];
        if opens {
            let data = record.opened().to_data();
            operations.push(Operation::SetData { path: store.path.clone(), data, version: Some(version) });
        }
        match judge_count(self.send(session, operations).await)? {
            Counted::Now(tally) => {
                let left = record.left(tally.counted);
                *store.known.lock() = Some(Known { record, version, tally });
                Ok(Tried::Counted(left))
            }
            Counted::Before => {
                let known = match store.read(session, Some(&record)).await {
                    Err(BarrierError::NotSet { .. }) => None,
                    known => Some(known?).filter(|known| known.record.is_same_round(&record)),
                };
                self.delete_own(session).await?;
                Ok(known.map_or_else(
                    || self.after_the_round(),
                    |known| Tried::Counted(known.record.left(known.tally.counted)),
                ))
            }
            Counted::No => Ok(Tried::Refused),
        }
    }

    /// Returns the path of this count.
    fn child(&mut self, session: &Session, round: u64) -> String {
        let operation = self.operation.get_or_insert_with(|| session.new_id().to_string());
        self.store.child(round, operation)
    }

    /// Sends the transaction, with the delete of the participant's node if it stands in this session.
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

    async fn delete_own(&mut self, session: &Session) -> Result<(), BarrierError> {
        if let Some(own) = self.own.as_mut().filter(|own| own.session().is_same(session)) {
            own.delete().await?;
            self.own = None;
        }
        Ok(())
    }
}
