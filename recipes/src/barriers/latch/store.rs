//! The nodes of a latch, and what all operations read of them.

use curator_framework::recipe::RecipeClient as _;
use curator_framework::{CuratorFramework, Error, Session, make_path};
use parking_lot::Mutex;

use super::plan::{Record, Tally};
use crate::barriers::checks::{check_transactions, found};
use crate::barriers::error::BarrierError;

/// The state of a latch as one of its operations has seen it.
#[derive(Debug, Clone)]
pub(super) struct Known {
    pub(super) record: Record,
    /// The version of the record.
    pub(super) version: i32,
    pub(super) tally: Tally,
}

impl Known {
    /// Returns how many counts are left.
    pub(super) const fn left(&self) -> u32 {
        self.record.left(self.tally.counted)
    }
}

/// The nodes of one latch, shared by all clones.
pub(super) struct Store {
    pub(super) client: CuratorFramework,
    pub(super) path: String,
    /// The newest state that a count has left. The next count is sent on its condition, without a read.
    pub(super) known: Mutex<Option<Known>>,
    /// Earlier rounds with a listing above the limit of replies: they stay.
    pub(super) too_large: Mutex<Vec<u64>>,
}

impl Store {
    pub(super) const fn new(client: CuratorFramework, path: String) -> Self {
        Self { client, path, known: Mutex::new(None), too_large: Mutex::new(Vec::new()) }
    }

    /// Returns the path of the node of a round.
    pub(super) fn round(&self, round: u64) -> String {
        make_path(&self.path, &round.to_string())
    }

    /// Returns the path of the child of a count.
    pub(super) fn child(&self, round: u64, operation: &str) -> String {
        make_path(&self.round(round), operation)
    }

    /// Returns the path of the parent of the participants' nodes.
    pub(super) fn participants(&self) -> String {
        make_path(&self.path, "here")
    }

    pub(super) fn not_set(&self) -> BarrierError {
        BarrierError::NotSet { path: self.client.path_text(&self.path) }
    }

    /// Parses the data of the latch. Returns `None` for empty data: the path exists, but no count was ever set.
    pub(super) fn parse(&self, data: &[u8]) -> Result<Option<Record>, BarrierError> {
        match Record::parse(data) {
            None if !data.is_empty() => Err(BarrierError::NotALatch { path: self.client.path_text(&self.path) }),
            record => Ok(record),
        }
    }

    /// Reads the record and its version. Returns `None` if no count was ever set.
    pub(super) async fn record(&self, session: &Session) -> Result<Option<(Record, i32)>, BarrierError> {
        let Some((data, stat)) = found(session.get_data(&self.path).await)? else { return Ok(None) };
        Ok(self.parse(&data)?.map(|record| (record, stat.version)))
    }

    /// Reads the state of the present round. The read is repeated after a write barrier if no count is left, or if it
    /// shows another round than `round`. A server that lags behind may not have the present round yet.
    ///
    /// # Errors
    ///
    /// `BarrierError::NotSet`; `Error::NoNode` if another program has deleted the node of the round.
    pub(super) async fn read(&self, session: &Session, round: Option<&Record>) -> Result<Known, BarrierError> {
        // Pinned: a later read is not older than an earlier one.
        let session = session.pinned();
        let known = self.read_once(&session).await;
        let is_certain = match &known {
            Ok(known) => known.left() > 0 && round.is_none_or(|round| round.is_same_round(&known.record)),
            Err(BarrierError::NotSet { .. }) => false,
            Err(_) => true,
        };
        if is_certain {
            return known;
        }
        session.write_barrier().await?;
        self.read_once(&session).await
    }

    /// Reads the state of a round as [`read`](Self::read) does. Returns `None` if the round has ended.
    pub(super) async fn read_round(&self, session: &Session, round: &Record) -> Result<Option<Known>, BarrierError> {
        match self.read(session, Some(round)).await {
            Err(BarrierError::NotSet { .. }) => Ok(None),
            known => Ok(Some(known?).filter(|known| known.record.is_same_round(round))),
        }
    }

    /// Reads the state of the present round, as the server of the session has it.
    pub(super) async fn read_once(&self, session: &Session) -> Result<Known, BarrierError> {
        let mut before: Option<Record> = None;
        loop {
            let (record, version) = self.record(session).await?.ok_or_else(|| self.not_set())?;
            if let Some(stat) = session.exists(&self.round(record.round)).await? {
                return Ok(Known { record, version, tally: Tally::of(&stat) });
            }
            // The next round started between the two reads.
            if before.replace(record.clone()).is_some_and(|before| before.is_same_round(&record)) {
                return Err(Error::NoNode { path: self.client.path_text(&self.round(record.round)) }.into());
            }
        }
    }

    /// Checks that the client has transactions, before a call that writes.
    pub(super) async fn check_transactions(&self) -> Result<(), BarrierError> {
        Ok(check_transactions(&self.client, "count-down latch", &self.path).await?)
    }
}
