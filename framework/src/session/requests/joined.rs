//! Transactions of several callers that are sent as one.
//!
//! A transaction is all or nothing, so one that is refused would refuse the others with it. Then the server has changed
//! nothing, and names the operation. Its caller gets the error, and the others are sent again without it. An earlier one
//! with the same path, its parent or a child may be the cause. Then the refused one is sent again behind the others.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::error::{Error, Result};
use crate::model::path::parent_of;
use crate::session::Session;
use crate::zookeeper::{Done, Operation};

/// The limit of transactions in one request.
const MOST: usize = 64;
/// The limit of bytes in one request with several transactions: a half of what servers read by default.
const MOST_BYTES: usize = 512 << 10;
/// The bytes of an operation without its path and data, at most.
const BYTES_OF_OPERATION: usize = 100;

/// The transactions of a session that wait to be sent.
#[derive(Default)]
struct Joined(Mutex<Waiting>);

#[derive(Default)]
struct Waiting {
    all: VecDeque<Entry>,
    /// A task sends them.
    is_sending: bool,
    next_id: u64,
}

/// The transaction of one caller.
struct Entry {
    id: u64,
    session: Session,
    operations: Vec<Operation>,
    bytes: usize,
    /// The server has refused it together with others, without a reason.
    is_alone: bool,
    answer: oneshot::Sender<Result<Vec<Done>>>,
}

/// The waiting caller of an entry. Its drop removes the entry, if it was not sent.
struct Caller<'a> {
    joined: &'a Joined,
    id: u64,
    answered: oneshot::Receiver<Result<Vec<Done>>>,
}

impl Drop for Caller<'_> {
    fn drop(&mut self) {
        // First, so that the entry is not put back behind this.
        self.answered.close();
        let mut waiting = self.joined.0.lock();
        waiting.all.retain(|entry| entry.id != self.id);
    }
}

impl Session {
    /// Applies all of the operations or none, like [`transaction`](Self::transaction). Other joined transactions of this
    /// session may be in the same request. They come from callers that are polled in one turn, or that have waited for the
    /// reply to an earlier one. Each has its own outcome.
    ///
    /// # Errors
    ///
    /// * `Error::Transaction`: the first operation that failed, with its index in these operations. Nothing was
    ///   applied.
    /// * `Error::TooManyEphemeralNodes`: the session cannot have so many nodes. Nothing was sent.
    /// * `Error::Unsupported`: the client has no transactions. `Error::Closed`: the client is closed. Nothing was sent.
    /// * `Error::ConnectionLoss`, `Error::SessionExpired`: the outcome may be unknown, as when the client is closed
    ///   before the reply.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, the changes may be made. A later request of this session is sent after them.
    pub async fn joined_transaction(&self, operations: Vec<Operation>) -> Result<Vec<Done>> {
        let operations = self.checked(operations)?;
        if operations.is_empty() {
            return Ok(Vec::new());
        }
        let joined = self.extension::<Joined>();
        let (answer, answered) = oneshot::channel();
        let id = joined.add(self.clone(), operations, answer);
        let mut caller = Caller { joined: &joined, id, answered };
        // The others of this turn add theirs.
        tokio::task::yield_now().await;
        if joined.starts() {
            self.background().spawn_eager(send_all(Arc::clone(&joined)));
        }
        let answered = tokio::select! {
            biased;
            answered = &mut caller.answered => answered.ok(),
            _ = self.ended() => None,
        };
        drop(caller);
        // The request may be sent.
        answered.unwrap_or_else(|| Err(Error::SessionExpired { request: "multi".into() }))
    }
}

impl Joined {
    fn add(&self, session: Session, operations: Vec<Operation>, answer: oneshot::Sender<Result<Vec<Done>>>) -> u64 {
        let bytes = operations.iter().map(bytes_of).sum();
        let mut waiting = self.0.lock();
        let id = waiting.next_id;
        waiting.next_id += 1;
        waiting.all.push_back(Entry { id, session, operations, bytes, is_alone: false, answer });
        id
    }

    /// Returns `true` if a task has to be started that sends what waits.
    fn starts(&self) -> bool {
        let mut waiting = self.0.lock();
        let starts = !waiting.is_sending && !waiting.all.is_empty();
        waiting.is_sending |= starts;
        starts
    }
}

