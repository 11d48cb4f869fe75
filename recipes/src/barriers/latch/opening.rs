//! The wait for the end of a round.

use curator_framework::{EventType, Session};

use super::plan::Record;
use super::store::Store;
use crate::barriers::checks::found;
use crate::barriers::error::BarrierError;
use crate::barriers::waiting::{Awaited, Look};

/// The end of the round that the first read has shown.
pub(super) struct Opening<'a> {
    pub(super) store: &'a Store,
    pub(super) round: Option<Record>,
}

impl Awaited for Opening<'_> {
    type Output = ();

    async fn look(&mut self, session: &Session) -> Result<Look<()>, BarrierError> {
        let store = self.store;
        if self.round.is_none() {
            // A server that lags behind may not have the present round yet.
            session.write_barrier().await?;
        }
        let read = loop {
            // Another program may have deleted the latch, or the servers have lost their data: counts may be left.
            let read = found(session.get_data_watched(&store.path).await)?.ok_or_else(|| store.not_set())?;
            // A notification that arrives before the reply may report the round's start, which is not its end.
            if !read.watch.has_fired() {
                break read;
            }
        };
        let record = store.parse(&read.data)?.ok_or_else(|| store.not_set())?;
        let is_same = self.round.get_or_insert_with(|| record.clone()).is_same_round(&record);
        Ok(if is_same && !record.is_open { Look::Wait(read.watch) } else { Look::Done(()) })
    }

    /// The data of a latch changes at the end of a round, and at the start of the next.
    fn proven_by(&self, event: EventType) -> Option<()> {
        (event == EventType::NodeDataChanged).then_some(())
    }
}
