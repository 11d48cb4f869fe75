//! The wait for the end of a round.

use curator_framework::recipe::WatchedData;
use curator_framework::{Error, EventType, Session, WakeReason, Watch};

use super::plan::Record;
use super::store::Store;
use crate::barriers::error::BarrierError;
use crate::barriers::waiting::{Awaited, Look, follows_its_reply};

/// The end of the round that the first look has shown.
pub(super) struct Opening<'a> {
    store: &'a Store,
    round: Option<Record>,
}

impl<'a> Opening<'a> {
    pub(super) const fn of(store: &'a Store) -> Self {
        Self { store, round: None }
    }

    /// Reads the record, with a watch. Returns `None` if no count was ever set.
    async fn read(&self, session: &Session) -> Result<Option<(WatchedData, Record)>, BarrierError> {
        loop {
            return match session.get_data_watched(&self.store.path).await {
                // A notification ahead of the reply may be that of the round's begin, which is not its end.
                Ok(read) if read.watch.has_fired() => continue,
                Ok(read) => Ok(self.store.parse(&read.data)?.map(|record| (read, record))),
                Err(Error::NoNode { .. }) => Ok(None),
                Err(error) => Err(error.into()),
            };
        }
    }
}

impl Awaited for Opening<'_> {
    type Output = ();

    fn path(&self) -> &str {
        &self.store.path
    }

    async fn look(&mut self, session: &Session) -> Result<Look<()>, BarrierError> {
        if self.round.is_none() {
            // A server that lags behind may not have the present round yet.
            session.write_barrier().await?;
        }
        let found = self.read(session).await?;
        // Another program may have deleted the latch, or the servers have lost their data: counts may be left.
        let Some((read, record)) = found else { return Err(self.store.not_set()) };
        let round = self.round.get_or_insert_with(|| record.clone());
        if record.is_open || !round.is_same_round(&record) {
            return Ok(Look::Done(()));
        }
        Ok(Look::Wait(read.watch))
    }

    /// The data of a latch changes at the end of a round, and at the beginning of the next.
    fn notified(&mut self, session: &Session, reason: WakeReason, watch: &Watch) -> Option<()> {
        let has_changed = reason == WakeReason::Event(EventType::NodeDataChanged) && follows_its_reply(session, watch);
        has_changed.then_some(())
    }
}