impl Waiting {
    /// Removes the transactions of the next request.
    fn next_batch(&mut self) -> Vec<Entry> {
        let (mut batch, mut bytes) = (Vec::<Entry>::new(), 0);
        while let Some(next) = self.all.front() {
            let joins = batch.first().is_none_or(|first| {
                let is_same = first.session.is_same(&next.session) && first.session.pinned == next.session.pinned;
                is_same && !first.is_alone && !next.is_alone && batch.len() < MOST && bytes + next.bytes <= MOST_BYTES
            });
            if !joins {
                break;
            }
            bytes += next.bytes;
            batch.extend(self.all.pop_front());
        }
        batch
    }

    /// Puts transactions back that were not applied.
    fn put_back(&mut self, batch: Vec<Entry>) {
        batch.into_iter().filter(|entry| !entry.answer.is_closed()).rev().for_each(|entry| self.all.push_front(entry));
    }
}

/// Lets another task send, if this one ends early.
struct Sending {
    joined: Arc<Joined>,
    is_done: bool,
}

impl Drop for Sending {
    fn drop(&mut self) {
        if !self.is_done {
            self.joined.0.lock().is_sending = false;
        }
    }
}

/// Sends all that waits, one request after the other.
async fn send_all(joined: Arc<Joined>) {
    let mut sending = Sending { joined, is_done: false };
    loop {
        let (session, batch);
        // Under the lock: a caller that is dropped has its transaction sent before, or never.
        let reply = {
            let mut waiting = sending.joined.0.lock();
            batch = waiting.next_batch();
            let Some(first) = batch.first() else {
                (waiting.is_sending, sending.is_done) = (false, true);
                return;
            };
            session = first.session.clone();
            session.send_transaction(batch.iter().flat_map(|entry| entry.operations.clone()).collect())
        };
        let again = settle(batch, reply.await);
        sending.joined.0.lock().put_back(again);
    }
}

/// Answers the callers of one request. Returns the transactions that are to be sent again.
fn settle(mut batch: Vec<Entry>, reply: Result<Vec<Done>>) -> Vec<Entry> {
    let answer = |entry: Entry, reply| {
        // An error means that the caller was dropped.
        let _caller = entry.answer.send(reply);
    };
    match reply {
        Ok(done) => {
            let mut done = done.into_iter();
            for entry in batch {
                let of_entry = done.by_ref().take(entry.operations.len()).collect();
                answer(entry, Ok(of_entry));
            }
            Vec::new()
        }
        Err(Error::Transaction { index, operation, cause }) => {
            let mut first = 0;
            let failed = batch.iter().position(|entry| {
                let is_in = index < first + entry.operations.len();
                first += if is_in { 0 } else { entry.operations.len() };
                is_in
            });
            let Some(failed) = failed else { return Vec::new() };
            let mut entry = batch.remove(failed);
            let path = entry.operations.get(index - first).map(Operation::path).unwrap_or_default();
            let mut earlier = batch[..failed].iter().flat_map(|entry| &entry.operations).map(Operation::path);
            if earlier.any(|earlier| earlier == path || parent_of(earlier) == path || parent_of(path) == earlier) {
                // The earlier one may have refused it, and is not applied. Its caller may be dropped by now.
                entry.is_alone = true;
                batch.push(entry);
            } else {
                answer(entry, Err(Error::Transaction { index: index - first, operation, cause }));
            }
            batch
        }
        // One of them is refused before it reaches the server.
        Err(error) if batch.len() > 1 && !error.outcome_unknown() && !error.is_retryable() => {
            batch.iter_mut().for_each(|entry| entry.is_alone = true);
            batch
        }
        Err(error) => {
            batch.into_iter().for_each(|entry| answer(entry, Err(error.clone())));
            Vec::new()
        }
    }
}

/// Returns the most bytes that an operation has in a request.
fn bytes_of(operation: &Operation) -> usize {
    let data = match operation {
        Operation::Create { data, .. } | Operation::SetData { data, .. } => data.len(),
        Operation::Delete { .. } | Operation::Check { .. } => 0,
    };
    BYTES_OF_OPERATION + operation.path().len() + data
}
