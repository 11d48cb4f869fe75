//! Reads and writes of the election record.

use curator_framework::recipe::RecipeClient as _;
use curator_framework::spi::{Done, Operation};
use curator_framework::{CuratorFramework, Error, LossReason, RetryLoop, Session, Stat, node_from_path};

use crate::engine::candidacy::Record;
use crate::engine::hold::HoldShare;
use crate::leader::error::{LeaderError, TermEnd};

/// The data of an election's path, as it was read.
#[derive(Debug, Clone, Default)]
pub(super) struct Found {
    pub(super) record: Option<Record>,
    pub(super) stat: Stat,
    /// Another program has written the data.
    pub(super) is_foreign: bool,
}

impl Found {
    pub(super) fn new(data: &[u8], stat: Stat) -> Self {
        let record = Record::parse(data);
        Self { is_foreign: record.is_none() && !data.is_empty(), record, stat }
    }

    /// Returns the record as a transaction has written it.
    pub(super) fn written(record: Record, done: &[Done]) -> Self {
        let stat = done.iter().find_map(|done| if let Done::Set(stat) = done { Some(*stat) } else { None });
        Self { record: Some(record), stat: stat.unwrap_or_default(), is_foreign: false }
    }

    /// Returns the highest term that the record of the election's path names.
    pub(super) fn highest_term(&self) -> i64 {
        match &self.record {
            Some(record) => record.highest(&self.stat),
            // Another client has emptied the data: the term of the last record is not larger than that write.
            None if !self.is_foreign && self.stat.version > 0 => self.stat.mzxid,
            None => 0,
        }
    }

    /// Returns the record, if it is about this node.
    pub(super) fn record_by(&self, leader: &str) -> Option<&Record> {
        self.record.as_ref().filter(|record| record.leader == leader)
    }

    /// Returns the record that a leader continues: its own, or a new one.
    pub(super) fn record_of(&self, term: i64, leader: &str) -> Record {
        let mut record = Record::of_leader(term, leader).above(self.highest_term());
        if let Some(before) = self.record_by(leader).filter(|before| !before.resigned) {
            record.data.clone_from(&before.data);
        }
        record
    }

    /// Returns the write of a record that fails if the data has changed since this read.
    pub(super) fn change_to(&self, path: &str, record: &Record) -> Operation {
        Operation::SetData { path: path.to_owned(), data: record.to_bytes(), version: Some(self.stat.version) }
    }

    /// Writes the record of the leader with this node, in one transaction, ahead of the other operations.
    pub(super) async fn write(
        &self,
        session: &Session,
        path: &str,
        leader: &str,
        record: &Record,
        others: Vec<Operation>,
    ) -> Result<Vec<Done>, Refused> {
        let check = Operation::Check { path: leader.to_owned(), version: None };
        let mut operations = vec![check, self.change_to(path, record)];
        operations.extend(others);
        session.transaction(operations).await.map_err(|error| match error {
            Error::Transaction { index: 0, cause, .. } if matches!(*cause, Error::NoNode { .. }) => Refused::Lost,
            Error::Transaction { index: 1, cause, .. } if matches!(*cause, Error::BadVersion { .. }) => {
                Refused::Changed
            }
            error => Refused::Failed(error),
        })
    }
}

/// The failure of a write of the record.
pub(super) enum Refused {
    /// The leader's node is deleted.
    Lost,
    /// The record was written since it was read.
    Changed,
    Failed(Error),
}

/// Reads the path's data in one session.
pub(super) async fn read(session: &Session, retries: &mut RetryLoop, path: &str) -> Result<Found, Error> {
    loop {
        match session.get_data(path).await {
            Ok((data, stat)) => return Ok(Found::new(&data, stat)),
            Err(error) => retries.failed_in(session, error).await?,
        }
    }
}

/// The step after a write with an unknown outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum IfUnknown {
    Repeat,
    Fail,
}

/// The node of a leader, or of the next one, which writes the path's record.
pub(super) struct LeaderNode<'a> {
    pub(super) client: &'a CuratorFramework,
    /// The election's path.
    pub(super) path: &'a str,
    pub(super) share: &'a HoldShare,
}

impl LeaderNode<'_> {
    pub(super) fn session(&self) -> &Session {
        self.share.hold().session()
    }

    pub(super) fn name(&self) -> &str {
        node_from_path(self.share.path())
    }

    /// Writes the path's record, in one transaction that checks the leader's node. Reads it again after each write of
    /// another client. `change` returns the new record and further operations, or `None` to leave what was read. Returns
    /// what the path has then.
    pub(super) async fn write(
        &self,
        retries: &mut RetryLoop,
        mut found: Option<Found>,
        if_unknown: IfUnknown,
        change: impl Fn(&Found) -> Result<Option<(Record, Vec<Operation>)>, LeaderError>,
    ) -> Result<Found, LeaderError> {
        let Self { client, path, share } = *self;
        loop {
            let before = match found.take() {
                Some(found) => found,
                None => read(self.session(), retries, path).await?,
            };
            if before.is_foreign {
                return Err(LeaderError::ForeignData { path: client.path_text(path) });
            }
            let Some((record, others)) = change(&before)? else { return Ok(before) };
            match before.write(self.session(), path, share.path(), &record, others).await {
                Ok(done) => return Ok(Found::written(record, &done)),
                Err(Refused::Lost) => {
                    let reason = TermEnd::Lost(LossReason::NodeDeleted);
                    return Err(LeaderError::LeadershipLost { path: client.path_text(path), reason });
                }
                Err(Refused::Changed) => {}
                Err(Refused::Failed(error)) if error.outcome_unknown() && if_unknown == IfUnknown::Fail => {
                    return Err(error.into());
                }
                Err(Refused::Failed(error)) => retries.failed_in(self.session(), error).await?,
            }
        }
    }
}
