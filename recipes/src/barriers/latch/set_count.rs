//! The call that starts a round.

use curator_framework::recipe::{NodeSpec, Parents};
use curator_framework::{Chain, CreateMode, Error, Session, make_path};
use futures_util::StreamExt as _;
use futures_util::stream;

use super::call::{Call, Tried};
use super::plan::{Record, SetStep, next_set};
use super::store::Store;
use crate::barriers::checks::found;
use crate::barriers::error::BarrierError;

/// The number of nodes of earlier rounds that are deleted at once.
const AT_ONCE: usize = 32;

/// One call that starts a round.
pub(super) struct SetCount<'a> {
    store: &'a Store,
    count: u32,
    /// The id of the call, by which it finds its record after a lost reply.
    call_id: Option<String>,
    /// The record of a try with an unknown outcome, and its error.
    sent: Option<(Record, Error)>,
    /// The number of the session in which the server had all that was committed when the call started.
    certain_in: Option<u64>,
}

impl Call for SetCount<'_> {
    type Output = bool;

    /// Starts the round, unless a round is in progress. Returns `true` if this call started it.
    async fn attempt(&mut self, session: &Session) -> Result<Tried<bool>, BarrierError> {
        let store = self.store;
        let Some((data, stat)) = found(session.get_data(&store.path).await)? else { return self.create(session).await };
        let record = store.parse(&data)?;
        let call_id = self.call_id.get_or_insert_with(|| session.new_id().to_string());
        let next = Record::next(record.as_ref(), stat.mzxid, self.count, call_id);
        let sent = self.sent.as_ref().map(|(sent, _)| sent);
        match next_set(record.as_ref(), sent, next) {
            SetStep::Ended(false) if self.certain_in != Some(session.number()) => {
                // A server that lags may still show the count of a round that has ended.
                session.write_barrier().await?;
                self.certain_in = Some(session.number());
                Ok(None)
            }
            SetStep::Ended(is_ours) => Ok(Some(Ok(is_ours))),
            SetStep::Begin(next) => self.begin(session, next, stat.version).await,
            SetStep::Unknown => Ok(self.unknown().map(Err)),
        }
    }

    fn unknown(&self) -> Option<Error> {
        self.sent.as_ref().map(|(_, error)| error.clone())
    }
}

impl<'a> SetCount<'a> {
    pub(super) const fn new(store: &'a Store, count: u32) -> Self {
        Self { store, count, call_id: None, sent: None, certain_in: None }
    }

    /// Creates the node of the latch, without a record.
    async fn create(&self, session: &Session) -> Result<Tried<bool>, BarrierError> {
        let spec = NodeSpec::new(&[]).with_parents(Parents::Containers);
        match session.create_with_parents(&self.store.path, CreateMode::Persistent, &spec).await {
            Ok(_) | Err(Error::NodeExists { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Starts a round on the condition that the record has this version. Its node exists before the record names it.
    async fn begin(&mut self, session: &Session, next: Record, version: i32) -> Result<Tried<bool>, BarrierError> {
        let round = self.store.round(next.round);
        match session.create(&round, Vec::new(), session.acl_for(&round), CreateMode::Persistent).await {
            Ok(_) | Err(Error::NodeExists { .. }) => {}
            Err(Error::NoNode { .. }) => return Ok(None),
            Err(error) => return Err(error.into()),
        }
        match session.set_data(&self.store.path, next.to_data(), Some(version)).await {
            Ok(_) => {
                self.clean_up(session, next.round).await;
                Ok(Some(Ok(true)))
            }
            Err(Error::BadVersion { .. } | Error::NoNode { .. }) => Ok(None),
            Err(error) => {
                if error.outcome_unknown() {
                    self.sent = Some((next, error.clone()));
                }
                Err(error.into())
            }
        }
    }

    /// Deletes the nodes of earlier rounds. A later call deletes the nodes that this one leaves, except a round that it
    /// cannot list: each further listing would only delay the replies after it.
    async fn clean_up(&self, session: &Session, present: u64) {
        let Ok(children) = session.get_children(&self.store.path).await else { return };
        for number in children.iter().filter_map(|name| name.parse().ok()).filter(|&number: &u64| number < present) {
            if self.store.too_large.lock().contains(&number) {
                continue;
            }
            let round = self.store.round(number);
            let counts = match session.get_children(&round).await {
                Ok(counts) => counts,
                Err(error @ Error::ReplyTooLarge { .. }) => {
                    tracing::warn!(error = %Chain(&error), path = round, "an earlier round of a latch has too many counts to delete");
                    self.store.too_large.lock().push(number);
                    continue;
                }
                Err(_) => Vec::new(),
            };
            let deletes: Vec<_> =
                counts.iter().map(|count| delete(session.clone(), make_path(&round, count))).collect();
            stream::iter(deletes).buffer_unordered(AT_ONCE).collect::<()>().await;
            if let Err(error) = session.delete(&round, None).await {
                tracing::debug!(error = %Chain(&error), path = round, "an earlier round of a latch was not deleted");
            }
        }
    }
}

/// Deletes a count of an earlier round. The delete of the round reports a failure.
async fn delete(session: Session, path: String) {
    drop(session.delete(&path, None).await);
}
