//! The call that begins a round.

use curator_framework::recipe::{NodeSpec, Parents};
use curator_framework::{Chain, CreateMode, Error, Session, make_path};
use futures_util::StreamExt as _;
use futures_util::stream;

use super::plan::{Record, SetStep, next_set};
use super::store::Store;
use crate::barriers::error::BarrierError;

/// The number of nodes of earlier rounds that are deleted at once.
const AT_ONCE: usize = 32;

/// The outcome of one try.
enum Tried {
    /// `true` if this call has begun the round.
    Ended(bool),
    /// The record has changed, or its node was created.
    Again,
    /// A later round has followed the one that an earlier try may have begun, or the latch was deleted.
    Unknown,
}

/// One call that begins a round.
pub(super) struct SetCount<'a> {
    store: &'a Store,
    count: u32,
    /// The id of the call, by which it finds its record after a lost reply.
    call_id: Option<String>,
    /// The record of a try with an unknown outcome, and its error.
    sent: Option<(Record, Error)>,
    /// The number of the session in which the server had all that was committed when the call began.
    certain_in: Option<u64>,
}

impl<'a> SetCount<'a> {
    pub(super) const fn new(store: &'a Store, count: u32) -> Self {
        Self { store, count, call_id: None, sent: None, certain_in: None }
    }

    /// Begins the round, if no count stands. Returns `true` if this call has begun it.
    pub(super) async fn run(mut self) -> Result<bool, BarrierError> {
        self.store.check_transactions().await?;
        let mut retries = self.store.client.retry_loop();
        loop {
            let tried = match retries.session().await {
                Ok(session) => self.attempt(&session).await,
                Err(error) => Err(error.into()),
            };
            let error = match tried {
                Ok(Tried::Ended(is_ours)) => return Ok(is_ours),
                Ok(Tried::Again) => continue,
                Ok(Tried::Unknown) => {
                    let request = format!("the beginning of a round at {}", self.store.path).into();
                    Err(Error::ConnectionLoss { request, sent: true, cause: None })
                }
                Err(BarrierError::Framework(error)) => retries.failed(error.about(&self.store.path)).await,
                Err(error) => return Err(error),
            };
            if let Err(error) = error {
                return Err(self.sent.map_or(error, |(_, unknown)| unknown).into());
            }
        }
    }

    /// Makes one try.
    async fn attempt(&mut self, session: &Session) -> Result<Tried, BarrierError> {
        let store = self.store;
        let found = match session.get_data(&store.path).await {
            Ok((data, stat)) => (store.parse(&data)?, stat),
            Err(Error::NoNode { .. }) => return self.create(session).await,
            Err(error) => return Err(error.into()),
        };
        let (record, stat) = (found.0.as_ref(), found.1);
        let call_id = self.call_id.get_or_insert_with(|| session.new_id().to_string());
        let next = Record::next(record, stat.mzxid, self.count, call_id);
        let sent = self.sent.as_ref().map(|(sent, _)| sent);
        match next_set(record, sent, next) {
            SetStep::Ended(false) if self.certain_in != Some(session.number()) => {
                // On a server that lags behind, the count of a round that is over may still stand.
                session.write_barrier().await?;
                self.certain_in = Some(session.number());
                Ok(Tried::Again)
            }
            SetStep::Ended(is_ours) => Ok(Tried::Ended(is_ours)),
            SetStep::Begin(next) => self.begin(session, next, stat.version).await,
            SetStep::Unknown => Ok(Tried::Unknown),
        }
    }

    /// Creates the node of the latch, without a record.
    async fn create(&self, session: &Session) -> Result<Tried, BarrierError> {
        let spec = NodeSpec::new(&[]).with_parents(Parents::Containers);
        match session.create_with_parents(&self.store.path, CreateMode::Persistent, &spec).await {
            Ok(_) | Err(Error::NodeExists { .. }) => Ok(Tried::Again),
            Err(error) => Err(error.into()),
        }
    }

    /// Begins a round on the condition that the record has this version. Its node exists before the record names it.
    async fn begin(&mut self, session: &Session, next: Record, version: i32) -> Result<Tried, BarrierError> {
        let round = self.store.round(next.round);
        match session.create(&round, Vec::new(), session.acl_for(&round), CreateMode::Persistent).await {
            Ok(_) | Err(Error::NodeExists { .. }) => {}
            Err(Error::NoNode { .. }) => return Ok(Tried::Again),
            Err(error) => return Err(error.into()),
        }
        match session.set_data(&self.store.path, next.to_data(), Some(version)).await {
            Ok(_) => {
                self.clean_up(session, next.round).await;
                Ok(Tried::Ended(true))
            }
            Err(Error::BadVersion { .. } | Error::NoNode { .. }) => Ok(Tried::Again),
            Err(error) => {
                if error.outcome_unknown() {
                    self.sent = Some((next, error.clone()));
                }
                Err(error.into())
            }
        }
    }

    /// Deletes the nodes of earlier rounds. A later call deletes the nodes that this one leaves, except a round that it
    /// cannot list: each further listing would only delay the replies behind it.
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
                tracing::debug!(error = %Chain(&error), path = round, "an earlier round of a latch stays");
            }
        }
    }
}

/// Deletes a count of an earlier round. The delete of the round reports a failure.
async fn delete(session: Session, path: String) {
    drop(session.delete(&path, None).await);
}
